"""The posterior of independent Gaussian processes, in the form that a planner queries.

For one output with unit-signal kernel k, noise-to-signal ratio lambda, and centres c (all data, or a few of them):

    mean(z)     = k(z, c) w
    variance(z) = signal^2 (k(z, z) - |k(z, c) F|^2)

so a query is one kernel row and one matrix product, whatever stands behind w and F. `exact` takes all data as centres.
`low_rank` takes a few, chosen greedily by pivoted Cholesky until they explain the rest to a tolerance, and folds what the other
data say about those into w and F (the mean of the subset of regressors with the variance of the projected process). How many it
takes depends on how smooth the function is, hardly on how many data there are, and so does the price of a query.
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from sonde.models.base import Belief, Posterior
from sonde.models.kernels import KERNELS, Kernel
from sonde.models.linalg import largest_of_all, pivoted_cholesky, safe_cholesky, triangular_inverse
from sonde.models.normaliser import Normaliser

SIZES = (64, 128, 192, 256, 384, 512, 640, 768)
"""A query looks at the first so many centres: the fewest that hold all in use. Compiled once, for all of these."""


class Centres(eqx.Module):
    """One output's posterior in the form above: centres c (divided by the length-scales), weights w, factor F."""

    points: Float[Array, "m d"]
    weights: Float[Array, " m"]
    factor: Float[Array, "m m"]
    used: Int[Array, ""]
    """How many of the m centres count; the weights, rows and columns of the others are zero."""


def exact(
    kernel: Kernel, points: Float[Array, "n d"], y: Float[Array, " n"], mask: Bool[Array, " n"], ratio: Float[Array, ""]
) -> Centres:
    """All data as centres; `ratio` is the noise variance over the signal variance."""
    both = mask[:, None] & mask[None, :]
    identity = jnp.eye(points.shape[0], dtype=points.dtype)
    # an empty row becomes an independent unknown of variance 1: it touches nothing else
    _, factor = safe_cholesky(jnp.where(both, kernel.cross(points, points) + ratio * identity, identity))
    factor = jnp.where(both, factor, 0.0)
    weights = factor @ (jnp.where(mask, y, 0.0) @ factor)
    return Centres(points, weights, factor, jnp.asarray(points.shape[0]))


def low_rank(
    kernel: Kernel,
    points: Float[Array, "n d"],
    y: Float[Array, " n"],
    mask: Bool[Array, " n"],
    ratio: Float[Array, ""],
    rank: int,
    tolerance: float,
) -> Centres:
    """At most `rank` of the data as centres, fewer if what they leave to explain is `tolerance` times the noise std or less.

    The price is n * rank^2, so 20,000 points are no matter. What stands behind the centres in use is zero.
    """
    diagonal = kernel.diagonal(points)
    pivots, wide, used = pivoted_cholesky(
        lambda i: kernel.cross(points, points[i][None])[:, 0], diagonal, mask, rank, tolerance * jnp.sqrt(ratio)
    )
    real = jnp.arange(rank) < used
    # K at the centres is L L^T, and K(centres, data) = L wide: the whitened features of the data are the columns of `wide`
    lower = jnp.where(real[:, None] & real[None, :], wide[:, pivots].T, jnp.eye(rank, dtype=points.dtype))
    strength, basis = jnp.linalg.eigh(wide @ wide.T)
    # strongest first, so that the columns of centres that are not in use come last
    strength, basis = jnp.maximum(strength[::-1], 0.0), basis[:, ::-1]
    whitened_weights = basis @ ((basis.T @ (wide @ jnp.where(mask, y, 0.0))) / (strength + ratio))
    explained = basis * jnp.sqrt(strength / (strength + ratio))
    unwhiten = jnp.where(real[:, None], triangular_inverse(lower).T, 0.0)
    return Centres(points[pivots], unwhiten @ whitened_weights, unwhiten @ explained, used)


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
        z = self.inputs(jnp.concatenate([x, u]))
        used = largest_of_all(self.centres.used)
        answers = [self._query(z, output, used[output]) for output in range(x.shape[0])]
        mean, variance = (jnp.stack(parts) for parts in zip(*answers, strict=True))
        return Belief(
            mean=x + self.targets.shift + self.targets.scale * mean,
            epistemic_std=self.targets.scale * self.signal_std * jnp.sqrt(variance),
            aleatoric_std=self.targets.scale * self.noise_std,
        )

    def _query(self, z: Float[Array, " dz"], output: int, used: Int[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Mean and variance (of unit signal) of one output, in normalised units, from no more centres than are in use."""
        kernel, centres = KERNELS[self.kernel_name], jax.tree.map(lambda leaf: leaf[output], self.centres)

        def from_first(size: int, point: Float[Array, "1 dz"]):
            row = kernel.cross(point, centres.points[:size])[0]
            explained = row @ centres.factor[:size, :size]
            # rounding may leave a variance just below zero where the data pin the function down
            variance = jnp.maximum(kernel.diagonal(point)[0] - explained @ explained, 0.0)
            return row @ centres.weights[:size], variance

        most = centres.points.shape[0]
        # each size takes time to compile: none that saves little against the largest
        sizes = [size for size in SIZES if size < 0.8 * most] + [most]
        branches = [functools.partial(from_first, size) for size in sizes]
        return jax.lax.switch(jnp.searchsorted(jnp.asarray(sizes), used), branches, (z / self.lengthscales[output])[None])
