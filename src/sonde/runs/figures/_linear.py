"""Frequency and step responses of a linearised system, with bands for what the model does not know."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sonde.analysis import FrequencyResponse, StepResponse
from sonde.runs.figures._style import STYLE, save_figure

COLOUR = "#0072B2"
MOST = 2.0
"""How far a band is drawn beyond the mean, in units of the mean's range."""
FLOOR = 1e-6
"""Magnitudes below this share of the largest one are not drawn."""


def draw_frequency_response(response: FrequencyResponse, outputs: Sequence[str], inputs: Sequence[str], out: Path) -> None:
    """Draw magnitude and phase of every coordinate over the frequency (a Bode plot), one pair of columns per action.

    Args:
        response: The response.
        outputs: Names of the coordinates.
        inputs: Names of the actions.
        out: Where to write the figure, in the format of its suffix.
    """
    rows, columns = response.mean.shape[1:]
    with mpl.rc_context(STYLE):
        figure, axes = _panels(rows, 2 * columns)
        for i, j in np.ndindex(rows, columns):
            left, right = axes[i, 2 * j], axes[i, 2 * j + 1]
            at = (slice(None), i, j)
            _band(left, response.frequencies, response.magnitude[at], response.magnitude_band[:, *at])
            _band(right, response.frequencies, np.degrees(response.phase[at]), np.degrees(response.phase_band[:, *at]))
            left.set(xscale="log", yscale="log", ylabel=f"{outputs[i]}: magnitude")
            left.set_ylim(bottom=max(left.get_ylim()[0], FLOOR * response.magnitude_band[1].max()))
            right.set(xscale="log", ylabel="phase [degrees]")
            for ax in (left, right):
                ax.set_title(f"{inputs[j]} to {outputs[i]}")
                ax.set_xlim(response.frequencies[0], response.frequencies[-1])
                if i == rows - 1:
                    ax.set_xlabel("frequency [rad/s]")
        _explain(figure, axes[0, 0], response.share)
        save_figure(figure, out)


def draw_step_response(response: StepResponse, outputs: Sequence[str], inputs: Sequence[str], out: Path) -> None:
    """Draw how every coordinate answers a step of each action, one column per action.

    Args:
        response: The response.
        outputs: Names of the coordinates.
        inputs: Names of the actions.
        out: Where to write the figure, in the format of its suffix.
    """
    rows, columns = response.mean.shape[1:]
    with mpl.rc_context(STYLE):
        figure, axes = _panels(rows, columns)
        for i, j in np.ndindex(rows, columns):
            ax, at = axes[i, j], (slice(None), i, j)
            _band(ax, response.times, response.mean[at], response.band[:, *at])
            ax.axhline(0.0, color="0.55", linewidth=0.8)
            low, high = response.mean[at].min(), response.mean[at].max()
            room = MOST * max(high - low, 1e-12)  # a band that diverges would hide the mean
            ax.set_ylim(max(ax.get_ylim()[0], low - room), min(ax.get_ylim()[1], high + room))
            ax.set(title=f"{inputs[j]} to {outputs[i]}", ylabel=outputs[i], xlim=(0, response.times[-1]))
            if i == rows - 1:
                ax.set_xlabel("time")
        _explain(figure, axes[0, 0], response.share)
        save_figure(figure, out)


def _panels(rows: int, columns: int) -> tuple[Figure, np.ndarray]:
    figure = Figure(figsize=(max(3.8 * columns, 5.5), 2.6 * rows + 0.6), dpi=150, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True)
    for ax in axes.flat:
        ax.grid(color="0.9")
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _band(ax: Axes, x: np.ndarray, mean: np.ndarray, band: np.ndarray) -> None:
    ax.fill_between(x, *band, color=COLOUR, alpha=0.25, linewidth=0, label="band")
    ax.plot(x, mean, color=COLOUR, linewidth=1.8, label="mean")


def _explain(figure: Figure, ax: Axes, share: float) -> None:
    handles, _ = ax.get_legend_handles_labels()
    figure.legend(handles, [f"{share:.0%} of the plausible systems", "mean system"], loc="outside lower center", ncols=2)
