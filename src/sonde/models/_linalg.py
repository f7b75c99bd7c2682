"""The pieces of linear algebra that a Gaussian process needs, safe against near-singular matrices."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

JITTERS = (0.0, *(10.0**power for power in range(-12, -1)))  # relative to the mean of the diagonal
SMALLEST_BLOCK = 128  # below it, splitting a product costs more than it saves
SMALLEST_RESIDUAL = 1e-12  # a residual variance below it, relative to the largest, is rounding


def safe_cholesky(matrix: Float[Array, "n n"]) -> tuple[Float[Array, " n"], Float[Array, "n n"]]:
    """The diagonal of the lower Cholesky factor L, and U = L^-T, so that matrix^-1 = U U^T: all that anyone needs of it.

    A matrix that is not positive definite gets ten times more jitter until it is. Filled with NaN where even the largest
    jitter does not help: a matrix with non-finite entries, or far from positive.
    """
    scale = jnp.mean(jnp.diagonal(matrix))
    identity = jnp.eye(matrix.shape[0], dtype=matrix.dtype)

    def failed(attempt):
        number, diagonal, _ = attempt
        return ~jnp.isfinite(diagonal[-1]) & (number < len(JITTERS))

    def again(attempt):  # the first attempt too: a second copy of it outside the loop would double the time to compile
        number = attempt[0]
        jitter = jnp.asarray(JITTERS, matrix.dtype)[number]
        return number + 1, *_cholesky_by_halves(matrix + jitter * scale * identity)

    start = (jnp.zeros((), int), jnp.full(matrix.shape[0], jnp.nan, matrix.dtype), matrix)
    return jax.lax.while_loop(failed, again, start)[1:]


def _cholesky_by_halves(matrix: Float[Array, "n n"]) -> tuple[Float[Array, " n"], Float[Array, "n n"]]:
    """Nearly all of it is matrix products (in the orders that run fastest), which XLA is good at, in batches too."""
    size = matrix.shape[0]
    if size <= SMALLEST_BLOCK:
        # the matrix is symmetric already; making sure of it, as JAX does by default, takes longer than factorising
        factor = jax.lax.linalg.cholesky(matrix, symmetrize_input=False)
        return jnp.diagonal(factor), triangular_inverse(factor).T
    half = size // 2
    first_diagonal, first = _cholesky_by_halves(matrix[:half, :half])
    corner = matrix[half:, :half] @ first
    last_diagonal, last = _cholesky_by_halves(matrix[half:, half:] - corner @ corner.T)
    zeros = jnp.zeros((size - half, half), matrix.dtype)
    upper = jnp.block([[first, -(first @ corner.T) @ last], [zeros, last]])
    return jnp.concatenate([first_diagonal, last_diagonal]), upper


def triangular_inverse(lower: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Inverse of a lower triangular matrix: by halves, and row by row for the small blocks.

    (A library's triangular solve would do as well, but two batched ones that do not depend on each other can wait for each
    other forever on few cores; seen with jaxlib 0.10.)
    """
    size = lower.shape[0]
    if size > SMALLEST_BLOCK:
        half = size // 2
        first, last = triangular_inverse(lower[:half, :half]), triangular_inverse(lower[half:, half:])
        corner = -last @ (lower[half:, :half] @ first)
        return jnp.block([[first, jnp.zeros((half, size - half), lower.dtype)], [corner, last]])
    identity = jnp.eye(size, dtype=lower.dtype)

    def row(i, inverse):  # rows from i on are still zero
        return inverse.at[i].set((identity[i] - lower[i] @ inverse) / lower[i, i])

    return jax.lax.fori_loop(0, size, row, jnp.zeros_like(lower))


