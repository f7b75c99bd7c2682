"""Zero-shot evaluation: plan a task that the model was never trained for, act on the true system, count the reward.

Three steps, each a function of its own: `plan_task` makes a policy from what was learned, `score_on_model` says what a policy is
worth on the model and in its plausible worst case, `run_task` runs it on the true system. `evaluate` is the first and the last.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from sonde._internal.errors import SondeError, whole
from sonde._internal.precision import double_precision
from sonde._internal.randomness import for_purpose, rollout_keys
from sonde._internal.user_code import task_label
from sonde.control import MAX_COPIES, Controller, OnStep, Rollouts, SimulatorPool, initial_states, run_rollouts
from sonde.data import Data, Trajectory
from sonde.evaluation._tasks import check_goal_support, goals_for, task_named
from sonde.imagination import Imagination, Mean, Pessimistic
from sonde.models import Posterior
from sonde.objectives import TaskReward
from sonde.solvers import ControlProblem, Planner, PlanningPolicy, Policy, RandomPolicy, Solver, solve
from sonde.solvers.adversarial import REGION_SHARES, ModelReturns, most_robust, with_region_share
from sonde.worlds import GoalTask, Task, World, has_simulator


@dataclass(frozen=True)
class TaskSetup:
    """A task on a world, and how it is solved and evaluated."""

    world: World
    """The system that the task is solved on."""
    task: Task | GoalTask
    """What is asked for."""
    name: str
    """Name of the task in tables, and of its random stream."""
    solver: Solver
    """What plans it."""
    horizon: int
    """Steps of each rollout."""
    rollouts: int = 1
    """Rollouts per seed, each from a new start and for a new goal, if the task has goals; results are averaged."""
    max_copies: int = MAX_COPIES
    """Most copies of the world that run at the same time."""
    imagination: Imagination = field(default_factory=Mean)
    """How plans are imagined; `Mean()` plans on the model's mean, `MemberTrajectories()` on average over its members."""

    def __post_init__(self):
        """Reject what cannot be solved."""
        whole("evaluation", horizon=self.horizon, rollouts=self.rollouts, max_copies=self.max_copies)
        check_goal_support(self.task, self.solver, self.name)

    @classmethod
    def named(cls, world: World, task: str, solver: Solver, horizon: int) -> "TaskSetup":
        """The setup of a task by its name.

        Args:
            world: The world.
            task: One of `world.tasks`, or FILE.py:NAME.
            solver: What plans it.
            horizon: Steps of each rollout.

        """
        return cls(world.for_task(task), task_named(world, task), task_label(task), solver, horizon)

    def keys(self, keys: Key[Array, " seeds"]) -> Key[Array, " seeds"]:
        """The task's own random stream.

        Args:
            keys: Keys of a round, one per seed.

        """
        return for_purpose(keys, f"evaluate/{self.name}")

    def problem(self, posterior: Posterior, imagination: Imagination) -> ControlProblem:
        """The control problem of the task on a posterior.

        Args:
            posterior: What was learned.
            imagination: How plans are imagined.

        """
        objective, world = TaskReward(self.task.reward), self.world
        return ControlProblem(posterior, imagination, objective, world.state_dim, world.action_dim)


class Learned(NamedTuple):
    """What a planner may use of a run: the posterior, and the measurements, both with a leading axis S."""

    posterior: Posterior
    data: Data | None = None
    """Solvers that train a policy begin imagined trajectories at visited states; planners do not need it."""


class ScoredPolicy(NamedTuple):
    """A policy, and what it is worth on the model."""

    policy: Policy
    returns: ModelReturns


@dataclass(frozen=True)
class Evaluation:
    """What a policy achieved on a task, per seed."""

    returns: Float[np.ndarray, " S"]
    """Mean return over the rollouts."""
    rewards: Float[np.ndarray, "S T"]
    """Rewards of the first rollout."""
    trajectory: Trajectory
    """The first rollout."""
    policy: Policy
    success: Float[np.ndarray, " S"] | None = None
    """Mean success over the rollouts; None where the task does not define it."""


