"""The paper's figures drawn from a table of results: with means as in the paper, and with interquartile means.

Returns are shown as the paper does, best so far; the current return stays visible as a thin line.
"""

import textwrap
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from sonde.errors import one_of
from sonde.reproduce.paper import FIGURES, Panel
from sonde.reproduce.results import Curve, Results
from sonde.reproduce.statistics import best_so_far, mean_and_band
from sonde.runs.figures import LOOKS, STYLE, file_format, save_figure, scale_y

NAMES = {
    "opax": "OpAx",
    "opax-sum": "OpAx-sum",
    "mean-ae": "Mean-AE",
    "pets-ae": "PETS-AE",
    "h-ucrl": "H-UCRL",
    "random": "Random",
}
REFERENCES = {"oracle": ("oracle (plans on the true system)", "black"), "random-actions": ("random actions", "0.5")}
COLUMNS = {"uncertainty": 2, "downstream": 3, "rewards": 4}
WIDTHS = {"uncertainty": 9.0, "downstream": 10.0, "rewards": 11.0}
MORE_UNCERTAINTIES = {"max_epistemic_common": "largest, common kernel", "mean_epistemic": "mean"}
"""What the figure of the uncertainties shows beneath the paper's panels: the same curve does not hang on one measure."""
LEAST_SPAN = 1.0
"""Returns that differ by less look alike: an episode's rewards add up to tens or more wherever methods differ."""
SMALL = 8.5
GREY = "0.4"

Values = Float[np.ndarray, "S T"]
Line = Float[np.ndarray, " T"]


@dataclass(frozen=True)
class Summary:
    """How the seeds become a line and a band."""

    words: str
    of: Callable[[Values], tuple[Line, Line, Line]]
    """The line, and the lower and upper end of its band (NaN where there is none)."""


def _mean(values: Values) -> tuple[Line, Line, Line]:
    mean, band = mean_and_band(values)
    return mean, mean - band, mean + band


MEAN = Summary("mean over seeds, band: ± 2 standard errors", _mean)


def draw_figure(name: str, results: Results, out: Path, note: str = "") -> None:
    """A figure of the paper, as in the paper: mean over seeds and two standard errors. `note` is printed at its foot."""
    file_format(out)  # refuse before any work
    one_of("figure", name, FIGURES)
    with matplotlib.rc_context(STYLE):
        save_figure(paper_figure(name, results, MEAN, note), out)


def panel_rows(name: str) -> list[list[Panel]]:
    """The panels of a figure as rows of its grid: uncertainties first, then returns."""
    figure, columns = FIGURES[name], COLUMNS[name]
    uncertainties = [panel for panel in figure.panels if not panel.is_return]
    returns = [panel for panel in figure.panels if panel.is_return]
    rows = [group[i : i + columns] for group in (uncertainties, returns) for i in range(0, len(group), columns)]
    if name == "uncertainty":
        more = MORE_UNCERTAINTIES.items()
        rows += [[replace(p, metric=key, title=f"{p.title}: {words}") for p in uncertainties] for key, words in more]
    return rows


def paper_figure(name: str, results: Results, summary: Summary, note: str = "") -> Figure:
    """The whole figure; its first axes are the panels of `panel_rows`, in order."""
    rows, columns, width = panel_rows(name), COLUMNS[name], WIDTHS[name]
    figure = Figure(figsize=(width, 2.45 * len(rows) + 1.6), dpi=150, layout="constrained")
    grid = figure.add_gridspec(len(rows), columns)
    methods = FIGURES[name].methods
    for i, row in enumerate(rows):
        for j, panel in enumerate(row):
            _draw_panel(figure.add_subplot(grid[i, j]), panel, methods, results, summary)
    returns = any(panel.is_return for row in rows for panel in row)
    thin = "; returns: best so far (bold) and current (thin)" if returns else ""
    figure.suptitle(f"{FIGURES[name].title}\n{summary.words}{thin}", fontsize=12)
    handles = _handles(methods, returns)
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles) if len(handles) < 6 else 4)
    figure.supxlabel("\n".join(textwrap.wrap(note, int(15 * width))), fontsize=SMALL, color=GREY)
    return figure


def _handles(methods: tuple[str, ...], returns: bool) -> list[Line2D]:
    """What the legend shows, whether or not it has been run yet."""
    looks = [(NAMES[method], *LOOKS[method]) for method in methods]
    handles = [Line2D([], [], color=colour, marker=marker, markersize=5, label=label) for label, colour, marker in looks]
    if returns:
        handles += [Line2D([], [], color=colour, linestyle=":", label=label) for label, colour in REFERENCES.values()]
    return handles


