"""Runs side by side: differences seed by seed, with Student's 95 % intervals, and words that claim no more than these show."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from sonde.evaluation import MetricSpec, Schema
from sonde.evaluation._statistics import Curve, Estimate, Sample, best_so_far, mean_and_band, on_common_rounds, paired
from sonde.runs.report._charts import Line, LineChart, identifier
from sonde.runs.report._html import interval, number
from sonde.runs.report._subjects import Subject

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Difference:
    """A metric of one subject compared with that of the reference."""

    key: str
    title: str
    unit: str
    reference: int
    """Number of the reference."""
    subject: int
    """Number of the subject."""
    round: int
    """The last round that all subjects have."""
    seeds: tuple[int, ...]
    """The seeds that both have."""
    means: tuple[float, float]
    """Means of reference and subject over all of their own seeds, in that round."""
    estimate: Estimate
    """Subject less reference, paired by seed; of logarithms if `is_ratio`."""
    is_ratio: bool
    """Whether the metric is compared by its logarithm, so that exp(mean) is a ratio of geometric means."""
    bounds: tuple[float, float]
    """Student's 95 % interval of the difference, or of the ratio; NaN where there is none."""

    @property
    def value(self) -> float:
        """The difference, or the ratio."""
        return float(np.exp(self.estimate.mean)) if self.is_ratio else self.estimate.mean

    @property
    def verdict(self) -> str:
        """What the interval shows, in words."""
        low, high = self.bounds
        neutral = 1.0 if self.is_ratio else 0.0
        if np.isnan(low):
            return "unknown: an interval needs two common seeds" if len(self.seeds) < 2 else "unknown: a value is missing"
        if low > neutral:
            return "higher"
        return "lower" if high < neutral else "no difference shown"

    @property
    def text(self) -> str:
        """The difference with its interval."""
        if np.isnan(self.value):
            return "–"
        shown = f"× {number(self.value)}" if self.is_ratio else f"{'+' if self.value > 0 else ''}{number(self.value)}"
        return shown if np.isnan(self.bounds[0]) else f"{shown} [{interval(*self.bounds)}]"


def compared_keys(subjects: Sequence[Subject], schema: Schema) -> list[str]:
    """The metrics that are compared: those that figures draw, as far as every subject has them.

    Args:
        subjects: The subjects.
        schema: The metrics.
    """
    keys = schema.drawn(key for subject in subjects for row in subject.rows for key in row)
    return [key for key in keys if all(subject.curve(key) is not None for subject in subjects)]


def common_curves(subjects: Sequence[Subject], key: str) -> list[Curve] | None:
    """A metric of all subjects in the rounds that all of them have; None if there is no such round.

    Args:
        subjects: The subjects.
        key: Key of the metric.
    """
    curves = [subject.curve(key) for subject in subjects]
    known = [curve for curve in curves if curve is not None]
    if len(known) < len(curves):
        return None
    common = on_common_rounds(known)
    return common if len(common[0].rounds) else None


def differences(subjects: Sequence[Subject], schema: Schema, reference: int = 0) -> list[Difference]:
    """Every metric that is compared, of every subject but the reference, in the last round that all of them have.

    Args:
        subjects: The subjects.
        schema: The metrics.
        reference: Number of the subject that the others are compared with.
    """
    found = []
    for key in compared_keys(subjects, schema):
        curves = common_curves(subjects, key)
        for number_ in range(len(subjects)) if curves is not None else ():
            if number_ != reference:
                assert curves is not None
                found.append(_difference((key, schema.spec(key)), curves, reference, number_))
    return found


def _difference(metric: tuple[str, MetricSpec], curves: Sequence[Curve], reference: int, subject: int) -> Difference:
    key, spec = metric
    mine, base = curves[subject], curves[reference]
    ratio = _by_ratio(spec, curves)
    estimate = _paired_at(mine, base, -1, ratio)
    low, high = estimate.interval(CONFIDENCE)
    bounds = (float(np.exp(low)), float(np.exp(high))) if ratio else (low, high)
    seeds = tuple(int(seed) for seed in np.intersect1d(mine.seeds, base.seeds))
    means = float(base.values[:, -1].mean()), float(mine.values[:, -1].mean())
    unit = spec.unit
    return Difference(
        key, spec.title_of(key), unit, reference, subject, int(mine.rounds[-1]), seeds, means, estimate, ratio, bounds
    )


