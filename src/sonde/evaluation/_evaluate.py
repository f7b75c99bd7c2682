"""Zero-shot evaluation: plan a task that the model was not trained for, run the plan on the true system, add up the rewards.

`plan_task` makes a policy from what was learned, `run_task` runs it on the true system, and `evaluate` does both. Plans for the
worst case, and what a policy is worth on the model, are in `_robust`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from sonde._internal.blocks import in_blocks
from sonde._internal.errors import SondeError
from sonde._internal.precision import double_precision
from sonde._internal.randomness import for_purpose, rollout_keys
from sonde.control import Controller, OnStep, RolloutSettings, SimulatorPool, run_rollouts
from sonde.data import Data, Trajectory
from sonde.evaluation._constraints import violated_share
from sonde.evaluation._setup import Learned, TaskSetup
from sonde.evaluation._tasks import goals_for
from sonde.imagination import Mean, Pessimistic
from sonde.solvers import Planner, Policy, RandomPolicy, solve
from sonde.worlds import World, has_simulator


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
    """The policy that was run."""
    success: Float[np.ndarray, " S"] | None = None
    """Mean success over the rollouts; None where the task does not define it."""
    violations: Float[np.ndarray, " S"] | None = None
    """Share of the steps that violated a constraint, mean over the rollouts; None without constraints."""


@double_precision
def plan_task(
    setup: TaskSetup, learned: Learned | None, keys: Key[Array, " seeds"], adversary: Pessimistic | None = None
) -> Policy:
    """Make a policy for a task.

    Args:
        setup: The task.
        learned: What was learned; None for uniformly random actions.
        keys: Keys of the round, one per seed.
        adversary: Plan against this adversary instead of with `setup.imagination`.

    Returns:
        The policy, with a leading axis S on its arrays.
    """
    if learned is None:
        return RandomPolicy(setup.world.action_dim)
    posterior, data = learned.posterior, learned.data
    if data is None and not isinstance(setup.solver, Planner):
        name = type(setup.solver).__name__
        raise SondeError(f"evaluate: {name} starts imagined trajectories at visited states: pass Learned(posterior, data)")
    imagination = setup.imagination
    if imagination.needs_members and posterior.ensemble_size == 0:  # such as the true dynamics
        imagination = Mean()
    if adversary is not None:
        imagination = with_projection(adversary, setup.world)
        if isinstance(setup.solver, Planner):  # the adversary of a plan follows gradients
            posterior = posterior.differentiable()
    if setup.safety is not None:
        posterior = setup.safety.searchable(posterior)
    problem = setup.problem(posterior, imagination)
    policy = solve(setup.solver, problem, _or_empty(data, setup, len(keys)), for_purpose(setup.keys(keys), "solve"))
    return policy.without_report()


@double_precision
def run_task(
    setup: TaskSetup,
    policy: Policy,
    keys: Key[Array, " seeds"],
    *,
    pool: SimulatorPool | None = None,
    on_step: OnStep | None = None,
) -> Evaluation:
    """Run a policy on the true system and add up the rewards, until the first episode of each rollout ends.

    Args:
        setup: The task.
        policy: The policy, with a leading axis S on its arrays.
        keys: Keys of the rollouts, with their starts and goals, one per seed.
        pool: Open simulators to reuse.
        on_step: Called after each step of a host world.

    Returns:
        Returns and success per seed, and the first rollout.
    """
    if not has_simulator(setup.world):
        name = type(setup.world).__name__
        raise SondeError(f"{name} has no simulator to evaluate on: run the policy of Experiment.solve on your system")
    keys = setup.keys(keys)
    goals = goals_for(setup.task, rollout_keys(keys, range(setup.rollouts)))
    controller = Controller(policy, keys, setup.world.state_dim, spec=setup.spec)
    rollouts = RolloutSettings(setup.horizon, setup.rollouts, setup.max_copies, True, setup.starts)
    played = run_rollouts(setup.world, controller, rollouts, goals=goals, pool=pool, on_step=on_step)
    # each rollout with its goals [S, dg], if there are any
    with_goals = [(part, () if goals is None else (goals[:, number],)) for number, part in enumerate(played)]
    rewards = [_counted_rewards(setup.task.reward, trajectory, *goal) for trajectory, goal in with_goals]
    returns = np.mean([each.sum(axis=1) for each in rewards], axis=0)
    success = None
    if setup.task.success is not None:
        success = np.mean([_success(setup.task.success, trajectory, *goal) for trajectory, goal in with_goals], axis=0)
    violations = None
    if setup.safety is not None:
        violations = np.mean([violated_share(setup.safety, trajectory) for trajectory in played], axis=0)
    return Evaluation(returns, rewards[0], played[0], policy, success, violations)


def evaluate(
    setup: TaskSetup,
    learned: Learned | None,
    keys: Key[Array, " seeds"],
    *,
    starts: Key[Array, " seeds"] | None = None,
    pool: SimulatorPool | None = None,
    on_step: OnStep | None = None,
) -> Evaluation:
    """Plan a task on what was learned and run it on the true system.

    Args:
        setup: The task.
        learned: What was learned; `Learned(TrueDynamics(world))` gives the oracle, None uniformly random actions.
        keys: Keys of the round, one per seed (`Explorer.keys()`).
        starts: Keys of the rollouts with their starts and goals, where these should not depend on the round
            (`Explorer.evaluation_keys()`); by default those of the round.
        pool: Open simulators to reuse.
        on_step: Called after each step of a host world.

    Returns:
        Returns and success per seed, and the first rollout.
    """
    policy = plan_task(setup, learned, keys)
    return run_task(setup, policy, keys if starts is None else starts, pool=pool, on_step=on_step)


def normalised_score(returns: np.ndarray, random: np.ndarray, oracle: np.ndarray) -> np.ndarray:
    """Scale returns so that 0 is random actions and 1 is planning on the true system.

    Args:
        returns: Returns of any shape.
        random: Returns of random actions; their mean is used.
        oracle: Returns of the oracle; their mean is used.

    Returns:
        Scores with the shape of `returns`.
    """
    return (returns - np.mean(random)) / (np.mean(oracle) - np.mean(random))


def with_projection(adversary: Pessimistic, world: World) -> Pessimistic:
    """An adversary that keeps to states the world can be in, unless it has a projection of its own.

    Args:
        adversary: The adversary.
        world: The world whose `project` is used.
    """
    return replace(adversary, project=adversary.project or world.project)


def _or_empty(data: Data | None, setup: TaskSetup, num_seeds: int) -> Data:
    """The data, or an empty buffer for solvers that do not look at it."""
    if data is not None:
        return data
    empty = Data.empty(1, setup.spec.state_dim, setup.spec.input_dim)
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num_seeds, *leaf.shape)), empty)


@eqx.filter_jit
def _rewards(reward: Callable[..., Array], states: Array, actions: Array, next_states: Array, *goals: Array) -> Array:
    """Rewards of all steps [S, T]; `goals` are [S, dg], if there are any."""

    def one_seed(states: Array, actions: Array, next_states: Array, *goal: Array) -> Array:
        return jax.vmap(lambda x, u, x_next: reward(x, u, x_next, *goal))(states, actions, next_states)

    return jax.vmap(one_seed)(states, actions, next_states, *goals)


def rewards_of_steps(reward: Callable[..., Array], trajectory: Trajectory, *goals: np.ndarray) -> np.ndarray:
    """The reward of each step [S, T].

    Args:
        reward: The reward of one transition.
        trajectory: Measurements [S, T, ...].
        *goals: The goals of the seeds [S, dg], if the task has goals.
    """
    of_steps = lambda *steps: _rewards(reward, *steps, *map(jnp.asarray, goals))
    return in_blocks(of_steps, trajectory.states, trajectory.actions, trajectory.next_states)


def _counted_rewards(reward: Callable[..., Array], trajectory: Trajectory, *goals: np.ndarray) -> np.ndarray:
    """The reward of each step [S, T]; 0 after the first episode has ended."""
    rewards = rewards_of_steps(reward, trajectory, *goals)
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
