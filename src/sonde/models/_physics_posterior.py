"""The posterior of known physics together with a model of what it lacks."""

from dataclasses import replace
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from sonde.data import Data
from sonde.models._base import JacobianPrediction, MemberPredictions, Posterior, Prediction
from sonde.models._calibration import PosteriorWrapper

if TYPE_CHECKING:
    from sonde.models._known_physics import KnownPhysics

SMALLEST_VARIANCE = 1e-30  # the square root has no gradient at 0


class Estimate(eqx.Module):
    """The unknown parameters of the physics after seeing data."""

    values: Float[Array, "*seeds p"]
    """The estimate."""
    root: Float[Array, "*seeds p p"]
    """A root R of its covariance R R^T."""
    plausible: Float[Array, "*seeds E p"] | None
    """Values that each member of an ensemble believes in, with this mean and covariance; None if there are no members."""


class KnownPhysicsPosterior(PosteriorWrapper):
    """Predictions of the physics, plus what the posterior inside has learned of its errors.

    Where parameters of the physics are unknown, each member of an ensemble has its own, and disagrees with the others about
    them too. With other posteriors the variance of the linearised physics is added, J S J^T for the covariance S.
    """

    estimate: Estimate | None
    """The unknown parameters; None if all are known."""
    physics: "KnownPhysics" = eqx.field(static=True)

    def predict(self, x: Float[Array, " dx"], u: Float[Array, " du"]) -> Prediction:
        """Predict: the physics plus its predicted error."""
        inner, found = self.posterior.predict(x, u), self.estimate
        if found is None:
            return _moved(inner, self.physics.next_state(x, u, None) - x)
        if found.plausible is not None and inner.members is not None:
            offsets = jax.vmap(lambda values: self.physics.next_state(x, u, values) - x)(found.plausible)
            means = inner.members.means + offsets
            mean = jnp.mean(means, axis=0)
            epistemic = jnp.sqrt(jnp.mean((means - mean) ** 2, axis=0))
            members = MemberPredictions(means, inner.members.stds)
            return replace(inner, mean=mean, epistemic_std=epistemic, members=members)
        following, push = jax.linearize(lambda values: self.physics.next_state(x, u, values), found.values)
        unsure = jnp.sum(jax.vmap(push)(found.root.T) ** 2, axis=0)
        epistemic = jnp.sqrt(jnp.maximum(inner.epistemic_std**2 + unsure, SMALLEST_VARIANCE))
        return _moved(replace(inner, epistemic_std=epistemic, members=None), following - x)

    def member(self, index: Int[Array, ""]) -> "KnownPhysicsPosterior":
        """One member with its parameters of the physics."""
        inner, found = self.posterior.member(index), self.estimate
        if found is None or found.plausible is None:
            return replace(self, posterior=inner)
        values = found.plausible[index % found.plausible.shape[0]]
        return replace(self, posterior=inner, estimate=Estimate(values, jnp.zeros_like(found.root), values[None]))

    def mean_jacobian(self, x: Float[Array, " dx"], u: Float[Array, " du"]) -> Float[Array, "dx dz"]:
        """Jacobian of the predicted mean."""
        inner, found = self.posterior.mean_jacobian(x, u), self.estimate
        if found is None or found.plausible is None:
            return inner + self._slopes(x, u, None if found is None else found.values)
        return inner + jnp.mean(jax.vmap(lambda values: self._slopes(x, u, values))(found.plausible), axis=0)

    def predict_jacobian(
        self, x: Float[Array, " dx"], u: Float[Array, " du"], key: Key[Array, ""], count: int
    ) -> JacobianPrediction:
        """Predict the Jacobian: that of the physics plus that of its predicted error."""
        inner, found = self.posterior.predict_jacobian(x, u, key, count), self.estimate
        if found is None:
            slopes = self._slopes(x, u, None)
            return JacobianPrediction(inner.mean + slopes, inner.std, inner.samples + slopes)
        if found.plausible is not None:
            samples = inner.samples + jax.vmap(lambda values: self._slopes(x, u, values))(found.plausible)
            return JacobianPrediction(jnp.mean(samples, axis=0), jnp.std(samples, axis=0), samples)
        slopes, push = jax.linearize(lambda values: self._slopes(x, u, values), found.values)
        moves = jax.vmap(push)(found.root.T)
        draws = jax.random.normal(jax.random.fold_in(key, 1), (inner.samples.shape[0], moves.shape[0]))
        std = jnp.sqrt(inner.std**2 + jnp.sum(moves**2, axis=0))
        return JacobianPrediction(inner.mean + slopes, std, inner.samples + slopes + jnp.tensordot(draws, moves, 1))

    def _slopes(self, x: Array, u: Array, values: Array | None) -> Float[Array, "dx dz"]:
        """Jacobian of the change that the physics predicts."""
        change = lambda x, u: self.physics.next_state(x, u, values) - x
        return jnp.concatenate(jax.jacfwd(change, argnums=(0, 1))(x, u), axis=-1)

    def residual(self, data: Data) -> tuple[Posterior, Data]:
        """The posterior inside, and the measurements as it sees them.

        Args:
            data: Measurements of one seed.
        """
        return self.posterior, self.physics.residual(data, None if self.estimate is None else self.estimate.values)


def _moved(prediction: Prediction, by: Float[Array, " dx"]) -> Prediction:
    members = prediction.members
    if members is not None:
        members = MemberPredictions(members.means + by, members.stds)
    return replace(prediction, mean=prediction.mean + by, members=members)


def standard_draws(members: int, dim: int) -> Float[np.ndarray, "E p"]:
    """Fixed standard normal draws for each member, with mean 0 and, as far as there are enough, exactly covariance 1.

    Args:
        members: Number of members E.
        dim: Number of parameters p.
    """
    draws = np.random.default_rng(0).standard_normal((members, dim))
    draws -= draws.mean(axis=0)
    if members > dim:
        return draws @ np.linalg.inv(np.linalg.cholesky(draws.T @ draws / members)).T
    return draws / np.sqrt(np.mean(draws**2, axis=0)) if members > 1 else draws
