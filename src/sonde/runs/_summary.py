"""Tables and sentences on what a run has learned: evaluations, how a run ended, and the texts of the demo."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sonde._internal.precision import double_precision
from sonde._internal.user_code import task_label
from sonde.control import OnStep
from sonde.evaluation import (
    Evaluation,
    Learned,
    ScoredPolicy,
    TrueDynamics,
    evaluate,
    normalised_score,
    plan_robust_task,
    plan_task,
    run_task,
    score_on_model,
)
from sonde.evaluation._drift import drift_warning
from sonde.evaluation._stalling import stall_warning
from sonde.evaluation._whiteness import incomplete_warning
from sonde.explorer import Explorer
from sonde.imagination import Pessimistic
from sonde.runs._config import RunConfig
from sonde.runs._store import RunStore

if TYPE_CHECKING:
    from sonde.runs.figures._film import Film


@double_precision
def evaluations(
    config: RunConfig, explorer: Explorer, task: str, oracle: bool, on_step: OnStep | None = None
) -> dict[str, Evaluation]:
    """Evaluate a task on what was learned and, if asked for, on the true system and with random actions.

    Args:
        config: The config of the run.
        explorer: What was learned.
        task: Name of the task, or FILE.py:NAME.
        oracle: Whether to evaluate the oracle and random actions too.
        on_step: Called after each step of the learned policy on a host world.

    Returns:
        Evaluations by name: 'learned' and, if asked for, 'oracle' and 'random'.
    """
    learned = Learned(explorer.posterior, explorer.recent)
    planners: dict[str, Learned | None] = {"learned": learned}
    if oracle:
        planners |= {"oracle": Learned(TrueDynamics(config.world), explorer.recent), "random": None}
    setup, seen_by, keys, starts = config.task_setup(task), {"learned": on_step}, explorer.keys(), explorer.evaluation_keys()
    return {
        name: evaluate(setup, planner, keys, starts=starts, on_step=seen_by.get(name)) for name, planner in planners.items()
    }


def evaluation_report(
    config: RunConfig, explorer: Explorer, task: str, oracle: bool, console: Console, video: Path | None = None
) -> None:
    """Print return and success of each seed, and how they compare with random actions and the oracle.

    Args:
        config: The config of the run.
        explorer: What was learned.
        task: Name of the task, or FILE.py:NAME.
        oracle: Whether to compare with the oracle and random actions.
        console: Where to print.
        video: Path of a film of the first seed; None for no film.
    """
    film, label = _film(config, video), task_label(task)
    with console.status(Text(f"planning {label} ...")):
        played = evaluations(config, explorer, task, oracle, film)
    columns = {name: evaluation.returns for name, evaluation in played.items()}
    if oracle:
        columns["score"] = normalised_score(columns["learned"], columns["random"], columns["oracle"])
    for name, evaluation in played.items():
        if evaluation.success is not None:
            columns[f"{name} success"] = evaluation.success
    title = f"{label} after {explorer.transitions} transitions, at most {config.settings_for(task).horizon} steps"
    console.print(title, markup=False, highlight=False)  # as a title of the table it would be broken at the table's width
    console.print(_seeds_table(explorer, columns))
    if oracle:
        console.print("oracle: the same planner on the true system; score: 0 is random actions, 1 is the oracle")
    _save_film(film, task, played["learned"], console)


def _seeds_table(explorer: Explorer, columns: dict[str, np.ndarray]) -> Table:
    """One row per seed, and their mean."""
    table = Table("seed", *columns)

    def cell(name: str, value: float) -> str:
        return f"{value:.3f}" if name == "score" or name.endswith("success") else f"{value:.1f}"

    for i, seed in enumerate(explorer.seeds):
        table.add_row(str(seed), *(cell(name, values[i]) for name, values in columns.items()))
    if explorer.num_seeds > 1:
        table.add_section()
        table.add_row("mean", *(cell(name, float(np.mean(values))) for name, values in columns.items()))
    for column in table.columns:
        column.justify = "right"
    return table


def _film(config: RunConfig, video: Path | None) -> "Film | None":
    """The film of the first seed, if a video is asked for."""
    if video is None:
        return None
    from sonde.runs.figures._film import Film

    return Film(video, config.world)


def _save_film(film: "Film | None", task: str, played: Evaluation, console: Console) -> None:
    if film is not None:
        with console.status("filming ..."):
            film.save(task, played)
        console.print(f"Video: {film.out}", soft_wrap=True)


@double_precision
def robust_report(
    config: RunConfig, explorer: Explorer, task: str, beta: float, console: Console, video: Path | None = None
) -> None:
    """Print the nominal, guaranteed and true returns of a plan on the model's mean and of one for its worst case.

    Args:
        config: The config of the run.
        explorer: What was learned.
        task: Name of the task, or FILE.py:NAME.
        beta: Width of the confidence region, where the run has no rule for it.
        console: Where to print.
        video: Path of a film of the robust plan for the first seed; None for no film.
    """
    film, label = _film(config, video), task_label(task)
    setup, adversary, keys = config.task_setup(task), Pessimistic(beta=beta), explorer.evaluation_keys()
    learned = Learned(explorer.posterior, explorer.recent)
    with console.status(Text(f"planning {label} on the model's mean ...")):
        plain = score_on_model(setup, learned.posterior, keys, plan_task(setup, learned, keys), adversary)
        played = {"plain": run_task(setup, plain.policy, keys)}
    with console.status(Text(f"planning {label} for the worst case ...")):
        robust = plan_robust_task(setup, learned, keys, adversary, plain)
        played["robust"] = run_task(setup, robust.policy, keys, on_step=film)
    scored = {"plain": plain, "robust": robust}
    title = f"{label} after {explorer.transitions} transitions, {setup.horizon} steps, returns"
    console.print(_plans_table(title, explorer, scored, played))
    console.print(
        f"nominal: on the model's mean; guaranteed: against an adversary that chooses within {_width(config, beta)} around it"
    )
    for sentence in _comparison(scored, played):
        console.print(sentence)
    _save_film(film, task, played["robust"], console)


def _comparison(scored: dict[str, ScoredPolicy], played: dict[str, Evaluation]) -> Iterator[str]:
    """How often the guarantees held, and how often both plans are the same."""
    seeds = len(played["plain"].returns)
    for plan, evaluation in played.items():
        guaranteed = scored[plan].returns.guaranteed
        kept = int(np.sum(evaluation.returns >= guaranteed))
        yield (
            f"{plan} plan: the true system returned at least the guaranteed value for {kept} of {seeds} seeds; "
            f"lowest guaranteed {np.min(guaranteed):.1f}, lowest true {np.min(evaluation.returns):.1f}"
        )
    plain, robust = scored["plain"].returns, scored["robust"].returns
    alike = [getattr(plain, name) == getattr(robust, name) for name in ("guaranteed", "nominal")]
    same = int(np.sum(np.all(alike, axis=0)))
    if same:
        yield f"for {same} of {seeds} seeds the robust plan is the plain one: no cautious plan guarantees more"


def _plans_table(title: str, explorer: Explorer, scored: dict[str, ScoredPolicy], played: dict[str, Evaluation]) -> Table:
    table = Table("seed", "plan", "nominal", "guaranteed", "true system", title=title)
    for i, seed in enumerate(explorer.seeds):
        for plan, evaluation in played.items():
            values = (scored[plan].returns.nominal, scored[plan].returns.guaranteed, evaluation.returns)
            table.add_row(str(seed), plan, *(f"{value[i]:.1f}" for value in values), end_section=plan == "robust")
    for column in (table.columns[0], *table.columns[2:]):
        column.justify = "right"
    return table


def _width(config: RunConfig, beta: float) -> str:
    """The width of the confidence region, in words."""
    rule = config.confidence.beta_rule
    return f"{beta:g} epistemic stds" if rule is None else f"the confidence region ({type(rule).__name__})"


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
        played = evaluations(config, explorer, "swing-up", True)
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
