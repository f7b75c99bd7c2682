"""What a model of the unknown system must offer.

A `Model` is configuration (hashable, so it is a static argument of compiled functions). Its learned numbers are `params`, a
pytree: `fit` improves them from data. `condition` turns params and data into a `Posterior`, the object that planners query:
everything that can be computed before the first query is computed there, once per episode.
"""

import abc
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, Int, Key

from sonde.data import Data


class Belief(eqx.Module):
    """What is believed of the next state, in state units.

    `epistemic_std` is what more data would remove, `aleatoric_std` is what it would not.
    """

    mean: Float[Array, "*batch dx"]
    epistemic_std: Float[Array, "*batch dx"]
    aleatoric_std: Float[Array, "*batch dx"]


class Posterior(eqx.Module):
    """A model after seeing data: answers queries one point at a time (`vmap` it for many)."""

    @abc.abstractmethod
    def believe(self, x: Float[Array, " dx"], u: Float[Array, " du"]) -> Belief:
        """The belief about the state that follows action `u` in state `x`."""


class Model(abc.ABC):
    """A way to learn x' from (x, u)."""

    @abc.abstractmethod
    def init(self, state_dim: int, action_dim: int, key: Key[Array, ""]) -> Any:
        """The params before any data."""

    @abc.abstractmethod
    def fit(self, params: Any, data: Data, filled: Int[Array, ""], key: Key[Array, ""]) -> Any:
        """Better params.

        `filled` is the largest count among the runs that are fitted together. It is the same number for all of them, so
        a model may branch on it to leave the empty part of the buffers alone.
        """

    @abc.abstractmethod
    def condition(self, params: Any, data: Data) -> Posterior:
        """The posterior under these params and all the data."""
