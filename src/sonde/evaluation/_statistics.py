"""Statistics over seeds: curves with bands, bootstrap intervals, paired differences, and scores that tasks share.

Every resample is drawn from one fixed seed, so that the same results always give the same answer. Bootstrap intervals are 95 %
percentile intervals; resampling few seeds makes them too narrow (for means of normal values they hold the truth in about 90 %
of cases with ten seeds, 83 % with five), so what is decided is decided by Student's t.
"""

import functools
import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from experiments.paper import Panel
from jaxtyping import Float, Int
from scipy import stats

from sonde.runs.sweep._results import ORACLE, RANDOM_ACTIONS, Curve, Results

RESAMPLES = 5000
BOOTSTRAP_SEED = zlib.crc32(b"bootstrap")
TAILS = (0.025, 0.975)
EXACT_SEEDS = 13
"""Up to so many seeds all assignments of signs are counted in Wilcoxon's test; beyond, scipy chooses."""

Interval = tuple[float, float]
Statistic = Callable[..., Any]
"""Like `np.mean`: of values, along `axis`."""


@dataclass(frozen=True)
class Sample:
    """One number per seed."""

    seeds: Int[np.ndarray, " S"]
    values: Float[np.ndarray, " S"]


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds: its bootstrap interval, and p-values of it being 0 (t-test, and Wilcoxon's signed-rank test)."""

    mean: float
    standard_error: float
    bootstrap: Interval
    p_t: float
    p_wilcoxon: float
    seeds: int

    def interval(self, confidence: float = TAILS[1] - TAILS[0]) -> Interval:
        """Student's interval of the mean; NaN where there is none."""
        if np.isnan(self.standard_error):
            return np.nan, np.nan
        reach = float(stats.t.ppf((1 + confidence) / 2, self.seeds - 1)) * self.standard_error
        return self.mean - reach, self.mean + reach


@dataclass(frozen=True)
class Span:
    """What a panel's returns are measured by: 0 is random actions, 1 is what `top` says."""

    zero: float
    one: float
    top: str
    """"oracle", or which method was best, where there is no oracle."""

    @property
    def width(self) -> float:
        """The return between 0 and 1."""
        return self.one - self.zero

    def score(self, returns: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
        """Returns as scores."""
        return (returns - self.zero) / self.width


@dataclass(frozen=True)
class Aggregate:
    """A method's interquartile mean score over all seeds of several panels, which count the same."""

    score: float
    interval: Interval
    panels: tuple[Panel, ...]


def best_so_far(values: Float[np.ndarray, "S T"]) -> Float[np.ndarray, "S T"]:
    """The best value until each round."""
    return np.maximum.accumulate(values, axis=1)


def mean_and_band(values: Float[np.ndarray, "S T"]) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, " T"]]:
    """Mean over seeds, and two standard errors of it; NaN for a single seed, which has no spread."""
    seeds = len(values)
    band = 2 * values.std(axis=0, ddof=1) / seeds**0.5 if seeds > 1 else np.full(values.shape[1], np.nan)
    return values.mean(axis=0), band


def iqm(values: Float[np.ndarray, "..."], axis: int = 0) -> Any:
    """Interquartile mean: without the lowest and the highest quarter (rounded down). NaN stays NaN."""
    # sorting puts NaN at the upper end, where trimming would hide it
    return np.where(np.isnan(values).any(axis=axis), np.nan, stats.trim_mean(values, 0.25, axis=axis))


def stratified_interval(groups: Sequence[Float[np.ndarray, " _"]], statistic: Statistic = iqm) -> Interval:
    """The interval of a statistic over all values of all groups, with seeds resampled within each group; groups count the same.

    NaN where a group has less than two seeds, since one seed says nothing about another.
    """
    if not groups or min(map(len, groups)) < 2:
        return np.nan, np.nan
    draws = np.random.default_rng(BOOTSTRAP_SEED)
    pooled = _pool([group[_resamples(len(group), draws)] for group in groups])
    low, high = np.quantile(statistic(pooled, axis=1), TAILS)
    return float(low), float(high)


def curve_interval(values: Float[np.ndarray, "S T"], statistic: Statistic = iqm) -> Float[np.ndarray, "2 T"]:
    """The interval in each round: lower ends, upper ends. All rounds share the resampled seeds, so curves stay whole."""
    if len(values) < 2:
        return np.full((2, values.shape[1]), np.nan)
    index = _resamples(len(values), np.random.default_rng(BOOTSTRAP_SEED))
    # round by round: all of a long run at once would fill the memory
    rounds = [np.quantile(statistic(column[index], axis=1), TAILS) for column in values.T]
    return np.array(rounds).reshape(-1, 2).T


def estimate(values: Float[np.ndarray, " S"]) -> Estimate:
    """The mean of one number per seed. NaN stands for what so few seeds, or values that are not finite, cannot tell."""
    seeds = len(values)
    mean = float(values.mean()) if seeds and np.isfinite(values).all() else np.nan
    if seeds < 2 or np.isnan(mean):
        return Estimate(mean, np.nan, (np.nan, np.nan), np.nan, np.nan, seeds)
    error = float(values.std(ddof=1) / seeds**0.5)
    return Estimate(mean, error, stratified_interval([values], np.mean), _p_t(values), _p_wilcoxon(values), seeds)


