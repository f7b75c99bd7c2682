"""Learning curves: runs are pooled into groups, and each metric of the schema has a panel with a line and a band per group."""

import dataclasses
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sonde._internal.errors import SondeError
from sonde.evaluation import MetricSpec, Schema
from sonde.evaluation._drift import drift_warning
from sonde.evaluation._stalling import stall_warning
from sonde.evaluation._whiteness import incomplete_warning
from sonde.runs._config import RunConfig, world_label
from sonde.runs._store import RunStore
from sonde.runs.figures._style import LINE_STYLES, LOOKS, OTHER_LOOK, STYLE, file_format, save_figure, scale_y


@dataclasses.dataclass
class Group:
    """Runs whose seeds are drawn as one line."""

    config: RunConfig
    """The config that they share, without seeds and lengths."""
    folders: list[Path]
    """Their folders."""
    rows: list[dict[str, Any]]
    """Their metrics."""

    @property
    def seeds(self) -> set[int]:
        """The seeds of all runs."""
        return {row["seed"] for row in self.rows}


def curve(rows: Sequence[dict[str, Any]], key: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A metric over rounds: its mean over seeds, and a band.

    Args:
        rows: Metrics, one row per seed and round.
        key: Key of the metric.

    Returns:
        The rounds [n] at which any seed has the metric, the mean over those seeds [n], and two standard errors of the mean [n],
        which are NaN where only one seed has the metric.
    """
    values: dict[int, list[float]] = {}
    for row in rows:
        value = row.get(key)
        if value is not None and np.isfinite(value):
            values.setdefault(row["round"], []).append(value)
    rounds = sorted(values)
    means = [np.mean(values[e]) for e in rounds]
    bands = [2 * np.std(values[e], ddof=1) / np.sqrt(len(values[e])) if len(values[e]) > 1 else np.nan for e in rounds]
    return np.asarray(rounds, int), np.asarray(means, float), np.asarray(bands, float)


def grouped(stores: Sequence[RunStore], rows_of: Callable[[RunStore], list[dict]] = RunStore.load_metrics) -> list[Group]:
    """Pool runs that differ only in their seeds, and in how long they went on and how often they were evaluated.

    Args:
        stores: The runs. A seed that occurs twice under the same config is a repetition, not more evidence: it starts another
            group.
        rows_of: Gives the metrics of a run.
    """
    groups: list[Group] = []
    for store in stores:
        rows = rows_of(store)
        if not rows:
            raise SondeError(f"{store.folder} has no finished round yet: there is nothing to draw")
        ignored = {"rounds": 1, "evaluate_every": 1, "max_copies": 1, "seeds": 1, "first_seed": 0, "capacity": None}
        shared = dataclasses.replace(store.config, **ignored)
        own = Group(shared, [store.folder], rows)
        same = next((g for g in groups if g.config == shared and not g.seeds & own.seeds), None)
        if same is None:
            groups.append(own)
        else:
            same.folders += own.folders
            same.rows += own.rows
    return groups


def labels(groups: Sequence[Group]) -> list[str]:
    """Names of groups in the legend: the method, the folder if another group has the same method, and the number of seeds.

    Args:
        groups: All groups of the figure.
    """
    folders, names = [group.folders[0].name for group in groups], []
    for group, folder in zip(groups, folders, strict=True):
        method, seeds, others = group.config.method.name, len(group.seeds), len(group.folders) - 1
        name = method if group.config.exploration_task is None else f"{method} for {group.config.exploration_task}"
        if sum(other.config.method.name == method for other in groups) > 1:
            name += f" in {folder if folders.count(folder) == 1 else Path(*group.folders[0].parts[-2:])}"
            name += f" and {others} more" if others else ""
        names.append(f"{name} ({seeds} seed{'s' if seeds > 1 else ''})")
    return names


def drawn_metrics(groups: Sequence[Group]) -> dict[str, MetricSpec]:
    """Metrics that have a panel: those that the schema draws and of which there are values.

    Args:
        groups: All groups of the figure.

    Returns:
        Entries of the schema by key, in its order.
    """
    rows = [row for group in groups for row in group.rows]
    own = {metric.spec.key: metric for group in groups for metric in group.config.metrics}
    schema = Schema(groups[0].config.world, tuple(own.values()))
    keys = schema.drawn(key for row in rows for key in row)
    return {key: schema.spec(key) for key in keys if curve(rows, key)[0].size}


def draw_curves(stores: list[RunStore], out: Path) -> None:
    """Draw runs side by side: one panel per metric, one line per group of runs, a band of two standard errors over its seeds.

    Args:
        stores: Runs on one world.
        out: Path of the figure.
    """
    file_format(out)  # reject before any work
    worlds = sorted({world_label(store.config.world) for store in stores})
    if len(worlds) != 1:
        raise SondeError(f"a figure of curves shows one or more runs on one world, got {', '.join(worlds) or 'no run'}")
    groups = grouped(stores)
    metrics = drawn_metrics(groups)
    if not metrics:
        raise SondeError(f"{stores[0].metrics_path} has none of the metrics that are drawn")
    with matplotlib.rc_context(STYLE):
        figure = _curves_figure(groups, metrics)
        spread = "; mean over seeds, band: ± 2 standard errors" if any(len(group.seeds) > 1 for group in groups) else ""
        figure.suptitle("\n".join([f"Exploration of the {worlds[0]}{spread}", *_warnings(groups)]))
        save_figure(figure, out)


def _warnings(groups: Sequence[Group]) -> list[str]:
    """A sentence for each group whose exploration stalls in its last round or whose system changed, in lines of the width."""
    found = []
    for group, label in zip(groups, labels(groups), strict=True):
        end = max(row["round"] for row in group.rows)
        last = [row for row in group.rows if row["round"] == end]
        warnings = (
            incomplete_warning(last, group.config.past),
            stall_warning(last, group.config.method, group.config.model),
            drift_warning(group.rows, group.config.confidence),
        )
        for sentence in filter(None, warnings):
            found += textwrap.wrap(f"{label}: {sentence}", 110)
    return found


def _curves_figure(groups: Sequence[Group], metrics: dict[str, MetricSpec]) -> Figure:
    columns = min(len(metrics), 3 if len(metrics) in (5, 6, 9) else 4)
    lines = -(-len(metrics) // columns)
    figure = Figure(figsize=(max(3.9 * columns, 6.5), 3.1 * lines + 1.1), dpi=150, layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False).flatten()
    rounds = [row["round"] for group in groups for row in group.rows]
    margin = max(0.04 * (max(rounds) - min(rounds)), 0.3)
    for ax, (key, spec) in zip(axes, metrics.items(), strict=False):
        draw_panel(ax, key, spec, groups)
        ax.set(xlabel="round", xlim=(min(rounds) - margin, max(rounds) + margin))
        ax.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))
    spare, handles, names = axes[len(metrics) :], axes[0].get_lines(), labels(groups)
    for ax in spare:
        ax.axis("off")
    if len(spare) and len(names) <= len(LOOKS) and max(map(len, names)) <= 32:
        spare[0].legend(handles, names, loc="center", fontsize=12)
    else:
        figure.legend(handles, names, loc="outside lower center", ncols=min(len(names), max(columns - 1, 1)))
    return figure


def draw_panel(ax: Axes, key: str, spec: MetricSpec, groups: Sequence[Group]) -> None:
    """Draw one metric: a line and a band for each group.

    Args:
        ax: Where to draw.
        key: Key of the metric.
        spec: Its entry in the schema.
        groups: All groups of the figure.
    """
    curves = [curve(group.rows, key) for group in groups]
    # a logarithmic axis cannot show zeros: they are left out, and a metric that is zero throughout gets a linear axis
    log = spec.log and any((mean > 0).any() for _, mean, _ in curves)
    means = [np.where(mean > 0, mean, np.nan) if log else mean for _, mean, _ in curves]
    lows, highs = ([m + sign * np.nan_to_num(band) for m, (_, _, band) in zip(means, curves, strict=True)] for sign in (-1, 1))
    if log:
        # a band may reach zero: the axis goes down to a third of the mean for it, and the rest is cut off
        lows = [np.maximum(low, mean / 3) for low, mean in zip(lows, means, strict=True)]
    scale_y(ax, log, np.nanmin(np.concatenate(lows)), np.nanmax(np.concatenate(highs)))
    methods = [group.config.method.name for group in groups]
    for i, (rounds, _, band) in enumerate(curves):
        colour, marker = LOOKS.get(methods[i], OTHER_LOOK)
        style = LINE_STYLES[methods[:i].count(methods[i]) % len(LINE_STYLES)]
        # the markers of many rounds would hide the lines, and those of many groups each other: only some are drawn, in turn
        every = 1 + max(len(rounds) - 1, 0) // 12
        ax.plot(rounds, means[i], color=colour, marker=marker, linestyle=style, markersize=5, linewidth=1.8)
        ax.lines[-1].set_markevery((i % every, every))
        low, alpha = np.maximum(means[i] - band, ax.get_ylim()[0]), 0.18 if len(curves) <= 6 else 0.1
        ax.fill_between(rounds, low, highs[i], where=np.isfinite(band), color=colour, alpha=alpha, linewidth=0)
    ax.set(title=spec.title_of(key), ylabel=f"{spec.unit}, log scale" if log else spec.unit)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(color="0.9")
