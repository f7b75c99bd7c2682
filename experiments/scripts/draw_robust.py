"""Draw docs/robust.png: the returns that plans guarantee after two rounds on the pendulum, and those on the true system.

    python -m experiments.scripts.draw_robust [--seeds 40] [--first-seed 0] [--at-once 1] [--beta 2] [--horizon 100] [--out OUT]

Each seed explores two rounds (`experiments.short_plans`), then swings up twice: with a plan on the model's mean and with a
robust one. Both are also run on the model against adversaries, which gives their guaranteed returns. Values are kept in a
.csv beside the figure; seeds that it has are not run again. On one core 100 steps of a seed take about a minute; on a GPU run
them all at once.
"""

import argparse
import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import ScalarFormatter

from experiments.short_plans import SHORT_PLANS
from sonde.control import rollout
from sonde.evaluation import Learned, TaskSetup, plan_robust_task, plan_task, run_task, score_on_model
from sonde.imagination import Pessimistic
from sonde.runs._run import build_explorer
from sonde.runs.figures import STYLE

ROUNDS, TASK = 2, "swing-up"
COLUMNS = ("seed", "plan", "nominal", "guaranteed", "true system")
LOOKS: dict[
    str, tuple[dict[str, Any], float]
] = {  # points and line width; the robust plan may equal the plain one, so its points are drawn around the other's
    "plain": ({"s": 20, "marker": "o", "facecolors": "#C04800", "edgecolors": "#C04800", "linewidths": 0}, 3),
    "robust": ({"s": 60, "marker": "s", "facecolors": "none", "edgecolors": "#0072B2", "linewidths": 1.2}, 1.5),
}


@dataclass(frozen=True)
class Settings:
    """How plans are made and evaluated."""

    beta: float
    """Width of the confidence region that the adversary chooses from."""
    horizon: int
    """Steps of the swing-up."""


def evaluate_plans(seeds: list[int], settings: Settings) -> Iterator[tuple]:
    """Explore, then evaluate both plans.

    Args:
        seeds: Consecutive seeds.
        settings: How plans are made and evaluated.

    Yields:
        Rows of the table, for each plan and seed.
    """
    config = replace(SHORT_PLANS, rounds=ROUNDS, first_seed=seeds[0], seeds=len(seeds))
    explorer = build_explorer(config)
    for _ in range(ROUNDS):
        explorer.tell(rollout(config.world, explorer.ask(), config.horizon))
    setup = TaskSetup.named(config.world, TASK, config.solver, settings.horizon)
    learned, keys, adversary = Learned(explorer.posterior, explorer.data), explorer.keys(), Pessimistic(beta=settings.beta)
    plain = score_on_model(setup, learned.posterior, keys, plan_task(setup, learned, keys), adversary)
    robust = plan_robust_task(setup, learned, keys, adversary, plain)
    for name, scored in (("plain", plain), ("robust", robust)):
        values = scored.returns.nominal, scored.returns.guaranteed, run_task(setup, scored.policy, keys).returns
        for i, seed in enumerate(seeds):
            yield seed, name, *(round(float(value[i]), 3) for value in values)


def complete_table(path: Path, seeds: range, at_once: int, settings: Settings) -> list[dict[str, str]]:
    """Read the table, after running the seeds that it does not have.

    Args:
        path: The table, a .csv.
        seeds: The seeds to read.
        at_once: Number of seeds that are run in one batch.
        settings: How plans are made and evaluated.

    Returns:
        The rows of all seeds.
    """
    if not path.exists():
        path.write_text(",".join(COLUMNS) + "\n")
    read = lambda: list(csv.DictReader(path.open()))
    for start in seeds[::at_once]:
        batch = list(range(start, min(start + at_once, seeds.stop)))
        if {row["seed"] for row in read()}.isdisjoint(map(str, batch)):
            rows = list(evaluate_plans(batch, settings))
            with path.open("a") as file:
                csv.writer(file, lineterminator="\n").writerows(rows)
            print(*rows, sep="\n", flush=True)
    return [row for row in read() if int(row["seed"]) in seeds]


def draw(rows: list[dict[str, str]], settings: Settings, out: Path) -> None:
    """Draw by how much the true return exceeds the guaranteed one, and the distribution of guaranteed returns.

    Args:
        rows: Rows of the table.
        settings: How plans were made and evaluated.
        out: File to write.
    """
    values_of = lambda plan: np.array([[float(row[name]) for name in COLUMNS[2:]] for row in rows if row["plan"] == plan])
    values = {plan: values_of(plan) for plan in LOOKS}
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(9.5, 4.2), layout="constrained")
        margins, spread = figure.subplots(1, 2, width_ratios=[1.3, 1])
        for plan, columns in values.items():
            _draw_plan(margins, spread, plan, columns)
        margins.axhline(0, color="#888888", linewidth=1, zorder=0)
        margins.set_yscale("symlog", linthresh=1, linscale=0.5)  # margins range from fractions to hundreds
        margins.yaxis.set_major_formatter(ScalarFormatter())
        low, high = margins.get_ylim()
        margins.set(xlabel="guaranteed return", ylabel="true return minus guaranteed return", ylim=(min(low, -20), 2 * high))
        margins.set_title("True system against the guarantee")
        spread.set(xlabel="guaranteed return", ylabel="share of seeds at or below", ylim=(0, 1.02))
        spread.set_title("Worst case on the model")
        for ax, place in ((margins, "lower left"), (spread, "upper left")):
            ax.legend(frameon=False, loc=place)
        seeds = len(values["plain"])
        title = (
            f"Swing-up, {settings.horizon} steps, after {ROUNDS} rounds of 100 steps: {seeds} seeds, beta = {settings.beta:g}"
        )
        figure.suptitle(title, fontsize=10)
        figure.savefig(out, dpi=150)


def _draw_plan(margins: Axes, spread: Axes, plan: str, columns: np.ndarray) -> None:
    """Draw one plan's points and distribution, and print its numbers."""
    look, width = LOOKS[plan]
    _, guaranteed, true = columns.T
    held = f"{plan} plan: holds in {np.sum(true >= guaranteed)} of {len(true)}"
    print(f"{held}; lowest guaranteed {guaranteed.min():.0f}, lowest true {true.min():.0f}; means", *columns.mean(axis=0))
    margins.scatter(guaranteed, true - guaranteed, label=held, **look)
    share = np.arange(1, len(true) + 1) / len(true)
    spread.step(np.sort(guaranteed), share, where="post", color=look["edgecolors"], linewidth=width, label=f"{plan} plan")


def main() -> None:
    """Run what is missing, and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=40, help="number of seeds")
    parser.add_argument("--first-seed", type=int, default=0, help="the first seed")
    parser.add_argument("--beta", type=float, default=2.0, help="width of the confidence region")
    parser.add_argument("--at-once", type=int, default=1, help="seeds per batch")
    parser.add_argument("--horizon", type=int, default=100, help="steps of the swing-up")
    parser.add_argument("--out", type=Path, default=Path("docs/robust.png"), help="file to write")
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    settings = Settings(options.beta, options.horizon)
    draw(complete_table(options.out.with_suffix(".csv"), seeds, options.at_once, settings), settings, options.out)


if __name__ == "__main__":
    main()
