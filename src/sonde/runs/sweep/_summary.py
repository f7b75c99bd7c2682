"""The end of a sweep in tables: final values of every metric, and methods compared seed by seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from sonde.evaluation import Schema
from sonde.evaluation._statistics import Curve, Estimate, Sample, mean_and_band, on_common_rounds, paired
from sonde.runs.sweep._results import Results

Entry = tuple[str, str]
"""Setting and method."""


@dataclass(frozen=True)
class FinalValue:
    """A metric at the end of all seeds of one setting and method."""

    setting: str
    method: str
    round: int
    """The last round that all seeds have."""
    seeds: int
    mean: float
    band: float
    """Two standard errors of the mean; NaN for a single seed."""
    baseline: Entry | None = None
    """What it is compared with, if anything."""
    difference: Estimate | None = None
    """This less the baseline in the last round that both have, paired by seed; of logarithms if `is_ratio`."""
    is_ratio: bool = False
    """Whether the metric is compared by its logarithm, so that exp(difference) is a ratio of geometric means."""

    @property
    def comparison(self) -> str:
        """The difference, or ratio, with Student's 95 % interval."""
        if self.difference is None or np.isnan(self.difference.mean):
            return "-"
        show = (lambda value: _number(np.exp(value), 3)) if self.is_ratio else (lambda value: _number(value, 3, "+"))
        low, high = self.difference.interval()
        interval = "" if np.isnan(low) else f" [{show(low)}, {show(high)}]"
        return f"{'x' if self.is_ratio else ''}{show(self.difference.mean)}{interval}"


def final_values(results: Results, metric: str, entries: Sequence[Entry], log: bool = False) -> list[FinalValue]:
    """A metric at the end, for each setting and method that has it.

    Methods are compared with the first one of their setting; where every setting has one method only, settings are compared
    with the first one.

    Args:
        results: What was measured.
        metric: The metric.
        entries: Settings and methods, in the order of the table.
        log: Compare by ratios, if all values are above 0.
    """
    curves = {entry: curve for entry in entries if (curve := results.curve(*entry, metric)) is not None}
    ratio = log and all((curve.values > 0).all() for curve in curves.values())
    found = []
    for entry, curve in curves.items():
        mean, band = mean_and_band(curve.values[:, -1:])
        baseline = _baseline(entry, curves)
        difference = None if baseline is None else _difference(curve, curves[baseline], ratio)
        end = int(curve.rounds[-1]), len(curve.seeds), float(mean[0]), float(band[0])
        found.append(FinalValue(*entry, *end, baseline, difference, ratio))
    return found


def print_summary(results: Results, entries: Sequence[Entry], schema: Schema, console: Console) -> None:
    """Print a table for each metric that figures draw.

    Args:
        results: What was measured.
        entries: Settings and methods, in the order of the tables.
        schema: The metrics.
        console: Where to print.
    """
    for metric in schema.drawn(results.metrics()):
        spec = schema.spec(metric)
        values = final_values(results, metric, entries, spec.log)
        counts = dict.fromkeys(f"{value.seeds} seed{'' if value.seeds == 1 else 's'}, round {value.round}" for value in values)
        common = f"; {', '.join(counts)}" if len(counts) == 1 else ""
        console.print(f"{spec.title_of(metric)} [{spec.unit}]{common}", style="bold", markup=False, soft_wrap=True)
        console.print(_table(values, shows_counts=len(counts) > 1))
    console.print(
        "Final values: mean over seeds ± 2 standard errors. Comparisons: paired by seed in the last round that both have, with "
        "Student's 95 % interval; x: ratio of geometric means.",
        style="dim",
        soft_wrap=True,
    )


def _baseline(entry: Entry, curves: Mapping[Entry, Curve]) -> Entry | None:
    settings = [setting for setting, _ in curves]
    alone = len(set(settings)) == len(settings)  # one method for each setting
    first = next(other for other in curves if alone or other[0] == entry[0])
    return None if first == entry else first


def _difference(curve: Curve, baseline: Curve, ratio: bool) -> Estimate | None:
    mine, theirs = on_common_rounds([curve, baseline])
    if not len(mine.rounds):
        return None
    last = lambda found: np.log(found.values[:, -1]) if ratio else found.values[:, -1]
    return paired(Sample(mine.seeds, last(mine)), Sample(theirs.seeds, last(theirs)))


def _table(values: Sequence[FinalValue], shows_counts: bool) -> Table:
    """One row per setting and method, with numbers of seeds and rounds where they differ."""
    table, shows_settings = Table(box=box.SIMPLE_HEAD), any(value.setting for value in values)
    if shows_settings:
        table.add_column("setting", overflow="fold")
    for heading in ("method", *(["seeds", "round"] if shows_counts else []), "final", "compared", "with"):
        table.add_column(heading, no_wrap=heading in ("final", "compared"))
    for value in values:
        spread = "" if np.isnan(value.band) else f" ± {_number(value.band, 2)}"
        setting, method = value.baseline or ("", "")
        table.add_row(
            *([value.setting] if shows_settings else []),
            value.method,
            *([str(value.seeds), str(value.round)] if shows_counts else []),
            f"{_number(value.mean, 4)}{spread}",
            "" if value.baseline is None else value.comparison,
            method if setting == value.setting else setting,
        )
    return table


def _number(value: float, digits: int, sign: str = "") -> str:
    """A number with at least this many digits, and no powers of ten for large numbers."""
    return f"{value:{sign},.0f}" if abs(value) >= 10**digits else f"{value:{sign}.{digits}g}"
