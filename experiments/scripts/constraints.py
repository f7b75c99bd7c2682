"""Exploration of the pendulum with |speed| <= 5, against exploration without: violations, information, and the task.

    python -m experiments.scripts.constraints --out build/constraints                 # all cases, seeds 0 to 9
    python -m experiments.scripts.constraints --cases gp gp-free --seeds 4 --first-seed 100

All cases plan 20 steps at every step with 50 samples and 3 iterations. Where no plan is admissible, the pendulum brakes. Each
case is a run in a folder of its own below `--out`; a run that is there is continued. At the end a table is printed, and
`visited.png` shows the states that were visited with the constraint and without.
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

CONSTRAINTS, TASK, LIMIT = ("speed",), "swing-up", 5.0
SETTINGS = SafetySettings(start="0.3", fallback="brake")
ROUNDS, STEPS = 6, 100
PLANNER = ICEM(samples=50, elites=5, iterations=3)
GP, PE = (replace(config, solver=PLANNER) for config in (SHORT_PLANS, preset("pendulum-pe-lite")))
HELD_OUT = Confidence(holdout=0.2, beta_rule=BETA_RULES["held-out"])
CASES: dict[str, RunConfig] = {
    "gp-free": GP,
    "gp": replace(GP, constraints=CONSTRAINTS, safety=SETTINGS),
    "gp-held-out": replace(GP, constraints=CONSTRAINTS, safety=SETTINGS, confidence=HELD_OUT),
    "gp-rkhs": replace(
        GP,
        constraints=CONSTRAINTS,
        safety=SETTINGS,
        confidence=Confidence(beta_rule=BETA_RULES["rkhs"]),
    ),
    "pe-free": PE,
    "pe": replace(PE, constraints=CONSTRAINTS, safety=SETTINGS),
    "pe-held-out": replace(PE, constraints=CONSTRAINTS, safety=SETTINGS, confidence=HELD_OUT),
}
"""Configs by the name of the case."""


def config_of(case: str, seeds: int, first_seed: int, evaluated: bool) -> RunConfig:
    """The config of a case.

    Args:
        case: Name of the case.
        seeds: Number of seeds.
        first_seed: The first of them.
        evaluated: Whether the task is evaluated after the last round.
    """
    every = ROUNDS if evaluated else 0
    config = replace(CASES[case], rounds=ROUNDS, horizon=STEPS, evaluation_tasks=(TASK,), evaluate_every=every)
    return replace(config, seeds=seeds, first_seed=first_seed)


def summary(store: RunStore) -> dict[str, str]:
    """What a finished run is judged by.

    Args:
        store: The run.
    """
    safety = safety_named(Pendulum(), CONSTRAINTS, SETTINGS)
    rounds = [constraint_metrics(safety, trajectory) for trajectory in store.load_finished()]
    violated = np.array([found["violations"] for found in rounds])[1:]  # [rounds, seeds], after the first round
    deepest = max(float(found["violation_depth/speed"].max()) for found in rounds[1:])
    rows = store.load_metrics()
    information = np.array([row["realised_information_gain"] for row in rows]).reshape(len(rounds), -1)
    fallback = [row["fallback"] for row in rows if row.get("fallback") is not None]
    last = [row for row in rows if row["round"] == len(rounds)]
    returns = [row[f"return/{TASK}"] for row in last if row.get(f"return/{TASK}") is not None]
    in_task = [row[f"task_violations/{TASK}"] for row in last if row.get(f"task_violations/{TASK}") is not None]
    return {
        "steps that violate [%]": f"{100 * violated.mean():.2f}",
        "deepest [rad/s]": f"{deepest:.2f}",
        "rounds with a violation": f"{(violated > 0).sum()} of {violated.size}",
        "seeds with a violation": f"{(violated > 0).any(axis=0).sum()} of {violated.shape[1]}",
        "steps on the fallback [%]": f"{100 * np.mean(fallback):.1f}" if fallback else "",
        "information after round 1 [nats]": f"{information[1:].sum(axis=0).mean():.0f}",
        "information [nats]": f"{information.sum(axis=0).mean():.0f}",
        "return": f"{np.mean(returns):.0f} ({min(returns):.0f} to {max(returns):.0f})" if returns else "",
        "steps of the task that violate [%]": f"{100 * np.mean(in_task):.2f}" if in_task else "",
    }


def oracle(config: RunConfig) -> str:
    """Return and violations of planning with the true equations and the constraint.

    Args:
        config: A config with the constraint.
    """
    setup, keys = config.task_setup(TASK), restore_keys(config)
    found = evaluate(setup, Learned(TrueDynamics(Pendulum())), keys)
    assert found.violations is not None
    return f"oracle with the constraint: return {found.returns.mean():.0f}, violations {100 * found.violations.mean():.2f} %"


def restore_keys(config: RunConfig):
    """Keys of the evaluations of a config, one per seed.

    Args:
        config: The config.
    """
    return build_explorer(config).evaluation_keys()


def draw(folder: Path, cases: Sequence[str]) -> Path:
    """Draw the states that were visited after the first round, over all seeds.

    Args:
        folder: Folder of the runs.
        cases: Names of the cases, one panel each.

    Returns:
        The path of the figure.
    """
    plt.rcParams.update({**STYLE, "figure.dpi": 120})
    figure, axes = plt.subplots(1, len(cases), figsize=(4.2 * len(cases), 3.4), sharey=True, layout="constrained")
    for ax, case in zip(np.atleast_1d(axes), cases, strict=True):
        states = np.concatenate([part.next_states for part in RunStore.open(folder / case).load_finished()[1:]], axis=1)
        ax.axhspan(-LIMIT, LIMIT, color="#EEEEEE", zorder=0)
        ax.scatter(np.arctan2(states[..., 1], states[..., 0]), states[..., 2], s=1, color="#0072B2", rasterized=True)
        limited = "without a constraint" if case.endswith("-free") else f"|speed| <= {LIMIT:g}"
        ax.set(
            title=f"{case.removesuffix('-free')}, {limited}",
            xlabel="angle [rad], 0 upright",
            xlim=(-np.pi, np.pi),
            ylim=(-8.5, 8.5),
        )
    np.atleast_1d(axes)[0].set_ylabel("speed [rad/s]")
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
    parser.add_argument("--no-task", action="store_true", help="do not evaluate the task, nor the oracle")
    given = parser.parse_args()
    for case in given.cases:
        config = config_of(case, given.seeds, given.first_seed, not given.no_task)
        explore(config, given.out / case)
        print(case, summary(RunStore.open(given.out / case)), flush=True)
    if not given.no_task:
        print(oracle(config_of("gp", given.seeds, given.first_seed, True)))
    print(draw(given.out, given.cases))


if __name__ == "__main__":
    main()
