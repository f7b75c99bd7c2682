"""Draw the figures of docs/concepts: the loop, uncertainty, optimism.

    python -m experiments.scripts.draw_concepts [loop uncertainty optimism] [--out docs/concepts]

- `loop.png`: Algorithm 1 as boxes and arrows.
- `uncertainty.png`: a Gaussian process and an ensemble learn the same 40 noisy measurements of a function of one state; below,
  the information gain of one more measurement.
- `optimism.png`: left, plans for information on a system of one state, as three methods imagine them, and what the system does
  under the same actions; right, planned over realised information gain in the recorded runs of
  `pendulum-gp` (experiments/results/uncertainty/curves.csv).

Takes about a minute on two cores.
"""

import argparse
import csv
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from sonde import METHODS, Explorer, GaussianProcess, Method, ProbabilisticEnsemble, SystemSpec, Trajectory
from sonde._internal.precision import double_precision
from sonde.models import Model, Prediction
from sonde.objectives import information_gain
from sonde.runs.figures import STYLE
from sonde.runs.figures._style import LOOKS, save_figure
from sonde.solvers import ICEM, ControlProblem

RESULTS = Path(__file__).parent.parent / "results" / "uncertainty" / "curves.csv"
BLUE, ORANGE, GREEN = "#0072B2", "#C04800", "#007A57"
BAND = "#9CCBEA"
FIGURES = ("loop", "uncertainty", "optimism")

# The loop

PARTS = {
    "Data": (0.4, 0.5, "all measurements", GREEN),
    "Model": (0.4, 3.0, "mean, epistemic and\naleatoric std", GREEN),
    "Imagination": (3.4, 3.65, "which plausible next state", BLUE),
    "Objective": (3.4, 2.35, "what a plan is worth", BLUE),
    "Solver": (6.4, 3.0, "searches for the\nbest plan", BLUE),
    "Policy": (9.4, 3.0, "state in, action out", BLUE),
    "World": (9.4, 0.5, "simulator or robot", ORANGE),
    "Trajectory": (4.9, 0.5, "states, actions, next states", ORANGE),
}
"""Left and bottom of each box, what it holds, and the colour of its phase."""
WIDTH, HEIGHT = 2.3, 1.05
ROUND = "round,pad=0,rounding_size=0.12"
ARROWS = (
    ("Data", "Model", GREEN),
    ("Model", "Imagination", BLUE),
    ("Model", "Objective", BLUE),
    ("Imagination", "Solver", BLUE),
    ("Objective", "Solver", BLUE),
    ("Solver", "Policy", BLUE),
    ("Policy", "World", ORANGE),
    ("World", "Trajectory", ORANGE),
    ("Trajectory", "Data", GREEN),
)


def draw_loop() -> Figure:
    """Draw Algorithm 1."""
    figure = Figure(figsize=(10.6, 4.4), dpi=130)
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, 12.1), ylim=(0.2, 5.35))
    ax.set_axis_off()
    for name, (left, bottom, what, colour) in PARTS.items():
        box = FancyBboxPatch((left, bottom), WIDTH, HEIGHT, boxstyle=ROUND, fc="white", ec=colour, lw=1.8)
        ax.add_patch(box)
        lines, middle = what.count("\n"), left + WIDTH / 2
        centred: dict[str, Any] = {"ha": "center", "va": "center"}
        ax.text(middle, bottom + 0.72 + 0.06 * lines, name, fontsize=13, fontweight="bold", color=colour, **centred)
        ax.text(middle, bottom + 0.36 - 0.02 * lines, what, fontsize=9.5, color="0.25", linespacing=1.15, **centred)
    for start, end, colour in ARROWS:
        ax.add_patch(_arrow(start, end, colour))
    for x, y, text, colour in (
        (8.5, 4.6, "ask: prepare a policy", BLUE),
        (8.3, 1.85, "roll out: collect measurements", ORANGE),
        (3.0, 1.85, "tell: update the model", GREEN),
    ):
        ax.text(x, y, text, ha="center", va="center", fontsize=13, color=colour)
    return figure


def _arrow(start: str, end: str, colour: str) -> FancyArrowPatch:
    """An arrow between two boxes: vertical where they are above each other, else between their facing sides."""
    (a, b), (c, d) = PARTS[start][:2], PARTS[end][:2]
    if abs(a - c) < WIDTH / 2:
        tail, head = (a + WIDTH / 2, b + HEIGHT * (d > b)), (c + WIDTH / 2, d + HEIGHT * (d < b))
    else:
        tail, head = (a + WIDTH * (c > a), b + HEIGHT / 2), (c + WIDTH * (c < a), d + HEIGHT / 2)
    return FancyArrowPatch(tail, head, arrowstyle="-|>", mutation_scale=17, lw=1.8, color=colour, shrinkA=2, shrinkB=2)


