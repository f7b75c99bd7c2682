"""Zero-shot evaluation: plan a task that the model was never trained for, act on the true system, count the reward."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from sonde._internal.errors import SondeError
from sonde._internal.precision import double_precision
from sonde._internal.randomness import for_purpose, rollout_keys
from sonde._internal.user_code import task_label
from sonde.control._controller import Controller
from sonde.control._rollout import SIDE_BY_SIDE, OnStep, initial_states, repeated_rollouts
from sonde.data import Data, Trajectory
from sonde.evaluation._tasks import check_aim, goals_for, task_named
from sonde.imagination import Imagination, Mean, MemberTrajectories, Pessimistic
from sonde.models._base import Prediction, Posterior
from sonde.objectives import TaskReward
from sonde.solvers._base import ControlProblem, Planner, PlanningPolicy, Solver
from sonde.solvers._policy import Policy, RandomPolicy
from sonde.solvers._solve import solve
from sonde.solvers.adversarial._guarantees import CAUTIONS, ImaginedReturns, most_robust, with_share
from sonde.worlds._base import JaxWorld, World, has_simulator
from sonde.worlds._task import GoalTask, Task


class TrueDynamics(Posterior):
    """Knows the world: what a planner could do with a perfect model."""

    world: World = eqx.field(static=True)

    def __check_init__(self):
        """Only a world written in JAX can be planned on."""
        if not isinstance(self.world, JaxWorld):
            name = type(self.world).__name__
            raise SondeError(f"{name} is not written in JAX: no planner can know it, so there is no oracle")

    def predict(self, x: Float[Array, " dx"], u: Float[Array, " du"]) -> Prediction:
        """The truth, without doubt."""
        assert isinstance(self.world, JaxWorld)
        mean = self.world.dynamics(x, u)
        return Prediction(mean, 0 * mean, 0 * mean)


@dataclass(frozen=True)
class Evaluation:
    """A task per run: return and success [S] (the mean, if there were several rollouts), and the policy.

    Rewards [S, T] and trajectory are those of the first rollout. `success` is None where the task does not say what it is.
    """

    returns: np.ndarray
    rewards: np.ndarray
    trajectory: Trajectory
    policy: Policy
    success: np.ndarray | None = None
    imagined: ImaginedReturns | None = None
    """What the policy is worth on the model, if that was asked for."""

    @property
    def promised(self) -> ImaginedReturns:
        """What the policy is worth on the model."""
        if self.imagined is None:
            raise SondeError("evaluation: the policy was not run on the model; evaluate it with an adversary=Pessimistic(...)")
        return self.imagined


@eqx.filter_jit
def _rewards(reward: Callable[..., Array], states: Array, actions: Array, next_states: Array, *goals: Array) -> Array:
    """Of all steps [S, T]; `goals` are [S, dg], if there are any."""

    def one_seed(states: Array, actions: Array, next_states: Array, *goal: Array) -> Array:
        return jax.vmap(lambda x, u, x_next: reward(x, u, x_next, *goal))(states, actions, next_states)

    return jax.vmap(one_seed)(states, actions, next_states, *goals)


def task_policy(
    world: World,
    posterior: Posterior | None,
    task: Task | GoalTask,
    solver: Solver,
    data: Data,
    keys: Key[Array, " seeds"],
    members: int = 0,
    robust: Pessimistic | None = None,
) -> Policy:
    """What solves the task on the posterior's mean; without a posterior, random actions. A goal is the controller's to tell.

    With `members`, the posterior is an ensemble of so many, and a plan is worth what it brings on average over them. With
    `robust`, it is worth what it brings at worst.
    """
    if posterior is None:
        return RandomPolicy(world.action_dim)
    check_aim(task, solver, "the task")
    imagination = MemberTrajectories() if members and not isinstance(posterior, TrueDynamics) else Mean()
    if robust is not None and isinstance(solver, Planner):  # its adversary follows slopes
        posterior = posterior.differentiable()
    problem = _problem(world, posterior, task, robust or imagination, members)
    policy = solve(solver, problem, data, for_purpose(keys, "solve"))
    return replace(policy, informs=False) if isinstance(policy, PlanningPolicy) else policy


def _problem(
    world: World, posterior: Posterior, task: Task | GoalTask, imagination: Imagination, members: int
) -> ControlProblem:
    return ControlProblem(posterior, imagination, TaskReward(task.reward), world.state_dim, world.action_dim, 1, members)


@double_precision
def evaluate(
    world: World,
    posterior: Posterior | None,
    task: str,
    solver: Solver,
    horizon: int,
    keys: Key[Array, " seeds"],
    data: Data | None = None,
    rollouts: int = 1,
    on_step: OnStep | None = None,
    side_by_side: int = SIDE_BY_SIDE,
    members: int = 0,
    adversary: Pessimistic | None = None,
    robust: bool = False,
    plain: Evaluation | None = None,
) -> Evaluation:
    """Return and success of `task` when it is planned on the posterior's mean; without a posterior, of random actions.

    With `members`, the posterior is an ensemble of so many, and plans are for the average over what each of them imagines.
    `TrueDynamics(world)` as posterior gives the oracle: the same planner with a perfect model. `data` are the measurements
    of the runs: solvers that train a policy begin imagined trajectories there. An episode that ends early ends the count. The
    policy is run `rollouts` times, each time from a new start and for a new goal, and the returns are averaged; at most
    `side_by_side` copies of the world run at the same time. With an `adversary`, the policy is also run on the model, nominal
    and against it; `robust` plans against it in the first place, more or less cautiously or not at all, whichever guarantees
    most; a policy that has to be trained is trained against all of it. If it is known what the same call without `robust`
    brings, `plain` saves a planner doing it again.
    """
    if robust and adversary is None:
        raise SondeError("evaluate: a robust plan needs an adversary, such as Pessimistic(beta=2)")
    if not has_simulator(world):
        raise SondeError(f"{type(world).__name__} has no simulator to evaluate on: run the policy of Experiment.solve yourself")
    asked, world = task_named(world, task), world.for_task(task)
    adversary = None if adversary is None else replace(adversary, project=adversary.project or world.project)
    check_aim(asked, solver, task)
    keys = for_purpose(keys, f"evaluate/{task_label(task)}")
    if data is None:
        if not isinstance(solver, Planner) and posterior is not None:
            raise SondeError(f"evaluate: {type(solver).__name__} imagines from visited states: give it the explorer's data")
        empty = Data.empty(1, world.state_dim, world.action_dim)
        data = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(keys), *leaf.shape)), empty)
    each = rollout_keys(keys, range(rollouts))
    goals = goals_for(asked, each)
    solved_on = lambda predicted, by: task_policy(world, predicted, asked, solver, data, keys, members, by)
    if adversary is None or posterior is None:
        policy, imagined = solved_on(posterior, None), None
    else:
        # before the true system is touched: which plan is robust is not for it to say
        starts, aims = initial_states(world, each), None if goals is None else jnp.asarray(goals)
        problem = _problem(world, posterior.differentiable(), asked, adversary, members)
        policies, known, shares = [], None, CAUTIONS if robust else ()
        if robust and not isinstance(solver, Planner):
            shares = shares[-1:]
        elif plain is None:
            policies = [solved_on(posterior, None)]
        else:
            policies, known = [plain.policy], plain.promised
        beta = jnp.full((len(keys), world.state_dim), adversary.beta)
        policies += [solved_on(with_share(posterior, beta, share), adversary) for share in shares]
        policy, imagined = most_robust(policies, problem, starts, horizon, each, aims, known)
    controller = Controller(policy, keys, world.state_dim)
    played = repeated_rollouts(world, controller, horizon, rollouts, side_by_side, on_step, until_done=True, goals=goals)
    # each rollout with its goals [S, dg], if there are any
    told = [(part, () if goals is None else (goals[:, number],)) for number, part in enumerate(played)]
    rewards = [_counted_rewards(asked.reward, trajectory, *goal) for trajectory, goal in told]
    returns = np.mean([each.sum(axis=1) for each in rewards], axis=0)
    success = None
    if asked.success is not None:
        success = np.mean([_success(asked.success, trajectory, *goal) for trajectory, goal in told], axis=0)
    return Evaluation(returns, rewards[0], played[0], policy, success, imagined)


def _success(success: Callable[..., float], trajectory: Trajectory, *goals: np.ndarray) -> np.ndarray:
    """How far each run has solved the task in its first episode [S]."""
    found = []
    for run, states in enumerate(trajectory.next_states):
        ends = () if trajectory.over is None else np.flatnonzero(trajectory.over[run])
        value = float(success(states[: ends[0] + 1] if len(ends) else states, *(goal[run] for goal in goals)))
        if not 0 <= value <= 1:
            raise SondeError(f"success must be a number from 0 to 1, got {value}")
        found.append(value)
    return np.array(found)


def _counted_rewards(reward: Callable[..., Array], trajectory: Trajectory, *goals: np.ndarray) -> np.ndarray:
    """The reward of each step [S, T]; none after an episode has ended."""
    arrays = (trajectory.states, trajectory.actions, trajectory.next_states, *goals)
    rewards = np.array(_rewards(reward, *map(jnp.asarray, arrays)))
    if trajectory.over is not None:
        ended_before = np.cumsum(trajectory.over, axis=1) - trajectory.over
        rewards[ended_before > 0] = 0.0
    return rewards


def normalised_score(returns: np.ndarray, random: np.ndarray, oracle: np.ndarray) -> np.ndarray:
    """0 is as good as random actions, 1 is as good as planning on the truth."""
    return (returns - np.mean(random)) / (np.mean(oracle) - np.mean(random))
