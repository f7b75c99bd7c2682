"""Simulated against measured: what a fitted model predicts of measurements that it has not seen."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from sonde.runs._judgement import Judgement
from sonde.runs._simulation import Simulation
from sonde.runs.figures._style import STYLE, file_format, save_figure

MEASURED, SIMULATED = "#000000", "#0072B2"
MOST_STATES = 12
"""Most states that are drawn."""


def draw_fit(
    judgement: Judgement,
    examples: Sequence[tuple[np.ndarray, Simulation]],
    out: Path,
    seconds_per_step: float | None = None,
) -> None:
    """Draw simulations with their bands over held-out measurements.

    Args:
        judgement: How well the model predicts.
        examples: Measured states [T + 1, dx], and the simulation from the first of them.
        out: Path of the figure.
        seconds_per_step: Duration of a step; None for an axis in steps.
    """
    file_format(out)
    with matplotlib.rc_context(STYLE):
        save_figure(fit_figure(judgement, examples, seconds_per_step), out)


def fit_figure(
    judgement: Judgement, examples: Sequence[tuple[np.ndarray, Simulation]], seconds_per_step: float | None = None
) -> Figure:
    """The figure of `draw_fit`: a row for each state, a column for each simulation.

    Args:
        judgement: How well the model predicts.
        examples: Measured states [T + 1, dx], and the simulation from the first of them.
        seconds_per_step: Duration of a step; None for an axis in steps.
    """
    names, dt = judgement.states[:MOST_STATES], seconds_per_step or 1.0
    size = (3.4 * len(examples) + 0.8, 1.6 * len(names) + 1.2)
    figure = Figure(figsize=size, layout="constrained", dpi=100)
    axes = figure.subplots(len(names), len(examples), squeeze=False, sharex="col", sharey="row")
    for column, (measured, found) in enumerate(examples):
        times = dt * np.arange(len(measured))
        with_start = lambda array, measured=measured: np.concatenate([measured[:1], array[0]])
        mean, low, high = map(with_start, (found.mean, found.low, found.high))
        for row, name in enumerate(names):
            ax = axes[row, column]
            ax.fill_between(times, low[:, row], high[:, row], color=SIMULATED, alpha=0.25, lw=0, label="90 % band")
            ax.plot(times, mean[:, row], color=SIMULATED, label="simulated")
            ax.plot(times, measured[:, row], color=MEASURED, ls="--", lw=1.2, label="measured")
            _limit(ax, measured[:, row], judgement.spread[row])
            if column == 0:
                ax.set_ylabel(name)
        axes[-1, column].set_xlabel("time [s]" if seconds_per_step else "steps")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    figure.suptitle(f"Held out: {judgement.split}. Simulated from the first state and the actions alone")
    return figure


def _limit(ax, measured: np.ndarray, spread: float) -> None:
    """Do not let a band that grows without bounds hide the measurements."""
    low, high = ax.get_ylim()
    ax.set_ylim(max(low, measured.min() - 3 * spread), min(high, measured.max() + 3 * spread))
