"""Reachable states of worlds written in JAX in which energy must be pumped, such as a pendulum.

Half of the rollouts are random; the other half pump energy towards a random level, and so also reach what random actions do
not, such as swinging up or racing between walls.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from sonde.worlds._base import JaxWorld

REACHABLE_SEED, REACHABLE_POINTS = 20231, 2000
ROLLOUTS, MAX_HOLD = 400, 20


class EpisodeKeys(NamedTuple):
    """Random keys of one rollout."""

    reset: Key[Array, ""]
    """Draws the initial state."""
    level: Key[Array, ""]
    """Draws the energy level that is pumped to."""
    hold: Key[Array, ""]
    """Draws the number of steps for which a random action is held."""
    step: Key[Array, ""]
    """Draws the random actions."""


class Pump(NamedTuple):
    """How energy is pumped into a system with one action."""

    action: Callable[[Float[Array, " dx"], Float[Array, ""]], Float[Array, ""]]
    """(state, energy level) -> full action, -1 or 1, that brings the energy nearer to the level."""
    levels: tuple[float, float]
    """Range of energy levels, in the units of `action`."""
    keys: Callable[[Key[Array, ""]], EpisodeKeys]
    """Derives the keys of a rollout."""


def pumped_points(world: JaxWorld, pump: Pump, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Sample states from random and energy-pumping rollouts, with actions drawn uniformly.

    Args:
        world: A system with one action, which is run without noise.
        pump: How energy is pumped into it.
        steps: Steps per rollout.

    Returns:
        States [N, dx] and actions [N, 1], the same at every call.
    """

    def rollout(key, pumping):
        keys = pump.keys(key)
        level = jax.random.uniform(keys.level, minval=pump.levels[0], maxval=pump.levels[1])
        hold = jax.random.randint(keys.hold, (), 1, MAX_HOLD)

        def step(x, t):
            random = jax.random.uniform(jax.random.fold_in(keys.step, t // hold), minval=-1.0, maxval=1.0)
            u = jnp.where(pumping, jnp.clip(pump.action(x, level) + 0.5 * random, -1, 1), random)
            return world.dynamics(x, u[None]), x

        return jax.lax.scan(step, world.reset(keys.reset), jnp.arange(steps))[1]

    keys = jax.random.split(jax.random.key(REACHABLE_SEED), ROLLOUTS)
    states = np.asarray(jax.jit(jax.vmap(rollout))(keys, jnp.arange(ROLLOUTS) % 2 == 0))
    rng = np.random.default_rng(REACHABLE_SEED)
    sampled = rng.choice(ROLLOUTS * steps, REACHABLE_POINTS, replace=False)
    return states.reshape(-1, states.shape[-1])[sampled], rng.uniform(-1, 1, (REACHABLE_POINTS, 1))
