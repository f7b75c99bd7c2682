"""Does the information gain prefer the points where the model errs?

    python -m experiments.scripts.information_rank
    python -m experiments.scripts.information_rank --noises given learned recalibrated --seeds 0 1 2 3 4

A model learns from transitions of random actions, in one fit, with as many gradient steps as the preset's.
Then the error of its mean is compared with its information gain, point by point: on the points that it has learned from
(visited), on further rollouts of the same kind (new), and on the world's reachable set. The error of a point is the root mean
square over state dimensions, in stds of the measured changes of each.

given         the preset as it is: the noise is given
learned       a noise head, no holdout
recalibrated  a noise head, a fifth held out, recalibrated

A line of the output is one seed of one model; then follow means over seeds as rows of a Markdown table.
"""

import argparse
import functools
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from sonde._internal.blocks import in_blocks
from sonde._internal.precision import double_precision
from sonde.control import RolloutSettings, SimulatorPool, run_rollouts
from sonde.data import Trajectory
from sonde.evaluation._metrics import _predict_rounds, rank_correlation
from sonde.explorer import Explorer
from sonde.methods import METHODS
from sonde.models import Confidence, Posterior, ProbabilisticEnsemble
from sonde.runs import RunConfig, preset

NEW_POINTS = 2000
CALIBRATED = Confidence(holdout=0.2, recalibrate=True)
NOISES = ("given", "learned", "recalibrated")


class Agreement(NamedTuple):
    """How well the promised uncertainty of some points goes with their errors."""

    error: float
    """Root mean square error, in stds of the measured changes."""
    overconfidence: float
    """The same over the root mean square epistemic std."""
    rank: float
    """Spearman's correlation of error and information gain."""


def with_noise(config: RunConfig, noise: str) -> RunConfig:
    """A config whose ensemble treats the noise in one of the ways of `NOISES`.

    Args:
        config: A config with an ensemble whose noise is given.
        noise: How.
    """
    if noise == "given":
        return config
    assert isinstance(config.model, ProbabilisticEnsemble)
    confidence = CALIBRATED if noise == "recalibrated" else config.confidence
    return replace(config, model=replace(config.model, noise="learned"), confidence=confidence)


def learned_from_random(
    config: RunConfig, seed: int, points: int, pool: SimulatorPool
) -> tuple[Explorer, Trajectory, Trajectory]:
    """Fit a model to random transitions.

    Args:
        config: World, horizon of the rollouts, model and confidence.
        seed: Seed of actions, starts and fit.
        points: Number of transitions, in whole rollouts.
        pool: Simulators to reuse.

    Returns:
        The explorer, its measurements, and new ones that it was not told.
    """
    explorer = Explorer(
        METHODS["random"],
        config.model,
        config.solver,
        config.world.spec,
        capacity=points,
        seeds=[seed],
        confidence=config.confidence,
    )
    told, new = points // config.horizon, -(-NEW_POINTS // config.horizon)
    rollouts = run_rollouts(config.world, explorer.ask(), RolloutSettings(config.horizon, told + new), pool=pool)
    visited = rollouts[0].joined(*rollouts[1:told])
    explorer.tell(visited)
    return explorer, visited, rollouts[told].joined(*rollouts[told + 1 :])


@double_precision
def agreement(posterior: Posterior, points: Trajectory, spread: np.ndarray) -> Agreement:
    """Compare errors with promises.

    Args:
        posterior: What was learned, with a leading axis of one seed.
        points: Transitions [1, N, ...].
        spread: Std of the measured changes [dx].
    """
    predicted = in_blocks(functools.partial(_predict_rounds, posterior), points.states, points.actions)
    errors, stds = (predicted.mean - points.next_states) / spread, predicted.epistemic_std / spread
    error, promised = (float(np.sqrt(np.mean(values**2))) for values in (errors, stds))
    each = np.sqrt(np.mean(errors**2, axis=-1))
    return Agreement(error, error / promised, rank_correlation(each[0], predicted.information[0]))


def measurements(config: RunConfig, seed: int, points: int, pool: SimulatorPool) -> Iterator[tuple[str, Agreement]]:
    """The agreement on visited points, new ones, and the reachable set, if it is known.

    Args:
        config: As for `learned_from_random`.
        seed: Its seed.
        points: Number of transitions.
        pool: Simulators to reuse.
    """
    explorer, visited, new = learned_from_random(config, seed, points, pool)
    spread = np.std(visited.next_states - visited.states, axis=(0, 1))
    sets = {"visited": visited, "new": new}
    if (reachable := config.world.reachable()) is not None:
        sets["reachable"] = Trajectory(*(np.asarray(column)[None] for column in reachable))
    for name, points_of in sets.items():
        yield name, agreement(explorer.posterior, points_of, spread)


def main() -> None:
    """Fit, compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="cheetah")
    parser.add_argument("--points", type=int, default=10_000)
    parser.add_argument("--max-steps", type=int, help="gradient steps at most, instead of the preset's")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--noises", nargs="+", choices=NOISES, default=["given", "learned"])
    args = parser.parse_args()
    base = preset(args.preset)
    assert isinstance(base.model, ProbabilisticEnsemble)
    if args.max_steps:
        base = replace(base, model=replace(base.model, max_steps=args.max_steps))
    found: dict[tuple[str, str], list[Agreement]] = {}
    with SimulatorPool() as pool:
        for noise in args.noises:
            for seed in args.seeds:
                began = time.process_time()
                for where, values in measurements(with_noise(base, noise), seed, args.points, pool):
                    found.setdefault((noise, where), []).append(values)
                    words = (
                        f"error {values.error:.4f}  error / epistemic std {values.overconfidence:.2f}  rank {values.rank:+.3f}"
                    )
                    print(f"{noise}  seed {seed}  {where}: {words}", flush=True)
                print(f"{noise}  seed {seed}: {time.process_time() - began:.0f} CPU-seconds", flush=True)
    for (noise, where), rows in found.items():
        mean, ranks = Agreement(*np.mean(rows, axis=0)), ", ".join(f"{row.rank:+.2f}" for row in rows)
        print(f"| {noise} | {where} | {mean.error:.4f} | {mean.overconfidence:.2f} | {ranks} |")


if __name__ == "__main__":
    main()
