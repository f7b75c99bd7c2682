"""What measurements tell about a system that is a Gaussian process: exactly, at most, and as bounded by Lemma 1 of the paper.

Everything here depends on where is measured and never on what comes out. With n points, kernel matrix K and noise std sigma,
the information gain of one output is

    I = 1/2 log det(I + K / sigma^2)    [nats]

and gamma_n is the largest I of any n points. A `Prior` is what that takes: the kernel over the noise, for each output.
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
from sonde.models._prior import Prior, information_of, told_and_left

GREEDY_SHARE = 1 - np.exp(-1)
"""Of the largest information gain, what a greedy choice has at least (Nemhauser, Wolsey and Fisher 1978)."""


_information_of = eqx.filter_jit(information_of)


@eqx.filter_jit
def _marginal_variances(prior: Prior, points: Array, given: Array) -> Array:
    if given.shape[0] == 0:
        return prior.variance(points)
    return told_and_left(prior, points, given, jnp.ones(given.shape[0], bool))[1]


@double_precision
def exact_information_gain(prior: Prior, points: np.ndarray, given: np.ndarray | None = None) -> np.ndarray:
    """What measuring at points [n, dz] tells, per output [dx], in nats; after measurements at `given` [m, dz], if any.

    The sum over outputs is the mutual information I(f; y | data) of the paper, exactly; a trajectory's points are its (x, u).
    """
    points, before = _rows("points", points, prior), _rows("given", given, prior)
    both = np.concatenate([before, points])
    rows = jnp.arange(len(both)) < len(before)
    told = _information_of(prior, jnp.asarray(both), jnp.ones_like(rows))
    return np.asarray(told - _information_of(prior, jnp.asarray(both), rows) if len(before) else told)


@double_precision
def information_bound(prior: Prior, points: np.ndarray, given: np.ndarray | None = None) -> np.ndarray:
    """Lemma 1: the sum of what each point would tell alone, per output [dx]; never less than `exact_information_gain`.

    Equal to it for a single point, and for points whose values are uncorrelated. It is what OpAx maximises, and what
    `realised_information_gain` reports for the points that an episode visited.
    """
    points, before = _rows("points", points, prior), _rows("given", given, prior)
    variances = _marginal_variances(prior, jnp.asarray(points), jnp.asarray(before))
    return np.asarray(0.5 * jnp.sum(jnp.log1p(variances), axis=-1))


@functools.partial(jax.jit, static_argnames=("count", "repeats", "worth"))
def _greedy(
    prior: Prior, candidates: Array, count: int, repeats: int, worth: Callable[[Array, Prior], Array]
) -> Float[Array, "count dx"]:
    """Measure `repeats` times where it is worth most, `count` times over: the variances there, each time before.

    The rows of `factor` [dx, count, n] are the Cholesky factor's: a step costs one product with them, not a factorisation.
    """

    def step(i, carry):
        variances, factor, seen = carry
        pivot = jnp.argmax(worth(variances, prior))
        here = variances[:, pivot]
        column = prior.covariance(candidates[pivot][None], candidates)[:, 0]
        column -= jnp.einsum("jk,jkn->jn", factor[:, :, pivot], factor)
        row = column * jnp.sqrt(repeats / (1 + repeats * here))[:, None]
        variances = jnp.maximum(variances - row * row, 0.0)  # rounding may leave a variance just below zero
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
    """An estimate of gamma_1 ... gamma_count, per output [count, dx]: the most that so many measurements can tell, in nats.

    Points are taken from the candidates [n, dz] one after the other, each time the most informative one, be it again.
    Of the largest gain on the candidates this is at least 1 - 1/e; if they are a sample of a larger set, nothing is promised
    for that.
    """
    whole("greedy information", count=count)
    points = jnp.asarray(_rows("candidates", candidates, prior))
    gains = np.zeros((count, prior.noise_std.shape[0]))
    for outputs in _alike(prior):  # outputs that share their kernel share the answer
        variances = _greedy(prior.only(outputs[0]), points, count, 1, _information)
        gains[:, outputs] = 0.5 * np.cumsum(np.log1p(np.asarray(variances)), axis=0)
    return gains


@double_precision
def model_complexity(prior: Prior, rounds: Sequence[np.ndarray]) -> float:
    """Sum over episodes and their points [T, dz] of |sigma_{n-1}(z)|^2: what was not known before the episode, in state units.

    The paper's MC_N is the largest such sum of any N episodes; this is the one of those that were run.
    """
    if not len(rounds):
        raise SondeError("model complexity: expected the points of at least one episode, got none")
    squared, seen = 0.0, None
    for points in rounds:
        before = _rows("points", seen, prior)
        variances = _marginal_variances(prior, jnp.asarray(_rows("points", points, prior)), jnp.asarray(before))
        squared += float(jnp.sum(prior.noise_std**2 @ variances))
        seen = np.concatenate([before, points])
    return squared


@double_precision
def greedy_model_complexity(prior: Prior, candidates: np.ndarray, rounds: int, horizon: int) -> np.ndarray:
    """An estimate, from below, of the paper's MC_1 ... MC_N [N]: the largest sum of squared stds that N episodes can meet.

    Within an episode nothing is learned, so the largest sum is had by `horizon` measurements at the most uncertain candidate.
    That is done episode by episode; an adversary who looks ahead could do better.
    """
    whole("model complexity", rounds=rounds, horizon=horizon)
    points = jnp.asarray(_rows("candidates", candidates, prior))
    variances = _greedy(prior, points, rounds, horizon, _squared_std)
    return horizon * np.cumsum(np.asarray(variances) @ np.asarray(prior.noise_std) ** 2)


def _alike(prior: Prior) -> list[list[int]]:
    """The outputs, in groups that share length-scales and ratio of signal to noise."""
    groups: dict[bytes, list[int]] = {}
    ratio = np.asarray(prior.signal_std / prior.noise_std)
    for output, scales in enumerate(np.asarray(prior.lengthscales)):
        groups.setdefault(np.log(np.append(scales, ratio[output])).round(9).tobytes(), []).append(output)
    return list(groups.values())


def _rows(name: str, points: np.ndarray | None, prior: Prior) -> np.ndarray:
    """Points of (x, u) [n, dz], checked."""
    width = prior.lengthscales.shape[-1]
    if points is None:
        return np.zeros((0, width))
    if prior.lengthscales.ndim != 2:
        raise SondeError("the prior is of several runs in lockstep; take that of one: Prior.of(one_run(posterior))")
    points = np.asarray(points, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] != width or not np.isfinite(points).all():
        raise SondeError(f"{name} must be finite rows (x, u) of shape [n, {width}], got shape {list(points.shape)}")
    return points
