"""What a system can reach, where the past belongs to its state: transitions with the past that led to each."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sonde._internal.past import Past
from sonde._internal.precision import double_precision
from sonde.data import Trajectory
from sonde.worlds import HostWorld, JaxWorld, Transitions, World
from sonde.worlds._sampling import REACHABLE_SEED, noise_actions

EPISODES, STEPS = 20, 100
"""Rollouts of a host world, with coloured random actions."""


@functools.cache
@double_precision
def reachable_with_past(world: World, past: Past) -> Transitions | None:
    """Fixed transitions of a system, with inputs (past, action) in place of actions.

    On a world in JAX, they are those of random actions from each of its reachable states. A host world, whose state may be more
    than it shows, is run from its own starts with coloured random actions.

    Args:
        world: The system.
        past: What of the past belongs to the state.

    Returns:
        Transitions, the same at every call; None where the system cannot be run or has no reachable set.
    """
    if isinstance(world, JaxWorld):
        return _from_reachable_states(world, past)
    if not isinstance(world, HostWorld) or world.reachable() is None:
        return None
    measured = _from_starts(world).with_past(past)
    flat = lambda array: array.reshape(-1, array.shape[-1])
    return Transitions(flat(measured.states), flat(measured.actions), flat(measured.next_states))


def _from_reachable_states(world: JaxWorld, past: Past) -> Transitions:
    """Walk from each reachable state until its whole past is known; the last step is the transition."""
    starts = jnp.asarray(world.reachable_points()[0])
    actions = np.random.default_rng(REACHABLE_SEED).uniform(-1, 1, (len(starts), past.actions + 1, world.action_dim))

    @jax.jit
    @jax.vmap
    def walk(x: Array, actions: Array, key: Array) -> tuple[Array, Array, Array]:
        def step(carry, given):
            (x, before), (u, key) = carry, given
            x_next = world.step(x, u, key)
            return (x_next, past.moved(before, x, u, x_next)), (x, jnp.concatenate([before, u]), x_next)

        start = x, jnp.zeros(past.size(world.state_dim, world.action_dim), x.dtype)
        rows = jax.lax.scan(step, start, (actions, jax.random.split(key, past.actions + 1)))[1]
        return jax.tree.map(lambda leaf: leaf[-1], rows)

    keys = jax.random.split(jax.random.key(0), len(starts))
    return Transitions(*map(np.asarray, walk(starts, jnp.asarray(actions), keys)))


def _from_starts(world: HostWorld) -> Trajectory:
    """Rollouts with coloured random actions [EPISODES, STEPS, ...]."""
    rng = np.random.default_rng(REACHABLE_SEED)
    actions = noise_actions(rng, EPISODES, STEPS, world.action_dim)
    states, next_states = (np.empty((EPISODES, STEPS, world.state_dim)) for _ in range(2))
    ended = np.zeros((EPISODES, STEPS), bool)
    copies = world.open(EPISODES)
    try:
        x = np.array(copies.reset([int(number) for number in rng.integers(2**32, size=EPISODES)]))
        for t in range(STEPS):
            after = copies.step(actions[:, t].copy())
            states[:, t], next_states[:, t], ended[:, t] = x, after.next_states, after.ended
            x = np.array(copies.restart(after.ended) if after.ended.any() else after.next_states)
    finally:
        copies.close()
    return Trajectory(states, actions, next_states, truncated=ended)
