"""What a model of the unknown system must offer.

A `Model` is configuration (hashable, so it is a static argument of compiled functions). Its learned numbers are `params`, a
pytree that `fit` improves from data. `condition` turns params and data into a `Posterior`, the object that planners query:
everything that can be computed before the first query is computed there, once per round.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from sonde._internal.errors import SondeError
from sonde.data import Data, SystemSpec

UNROLL = 10
"""Steps of a plan that are compiled in a row for a GPU: it computes one in less time than the host needs to start it."""


class MemberPredictions(eqx.Module):
    """What each of an ensemble's E members predicts: the mean of the next state and the std of the noise around it."""

    means: Float[Array, "*batch E dx"]
    stds: Float[Array, "*batch E dx"]


class Prediction(eqx.Module):
    """A predicted next state, in state units.

    `epistemic_std` is what more data would remove, `aleatoric_std` is what it would not.
    """

    mean: Float[Array, "*batch dx"]
    epistemic_std: Float[Array, "*batch dx"]
    aleatoric_std: Float[Array, "*batch dx"]
    members: MemberPredictions | None = None
    """The predictions of an ensemble's members; `mean` and `epistemic_std` are the mean and the std of their means."""
    beta: Float[Array, "*batch dx"] | None = None
    """Half-width of the confidence region in epistemic stds, where a `BetaRule` sets it."""

    def rescaled(self, epistemic: Float[Array, " dx"], aleatoric: Float[Array, " dx"]) -> "Prediction":
        """Multiply the stds; members move away from their mean accordingly.

        Args:
            epistemic: Factor on the epistemic std of each dimension.
            aleatoric: Factor on the aleatoric std of each dimension.
        """
        members = self.members
        if members is not None:
            centre = self.mean[..., None, :]
            members = MemberPredictions(centre + epistemic * (members.means - centre), aleatoric * members.stds)
        return Prediction(self.mean, epistemic * self.epistemic_std, aleatoric * self.aleatoric_std, members)


class JacobianPrediction(eqx.Module):
    """The Jacobian of the next state with respect to (x, u), in state units, and how certain it is."""

    mean: Float[Array, "dx dz"]
    std: Float[Array, "dx dz"]
    """Epistemic std of each entry."""
    samples: Float[Array, "N dx dz"]
    """Plausible Jacobians; those of an ensemble are its members'."""

    def rescaled(self, epistemic: Float[Array, " dx"]) -> "JacobianPrediction":
        """Multiply the uncertainty of each row.

        Args:
            epistemic: Factor for each state dimension.
        """
        rows = epistemic[:, None]
        return JacobianPrediction(self.mean, rows * self.std, self.mean + rows * (self.samples - self.mean))


class Posterior(eqx.Module):
    """A model after seeing data: answers queries one point at a time (`vmap` it for many)."""

    @property
    def ensemble_size(self) -> int:
        """Number of members that `member` can return; 0 if there are none."""
        return 0

    @property
    def unroll(self) -> int:
        """Steps of a plan that are compiled in a row, instead of as a loop: `UNROLL` on a GPU, 1 elsewhere."""
        return 1

    @abc.abstractmethod
    def predict(self, x: Float[Array, " dx"], u: Float[Array, " du"]) -> Prediction:
        """Predict the state that follows an action.

        Args:
            x: State.
            u: Action in [-1, 1].
        """

    def warning(self) -> str | None:
        """What a user must know about these predictions; None if there is nothing. Called between compiled calls."""
        return None

    def specialise(self) -> "Posterior":
        """The same predictions in the form that is fastest on the device that holds the arrays.

        Called between compiled calls: unlike `Model.condition` it may look at numbers and devices, and change shapes.
        """
        return self

    def differentiable(self) -> "Posterior":
        """The same predictions in a form that has gradients, and cheap ones; called between compiled calls."""
        return self

    def member(self, index: Int[Array, ""]) -> "Posterior":
        """One member of an ensemble as a posterior of its own.

        Args:
            index: Number of the member; taken modulo `ensemble_size`.
        """
        del index
        raise SondeError(f"{type(self).__name__} has no members; use an ensemble, or an imagination that needs none")

    def mean_jacobian(self, x: Float[Array, " dx"], u: Float[Array, " du"]) -> Float[Array, "dx dz"]:
        """Jacobian of the predicted mean with respect to (x, u); call it on a `differentiable` posterior.

        Args:
            x: State.
            u: Action.
        """
        # backwards, as networks want it
        return jnp.concatenate(jax.jacrev(lambda x, u: self.predict(x, u).mean, argnums=(0, 1))(x, u), axis=-1)

    def predict_jacobian(
        self, x: Float[Array, " dx"], u: Float[Array, " du"], key: Key[Array, ""], count: int
    ) -> JacobianPrediction:
        """Predict the Jacobian of the next state with respect to (x, u).

        Args:
            x: State.
            u: Action.
            key: Randomness of the samples.
            count: Number of samples; ensembles give one per member instead.
        """
        del x, u, key, count
        raise SondeError(f"{type(self).__name__} does not say how certain its derivatives are; use the model gp or pe")


