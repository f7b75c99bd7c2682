"""Linear algebra of Gaussian processes, robust to near-singular matrices."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

JITTERS = (0.0, *(10.0**power for power in range(-12, -1)))  # relative to the mean of the diagonal
SMALLEST_BLOCK = 100  # below it, splitting costs more than it saves; from 128 on, LAPACK's threads wait for each other
SMALLEST_RESIDUAL = 1e-12  # a row with less of its variance left is no pivot: dividing by it would amplify rounding errors
ROUNDING = 1e-14  # less than this share of a row's variance cannot be told from none


def safe_cholesky(matrix: Float[Array, "n n"]) -> tuple[Float[Array, " n"], Float[Array, "n n"]]:
    """Factorise a symmetric matrix, with jitter if it is not positive definite.

    The jitter grows by factors of ten until the factorisation succeeds.

    Args:
        matrix: Symmetric matrix.

    Returns:
        The diagonal of the lower Cholesky factor L, and U = L^-T, so that matrix^-1 = U U^T. Both are NaN where even the
        largest jitter does not help: the matrix has non-finite entries, or is far from positive definite.
    """
    start = (jnp.full(matrix.shape[0], jnp.nan, matrix.dtype), matrix)
    return _with_jitter(_cholesky_by_halves, matrix, start)


def safe_lower_cholesky(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Lower Cholesky factor L of a symmetric matrix, with the same jitter; NaN where even the largest does not help.

    Compiles several times faster than `safe_cholesky`, and is slower on large matrices.

    Args:
        matrix: Symmetric matrix.
    """
    factorise = lambda matrix: (jax.lax.linalg.cholesky(matrix, symmetrize_input=False),)
    return _with_jitter(factorise, matrix, (jnp.full_like(matrix, jnp.nan),))[0]


def _with_jitter(factorise: Callable[[Array], tuple[Array, ...]], matrix: Float[Array, "n n"], start: tuple) -> tuple:
    """Factorise with the smallest jitter for which the first result is finite; `start` has the shapes of the results."""
    scale = jnp.mean(jnp.diagonal(matrix))

    def failed(attempt):
        number, result = attempt
        return ~jnp.isfinite(jnp.ravel(result[0])[-1]) & (number < len(JITTERS))

    def again(attempt):  # the first attempt is inside the loop too: a second copy outside would double the compile time
        number = attempt[0]
        jitter = jnp.asarray(JITTERS, matrix.dtype)[number]
        return number + 1, factorise(plus_diagonal(matrix, jitter * scale))

    return jax.lax.while_loop(failed, again, (jnp.zeros((), int), start))[1]


def plus_diagonal(matrix: Float[Array, "*batch n n"], values: Float[Array, "*values"] | float) -> Float[Array, "*batch n n"]:
    """Add to the diagonal of a matrix.

    An identity matrix would do too, and be kept in the compiled program, as large as the matrix.

    Args:
        matrix: The matrix.
        values: One value, or one per row.
    """
    places = jnp.arange(matrix.shape[-1])
    return matrix.at[..., places, places].add(values)


def _cholesky_by_halves(matrix: Float[Array, "n n"]) -> tuple[Float[Array, " n"], Float[Array, "n n"]]:
    """Recursive block factorisation: nearly all work is in matrix products, which XLA runs fast, also in batches."""
    size = matrix.shape[0]
    if size <= SMALLEST_BLOCK:
        # the matrix is symmetric already; symmetrising it, as JAX does by default, takes longer than factorising
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
    """Invert a lower triangular matrix: recursively by halves, and row by row for small blocks.

    JAX's triangular solve is not used: two batched ones that are independent of each other can deadlock on few cores (seen with
    jaxlib 0.10).

    Args:
        lower: Lower triangular matrix.
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
    """U U^T with its lower blocks added to the upper ones: the same inner product with any symmetric matrix."""
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
    """Log density log N(y; 0, covariance), with its closed-form gradient.

    That is several times cheaper than a gradient through the factorisation. It is valid for covariances that stay symmetric.

    Args:
        covariance: Covariance matrix.
        y: Observations.
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


