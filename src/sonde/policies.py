"""Policies: what runs on the real system.

A `Policy` is pure: its state is handed from step to step, so that a whole episode compiles. `Controller` is the same thing as
an object that remembers its state and speaks numpy, for people who step a system themselves.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from sonde.errors import SondeError
from sonde.lockstep import lockstep
from sonde.precision import double_precision
from sonde.randomness import for_purpose


class Policy(eqx.Module):
    """A rule that turns states into actions, one step at a time."""

    @abc.abstractmethod
    def start(self) -> Any:
        """The state of the policy at the beginning of an episode."""

    @abc.abstractmethod
    def act(self, state: Any, x: Float[Array, " dx"], key: Key[Array, ""]) -> tuple[Float[Array, " du"], Any, Float[Array, ""]]:
        """The action, the next state of the policy, and the information that it expects per step (NaN: it does not plan)."""

    def for_file(self) -> bytes | None:
        """The content of a file from which `sonde.deploy` makes the same policy; None if it needs more than a file can hold."""
        return None


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


@eqx.filter_jit
def _start(policy: Policy, runs: int):
    # a policy without arrays (random) has no axis to map over, hence the explicit size
    return jax.vmap(lambda p: p.start(), axis_size=runs)(policy)


@eqx.filter_jit
def _act(policy: Policy, state: Any, x: Array, keys: Array, step: Array):
    def one(policy, state, x, key):
        return policy.act(state, x, jax.random.fold_in(key, step))

    return lockstep(one)(policy, state, x, keys)


@eqx.filter_jit
def _begin_anew(policy: Policy, state: Any, which: Array):
    """The policy's state, from the beginning where `which` [S] is true."""
    fresh = jax.vmap(lambda p: p.start(), axis_size=which.shape[0])(policy)
    choose = lambda new, old: jnp.where(which.reshape(-1, *[1] * (new.ndim - 1)), new, old)
    return jax.tree.map(choose, fresh, state)


class Controller:
    """A policy for S runs in lockstep: call it with states, get actions, both numpy arrays.

    With a single run, states of shape [dx] give actions of shape [du]; otherwise [S, dx] gives [S, du].
    """

    def __init__(self, policy: Policy, keys: Key[Array, " runs"], state_dim: int):
        """`policy` carries a leading axis S on its arrays; `keys` name the randomness of the episode."""
        self.policy, self.keys, self.state_dim = policy, keys, state_dim
        self.reset()

    @property
    def runs(self) -> int:
        """How many runs are in lockstep."""
        return self.keys.shape[0]

    def reset(self) -> None:
        """Begin the episode anew."""
        self._step, self._state = 0, None

    @double_precision
    def begin_anew(self, which: np.ndarray) -> None:
        """The system began a new episode in the runs where `which` [S] is true."""
        if self._state is not None:
            self._state = _begin_anew(self.policy, self._state, jnp.asarray(which))

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """The actions, in [-1, 1]."""
        x = np.asarray(x, dtype=np.float64)
        single = x.ndim == 1 and self.runs == 1
        actions, _ = self.act(x[None] if single else x)
        return actions[0] if single else actions

    @double_precision
    def act(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The actions [S, du], and the information per step [S] that the policy expects (NaN if it does not plan)."""
        if states.shape != (self.runs, self.state_dim):
            raise SondeError(f"policy: states must have shape [{self.runs}, {self.state_dim}], got {list(states.shape)}")
        if not np.isfinite(states).all():
            raise SondeError("policy: states must be finite; check the sensor that delivered NaN or infinity")
        if self._step == 0:
            self._state = _start(self.policy, self.runs)
        actions, self._state, planned = _act(
            self.policy, self._state, jnp.asarray(states), for_purpose(self.keys, "plan"), jnp.asarray(self._step)
        )
        self._step += 1
        return np.asarray(actions), np.asarray(planned)
