"""Draw docs/fetch-play.png: what free play of `fetch-construction-lite` does, and what is left to learn, round by round.

    python scripts/draw_fetch_play.py [--seeds 3] [--first-seed 0] [--out docs/fetch-play.png]

The model is judged on rollouts that no method has seen: of random actions, and others in which a script perturbations blocks about.
Values are kept in a .csv beside the picture; seeds that are there are not run again. Some minutes per seed and method.
"""

import argparse
import csv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
from matplotlib.figure import Figure

from sonde import preset
from sonde._internal.precision import double_precision
from sonde.evaluation._metrics import predict_many
from sonde.explorer import Explorer
from sonde.runs._run import build_explorer, episode_metrics, experiment
from sonde.runs.figures._curves import LOOKS, STYLE, save_figure
from sonde.worlds import FetchConstruction
from sonde.worlds._base import Transitions
from sonde.worlds.fetch._layout import REST_HEIGHT, block_positions, grip_position

METHODS = ("opax-heuristic", "cee-us", "random")
PLAYS = ("random", "perturbed")
COLUMNS = ("method", "seed", "round", "moving", *(f"{what} {play}" for play in PLAYS for what in ("uncertainty", "error")))
ROLLOUTS, STEPS, FIRST_START = 20, 25, 10_000


def held_out(world: FetchConstruction, play: str) -> Transitions:
    """Transitions that no run sees: under random actions, or while the closed fingers perturbation a block about, unsteadily."""
    rng, copies = np.random.default_rng(0), world.open(ROLLOUTS)
    x, rows = copies.reset(range(FIRST_START, FIRST_START + ROLLOUTS)), []
    for _ in range(STEPS):
        u = rng.uniform(-1.0, 1.0, (ROLLOUTS, world.action_dim))
        if play == "perturbed":
            blocks = block_positions(x)[np.arange(ROLLOUTS), np.arange(ROLLOUTS) % world.blocks]
            way = np.append(blocks[:, :2], np.full((ROLLOUTS, 1), REST_HEIGHT + 0.02), axis=1) - grip_position(x)
            u[:, :3] = np.clip(20 * way + 0.5 * u[:, :3], -1.0, 1.0)
            u[:, 3] = -1.0
        rows.append((x, u, copies.step(u).next_states))
        x = rows[-1][-1]
    copies.close()
    return Transitions(*(np.concatenate(column) for column in zip(*rows, strict=True)))


@double_precision
def judged(explorer: Explorer, points: Transitions) -> np.ndarray:
    """Means over the points of the norms of the epistemic std and of the error, for each run [S, 2]."""
    states, actions = jnp.asarray(points.states), jnp.asarray(points.actions)
    prediction = jax.vmap(lambda posterior: predict_many(posterior, states, actions))(explorer.posterior)
    of_each = (np.asarray(prediction.epistemic_std), points.next_states - np.asarray(prediction.mean))
    return np.stack([np.linalg.norm(part, axis=-1).mean(axis=-1) for part in of_each], axis=-1)


def play_all(method: str, first_seed: int, seeds: int) -> Iterator[tuple]:
    """All rounds of a method, as rows of the table."""
    config = replace(preset("fetch-construction-lite"), method=method, first_seed=first_seed, seeds=seeds)
    world = config.world
    assert isinstance(world, FetchConstruction)
    explorer, sets = build_explorer(config), [held_out(world, play) for play in PLAYS]
    while explorer.episode < config.episodes:
        trajectory = experiment(config, explorer)[1]
        moving = episode_metrics(world, trajectory)["interaction/moving"]
        explorer.tell(trajectory)
        found = np.concatenate([moving[:, None], *(judged(explorer, points) for points in sets)], axis=1)
        for seed, values in zip(explorer.seeds, found, strict=True):
            yield method, seed, explorer.episode, *(round(float(value), 4) for value in values)


def collect(path: Path, seeds: range) -> dict[str, np.ndarray]:
    """Of each method the values [seeds, rounds, columns], run where they are missing."""
    if not path.exists():
        path.write_text(",".join(COLUMNS) + "\n")
    read = lambda: [row for row in csv.DictReader(path.open()) if int(row["seed"]) in seeds]
    for method in METHODS:
        missing = sorted(set(seeds) - {int(row["seed"]) for row in read() if row["method"] == method})
        if missing:
            rows = list(play_all(method, missing[0], len(missing)))
            with path.open("a") as file:
                csv.writer(file, lineterminator="\n").writerows(rows)
    of_run = lambda method, seed: [row for row in read() if row["method"] == method and int(row["seed"]) == seed]
    numbers = lambda rows: [[float(row[name]) for name in COLUMNS[3:]] for row in rows]
    return {method: np.array([numbers(of_run(method, seed)) for seed in seeds]) for method in METHODS}


def draw(values: dict[str, np.ndarray], out: Path) -> None:
    """How often blocks move, and what the model makes of blocks that are perturbed; means over seeds, with standard errors."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(9, 3.9), layout="constrained")
        often, known = figure.subplots(1, 2)
        for method, found in values.items():
            colour, marker = LOOKS[method]
            rounds, mean = np.arange(1, found.shape[1] + 1), found.mean(axis=0)
            error = found.std(axis=0, ddof=1) / np.sqrt(len(found))
            for ax, column, style in ((often, 0, "-"), (known, 3, "-"), (known, 4, ":")):
                ax.plot(rounds, mean[:, column], style, color=colour, marker=marker, label=method)
                low, high = mean[:, column] - error[:, column], mean[:, column] + error[:, column]
                ax.fill_between(rounds, low, high, color=colour, alpha=0.15, linewidth=0)
        often.set(title="share of steps in which a block moves", xlabel="round", ylim=(0, None))
        known.set(title="perturbed blocks: uncertainty (lines), error (dots)", xlabel="round", yscale="log")
        figure.legend(*often.get_legend_handles_labels(), loc="outside lower center", ncols=len(values))
        save_figure(figure, out, colours=64)


def main() -> None:
    """Play, judge, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("docs/fetch-play.png"))
    chosen = parser.parse_args()
    seeds = range(chosen.first_seed, chosen.first_seed + chosen.seeds)
    values = collect(chosen.out.with_suffix(".csv"), seeds)
    for method, found in values.items():
        print(method, "moving, mean over rounds, of each seed:", found[:, :, 0].mean(axis=1).round(4))
        print("  last round:", dict(zip(COLUMNS[3:], found[:, -1].mean(axis=0).round(4), strict=True)))
    draw(values, chosen.out)


if __name__ == "__main__":
    main()
