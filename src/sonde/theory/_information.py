"""Information that measurements give about Gaussian processes: the gain itself, its maximum, and Lemma 1's bound on it.

All of it depends on where measurements are made and not on their outcome. For n points with kernel matrix K and noise std
sigma, the information gain of one output is

    I = 1/2 log det(I + K / sigma^2)    [nats]

and gamma_n is the largest I of any n points. `Prior.of(posterior)` has the kernel and the noise of each output.
"""

import functools
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sonde._internal.errors import SondeError, whole
from sonde._internal.precision import double_precision
from sonde.models._prior import Prior, information_and_variances, information_gain

GREEDY_FACTOR = 1 - np.exp(-1)
"""Smallest fraction of the maximum information gain that greedily chosen points have (Nemhauser, Wolsey and Fisher 1978)."""


_information_gain = eqx.filter_jit(information_gain)


@eqx.filter_jit
def _marginal_variances(prior: Prior, points: Array, given: Array) -> Array:
    if given.shape[0] == 0:
        return prior.variance(points)
    return information_and_variances(prior, points, given, jnp.ones(given.shape[0], bool))[1]


@double_precision
def exact_information_gain(prior: Prior, points: np.ndarray, given: np.ndarray | None = None) -> np.ndarray:
    """Information gain of measurements, exactly.

    The sum over outputs is the mutual information I(f; y | data) of the paper.

    Args:
        prior: Prior of one seed.
        points: Points (x, u) of the measurements [n, dz].
        given: Points (x, u) of earlier measurements [m, dz], if any.

    Returns:
        The gain per output [dx], in nats.
    """
    points, before = _rows("points", points, prior), _rows("given", given, prior)
    both = np.concatenate([before, points])
    rows = jnp.arange(len(both)) < len(before)
    gain = _information_gain(prior, jnp.asarray(both), jnp.ones_like(rows))
    return np.asarray(gain - _information_gain(prior, jnp.asarray(both), rows) if len(before) else gain)


@double_precision
def information_bound(prior: Prior, points: np.ndarray, given: np.ndarray | None = None) -> np.ndarray:
    """Lemma 1's upper bound on `exact_information_gain`: the sum of the gains of each point alone.

    It is equal to the gain for a single point and for uncorrelated points. OpAx maximises it, and the metric
    `realised_information_gain` is its value at the points that a round visited.

    Args:
        prior: Prior of one seed.
        points: Points (x, u) of the measurements [n, dz].
        given: Points (x, u) of earlier measurements [m, dz], if any.

    Returns:
        The bound per output [dx], in nats.
    """
    points, before = _rows("points", points, prior), _rows("given", given, prior)
    variances = _marginal_variances(prior, jnp.asarray(points), jnp.asarray(before))
    return np.asarray(0.5 * jnp.sum(jnp.log1p(variances), axis=-1))


@functools.partial(jax.jit, static_argnames=("count", "repeats", "worth"))
def _greedy(
    prior: Prior, candidates: Array, count: int, repeats: int, worth: Callable[[Array, Prior], Array]
) -> Float[Array, "count dx"]:
    """Measure `repeats` times at the candidate of largest `worth`, `count` times; return the variances before each.

    `factor` [dx, count, n] holds the rows of the Cholesky factor: a step costs one product with them and no factorisation.
    """

    def step(i, carry):
        variances, factor, seen = carry
        pivot = jnp.argmax(worth(variances, prior))
        here = variances[:, pivot]
        column = prior.covariance(candidates[pivot][None], candidates)[:, 0]
        column -= jnp.einsum("jk,jkn->jn", factor[:, :, pivot], factor)
        row = column * jnp.sqrt(repeats / (1 + repeats * here))[:, None]
        variances = jnp.maximum(variances - row * row, 0.0)  # rounding may make a variance slightly negative
        return variances, factor.at[:, i].set(row), seen.at[i].set(here)

    start = prior.variance(candidates)
    outputs, number = start.shape
    carry = (start, jnp.zeros((outputs, count, number)), jnp.zeros((count, outputs)))
    return jax.lax.fori_loop(0, count, step, carry)[2]


def _information(variances: Float[Array, "dx n"], prior: Prior) -> Float[Array, " n"]:
    del prior
    return jnp.sum(jnp.log1p(variances), axis=0)


