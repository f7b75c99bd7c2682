"""The comparison as a table, a few counts and a picture."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from rich.console import Console
from rich.table import Table

from benchmarks.systems.cells import OPAX, Cell, Results, Suite
from benchmarks.systems.peers import FLOOR, PEERS
from sonde.runs.figures._style import STYLE, save_figure

HORIZONS = {"one_step": "1-step", "twenty_step": "20-step"}
"""Scores and what they are called."""
NEAR, FAR, AFFINE = 1.3, 2.0, 1.05
"""Ratios of errors that are counted: within NEAR times the best peer's, above FAR times it, above AFFINE times affine's."""
SMALL = 0.01
"""Errors below this are small whatever the ratio: without noise, those of peers can be thousands of times smaller still."""
LEAST = 1e-5
"""Smaller errors are drawn here: those of the grey box without noise are rounding errors."""
MODEL_LOOKS = (("#0072B2", "o"), ("#D55E00", "s"), ("#009E73", "^"), ("#CC79A7", "v"), ("#56B4E9", "P"))
PEER_LOOKS = {"affine": ("#999999", "x"), "cubic": ("#E69F00", "+"), "sklearn-gp": ("#000000", "1"), FLOOR: ("#999999", "|")}
"""Colour and marker of each learner."""

Scores = dict[str, dict[str, Any]]
"""Scores of one cell by learner."""


def best_peer(scores: Scores, horizon: str) -> str:
    """Name of the peer with the smallest error, the grey box aside.

    Args:
        scores: Scores of one cell.
        horizon: One of `HORIZONS`.
    """
    return min(PEERS, key=lambda name: scores[name][horizon])


def ratio(scores: Scores, model: str, horizon: str, to: str | None = None) -> float:
    """Error of a model relative to a peer's.

    Args:
        scores: Scores of one cell.
        model: The model.
        horizon: One of `HORIZONS`.
        to: The peer; by default the best one.
    """
    peer = best_peer(scores, horizon) if to is None else to
    return scores[model][horizon] / max(scores[peer][horizon], 1e-15)


def main_table(suite: Suite, found: list[tuple[Cell, Scores]]) -> Table:
    """One row per model and cell; with several seeds, medians over them.

    Args:
        suite: The suite.
        found: Its finished cells.
    """
    names = ["system", "data", "noise", "model"]
    for label in HORIZONS.values():
        names += [f"{label} error", "best peer", "/ best", "/ affine", "cover"]
    table = Table(*names, "grey box", "fit s", title="Errors in spreads; coverage of 90 % intervals", title_justify="left")
    for column in table.columns[4:]:
        column.justify = "right"
    last: tuple = ()
    for key, group in _by_system(found).items():
        for model in suite.models:
            words = ["", "", ""] if key == last else [key[0], key[1], "yes" if key[2] else "no"]
            table.add_row(*words, model, *_columns(group, model))
            last = key
    return table


def _columns(group: list[Scores], model: str) -> list[str]:
    middle = lambda values: float(np.median(list(values)))
    words = []
    for horizon in HORIZONS:
        peers = [best_peer(scores, horizon) for scores in group]
        name = max(sorted(set(peers)), key=peers.count)
        best = middle(scores[peer][horizon] for scores, peer in zip(group, peers, strict=True))
        words += [
            f"{middle(scores[model][horizon] for scores in group):.3g}",
            f"{name} {best:.3g}",
            _ratio(middle(ratio(scores, model, horizon) for scores in group)),
            _ratio(middle(ratio(scores, model, horizon, "affine") for scores in group)),
            f"{middle(scores[model][f'{horizon}_coverage'] for scores in group):.2f}",
        ]
    floor = middle(scores[FLOOR]["twenty_step"] for scores in group)
    return [*words, f"{floor:.2g}", f"{middle(scores[model]['fit_seconds'] for scores in group):.1f}"]


def _ratio(value: float) -> str:
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def _by_system(found: Iterable[tuple[Cell, Scores]]) -> dict[tuple[str, str, bool], list[Scores]]:
    groups: dict[tuple[str, str, bool], list[Scores]] = {}
    for cell, scores in found:
        groups.setdefault((cell.system, cell.data, cell.noise), []).append(scores)
    return groups


def counts(suite: Suite, found: list[tuple[Cell, Scores]]) -> list[str]:
    """One line per model and horizon: in how many cells it is near the best peer, far from it, and worse than affine.

    Args:
        suite: The suite.
        found: Its finished cells.
    """
    lines = []
    for model in suite.models:
        for horizon, label in HORIZONS.items():
            best = np.array([ratio(scores, model, horizon) for _, scores in found])
            small = sum(scores[model][horizon] < SMALL for _, scores in found)
            affine = np.array([ratio(scores, model, horizon, "affine") for _, scores in found])
            lines.append(
                f"{model}, {label}: of {len(found)} cells, {np.sum(best <= NEAR)} within {NEAR}x of the best peer, "
                f"{np.sum(best > FAR)} above {FAR:g}x, {np.sum(affine > AFFINE)} worse than affine by more than 5 %; "
                f"in {small} the error is below {SMALL:.0%} of the spread"
            )
    return lines


def data_table(suite: Suite, found: list[tuple[Cell, Scores]]) -> Table | None:
    """Median ratio of 20-step errors with data that OpAx chose to those with other data, by system; None without such data.

    Args:
        suite: The suite.
        found: Its finished cells.
    """
    error = {
        (cell.system, cell.noise, cell.seed, cell.data, by): scores[by]["twenty_step"]
        for cell, scores in found
        for by in scores
    }
    others = [kind for kind in suite.data if kind != OPAX]
    if OPAX not in suite.data or not others:
        return None
    columns = [(by, kind) for by in (*suite.models, *PEERS) for kind in others]
    title = "20-step error with OpAx's data / with other data, median over noise and seeds"
    table = Table("system", *(f"{by}\n/ {kind}" for by, kind in columns), title=title, title_justify="left")
    for system in suite.systems:
        words = []
        for by, kind in columns:
            pairs = [
                value / max(error[name, noise, seed, kind, by], 1e-15)
                for (name, noise, seed, data, learner), value in error.items()
                if (name, data, learner) == (system, OPAX, by) and (name, noise, seed, kind, by) in error
            ]
            words.append(_ratio(float(np.median(pairs))) if pairs else "-")
        table.add_row(system, *words)
    return table


def show(suite: Suite, results: Results, console: Console) -> None:
    """Print the table and the counts.

    Args:
        suite: The suite.
        results: Its results so far.
        console: Where to print.
    """
    found = list(results.of(suite))
    # a pipe or a log has no width, and a table of numbers must not be wrapped
    console = console if console.is_terminal else Console(width=220)
    if not found:
        console.print("No cell is finished.")
        return
    console.print(main_table(suite, found))
    if (table := data_table(suite, found)) is not None:
        console.print(table)
    for line in counts(suite, found):
        console.print(line, highlight=False)


def save_picture(suite: Suite, results: Results, folder: Path) -> Path:
    """Draw the errors of all learners and write them to `systems.png`.

    Args:
        suite: The suite.
        results: Its results so far.
        folder: An existing folder.
    """
    with matplotlib.rc_context(STYLE):
        save_figure(figure_of(suite, list(results.of(suite))), folder / "systems.png")
    return folder / "systems.png"


def figure_of(suite: Suite, found: list[tuple[Cell, Scores]]) -> Figure:
    """One panel per kind of data, noise and horizon; one row per system.

    Args:
        suite: The suite.
        found: Its finished cells.
    """
    groups = _by_system(found)
    kinds = list(dict.fromkeys((data, noise) for _, data, noise in groups))
    systems = [system for system in suite.systems if any(key[0] == system for key in groups)]
    looks = {**dict(zip(suite.models, MODEL_LOOKS * len(suite.models), strict=False)), **PEER_LOOKS}
    with matplotlib.rc_context(STYLE):
        height = 1.2 + len(kinds) * (0.9 + 0.34 * len(systems))
        figure = Figure(figsize=(10, height), layout="constrained", dpi=120)
        axes = figure.subplots(len(kinds), len(HORIZONS), sharey=True, squeeze=False)
        for row, (data, noise) in zip(axes, kinds, strict=True):
            for ax, (horizon, label) in zip(row, HORIZONS.items(), strict=True):
                _panel(ax, {name: groups.get((name, data, noise), []) for name in systems}, horizon, looks)
                ax.set_title(f"{label} error, {data} data{', noisy' if noise else ''}", loc="left")
        for ax in axes[-1]:
            ax.set_xlabel("error [spreads of the states]")
        handles = [
            Line2D([], [], color=colour, marker=marker, linestyle="", markersize=7, label=by)
            for by, (colour, marker) in looks.items()
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return figure


def _panel(ax: Axes, groups: dict[str, list[Scores]], horizon: str, looks: dict[str, tuple[str, str]]) -> None:
    for place, group in enumerate(groups.values()):
        for by, (colour, marker) in looks.items():
            values = [scores[by][horizon] for scores in group]
            if values and (value := float(np.median(values))) > 0:
                ax.plot(max(value, LEAST), place, marker=marker, color=colour, markersize=7, linestyle="", markeredgewidth=1.5)
    ax.set(xscale="log", yticks=range(len(groups)), ylim=(len(groups) - 0.5, -0.5))
    ax.set_yticklabels(list(groups))
    ax.axvline(1.0, color="#303030", linewidth=0.8)
    ax.grid(axis="both", color="#e6e6e6")
    ax.spines[["top", "right"]].set_visible(False)
