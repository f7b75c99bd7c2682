"""The three pieces of linear algebra that a Gaussian process needs, safe against near-singular matrices."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Bool, Float, Int

FIRST_JITTER = 1e-12  # relative to the mean of the diagonal
LAST_JITTER = 1e-2
RANK_TOLERANCE = 1e-11  # a residual variance below it, relative to the largest, is rounding


def safe_cholesky(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Lower Cholesky factor; a matrix that is not positive definite gets ten times more jitter until it is.

    Filled with NaN where even `LAST_JITTER` does not help, which only a matrix with non-finite entries brings about.
    """
    scale = jnp.mean(jnp.diagonal(matrix))
    identity = jnp.eye(matrix.shape[0], dtype=matrix.dtype)

    def failed(attempt):
        jitter, factor = attempt
        return ~jnp.isfinite(factor[-1, -1]) & (jitter < LAST_JITTER)

    def again(attempt):
        jitter, _ = attempt
        return 10 * jitter, jnp.linalg.cholesky(matrix + 10 * jitter * scale * identity)

    start = jnp.asarray(FIRST_JITTER, matrix.dtype)
    return jax.lax.while_loop(failed, again, (start, jnp.linalg.cholesky(matrix)))[1]


@jax.custom_vjp
def gaussian_log_density(covariance: Float[Array, "n n"], y: Float[Array, " n"]) -> Float[Array, ""]:
    """log N(y; 0, covariance), with its closed-form gradient.

    Differentiating through the factorisation would cost five times the flops of what is written here.
    """
    return _log_density_forward(covariance, y)[0]


def _log_density_forward(covariance, y):
    factor = safe_cholesky(covariance)
    alpha = cho_solve((factor, True), y)
    log_det = 2 * jnp.sum(jnp.log(jnp.diagonal(factor)))
    value = -0.5 * (y @ alpha + log_det + y.shape[0] * jnp.log(2 * jnp.pi))
    return value, (factor, alpha)


def _log_density_backward(residuals, cotangent):
    factor, alpha = residuals
    inverse = cho_solve((factor, True), jnp.eye(factor.shape[0], dtype=factor.dtype))
    return cotangent * 0.5 * (jnp.outer(alpha, alpha) - inverse), -cotangent * alpha


gaussian_log_density.defvjp(_log_density_forward, _log_density_backward)


def pivoted_cholesky(
    column: Callable[[Int[Array, ""]], Float[Array, " n"]],
    diagonal: Float[Array, " n"],
    mask: Bool[Array, " n"],
    rank: int,
) -> tuple[Int[Array, " rank"], Float[Array, "n rank"], Bool[Array, " rank"]]:
    """Greedy low-rank factor G of a kernel matrix, K ~ G G^T, that never forms K.

    Each step takes as pivot the row whose variance the earlier pivots explain least: of all data, the most informative
    point. Returns the pivots, G (zero where a row is masked) and which pivots are real: once nothing is left to explain,
    the remaining ones are not, and their columns of G are zero. Rows `pivots` of G are lower triangular, the Cholesky
    factor of K at the pivots.
    """
    size = diagonal.shape[0]
    diagonal = jnp.where(mask, diagonal, 0.0)
    floor = RANK_TOLERANCE * jnp.max(diagonal, initial=0.0)

    def body(i, carry):
        residual, pivots, factor, real = carry
        pivot = jnp.argmax(residual)
        top = residual[pivot]
        is_real = top > floor
        new = (column(pivot) - factor @ factor[pivot]) / jnp.sqrt(jnp.where(is_real, top, 1.0))
        # rows that are pivots already are explained exactly: what is left of them is rounding
        new = jnp.where(mask & is_real & (residual > 0), new, 0.0)
        new = new.at[pivot].set(jnp.where(is_real, jnp.sqrt(top), 0.0))
        residual = jnp.maximum(residual - new * new, 0.0).at[pivot].set(0.0)
        return residual, pivots.at[i].set(pivot), factor.at[:, i].set(new), real.at[i].set(is_real)

    start = (diagonal, jnp.zeros(rank, int), jnp.zeros((size, rank), diagonal.dtype), jnp.zeros(rank, bool))
    _, pivots, factor, real = jax.lax.fori_loop(0, rank, body, start)
    return pivots, factor, real
