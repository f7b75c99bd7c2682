"""The prior of independent Gaussian processes, and the information that measurements give about them."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from sonde._internal.errors import SondeError
from sonde.data import Data
from sonde.models._base import Posterior
from sonde.models._calibration import PosteriorWithBeta
from sonde.models._gp_posterior import GPPosterior
from sonde.models._kernels import Kernel, affine_features
from sonde.models._linalg import plus_diagonal, triangular_inverse
from sonde.models._normaliser import Normaliser


class Prior(eqx.Module):
    """Prior of independent Gaussian processes, one per output."""

    inputs: Normaliser
    """Normaliser of points (x, u)."""
    lengthscales: Float[Array, "*seeds dx dz"]
    """Length-scales of the normalised inputs."""
    signal_std: Float[Array, "*seeds dx"]
    """Std of the functions, in state units."""
    noise_std: Float[Array, "*seeds dx"]
    """Std of the measurement noise, in state units."""
    kernel: Kernel = eqx.field(static=True)
    """Covariance function."""
    affine: Float[Array, "*seeds dx"] | None = None
    """Prior std of the coefficients of an affine part of the functions, in signal stds; None for no such part."""

    @classmethod
    def of(cls, posterior: Posterior) -> "Prior":
        """Prior of a posterior.

        Args:
            posterior: Posterior of Gaussian processes that are not recalibrated, of one seed or of S.
        """
        gp = underlying_gp(posterior)
        scale, affine = gp.targets.scale, gp.affine_std / gp.signal_std if gp.affine_std else None
        return cls(gp.inputs, gp.lengthscales, scale * gp.signal_std, scale * gp.noise_std, gp.kernel, affine)

    def for_output(self, output: int | Int[Array, ""]) -> "Prior":
        """Prior of a single output.

        Args:
            output: Number of the state dimension.
        """
        one: Callable[[Array], Array] = lambda array: array[output][None]
        values = (self.lengthscales, self.signal_std, self.noise_std)
        return Prior(self.inputs, *map(one, values), self.kernel, None if self.affine is None else one(self.affine))

    def covariance(self, a: Float[Array, "n dz"], b: Float[Array, "m dz"]) -> Float[Array, "dx n m"]:
        """Covariances over the noise variance, k_j(a, b) / sigma_j^2, for each output j.

        Args:
            a: Points (x, u) [n, dz].
            b: Points (x, u) [m, dz].
        """
        return self._over_noise(self.kernel.cross, a, b)

    def variance(self, points: Float[Array, "n dz"]) -> Float[Array, "dx n"]:
        """Variances over the noise variance, k_j(z, z) / sigma_j^2, at each point.

        Args:
            points: Points (x, u) [n, dz].
        """
        return self._over_noise(self.kernel.diagonal, points)

    def _over_noise(self, function: Callable[..., Array], *points: Float[Array, "_ dz"]) -> Float[Array, "dx ..."]:
        """A function of the kernel at points (x, u), over the noise variance, for each output."""
        normalised = [self.inputs(each) for each in points]

        def one_output(lengthscales: Array, ratio: Array, affine: Array | None) -> Array:
            scaled = (
                each / lengthscales if affine is None else affine_features(each, lengthscales, affine) for each in normalised
            )
            return ratio * function(*scaled)

        return jax.vmap(one_output)(self.lengthscales, (self.signal_std / self.noise_std) ** 2, self.affine)


def underlying_gp(posterior: Posterior) -> GPPosterior:
    """The posterior of Gaussian processes inside a posterior, with or without a beta.

    A recalibrated one is rejected: its stds no longer follow from the prior.

    Args:
        posterior: The posterior.
    """
    inner = posterior.posterior if isinstance(posterior, PosteriorWithBeta) else posterior
    if not isinstance(inner, GPPosterior):
        raise SondeError(
            f"the quantities of the theory exist for Gaussian processes that are not recalibrated, got {type(inner).__name__}; "
            "use the model gp, with recalibrate off"
        )
    return inner


def _factor(prior: Prior, points: Array, rows: Array) -> Array:
    """Cholesky factor of I + K / sigma^2 for each output, which needs no jitter; unused rows have no effect."""
    both = rows[:, None] & rows[None, :]
    matrix = plus_diagonal(jnp.where(both, prior.covariance(points, points), 0.0), jnp.asarray(1.0))
    return jax.lax.linalg.cholesky(matrix, symmetrize_input=False)


def _half_log_determinant(factor: Array) -> Array:
    return jnp.sum(jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)), axis=-1)


def information_gain(prior: Prior, points: Float[Array, "n dz"], rows: Bool[Array, " n"]) -> Float[Array, " dx"]:
    """Information gain of points per output, 1/2 log det(I + K / sigma^2), in nats; for compiled code.

    Args:
        prior: Prior of one seed.
        points: Points (x, u).
        rows: True for the points that are measured.
    """
    return _half_log_determinant(_factor(prior, points, rows))


def information_and_variances(
    prior: Prior, points: Float[Array, "n dz"], given: Float[Array, "m dz"], rows: Bool[Array, " m"]
) -> tuple[Float[Array, " dx"], Float[Array, "dx n"]]:
    """Information gain of measurements, and the variances that remain elsewhere.

    Args:
        prior: Prior of one seed.
        points: Points (x, u) at which variances are returned.
        given: Points (x, u) of the measurements.
        rows: True for the measurements that are used.

    Returns:
        The information gain per output, in nats, and the variances at `points` over the noise variance, per output.
    """
    factor = _factor(prior, given, rows)
    cross = jnp.where(rows[:, None], prior.covariance(given, points), 0.0)
    explained = jnp.sum((jax.vmap(triangular_inverse)(factor) @ cross) ** 2, axis=-2)
    # rounding may make a variance slightly negative
    return _half_log_determinant(factor), jnp.maximum(prior.variance(points) - explained, 0.0)


def mean_norms(
    prior: Prior, points: Float[Array, "n dz"], rows: Bool[Array, " n"], targets: Float[Array, "n k"]
) -> Float[Array, " k"]:
    """RKHS norms of exact posterior means under the prior of a single output.

    Args:
        prior: Prior of a single output.
        points: Points (x, u) of the measurements.
        rows: True for the measurements that are used.
        targets: Measured functions, one per column, in units of the noise std.
    """
    inverse = triangular_inverse(_factor(prior, points, rows)[0])
    targets = jnp.where(rows[:, None], targets, 0.0)
    # the mean is K a for a = (I + K)^-1 y, with K in units of the noise variance, so its squared norm is a.K a = a.(y - a)
    solved = inverse.T @ (inverse @ targets)
    return jnp.sqrt(jnp.maximum(jnp.sum(solved * (targets - solved), axis=0), 0.0))


def exact_mean_norm(posterior: GPPosterior, data: Data) -> Float[Array, " dx"]:
    """RKHS norm of the mean of the exact posterior, per output, whatever the rank of the one that is given.

    Args:
        posterior: Posterior of one seed; its prior is used.
        data: Measurements of the seed.
    """
    prior, points, rows, targets = Prior.of(posterior), data.inputs(), data.mask(), in_noise_stds(posterior, data)
    # one after the other: each has matrices of all data
    one = lambda output: mean_norms(prior.for_output(output), points, rows, targets[:, output][:, None])[0]
    return jax.lax.map(one, jnp.arange(targets.shape[1]))


def in_noise_stds(posterior: GPPosterior, data: Data) -> Float[Array, "n dx"]:
    """The targets as a Gaussian process sees them, in units of its noise std.

    Args:
        posterior: Posterior of one seed.
        data: Measurements of the seed.
    """
    return posterior.targets(data.targets()) / posterior.noise_std
