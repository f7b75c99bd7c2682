"""The paper's figures drawn from a table of results: with means as in the paper, and with interquartile means.

Returns are shown as the paper does, best so far; the current return stays visible as a thin line.
"""

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from experiments.paper import FIGURES, Kind, Panel
from experiments.references import ORACLE, RANDOM_ACTIONS
from experiments.scores import Aggregate, aggregate_scores, saturated_panels
from sonde._internal.errors import one_of
from sonde.evaluation._statistics import Curve, best_so_far, curve_interval, iqm, mean_and_band
from sonde.runs.figures import LOOKS, STYLE, file_format, save_figure, scale_y
from sonde.runs.sweep import Results

NAMES = {
    "opax": "OpAx",
    "opax-sum": "OpAx-sum",
    "opax-heuristic": "OpAx (heuristic)",
    "cee-us": "CEE-US",
    "mean-ae": "Mean-AE",
    "pets-ae": "PETS-AE",
    "h-ucrl": "H-UCRL",
    "random": "Random",
}
REFERENCES = {ORACLE: ("oracle (true model)", "black"), RANDOM_ACTIONS: ("random actions", "0.5")}
COLUMNS = {"uncertainty": 2, "downstream": 3, "manipulation": 3, "rewards": 4}
WIDTHS = {"uncertainty": 9.0, "downstream": 10.0, "manipulation": 10.0, "rewards": 11.0}
UNCERTAINTIES = {
    "max_epistemic": "largest epistemic std",
    "max_epistemic_common": "largest, common kernel",
    "mean_epistemic": "mean epistemic std",
}
"""Figure 1 shows more than the paper's, to tell whether an order of methods depends on how the uncertainty is measured."""
LEAST_SPANS: dict[Kind, float] = {"uncertainty": 1.0, "return": 1.0, "success": 0.1, "interaction": 0.01}
"""What differs by less looks alike: where methods differ, the rewards of an episode, say, add up to tens or more."""
FROM_ZERO: tuple[Kind, ...] = ("success", "interaction")
"""What cannot be negative."""
SMALL = 8.5
GREY = "0.35"

Values = Float[np.ndarray, "S T"]
Line = Float[np.ndarray, " T"]
Shown = tuple[Line, Line, Line]
"""A line, and the lower and upper end of its band (NaN where there is none)."""


@dataclass(frozen=True)
class Summary:
    """How the seeds become a line and the ends of its band, and words for it."""

    words: str
    line: Callable[[Values], Line]
    ends: Callable[[Values], tuple[Line, Line]]

    def of(self, values: Values) -> Shown:
        """The line and its band."""
        return self.line(values), *self.ends(values)


def _two_errors(values: Values) -> tuple[Line, Line]:
    mean, band = mean_and_band(values)
    return mean - band, mean + band


def _interval(values: Values) -> tuple[Line, Line]:
    low, high = curve_interval(values, iqm)
    return low, high


MEAN = Summary("mean over seeds, band: ± 2 standard errors", lambda values: mean_and_band(values)[0], _two_errors)
IQM = Summary("interquartile mean over seeds, band: bootstrap 95 % interval", iqm, _interval)


def draw_figure(name: str, results: Results, out: Path, note: str = "") -> None:
    """A figure of the paper, as in the paper: mean over seeds and two standard errors. `note` is printed at its foot."""
    _draw(name, results, MEAN, out, note)


def draw_iqm(name: str, results: Results, out: Path, note: str = "") -> None:
    """The same panels with interquartile means and bootstrap intervals, and scores over all tasks beneath Figure 2's."""
    _draw(name, results, IQM, out, note)


def _draw(name: str, results: Results, summary: Summary, out: Path, note: str) -> None:
    one_of("figure", name, FIGURES)
    file_format(out)  # refuse before any work
    with matplotlib.rc_context(STYLE):
        save_figure(paper_figure(name, results, summary, note), out, colours=256)