# Uncertainty

NOISE, RANGE = 0.15, (-4.5, 4.5)
MODELS: dict[str, Model] = {
    "Gaussian process": GaussianProcess(),
    "Ensemble of five networks": ProbabilisticEnsemble(members=5, width=64, bootstrap=True),
}


def truth(x: np.ndarray) -> np.ndarray:
    """The change of the state that is to be learned.

    Args:
        x: States.
    """
    return np.sin(1.6 * x) + 0.25 * x


def learn(model: Model) -> tuple[np.ndarray, np.ndarray, Explorer]:
    """Learn measurements in two clusters.

    Args:
        model: The model.

    Returns:
        States, measured changes, and the explorer that was told.
    """
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-3.2, -1.2, 28), rng.uniform(1.2, 2.2, 12)])[:, None]
    y = truth(x) + NOISE * rng.normal(size=x.shape)
    explorer = Explorer(METHODS["random"], model, ICEM(), SystemSpec.of_size(1, 1), capacity=len(x))
    explorer.tell(Trajectory(x, np.zeros_like(x), x + y))
    return x[:, 0], y[:, 0], explorer


@double_precision
def predict(explorer: Explorer, x: np.ndarray) -> Prediction:
    """Predictions at states, with action 0.

    Args:
        explorer: What was learned.
        x: States [N].
    """
    posterior = jax.tree.map(lambda leaf: leaf[0], explorer.posterior)
    return jax.tree.map(np.asarray, jax.vmap(posterior.predict)(jnp.asarray(x[:, None]), jnp.zeros((len(x), 1))))


def draw_uncertainty() -> Figure:
    """Draw what both models predict, and what a measurement would tell."""
    figure = Figure(figsize=(10.6, 5.6), dpi=120, layout="constrained")
    axes = figure.subplots(2, 2, sharex=True, sharey="row", gridspec_kw={"height_ratios": (2.2, 1)})
    grid = np.linspace(*RANGE, 361)
    for (above, below), (name, model) in zip(axes.T, MODELS.items(), strict=True):
        x, y, explorer = learn(model)
        found = predict(explorer, grid)
        mean, epistemic, aleatoric = found.mean[:, 0] - grid, found.epistemic_std[:, 0], found.aleatoric_std[:, 0]
        above.fill_between(grid, mean - 2 * epistemic, mean + 2 * epistemic, color=BAND, lw=0, label="± 2 epistemic std")
        for sign, label in ((-1, None), (1, "± 2 aleatoric std")):
            above.plot(grid, mean + sign * 2 * aleatoric, color=ORANGE, lw=1.1, ls="--", label=label)
        above.plot(grid, mean, color=BLUE, lw=2, label="mean")
        above.plot(grid, truth(grid), color="0.1", lw=1.2, ls=":", label="truth")
        above.scatter(x, y, s=14, color="0.1", zorder=4, label="measurements")
        above.set_title(name)
        gain = np.asarray(information_gain(found))
        below.fill_between(grid, gain, color=GREEN, alpha=0.3, lw=0)
        below.plot(grid, gain, color=GREEN, lw=1.8)
        below.set(xlabel="state", xlim=RANGE, ylim=(0, None))
        for ax in (above, below):
            ax.spines[["top", "right"]].set_visible(False)
    axes[0, 0].set(ylabel="change of the state", ylim=(-5, 5))
    axes[1, 0].set_ylabel("information gain [nats]")
    axes[0, 0].legend(loc="upper left", fontsize=9.5, ncols=2)
    return figure


# Optimism

IMAGINED = {"opax": "OpAx: optimistic", "mean-ae": "Mean-AE: the mean", "pets-ae": "PETS-AE: samples"}
STEPS, FEW = 16, 24
START, VISITED, SHOWN = -0.8, (-1.3, -0.2), (-5.0, 0.2)


def next_state(x: np.ndarray, u: np.ndarray) -> np.ndarray:
    """A system of one state, which rests at -pi/2 and pi/2 if it is left alone.

    Args:
        x: State.
        u: Action.
    """
    return x + 0.12 * np.sin(2 * x) + 0.18 * u


def few_measurements() -> Explorer:
    """Learn the system from a few measurements around one of the places where it rests."""
    rng = np.random.default_rng(1)
    x, u = rng.uniform(*VISITED, (FEW, 1)), rng.uniform(-1, 1, (FEW, 1))
    explorer = Explorer(METHODS["random"], GaussianProcess(), ICEM(), SystemSpec.of_size(1, 1), capacity=FEW)
    explorer.tell(Trajectory(x, u, next_state(x, u) + 0.01 * rng.normal(size=x.shape)))
    return explorer


