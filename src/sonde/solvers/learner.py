"""What soft actor-critic learns: an actor, critics of what it does and, where the imagination lets one choose, an opponent.

The opponent is a second actor. It sees the state and what the first one does there, for the worst case is the one that answers
a choice: max over u of min over eta. Both play for the same soft value, the actor to raise it and the opponent to lower it:

    V(x) = E[Q(x, u, eta) - alpha log p(u | x) + alpha' log q(eta | x, u)]

So each is paid for being random, at a price of its own. An opponent needs that as much as an actor does: what hurts most is
often a corner of [-1, 1], and in the wrong one of them tanh is flat and the critics soon hear of no other.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float32

from sonde.models.network import Network
from sonde.solvers.actor import squashed

Players = tuple[Network, Network | None]
Densities = tuple[Float32[Array, " batch"], Float32[Array, " batch"] | None]


class Batch(NamedTuple):
    """Imagined transitions; states in the networks' units, the opponent's part of the controls behind the actor's."""

    states: Float32[Array, "*n dx"]
    controls: Float32[Array, "*n dc"]
    rewards: Float32[Array, "*n"]
    next_states: Float32[Array, "*n dx"]


class Learner(eqx.Module):
    """All that training changes."""

    players: Players
    """The actor, and the opponent if there is one."""
    critics: tuple[Network, Network]
    targets: tuple[Network, Network]
    log_temperatures: tuple[Float32[Array, ""], Float32[Array, ""] | None]
    """What a nat of entropy is worth to each player."""
    optimiser_states: Any

    @property
    def actor(self) -> Network:
        """Turns states into the distribution of controls."""
        return self.players[0]

    @property
    def opposed(self) -> bool:
        """Whether there is an opponent."""
        return self.players[1] is not None


def choices(player: Network) -> int:
    """Numbers that a player chooses; its outputs are a mean and a log-std of each."""
    return player.biases[-1].shape[-1] // 2


def moves(
    players: Players, states: Float32[Array, "batch dx"], noise: Float32[Array, "batch dc"]
) -> tuple[Float32[Array, "batch dc"], Densities]:
    """What the players do, made of standard normal noise, and the log-density of each one's part.

    The actor's gradient leaves out that the opponent's answer changes with the action: near the worst answer, that is worth
    nothing.
    """
    actor, opponent = players
    if opponent is None:
        controls, density = squashed(actor(states), noise)
        return controls, (density, None)
    own = choices(actor)
    controls, density = squashed(actor(states), noise[:, :own])
    seen = jnp.concatenate([states, jax.lax.stop_gradient(controls)], axis=-1)
    answer, answer_density = squashed(opponent(seen), noise[:, own:])
    return jnp.concatenate([controls, answer], axis=-1), (density, answer_density)


def certainty_cost(
    temperatures: tuple[Float32[Array, ""], Float32[Array, ""] | None], densities: Densities
) -> Float32[Array, " batch"]:
    """What the actor goes without by being certain, less what the opponent does."""
    cost = temperatures[0] * densities[0]
    return cost if temperatures[1] is None or densities[1] is None else cost - temperatures[1] * densities[1]


def value(
    critic: Network, states: Float32[Array, "batch dx"], controls: Float32[Array, "batch dc"]
) -> Float32[Array, " batch"]:
    """What a critic expects of these controls."""
    return critic(jnp.concatenate([states, controls], axis=-1))[:, 0]


def agreed(
    critics: tuple[Network, Network], states: Float32[Array, "batch dx"], controls: Float32[Array, "batch dc"], opposed: bool
) -> Float32[Array, " batch"]:
    """What two opinions come to: the lower, since an actor seeks where they err upwards.

    An opponent seeks where they err downwards, and the lower would help it until no return is too bad: then, their mean.
    """
    one, two = (value(critic, states, controls) for critic in critics)
    return 0.5 * (one + two) if opposed else jnp.minimum(one, two)


def rescaled(learner: Learner, factor: Float32[Array, ""]) -> Learner:
    """The same critics in other units: the last layer is linear, so multiplying it multiplies what it predicts."""

    def rescale(network: Network) -> Network:
        weights = (*network.weights[:-1], network.weights[-1] * factor)
        return Network(weights, (*network.biases[:-1], network.biases[-1] * factor))

    both = lambda pair: (rescale(pair[0]), rescale(pair[1]))
    return eqx.tree_at(lambda it: (it.critics, it.targets), learner, (both(learner.critics), both(learner.targets)))
