"""The parameters of soft actor-critic, and the imagined transitions that it learns from."""

from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Float32

from sonde.imagination import NoiseDraws
from sonde.models import Prediction
from sonde.models._network import Network
from sonde.solvers._actor import squashed_gaussian

INITIAL_MULTIPLIER, MULTIPLIER_RATE = 1.0, 5.0
"""Cost of a risky step at first, and how much a training step adds to it per share of risky steps above the allowed one."""
RISKY_SHARE = 0.001
"""Share of imagined steps that may be risky."""


class PendingSteps(NamedTuple):
    """Imagined steps whose next states depend on the adversary's choice; states in their own units."""

    x: Float[Array, "*n dx"]
    controls: Float[Array, "*n dc"]
    predictions: Prediction
    draws: NoiseDraws


class Batch(NamedTuple):
    """Imagined transitions; states are normalised."""

    states: Float32[Array, "*n dx"]
    controls: Float32[Array, "*n dc"]
    rewards: Float32[Array, "*n"]
    next_states: Float32[Array, "*n dx"]
    pending: PendingSteps | None = None
    """The same steps before the adversary's choice, so that a later adversary can choose again."""
    risky: Float32[Array, "*n"] | None = None
    """1 where a plausible next state violates a constraint, otherwise 0; None without constraints."""


class Adversary(eqx.Module):
    """A second actor, which chooses the adversary's controls."""

    network: Network
    log_temperature: Float32[Array, ""]


class Learner(eqx.Module):
    """Everything that training changes."""

    actor: Network
    critics: tuple[Network, Network]
    target_critics: tuple[Network, Network]
    log_temperature: Float32[Array, ""]
    optimiser_states: Any
    adversary: Adversary | None = None
    multiplier: Float32[Array, ""] | None = None
    """What a risky step costs, in units of the scaled rewards; None without constraints."""


def q_value(
    critic: Network, states: Float32[Array, "batch dx"], controls: Float32[Array, "batch dc"]
) -> Float32[Array, " batch"]:
    """The return that one critic predicts.

    Args:
        critic: The critic.
        states: Normalised states.
        controls: Controls of the actor.
    """
    return critic(jnp.concatenate([states, controls], axis=-1))[:, 0]


def min_q_value(
    critics: tuple[Network, Network], states: Float32[Array, "batch dx"], controls: Float32[Array, "batch dc"]
) -> Float32[Array, " batch"]:
    """The smaller of the returns that two critics predict, which counters overestimation.

    Args:
        critics: Both critics.
        states: Normalised states.
        controls: Controls of the actor.
    """
    return jnp.minimum(*(q_value(critic, states, controls) for critic in critics))


def critic_loss(critics: tuple[Network, Network], batch: Batch, target: Float32[Array, " batch"]) -> Float32[Array, ""]:
    """Half the mean squared error of both critics.

    Args:
        critics: Both critics.
        batch: Imagined transitions.
        target: Returns to predict.
    """
    predicted = [q_value(critic, batch.states, batch.controls) for critic in critics]
    first, second = (0.5 * jnp.mean((each - target) ** 2) for each in predicted)
    return first + second


def actor_loss(
    actor: Network,
    critics: tuple[Network, Network],
    temperature: Float32[Array, ""],
    states: Float32[Array, "batch dx"],
    noise: Float32[Array, "batch dc"],
) -> tuple[Float32[Array, ""], Float32[Array, ""]]:
    """The negative value of the actor's controls, entropy included.

    Args:
        actor: The actor.
        critics: Both critics.
        temperature: Value of a nat of entropy.
        states: Normalised states.
        noise: Standard normal noise for the controls.

    Returns:
        The loss, and the mean log-density of the controls.
    """
    controls, log_density = squashed_gaussian(actor(states), noise)
    value = min_q_value(critics, states, controls)
    return jnp.mean(temperature * log_density - value), jnp.mean(log_density)


def with_rescaled_critics(learner: Learner, factor: Float32[Array, ""]) -> Learner:
    """Multiply what the critics and target critics predict.

    Args:
        learner: The learner.
        factor: Factor on the predictions; the last layer is linear, so it is applied there.
    """

    def rescale(network: Network) -> Network:
        weights = (*network.weights[:-1], network.weights[-1] * factor)
        return Network(weights, (*network.biases[:-1], network.biases[-1] * factor))

    both = lambda pair: (rescale(pair[0]), rescale(pair[1]))
    parts = lambda learner: (learner.critics, learner.target_critics)
    return eqx.tree_at(parts, learner, (both(learner.critics), both(learner.target_critics)))


def with_next_multiplier(learner: Learner, imagined: Batch) -> Learner:
    """Dual ascent: raise the cost of risky steps while there are more than allowed, and lower it while there are fewer.

    Args:
        learner: The learner.
        imagined: The latest imagined transitions.

    Returns:
        The learner with its next multiplier; the same learner without constraints.
    """
    if learner.multiplier is None or imagined.risky is None:
        return learner
    excess = jnp.mean(imagined.risky) - RISKY_SHARE
    return replace(learner, multiplier=jnp.maximum(learner.multiplier + MULTIPLIER_RATE * excess, 0.0))


def replace_nonfinite(
    x: Float[Array, "n dx"], x_next: Float[Array, "n dx"], rewards: Float[Array, " n"]
) -> tuple[Float[Array, "n dx"], Float[Array, " n"]]:
    """Replace steps that are not finite, as a model may predict far from its data.

    Args:
        x: States.
        x_next: Next states.
        rewards: Rewards.

    Returns:
        Next states and rewards, where a step that is not finite stays in its state and gets the smallest finite reward.
    """
    finite = jnp.isfinite(rewards) & jnp.all(jnp.isfinite(x_next), axis=-1)
    smallest = jnp.where(jnp.any(finite), jnp.min(jnp.where(finite, rewards, jnp.inf)), 0.0)
    return jnp.where(finite[:, None], x_next, x), jnp.where(finite, rewards, smallest)