def panel_rows(name: str) -> list[list[Panel]]:
    """The panels of a figure as rows of its grid, kind by kind."""
    panels, columns = FIGURES[name].panels, COLUMNS[name]
    kinds = [[panel for panel in panels if panel.kind == kind] for kind in LEAST_SPANS]
    if name == "uncertainty":
        return [[replace(panel, metric=metric) for panel in panels] for metric in UNCERTAINTIES]
    return [kind[i : i + columns] for kind in kinds for i in range(0, len(kind), columns)]


def paper_figure(name: str, results: Results, summary: Summary, note: str = "") -> Figure:
    """The whole figure. Its first axes are the panels of `panel_rows`, in order; then come scores, and the legend."""
    rows, methods, columns, width = panel_rows(name), FIGURES[name].methods, COLUMNS[name], WIDTHS[name]
    scores = name == "downstream" and summary is IQM
    spare = len(rows[0]) < columns  # the legend goes there; else it has a row of its own
    heights = [*([] if spare else [0.35]), *(2.3 for _ in rows), *([1.9] if scores else [])]
    figure = Figure(figsize=(width, sum(heights) + 1.4), dpi=150, layout=ConstrainedLayoutEngine(h_pad=0.08))
    grid = figure.add_gridspec(len(heights), columns, height_ratios=heights)
    for i, row in enumerate(rows, 0 if spare else 1):
        for j, panel in enumerate(row):
            ax = figure.add_subplot(grid[i, j])
            _draw_panel(ax, panel, methods, results, summary)
            if j == 0:
                ax.set_ylabel(_y_label(panel, methods), fontsize=10)
    if scores:
        for j, (title, panels) in enumerate(_task_groups(FIGURES[name].panels).items()):
            _draw_scores(figure.add_subplot(grid[-1, j]), title, panels, methods, results)
    returns = any(panel.is_return for row in rows for panel in row)
    # MuJoCo itself cannot be planned on
    shown = [*REFERENCES] if returns else [RANDOM_ACTIONS] if FIGURES[name].shows_tasks else []
    legend, handles = figure.add_subplot(grid[0, -1] if spare else grid[0, :]), _handles(methods, shown)
    legend.axis("off")
    columns = 1 if spare else len(handles)
    box = legend.legend(handles=handles, loc="center", ncols=columns, fontsize=10, columnspacing=1.4, handletextpad=0.5)
    box.set_in_layout(False)  # it has its place, and must not squeeze the panels
    lines = "; bold: best so far, thin: current" if returns else ""
    figure.suptitle(f"{FIGURES[name].title}\n{summary.words}{lines}", fontsize=12)
    figure.supxlabel(textwrap.fill(note, int(15 * width)), fontsize=SMALL, color=GREY)
    figure.align_ylabels()
    return figure


def _y_label(panel: Panel, methods: Sequence[str]) -> str:
    if panel.kind == "uncertainty":
        return UNCERTAINTIES[panel.metric]
    if panel.kind != "return":
        return {"success": "success rate", "interaction": "free play"}[panel.kind]
    return "return (new to H-UCRL)" if panel.unseen and "h-ucrl" in methods else "return"


def _handles(methods: Sequence[str], references: Sequence[str]) -> list[Line2D]:
    """Entries of the legend, whether or not they have been run yet."""
    handles = [Line2D([], [], label=NAMES[method], **_looks(method)) for method in methods]
    looks = (REFERENCES[name] for name in references)
    return handles + [Line2D([], [], color=colour, linestyle=":", label=label) for label, colour in looks]


def _looks(method: str) -> dict[str, Any]:
    colour, marker = LOOKS[method]
    style = "--" if method == "opax-sum" else "-"  # its blue is near that of OpAx, next to which it stands
    return {"color": colour, "marker": marker, "linestyle": style, "linewidth": 1.9, "markersize": 4.5}