def _folded_square(upper: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """U U^T with what stands below the diagonal blocks folded above them: the same sum against any symmetric matrix."""
    size = upper.shape[0]
    if size <= SMALLEST_BLOCK:
        return upper @ upper.T
    half = size // 2
    corner, last = upper[:half, half:], upper[half:, half:]
    first = _folded_square(upper[:half, :half]) + corner @ corner.T
    zeros = jnp.zeros((size - half, half), upper.dtype)
    return jnp.block([[first, 2 * (corner @ last.T)], [zeros, _folded_square(last)]])


@jax.custom_vjp
def gaussian_log_density(covariance: Float[Array, "n n"], y: Float[Array, " n"]) -> Float[Array, ""]:
    """log N(y; 0, covariance), with its closed-form gradient: several times cheaper than one through the factorisation.

    The gradient is right for covariances that stay symmetric, whatever they depend on.
    """
    return _log_density_forward(covariance, y)[0]


def _log_density_forward(covariance, y):
    diagonal, upper = safe_cholesky(covariance)
    whitened = y @ upper
    value = -0.5 * (whitened @ whitened + y.shape[0] * jnp.log(2 * jnp.pi)) - jnp.sum(jnp.log(diagonal))
    return value, (upper, upper @ whitened)


def _log_density_backward(residuals, cotangent):
    upper, alpha = residuals  # U U^T = covariance^-1, and alpha = covariance^-1 y
    return cotangent * 0.5 * (jnp.outer(alpha, alpha) - _folded_square(upper)), -cotangent * alpha


gaussian_log_density.defvjp(_log_density_forward, _log_density_backward)


def pivoted_cholesky(
    column: Callable[[Int[Array, ""]], Float[Array, " n"]],
    diagonal: Float[Array, " n"],
    mask: Bool[Array, " n"],
    rank: int,
    tolerance: Float[Array, ""] | float,
) -> tuple[Int[Array, " rank"], Float[Array, "rank n"], Int[Array, ""]]:
    """Greedy low-rank factor G of a kernel matrix, K ~ G^T G, that never forms K.

    Each step takes as pivot the row whose variance the earlier pivots explain least: of all data, the most informative
    point. It ends when no row has a std above `tolerance` left to explain (relative to the largest of `diagonal`), or at
    `rank`.
    Returns the pivots, G (zero in the columns of masked rows, and in its own rows from the end on) and the number of pivots.
    Columns `pivots` of G are upper triangular, the transposed Cholesky factor of K at the pivots.
    """
    diagonal = jnp.where(mask, diagonal, 0.0)
    floor = jnp.maximum(tolerance**2, SMALLEST_RESIDUAL) * jnp.max(diagonal, initial=0.0)

    def unfinished(carry):
        count, residual, _, _ = carry
        return (count < rank) & any_of_all(jnp.max(residual) > floor)

    def add(carry):
        count, residual, pivots, factor = carry
        pivot = jnp.argmax(residual)
        real = residual[pivot] > floor  # others of the batch may still go on
        root = jnp.sqrt(jnp.where(real, residual[pivot], 1.0))
        new = (column(pivot) - factor[:, pivot] @ factor) / root
        # rows that are pivots already are explained exactly: what is left of them is rounding
        new = jnp.where((residual > 0) & real, new.at[pivot].set(root), 0.0)
        residual = jnp.maximum(residual - new * new, 0.0).at[pivot].set(jnp.where(real, 0.0, residual[pivot]))
        return count + 1, residual, pivots.at[count].set(pivot), factor.at[count].set(new)

    start = (jnp.zeros((), int), diagonal, jnp.zeros(rank, int), jnp.zeros((rank, diagonal.shape[0]), diagonal.dtype))
    _, _, pivots, factor = jax.lax.while_loop(unfinished, add, start)
    return pivots, factor, jnp.sum(jnp.any(factor != 0, axis=1))


@jax.custom_batching.custom_vmap
def any_of_all(flag: Bool[Array, ""]) -> Bool[Array, ""]:
    """The flag itself; mapped over a batch, one flag for all: a loop on it need not copy its state for those that are done."""
    return flag


@any_of_all.def_vmap
def _(axis_size: int, in_batched: list[bool], flag: Bool[Array, "n *batch"]) -> tuple[Bool[Array, "*batch"], bool]:
    del axis_size, in_batched
    return any_of_all(jnp.any(flag, axis=0)), False  # there may be batches of batches


@jax.custom_batching.custom_vmap
def largest_of_all(number: Int[Array, "*shape"]) -> Int[Array, "*shape"]:
    """The number itself; mapped over a batch, one number for all of it, so that a branch on it stays a branch."""
    return number


@largest_of_all.def_vmap
def _(axis_size: int, in_batched: list[bool], number: Int[Array, "n *batch"]) -> tuple[Int[Array, "*batch"], bool]:
    del axis_size, in_batched
    return largest_of_all(jnp.max(number, axis=0)), False
