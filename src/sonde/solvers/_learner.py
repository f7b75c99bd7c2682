"""What soft actor-critic learns, and from what."""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Float32

from sonde.imagination import NoiseDraws
from sonde.models import Prediction
from sonde.models._network import Network


class PendingSteps(NamedTuple):
    """Imagined steps before an adversary has chosen; states in their own units."""

    x: Float[Array, "*n dx"]
    controls: Float[Array, "*n dc"]
    predictions: Prediction
    draws: NoiseDraws


class Batch(NamedTuple):
    """Imagined transitions; states in the networks' units."""

    states: Float32[Array, "*n dx"]
    controls: Float32[Array, "*n dc"]
    rewards: Float32[Array, "*n"]
    next_states: Float32[Array, "*n dx"]
    pending: PendingSteps | None = None
    """The same steps, for an adversary to answer them anew."""


class Adversary(eqx.Module):
    """A second actor, which chooses what the imagination leaves to an adversary."""

    network: Network
    log_temperature: Float32[Array, ""]


class Learner(eqx.Module):
    """All that training changes."""

    actor: Network
    critics: tuple[Network, Network]
    targets: tuple[Network, Network]
    log_temperature: Float32[Array, ""]
    optimiser_states: Any
    adversary: Adversary | None = None


def value(
    critic: Network, states: Float32[Array, "batch dx"], controls: Float32[Array, "batch dc"]
) -> Float32[Array, " batch"]:
    """What a critic expects of these controls."""
    return critic(jnp.concatenate([states, controls], axis=-1))[:, 0]


def lowest(
    critics: tuple[Network, Network], states: Float32[Array, "batch dx"], controls: Float32[Array, "batch dc"]
) -> Float32[Array, " batch"]:
    """The more cautious of two opinions."""
    return jnp.minimum(*(value(critic, states, controls) for critic in critics))


def rescaled(learner: Learner, factor: Float32[Array, ""]) -> Learner:
    """The same critics in other units: the last layer is linear, so multiplying it multiplies what it predicts."""

    def rescale(network: Network) -> Network:
        weights = (*network.weights[:-1], network.weights[-1] * factor)
        return Network(weights, (*network.biases[:-1], network.biases[-1] * factor))

    both = lambda pair: (rescale(pair[0]), rescale(pair[1]))
    return eqx.tree_at(lambda it: (it.critics, it.targets), learner, (both(learner.critics), both(learner.targets)))


def sound(
    x: Float[Array, "n dx"], x_next: Float[Array, "n dx"], rewards: Float[Array, " n"]
) -> tuple[Float[Array, "n dx"], Float[Array, " n"]]:
    """A model that is perturbed far from its data may answer with infinity: such a step leads nowhere, and none is worse."""
    finite = jnp.isfinite(rewards) & jnp.all(jnp.isfinite(x_next), axis=-1)
    least = jnp.where(jnp.any(finite), jnp.min(jnp.where(finite, rewards, jnp.inf)), 0.0)
    return jnp.where(finite[:, None], x_next, x), jnp.where(finite, rewards, least)