def _by_ratio(spec: MetricSpec, curves: Sequence[Curve]) -> bool:
    return spec.log and all(bool((curve.values > 0).all()) for curve in curves)


def _paired_at(mine: Curve, base: Curve, at: int, ratio: bool) -> Estimate:
    """The mean of the differences over common seeds in one of the rounds."""
    values = [np.log(curve.values[:, at]) if ratio else curve.values[:, at] for curve in (mine, base)]
    return paired(Sample(mine.seeds, values[0]), Sample(base.seeds, values[1]))


def difference_charts(subjects: Sequence[Subject], schema: Schema, reference: int = 0) -> list[LineChart]:
    """The differences over rounds with their intervals, for each metric that is compared.

    Args:
        subjects: The subjects.
        schema: The metrics.
        reference: Number of the subject that the others are compared with.
    """
    charts = []
    for key in compared_keys(subjects, schema):
        curves, spec = common_curves(subjects, key), schema.spec(key)
        if curves is None:
            continue
        ratio = _by_ratio(spec, curves)
        lines = [
            _line(subject, curve, curves[reference], ratio)
            for subject, curve in zip(subjects, curves, strict=True)
            if subject.number != reference
        ]
        kept = [line for line in lines if len(line.x)]
        base = subjects[reference].name
        if kept:
            title, unit = spec.title_of(key), f"ratio to {base}" if ratio else f"{spec.unit}, less {base}"
            same = (1.0 if ratio else 0.0, f"same as {base}")
            what = "divided by" if ratio else "less"
            meaning = f"{spec.meaning} Here: {what} that of {base}, mean over common seeds{' (geometric)' if ratio else ''}."
            charts.append(
                LineChart(f"diff-{identifier(key)}", title, unit, meaning, kept, ratio, [same], band="Student's 95 % interval")
            )
    return charts


def _line(subject: Subject, curve: Curve, base: Curve, ratio: bool) -> Line:
    """The same as `_paired_at` in all rounds at once, without tests and resamples, which would take minutes for long runs."""
    seeds, mine, theirs = np.intersect1d(curve.seeds, base.seeds, return_indices=True)
    values = [np.log(each.values) if ratio else each.values for each in (curve, base)]
    found = values[0][mine] - values[1][theirs]
    if not len(seeds):
        nothing = np.empty(0)
        return Line(subject.number, subject.name, nothing, nothing, nothing, nothing)
    mean, band = mean_and_band(found)  # two standard errors
    reach = stats.t.ppf((1 + CONFIDENCE) / 2, len(seeds) - 1) / 2 * band
    ends = mean - reach, mean + reach
    if ratio:
        mean, ends = np.exp(mean), (np.exp(ends[0]), np.exp(ends[1]))
    return Line(subject.number, subject.name, curve.rounds, mean, ends[0], ends[1])


@dataclass(frozen=True)
class TaskValue:
    """The return on a task at the end of a run, and the best until then."""

    task: str
    subject: int
    round: int
    """The last round that all seeds have."""
    seeds: int
    now: tuple[float, float]
    """Mean over seeds, and two standard errors of it (NaN for one seed)."""
    best: tuple[float, float]
    """The same for the best return of each seed so far."""
    success: float | None
    """Mean success in that round, where the task has it."""


def task_values(subjects: Sequence[Subject]) -> list[TaskValue]:
    """Recorded returns on all tasks.

    Args:
        subjects: The subjects.
    """
    keys = dict.fromkeys(key for subject in subjects for row in subject.rows for key in row if key.startswith("return/"))
    found = []
    for key in keys:
        for subject in subjects:
            curve = subject.curve(key)
            if curve is not None:
                solved = subject.curve(key.replace("return/", "success/", 1))
                ends = [_last_mean(values) for values in (curve.values, best_so_far(curve.values))]
                success = None if solved is None else float(solved.values[:, -1].mean())
                end = int(curve.rounds[-1]), len(curve.seeds)
                found.append(TaskValue(key.removeprefix("return/"), subject.number, *end, ends[0], ends[1], success))
    return found


def _last_mean(values: np.ndarray) -> tuple[float, float]:
    mean, band = mean_and_band(values[:, -1:])
    return float(mean[0]), float(band[0])


def common_seeds(subjects: Sequence[Subject]) -> list[int]:
    """The seeds that all subjects have.

    Args:
        subjects: The subjects.
    """
    return sorted(functools.reduce(set.intersection, (set(subject.group.seeds) for subject in subjects)))
