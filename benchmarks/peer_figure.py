"""The same work by others as one figure: how many times our time each package takes."""

import io
from collections.abc import Sequence

import matplotlib
from matplotlib.figure import Figure

from benchmarks.figure import STYLE
from benchmarks.rows import Row
from benchmarks.table import duration

OURS, THEIRS, INACCURATE = "#0072B2", "#999999", "#D55E00"
LARGEST_ERROR = 1e-2
"""Error of a std, in stds of the function, above which a bar is marked: such an answer is not the same one."""


def draw(rows: Sequence[Row], device: str, clock: str) -> bytes:
    """Draw the figure.

    Args:
        rows: The rows of peers.
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
    """The figure, with one panel per piece of work and one bar per package.

    Args:
        rows: The rows of peers.
        device: Name of the machine.
        clock: Name of the clock of `Row.seconds`.
    """
    own = {row.setting: row.seconds for row in rows if row.extra["by"] == "sonde"}
    panels = {setting: [row for row in rows if row.setting == setting] for setting in own}
    times = lambda row: (row.seconds or 0.0) / (own[row.setting] or 1.0)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(9, 1.4 + sum(0.55 + 0.3 * len(of) for of in panels.values())), layout="constrained")
        heights = [1.2 + len(of) for of in panels.values()]
        grid = figure.subplots(len(panels), squeeze=False, sharex=True, gridspec_kw={"height_ratios": heights})
        for axes, (setting, of) in zip(grid[:, 0], panels.items(), strict=True):
            for place, row in enumerate(of):
                error = row.extra.get("std_error")
                colour = OURS if row.extra["by"].startswith("sonde") else THEIRS
                axes.barh(place, times(row), height=0.72, color=INACCURATE if (error or 0.0) > LARGEST_ERROR else colour)
                accuracy = "" if error is None else f"   error of the std {error:.0e}"
                text = f"{times(row):.2f} x   {duration(row.seconds)}{accuracy}"
                axes.text(times(row), place, f" {text}", va="center", fontsize=9, color="#303030")
            axes.set_yticks(range(len(of)), [row.extra["by"] for row in of])
            axes.invert_yaxis()
            axes.axvline(1.0, color="#303030", linewidth=1.2)
            axes.set_title(setting, loc="left", fontsize=10, fontweight="bold")
            axes.spines[["top", "right"]].set_visible(False)
            axes.tick_params(axis="y", length=0)
            axes.grid(axis="x", color="#e6e6e6")
        grid[-1, 0].set_xlim(0, 1.75 * max(map(times, rows)))
        grid[-1, 0].set_xlabel(f"{clock}, as a multiple of Sonde's (shorter is faster)")
        orange = f"\norange: not the same answer (error above {LARGEST_ERROR:g})"
        wrong = any((row.extra.get("std_error") or 0.0) > LARGEST_ERROR for row in rows)
        figure.suptitle(f"The same work by other packages on {device}{orange if wrong else ''}", x=0.01, ha="left", fontsize=11)
    return figure