class PivotedCholesky(NamedTuple):
    """Greedy low-rank factor G of a kernel matrix, K ~ G^T G, as far as it is computed."""

    pivots: Int[Array, " rank"]
    """Rows that were taken as pivots, in this order. Columns `pivots` of G are upper triangular: the transposed Cholesky factor
    of K at the pivots."""
    factor: Float[Array, "rank n"]
    """The factor G; zero in the columns of unused rows and in its own rows beyond the last pivot."""
    used: Int[Array, ""]
    """Number of pivots."""
    residual: Float[Array, " n"]
    """Diagonal of K - G^T G, the variances that are left; zero for pivots and unused rows."""
    rounding: Float[Array, " n"]
    """Variances up to which the residual of a row is rounding error."""

    @classmethod
    def start(cls, diagonal: Float[Array, " n"], mask: Bool[Array, " n"], rank: int) -> "PivotedCholesky":
        """The factor without any pivot.

        Args:
            diagonal: Diagonal of K.
            mask: True for the rows that are used.
            rank: Largest number of pivots.
        """
        diagonal = jnp.where(mask, diagonal, 0.0)
        factor = jnp.zeros((rank, diagonal.shape[0]), diagonal.dtype)
        return cls(jnp.zeros(rank, int), factor, jnp.zeros((), int), diagonal, ROUNDING * diagonal)

    @property
    def left(self) -> Float[Array, ""]:
        """Sum of the variances that are left: the trace of K - G^T G, which no eigenvalue of it exceeds."""
        return jnp.sum(self.residual, where=self.residual > self.rounding)

    @property
    def can_grow(self) -> Bool[Array, ""]:
        """Whether there is room for another pivot, and a row with enough variance left to be one."""
        return (self.used < self.factor.shape[0]) & jnp.any(self._candidates > 0)

    @property
    def _candidates(self) -> Float[Array, " n"]:
        """The residual where it is large enough to divide by."""
        return jnp.where(self.residual > SMALLEST_RESIDUAL / ROUNDING * self.rounding, self.residual, 0.0)

    def extended(
        self, column: Callable[[Int[Array, ""]], Float[Array, " n"]], target: Float[Array, ""] | float
    ) -> "PivotedCholesky":
        """Add pivots until the sum of the variances that are left is at most `target`, or no more can be added.

        Each step takes as pivot the row with the largest variance given the earlier pivots, which is the most informative
        point. K is not formed.

        Args:
            column: Returns a column of K.
            target: Largest sum of variances.
        """
        unfinished = lambda state: (state.left > target) & state.can_grow

        def add(state: PivotedCholesky) -> PivotedCholesky:
            residual, factor = state.residual, state.factor
            pivot = jnp.argmax(state._candidates)
            real = unfinished(state)  # others of the batch may not have finished
            root = jnp.sqrt(jnp.where(real, residual[pivot], 1.0))
            new = (column(pivot) - factor[:, pivot] @ factor) / root
            # earlier pivots are explained exactly: their residual is rounding error
            new = jnp.where((residual > 0) & real, new.at[pivot].set(root), 0.0)
            residual = jnp.maximum(residual - new * new, 0.0).at[pivot].set(jnp.where(real, 0.0, residual[pivot]))
            pivots = state.pivots.at[state.used].set(jnp.where(real, pivot, 0))
            # in a batch, `used` may be beyond the last row here; JAX then leaves the array as it is
            return PivotedCholesky(pivots, factor.at[state.used].set(new), state.used + real, residual, state.rounding)

        return jax.lax.while_loop(lambda state: any_of_all(unfinished(state)), add, self)


@jax.custom_batching.custom_vmap
def any_of_all(flag: Bool[Array, ""]) -> Bool[Array, ""]:
    """Return the flag; under `vmap`, whether any flag of the batch is set.

    A loop on it then has one condition for the whole batch, and need not copy the state of elements that have finished.

    Args:
        flag: The flag.
    """
    return flag


@any_of_all.def_vmap
def _(axis_size: int, in_batched: list[bool], flag: Bool[Array, "n *batch"]) -> tuple[Bool[Array, "*batch"], bool]:
    del axis_size, in_batched
    return any_of_all(jnp.any(flag, axis=0)), False  # `vmap` may be nested


@jax.custom_batching.custom_vmap
def largest_of_all(number: Int[Array, "*shape"]) -> Int[Array, "*shape"]:
    """Return the number; under `vmap`, the largest of the batch, so that a branch on it stays a branch.

    Args:
        number: The number, or an array of independent ones.
    """
    return number


@largest_of_all.def_vmap
def _(axis_size: int, in_batched: list[bool], number: Int[Array, "n *batch"]) -> tuple[Int[Array, "*batch"], bool]:
    del axis_size, in_batched
    return largest_of_all(jnp.max(number, axis=0)), False