def paired(first: Sample, second: Sample) -> Estimate:
    """The mean of `first - second` over the seeds that both have."""
    _, mine, theirs = np.intersect1d(first.seeds, second.seeds, return_indices=True)
    with np.errstate(invalid="ignore"):  # infinite less infinite: NaN
        return estimate(first.values[mine] - second.values[theirs])


def share_interval(successes: int, trials: int, confidence: float = TAILS[1] - TAILS[0]) -> Interval:
    """Exact (Clopper and Pearson's) interval of a share."""
    low, high = stats.binomtest(successes, trials).proportion_ci(confidence, method="exact")
    return float(low), float(high)


def on_common_rounds(curves: Sequence[Curve]) -> list[Curve]:
    """The curves in the rounds that all of them have, so that none has had more rounds, or more tries, than another."""
    rounds = functools.reduce(np.intersect1d, [curve.rounds for curve in curves])
    return [Curve(curve.seeds, rounds, curve.values[:, np.isin(curve.rounds, rounds)]) for curve in curves]


def panel_span(results: Results, panel: Panel) -> Span | None:
    """The span of a panel of returns, from means over seeds.

    1 is the oracle or, where there is none, the highest mean of "best so far" in the last round of any method. None without
    random actions, or if nothing is better than they are.
    """
    curves = {method: results.curve(panel.setting, method, panel.metric) for method in results.methods(panel.setting)}
    found = {method: curve for method, curve in curves.items() if curve is not None}
    zero, oracle = found.pop(RANDOM_ACTIONS, None), found.pop(ORACLE, None)
    if zero is None or (oracle is None and not found):
        return None
    finals = {method: float(curve.values.max(axis=1).mean()) for method, curve in found.items()}
    if oracle is None:
        best = max(finals, key=lambda method: finals[method])
        one, top = finals[best], f"the best method, {best}"
    else:
        one, top = float(oracle.values.mean()), "the oracle"
    span = Span(float(zero.values.mean()), one, top)
    return span if 0 < span.width < np.inf else None


def aggregate_scores(results: Results, panels: Sequence[Panel], methods: Sequence[str]) -> dict[str, Aggregate]:
    """Each method's score ("best so far", in the last round that all have) over the panels that all have.

    Methods without any round are left out; panels count where all others, and a span, are there.
    """
    returns = [panel for panel in panels if panel.is_return]
    curves = {method: [results.curve(panel.setting, method, panel.metric) for panel in returns] for method in methods}
    curves = {method: per_panel for method, per_panel in curves.items() if any(curve is not None for curve in per_panel)}
    scores: dict[str, list[np.ndarray]] = {method: [] for method in curves}
    used = []
    for i, panel in enumerate(returns):
        span, here = panel_span(results, panel), [per_panel[i] for per_panel in curves.values()]
        whole = [curve for curve in here if curve is not None]
        if span is None or not whole or len(whole) < len(here):
            continue
        shared = on_common_rounds(whole)
        if not len(shared[0].rounds):
            continue
        used.append(panel)
        for method, curve in zip(curves, shared, strict=True):
            scores[method].append(span.score(curve.values.max(axis=1)))
    if not used:
        return {}
    whole_score = lambda groups: float(iqm(_pool(groups)))
    return {
        method: Aggregate(whole_score(groups), stratified_interval(groups), tuple(used)) for method, groups in scores.items()
    }


def _pool(groups: Sequence[Float[np.ndarray, "*any _"]]) -> Float[np.ndarray, "*any _"]:
    """All values of all groups along the last axis, repeated where a group has fewer: each weighs the same."""
    size = math.lcm(*(group.shape[-1] for group in groups))
    return np.concatenate([np.repeat(group, size // group.shape[-1], axis=-1) for group in groups], axis=-1)


def _resamples(seeds: int, draws: np.random.Generator) -> Int[np.ndarray, "B S"]:
    return draws.integers(seeds, size=(RESAMPLES, seeds))


def _p_t(values: Float[np.ndarray, " S"]) -> float:
    """By hand, since scipy warns where values hardly differ; without any spread only a mean of 0 is compatible with 0."""
    mean, error = values.mean(), values.std(ddof=1) / len(values) ** 0.5
    if error == 0:
        return float(mean == 0)
    return float(2 * stats.t.sf(abs(mean / error), len(values) - 1))


def _p_wilcoxon(values: Float[np.ndarray, " S"]) -> float:
    """Differences of 0 are left out, as Wilcoxon did."""
    moved = values[values != 0]
    if len(moved) > EXACT_SEEDS:
        return float(stats.wilcoxon(moved).pvalue)
    # scipy counts signs too where there are ties, but far slower; ranks are whole or half, so sums of them are exact
    ranks = stats.rankdata(np.abs(moved))
    signs = np.arange(2 ** len(moved))[:, None] >> np.arange(len(moved)) & 1
    distance = np.abs(signs @ ranks - ranks.sum() / 2)
    return float(np.mean(distance >= np.abs(ranks[moved > 0].sum() - ranks.sum() / 2)))
