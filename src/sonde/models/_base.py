"""What a model of the unknown system must offer.

A `Model` is configuration (hashable, so it is a static argument of compiled functions). Its learned numbers are `params`, a
pytree: `fit` improves them from data. `condition` turns params and data into a `Posterior`, the object that planners query:
everything that can be computed before the first query is computed there, once per episode.
"""

import abc
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, Int, Key

from sonde._internal.errors import SondeError
from sonde.data import Data


class Members(eqx.Module):
    """What each of an ensemble's E members predicts: the mean of the next state and the std of the noise around it."""

    means: Float[Array, "*batch E dx"]
    stds: Float[Array, "*batch E dx"]


class Prediction(eqx.Module):
    """What is predicted of the next state, in state units.

    `epistemic_std` is what more data would remove, `aleatoric_std` is what it would not. An ensemble also says what each member
    predicts; `mean` and `epistemic_std` are then the mean and the std of the members' means. `beta` is the half-width of the
    region that holds the truth, in epistemic stds, where the model claims to know it.
    """

    mean: Float[Array, "*batch dx"]
    epistemic_std: Float[Array, "*batch dx"]
    aleatoric_std: Float[Array, "*batch dx"]
    members: Members | None = None
    beta: Float[Array, "*batch dx"] | None = None

    def rescaled(self, epistemic: Float[Array, " dx"], aleatoric: Float[Array, " dx"]) -> "Prediction":
        """With stds so many times as large; the members move away from their mean accordingly."""
        members = self.members
        if members is not None:
            centre = self.mean[..., None, :]
            members = Members(centre + epistemic * (members.means - centre), aleatoric * members.stds)
        return Prediction(self.mean, epistemic * self.epistemic_std, aleatoric * self.aleatoric_std, members)


class Posterior(eqx.Module):
    """A model after seeing data: answers queries one point at a time (`vmap` it for many)."""

    @abc.abstractmethod
    def predict(self, x: Float[Array, " dx"], u: Float[Array, " du"]) -> Prediction:
        """The prediction about the state that follows action `u` in state `x`."""

    def specialise(self) -> "Posterior":
        """The same predictions in a form that the device answers faster, if there is one; asked for between compiled calls.

        Unlike `Model.condition` it may look at numbers, and so make arrays smaller.
        """
        return self

    def differentiable(self) -> "Posterior":
        """The same predictions in a form of which gradients are cheap; like `settled`, asked for between compiled calls."""
        return self

    def member(self, index: Int[Array, ""]) -> "Posterior":
        """What member `index` of an ensemble predicts on its own; only models with an `ensemble_size` have members."""
        raise SondeError(f"{type(self).__name__} has no members to follow; take an ensemble, or an imagination that needs none")


class Model(abc.ABC):
    """A way to learn x' from (x, u)."""

    @property
    def ensemble_size(self) -> int:
        """Members whose predictions are told apart (`Prediction.members`); 0 for a model that has none."""
        return 0

    @abc.abstractmethod
    def init(self, state_dim: int, action_dim: int, key: Key[Array, ""]) -> Any:
        """The params before any data."""

    @abc.abstractmethod
    def fit(self, params: Any, data: Data, filled: Int[Array, ""], key: Key[Array, ""]) -> Any:
        """Better params, from the rows of `data.mask()`.

        `filled` is the largest count among the runs that are fitted together. It is the same number for all of them, so
        a model may branch on it to leave the empty part of the buffers alone.
        """

    @abc.abstractmethod
    def condition(self, params: Any, data: Data) -> Posterior:
        """The posterior under these params and the rows of `data.mask()`."""
