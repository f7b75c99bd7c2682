"""How good a model of a plant is: errors of one and of twenty steps, and coverage of its intervals.

Errors are of means, against the noise-free plant and in units of each state's spread over the test windows, so that 1 is what
predicting the average state would give. With noise, the data limit what can be learned: the grey box shows how much.
"""

import math
from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from benchmarks.systems.peers import Predictor
from benchmarks.systems.plant import Plant, rollouts
from sonde._internal.precision import double_precision
from sonde.data import Trajectory
from sonde.models import Posterior
from sonde.models._simulate import simulate as simulate_particles

WINDOWS, STEPS, TEST_SEED = 100, 20, 0
LARGEST = 10.0
"""Errors of a state are cut off here, in spreads: beyond it a model has diverged, and how far does not matter."""
PARTICLES = 19
"""The smallest and the largest of 19 particles enclose one more draw with probability 18 / 20: exactly 90 %."""
HALF_WIDTH = 1.6448536269514722
"""Stds on either side of the mean in a 90 % interval."""


@dataclass(frozen=True)
class Windows:
    """Windows of a plant that no model has seen."""

    clean: Trajectory
    """Without noise [windows, steps, ...]: what errors are measured against."""
    real: Trajectory
    """With the plant's noise, and the same inputs: what intervals should cover."""

    @classmethod
    def of(cls, plant: Plant) -> "Windows":
        """Make the test windows of a plant.

        Args:
            plant: The system.
        """
        make = lambda noise: rollouts(replace(plant, process_noise=noise), WINDOWS, STEPS, TEST_SEED)
        return cls(make(0.0), make(plant.process_noise))

    @property
    def spread(self) -> np.ndarray:
        """Std of each state dimension [dx]."""
        return self.clean.next_states.std((0, 1))


@eqx.filter_jit
def _predict(posterior: Posterior, states: Float[Array, "N dx"], actions: Float[Array, "N du"]):
    """Means and stds of all points, epistemic and aleatoric together."""
    found = jax.vmap(lambda one: jax.vmap(one.predict)(states, actions))(posterior)
    return found.mean[0], jnp.sqrt(found.epistemic_std[0] ** 2 + found.aleatoric_std[0] ** 2)


@eqx.filter_jit
def _particles(posterior: Posterior, starts: Float[Array, "W dx"], actions: Float[Array, "W T du"], key: Key[Array, ""]):
    """States after the last action [W, particles, dx]; each particle simulates one plausible system."""
    one_seed = jax.tree.map(lambda leaf: leaf[0], posterior)
    one = lambda start, actions, key: simulate_particles(one_seed, start, actions, key, PARTICLES)[:, -1]
    return jax.vmap(one)(starts, actions, jax.random.split(key, starts.shape[0]))


@double_precision
def predictor_of(posterior: Posterior) -> Predictor:
    """The means of a posterior.

    Args:
        posterior: The posterior of one seed, with a leading axis.
    """

    @double_precision
    def predict(states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        return np.asarray(_predict(posterior, jnp.asarray(states), jnp.asarray(actions))[0], np.float64)

    return predict


def errors(predict: Predictor, tests: Windows) -> dict[str, float]:
    """Root mean square errors of means.

    Args:
        predict: The means of the next states.
        tests: The test windows.

    Returns:
        `one_step`, `twenty_step`, and the share of the windows in which the model diverged.
    """
    clean, scale = tests.clean, tests.spread
    flat = lambda array: array.reshape(-1, array.shape[-1])
    once = (predict(flat(clean.states), flat(clean.actions)) - flat(clean.next_states)) / scale
    x = clean.states[:, 0]
    with np.errstate(all="ignore"):  # a polynomial may diverge
        for step in range(STEPS):
            x = np.clip(_no_nan(predict(x, clean.actions[:, step])), -1e6 * scale, 1e6 * scale)
    last = (x - clean.next_states[:, -1]) / scale
    return {
        "one_step": _rms(once),
        "twenty_step": _rms(last),
        "diverged": float(np.mean(np.abs(last).max(axis=-1) > LARGEST)),
    }


def _rms(normalised: np.ndarray) -> float:
    return math.sqrt(np.mean(np.clip(_no_nan(normalised), -LARGEST, LARGEST) ** 2))


def _no_nan(values: np.ndarray) -> np.ndarray:
    """No number at all counts as the largest one, and not as a good guess."""
    return np.where(np.isnan(values), np.inf, values)


@double_precision
def coverage(posterior: Posterior, tests: Windows, seed: int) -> dict[str, float]:
    """Share of the true states inside the model's 90 % intervals, over all windows and dimensions.

    Args:
        posterior: The posterior of one seed, with a leading axis.
        tests: The test windows.
        seed: Randomness of the particles.

    Returns:
        `one_step_coverage` and `twenty_step_coverage`.
    """
    real = tests.real
    flat = lambda array: jnp.asarray(array.reshape(-1, array.shape[-1]))
    mean, std = _predict(posterior, flat(real.states), flat(real.actions))
    inside = np.abs(np.asarray(mean) - flat(real.next_states)) <= HALF_WIDTH * np.asarray(std)
    starts, actions, last = jnp.asarray(real.states[:, 0]), jnp.asarray(real.actions), real.next_states[:, -1]
    particles = np.asarray(_particles(posterior, starts, actions, jax.random.key(seed)))
    between = (particles.min(axis=1) <= last) & (last <= particles.max(axis=1))
    return {"one_step_coverage": float(np.mean(inside)), "twenty_step_coverage": float(np.mean(between))}