def _draw_panel(ax: Axes, panel: Panel, methods: Sequence[str], results: Results, summary: Summary) -> None:
    """One metric of one setting: a line and a band per method, dotted lines where the references lie."""
    ax.set_title(panel.title, fontsize=10.5, loc="left")
    ax.spines[["top", "right"]].set_visible(False)
    curves = {m: c for m in methods if (c := results.curve(panel.setting, m, panel.metric)) is not None}
    if not curves:
        _say(ax, "not run yet")
        return
    shown = {m: summary.of(best_so_far(c.values) if panel.is_return else c.values) for m, c in curves.items()}
    current = {m: summary.line(c.values) for m, c in curves.items()} if panel.is_return else {}
    references = _references(panel, results, summary)
    _limit(ax, panel.kind, [*shown.values()], [*current.values()], [*references.values()])
    # tasks may be evaluated in some rounds only: the axis has all that were explored
    explored = results.rounds(panel.setting, list(curves))
    first, last = explored[0], explored[-1]
    once = 0.02 * max(last - first, 1) if all(len(curve.rounds) == 1 for curve in curves.values()) else 0.0
    for i, (method, curve) in enumerate(curves.items()):
        aside = once * (i - (len(curves) - 1) / 2)
        _draw_method(ax, method, curve.rounds + aside, shown[method], i)
    for method, line in current.items():
        name, colour = f"_current {NAMES[method]}", LOOKS[method][0]
        ax.plot(curves[method].rounds, line, color=colour, label=name, linewidth=0.8, alpha=0.5, zorder=1.5)
    for reference, height in references.items():
        label, colour = REFERENCES[reference]
        ax.axhline(height, color=colour, linestyle=":", linewidth=1.5, label=label, zorder=2)
    margin = max(0.03 * (last - first), 0.3) + once * len(curves) / 2
    ax.set_xlim(first - margin, last + margin)
    ax.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))
    ax.set_xlabel(f"round ({extent(curves)})", fontsize=SMALL, color=GREY)
    ax.tick_params(labelsize=9)
    ax.grid(color="0.92")


def _say(ax: Axes, words: str) -> None:
    """Words in place of a drawing."""
    ax.text(0.5, 0.5, words, transform=ax.transAxes, ha="center", va="center", color="0.55")
    ax.set(xticks=[], yticks=[])


def _draw_method(ax: Axes, method: str, rounds: np.ndarray, shown: Shown, place: int) -> None:
    """A line with its band; the first methods lie on top. A single round is a point, which must not hide another."""
    line, low, high = shown
    every = 1 + (len(line) - 1) // 10  # some markers, in turn: all would hide the lines and each other
    ax.plot(rounds, line, label=NAMES[method], markevery=(place % every, every), zorder=4 - 0.1 * place, **_looks(method))
    foot = ax.get_ylim()[0]  # where a band runs out that reaches zero on a logarithmic axis
    low = np.maximum(low, foot) if ax.get_yscale() == "log" else low
    ax.fill_between(rounds, low, high, where=np.isfinite(low), color=LOOKS[method][0], alpha=0.16, linewidth=0, zorder=1)


def _references(panel: Panel, results: Results, summary: Summary) -> dict[str, float]:
    """How high the references lie that have been measured."""
    curves = {name: results.curve(panel.setting, name, panel.metric) for name in REFERENCES}
    return {name: float(summary.line(curve.values)[-1]) for name, curve in curves.items() if curve is not None}


def _limit(ax: Axes, kind: Kind, shown: Sequence[Any], thin: Sequence[Any], heights: Sequence[float]) -> None:
    """Set the y axis: lines and references lie inside; bands and thin lines may widen it by a quarter each way, no more.

    `shown` are `Shown`, `thin` are lines: those of different methods may differ in length.
    """
    finite = lambda values: (all_of := np.concatenate([np.asarray(v, float) for v in values]))[np.isfinite(all_of)]
    lines, rest = finite([*(line for line, _, _ in shown), heights]), finite([*thin, *(e for _, *ends in shown for e in ends)])
    log = kind == "uncertainty" and bool((lines > 0).all())  # a logarithm cannot show zeros
    if not len(lines):
        return
    there, back = (np.log, np.exp) if log else (np.asarray, np.asarray)
    lines, rest = there(lines), there(np.maximum(rest, 1e-300) if log else rest)
    low, high = lines.min(), lines.max()
    spare = 0.25 * max(high - low, np.log(2) if log else LEAST_SPANS[kind])
    low, high = max(low - spare, min([low, *rest])), min(high + spare, max([high, *rest]))
    if kind in FROM_ZERO:
        low, high = 0.0, max(high, LEAST_SPANS[kind])
    scale_y(ax, log, float(back(low)), float(back(high)), LEAST_SPANS[kind])


