"""A gain that stabilises a stated share of all plausible systems.

The plausible systems are split. On the first part a gain is found whose mean cost over all of these systems is smallest; the
cost of a system that it does not stabilise is infinite, so those near the edge count most. On the rest it is tried: the share
that it stabilises there, and a lower bound of it, are what is promised.

The descent is Newton's for one system and its generalisation for several: with the cost matrices P_i and the sums of squared
deviations S_i of the present gain, the next one solves sum_i (R + B_i' P_i B_i) K S_i = sum_i B_i' P_i A_i S_i. Where the first
gain does not stabilise a system, its later steps are discounted, and ever less so as the gain improves.
"""

import contextlib
from typing import NamedTuple

import numpy as np

from sonde._internal.errors import SondeError
from sonde.analysis._linear import Linearisation
from sonde.analysis._lqr import Regulator, Weights, riccati
from sonde.analysis._plausible import Plausible, Promise, plausible
from sonde.analysis._point import OperatingPoint
from sonde.analysis._system import Equilibrium, LearnedSystem

DESIGN = 0.4
"""Share of the systems that a gain is designed on."""
STEPS, BETWEEN = 60, 3
"""Most steps of the last descent, and steps between two changes of discounts."""
ROUNDS, PATIENT = 40, 5
"""Most changes of discounts, and those without progress before systems are given up."""
EDGE = 1 - 1e-9
"""Spectral radius below which a system is stabilised."""
NEAR_EDGE = 0.99
"""Largest spectral radius of a discounted system, where a discount is chosen."""
PATIENCE = 1e-4
"""Relative decrease below which there is no progress."""
DOUBLINGS = 40
FIRST = (1.0, 0.1, 10.0, 0.01, 100.0)
"""Factors on R of the gains that the descent may start from."""


class _Costs(NamedTuple):
    """What a gain costs on each of N systems."""

    values: np.ndarray
    """Costs [N], infinite where a system is not stabilised."""
    P: np.ndarray
    """Cost matrices [N, d, d]."""
    S: np.ndarray
    """Sums of squared deviations [N, d, d]."""


def _sums(M: np.ndarray, inner: np.ndarray) -> np.ndarray:
    """Sums over k of M^k inner M'^k for stable M [N, d, d], by doubling."""
    total = np.broadcast_to(inner, M.shape).copy()
    for _ in range(DOUBLINGS):
        grown = M @ total @ np.swapaxes(M, 1, 2)
        total = total + grown
        if np.abs(grown).max() <= 1e-12 * np.abs(total).max():
            break
        M = M @ M
    return total


def _radii(systems: Plausible, gain: np.ndarray) -> np.ndarray:
    return np.abs(np.linalg.eigvals(systems.A - systems.B @ gain)).max(axis=-1)


def _costs(systems: Plausible, gain: np.ndarray, weights: Weights, start: np.ndarray) -> _Costs:
    """Costs of deviations with covariance `start` [d, d]."""
    closed = systems.A - systems.B @ gain
    if _radii(systems, gain).max() >= EDGE:
        return _Costs(np.full(len(closed), np.inf), closed, closed)
    P = _sums(np.swapaxes(closed, 1, 2), weights.states + gain.T @ weights.actions @ gain)
    return _Costs(np.einsum("nij,ji->n", P, start), P, _sums(closed, start))


def _step(systems: Plausible, found: _Costs, weights: Weights) -> np.ndarray:
    """The gain that would be best if the cost matrices and deviations stayed as they are."""
    BP = np.swapaxes(systems.B, 1, 2) @ found.P
    curvature, pull = weights.actions + BP @ systems.B, BP @ systems.A @ found.S
    du, d = pull.shape[1:]
    matrix = np.einsum("nab,ncd->acbd", curvature, found.S).reshape(du * d, du * d)
    return np.linalg.solve(matrix, pull.sum(axis=0).ravel()).reshape(du, d)


