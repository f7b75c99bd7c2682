"""Sentences on what a run has learned: how it ended, and the texts of the demo."""

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console

from sonde.evaluation import Evaluation, normalised_score
from sonde.evaluation._drift import drift_warning
from sonde.evaluation._stalling import stall_warning
from sonde.evaluation._whiteness import incomplete_warning
from sonde.explorer import Explorer
from sonde.runs._config import RunConfig
from sonde.runs._evaluation_report import evaluations
from sonde.runs._store import RunStore

if TYPE_CHECKING:
    pass


def how_it_ended(store: RunStore) -> str | None:
    """How a run ended.

    Args:
        store: A finished run.

    Returns:
        Why its stopping rule ended it, or what it did not reach, that its exploration stalls, and that the system seems to have
        changed; None if there is nothing to say.
    """
    rule, config, rows = store.config.stopping_rule, store.config, store.load_metrics()
    last = [row for row in rows if row["round"] == rows[-1]["round"]]
    ending = None if rule is None else store.why_stopped() or rule.why_not(last, config.rounds)
    warnings = (
        incomplete_warning(last, config.past),
        stall_warning(last, config.method, config.model),
        drift_warning(rows, config.confidence),
    )
    return " ".join(filter(None, (ending, *warnings))) or None


def command() -> str:
    """The command with which this user calls Sonde: `sonde`, if the shell finds it."""
    if shutil.which("sonde"):
        return "sonde"
    python = Path(sys.executable)
    return f"{python.relative_to(Path.cwd()) if python.is_relative_to(Path.cwd()) else python} -m sonde"


def demo_opening(config: RunConfig, console: Console) -> None:
    """Print what the demo is about to do.

    Args:
        config: The config of the demo.
        console: Where to print.
    """
    console.print(
        "\nA pendulum hangs down. Sonde does not know its equations. It applies torques for "
        f"{config.rounds} rounds of {config.horizon} steps of {config.world.seconds_per_step} s,\n"
        "each chosen to make the measurements as informative as possible (OpAx with Gaussian processes), without any task.\n"
        "After each round, tasks are planned on the model learned so far: swing the pendulum up, and keep it down.\n\n"
        "information: information gain of the round's measurements, an upper bound, in nats.\n"
        "uncertainty: largest epistemic std over all states that can be reached; common kernel: with one fixed kernel, which "
        "compares rounds.\n"
        "model error: rms error of the predicted next state over the same states.\n"
        "swing-up, keep-down: return of the task planned on the learned model (0 is perfect, higher is better).\n",
        soft_wrap=True,
    )


def demo_summary(config: RunConfig, explorer: Explorer, store: RunStore, console: Console) -> dict[str, Evaluation]:
    """Print what the demo has learned.

    Args:
        config: The config of the demo.
        explorer: The explorer after the last round.
        store: The run.
        console: Where to print.

    Returns:
        Evaluations of swing-up by name: 'learned', 'oracle' and 'random'.
    """
    with console.status("comparing with a planner that knows the true equations ..."):
        played = evaluations(config.task_setup("swing-up"), explorer, True)
    returns = {name: float(evaluation.returns.mean()) for name, evaluation in played.items()}
    rows = [row for row in store.load_metrics() if row["seed"] == config.first_seed]
    first, last = rows[0], rows[-1]
    score = float(normalised_score(*(np.asarray([returns[name]]) for name in ("learned", "random", "oracle")))[0])
    steps, seconds = explorer.transitions, explorer.transitions * (config.world.seconds_per_step or 0.0)
    console.print(
        f"\nWhat was learned: from {steps} measurements ({seconds:.0f} s of pendulum time) the model predicts "
        f"the next state, over all states that can be reached,\nwith an rms error of {last['model_rmse']:.3f} (after the first "
        f"round: {first['model_rmse']:.3f}). The largest uncertainty went from {first['max_epistemic']:.3f} to "
        f"{last['max_epistemic']:.3f}, under one fixed kernel from {first['max_epistemic_common']:.3f} to "
        f"{last['max_epistemic_common']:.3f}.\n"
        f"Swing-up, zero-shot: return {returns['learned']:.0f}. The same planner with the true equations gets "
        f"{returns['oracle']:.0f}, random torques get {returns['random']:.0f}:\n"
        f"on a scale from random (0) to perfect knowledge (1) that is {score:.2f}.\n\n"
        f"Files: {store.folder}\n"
        "  metrics.jsonl        one line per round\n"
        "  figures/curves.png   uncertainty and returns over rounds\n"
        "  figures/states.png   the visited states, over the remaining uncertainty\n"
        "  data, checkpoints    the measurements and the model, to continue from\n",
        soft_wrap=True,
    )
    return played


def demo_ending(report: Path, console: Console) -> None:
    """Print where the demo's report is, and what to do next.

    Args:
        report: Path of the report.
        console: Where to print.
    """
    console.print(
        f"Report: {report}\n  all of this as one page, with films; open it in a browser\n\n"
        f"Next: '{command()} list' shows methods and presets;\n"
        f"'{command()} explore pendulum-gp-lite --method random' runs a baseline that OpAx beats.",
        soft_wrap=True,
    )
