"""A policy that is a network: a Gaussian over the controls, squashed into [-1, 1] by tanh."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy
from jaxtyping import Array, Float, Float32, Key

from sonde._internal.policy_file import FORMAT
from sonde.models._network import Network
from sonde.models._normaliser import Normaliser
from sonde.solvers._policy import Policy

LOG_STD_RANGE = (-5.0, 2.0)


def squashed(
    output: Float32[Array, "*batch outputs"], noise: Float32[Array, "*batch dc"]
) -> tuple[Float32[Array, "*batch dc"], Float32[Array, "*batch"]]:
    """Controls that an actor's output makes of standard normal noise, and the log-density of those controls."""
    mean, raw = jnp.split(output, 2, axis=-1)
    low, high = LOG_STD_RANGE
    log_std = low + 0.5 * (high - low) * (jnp.tanh(raw) + 1)
    before = mean + jnp.exp(log_std) * noise
    normal = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi)
    # log(1 - tanh(v)^2), written so that it does not lose its digits far from zero
    squeeze = 2 * (math.log(2) - before - jax.nn.softplus(-2 * before))
    return jnp.tanh(before), jnp.sum(normal - squeeze, axis=-1)


def middle(output: Float32[Array, "*batch outputs"]) -> Float32[Array, "*batch dc"]:
    """The controls in the middle of the distribution."""
    return jnp.tanh(jnp.split(output, 2, axis=-1)[0])


def response(
    adversary: Network, states: Float[Array, "batch dx"], controls: Float32[Array, "batch dc"]
) -> Float32[Array, "batch do"]:
    """What an actor that sees another's controls does, in the middle of its distribution."""
    return middle(adversary(jnp.concatenate([states, controls], axis=-1)))


class ActorPolicy(Policy):
    """The middle of the actor's distribution; beyond the action, the controls are for the imagination only."""

    network: Network
    normaliser: Normaliser
    action_dim: int = eqx.field(static=True)
    adversary: Network | None = None
    """What it was trained against, if anything was."""

    def start(self) -> None:
        """Remembers nothing."""

    def act(
        self, state: None, x: Float[Array, " dx"], key: Key[Array, ""]
    ) -> tuple[Float[Array, " du"], None, Float[Array, ""]]:
        """A look at the network; it plans nothing."""
        output = self.network(self.normaliser(x)[None])[0]
        return jnp.tanh(output[: self.action_dim]).astype(x.dtype), None, jnp.asarray(jnp.nan, x.dtype)

    def response(self, x: Float[Array, " dx"]) -> Float[Array, " do"]:
        """What the adversary does when it has seen what this policy does in `x`."""
        assert self.adversary is not None
        states = self.normaliser(x)[None]
        return response(self.adversary, states, middle(self.network(states)))[0].astype(x.dtype)

    def to_bytes(self) -> bytes:
        """All layers, with the leading axis of runs."""
        arrays: dict[str, Any] = {"action_dim": np.asarray([self.action_dim])}
        arrays |= {"shift": self.normaliser.shift, "scale": self.normaliser.scale}
        for i, (weight, bias) in enumerate(zip(self.network.weights, self.network.biases, strict=True)):
            arrays |= {f"weight{i}": weight, f"bias{i}": bias}
        # a single entry: safetensors writes several in no fixed order, and equal runs shall have equal files
        return safetensors.numpy.save({k: np.ascontiguousarray(v) for k, v in arrays.items()}, metadata={"format": FORMAT})
