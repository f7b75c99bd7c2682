"""Zero-shot evaluation: plan a task that the model was never trained for, act on the true system, count the reward."""

from dataclasses import dataclass

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Key

from sonde.data import Trajectory
from sonde.errors import one_of
from sonde.imagination import Mean
from sonde.models.base import Belief, Posterior
from sonde.objectives import TaskReward
from sonde.policies import PlanningPolicy, Policy, RandomPolicy
from sonde.precision import double_precision
from sonde.randomness import for_purpose
from sonde.rollout import episode
from sonde.solvers.base import ControlProblem, Solver
from sonde.worlds import World


class TrueDynamics(Posterior):
    """Knows the world: what a planner could do with a perfect model."""

    world: World = eqx.field(static=True)

    def believe(self, x: Float[Array, " dx"], u: Float[Array, " du"]) -> Belief:
        """The truth, without doubt."""
        mean = self.world.dynamics(x, u)
        return Belief(mean, 0 * mean, 0 * mean)


@dataclass(frozen=True)
class Evaluation:
    """One episode of a task per run: the return [S] and what happened [S, T, ...]."""

    returns: np.ndarray
    trajectory: Trajectory


@eqx.filter_jit
def _play(world: World, policy: Policy, task: str, horizon: int, keys: Array) -> tuple[Array, tuple[Array, Array, Array]]:
    # the planner's note on information is left out, and so is, by the compiler, all work for it
    states, actions, next_states, _ = episode(world, policy, horizon, keys)
    rewards = jax.vmap(jax.vmap(world.tasks[task]))(states, actions, next_states)
    return rewards.sum(axis=1), (states, actions, next_states)


@double_precision
def evaluate(
    world: World, posterior: Posterior | None, task: str, solver: Solver, horizon: int, keys: Key[Array, " runs"]
) -> Evaluation:
    """The return of `task` when it is planned on the posterior's mean; without a posterior, of random actions.

    `TrueDynamics(world)` as posterior gives the oracle: the same planner with a perfect model.
    """
    one_of("task", task, world.tasks)
    if posterior is None:
        policy = RandomPolicy(world.action_dim)
    else:
        objective = TaskReward(world.tasks[task])
        problem = ControlProblem(posterior, Mean(), objective, world.state_dim, world.action_dim, 1)
        policy = PlanningPolicy(problem, solver)
    returns, arrays = _play(world, policy, task, horizon, for_purpose(keys, f"evaluate/{task}"))
    return Evaluation(np.asarray(returns), Trajectory(*map(np.asarray, arrays)))


def normalised_score(returns: np.ndarray, random: np.ndarray, oracle: np.ndarray) -> np.ndarray:
    """0 is as good as random actions, 1 is as good as planning on the truth."""
    return (returns - np.mean(random)) / (np.mean(oracle) - np.mean(random))
