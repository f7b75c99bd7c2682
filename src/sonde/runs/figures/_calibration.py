"""Calibration curves: how often a measurement lies in the model's interval of a level, before and after recalibration."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, PercentFormatter

from sonde._internal.precision import double_precision
from sonde.models._calibration import LEVELS, calibration_error

MAX_PANELS = 8  # more outputs than this share one panel
# text in the legend, colours that colour-blind readers can tell apart, and markers for print without colour
BEFORE, AFTER = ("before recalibration", "#C04800", "s"), ("after recalibration (cross-fitted)", "#0072B2", "o")


@double_precision
def calibration_figure(before: np.ndarray, after: np.ndarray, names: Sequence[str]) -> Figure:
    """Draw the coverage of the model's intervals, one panel per output.

    Args:
        before: Share [S, L, dx] of held-out measurements inside the interval of each of L levels, with the model's own stds.
        after: The same with recalibrated stds.
        names: Names of the outputs.
    """
    panels: dict[str, slice] = {name: slice(i, i + 1) for i, name in enumerate(names)}
    if len(names) > MAX_PANELS:
        panels = {f"mean over {len(names)} outputs": slice(None)}
    columns = min(len(panels), 3 if len(panels) in (5, 6) else 4)
    lines = -(-len(panels) // columns)
    figure = Figure(figsize=(max(3.3 * columns, 7.5), 3.4 * lines + 1.2), dpi=150, layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False)
    for ax in axes.flat[len(panels) :]:
        ax.axis("off")
    for ax, (name, outputs) in zip(axes.flat, panels.items(), strict=False):
        _draw_panel(ax, name, before[..., outputs], after[..., outputs])
    for ax in axes[:, 0]:
        ax.set_ylabel("share of measurements inside")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def _draw_panel(ax: Axes, name: str, before: np.ndarray, after: np.ndarray) -> None:
    """Draw thin lines for the seeds and a bold one for their mean, from shares [S, L, outputs]."""
    ax.plot([0, 1], [0, 1], color="0.55", linestyle="--", linewidth=1.2, label="stated level")
    for share, (label, colour, marker) in ((before, BEFORE), (after, AFTER)):
        seeds = share.mean(axis=-1)
        if len(seeds) > 1:
            ax.plot(LEVELS, seeds.T, color=colour, alpha=0.5, linewidth=0.8)
        mean = ax.plot(LEVELS, seeds.mean(axis=0), color=colour, marker=marker, markersize=4.5, linewidth=2.2, label=label)
        mean[0].set_clip_on(False)  # points on the edge are drawn whole
    # the mean error of the seeds, not the error of their mean: too wide for one seed does not cancel too narrow for another
    error_before, error_after = (float(jnp.mean(calibration_error(jnp.asarray(share)))) for share in (before, after))
    ax.set_title(f"{name}\ncalibration error {error_before:.3f} → {error_after:.3f}", pad=8)
    ax.set(xlabel="stated level", xlim=(0, 1), ylim=(0, 1), aspect="equal")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(FixedLocator([0, 0.25, 0.5, 0.75, 1]))
        axis.set_major_formatter(PercentFormatter(1))
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(color="0.9")