@double_precision
def plan_for_information(explorer: Explorer, method: Method) -> tuple[np.ndarray, np.ndarray]:
    """Plan as a method does.

    Args:
        explorer: What was learned.
        method: The method.

    Returns:
        Imagined next states [K, H] and actions [H].
    """
    posterior = jax.tree.map(lambda leaf: leaf[0], explorer.posterior)
    assert method.imagination is not None and method.objective is not None
    problem = ControlProblem(posterior, method.imagination, method.objective, 1, 1)
    planner, key, start = ICEM(horizon=STEPS, samples=200, elites=20, iterations=8), jax.random.key(0), jnp.array([START])
    plan = jax.jit(lambda x, key: planner.plan(problem, planner.initial_state(problem), x, key)[0])(start, key)
    imagined = jax.jit(lambda x, plan, key: problem.imagine(x, plan, key))(start, plan, key)
    return np.asarray(imagined.next_states)[..., 0], np.clip(np.asarray(plan[:, 0]), -1, 1)


def draw_plans(ax: Axes) -> None:
    """Draw imagined plans and what the system does.

    Args:
        ax: Axes to draw on.
    """
    explorer, steps = few_measurements(), np.arange(STEPS + 1)
    ax.axhspan(*VISITED, color="0.92", lw=0, zorder=0)
    ax.text(STEPS - 0.2, VISITED[0] + 0.06, "measured", color="0.4", fontsize=9.5, va="bottom", ha="right")
    for name, label in IMAGINED.items():
        imagined, actions = plan_for_information(explorer, METHODS[name])
        for number, particle in enumerate(imagined):
            look: dict[str, Any] = {"lw": 0.9, "alpha": 0.6} if len(imagined) > 1 else {"lw": 2.2}
            ax.plot(steps, [START, *particle], color=LOOKS[name][0], label=None if number else label, **look)
        real = [np.array(START)]
        for u in actions:
            real.append(next_state(real[-1], u))
        ax.plot(steps, real, color=LOOKS[name][0], lw=1.6, ls="--")
    ax.plot([], [], color="0.3", ls="--", lw=1.6, label="the system, same actions")
    ax.set(xlabel="step of the plan", ylabel="state", xlim=(0, STEPS), ylim=SHOWN)
    ax.set_title(f"One plan of each method, {FEW} measurements")
    ax.legend(loc="lower left", fontsize=9.5)


def draw_ratios(ax: Axes) -> None:
    """Draw planned over realised information gain of recorded runs.

    Args:
        ax: Axes to draw on.
    """
    with RESULTS.open() as file:
        rows = [row for row in csv.DictReader(file) if row["setting"] == "pendulum-gp" and row["method"] in IMAGINED]
    for name, label in IMAGINED.items():
        of_method = [row for row in rows if row["method"] == name]
        rounds = sorted({int(row["round"]) for row in of_method})
        means, errors = [], []
        for number in rounds:
            pairs = [row for row in of_method if int(row["round"]) == number]
            logs = np.log([float(row["planned_information_gain"]) / float(row["realised_information_gain"]) for row in pairs])
            means.append(logs.mean())
            errors.append(2 * logs.std(ddof=1) / np.sqrt(len(logs)))
        mean, error, (colour, marker) = np.array(means), np.array(errors), LOOKS[name]
        ax.fill_between(rounds, np.exp(mean - error), np.exp(mean + error), color=colour, alpha=0.2, lw=0)
        ax.plot(rounds, np.exp(mean), color=colour, marker=marker, ms=5, lw=1.8, label=label.split(":")[0])
    ax.axhline(1, color="0.75", lw=0.8, zorder=0)
    ax.set(xlabel="round", ylabel="planned / realised", xlim=(1, 10), ylim=(0.9, None))
    ax.set_title("Information gain, ten seeds of pendulum-gp")
    ax.legend(loc="upper left", fontsize=9.5)


def draw_optimism() -> Figure:
    """Draw optimistic plans, and how much of what is planned comes true."""
    figure = Figure(figsize=(10.6, 4.2), dpi=120, layout="constrained")
    left, right = figure.subplots(1, 2)
    draw_plans(left)
    draw_ratios(right)
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    return figure


def main() -> None:
    """Draw the figures that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", nargs="*", default=list(FIGURES), help=f"figures to draw: {', '.join(FIGURES)}")
    parser.add_argument("--out", type=Path, default=Path("docs/concepts"), help="folder to write to")
    chosen = parser.parse_args()
    draw = {"loop": draw_loop, "uncertainty": draw_uncertainty, "optimism": draw_optimism}
    with matplotlib.rc_context(STYLE):
        for name in chosen.figures:
            save_figure(draw[name](), chosen.out / f"{name}.png", colours=128)


if __name__ == "__main__":
    main()
