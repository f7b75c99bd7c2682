"""What is predicted of a system's Jacobian: how the next state changes with state and action, and how sure that is.

The derivative of a Gaussian process is one, so mean and covariance have closed forms: with the posterior of
`sonde.models._gp_posterior`, slopes k'(z, c) of the kernel row, and the kernel's prior slope variance v,

    mean(f')       = k'(z, c) w
    covariance(f') = signal^2 (v I - k'(z, c) F F^T k'(z, c)^T)

The members of an ensemble each have a Jacobian; their spread is what is not known.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from sonde._internal.errors import SondeError
from sonde.evaluation._evaluate import TrueDynamics
from sonde.models._base import Posterior
from sonde.models._calibration import Calibrated, Confident
from sonde.models._ensemble import EnsemblePosterior
from sonde.models._gp_posterior import Centres, GPPosterior
from sonde.models._kernels import KERNELS


class JacobianPrediction(eqx.Module):
    """The Jacobian of the next state with respect to (x, u), in state units."""

    mean: Float[Array, "dx dz"]
    std: Float[Array, "dx dz"]
    """Epistemic std of each entry."""
    samples: Float[Array, "N dx dz"]
    """Plausible Jacobians; those of an ensemble are its members'."""

    def widened(self, factors: Float[Array, " dx"]) -> "JacobianPrediction":
        """With rows that are so many times as uncertain."""
        rows = factors[:, None]
        return JacobianPrediction(self.mean, rows * self.std, self.mean + rows * (self.samples - self.mean))


def predict_jacobian(
    posterior: Posterior, x: Float[Array, " dx"], u: Float[Array, " du"], key: Key[Array, ""], count: int
) -> JacobianPrediction:
    """What a posterior of one run predicts at (x, u); with `count` samples, where it is not an ensemble."""
    if isinstance(posterior, Confident):
        return predict_jacobian(posterior.posterior, x, u, key, count)
    if isinstance(posterior, Calibrated):
        return predict_jacobian(posterior.posterior, x, u, key, count).widened(posterior.factors.epistemic)
    if isinstance(posterior, GPPosterior):
        return _of_gaussian_processes(posterior, x, u, key, count)
    if isinstance(posterior, EnsemblePosterior):
        return _of_ensemble(posterior, x, u)
    if isinstance(posterior, TrueDynamics):
        mean = mean_jacobian(posterior, x, u)
        return JacobianPrediction(mean, jnp.zeros_like(mean), mean[None])
    raise SondeError(f"{type(posterior).__name__} does not say how sure it is of its derivatives; take the model gp or pe")


def mean_jacobian(posterior: Posterior, x: Float[Array, " dx"], u: Float[Array, " du"]) -> Float[Array, "dx dz"]:
    """The Jacobian of the mean, of any posterior that can be differentiated; backwards, as networks want it."""
    return jnp.concatenate(jax.jacrev(lambda x, u: posterior.predict(x, u).mean, argnums=(0, 1))(x, u), axis=-1)


def differentiable(posterior: Posterior) -> Posterior:
    """The same predictions from code that has derivatives: an accelerator's kernels have none."""
    if isinstance(posterior, Confident):
        return differentiable(posterior.posterior)
    if isinstance(posterior, Calibrated):
        return Calibrated(differentiable(posterior.posterior), posterior.factors)
    return EnsemblePosterior(posterior.params, None, posterior.model) if isinstance(posterior, EnsemblePosterior) else posterior


def _of_ensemble(posterior: EnsemblePosterior, x: Array, u: Array) -> JacobianPrediction:
    plain = differentiable(posterior)

    def means(x: Array, u: Array) -> Array:
        members = plain.predict(x, u).members
        assert members is not None
        return members.means

    samples = jnp.concatenate(jax.jacrev(means, argnums=(0, 1))(x, u), axis=-1)
    return JacobianPrediction(jnp.mean(samples, axis=0), jnp.std(samples, axis=0), samples)


def _of_gaussian_processes(posterior: GPPosterior, x: Array, u: Array, key: Array, count: int) -> JacobianPrediction:
    kernel = KERNELS[posterior.kernel_name]
    if (slope_variance := kernel.slope_variance) is None:
        raise SondeError(f"functions under the kernel {posterior.kernel_name!r} have no derivative; take rbf, say")
    z = posterior.inputs(jnp.concatenate([x, u]))

    def one_output(lengthscales: Array, centres: Centres, signal_std: Array, scale: Array, key: Array):
        row = lambda point: kernel.cross(point[None], centres.points)[0]
        slopes = jax.jacfwd(row)(z / lengthscales).T / (lengthscales * posterior.inputs.scale)[:, None]
        explained = slopes @ centres.factor
        prior = jnp.diag(slope_variance / (lengthscales * posterior.inputs.scale) ** 2)
        covariance = (scale * signal_std) ** 2 * (prior - explained @ explained.T)
        variances, directions = jnp.linalg.eigh(covariance)
        # rounding may leave a variance just below zero where the data pin the slope down
        root = directions * jnp.sqrt(jnp.maximum(variances, 0.0))
        mean, std = scale * (slopes @ centres.weights), jnp.sqrt(jnp.sum(root**2, axis=1))
        return mean, std, mean + jax.random.normal(key, (count, z.shape[0])) @ root.T

    dx = x.shape[0]
    mean, std, samples = jax.vmap(one_output)(
        posterior.lengthscales, posterior.centres, posterior.signal_std, posterior.targets.scale, jax.random.split(key, dx)
    )
    # the process is that of the change: x itself comes on top
    unchanged = jnp.eye(dx, z.shape[0])
    return JacobianPrediction(unchanged + mean, std, unchanged + jnp.swapaxes(samples, 0, 1))
