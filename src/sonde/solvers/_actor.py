"""The policy of soft actor-critic: a network whose output is a Gaussian over the controls, squashed into [-1, 1] by tanh."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, Key

from sonde._internal.past import NO_PAST, Past
from sonde._internal.policy_file import to_bytes
from sonde.models._network import Network
from sonde.models._normaliser import Normaliser
from sonde.solvers._policy import Policy

LOG_STD_RANGE = (-5.0, 2.0)
"""Smallest and largest log-std of the Gaussian, before tanh."""


def squashed_gaussian(
    output: Float32[Array, "*batch outputs"], noise: Float32[Array, "*batch dc"]
) -> tuple[Float32[Array, "*batch dc"], Float32[Array, "*batch"]]:
    """Sample controls from an actor's output.

    Args:
        output: Output of the actor's network: means, then raw log-stds.
        noise: Standard normal noise.

    Returns:
        The controls, and their log-density.
    """
    mean, raw = jnp.split(output, 2, axis=-1)
    low, high = LOG_STD_RANGE
    log_std = low + 0.5 * (high - low) * (jnp.tanh(raw) + 1)
    before_tanh = mean + jnp.exp(log_std) * noise
    normal = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi)
    # log(1 - tanh(v)^2) in a form that keeps its precision far from zero
    log_slope = 2 * (math.log(2) - before_tanh - jax.nn.softplus(-2 * before_tanh))
    return jnp.tanh(before_tanh), jnp.sum(normal - log_slope, axis=-1)


def squashed_mean(output: Float32[Array, "*batch outputs"]) -> Float32[Array, "*batch dc"]:
    """Controls of an actor without noise.

    Args:
        output: Output of the actor's network.
    """
    return jnp.tanh(jnp.split(output, 2, axis=-1)[0])


def adversary_controls(
    adversary: Network, states: Float[Array, "batch dx"], controls: Float32[Array, "batch dc"]
) -> Float32[Array, "batch da"]:
    """Controls of an adversary without noise.

    Args:
        adversary: The adversary's network.
        states: Normalised states.
        controls: Controls of the actor, which the adversary sees.
    """
    return squashed_mean(adversary(jnp.concatenate([states, controls], axis=-1)))


class ActorPolicy(Policy):
    """The mean of an actor, or samples from it; of its controls, only the action is used, the others are imagined."""

    network: Network
    normaliser: Normaliser
    action_dim: int = eqx.field(static=True)
    adversary: Network | None = None
    """The adversary that it was trained against, if there was one."""
    samples: bool = eqx.field(static=True, default=False)
    """Whether actions are drawn from the actor's distribution, as in exploration, instead of being its mean."""
    past: Past = eqx.field(static=True, default=NO_PAST)
    """What of the past belongs to the states."""

    def initial_state(self) -> None:
        """No state."""

    def act(
        self, state: None, x: Float[Array, " dx"], key: Key[Array, ""]
    ) -> tuple[Float[Array, " du"], None, Float[Array, ""]]:
        """Evaluate the network, and draw the noise if there is any."""
        output = self.network(self.normaliser(x)[None])[0]
        controls = squashed_mean(output)
        if self.samples:
            controls, _ = squashed_gaussian(output, jax.random.normal(key, controls.shape, jnp.float32))
        return controls[: self.action_dim].astype(x.dtype), None, jnp.asarray(jnp.nan, x.dtype)

    def adversary_controls(self, x: Float[Array, " dx"]) -> Float[Array, " da"]:
        """Controls of the adversary that the policy was trained against.

        Args:
            x: State of the system.
        """
        assert self.adversary is not None
        states = self.normaliser(x)[None]
        return adversary_controls(self.adversary, states, squashed_mean(self.network(states)))[0].astype(x.dtype)

    def to_bytes(self) -> bytes:
        """All layers, with a leading axis S, in the format that `sonde.control.deploy` documents; it acts by the mean."""
        arrays: dict[str, Any] = {"action_dim": np.asarray([self.action_dim])}
        if self.past:
            arrays["past"] = np.asarray([self.past.delay, self.past.history])
        arrays |= {"shift": self.normaliser.shift, "scale": self.normaliser.scale}
        for i, (weight, bias) in enumerate(zip(self.network.weights, self.network.biases, strict=True)):
            arrays |= {f"weight{i}": weight, f"bias{i}": bias}
        return to_bytes(arrays)
