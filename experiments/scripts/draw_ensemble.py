"""Draw docs/ensemble.png: predictions and uncertainty of an ensemble near its data and away from them.

    python -m experiments.scripts.draw_ensemble [--out docs/ensemble.png]

Left, a common toy problem: y = x^3 + noise, measured only in [-4, 4]; once as in the presets, once with `bootstrap`. Right, the
pendulum after a few rounds of random torques, with five networks of 2 x 128. Nothing is recalibrated. Takes about a minute.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, LogNorm
from matplotlib.figure import Figure

from sonde._internal.precision import double_precision
from sonde.control import rollout
from sonde.data import SystemSpec, Trajectory
from sonde.explorer import Explorer
from sonde.methods import METHODS
from sonde.models import Prediction, ProbabilisticEnsemble
from sonde.runs.figures import STYLE
from sonde.runs.figures._states import GRID, uncertainty_field
from sonde.solvers import ICEM
from sonde.worlds import Pendulum

MODEL = ProbabilisticEnsemble(members=5, width=128)
MEAN, EPISTEMIC, ALEATORIC = "#0072B2", "#56B4E9", "#C04800"
EDGE, NOISE, POINTS, STEPS = 4.0, 3.0, 60, 1500
ROUNDS, HORIZON = 3, 100


def toy(bootstrap: bool) -> Explorer:
    """Train an ensemble on y at random x, as the change of a state: x' = x + y.

    Args:
        bootstrap: Whether each member sees a resample of the data.
    """
    rng = np.random.default_rng(0)
    x = rng.uniform(-EDGE, EDGE, (POINTS, 1))
    y = x**3 + NOISE * rng.normal(size=x.shape)
    # all points fit into one batch, so an epoch is one training step
    model = replace(MODEL, bootstrap=bootstrap, epochs=STEPS)
    explorer = Explorer(METHODS["random"], model, ICEM(), SystemSpec.of_size(1, 1), capacity=POINTS)
    explorer.tell(Trajectory(x, np.zeros_like(x), x + y))
    return explorer


def pendulum() -> Explorer:
    """Train an ensemble on the pendulum under random torques."""
    explorer = Explorer(METHODS["random"], MODEL, ICEM(), Pendulum().spec, capacity=ROUNDS * HORIZON)
    for _ in range(ROUNDS):
        explorer.tell(rollout(Pendulum(), explorer.ask(), HORIZON))
    return explorer


@double_precision
def predict(explorer: Explorer, x: np.ndarray) -> Prediction:
    """Predict the toy problem.

    Args:
        explorer: The explorer of the toy problem.
        x: States [N].
    """
    posterior = jax.tree.map(lambda leaf: leaf[0], explorer.posterior)
    return jax.tree.map(np.asarray, jax.vmap(posterior.predict)(jnp.asarray(x[:, None]), jnp.zeros((len(x), 1))))


def draw_toy(ax: Axes, explorer: Explorer) -> float:
    """Draw the toy problem.

    Args:
        ax: Axes to draw on.
        explorer: The explorer of the toy problem.

    Returns:
        Ratio of the mean epistemic std outside the data's range to that inside.
    """
    x = np.linspace(-1.5 * EDGE, 1.5 * EDGE, 401)
    prediction = predict(explorer, x)
    assert prediction.members is not None
    mean, epistemic, aleatoric = prediction.mean[:, 0] - x, prediction.epistemic_std[:, 0], prediction.aleatoric_std[:, 0]
    ax.axvspan(-EDGE, EDGE, color="0.95", zorder=0)
    ax.fill_between(x, mean - 2 * epistemic, mean + 2 * epistemic, color=EPISTEMIC, alpha=0.5, lw=0, label="± 2 epistemic std")
    for sign, label in ((-1, None), (1, "± 2 aleatoric std")):
        ax.plot(x, mean + sign * 2 * aleatoric, color=ALEATORIC, lw=1.2, linestyle="--", label=label)
    for i, member in enumerate(prediction.members.means[:, :, 0].T):
        ax.plot(x, member - x, color=MEAN, lw=0.8, alpha=0.7, label="members" if i == 0 else None)
    ax.plot(x, mean, color=MEAN, lw=2.2, label="their mean")
    ax.plot(x, x**3, color="0.1", lw=1.4, linestyle=":", label="truth")
    states, next_states = (np.asarray(array[0, :, 0]) for array in (explorer.data.states, explorer.data.next_states))
    ax.scatter(states, next_states - states, s=9, color="0.1", zorder=4, label="measurements")
    ax.set(xlabel="x", ylabel="y", xlim=x[[0, -1]], ylim=(-200, 200))
    ax.spines[["top", "right"]].set_visible(False)
    return float(epistemic[np.abs(x) > 1.25 * EDGE].mean() / epistemic[np.abs(x) < EDGE].mean())


def draw_pendulum(figure: Figure, ax: Axes, explorer: Explorer) -> float:
    """Draw the epistemic std over the pendulum's states.

    Args:
        figure: The figure, for a colour bar.
        ax: Axes to draw on.
        explorer: The explorer of the pendulum.

    Returns:
        Ratio of the mean epistemic std far from visited states to that near them.
    """
    plane = Pendulum().plane()
    assert plane.x_range is not None and plane.y_range is not None and plane.to_state is not None
    sides = [low + np.linspace(-0.015, 1.015, GRID) * (high - low) for low, high in (plane.x_range, plane.y_range)]
    a, b = np.meshgrid(*sides)
    field = uncertainty_field(explorer.posterior, plane.to_state(a, b), explorer.spec.action_dim)
    visited = np.asarray(explorer.data.states[0])
    greys = ListedColormap(matplotlib.colormaps["Greys"](np.linspace(0, 0.75, 256)))
    image = ax.pcolormesh(a, b, field, norm=LogNorm(), cmap=greys, shading="gouraud", rasterized=True)
    figure.colorbar(image, ax=ax, pad=0.02, aspect=35, label="epistemic std at zero torque (norm, state units, log scale)")
    ax.scatter(*plane.from_state(visited), s=14, color=MEAN, edgecolors="white", linewidths=0.3)
    ax.set(xlabel=plane.x_label, ylabel=plane.y_label, xlim=sides[0][[0, -1]], ylim=sides[1][[0, -1]])
    ax.set_xticks([at for at, _ in plane.x_ticks], [word for _, word in plane.x_ticks])
    # distances between states, with speeds in units of their limit
    gaps = (plane.to_state(a, b).reshape(-1, 1, 3) - visited) / [1.0, 1.0, plane.y_range[1]]
    nearest = np.sqrt((gaps**2).sum(axis=-1)).min(axis=1).reshape(field.shape)
    return float(field[nearest > 0.5].mean() / field[nearest < 0.1].mean())


def main() -> None:
    """Draw the figure and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/ensemble.png"), help="file to write")
    out = parser.parse_args().out
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(13, 6.6), dpi=120, layout="constrained")
        grid = figure.add_gridspec(2, 2)
        ratios = {}
        for place, (bootstrap, title) in enumerate(((False, "all members see all data"), (True, "each sees a resample"))):
            ax = figure.add_subplot(grid[place, 0])
            ratios[f"toy, {title}"] = draw_toy(ax, toy(bootstrap))
            ax.set_title(f"y = x³ + noise, measured in [−4, 4]; {title}")
            if place == 0:
                ax.set_xlabel("")
                ax.legend(loc="upper left", fontsize=9.5)
        ax = figure.add_subplot(grid[:, 1])
        ratios["pendulum"] = draw_pendulum(figure, ax, pendulum())
        ax.set_title(f"Pendulum, {ROUNDS * HORIZON} measurements under random torques (points)")
        figure.savefig(out)
    for name, ratio in ratios.items():
        print(f"{name}: the epistemic std away from the data is {ratio:.1f} times that near them")


if __name__ == "__main__":
    main()