def _squared_std(variances: Float[Array, "dx n"], prior: Prior) -> Float[Array, " n"]:
    return prior.noise_std**2 @ variances


@double_precision
def greedy_information(prior: Prior, candidates: np.ndarray, count: int) -> np.ndarray:
    """Estimate the maximum information gains gamma_1 ... gamma_count by greedily chosen points.

    Each step takes the most informative candidate; candidates may be taken repeatedly. The result is at least `GREEDY_FACTOR`
    times the maximum over the candidates. If the candidates are a sample of a larger set, nothing is guaranteed for that set.

    Args:
        prior: Prior of one seed.
        candidates: Points (x, u) [n, dz].
        count: Largest number of measurements.

    Returns:
        The gain of the first 1 ... count points, per output [count, dx], in nats.
    """
    whole("greedy information", count=count)
    points = jnp.asarray(_rows("candidates", candidates, prior))
    gains = np.zeros((count, prior.noise_std.shape[0]))
    for outputs in _same_kernels(prior):  # outputs with the same kernel have the same result
        variances = _greedy(prior.for_output(outputs[0]), points, count, 1, _information)
        gains[:, outputs] = 0.5 * np.cumsum(np.log1p(np.asarray(variances)), axis=0)
    return gains


@double_precision
def model_complexity(prior: Prior, rounds: Sequence[np.ndarray]) -> float:
    """Sum of |sigma_{n-1}(z)|^2 over rounds n and their points z, in squared state units.

    The paper's MC_N is the largest such sum of any N rounds; this is the sum of the given ones.

    Args:
        prior: Prior of one seed.
        rounds: Points (x, u) of each round [T, dz].
    """
    if not len(rounds):
        raise SondeError("model complexity: expected the points of at least one round, got none")
    squared, seen = 0.0, None
    for points in rounds:
        before = _rows("points", seen, prior)
        variances = _marginal_variances(prior, jnp.asarray(_rows("points", points, prior)), jnp.asarray(before))
        squared += float(jnp.sum(prior.noise_std**2 @ variances))
        seen = np.concatenate([before, points])
    return squared


@double_precision
def greedy_model_complexity(prior: Prior, candidates: np.ndarray, rounds: int, horizon: int) -> np.ndarray:
    """Estimate the paper's MC_1 ... MC_N from below: the largest sum of squared stds of N rounds.

    Nothing is learned within a round, so the sum of one round is largest for `horizon` measurements at the most uncertain
    candidate. Rounds are chosen greedily; the maximum over all N rounds together may be larger.

    Args:
        prior: Prior of one seed.
        candidates: Points (x, u) [n, dz].
        rounds: Number of rounds N.
        horizon: Steps of each round.

    Returns:
        The sums after 1 ... N rounds [N], in squared state units.
    """
    whole("model complexity", rounds=rounds, horizon=horizon)
    points = jnp.asarray(_rows("candidates", candidates, prior))
    variances = _greedy(prior, points, rounds, horizon, _squared_std)
    return horizon * np.cumsum(np.asarray(variances) @ np.asarray(prior.noise_std) ** 2)


def _same_kernels(prior: Prior) -> list[list[int]]:
    """Groups of outputs with the same length-scales, signal-to-noise ratio and affine part."""
    groups: dict[bytes, list[int]] = {}
    values = [prior.lengthscales, (prior.signal_std / prior.noise_std)[:, None]]
    values += [] if prior.affine is None else [prior.affine[:, None]]
    for output, row in enumerate(np.concatenate(values, axis=1)):
        groups.setdefault(np.log(row).round(9).tobytes(), []).append(output)
    return list(groups.values())


def _rows(name: str, points: np.ndarray | None, prior: Prior) -> np.ndarray:
    """Validate points (x, u) [n, dz]; None: no points."""
    width = prior.lengthscales.shape[-1]
    if points is None:
        return np.zeros((0, width))
    if prior.lengthscales.ndim != 2:
        raise SondeError("expected the prior of one seed, got that of several; take one: Prior.of(one_seed(posterior))")
    points = np.asarray(points, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] != width or not np.isfinite(points).all():
        raise SondeError(f"{name} must be finite rows (x, u) of shape [n, {width}], got shape {list(points.shape)}")
    return points
