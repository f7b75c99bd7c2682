"""Coverage of a model's intervals on a round that it has not learned from yet, one step and several steps ahead."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sonde._internal.blocks import in_blocks
from sonde._internal.past import NO_PAST, Past
from sonde._internal.precision import double_precision
from sonde.data import Trajectory
from sonde.models import Posterior
from sonde.models._base import predict_many
from sonde.models._simulate import simulate

STEPS = 20
"""Steps of a simulation."""
PARTICLES, OUTSIDE = 59, 3
"""Simulated trajectories from each start. Between the third smallest and the third largest of 59 lies one more draw with
probability 1 - 6 / 60, so the intervals are of 90 %."""
WINDOWS = 10
"""Starts that a compiled call simulates: one program serves rounds of any length."""
QUANTILE = 1.6448536269514722
"""Half the width of a 90 % interval, in stds of a normal distribution."""


@eqx.filter_jit
def _inside(posterior: Posterior, states: Array, actions: Array, next_states: Array) -> Array:
    """Whether measurements lie in their one-step intervals [S, T, dx]."""
    prediction = jax.vmap(predict_many)(posterior, states, actions)
    std = jnp.sqrt(prediction.epistemic_std**2 + prediction.aleatoric_std**2)
    return jnp.abs(next_states - prediction.mean) <= QUANTILE * std


@eqx.filter_jit
def _inside_simulated(posterior: Posterior, past: Past, starts: Array, actions: Array, ends: Array, group: Array) -> Array:
    """Whether the last states of windows [S, W, dx] lie in the intervals of simulations."""

    def one_seed(posterior: Posterior, starts: Array, actions: Array, ends: Array) -> Array:
        def one(start, actions, end, key):
            last = simulate(posterior, start, actions, key, PARTICLES, past)[:, -1]
            ordered = jnp.sort(last, axis=0)
            return (ordered[OUTSIDE - 1] <= end) & (end <= ordered[-OUTSIDE])

        keys = jax.random.split(jax.random.key(group), starts.shape[0])
        return jax.lax.map(lambda given: one(*given), (starts, actions, ends, keys))

    return jax.vmap(one_seed)(posterior, starts, actions, ends)


@double_precision
def coverage_metrics(
    posterior: Posterior,
    trajectory: Trajectory,
    past: Past = NO_PAST,
) -> dict[str, np.ndarray]:
    """Shares of a round's measurements inside the 90 % intervals of the model from before the round.

    Args:
        posterior: The posterior from before the round, with a leading axis S.
        trajectory: Measurements of the round [S, T, ...], with the past before their actions if it belongs to the state.
        past: What of the past belongs to the state.

    Returns:
        Values [S] by key of the schema; NaN for simulations where no episode has as many steps.
    """
    states, actions, next_states = trajectory.states, trajectory.actions, trajectory.next_states
    inside = in_blocks(functools.partial(_inside, posterior), states, actions, next_states)
    found = {"coverage90": inside.mean(axis=(1, 2)), "coverage90_simulated": np.full(len(states), np.nan)}
    first = _windows(trajectory)
    if len(first):
        padded = np.resize(first, -(-len(first) // WINDOWS) * WINDOWS)
        parts = []
        for group, some in enumerate(padded.reshape(-1, WINDOWS)):
            steps = some[:, None] + np.arange(STEPS)
            given = states[:, some], actions[:, steps], next_states[:, some + STEPS - 1]
            parts.append(np.asarray(_inside_simulated(posterior, past, *map(jnp.asarray, (*given, group)))))
        simulated = np.concatenate(parts, axis=1)
        found["coverage90_simulated"] = simulated[:, : len(first)].mean(axis=(1, 2))
    return found


def _windows(trajectory: Trajectory) -> np.ndarray:
    """First steps of disjoint windows of `STEPS` steps in which no episode ends, for any seed, before the last step."""
    steps = trajectory.states.shape[1]
    ended = np.zeros((1, steps), bool) if trajectory.ended is None else trajectory.ended
    starts, first = [], 0
    ends = np.asarray(ended.any(axis=0))
    while first + STEPS <= steps:
        inner = np.flatnonzero(ends[first : first + STEPS - 1])
        if len(inner):
            first += int(inner[-1]) + 1
        else:
            starts.append(first)
            first += STEPS
    return np.array(starts, int)
