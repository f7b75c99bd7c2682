"""What independent Gaussian processes assume before any data, and what measurements tell about them."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from sonde._internal.errors import SondeError
from sonde.models._base import Posterior
from sonde.models._calibration import PosteriorWithBeta
from sonde.models._gp_posterior import GPPosterior
from sonde.models._kernels import Kernel
from sonde.models._linalg import triangular_inverse
from sonde.models._normaliser import Normaliser


class Prior(eqx.Module):
    """What independent Gaussian processes, one per output, assume before any data."""

    inputs: Normaliser
    lengthscales: Float[Array, "*seeds dx dz"]
    signal_std: Float[Array, "*seeds dx"]
    """In state units, as is the noise."""
    noise_std: Float[Array, "*seeds dx"]
    kernel: Kernel = eqx.field(static=True)

    @classmethod
    def of(cls, posterior: Posterior) -> "Prior":
        """That behind a posterior; of one run, or of S in lockstep."""
        gp = plain_gp(posterior)
        scale = gp.targets.scale
        return cls(gp.inputs, gp.lengthscales, scale * gp.signal_std, scale * gp.noise_std, gp.kernel)

    def only(self, output: int) -> "Prior":
        """That of one output."""
        one: Callable[[Array], Array] = lambda array: array[output][None]
        return Prior(self.inputs, one(self.lengthscales), one(self.signal_std), one(self.noise_std), self.kernel)

    def covariance(self, a: Float[Array, "n dz"], b: Float[Array, "m dz"]) -> Float[Array, "dx n m"]:
        """k_j(a, b) / sigma_j^2 for each output j."""
        kernel, ratio = self.kernel, (self.signal_std / self.noise_std) ** 2
        a, b = self.inputs(a), self.inputs(b)
        return jax.vmap(lambda scales, ratio: ratio * kernel.cross(a / scales, b / scales))(self.lengthscales, ratio)

    def variance(self, points: Float[Array, "n dz"]) -> Float[Array, "dx n"]:
        """k_j(z, z) / sigma_j^2 at each point."""
        kernel, ratio = self.kernel, (self.signal_std / self.noise_std) ** 2
        points = self.inputs(points)
        return jax.vmap(lambda scales, ratio: ratio * kernel.diagonal(points / scales))(self.lengthscales, ratio)


def plain_gp(posterior: Posterior) -> GPPosterior:
    """The posterior, if it is that of Gaussian processes as they are; a calibrated one changes its mind about the prior."""
    inner = posterior.posterior if isinstance(posterior, PosteriorWithBeta) else posterior
    if not isinstance(inner, GPPosterior):
        raise SondeError(
            f"the theory's quantities exist for Gaussian processes that are not recalibrated, got {type(inner).__name__}; "
            "take the model gp, with calibrated off"
        )
    return inner


def _factor(prior: Prior, points: Array, rows: Array) -> Array:
    """For each output the Cholesky factor of I + K / sigma^2, which needs no jitter; empty rows touch nothing."""
    both, identity = rows[:, None] & rows[None, :], jnp.eye(points.shape[0])
    matrix = jnp.where(both, prior.covariance(points, points), 0.0) + identity
    return jax.lax.linalg.cholesky(matrix, symmetrize_input=False)


def _half_log_determinant(factor: Array) -> Array:
    return jnp.sum(jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)), axis=-1)


def information_of(prior: Prior, points: Float[Array, "n dz"], rows: Bool[Array, " n"]) -> Float[Array, " dx"]:
    """1/2 log det(I + K / sigma^2) of those points whose row counts, per output; for compiled code."""
    return _half_log_determinant(_factor(prior, points, rows))


def told_and_left(
    prior: Prior, points: Float[Array, "n dz"], given: Float[Array, "m dz"], rows: Bool[Array, " m"]
) -> tuple[Float[Array, " dx"], Float[Array, "dx n"]]:
    """What those rows of `given` that count told, per output, and the variances (over the noise's) that they left at points."""
    factor = _factor(prior, given, rows)
    cross = jnp.where(rows[:, None], prior.covariance(given, points), 0.0)
    explained = jnp.sum((jax.vmap(triangular_inverse)(factor) @ cross) ** 2, axis=-2)
    # rounding may leave a variance just below zero
    return _half_log_determinant(factor), jnp.maximum(prior.variance(points) - explained, 0.0)