@double_precision
def plan_task(
    setup: TaskSetup, learned: Learned | None, keys: Key[Array, " seeds"], adversary: Pessimistic | None = None
) -> Policy:
    """Make a policy for a task.

    Args:
        setup: The task.
        learned: What was learned; None for uniformly random actions.
        keys: Keys of the round, one per seed.
        adversary: Plan for the worst case under this adversary instead of `setup.imagination`.

    Returns:
        The policy, with a leading axis S on its arrays.

    """
    if learned is None:
        return RandomPolicy(setup.world.action_dim)
    posterior, data = learned.posterior, learned.data
    if data is None and not isinstance(setup.solver, Planner):
        raise SondeError(f"evaluate: {type(setup.solver).__name__} imagines from visited states: give it the explorer's data")
    imagination = setup.imagination
    if imagination.needs_members and posterior.ensemble_size == 0:  # such as the true dynamics
        imagination = Mean()
    if adversary is not None:
        imagination = _with_projection(adversary, setup.world)
        if isinstance(setup.solver, Planner):  # the adversary of a plan follows gradients
            posterior = posterior.differentiable()
    problem = setup.problem(posterior, imagination)
    policy = solve(setup.solver, problem, _or_empty(data, setup.world, len(keys)), for_purpose(setup.keys(keys), "solve"))
    return replace(policy, reports_information=False) if isinstance(policy, PlanningPolicy) else policy


@double_precision
def score_on_model(
    setup: TaskSetup,
    posterior: Posterior,
    keys: Key[Array, " seeds"],
    policy: Policy,
    adversary: Pessimistic,
    pool: SimulatorPool | None = None,
) -> ScoredPolicy:
    """Run a policy on the model, without and against adversaries; the true system only gives the starts.

    Args:
        setup: The task.
        posterior: What was learned, with a leading axis S.
        keys: Keys of the round, one per seed.
        policy: The policy, with a leading axis S.
        adversary: How much is plausible.
        pool: Simulators to reuse.

    """
    return _scored(setup, posterior, keys, adversary, _Candidates([policy]), pool)


@double_precision
def plan_robust_task(
    setup: TaskSetup,
    learned: Learned,
    keys: Key[Array, " seeds"],
    adversary: Pessimistic,
    plain: ScoredPolicy,
    pool: SimulatorPool | None = None,
) -> ScoredPolicy:
    """Make policies for the plausible worst case, and take for each seed the one whose guaranteed return is best.

    A planner makes one plan against each of `REGION_SHARES` of the confidence region; a policy that is trained is trained
    against all of it, and the plain one is not considered.

    Args:
        setup: The task.
        learned: What was learned.
        keys: Keys of the round, one per seed.
        adversary: How much is plausible.
        plain: The policy on the model's mean, scored; it is taken where no cautious plan guarantees more.
        pool: Simulators to reuse.

    """
    plans = isinstance(setup.solver, Planner)
    beta = jnp.full((len(keys), setup.world.state_dim), adversary.beta)
    policies, known = ([plain.policy], plain.returns) if plans else ([], None)
    for share in REGION_SHARES if plans else REGION_SHARES[-1:]:
        narrowed = learned._replace(posterior=with_region_share(learned.posterior, beta, share))
        policies.append(plan_task(setup, narrowed, keys, adversary))
    return _scored(setup, learned.posterior, keys, adversary, _Candidates(policies, known), pool)


class _Candidates(NamedTuple):
    """Policies to choose from, and the returns of the first where they are known."""

    policies: list[Policy]
    known: ModelReturns | None = None


def _scored(
    setup: TaskSetup,
    posterior: Posterior,
    keys: Array,
    adversary: Pessimistic,
    candidates: _Candidates,
    pool: SimulatorPool | None,
) -> ScoredPolicy:
    each = rollout_keys(setup.keys(keys), range(setup.rollouts))
    goals = goals_for(setup.task, each)
    starts = initial_states(setup.world, each, pool)
    problem = setup.problem(posterior.differentiable(), _with_projection(adversary, setup.world))
    aims = None if goals is None else jnp.asarray(goals)
    return ScoredPolicy(
        *most_robust(candidates.policies, problem, starts, setup.horizon, each, goals=aims, known=candidates.known)
    )


