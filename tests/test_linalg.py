"""Factorisations against numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from sonde.models._linalg import PivotedCholesky, gaussian_log_density, safe_cholesky, safe_lower_cholesky, triangular_inverse


@pytest.mark.slow
@pytest.mark.parametrize("size", [30, 141])
def test_safe_cholesky_factorises_singular_matrices(x64, size):
    """L L^T is the matrix up to a little jitter on the diagonal; the larger size is factorised in blocks."""
    rng = np.random.default_rng(0)
    factorise = jax.jit(safe_cholesky)
    tall = rng.normal(size=(size, 4))
    low = tall @ tall.T
    for matrix in (np.ones((size, size)), low, low - 1e-9 * np.eye(size), 1e-12 * low, 1e12 * low):
        diagonal, upper = (np.asarray(a) for a in factorise(jnp.asarray(matrix)))
        assert np.isfinite(diagonal).all() and np.isfinite(upper).all() and np.all(np.tril(upper, -1) == 0)
        lower = np.linalg.inv(upper).T
        np.testing.assert_allclose(np.diag(lower), diagonal, rtol=1e-6)
        assert np.abs(lower @ lower.T - matrix).max() <= 1e-6 * np.abs(matrix).max()
    well = low + np.eye(size)
    diagonal, upper = factorise(jnp.asarray(well))
    np.testing.assert_allclose(diagonal, np.diag(np.linalg.cholesky(well)), rtol=1e-9)
    np.testing.assert_allclose(upper @ upper.T, np.linalg.inv(well), atol=1e-9)
    assert np.isnan(factorise(jnp.full((size, size), jnp.nan))[0]).any(), "a matrix that cannot be factorised must give NaN"


def test_safe_lower_cholesky_agrees_with_numpy_and_factorises_singular_matrices(x64):
    rng, factorise = np.random.default_rng(0), jax.jit(safe_lower_cholesky)
    tall = rng.normal(size=(30, 4)) * 10.0 ** np.arange(3, -1, -1)
    well = tall @ tall.T + np.eye(30)
    np.testing.assert_allclose(factorise(jnp.asarray(well)), np.linalg.cholesky(well), rtol=1e-6, atol=1e-8)
    singular = tall @ tall.T - 1e-6 * np.eye(30)
    lower = np.asarray(factorise(jnp.asarray(singular)))
    assert np.all(np.triu(lower, 1) == 0) and np.abs(lower @ lower.T - singular).max() <= 1e-6 * np.abs(singular).max()
    assert np.isnan(factorise(jnp.full((30, 30), jnp.nan))).any(), "a matrix that cannot be factorised must give NaN"


def test_triangular_inverse_agrees_with_numpy(x64):
    lower = np.linalg.cholesky(np.cov(np.random.default_rng(0).normal(size=(50, 200))))
    np.testing.assert_allclose(jax.jit(triangular_inverse)(jnp.asarray(lower)), np.linalg.inv(lower), rtol=1e-9, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("size", [40, 141])
def test_gaussian_log_density_and_its_gradients_agree_with_scipy(x64, size):
    rng = np.random.default_rng(1)
    tall, y, change = rng.normal(size=(size, 2 * size)), rng.normal(size=size), rng.normal(size=(size, size))
    covariance, change = tall @ tall.T / size, change + change.T
    value, (by_covariance, by_y) = jax.jit(jax.value_and_grad(gaussian_log_density, argnums=(0, 1)))(
        jnp.asarray(covariance), jnp.asarray(y)
    )
    np.testing.assert_allclose(value, multivariate_normal.logpdf(y, np.zeros(size), covariance), rtol=1e-10)
    alpha, inverse = np.linalg.solve(covariance, y), np.linalg.inv(covariance)
    np.testing.assert_allclose(by_y, -alpha, rtol=1e-8, atol=1e-10)
    # along a symmetric change of the covariance
    wanted = 0.5 * (alpha @ change @ alpha - np.trace(inverse @ change))
    np.testing.assert_allclose(np.sum(np.asarray(by_covariance) * change), wanted, rtol=1e-8)


def pivoted(matrix: np.ndarray, mask: np.ndarray, rank: int, *targets: float):
    """Pivots, factor [n, rank] and the number of pivots, after one extension for each target."""
    matrix = jnp.asarray(matrix)

    @jax.jit
    def run(mask):
        found = PivotedCholesky.start(jnp.diagonal(matrix), mask, rank)
        for target in targets:
            found = found.extended(lambda i: matrix[:, i], target)
        return found

    found = run(jnp.asarray(mask))
    return np.asarray(found.pivots), np.asarray(found.factor).T, int(found.used)


def test_pivoted_cholesky_of_full_rank_reproduces_the_matrix(x64):
    rng = np.random.default_rng(0)
    square = rng.normal(size=(25, 25))
    matrix = square @ square.T
    pivots, factor, count = pivoted(matrix, np.ones(25, bool), 25, 0.0)
    np.testing.assert_allclose(factor @ factor.T, matrix, rtol=1e-9, atol=1e-9)
    assert sorted(pivots) == list(range(25)) and count == 25
    assert pivots[0] == np.argmax(np.diag(matrix))
    np.testing.assert_allclose(factor[pivots], np.linalg.cholesky(matrix[np.ix_(pivots, pivots)]), rtol=1e-6, atol=1e-9)


def test_pivoted_cholesky_stops_when_the_residual_is_zero(x64):
    rng = np.random.default_rng(1)
    tall = rng.normal(size=(25, 3))
    mask = np.arange(25) < 20
    pivots, factor, count = pivoted(tall @ tall.T, mask, 8, 0.0)
    assert count == 3 and np.all(pivots[:3] < 20)
    assert np.all(factor[:, 3:] == 0) and np.all(factor[20:] == 0)
    np.testing.assert_allclose(factor[:20] @ factor[:20].T, (tall @ tall.T)[:20, :20], atol=1e-12)
    pivots, factor, count = pivoted(tall @ tall.T, np.zeros(25, bool), 8, 0.0)
    assert count == 0 and np.all(factor == 0)


@pytest.mark.slow
@pytest.mark.parametrize("targets", [(1.0,), (0.01,), (1.0, 0.3, 0.01)])
def test_pivoted_cholesky_is_greedy_and_stops_at_the_target(x64, targets):
    """Each pivot has the largest residual variance; the residual at the end is positive semi-definite and small."""
    z = np.random.default_rng(2).normal(size=(40, 2))
    matrix = np.exp(-0.5 * np.sum((z[:, None] - z[None]) ** 2, axis=-1))
    pivots, factor, count = pivoted(matrix, np.ones(40, bool), 35, *targets)
    assert 2 < count < 35
    for i in range(count):
        left = np.diag(matrix - factor[:, :i] @ factor[:, :i].T)
        assert np.isclose(left[pivots[i]], left.max()) and left.sum() > targets[-1]
    assert np.linalg.eigvalsh(matrix - factor @ factor.T).min() > -1e-12
    assert np.trace(matrix - factor @ factor.T) <= targets[-1] + 1e-12


@pytest.mark.slow
def test_pivoted_cholesky_of_a_batch_is_that_of_each_matrix(x64):
    """One is finished long before the other, and both are continued."""
    z = np.random.default_rng(2).normal(size=(40, 2))
    squared = np.sum((z[:, None] - z[None]) ** 2, axis=-1)
    matrices = jnp.asarray([np.exp(-0.005 * squared), np.exp(-0.5 * squared)])

    def run(matrix):
        start = PivotedCholesky.start(jnp.diagonal(matrix), jnp.ones(40, bool), 20)
        return start.extended(lambda i: matrix[:, i], 0.1).extended(lambda i: matrix[:, i], 1e-3)

    together = jax.jit(jax.vmap(run))(matrices)
    for i, matrix in enumerate(matrices):
        alone = jax.jit(run)(matrix)
        np.testing.assert_array_equal(together.pivots[i], alone.pivots)
        np.testing.assert_allclose(together.factor[i], alone.factor, atol=1e-9)
    assert together.used[0] < 10 and together.used[1] == 20


def test_rows_far_away_do_not_hide_what_is_left_of_others(x64):
    """The residual of each row counts by itself, and its rounding error relative to its own variance."""
    z = np.concatenate([np.random.default_rng(3).normal(size=(20, 3)), [[1e6, 0.0, 0.0]]])
    pivots, factor, count = pivoted(1 + z @ z.T, np.ones(21, bool), 8, 1e-8)
    assert pivots[0] == 20 and count == 4
    np.testing.assert_allclose((factor @ factor.T)[:20, :20], (1 + z @ z.T)[:20, :20], atol=1e-8)
