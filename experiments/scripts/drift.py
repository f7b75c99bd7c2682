"""What a window and an alarm are worth when a system changes, and exploration without resets.

    python -m experiments.scripts.drift change --mass 2 --windows 0 200 --seeds 10 --out changed.json
    python -m experiments.scripts.drift change --mass 1 --windows 0 --seeds 10 --rounds 6 --out undisturbed.json
    python -m experiments.scripts.drift ongoing --seeds 5 --out ongoing.json

`change` explores the pendulum; after round 3 its mass is another one. For each window (0: none) it prints, after each round, in
which seeds the alarm rings and the return of the swing-up, on a scale from 0 (random actions) to 1 (a planner that knows the
equations as they are now). With a mass of 1 nothing changes. `ongoing` explores with and without resets, and resumes runs
without resets on the equations and on Gymnasium's pendulum, which must give the same bits.
"""

import argparse
import json
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from sonde._internal.precision import double_precision
from sonde._internal.randomness import round_keys
from sonde.control import rollout
from sonde.evaluation import Learned, TaskSetup, TrueDynamics, evaluate, normalised_score
from sonde.evaluation._drift import CHANGED
from sonde.evaluation._metrics import prediction_errors
from sonde.explorer import Explorer
from sonde.models import Confidence
from sonde.runs import RunConfig, explore, preset
from sonde.runs._run import build_explorer, run
from sonde.runs._store import RunStore
from sonde.worlds import GymWorld, Pendulum

CHANGES_AFTER = 3
"""The last round on the old system."""
SOLVED = 0.9
"""Score from which the return is back."""


def swing_up(config: RunConfig, world: Pendulum, learned: Learned | None, round_number: int) -> np.ndarray:
    """Return of the swing-up on a system [S].

    Args:
        config: Planner and seeds.
        world: The system.
        learned: What the planner knows; None for random actions.
        round_number: The round that the random numbers are of.
    """
    setup = TaskSetup.named(world, "swing-up", config.solver, config.evaluation_horizon)
    keys, starts = (round_keys(config.seed_list, number) for number in (round_number, 0))
    return evaluate(setup, learned, keys, starts=starts).returns


def alarms(explorer: Explorer, config: RunConfig, world: Pendulum) -> np.ndarray:
    """One round on a system: the statistic of the alarm [S], before the round is learned from.

    Args:
        explorer: The explorer, which is told the round.
        config: The length of the round.
        world: The system as it is now.
    """
    trajectory, before = rollout(world, explorer.ask(), config.horizon), explorer.posterior
    found = prediction_errors(before, trajectory.states, trajectory.actions, trajectory.next_states)["drift"]
    first = explorer.transitions == 0
    explorer.tell(trajectory)
    return np.full(explorer.num_seeds, np.nan) if first else found


@double_precision
def changing(config: RunConfig, mass: float, references: Mapping[float, tuple[np.ndarray, np.ndarray]]) -> dict[str, Any]:
    """Explore a pendulum whose mass becomes another one.

    Args:
        config: The run.
        mass: The mass after the change.
        references: Returns of random actions and of the oracle, by mass; empty to evaluate nothing.

    Returns:
        The alarm's statistic and scores, by round and seed.
    """
    explorer = build_explorer(config)
    window = config.confidence.window
    found: dict[str, Any] = {"window": window, "drift": {}, "score": {}, "return": {}}
    for number in range(1, config.rounds + 1):
        world = Pendulum(mass=1.0 if number <= CHANGES_AFTER else mass)
        statistic = alarms(explorer, config, world)
        found["drift"][number] = statistic.tolist()
        line = f"window {window}, round {number}: drift {np.round(statistic, 1)}, rings in {np.sum(statistic > CHANGED)}"
        if references and number >= CHANGES_AFTER:
            returns = swing_up(config, world, Learned(explorer.posterior, explorer.recent), number)
            random, oracle = references[world.mass]
            scores = normalised_score(returns, random, oracle)
            found["return"][number], found["score"][number] = returns.tolist(), scores.tolist()
            line += f"; scores {np.round(scores, 2)}, back in {np.sum(scores >= SOLVED)}"
        print(line, flush=True)
    return found


def change(args: argparse.Namespace) -> dict[str, Any]:
    """The run with each window.

    Args:
        args: Arguments of the command line.
    """
    config = replace(preset("pendulum-gp-lite"), rounds=args.rounds, seeds=args.seeds, first_seed=args.first_seed)
    references = {}
    for mass in dict.fromkeys((1.0, args.mass)) if args.mass != 1 else ():
        world = Pendulum(mass=mass)
        oracle = swing_up(config, world, Learned(TrueDynamics(world)), 1)
        references[mass] = swing_up(config, world, None, 1), oracle
        print(f"mass {mass:g}: oracle {np.round(oracle)}, random {np.round(references[mass][0])}", flush=True)
    runs = [
        changing(replace(config, confidence=Confidence(window=window or None)), args.mass, references)
        for window in args.windows
    ]
    kept = {mass: [each.tolist() for each in returns] for mass, returns in references.items()}
    return {"seeds": config.seed_list, "mass": args.mass, "references": kept, "runs": runs}


def resumed_alike(config: RunConfig, folder: Path) -> bool:
    """Whether a run that is resumed from its second round ends with the same bits.

    Args:
        config: The run.
        folder: A folder for it.
    """
    whole = explore(config, folder)
    again = run(RunStore.open(folder), from_round=2)
    parts = [jax.tree.leaves((each.data, each.params)) for each in (whole, again)]
    return all(np.array_equal(one, other) for one, other in zip(*parts, strict=True))


def ongoing(args: argparse.Namespace) -> dict[str, Any]:
    """Runs with and without resets.

    Args:
        args: Arguments of the command line.
    """
    config = replace(preset("pendulum-gp-lite"), rounds=args.rounds, seeds=args.seeds, first_seed=args.first_seed)
    config = replace(config, evaluation_tasks=("swing-up",))
    small = replace(config, rounds=3, horizon=40, seeds=2, evaluate_every=0, reset=False)
    found: dict[str, Any] = {"seeds": config.seed_list}
    with tempfile.TemporaryDirectory() as folder:
        for name, world in (("jax", Pendulum()), ("gymnasium", GymWorld("Pendulum-v1"))):
            found[f"resumed/{name}"] = resumed_alike(replace(small, world=world, evaluation_tasks=()), Path(folder) / name)
            print(f"resumed bit for bit on {name}: {found[f'resumed/{name}']}", flush=True)
        for reset in (False, True):
            path = Path(folder) / f"reset-{reset}"
            explore(replace(config, reset=reset), path)
            rows = RunStore.open(path).load_metrics()
            for key in ("return/swing-up", "model_rmse", "max_epistemic_common", "drift"):
                table = [[row[key] for row in rows if row["round"] == number] for number in range(1, config.rounds + 1)]
                found[f"{key}, {'with' if reset else 'without'} resets"] = table
                print(f"{key}, {'with' if reset else 'without'} resets: {table}", flush=True)
    return found


def main() -> None:
    """Run what the command line asks for, and write it to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("change", "ongoing"))
    parser.add_argument("--mass", type=float, default=2.0)
    parser.add_argument("--windows", type=int, nargs="+", default=[0, 200])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    found = change(args) if args.what == "change" else ongoing(args)
    args.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
