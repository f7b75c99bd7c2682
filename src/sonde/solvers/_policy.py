"""Policies: functions from states to actions whose own state is passed from step to step, so that a whole rollout compiles."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from sonde.solvers._fallback import Checked
from sonde.solvers._safety import Feedback


class Policy(eqx.Module):
    """A function from states to actions, one step at a time."""

    @abc.abstractmethod
    def initial_state(self) -> Any:
        """The policy's own state at the start of an episode: any pytree of arrays, or None."""

    @abc.abstractmethod
    def act(self, state: Any, x: Float[Array, " dx"], key: Key[Array, ""]) -> tuple[Float[Array, " du"], Any, Float[Array, ""]]:
        """Choose an action.

        Args:
            state: The policy's own state.
            x: State of the system.
            key: Randomness of this step.

        Returns:
            The action in [-1, 1], the policy's next state, and the information gain per step that it expects in nats (NaN if it
            does not plan).
        """

    def due(self, state: Any) -> Bool[Array, "*copies"] | None:
        """Where `act` plans, if it does not always do so; elsewhere it does the same as `follow`.

        Args:
            state: The policy's own state, of one copy of the system or of many.

        Returns:
            Whether a plan is due; None if `act` has nothing to carry on.
        """
        del state
        return None

    def follow(
        self, state: Any, x: Float[Array, " dx"], key: Key[Array, ""]
    ) -> tuple[Float[Array, " du"], Any, Float[Array, ""]]:
        """Choose an action where no plan is due.

        Args:
            state: The policy's own state.
            x: State of the system.
            key: Randomness of this step.

        Returns:
            As `act`.
        """
        return self.act(state, x, key)

    def with_goal(self, goal: Float[Array, "*seeds dg"] | None) -> "Policy":
        """The same policy for another goal; policies that do not plan ignore it.

        Args:
            goal: The goal; None leaves the policy as it is.
        """
        del goal
        return self

    def without_report(self) -> "Policy":
        """The same policy where only its actions are used: it may return NaN for the information that it expects."""
        return self

    def checked(self, state: Any) -> Checked | None:
        """What the check of constraints said about the last action; None where no constraints are checked.

        Args:
            state: The policy's own state after the action.
        """
        del state
        return None

    def to_bytes(self) -> bytes | None:
        """Content of a file for `sonde.load_policy`; None if the policy cannot be used without JAX."""
        return None


class AnytimePolicy(Policy):
    """A policy that plans each action in iterations, and can act after any of them."""

    @abc.abstractmethod
    def iteration_sizes(self, share: float = 1.0) -> tuple[int, ...]:
        """The size of each iteration, such as its number of samples; iterations of one size share a compiled program.

        Args:
            share: Factor in (0, 1] on the sizes; they shrink only as far as is reasonable.

        Returns:
            One size per iteration, for planning that is not interrupted.
        """

    @abc.abstractmethod
    def begin(self, state: Any) -> Any:
        """Start the search for an action.

        Args:
            state: The policy's own state.

        Returns:
            The search before its first iteration: any pytree of arrays.
        """

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
        """Run one more iteration.

        Args:
            search: The search so far.
            x: State of the system.
            key: Randomness of this step; the same for all its iterations.
            iteration: Number of the iteration, from 0.
            last: Whether no other iteration follows.
            size: Size of the iteration.

        Returns:
            The search after this iteration.
        """

    @abc.abstractmethod
    def finish(self, search: Any) -> tuple[Float[Array, "H du"], Any]:
        """End the search for an action.

        Args:
            search: The search after any number of iterations; after none, the plan is that of the last step, shifted (all zeros
                at the start of an episode).

        Returns:
            Actions for this step and the following ones, and the policy's next state.
        """


class RandomPolicy(Policy):
    """Actions drawn uniformly from [-1, 1]."""

    action_dim: int = eqx.field(static=True)

    def initial_state(self) -> None:
        """No state."""

    def act(
        self, state: None, x: Float[Array, " dx"], key: Key[Array, ""]
    ) -> tuple[Float[Array, " du"], None, Float[Array, ""]]:
        """Draw an action."""
        return jax.random.uniform(key, (self.action_dim,), x.dtype, -1.0, 1.0), None, jnp.asarray(jnp.nan, x.dtype)


class CautiousPolicy(Policy):
    """The policy of a first round without any knowledge: small random actions, or a feedback u = f(x)."""

    state_dim: int = eqx.field(static=True)
    """Number of dimensions dx of an observation, the first part of the state; the feedback sees it alone."""
    action_dim: int = eqx.field(static=True)
    amplitude: float = eqx.field(static=True, default=0.0)
    """Largest magnitude of the random actions."""
    feedback: Feedback | None = eqx.field(static=True, default=None)
    """The feedback, if there is one; then nothing is random."""

    def initial_state(self) -> None:
        """No state."""

    def act(
        self, state: None, x: Float[Array, " dx"], key: Key[Array, ""]
    ) -> tuple[Float[Array, " du"], None, Float[Array, ""]]:
        """Draw a small action, or apply the feedback."""
        nothing = jnp.asarray(jnp.nan, x.dtype)
        if self.feedback is not None:
            return jnp.clip(jnp.asarray(self.feedback(x[: self.state_dim]), x.dtype), -1.0, 1.0), None, nothing
        return jax.random.uniform(key, (self.action_dim,), x.dtype, -self.amplitude, self.amplitude), None, nothing
