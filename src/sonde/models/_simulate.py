"""Simulation of a learned system over several steps, with its uncertainty.

Which of the plausible systems is simulated is drawn once per particle: a member of an ensemble, or how many stds each output of
a Gaussian process lies above its mean. A new draw at every step would let errors cancel that the true system repeats.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from sonde._internal.past import NO_PAST, Past
from sonde.models._base import Posterior, predict_many


def simulate(
    posterior: Posterior,
    start: Float[Array, " dx"],
    actions: Float[Array, "T du"],
    key: Key[Array, ""],
    particles: int,
    past: Past = NO_PAST,
) -> Float[Array, "P T dx"]:
    """Simulate plausible trajectories.

    Args:
        posterior: Posterior of one seed.
        start: State before the first step.
        actions: Action of each step; where the past belongs to the state, it comes first, and that of the first step counts.
        key: Randomness.
        particles: Number of trajectories P.
        past: What of the past belongs to the state.

    Returns:
        The states after each step.
    """

    def one(number: Array, key: Array) -> Array:
        system_key, noise_key = jax.random.split(key)
        system = posterior.member(number) if posterior.ensemble_size else posterior
        offset = jnp.zeros_like(start) if posterior.ensemble_size else jax.random.normal(system_key, start.shape, start.dtype)
        noise = jax.random.normal(noise_key, (actions.shape[0], *start.shape), start.dtype)

        def step(carry: tuple[Array, Array], given: tuple[Array, Array]) -> tuple[tuple[Array, Array], Array]:
            (x, before), (u, w) = carry, given
            predicted = system.predict(x, jnp.concatenate([before, u]) if past else u)
            x_next = predicted.mean + offset * predicted.epistemic_std + w * predicted.aleatoric_std
            return (x_next, past.moved(before, x, u, x_next)), x_next

        before, own = past.split(actions, start.shape[0])
        return jax.lax.scan(step, (start, before[0]), (own, noise))[1]

    return jax.vmap(one)(jnp.arange(particles), jax.random.split(key, particles))


def simulate_mean(
    posterior: Posterior, states: Float[Array, "N T dx"], actions: Float[Array, "N T du"], joined: Bool[Array, "N T"]
) -> Float[Array, "N T dx"]:
    """Simulate the mean model along measured trajectories.

    Args:
        posterior: Posterior of one seed.
        states: Measured states before each step.
        actions: Actions.
        joined: True where a step continues the one before it; elsewhere the simulation starts from the measured state.

    Returns:
        The simulated states after each step.
    """

    def step(x: Array, given: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        measured, u, continues = given
        x_next = predict_many(posterior, jnp.where(continues[:, None], x, measured), u).mean
        return x_next, x_next

    along = lambda array: jnp.swapaxes(array, 0, 1)
    _, found = jax.lax.scan(step, states[:, 0], (along(states), along(actions), along(joined)))
    return along(found)
