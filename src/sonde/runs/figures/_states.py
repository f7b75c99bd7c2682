"""The figure of visited states, over how uncertain the model still is there and elsewhere."""

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, ListedColormap, LogNorm
from matplotlib.figure import Figure

from sonde._internal.precision import double_precision
from sonde.explorer import Explorer
from sonde.models._base import Posterior
from sonde.worlds._base import Plane

GRID = 81  # points per axis of the uncertainty field


@double_precision
def uncertainty_field(posterior: Posterior, states: np.ndarray, action_dim: int) -> np.ndarray:
    """Norm [...] of the first run's epistemic std at states [..., dx] and zero action."""
    first, action = jax.tree.map(lambda leaf: leaf[0], posterior), jnp.zeros(action_dim)
    norm = lambda x: jnp.linalg.norm(first.predict(x, action).epistemic_std)
    # vectorised in batches: an exact posterior would need much memory for all points at once
    field = jax.lax.map(norm, jnp.asarray(states.reshape(-1, states.shape[-1])), batch_size=512)
    return np.asarray(field).reshape(states.shape[:-1])


def episode_of(explorer: Explorer) -> np.ndarray:
    """For each measurement, the episode (from 1) that brought it; 0 for those that the run started from.

    The explorer does not note where an episode ends; those of a run are equally long. Told otherwise, these are equal parts.
    """
    measured = explorer.transitions - explorer.initial
    told = 1 + np.arange(measured) * explorer.round // max(measured, 1)
    return np.concatenate([np.zeros(explorer.initial, int), told])


def span(shown: tuple[float, float] | None, values: np.ndarray) -> tuple[float, float]:
    """What an axis shows: a little beyond the range, so that points on its edge are not cut in half."""
    if shown is not None:
        low, high = shown
        margin = 0.015 * (high - low)
    else:
        low, high = float(values.min()), float(values.max())
        # a coordinate that never changed is still drawn with some width
        margin = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    return low - margin, high + margin


def states_figure(explorer: Explorer, plane: Plane) -> Figure:
    """Where the first run went, by episode; over the model's uncertainty where two numbers make a state."""
    rounds, round_number = explorer.round, episode_of(explorer)
    x, y = plane.from_state(np.asarray(explorer.data.states[0, : explorer.transitions]))
    ranges = span(plane.x_range, x), span(plane.y_range, y)

    figure = Figure(figsize=(9, 5.6), dpi=150, layout="constrained")
    ax = figure.subplots()
    field = None if plane.to_state is None else _draw_field(ax, explorer, plane, ranges)
    initial = round_number == 0
    if initial.any():
        ax.scatter(x[initial], y[initial], s=16, facecolors="white", edgecolors="0.3", linewidths=0.6, label="initial data")
        ax.legend(loc="upper right", frameon=True, framealpha=0.85)
    steps = BoundaryNorm(np.arange(0.5, rounds + 1), 256)
    told, colours = (x[~initial], y[~initial]), round_number[~initial]
    size = float(np.clip(24 * 1000 / len(colours), 5, 24))  # many points would hide each other
    points = ax.scatter(*told, c=colours, norm=steps, cmap="plasma", s=size, edgecolors="0.1", linewidths=0.4 * size / 24)
    ticks = np.arange(1, rounds + 1, -(-rounds // 10))
    equal = (explorer.transitions - explorer.initial) % rounds == 0
    label = "round" if equal else "measurements in order, in equal parts"
    figure.colorbar(points, ax=ax, pad=0.03, aspect=30, ticks=ticks, label=label).ax.minorticks_off()
    if field is not None:
        figure.colorbar(field, ax=ax, pad=0.01, aspect=30, label="epistemic std at zero action (norm, state units)")
    ax.set(xlabel=plane.x_label, ylabel=plane.y_label, xlim=ranges[0], ylim=ranges[1])
    if plane.x_ticks:
        ax.set_xticks([at for at, _ in plane.x_ticks], [word for _, word in plane.x_ticks])
    which = f"seed {explorer.seeds[0]}" + (f", the first of {explorer.num_seeds} runs" if explorer.num_seeds > 1 else "")
    what = "Visited states over the model's remaining uncertainty"
    if field is None:
        projected = f", projected from {explorer.spec.state_dim} dimensions to two" if explorer.spec.state_dim > 2 else ""
        what = f"Visited states{projected}"
        ax.grid(color="0.9")
    ax.set_title(f"{what}\n{which}, after episode {rounds}")
    return figure


def _draw_field(
    ax: Axes, explorer: Explorer, plane: Plane, ranges: tuple[tuple[float, float], tuple[float, float]]
) -> ScalarMappable:
    """The model's uncertainty in grey, on a logarithmic scale."""
    assert plane.to_state is not None
    a, b = np.meshgrid(*(np.linspace(*shown, GRID) for shown in ranges))
    field = uncertainty_field(explorer.posterior, plane.to_state(a, b), explorer.spec.action_dim)
    # four decades are enough to see; and a field that is flat, or zero, still needs two different ends
    top = max(float(field.max()), 1e-12)
    scale = LogNorm(min(max(float(field.min()), 1e-4 * top), top / 2), top)
    greys = ListedColormap(matplotlib.colormaps["Greys"](np.linspace(0, 0.7, 256)))  # black would swallow dark points
    return ax.pcolormesh(a, b, field, norm=scale, cmap=greys, shading="gouraud", rasterized=True)
