"""The results as one figure: how near each path comes to the machine's limit."""

import io
from collections.abc import Sequence
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from benchmarks.rows import COPY, Row
from benchmarks.table import duration, share

STYLE: dict[Any, Any] = {"font.size": 10, "axes.titlesize": 11, "axes.axisbelow": True}
COLOURS = {"f64": "#0072B2", "f32": "#E69F00", "tf32": "#E69F00", "bf16": "#009E73", COPY: "#CC79A7"}
NAMES = {COPY: "main memory"}
"""Names of limits in the legend; by default NAME products."""


def draw(rows: Sequence[Row], device: str, clock: str) -> bytes:
    """Draw the figure.

    Args:
        rows: The rows.
        device: Name of the machine.
        clock: Name of the clock of `Row.seconds`.

    Returns:
        A PNG file.
    """
    buffer = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        figure_of(rows, device, clock).savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()


def figure_of(rows: Sequence[Row], device: str, clock: str) -> Figure:
    """The figure, with one bar per row that has a limit.

    Args:
        rows: The rows.
        device: Name of the machine.
        clock: Name of the clock of `Row.seconds`.
    """
    bars = [row for row in rows if row.ratio is not None and row.path != "peers"]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8.5, 1.6 + 0.27 * max(len(bars), 3)), layout="constrained")
        axes = figure.add_subplot()
        labels, last = [], None
        for place, row in enumerate(bars):
            ratio = row.ratio or 0.0
            axes.barh(place, ratio, height=0.72, color=COLOURS[row.bound or ""])
            axes.text(
                ratio + 0.01, place, f"{share(ratio)}   {duration(row.seconds)}", va="center", fontsize=9, color="#303030"
            )
            num_seeds = f", S = {row.num_seeds}" if any(other.num_seeds > 1 for other in bars) else ""
            labels.append(f"{row.path}:  {row.setting}{num_seeds}" if row.path != last else f"{row.setting}{num_seeds}")
            if last is not None and row.path != last:
                axes.axhline(place - 0.5, color="#d0d0d0", linewidth=0.8)
            last = row.path
        axes.set_yticks(range(len(bars)), labels)
        axes.invert_yaxis()
        axes.axvline(1.0, color="#303030", linewidth=1.2)
        axes.set_xlim(0, 1.15 * max([1.0, *(row.ratio or 0.0 for row in bars)]))
        axes.grid(axis="x", color="#e6e6e6")
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel("share of the machine's limit")
        axes.set_title(f"Sonde's hot paths on {device}\nnumbers: share, and {clock}", loc="left")
        kinds = dict.fromkeys(row.bound or "" for row in bars)
        name = lambda kind: NAMES.get(kind, f"{kind} products")
        handles = [Line2D([], [], color=COLOURS[kind], linewidth=7, label=name(kind)) for kind in kinds]
        if handles:
            figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)
    return figure
