"""What forgetting and an alarm are worth when a system changes, and exploration without resets.

    python -m experiments.scripts.drift change --memory alarm 400 --seeds 10 --out changed.json
    python -m experiments.scripts.drift change --settings short --memory 200 all --seeds 10 --out short.json
    python -m experiments.scripts.drift ongoing --rounds 4 --seeds 5 --out ongoing.json

`change` explores the pendulum, whose mass doubles after round 3. For each memory (`all` measurements, those since the last
`alarm`, or a window of some) it prints after each round the statistic of the alarm and the score of the swing-up: 0 is the
return of random actions, 1 that of a planner that knows the equations as they are now. Without a window it also goes on with
the system as it was. `ongoing` explores with and without resets, and resumes runs without resets on the equations and on
Gymnasium's pendulum, which must give the same bits.
"""

import argparse
import copy
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.short_plans import SHORT_PLANS
from sonde._internal.precision import double_precision
from sonde._internal.randomness import round_keys
from sonde.control import rollout
from sonde.evaluation import Learned, TaskSetup, TrueDynamics, evaluate, normalised_score
from sonde.evaluation._metrics import prediction_errors
from sonde.explorer import Explorer
from sonde.models import Confidence, GaussianProcess
from sonde.models._drift import CHANGED
from sonde.runs import RunConfig, explore, preset
from sonde.runs._run import build_explorer, run
from sonde.runs._store import RunStore
from sonde.solvers import ICEM
from sonde.worlds import GymWorld, Pendulum

Returns = tuple[np.ndarray, np.ndarray]
"""Returns of random actions and of the oracle [S]."""
SETTINGS = {
    "long": replace(preset("pendulum-gp-lite"), model=GaussianProcess(noise_floor=0.01), horizon=200),
    "short": SHORT_PLANS,
}
"""long: rounds as long as Gymnasium's episodes, plans of 60 steps and the default model; short: 100 steps, plans of 20."""
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
    assert isinstance(config.solver, ICEM)
    solver = replace(config.solver, replan_every=1)  # also where exploration carries out several steps of a plan
    setup = TaskSetup.named(world, "swing-up", solver, config.evaluation_horizon)
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
def go_on(explorer: Explorer, config: RunConfig, rounds: range, world: Pendulum, reference: Returns | None) -> list[dict]:
    """Some rounds on a system.

    Args:
        explorer: The explorer, which is told them.
        config: The run.
        rounds: Their numbers.
        world: The system.
        reference: Returns of random actions and of the oracle on it; None to evaluate nothing.

    Returns:
        For each round the alarm's statistic, and with a reference returns and scores, by seed.
    """
    found = []
    for number in rounds:
        statistic = alarms(explorer, config, world)
        memory = memory_of(explorer.confidence)
        row: dict[str, Any] = {"round": number, "mass": world.mass, "memory": memory, "drift": statistic.tolist()}
        row["forgotten"] = explorer.forgotten.tolist()
        line = f"mass {world.mass:g}, memory {memory}, round {number}: drift {np.round(statistic, 2)}"
        if reference is not None:
            returns = swing_up(config, world, Learned(explorer.posterior, explorer.recent), number)
            scores = normalised_score(returns, *reference)
            row |= {"return": returns.tolist(), "score": scores.tolist()}
            line += f"; scores {np.round(scores, 2)}, back in {np.sum(scores >= SOLVED)}"
        found.append(row)
        print(f"{line}; rings in {np.sum(statistic > CHANGED)}", flush=True)
    return found


def confidence_of(memory: str) -> Confidence:
    """The settings of a memory: all, alarm, or the size of a window.

    Args:
        memory: Its name.
    """
    return Confidence(forget_at_alarm=memory == "alarm", window=int(memory) if memory.isdigit() else None)


def memory_of(confidence: Confidence) -> str:
    """The name of a memory.

    Args:
        confidence: Its settings.
    """
    return "alarm" if confidence.forget_at_alarm else str(confidence.window or "all")


def change(args: argparse.Namespace) -> dict[str, Any]:
    """Runs in which the mass changes, with each memory, and without a window also the run in which it does not.

    Args:
        args: Arguments of the command line.
    """
    config = replace(SETTINGS[args.settings], rounds=args.rounds, seeds=args.seeds, first_seed=args.first_seed)
    before, after, references = Pendulum(), Pendulum(mass=args.mass), {}
    for world in (before, after):
        oracle, random = (swing_up(config, world, each, 1) for each in (Learned(TrueDynamics(world)), None))
        references[world.mass] = random, oracle
        print(f"mass {world.mass:g}: oracle {np.round(oracle)}, random {np.round(random)}", flush=True)
    rows, rest = [], range(CHANGES_AFTER + 1, config.rounds + 1)
    for memory in args.memory:
        explorer = build_explorer(replace(config, confidence=confidence_of(memory)))
        rows += go_on(explorer, config, range(1, CHANGES_AFTER), before, None)
        rows += go_on(explorer, config, range(CHANGES_AFTER, CHANGES_AFTER + 1), before, references[before.mass])
        undisturbed = copy.copy(explorer)  # of which a round replaces what it changes
        rows += go_on(explorer, config, rest[: args.rounds_after], after, references[after.mass])
        if not memory.isdigit():
            rows += go_on(undisturbed, config, rest, before, None)
    kept = {mass: [each.tolist() for each in returns] for mass, returns in references.items()}
    return {"seeds": config.seed_list, "references": kept, "rounds": rows}


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
    config = replace(SHORT_PLANS, rounds=args.rounds, seeds=args.seeds, first_seed=args.first_seed)
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
    parser.add_argument("--settings", choices=tuple(SETTINGS), default="long")
    parser.add_argument("--memory", nargs="+", default=["alarm"], help="all, alarm, or numbers of measurements")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--rounds-after", type=int, default=2, help="rounds on the changed system")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    found = change(args) if args.what == "change" else ongoing(args)
    args.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
