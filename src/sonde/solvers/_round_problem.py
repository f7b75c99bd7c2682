"""What the control problem of exploration has for one round: the goal of the task, and the weight of the bonus.

Both follow from measurements, posterior and round alone, so that a resumed run has the same ones, and both are arrays, so that
nothing compiles again from round to round.

A bonus in nats beside a reward in any units needs a weight. With both in units of their spread, neither drowns the other:

    lambda_n = weight / (1 + n / half_life) * spread(reward) / spread(bonus)

The spreads are those of single steps from visited states with uniformly random actions, as the model predicts them. Where they
are taken matters for rewards that are rare. On the mountain car nothing but the cost of the force was ever seen before the goal
is: over the actions that were taken, that cost hardly varies once the car has stopped moving, and the bonus, measured by it,
would disappear. Random actions always cost the same, and a goal that was visited counts as soon as it was.
"""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from sonde._internal.errors import SondeError
from sonde._internal.lockstep import lockstep
from sonde._internal.randomness import for_purpose, seeds_of
from sonde.data import Data
from sonde.models._base import predict_many
from sonde.objectives import Imagined, TaskObjective, TaskPlusBonus
from sonde.solvers._problem import ControlProblem
from sonde.solvers._sac import sample_states

STEPS = 500
"""Single steps over which the spreads are taken."""
SMALLEST = 0.01
"""Smallest spread, in root mean squares: where all steps are alike, rounding errors must not become a preference."""


def round_problem(problem: ControlProblem, data: Data, keys: Key[Array, " seeds"], round_number: int) -> ControlProblem:
    """Complete the control problem of exploration with what its task needs in one round.

    Args:
        problem: The control problem, with a leading axis S on its arrays.
        data: The measurements so far, with a leading axis S.
        keys: Keys of the round, one per seed.
        round_number: Number of finished rounds.

    Returns:
        The problem with the round's goals [S, dg], if its task has goals, and the weights [S] of its bonus, if it has one; any
        other problem as it is.
    """
    objective = problem.objective
    if isinstance(objective, TaskObjective) and objective.sample_goal is not None:
        problem = replace(problem, goal=_goals(objective, for_purpose(keys, "exploration_goal")))
    if isinstance(objective, TaskPlusBonus) and objective.weight > 0:
        weights = _bonus_weights(problem, data, for_purpose(keys, "bonus_weight"), jnp.asarray(round_number))
        problem = replace(problem, bonus_weight=weights)
    return problem


def _goals(objective: TaskObjective, keys: Key[Array, " seeds"]) -> Float[Array, "seeds dg"]:
    """The goal of each seed."""
    assert objective.sample_goal is not None
    goals = [np.asarray(objective.sample_goal(np.random.default_rng(int(seed))), np.float64) for seed in seeds_of(keys)]
    if any(goal.ndim != 1 or goal.shape != goals[0].shape or not np.isfinite(goal).all() for goal in goals):
        raise SondeError(f"sample_goal must always return the same number of finite numbers [dg], got {goals}")
    return jnp.asarray(np.stack(goals))


@eqx.filter_jit
def _bonus_weights(
    problem: ControlProblem, data: Data, keys: Key[Array, " seeds"], round_number: Int[Array, ""]
) -> Float[Array, " seeds"]:
    return lockstep(lambda problem, data, key: _bonus_weight(problem, data, key, round_number))(problem, data, keys)


def _bonus_weight(problem: ControlProblem, data: Data, key: Key[Array, ""], round_number: Int[Array, ""]) -> Float[Array, ""]:
    """lambda_n of one seed."""
    objective = problem.objective
    assert isinstance(objective, TaskPlusBonus)
    states_key, actions_key = jax.random.split(key)
    full = sample_states(problem.visited(data), STEPS, states_key)
    states, past = jnp.split(full, [problem.state_dim], axis=-1)
    actions = jax.random.uniform(actions_key, (STEPS, problem.action_dim), states.dtype, -1.0, 1.0)
    predictions = predict_many(problem.posterior, states, jnp.concatenate([past, actions], axis=-1))
    # the steps of one particle, which need not follow each other
    steps = jax.tree.map(lambda leaf: leaf[None], (states, predictions.mean, predictions))
    imagined = Imagined(steps[0], actions, *steps[1:], problem.goal)
    return objective.share(round_number) * _spread(objective.task_rewards(imagined)) / _spread(objective.bonus(imagined))


def _spread(values: Float[Array, "1 N"]) -> Float[Array, ""]:
    """Standard deviation of the finite values, at least a small share of their size; 1 if all are zero."""
    finite = jnp.isfinite(values)
    kept = jnp.where(finite, values, 0.0)
    largest = jnp.max(jnp.abs(kept))  # divided out: squares must neither overflow nor underflow
    unit = jnp.where(largest > 0, largest, 1.0)
    count, scaled = jnp.maximum(jnp.sum(finite), 1), kept / unit
    mean, square = jnp.sum(scaled) / count, jnp.sum(scaled**2) / count
    std = jnp.sqrt(jnp.sum(jnp.where(finite, (scaled - mean) ** 2, 0.0)) / count)
    return unit * jnp.where(square > 0, jnp.maximum(std, SMALLEST * jnp.sqrt(square)), 1.0)
