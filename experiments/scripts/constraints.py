"""Exploration of the pendulum with |speed| <= 5, against exploration without: violations, information, and the task.

    python -m experiments.scripts.constraints --out build/constraints                 # all cases, seeds 0 to 9
    python -m experiments.scripts.constraints --cases gp gp-free --seeds 4 --first-seed 100 --out build/development
    python -m experiments.scripts.constraints --cases gp --limit 6 --rounds 12 --every 3 --out build/six

All cases plan 20 steps at every step with 50 samples (`--samples`) and 3 iterations. Where no plan is admissible, the pendulum
brakes. Each case is a run in a folder of its own below `--out`; a run that is there is continued. At the end a table is
printed, and `visited.png` shows the states that were visited with the constraint and without.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from experiments.short_plans import SHORT_PLANS
from sonde.evaluation import Learned, TrueDynamics, evaluate
from sonde.evaluation._constraints import constraint_metrics, safety_named
from sonde.models import BETA_RULES, Confidence
from sonde.runs import RunConfig, explore, preset
from sonde.runs._run import build_explorer
from sonde.runs._store import RunStore
from sonde.runs.figures import STYLE
from sonde.solvers import ICEM, SafetySettings
from sonde.worlds import Pendulum

TASK = "swing-up"
SETTINGS = SafetySettings(start="0.3", fallback="brake")
STEPS = 100
PLANNER = ICEM(samples=50, elites=5, iterations=3)
GP, PE = (replace(config, solver=PLANNER) for config in (SHORT_PLANS, preset("pendulum-pe-lite")))
HELD_OUT = Confidence(holdout=0.2, beta_rule=BETA_RULES["held-out"])
CASES: dict[str, RunConfig] = {
    "gp-free": GP,
    "gp": GP,
    "gp-held-out": replace(GP, confidence=HELD_OUT),
    "gp-rkhs": replace(GP, confidence=Confidence(beta_rule=BETA_RULES["rkhs"])),
    "pe-free": PE,
    "pe": PE,
    "pe-held-out": replace(PE, confidence=HELD_OUT),
}
"""Configs by the name of the case, without the constraint, which all have whose name does not end in -free."""


def constraints(limit: float) -> tuple[str, ...]:
    """Names of the constraints.

    Args:
        limit: Largest speed in rad/s.
    """
    return (f"thdot={-limit:g}:{limit:g}",)


def config_of(case: str, given: argparse.Namespace) -> RunConfig:
    """The config of a case.

    Args:
        case: Name of the case.
        given: Arguments of the command line.
    """
    config = replace(CASES[case], rounds=given.rounds, horizon=STEPS, evaluation_tasks=(TASK,), evaluate_every=given.every)
    config = replace(config, seeds=given.seeds, first_seed=given.first_seed, solver=replace(PLANNER, samples=given.samples))
    return config if case.endswith("-free") else replace(config, constraints=constraints(given.limit), safety=SETTINGS)


def summary(store: RunStore, limit: float) -> dict[str, str]:
    """What a finished run is judged by.

    Args:
        store: The run.
        limit: Largest speed in rad/s.
    """
    safety = safety_named(Pendulum(), constraints(limit), SETTINGS)
    rounds = [constraint_metrics(safety, trajectory) for trajectory in store.load_finished()]
    violated = np.array([found["violations"] for found in rounds])[1:]  # [rounds, seeds], after the first round
    deepest = max(float(found["violation_depth/thdot"].max()) for found in rounds[1:])
    rows = store.load_metrics()
    information = np.array([row["realised_information_gain"] for row in rows]).reshape(len(rounds), -1)
    fallback = [row["fallback"] for row in rows if row.get("fallback") is not None]
    evaluated = {row["round"]: [] for row in rows if row.get(f"return/{TASK}") is not None}
    for row in rows:
        if row["round"] in evaluated:
            evaluated[row["round"]].append(row[f"return/{TASK}"])
    in_task = [row[f"task_violations/{TASK}"] for row in rows if row.get(f"task_violations/{TASK}") is not None]
    return {
        "steps that violate [%]": f"{100 * violated.mean():.2f}",
        "deepest [rad/s]": f"{deepest:.2f}",
        "rounds with a violation": f"{(violated > 0).sum()} of {violated.size}",
        "seeds with a violation": f"{(violated > 0).any(axis=0).sum()} of {violated.shape[1]}",
        "steps on the fallback [%]": f"{100 * np.mean(fallback):.1f}" if fallback else "",
        "information after round 1 [nats]": f"{information[1:].sum(axis=0).mean():.0f}",
        "information [nats]": f"{information.sum(axis=0).mean():.0f}",
        "return": ", ".join(f"round {n}: {np.mean(r):.0f} ({min(r):.0f} to {max(r):.0f})" for n, r in evaluated.items()),
        "steps of the task that violate [%]": f"{100 * np.mean(in_task):.2f}" if in_task else "",
    }


def oracle(config: RunConfig) -> str:
    """Return and violations of planning with the true equations and the constraint.

    Args:
        config: A config with the constraint.
    """
    found = evaluate(config.task_setup(TASK), Learned(TrueDynamics(Pendulum())), build_explorer(config).evaluation_keys())
    assert found.violations is not None
    returns = f"{found.returns.mean():.0f} ({found.returns.min():.0f} to {found.returns.max():.0f})"
    return f"oracle with the constraint: return {returns}, violations {100 * found.violations.mean():.2f} %"


def draw(folder: Path, cases: Sequence[str], limit: float) -> Path:
    """Draw the states that were visited after the first round, over all seeds.

    Args:
        folder: Folder of the runs.
        cases: Names of the cases, one panel each.
        limit: Largest speed in rad/s.

    Returns:
        The path of the figure.
    """
    plt.rcParams.update({**STYLE, "figure.dpi": 120})
    columns = min(len(cases), 2)
    shape = -(-len(cases) // columns), columns
    size = 4.2 * columns, 0.4 + 2.9 * shape[0]
    figure, axes = plt.subplots(*shape, figsize=size, sharex=True, sharey=True, layout="constrained", squeeze=False)
    for ax, case in zip(axes.flat, cases, strict=False):
        states = np.concatenate([part.next_states for part in RunStore.open(folder / case).load_finished()[1:]], axis=1)
        ax.axhspan(-limit, limit, color="#EEEEEE", zorder=0)
        ax.scatter(np.arctan2(states[..., 1], states[..., 0]), states[..., 2], s=1, color="#0072B2", rasterized=True)
        limited = "without a constraint" if case.endswith("-free") else f"|speed| <= {limit:g}"
        ax.set(title=f"{case.removesuffix('-free')}, {limited}", xlim=(-np.pi, np.pi), ylim=(-8.5, 8.5))
    for ax in axes[-1]:
        ax.set_xlabel("angle [rad], 0 upright")
    for ax in axes[:, 0]:
        ax.set_ylabel("speed [rad/s]")
    path = folder / "visited.png"
    figure.savefig(path)
    plt.close(figure)
    return path


def main() -> None:
    """Run the cases, print the table, draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=5.0, help="largest speed in rad/s")
    parser.add_argument("--samples", type=int, default=PLANNER.samples, help="plans sampled per iteration")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--every", type=int, default=6, help="rounds between evaluations of the task; 0: none, nor the oracle")
    given = parser.parse_args()
    for case in given.cases:
        explore(config_of(case, given), given.out / case)
        print(case, summary(RunStore.open(given.out / case), given.limit), flush=True)
    if given.every:
        print(oracle(config_of("gp", given)))
    print(draw(given.out, given.cases, given.limit))


if __name__ == "__main__":
    main()
