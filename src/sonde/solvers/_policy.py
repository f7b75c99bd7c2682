"""Policies: rules that turn states into actions, one step at a time."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key


class Policy(eqx.Module):
    """A rule that turns states into actions, one step at a time."""

    @abc.abstractmethod
    def start(self) -> Any:
        """The state of the policy at the beginning of an episode."""

    @abc.abstractmethod
    def act(self, state: Any, x: Float[Array, " dx"], key: Key[Array, ""]) -> tuple[Float[Array, " du"], Any, Float[Array, ""]]:
        """The action, the next state of the policy, and the information that it expects per step (NaN: it does not plan)."""

    def with_goal(self, goal: Float[Array, "*seeds dg"] | None) -> "Policy":
        """The same policy for this goal; one that does not plan has no use for it."""
        del goal
        return self

    def to_bytes(self) -> bytes | None:
        """The content of a file from which `sonde.control.deploy` makes the same policy; None if it needs more than a file can hold."""
        return None


class AnytimePolicy(Policy):
    """A policy that thinks about each action in turns, and can act after any of them."""

    @abc.abstractmethod
    def iteration_sizes(self, share: float = 1.0) -> tuple[int, ...]:
        """The size of each turn, if none is cut; turns of one size share a compiled program.

        `share` asks for turns that are smaller by this factor, as far as that makes sense.
        """

    @abc.abstractmethod
    def begin(self, state: Any) -> Any:
        """The search before the first turn."""

    @abc.abstractmethod
    def improve(
        self,
        search: Any,
        x: Float[Array, " dx"],
        key: Key[Array, ""],
        iteration: Int[Array, ""],
        last: Bool[Array, ""],
        size: int,
    ) -> Any:
        """The search after one more turn, counted from 0; `last`: none will follow."""

    @abc.abstractmethod
    def finish(self, search: Any) -> tuple[Float[Array, "H du"], Any]:
        """The actions for this step and those to come, and the next state of the policy.

        Without a turn since `begin`, they are the last step's plan, shifted (nothing, at the beginning of an episode).
        """


class RandomPolicy(Policy):
    """Actions drawn uniformly from [-1, 1]."""

    action_dim: int = eqx.field(static=True)

    def start(self) -> None:
        """Remembers nothing."""

    def act(
        self, state: None, x: Float[Array, " dx"], key: Key[Array, ""]
    ) -> tuple[Float[Array, " du"], None, Float[Array, ""]]:
        """A random action."""
        return jax.random.uniform(key, (self.action_dim,), x.dtype, -1.0, 1.0), None, jnp.asarray(jnp.nan, x.dtype)
