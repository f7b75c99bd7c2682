"""The figure of theory and measurement: uncertainty and its bound, information gain and its maximum, and beta."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from sonde.evaluation import fit_power_law
from sonde.models import Kernel
from sonde.theory import bound_exponent

# colours that colour-blind readers can tell apart; line styles differ too, for print without colour
MEASURED, BOUND, FITTED, LEMMA = "#0072B2", "#C04800", "#000000", "#595959"
Rows = Sequence[dict[str, Any]]


def table(rows: Rows, key: str) -> tuple[np.ndarray, np.ndarray]:
    """A metric of all seeds as a table.

    Args:
        rows: Metrics, one row per seed and round.
        key: Key of the metric.

    Returns:
        The rounds [n] that all seeds have finished, and the metric [S, n].
    """
    seeds = sorted({row["seed"] for row in rows})
    found = {(row["seed"], row["round"]): row.get(key) for row in rows}
    complete = lambda number: all(found.get((seed, number)) is not None for seed in seeds)
    rounds = [number for number in sorted({row["round"] for row in rows}) if complete(number)]
    return np.asarray(rounds, int), np.asarray([[found[seed, number] for number in rounds] for seed in seeds], float)


def theory_figure(rows: Rows, kernel: Kernel, inputs: int) -> Figure:
    """Draw three panels from a run's metrics: uncertainty, information gain, beta.

    Args:
        rows: Metrics of the run, one row per seed and round.
        kernel: The kernel of the Gaussian process, which determines the rate of the bound.
        inputs: Number of inputs of the Gaussian process.
    """
    figure = Figure(figsize=(14, 4.8), dpi=150, layout="constrained")
    axes = figure.subplots(1, 3, width_ratios=(1.25, 1, 0.8))
    _draw_uncertainty(axes[0], rows, kernel, inputs)
    _draw_information(axes[1], rows)
    rounds, beta = table(rows, "theory/beta")
    _lines(axes[2], rounds, beta, MEASURED, "by theory")
    axes[2].set(title="Width of the confidence region", ylabel="beta [epistemic stds]", ylim=(0, None))
    for ax in axes[1:]:
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    for ax in axes:
        ax.set_xlabel("round N")
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(color="0.9")
    seeds = len({row["seed"] for row in rows})
    figure.suptitle(f"Theory and measurement; {seeds} seed{'s (thin) and their mean' if seeds > 1 else ''}")
    return figure


def _lines(ax: Axes, rounds: np.ndarray, values: np.ndarray, colour: str, label: str) -> None:
    if len(values) > 1:
        ax.plot(rounds, values.T, color=colour, alpha=0.35, linewidth=0.8)
    ax.plot(rounds, values.mean(axis=0), color=colour, marker="o", markersize=4.5, linewidth=2.2, label=label)


def _draw_uncertainty(ax: Axes, rows: Rows, kernel: Kernel, inputs: int) -> None:
    """Draw both sides of Theorem 2 on logarithmic axes; the bound is scaled until it just holds, as its constant is unknown."""
    rounds, measured = table(rows, "theory/uncertainty")
    _, bound = table(rows, "theory/bound")
    mean, limit = measured.mean(axis=0), bound.mean(axis=0)
    _lines(ax, rounds, measured, MEASURED, "measured: largest ½|σ|² over the reachable set")
    label = "bound: β T³ᐟ² √(γ/N), up to a constant"
    ax.plot(rounds, np.max(mean / limit) * limit, color=BOUND, linestyle="--", linewidth=2, label=label)
    promised = 0.0 if kernel.information_exponent(inputs) is None else bound_exponent(kernel, inputs)
    rate = f"theory promises N^{promised:.2g}, up to log factors" if promised < 0 else "theory promises no rate"
    if len(rounds) >= 3:
        fit = fit_power_law(rounds, mean)
        label = f"fitted: N^({fit.exponent:.2f} ± {2 * fit.error:.2f})"
        ax.plot(rounds, fit.constant * rounds**fit.exponent, color=FITTED, linestyle=":", linewidth=2, label=label)
    ax.set(xscale="log", yscale="log", ylabel="½|σ|² [state units²]", title=f"Uncertainty: {rate}")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_locator(NullLocator())
    ax.legend(loc="best", fontsize=9.5)


def _draw_information(ax: Axes, rows: Rows) -> None:
    """Draw the information gain of all data so far, its maximum for the same number of points, and the bound of Lemma 1."""
    for key, colour, label in (
        ("theory/gamma", BOUND, "greedy maximum γ (at least 63 % of it)"),
        ("theory/information_gain", MEASURED, "gained by the data so far"),
    ):
        rounds, values = table(rows, key)
        _lines(ax, rounds, values, colour, label)
    rounds, realised = table(rows, "realised_information_gain")
    if len(rounds):
        summed = np.cumsum(realised, axis=1).mean(axis=0)
        ax.plot(rounds, summed, color=LEMMA, linestyle="--", linewidth=1.6, label="Lemma 1, summed over rounds")
    ax.set(title="Information", ylabel="nats, all outputs", ylim=(0, None))
    ax.legend(loc="best", fontsize=9.5)
