"""Draw docs/robust.png: what plans promise after two episodes on the pendulum, and what they bring.

    python scripts/draw_robust.py [--seeds 40] [--first-seed 0] [--at-once 1] [--beta 2] [--horizon 100] [--out docs/robust.png]

Each seed explores two episodes (pendulum-gp-lite), then swings up twice: by a plan on the model's mean and by a robust one.
Both are also run on the model, against adversaries: their guaranteed values. Values are kept in a .csv beside the picture; seeds
that are there are not run again. On one core 100 steps of a seed take a minute or so; on a GPU take all seeds at once.
"""

import argparse
import csv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import ScalarFormatter

from sonde import evaluate, preset, rollout
from sonde.imagination import Pessimistic
from sonde.runs._run import build_explorer
from sonde.runs.figures._curves import STYLE

EPISODES, TASK = 2, "swing-up"
COLUMNS = ("seed", "plan", "nominal", "guaranteed", "true system")
LOOKS = {  # how points and lines look; the robust plan may be the plain one, so its points leave room for the other's
    "plain": ({"s": 20, "marker": "o", "facecolors": "#C04800", "edgecolors": "#C04800", "linewidths": 0}, 3),
    "robust": ({"s": 60, "marker": "s", "facecolors": "none", "edgecolors": "#0072B2", "linewidths": 1.2}, 1.5),
}


def values_of(seeds: list[int], beta: float, horizon: int) -> Iterator[tuple]:
    """What both plans are worth, as rows of the table; the seeds follow each other."""
    config = replace(preset("pendulum-gp-lite"), rounds=EPISODES, first_seed=seeds[0], seeds=len(seeds))
    explorer = build_explorer(config)
    for _ in range(EPISODES):
        explorer.tell(rollout(config.world, explorer.ask(), config.horizon))
    found = None
    for plan in LOOKS:
        arguments = (config.world, explorer.posterior, TASK, config.solver, horizon, explorer.keys(), explorer.data)
        found = evaluate(*arguments, adversary=Pessimistic(beta=beta), robust=plan == "robust", plain=found)
        for i, seed in enumerate(seeds):
            values = found.promised.nominal, found.promised.guaranteed, found.returns
            yield seed, plan, *(round(float(value[i]), 3) for value in values)


def collect(path: Path, seeds: range, at_once: int, beta: float, horizon: int) -> list[dict[str, str]]:
    """The rows of all seeds, run where they are missing."""
    if not path.exists():
        path.write_text(",".join(COLUMNS) + "\n")
    read = lambda: list(csv.DictReader(path.open()))
    for start in seeds[::at_once]:
        some = list(range(start, min(start + at_once, seeds.stop)))
        if {row["seed"] for row in read()}.isdisjoint(map(str, some)):
            rows = list(values_of(some, beta, horizon))
            with path.open("a") as file:
                csv.writer(file, lineterminator="\n").writerows(rows)
            print(*rows, sep="\n", flush=True)
    return [row for row in read() if int(row["seed"]) in seeds]


def draw(rows: list[dict[str, str]], beta: float, horizon: int, out: Path) -> None:
    """Left, by how much each promise was kept; right, how the guarantees are spread."""
    of_plan = lambda plan: np.array([[float(row[name]) for name in COLUMNS[2:]] for row in rows if row["plan"] == plan])
    columns = {plan: of_plan(plan) for plan in LOOKS}
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(9.5, 4.2), layout="constrained")
        scatter, spread = figure.subplots(1, 2, width_ratios=[1.3, 1])
        for plan, values in columns.items():
            look, width = LOOKS[plan]
            _, guaranteed, true = values.T
            kept = f"{plan} plan: kept in {np.sum(true >= guaranteed)} of {len(true)}"
            print(
                f"{kept}; lowest guaranteed {guaranteed.min():.0f}, lowest true {true.min():.0f}; means", *values.mean(axis=0)
            )
            scatter.scatter(guaranteed, true - guaranteed, label=kept, **look)
            share = np.arange(1, len(true) + 1) / len(true)
            spread.step(
                np.sort(guaranteed), share, where="post", color=look["edgecolors"], linewidth=width, label=f"{plan} plan"
            )
        scatter.axhline(0, color="#888888", linewidth=1, zorder=0)
        scatter.set_yscale("symlog", linthresh=1, linscale=0.5)  # promises are kept by a hair or by hundreds
        scatter.yaxis.set_major_formatter(ScalarFormatter())
        low, high = scatter.get_ylim()
        scatter.set(xlabel="guaranteed return", ylabel="true system, above the guarantee", ylim=(min(low, -20), 2 * high))
        scatter.set_title("What came, beyond what was promised")
        spread.set(xlabel="guaranteed return", ylabel="share of the runs at or below", ylim=(0, 1.02))
        spread.set_title("The worst case that the model knows")
        for ax, place in ((scatter, "lower left"), (spread, "upper left")):
            ax.legend(frameon=False, loc=place)
        seeds = len(columns["plain"])
        title = f"Swing-up, {horizon} steps, after {EPISODES} episodes of 100 steps: {seeds} seeds, beta = {beta:g}"
        figure.suptitle(title, fontsize=10)
        figure.savefig(out, dpi=150)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--beta", type=float, default=2.0)
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--horizon", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path("docs/robust.png"))
    chosen = parser.parse_args()
    seeds = range(chosen.first_seed, chosen.first_seed + chosen.seeds)
    table = collect(chosen.out.with_suffix(".csv"), seeds, chosen.at_once, chosen.beta, chosen.horizon)
    draw(table, chosen.beta, chosen.horizon, chosen.out)