@double_precision
def run_task(
    setup: TaskSetup,
    policy: Policy,
    keys: Key[Array, " seeds"],
    *,
    pool: SimulatorPool | None = None,
    on_step: OnStep | None = None,
) -> Evaluation:
    """Run a policy on the true system and count the reward; an episode that ends early ends the count.

    Args:
        setup: The task.
        policy: The policy, with a leading axis S on its arrays.
        keys: Keys of the round, one per seed.
        pool: Simulators to reuse.
        on_step: Called after each step of a host world.

    """
    if not has_simulator(setup.world):
        name = type(setup.world).__name__
        raise SondeError(f"{name} has no simulator to evaluate on: run the policy of Experiment.solve yourself")
    keys = setup.keys(keys)
    goals = goals_for(setup.task, rollout_keys(keys, range(setup.rollouts)))
    controller = Controller(policy, keys, setup.world.state_dim)
    rollouts = Rollouts(setup.horizon, setup.rollouts, setup.max_copies, first_episode_only=True)
    played = run_rollouts(setup.world, controller, rollouts, goals=goals, pool=pool, on_step=on_step)
    # each rollout with its goals [S, dg], if there are any
    with_goals = [(part, () if goals is None else (goals[:, number],)) for number, part in enumerate(played)]
    rewards = [_counted_rewards(setup.task.reward, trajectory, *goal) for trajectory, goal in with_goals]
    returns = np.mean([each.sum(axis=1) for each in rewards], axis=0)
    success = None
    if setup.task.success is not None:
        success = np.mean([_success(setup.task.success, trajectory, *goal) for trajectory, goal in with_goals], axis=0)
    return Evaluation(returns, rewards[0], played[0], policy, success)


def evaluate(
    setup: TaskSetup,
    learned: Learned | None,
    keys: Key[Array, " seeds"],
    *,
    pool: SimulatorPool | None = None,
    on_step: OnStep | None = None,
) -> Evaluation:
    """Plan a task on what was learned and run it on the true system.

    Args:
        setup: The task.
        learned: What was learned; `Learned(TrueDynamics(world))` gives the oracle, None random actions.
        keys: Keys of the round, one per seed (`Explorer.keys()`).
        pool: Simulators to reuse.
        on_step: Called after each step of a host world.

    """
    return run_task(setup, plan_task(setup, learned, keys), keys, pool=pool, on_step=on_step)


def normalised_score(returns: np.ndarray, random: np.ndarray, oracle: np.ndarray) -> np.ndarray:
    """Returns on a scale where 0 is random actions and 1 is planning on the true system.

    Args:
        returns: Returns of any shape.
        random: Returns of random actions; their mean is used.
        oracle: Returns of the oracle; their mean is used.

    """
    return (returns - np.mean(random)) / (np.mean(oracle) - np.mean(random))


def _with_projection(adversary: Pessimistic, world: World) -> Pessimistic:
    return replace(adversary, project=adversary.project or world.project)


def _or_empty(data: Data | None, world: World, num_seeds: int) -> Data:
    if data is not None:
        return data
    empty = Data.empty(1, world.state_dim, world.action_dim)
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num_seeds, *leaf.shape)), empty)


@eqx.filter_jit
def _rewards(reward: Callable[..., Array], states: Array, actions: Array, next_states: Array, *goals: Array) -> Array:
    """Rewards of all steps [S, T]; `goals` are [S, dg], if there are any."""

    def one_seed(states: Array, actions: Array, next_states: Array, *goal: Array) -> Array:
        return jax.vmap(lambda x, u, x_next: reward(x, u, x_next, *goal))(states, actions, next_states)

    return jax.vmap(one_seed)(states, actions, next_states, *goals)


def _counted_rewards(reward: Callable[..., Array], trajectory: Trajectory, *goals: np.ndarray) -> np.ndarray:
    """The reward of each step [S, T]; 0 after the first episode has ended."""
    arrays = (trajectory.states, trajectory.actions, trajectory.next_states, *goals)
    rewards = np.array(_rewards(reward, *map(jnp.asarray, arrays)))
    ended = trajectory.ended
    if ended is not None:
        ended_before = np.cumsum(ended, axis=1) - ended
        rewards[ended_before > 0] = 0.0
    return rewards


def _success(success: Callable[..., float], trajectory: Trajectory, *goals: np.ndarray) -> np.ndarray:
    """Success of each seed in its first episode [S]."""
    found, ended = [], trajectory.ended
    for seed, states in enumerate(trajectory.next_states):
        ends = () if ended is None else np.flatnonzero(ended[seed])
        value = float(success(states[: ends[0] + 1] if len(ends) else states, *(goal[seed] for goal in goals)))
        if not 0 <= value <= 1:
            raise SondeError(f"success must be a number from 0 to 1, got {value}")
        found.append(value)
    return np.array(found)
