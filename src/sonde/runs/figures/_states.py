"""The figure of visited states, over the remaining uncertainty of the model."""

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
from jaxtyping import Array
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, ListedColormap, LogNorm
from matplotlib.figure import Figure

from sonde._internal.precision import double_precision
from sonde.explorer import Explorer
from sonde.models import Posterior
from sonde.worlds import Plane

GRID = 81  # points per axis of the uncertainty field


@double_precision
def uncertainty_field(posterior: Posterior, states: np.ndarray, action_dim: int) -> np.ndarray:
    """Epistemic uncertainty of the first seed's model at zero action.

    Args:
        posterior: What was learned, with a leading axis S.
        states: States [..., dx].
        action_dim: Number of action dimensions, or of inputs (past, action).

    Returns:
        Norm of the epistemic std [...], in state units.
    """
    first = jax.tree.map(lambda leaf: leaf[0], posterior)
    field = _norms(first, jnp.asarray(states.reshape(-1, states.shape[-1])), jnp.zeros(action_dim))
    return np.asarray(field).reshape(states.shape[:-1])


@eqx.filter_jit  # once per process: programs that pile up use up its memory maps
def _norms(posterior: Posterior, states: Array, action: Array) -> Array:
    norm = lambda x: jnp.linalg.norm(posterior.predict(x, action).epistemic_std)
    # in batches: an exact posterior would need much memory for all points at once
    return jax.lax.map(norm, states, batch_size=512)


def round_of(explorer: Explorer) -> np.ndarray:
    """The round of each measurement.

    The explorer does not record where a round ends. The rounds of a run have the same length; where a user tells rounds of
    different lengths, the measurements are divided into equal parts instead.

    Args:
        explorer: The explorer.

    Returns:
        Rounds [n], from 1; 0 for initial data.
    """
    measured = explorer.transitions - explorer.initial
    numbers = 1 + np.arange(measured) * explorer.round // max(measured, 1)
    return np.concatenate([np.zeros(explorer.initial, int), numbers])


def span(shown: tuple[float, float] | None, values: np.ndarray) -> tuple[float, float]:
    """Limits of an axis: a little beyond the range, so that points on its edge are not cut in half.

    Args:
        shown: The range; None for that of the values.
        values: Values to draw.
    """
    if shown is not None:
        low, high = shown
        margin = 0.015 * (high - low)
    else:
        low, high = float(values.min()), float(values.max())
        # a coordinate that never changes still needs some width
        margin = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    return low - margin, high + margin


def states_figure(explorer: Explorer, plane: Plane) -> Figure:
    """Draw the visited states of the first seed, coloured by round; over the model's uncertainty if the plane gives states.

    Args:
        explorer: What was measured and learned.
        plane: Two coordinates of a state.
    """
    rounds, round_number = explorer.round, round_of(explorer)
    x, y = plane.from_state(np.asarray(explorer.data.states[0, : explorer.transitions]))
    ranges = span(plane.x_range, x), span(plane.y_range, y)

    figure = Figure(figsize=(9, 5.6), dpi=150, layout="constrained")
    ax = figure.subplots()
    field = None if plane.to_state is None else _draw_field(ax, explorer, plane, ranges)
    initial = round_number == 0
    if initial.any():
        ax.scatter(x[initial], y[initial], s=16, facecolors="white", edgecolors="0.3", linewidths=0.6, label="initial data")
        ax.legend(loc="upper right", frameon=True, framealpha=0.85)
    points = _draw_points(ax, x[~initial], y[~initial], round_number[~initial])
    ticks = np.arange(1, rounds + 1, -(-rounds // 10))
    equal = (explorer.transitions - explorer.initial) % rounds == 0
    label = "round" if equal else "measurements in order, in equal parts"
    figure.colorbar(points, ax=ax, pad=0.03, aspect=30, ticks=ticks, label=label).ax.minorticks_off()
    if field is not None:
        figure.colorbar(field, ax=ax, pad=0.01, aspect=30, label="epistemic std at zero action (norm, state units)")
    ax.set(xlabel=plane.x_label, ylabel=plane.y_label, xlim=ranges[0], ylim=ranges[1])
    if plane.x_ticks:
        ax.set_xticks([at for at, _ in plane.x_ticks], [word for _, word in plane.x_ticks])
    if field is None:
        ax.grid(color="0.9")
    ax.set_title(_title(explorer, field is not None))
    return figure


def _title(explorer: Explorer, over_field: bool) -> str:
    what = "Visited states over the model's remaining uncertainty"
    if not over_field:
        projected = f", projected from {explorer.spec.state_dim} dimensions to two" if explorer.spec.state_dim > 2 else ""
        what = f"Visited states{projected}"
    seed = f"seed {explorer.seeds[0]}" + (f", the first of {explorer.num_seeds}" if explorer.num_seeds > 1 else "")
    return f"{what}\n{seed}, after round {explorer.round}"


def _draw_points(ax: Axes, x: np.ndarray, y: np.ndarray, rounds: np.ndarray) -> ScalarMappable:
    """Draw points [n] coloured by round."""
    colours = matplotlib.colormaps["plasma"].resampled(max(256, int(rounds.max())))  # one for each round at least
    norm = BoundaryNorm(np.arange(0.5, rounds.max() + 1), colours.N)
    size = float(np.clip(24 * 1000 / len(rounds), 5, 24))  # many points would hide each other
    return ax.scatter(x, y, c=rounds, norm=norm, cmap=colours, s=size, edgecolors="0.1", linewidths=0.4 * size / 24)


def _draw_field(
    ax: Axes, explorer: Explorer, plane: Plane, ranges: tuple[tuple[float, float], tuple[float, float]]
) -> ScalarMappable:
    """Draw the model's uncertainty in grey, on a logarithmic scale."""
    assert plane.to_state is not None
    a, b = np.meshgrid(*(np.linspace(*shown, GRID) for shown in ranges))
    field = uncertainty_field(explorer.posterior, plane.to_state(a, b), explorer.spec.input_dim)
    # show at most four decades; a field that is flat, or zero, still needs two different ends
    top = max(float(field.max()), 1e-12)
    scale = LogNorm(min(max(float(field.min()), 1e-4 * top), top / 2), top)
    greys = ListedColormap(matplotlib.colormaps["Greys"](np.linspace(0, 0.7, 256)))  # black would hide dark points
    return ax.pcolormesh(a, b, field, norm=scale, cmap=greys, shading="gouraud", rasterized=True)