class Model(abc.ABC):
    """A way to learn x' from (x, u)."""

    @property
    def fits_by_linear_algebra(self) -> bool:
        """Whether a fit is mostly products and factorisations of matrices: it is then compiled in half the time."""
        return False

    @property
    def informed(self) -> bool:
        """Whether predictions before any data rest on more than the model's own prior, such as known physics."""
        return False

    def check_system(self, spec: SystemSpec) -> None:
        """Reject a system that it cannot learn.

        Args:
            spec: The system.
        """
        return

    def for_system(self, spec: SystemSpec) -> "Model":
        """The model with what it must know about a system, which an `Explorer` then learns with; by default the same model.

        Args:
            spec: The system, which `check_system` has accepted.
        """
        del spec
        return self

    def transferred(self, params: Any, spec: SystemSpec) -> Any:
        """Params with which the model predicts another system as well, before any of its measurements.

        Args:
            params: Fitted params.
            spec: The other system.
        """
        del params, spec
        raise SondeError(
            f"{type(self).__name__} has learned one system and says nothing of others; the model relational goes from one "
            "number of objects to another"
        )

    @property
    def ensemble_size(self) -> int:
        """Number of ensemble members (`Prediction.members`); 0 if there are none."""
        return 0

    @abc.abstractmethod
    def init(self, state_dim: int, action_dim: int, key: Key[Array, ""]) -> Any:
        """Params before any data.

        Args:
            state_dim: Number of state dimensions dx.
            action_dim: Number of action dimensions du.
            key: Randomness of the initial params.
        """

    @abc.abstractmethod
    def fit(self, params: Any, data: Data, filled: Int[Array, ""], key: Key[Array, ""]) -> Any:
        """Improve the params from the rows of `data.mask()`.

        Args:
            params: Params of the last fit.
            data: Measurements of one seed.
            filled: At least the largest count among the seeds that are fitted together. It is the same number for all of
                them, so a model may branch on it to skip the empty part of the buffers.
            key: Randomness of the fit.

        Returns:
            The new params.
        """

    @abc.abstractmethod
    def condition(self, params: Any, data: Data) -> Posterior:
        """Posterior under these params and the rows of `data.mask()`.

        Args:
            params: Fitted params.
            data: Measurements of one seed.
        """


ROWS = 1024
"""Points that `predict_many` predicts side by side: the working memory of a prediction is thousands of numbers per point."""


def predict_many(posterior: Posterior, states: Float[Array, "N dx"], actions: Float[Array, "N du"]) -> Prediction:
    """Predict at many points, with the working memory of a few.

    Args:
        posterior: The posterior of one seed.
        states: States [N, dx].
        actions: Actions [N, du].

    Returns:
        Predictions with a leading axis N.
    """
    count = states.shape[0]
    blocks = -(-count // ROWS)
    if blocks <= 1:
        return jax.vmap(posterior.predict)(states, actions)
    size = -(-count // blocks)  # in equal parts, which share compiled code
    fill = lambda rows: jnp.pad(rows, ((0, blocks * size - count), (0, 0))).reshape(blocks, size, -1)
    found = jax.lax.map(lambda block: jax.vmap(posterior.predict)(*block), (fill(states), fill(actions)))
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:count], found)