def _draw_panel(ax: Axes, panel: Panel, methods: tuple[str, ...], results: Results, summary: Summary) -> None:
    """One metric of one setting: a line and a band per method, dotted lines where the references lie."""
    ax.set_title(panel.title, fontsize=10.5, loc="left")
    ax.spines[["top", "right"]].set_visible(False)
    curves = {m: c for m in methods if (c := results.curve(panel.setting, m, panel.metric)) is not None}
    if not curves:
        ax.text(0.5, 0.5, "not run yet", transform=ax.transAxes, ha="center", va="center", color="0.55")
        ax.set(xticks=[], yticks=[])
        return
    if "h-ucrl" in curves and panel.unseen:
        ax.set_title("unseen by H-UCRL", fontsize=SMALL, loc="right", color=GREY)
    shown = {m: summary.of(best_so_far(c.values) if panel.is_return else c.values) for m, c in curves.items()}
    current = {m: summary.of(c.values)[0] for m, c in curves.items()} if panel.is_return else {}
    references = _references(panel, results, summary)
    log = not panel.is_return and all(np.nanmin(line) > 0 for line, _, _ in shown.values())
    _limit(ax, log, shown, [*current.values()], references)
    for i, (method, curve) in enumerate(curves.items()):
        _draw_method(ax, method, curve, shown[method], current.get(method), i)
    for reference, height in references.items():
        label, colour = REFERENCES[reference]
        ax.axhline(height, color=colour, linestyle=":", linewidth=1.5, label=label, zorder=2)
    ax.grid(color="0.92")
    last, first = max(c.episodes[-1] for c in curves.values()), min(c.episodes[0] for c in curves.values())
    margin = max(0.03 * (last - first), 0.3)
    ax.set_xlim(first - margin, last + margin)
    ax.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))
    ax.tick_params(labelsize=9)
    ax.set_xlabel(f"episode ({extent(curves)})", fontsize=SMALL, color="0.25")


def _draw_method(ax: Axes, method: str, curve: Curve, shown: tuple[Line, Line, Line], current: Line | None, place: int) -> None:
    """The line, its band, and the current return as a thin line; the first methods lie on top."""
    colour, marker = LOOKS[method]
    line, low, high = shown
    every = 1 + (len(line) - 1) // 10  # some markers, in turn: all would hide the lines and each other
    looks: dict[str, Any] = {"marker": marker, "markersize": 4.5, "linewidth": 1.9, "markevery": (place % every, every)}
    ax.plot(curve.episodes, line, color=colour, label=NAMES[method], zorder=4 - 0.1 * place, **looks)
    floor, ceiling = ax.get_ylim()  # a logarithm cannot show a band that reaches zero: it runs out at the foot
    ends = np.clip(low, floor, ceiling), np.clip(high, floor, ceiling)
    ax.fill_between(curve.episodes, *ends, where=np.isfinite(low), color=colour, alpha=0.16, linewidth=0, zorder=1)
    if current is not None:
        ax.plot(curve.episodes, current, color=colour, label=f"_{NAMES[method]} now", linewidth=0.8, alpha=0.5, zorder=1.5)


def _references(panel: Panel, results: Results, summary: Summary) -> dict[str, float]:
    """How high the references lie that have been measured."""
    curves = {name: results.curve(panel.setting, name, panel.metric) for name in REFERENCES}
    return {name: float(summary.of(curve.values)[0][-1]) for name, curve in curves.items() if curve is not None}


def _limit(ax: Axes, log: bool, shown: dict[str, tuple[Line, Line, Line]], thin: list[Line], marks: dict[str, float]) -> None:
    """Set the y axis: all lines and references are inside; bands and thin lines may widen it by half, not squeeze them."""
    scale, back = (np.log, np.exp) if log else (np.asarray, np.asarray)
    lines = scale(np.concatenate([*(line for line, _, _ in shown.values()), [*marks.values()]]))
    low, high = np.nanmin(lines), np.nanmax(lines)
    spare = 0.5 * max(high - low, np.log(2) if log else LEAST_SPAN)
    rest = np.concatenate([*thin, *(end for _, *ends in shown.values() for end in ends)])
    rest = scale(rest[rest > 0] if log else rest)
    rest = rest[np.isfinite(rest)]
    low, high = max(low - spare, min([low, *rest])), min(high + spare, max([high, *rest]))
    scale_y(ax, log, float(back(low)), float(back(high)), LEAST_SPAN)


def extent(curves: dict[str, Curve]) -> str:
    """Seeds and rounds; of each method that differs from most, on its own."""
    words = {m: f"{_count(len(c.seeds), 'seed')}, {_count(len(c.episodes), 'round')}" for m, c in curves.items()}
    usual = max(words.values(), key=list(words.values()).count)
    others = [f"{NAMES[method]}: {text}" for method, text in words.items() if text != usual]
    return "; ".join([usual, *others])


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
