"""The posterior of independent Gaussian processes, in the form that a planner queries.

For one output with unit-signal kernel k, noise-to-signal ratio lambda, and centres c (all data, or a few of them):

    mean(z)     = k(z, c) w
    variance(z) = signal^2 (k(z, z) - |k(z, c) F|^2)

so a query is one kernel row and one matrix product, whatever stands behind w and F. `exact` takes all data as centres.
`low_rank` takes `rank` of them, chosen greedily by pivoted Cholesky, and folds what the other data say about those into w and F
(the subset-of-regressors mean with the conservative variance of the projected process: it never claims more certainty than the
exact posterior, and the price of a query does not grow with the data).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from sonde.models.base import Belief, Posterior
from sonde.models.kernels import KERNELS, Kernel
from sonde.models.linalg import pivoted_cholesky, safe_cholesky, triangular_inverse


class Normaliser(eqx.Module):
    """Shift and scale to zero mean and unit spread."""

    shift: Float[Array, " d"]
    scale: Float[Array, " d"]

    @classmethod
    def identity(cls, dim: int) -> "Normaliser":
        """Leaves everything as it is."""
        return cls(jnp.zeros(dim), jnp.ones(dim))

    @classmethod
    def of(cls, rows: Float[Array, "n d"], mask: Bool[Array, " n"]) -> "Normaliser":
        """From the rows that count; the identity where there are none, and for columns that do not vary."""
        count = jnp.maximum(jnp.sum(mask), 1)
        shift = jnp.sum(rows, axis=0, where=mask[:, None]) / count
        spread = jnp.sqrt(jnp.sum((rows - shift) ** 2, axis=0, where=mask[:, None]) / count)
        return cls(shift, jnp.where(spread > 1e-8, spread, 1.0))

    def __call__(self, rows: Float[Array, "*n d"]) -> Float[Array, "*n d"]:
        """The normalised rows."""
        return (rows - self.shift) / self.scale


class Centres(eqx.Module):
    """One output's posterior in the form above: centres c (divided by the length-scales), weights w, factor F."""

    points: Float[Array, "m d"]
    weights: Float[Array, " m"]
    factor: Float[Array, "m r"]


def exact(
    kernel: Kernel, points: Float[Array, "n d"], y: Float[Array, " n"], mask: Bool[Array, " n"], ratio: Float[Array, ""]
) -> Centres:
    """All data as centres; `ratio` is the noise variance over the signal variance."""
    both = mask[:, None] & mask[None, :]
    identity = jnp.eye(points.shape[0], dtype=points.dtype)
    # an empty row becomes an independent unknown of variance 1: it touches nothing else
    _, factor = safe_cholesky(jnp.where(both, kernel.cross(points, points) + ratio * identity, identity))
    factor = jnp.where(both, factor, 0.0)
    return Centres(points, factor @ (jnp.where(mask, y, 0.0) @ factor), factor)


def low_rank(
    kernel: Kernel,
    points: Float[Array, "n d"],
    y: Float[Array, " n"],
    mask: Bool[Array, " n"],
    ratio: Float[Array, ""],
    rank: int,
) -> Centres:
    """`rank` of the data as centres; the price is n * rank^2, so 20,000 points are no matter."""
    diagonal = kernel.diagonal(points)
    pivots, tall, real = pivoted_cholesky(lambda i: kernel.cross(points, points[i][None])[:, 0], diagonal, mask, rank)
    centres = points[pivots]
    identity = jnp.eye(rank, dtype=points.dtype)
    # K at the centres is L L^T, and K(centres, data) = L tall^T: the whitened features of the data are the rows of `tall`
    lower = jnp.where(real[:, None] & real[None, :], tall[pivots], identity)
    strength, basis = jnp.linalg.eigh(tall.T @ tall)
    strength = jnp.maximum(strength, 0.0)
    whitened_weights = basis @ ((basis.T @ (tall.T @ jnp.where(mask, y, 0.0))) / (strength + ratio))
    explained = basis * jnp.sqrt(strength / (strength + ratio))
    unwhiten = jnp.where(real[:, None], triangular_inverse(lower).T, 0.0)
    return Centres(centres, unwhiten @ whitened_weights, unwhiten @ explained)


class GPPosterior(Posterior):
    """One Gaussian process per output of x' - x. Leading axis of the arrays: the output."""

    inputs: Normaliser
    targets: Normaliser
    lengthscales: Float[Array, "dx dz"]
    signal_std: Float[Array, " dx"]
    noise_std: Float[Array, " dx"]
    centres: Centres
    kernel_name: str = eqx.field(static=True)

    def believe(self, x: Float[Array, " dx"], u: Float[Array, " du"]) -> Belief:
        """Mean, epistemic std and noise of the next state."""
        kernel = KERNELS[self.kernel_name]
        z = self.inputs(jnp.concatenate([x, u]))

        def one_output(centres: Centres, lengthscales):
            point = (z / lengthscales)[None]
            row = kernel.cross(point, centres.points)[0]
            explained = row @ centres.factor
            # rounding may leave a variance just below zero where the data pin the function down
            variance = jnp.maximum(kernel.diagonal(point)[0] - explained @ explained, 0.0)
            return row @ centres.weights, variance

        mean, variance = jax.vmap(one_output)(self.centres, self.lengthscales)
        return Belief(
            mean=x + self.targets.shift + self.targets.scale * mean,
            epistemic_std=self.targets.scale * self.signal_std * jnp.sqrt(variance),
            aleatoric_std=self.targets.scale * self.noise_std,
        )