def extent(curves: dict[str, Curve]) -> str:
    """Seeds and rounds: those of most methods, then a line for each method that has others.

    Where only rounds differ, their range: each line shows where it ends. The last round counts them, since tasks may be
    evaluated in some rounds only.
    """
    seeds = {m: _count(len(c.seeds), "seed") for m, c in curves.items()}
    rounds = {m: int(c.rounds[-1]) for m, c in curves.items()}
    if len(set(seeds.values())) == 1 and len(set(rounds.values())) > 1:
        return f"{next(iter(seeds.values()))}, {min(rounds.values())} to {max(rounds.values())} rounds"
    words = {m: f"{seeds[m]}, {_count(rounds[m], 'round')}" for m in curves}
    usual = max(words.values(), key=list(words.values()).count)
    return ";\n".join([usual, *(f"{NAMES[method]}: {text}" for method, text in words.items() if text != usual)])


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _task_groups(panels: Sequence[Panel]) -> dict[str, list[Panel]]:
    return {
        "Score, all tasks": [*panels],
        "H-UCRL's own tasks": [panel for panel in panels if not panel.unseen],
        "Tasks new to H-UCRL": [panel for panel in panels if panel.unseen],
    }


def _draw_scores(ax: Axes, title: str, panels: Sequence[Panel], methods: Sequence[str], results: Results) -> None:
    """Each method's aggregate score over several panels: a point and its interval; hollow, with saturated panels too."""
    ax.set_title(title, fontsize=10.5, loc="left")
    ax.spines[["top", "right"]].set_visible(False)
    everything = aggregate_scores(results, panels, methods)
    if not everything:  # runs may be there, and random actions to compare with not
        _say(ax, "no scores yet")
        return
    saturated = saturated_panels(results, panels, methods)
    scores = aggregate_scores(results, [panel for panel in panels if panel not in saturated], methods)
    both = bool(saturated) and bool(scores)
    for place, (method, aggregate) in enumerate((scores or everything).items()):
        _draw_score(ax, method, aggregate, place - 0.15 * both)
        if both:
            _draw_score(ax, method, everything[method], place + 0.25, hollow=True)
    for height, reference in enumerate((RANDOM_ACTIONS, ORACLE)):
        ax.axvline(height, color=REFERENCES[reference][1], linestyle=":", linewidth=1.5, zorder=0)
    used = next(iter((scores or everything).values())).panels
    ax.set_yticks(range(len(everything)), [NAMES[method] for method in everything])
    ax.set_ylim(len(everything) - 0.5, -0.5)
    ax.tick_params(labelsize=9)
    counted = f"middle half of the runs of {len(used)} of {len(panels)} panels"
    names = ", ".join(panel.title.split()[0] for panel in saturated)
    others = f";\nhollow: with {names}, which every run solves" if both else ""
    words = f"0: random actions, 1: oracle or best\n({counted},\nlast common round{others})"
    ax.set_xlabel(words, fontsize=SMALL, color=GREY)
    ax.grid(color="0.92", axis="x")


def _draw_score(ax: Axes, method: str, aggregate: Aggregate, height: float, *, hollow: bool = False) -> None:
    """A point and its interval at some height."""
    colour, marker = LOOKS[method]
    size, width, face, label = (4.5, 1.5, "white", f"_with all {NAMES[method]}") if hollow else (7, 5, colour, NAMES[method])
    ax.plot(aggregate.interval, [height, height], color=colour, linewidth=width, alpha=0.35, solid_capstyle="butt")
    ax.plot([aggregate.score], [height], color=colour, marker=marker, markersize=size, markerfacecolor=face, label=label)
