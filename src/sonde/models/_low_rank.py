"""The choice of inducing points for the low-rank posterior, and how far that posterior can be from the exact one.

In units of the signal std, the function is f(z) = g(z).w + h(z). The first part, with w ~ N(0, I), is what the inducing points
explain, and h is the rest, whose covariance at the data is E. The low-rank posterior takes h at the data for zero. With noise
variance s^2 and the misfit a = (y - mean) / s^2 at the data,

    |mean - exact mean|    <= sqrt(a^T E a) exact std             everywhere, for any targets
    |variance / exact - 1| <= about sqrt(d), d = |E| / s^2        everywhere

First line: the difference of the means is the exact posterior's covariance of a.h and f(z), so Cauchy-Schwarz bounds it. Second
line: the exact variances of g(z).w and of h(z) differ from those taken here by factors between 1 / (1 + d) and 1 + d, and their
covariance is at most sqrt(d) times the root of their product. The trace of E, which pivoted Cholesky knows, bounds its norm.

So inducing points are added until trace(E) <= tolerance^2 s^2 and then, if need be, until sqrt(a^T E a) <= tolerance. The
latter takes more points only if the targets contradict the prior, being further from the mean than the noise allows, as with
length-scales that are far too long. Rounding errors come on top, about 1e-15 of the prior variance at a query.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from sonde.models._kernels import Kernel
from sonde.models._linalg import PivotedCholesky, any_of_all, plus_diagonal, safe_lower_cholesky

BLOCK = 1024
"""Number of data points whose a^T E a is computed exactly; the root of the sum is at most the sum of the roots of blocks."""

ROUNDING_FACTOR = 10.0
"""Where rounding errors end the choice, bounds of this many times the tolerance are accepted: the errors themselves are far
smaller, and no number of points would bring the bounds down."""


class Chosen(NamedTuple):
    """Inducing points, and the information of all data in terms of their whitened features g."""

    pivots: Int[Array, " rank"]
    """Data points that are inducing points; those beyond `used` have no meaning."""
    used: Int[Array, ""]
    """Number of inducing points."""
    corner: Float[Array, "rank rank"]
    """Features of the inducing points, one per column: the transposed Cholesky factor of their kernel matrix."""
    precision: Float[Array, "rank rank"]
    """Lower Cholesky factor of the posterior precision of w, I + (sum of g g^T over the data) / s^2. Its leading blocks are the
    factors for fewer inducing points."""
    weights: Float[Array, " rank"]
    """Posterior mean of w."""
    kept: Bool[Array, ""]
    """Whether both bounds are within the tolerance, as far as double precision allows."""


class _Round(NamedTuple):
    """The state of the choice: what the data say with the inducing points so far."""

    pivoted: PivotedCholesky
    target: Float[Array, ""]
    """The trace of E at which the next round stops."""
    mean_error: Float[Array, ""]
    """Bound on the error of the mean, in stds."""
    precision: Float[Array, "rank rank"]
    weights: Float[Array, " rank"]


def choose(
    kernel: Kernel,
    points: Float[Array, "n d"],
    y: Float[Array, " n"],
    mask: Bool[Array, " n"],
    ratio: Float[Array, ""],
    rank: int,
    tolerance: float,
) -> Chosen:
    """Choose inducing points among the data, the most informative first, until the bounds above are met.

    Args:
        kernel: Covariance function.
        points: Inputs, divided by the length-scales.
        y: Targets, in units of the signal std.
        mask: True for the rows that are used.
        ratio: Noise variance over signal variance.
        rank: Largest number of inducing points.
        tolerance: Largest error of the mean, in stds; the relative error of the std is at most about half of it.
    """
    y = jnp.where(mask, y, 0.0)
    goal = tolerance**2 * ratio

    def unfinished(state: _Round) -> Array:
        return any_of_all((state.mean_error > tolerance) & state.pivoted.can_grow)

    def improve(state: _Round) -> _Round:
        pivoted = state.pivoted.extended(lambda i: kernel.cross(points, points[i][None])[:, 0], state.target)
        wide = pivoted.factor
        # no eigenvalue is below 1; the rows of `wide` shrink from the first to the last, and in this order rounding errors do
        # not spread from large entries to small ones
        precision = safe_lower_cholesky(plus_diagonal((wide @ wide.T) / ratio, 1.0))
        # one output after the other on CPUs (`over_outputs`), where batched triangular solves may wait for each other forever
        weights = jax.scipy.linalg.cho_solve((precision, True), wide @ (y / ratio))
        error = _mean_error(kernel, points, pivoted, (y - weights @ wide) / ratio)
        # the squared error shrinks about as the trace does
        smaller = pivoted.left * jnp.minimum(0.5 * (tolerance / error) ** 2, 0.5)
        target = jnp.where(error > tolerance, smaller, state.target)
        return _Round(pivoted, target, error, precision, weights)

    empty = jnp.zeros(rank, points.dtype)
    start = PivotedCholesky.start(kernel.diagonal(points), mask, rank)
    first = _Round(start, goal, jnp.asarray(jnp.inf, points.dtype), jnp.eye(rank, dtype=points.dtype), empty)
    pivoted, _, error, precision, weights = jax.lax.while_loop(unfinished, improve, first)
    nothing = ~jnp.any(mask)  # no data, and so nothing to be wrong about
    within = lambda factor: (pivoted.left <= factor**2 * goal) & (error <= factor * tolerance)
    by_rounding = ~pivoted.can_grow & (pivoted.used < rank)
    kept = nothing | within(1.0) | (by_rounding & within(ROUNDING_FACTOR))
    return Chosen(pivoted.pivots, pivoted.used, pivoted.factor[:, pivoted.pivots], precision, weights, kept)


def _mean_error(
    kernel: Kernel, points: Float[Array, "n d"], pivoted: PivotedCholesky, misfit: Float[Array, " n"]
) -> Float[Array, ""]:
    """Bound sqrt(a^T E a) on the error of the mean, in stds; with more than `BLOCK` points, a bound on that root."""
    rows = points.shape[0]
    blocks = -(-rows // BLOCK)
    size = -(-rows // blocks)
    stds = jnp.sqrt(jnp.where(pivoted.residual > pivoted.rounding, pivoted.residual, 0.0))

    def of_block(first: Array) -> Array:
        start = jnp.minimum(first, rows - size)  # the last block starts earlier, with rows that others have counted
        part = lambda array, axis=0: jax.lax.dynamic_slice_in_dim(array, start, size, axis)
        here = jnp.where(start + jnp.arange(size) >= first, part(misfit), 0.0)
        whole = here @ kernel.cross(part(points), part(points)) @ here
        squared = whole - jnp.sum((part(pivoted.factor, 1) @ here) ** 2)
        # where nothing is left, the difference is rounding error, and the sum of stds is exactly zero
        return jnp.minimum(jnp.sqrt(jnp.maximum(squared, 0.0)), jnp.abs(here) @ part(stds))

    return jnp.sum(jax.lax.map(of_block, size * jnp.arange(blocks)))