def _descend(systems: Plausible, gain: np.ndarray, weights: Weights, start: np.ndarray, steps: int) -> np.ndarray:
    """Lower the mean cost of a gain that stabilises all systems."""
    found = _costs(systems, gain, weights, start)
    for _ in range(steps):
        direction = _step(systems, found, weights) - gain
        for length in 0.5 ** np.arange(20):
            new = _costs(systems, gain + length * direction, weights, start)
            if new.values.mean() < found.values.mean():
                break
        else:
            return gain
        done = found.values.mean() - new.values.mean() <= PATIENCE * found.values.mean()
        gain, found = gain + length * direction, new
        if done:
            return gain
    return gain


def _discounted(systems: Plausible, radii: np.ndarray) -> Plausible:
    """Systems in which a step counts less than the one before, where that is needed for a finite cost."""
    factors = np.minimum(1.0, NEAR_EDGE / np.where(radii < EDGE, NEAR_EDGE, radii))[:, None, None]
    return Plausible(factors * systems.A, factors * systems.B, systems.source)


def _first(systems: Plausible, linear: Linearisation, weights: Weights) -> np.ndarray:
    """The regulator of the mean, at the price of actions at which most systems are stable."""
    gains = []
    for factor in FIRST:
        with contextlib.suppress(SondeError):  # that of the weights themselves exists, or there would be nothing to make robust
            gains.append(riccati(linear.A, linear.B, Weights(weights.states, factor * weights.actions))[0])
    return max(gains, key=lambda gain: np.sum(_radii(systems, gain) < 1))


def robust_gain(systems: Plausible, linear: Linearisation, weights: Weights, start: np.ndarray) -> np.ndarray:
    """A gain with the least mean cost over all systems that one gain was found to stabilise together.

    Where no progress is made, the worse half of the systems that are not stabilised is given up.

    Args:
        systems: The systems to design on.
        linear: The linearisation that they belong to.
        weights: Weights of the cost.
        start: Covariance of deviations at the start [d, d].

    Returns:
        Gain K [du, d].
    """
    gain, least, waited = _first(systems, linear, weights), np.inf, 0
    for _ in range(ROUNDS):
        radii = _radii(systems, gain)
        excess = np.maximum(radii - EDGE, 0.0).sum()
        if excess == 0:
            break
        least, waited = (excess, 0) if excess < (1 - PATIENCE) * least else (least, waited + 1)
        if waited == PATIENT:
            order = np.argsort(radii)
            unstable = int(np.sum(radii > EDGE))
            systems, least, waited = systems.part(order[: len(order) - (unstable + 1) // 2]), np.inf, 0
        else:
            gain = _descend(_discounted(systems, radii), gain, weights, start, BETWEEN)
    stable = _radii(systems, gain) < EDGE
    return _descend(systems.part(stable), gain, weights, start, STEPS) if stable.any() else gain


def robust_lqr(
    system: LearnedSystem,
    place: OperatingPoint | Equilibrium,
    weights: Weights | None = None,
    share: float = 0.95,
    confidence: float = 0.95,
) -> Regulator:
    """A regulator that stabilises a stated share of all plausible systems, or says that it cannot promise that.

    Of all gains that do, it looks for the one with the least mean cost over the plausible systems.

    Args:
        system: The system.
        place: One of its equilibria, or `system.at` any point; its samples of A and B are the plausible systems.
        weights: Weights of the cost; by default those of `Weights.by_range`.
        share: The share to be stabilised.
        confidence: Confidence of the lower bound of the share, which is what is promised.

    Returns:
        The regulator; `promise.kept` says whether the share is promised.
    """
    if not 0 < share < 1:
        raise SondeError(f"lqr: share must lie between 0 and 1, got {share}")
    weights, linear = weights or Weights.by_range(system), place.linearisation
    gain, cost = riccati(linear.A, linear.B, weights)
    systems = plausible(linear)
    if systems.source == "exact":
        return Regulator(place, system.coordinates, weights, gain, cost, Promise.of(gain, systems, linear, confidence, share))
    count = int(DESIGN * len(systems.A))
    design, rest = systems.part(slice(count)), systems.part(slice(count, None))
    start = np.diag((system.spread / 2) ** 2)
    gain = robust_gain(design, linear, weights, start)
    promise = Promise.of(gain, rest, linear, confidence, share)
    mean = _costs(Plausible(linear.A[None], linear.B[None], "mean"), gain, weights, start)
    return Regulator(place, system.coordinates, weights, gain, mean.P[0], promise)
