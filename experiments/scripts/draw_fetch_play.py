"""Draw docs/fetch-play.png: how free play of `fetch-construction-lite` moves blocks, and how well models know them, by round.

    python -m experiments.scripts.draw_fetch_play [--seeds 3] [--first-seed 0] [--out docs/fetch-play.png]

Models are tested on rollouts that no method has seen: of random actions, and of a script that pushes blocks around. Values are
kept in a .csv beside the figure; seeds that it has are not run again. Takes some minutes per seed and method.
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

from sonde._internal.precision import double_precision
from sonde.control import SimulatorPool
from sonde.explorer import Explorer
from sonde.models._base import predict_many
from sonde.runs import preset
from sonde.runs._round_metrics import episode_metrics
from sonde.runs._run import build_explorer, collect
from sonde.runs.figures import LOOKS, STYLE, save_figure
from sonde.worlds import FetchConstruction, Transitions
from sonde.worlds.fetch._layout import REST_HEIGHT, block_positions, grip_position

METHODS = ("opax-heuristic", "cee-us", "random")
PLAYS = ("random", "pushed")
COLUMNS = ("method", "seed", "round", "moving", *(f"{what} {play}" for play in PLAYS for what in ("uncertainty", "error")))
ROLLOUTS, STEPS, FIRST_START = 20, 25, 10_000


def test_transitions(world: FetchConstruction, play: str) -> Transitions:
    """Collect transitions that no run sees.

    Args:
        world: The Fetch scene.
        play: "random" for random actions, "pushed" for a script whose closed fingers push a block around.
    """
    rng, copies = np.random.default_rng(0), world.open(ROLLOUTS)
    x, rows = copies.reset(range(FIRST_START, FIRST_START + ROLLOUTS)), []
    for _ in range(STEPS):
        u = rng.uniform(-1.0, 1.0, (ROLLOUTS, world.action_dim))
        if play == "pushed":
            blocks = block_positions(x)[np.arange(ROLLOUTS), np.arange(ROLLOUTS) % world.blocks]
            offset = np.append(blocks[:, :2], np.full((ROLLOUTS, 1), REST_HEIGHT + 0.02), axis=1) - grip_position(x)
            u[:, :3] = np.clip(20 * offset + 0.5 * u[:, :3], -1.0, 1.0)
            u[:, 3] = -1.0
        rows.append((x, u, copies.step(u).next_states))
        x = rows[-1][-1]
    copies.close()
    return Transitions(*(np.concatenate(column) for column in zip(*rows, strict=True)))


@double_precision
def uncertainty_and_error(explorer: Explorer, points: Transitions) -> np.ndarray:
    """Test what an explorer has learned.

    Args:
        explorer: The explorer.
        points: Transitions to test on.

    Returns:
        Mean norms of the epistemic std and of the error over the points, for each seed [S, 2].
    """
    states, actions = jnp.asarray(points.states), jnp.asarray(points.actions)
    prediction = jax.vmap(lambda posterior: predict_many(posterior, states, actions))(explorer.posterior)
    parts = (np.asarray(prediction.epistemic_std), points.next_states - np.asarray(prediction.mean))
    return np.stack([np.linalg.norm(part, axis=-1).mean(axis=-1) for part in parts], axis=-1)


def explore(method: str, first_seed: int, seeds: int) -> Iterator[tuple]:
    """Run all rounds of a method.

    Args:
        method: Name of the method.
        first_seed: The first seed.
        seeds: Number of seeds.

    Yields:
        Rows of the table, for each round and seed.
    """
    config = replace(preset("fetch-construction-lite").with_method(method), first_seed=first_seed, seeds=seeds)
    world = config.world
    assert isinstance(world, FetchConstruction)
    explorer, sets = build_explorer(config), [test_transitions(world, play) for play in PLAYS]
    with SimulatorPool() as pool:
        while explorer.round < config.rounds:
            trajectory = collect(config, explorer, pool)[1]
            moving = episode_metrics(world, trajectory)["interaction/moving"]
            explorer.tell(trajectory)
            tested = [uncertainty_and_error(explorer, points) for points in sets]
            for seed, values in zip(explorer.seeds, np.concatenate([moving[:, None], *tested], axis=1), strict=True):
                yield method, seed, explorer.round, *(round(float(value), 4) for value in values)


def values_by_method(path: Path, seeds: range) -> dict[str, np.ndarray]:
    """Read the table, after running the seeds that it does not have.

    Args:
        path: The table, a .csv.
        seeds: The seeds to read.

    Returns:
        Values [seeds, rounds, columns] by method.
    """
    if not path.exists():
        path.write_text(",".join(COLUMNS) + "\n")
    read = lambda: [row for row in csv.DictReader(path.open()) if int(row["seed"]) in seeds]
    for method in METHODS:
        missing = sorted(set(seeds) - {int(row["seed"]) for row in read() if row["method"] == method})
        if missing:
            rows = list(explore(method, missing[0], len(missing)))
            with path.open("a") as file:
                csv.writer(file, lineterminator="\n").writerows(rows)
    rows_of = lambda method, seed: [row for row in read() if row["method"] == method and int(row["seed"]) == seed]
    numbers = lambda rows: [[float(row[name]) for name in COLUMNS[3:]] for row in rows]
    return {method: np.array([numbers(rows_of(method, seed)) for seed in seeds]) for method in METHODS}


def draw(values: dict[str, np.ndarray], out: Path) -> None:
    """Draw how often blocks move, and how well models know pushed blocks; means over seeds with standard errors.

    Args:
        values: Values [seeds, rounds, columns] by method.
        out: File to write.
    """
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(9, 3.9), layout="constrained")
        moving, tested = figure.subplots(1, 2)
        for method, found in values.items():
            colour, marker = LOOKS[method]
            rounds, mean = np.arange(1, found.shape[1] + 1), found.mean(axis=0)
            error = found.std(axis=0, ddof=1) / np.sqrt(len(found))
            for ax, column, style in ((moving, 0, "-"), (tested, 3, "-"), (tested, 4, ":")):
                ax.plot(rounds, mean[:, column], style, color=colour, marker=marker, label=method)
                low, high = mean[:, column] - error[:, column], mean[:, column] + error[:, column]
                ax.fill_between(rounds, low, high, color=colour, alpha=0.15, linewidth=0)
        moving.set(title="share of steps in which a block moves", xlabel="round", ylim=(0, None))
        tested.set(title="pushed blocks: uncertainty (lines), error (dots)", xlabel="round", yscale="log")
        figure.legend(*moving.get_legend_handles_labels(), loc="outside lower center", ncols=len(values))
        save_figure(figure, out, colours=64)


def main() -> None:
    """Run what is missing, print a summary, and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds")
    parser.add_argument("--first-seed", type=int, default=0, help="the first seed")
    parser.add_argument("--out", type=Path, default=Path("docs/fetch-play.png"), help="file to write")
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    values = values_by_method(options.out.with_suffix(".csv"), seeds)
    for method, found in values.items():
        print(method, "moving, mean over rounds, of each seed:", found[:, :, 0].mean(axis=1).round(4))
        print("  last round:", dict(zip(COLUMNS[3:], found[:, -1].mean(axis=0).round(4), strict=True)))
    draw(values, options.out)


if __name__ == "__main__":
    main()
