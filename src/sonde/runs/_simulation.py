"""Predictions and simulations of what one seed has learned, for any number of points, with the working memory of a few."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sonde._internal.errors import SondeError, whole
from sonde._internal.past import NO_PAST, Past
from sonde._internal.precision import double_precision
from sonde.models import Posterior, Prediction
from sonde.models._base import ROWS, predict_many
from sonde.models._simulate import simulate

FEW = 32
"""Up to this number of points are predicted by a program of their own; more are filled up to blocks of `ROWS`."""
STEPS_MULTIPLE = 20
"""Simulations take a multiple of these steps, of which the last ones may not count: not every length needs its program."""
PARTICLES, COVERAGE = 199, 0.9
ROUNDING = 1e-9
"""What a number may be off by because coverages such as 0.9 have no exact form."""


@dataclass(frozen=True)
class Simulation:
    """Simulated trajectories of a learned system: the states after each step, with bands."""

    mean: Float[np.ndarray, "*N T dx"]
    """Mean over the particles, each of which is a plausible system with its noise."""
    low: Float[np.ndarray, "*N T dx"]
    """Lower limit of the band."""
    high: Float[np.ndarray, "*N T dx"]
    """Upper limit of the band: if the model is right, a share `coverage` of all measurements lies between the limits."""
    coverage: float
    """Share of the particles' distribution within the band, at each step and in each dimension."""


@eqx.filter_jit
def _predict(posterior: Posterior, x: Array, u: Array) -> Prediction:
    return predict_many(posterior, x, u)


@double_precision
def predicted(posterior: Posterior, x: Float[np.ndarray, "N dx"], u: Float[np.ndarray, "N dz"]) -> Prediction:
    """Predict at many points.

    Args:
        posterior: The posterior of one seed.
        x: States.
        u: What the model is given beside them: actions, after the past if there is one.

    Returns:
        A prediction of numpy arrays [N, ...].
    """
    parts, size = [], FEW if len(x) <= FEW else ROWS
    for start in range(0, max(len(x), 1), size):
        some = [array[start : start + size] for array in (x, u)]
        taken = len(some[0])
        full = [jnp.asarray(np.pad(array, ((0, size - taken), (0, 0)))) for array in some]
        parts.append(jax.tree.map(lambda leaf, taken=taken: np.asarray(leaf)[:taken], _predict(posterior, *full)))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)


def _rank_of_limits(particles: int, coverage: float) -> int:
    """How many particles lie outside of each limit of the band, the limit itself included.

    Between the k-th smallest and the k-th largest of P draws lies one more with probability 1 - 2 k / (P + 1).
    """
    whole("simulation", particles=particles)
    if not 0 < coverage < 1:
        raise SondeError(f"simulation: coverage must lie between 0 and 1, got {coverage}")
    rank = int((particles + 1) * (1 - coverage) / 2 + ROUNDING)
    if rank < 1:
        needed = int(np.ceil(2 / (1 - coverage) - ROUNDING))
        raise SondeError(f"simulation: a band of {coverage:g} needs at least {needed - 1} particles, got {particles}")
    return rank


@eqx.filter_jit
def _simulated(posterior: Posterior, past: Past, starts: Array, inputs: Array, keys: Array, particles: int, rank: int):
    """Mean and limits of simulations [N, T, dx]."""

    def one(start: Array, own: Array, key: Array) -> tuple[Array, Array, Array]:
        found = simulate(posterior, start, own, key, particles, past)
        ordered = jnp.sort(found, axis=0)
        return jnp.mean(found, axis=0), ordered[rank - 1], ordered[-rank]

    side_by_side = max(1, ROWS // particles)
    return jax.lax.map(lambda given: one(*given), (starts, inputs, keys), batch_size=min(side_by_side, starts.shape[0]))


@double_precision
def simulated(
    posterior: Posterior,
    starts: Float[np.ndarray, "N dx"],
    inputs: Float[np.ndarray, "N T dz"],
    past: Past = NO_PAST,
    particles: int = PARTICLES,
    coverage: float = COVERAGE,
    seed: int = 0,
) -> Simulation:
    """Simulate from many starts.

    Args:
        posterior: The posterior of one seed.
        starts: States before the first step.
        inputs: Actions of each step; where the past belongs to the state, it comes first, and that of the first step counts.
        past: What of the past belongs to the state.
        particles: Plausible trajectories from each start.
        coverage: Share of them that bands contain.
        seed: Seed of the randomness.

    Returns:
        States after each step [N, T, dx].
    """
    rank, (count, steps) = _rank_of_limits(particles, coverage), inputs.shape[:2]
    at_once = max(1, ROWS // particles) * 4
    padded = np.pad(inputs, ((0, 0), (0, -steps % STEPS_MULTIPLE), (0, 0)), mode="edge")
    keys, parts = jax.random.split(jax.random.key(seed), count), []
    for first in range(0, count, at_once):
        rows = np.minimum(np.arange(first, first + at_once), count - 1)[: at_once if count > at_once else count]
        some = jnp.asarray(starts[rows]), jnp.asarray(padded[rows]), keys[rows]
        found = _simulated(posterior, past, *some, particles, rank)
        parts.append([np.asarray(array)[: count - first, :steps] for array in found])
    mean, low, high = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return Simulation(mean, low, high, coverage)
