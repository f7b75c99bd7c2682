"""What a run has learned, in words and small tables."""

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.table import Table

from sonde._internal.precision import double_precision
from sonde._internal.user_code import task_label
from sonde.control._rollout import OnStep
from sonde.evaluation._evaluate import Evaluation, TrueDynamics, normalised_score
from sonde.explorer import Explorer
from sonde.imagination import Pessimistic
from sonde.models._base import Posterior
from sonde.runs._config import RunConfig
from sonde.runs._run import evaluate_as_configured, evaluate_task
from sonde.runs._store import RunStore
from sonde.worlds._pendulum import TIME_STEP

if TYPE_CHECKING:
    from sonde.runs.figures._film import Film


@double_precision
def evaluations(
    config: RunConfig, explorer: Explorer, task: str, oracle: bool, on_step: OnStep | None = None
) -> dict[str, Evaluation]:
    """How the learned model does and, if asked for, the oracle and random actions; `on_step` sees the learned model's steps."""
    planners: dict[str, Posterior | None] = {"learned": explorer.posterior}
    if oracle:
        planners |= {"oracle": TrueDynamics(config.world), "random": None}
    seen_by = {"learned": on_step}
    return {name: evaluate_task(config, explorer, task, posterior, seen_by.get(name)) for name, posterior in planners.items()}


def evaluation_report(
    config: RunConfig, explorer: Explorer, task: str, oracle: bool, console: Console, video: Path | None = None
) -> None:
    """Print return and success of each seed, and how it compares with random actions and the oracle; film it if asked to."""
    film = _film(config, explorer, video)
    label = task_label(task)
    with console.status(f"planning {label} ..."):
        played = evaluations(config, explorer, task, oracle, film)
    returns = {name: evaluation.returns for name, evaluation in played.items()}
    columns = dict(returns)
    if oracle:
        columns["score"] = normalised_score(returns["learned"], returns["random"], returns["oracle"])
    for name, evaluation in played.items():
        if evaluation.success is not None:
            columns[f"{name} success"] = evaluation.success
    title = f"{label} after {explorer.transitions} transitions, at most {config.settings_for(task).horizon} steps"
    table = Table("seed", *columns, title=title)

    def cells(name: str, value: float) -> str:
        return f"{value:.3f}" if name == "score" or name.endswith("success") else f"{value:.1f}"

    for i, seed in enumerate(explorer.seeds):
        table.add_row(str(seed), *(cells(name, values[i]) for name, values in columns.items()))
    if explorer.num_seeds > 1:
        table.add_section()
        table.add_row("mean", *(cells(name, float(np.mean(values))) for name, values in columns.items()))
    for column in table.columns:
        column.justify = "right"
    console.print(table)
    if oracle:
        console.print("oracle: the same planner on the true system; score: 0 is random actions, 1 is the oracle")
    _save_film(film, task, played["learned"], console)


def _film(config: RunConfig, explorer: Explorer, video: Path | None) -> "Film | None":
    """What watches the first run, if a video is wanted."""
    if video is None:
        return None
    from sonde.runs.figures._film import Film

    return Film(video, config.world, explorer.num_seeds)


def _save_film(film: "Film | None", task: str, played: Evaluation, console: Console) -> None:
    if film is not None:
        with console.status("filming ..."):
            film.save(task, played)
        console.print(f"Video: {film.out}", soft_wrap=True)


@double_precision
def robust_report(
    config: RunConfig, explorer: Explorer, task: str, beta: float, console: Console, video: Path | None = None
) -> None:
    """Print what a plan on the model's mean and one for its worst case promise, and what they bring; film the latter."""
    film = _film(config, explorer, video)
    label, adversary = task_label(task), Pessimistic(beta=beta)
    played: dict[str, Evaluation] = {}
    for plan, seen_by in (("plain", None), ("robust", film)):
        arguments = (config, task, explorer.posterior, explorer.keys(), explorer.data, seen_by, adversary, plan == "robust")
        with console.status(f"planning {label}, the {plan} plan, on the true system and on the model ..."):
            played[plan] = evaluate_as_configured(*arguments, played.get("plain"))
    title = f"{label} after {explorer.transitions} transitions, {config.settings_for(task).horizon} steps, returns"
    table = Table("seed", "plan", "nominal", "guaranteed", "true system", title=title)
    for i, seed in enumerate(explorer.seeds):
        for plan, evaluation in played.items():
            values = (evaluation.promised.nominal, evaluation.promised.guaranteed, evaluation.returns)
            table.add_row(str(seed), plan, *(f"{value[i]:.1f}" for value in values), end_section=plan == "robust")
    for column in (table.columns[0], *table.columns[2:]):
        column.justify = "right"
    console.print(table)
    console.print(
        f"nominal: on the model's mean; guaranteed: against an adversary who chooses within {_width(config, beta)} around it"
    )
    for plan, evaluation in played.items():
        kept = int(np.sum(evaluation.returns >= evaluation.promised.guaranteed))
        console.print(
            f"{plan} plan: the true system brought at least the guaranteed value in {kept} of {explorer.num_seeds}; "
            f"lowest guaranteed {np.min(evaluation.promised.guaranteed):.1f}, lowest true {np.min(evaluation.returns):.1f}"
        )
    plain, robust = (evaluation.promised for evaluation in played.values())
    same = int(np.sum((plain.guaranteed == robust.guaranteed) & (plain.nominal == robust.nominal)))
    if same:
        console.print(f"in {same} of {explorer.num_seeds} the robust plan is the plain one: no cautious plan guarantees more")
    _save_film(film, task, played["robust"], console)


def _width(config: RunConfig, beta: float) -> str:
    """How wide the confidence region is, in words."""
    return f"{beta:g} epistemic stds" if config.confidence == "constant" else f"the confidence region ({config.confidence})"


def how_it_ended(store: RunStore) -> str | None:
    """Why a run with a stopping rule is over, or what it did not reach; None if it has no such rule."""
    rule = store.config.stopping_rule
    if rule is None:
        return None
    rows = store.load_metrics()
    last = [row for row in rows if row["round"] == rows[-1]["round"]]
    return store.why_stopped() or rule.why_not(last, store.config.rounds)


def command() -> str:
    """How this person calls sonde: by its name if the shell finds it."""
    if shutil.which("sonde"):
        return "sonde"
    python = Path(sys.executable)
    return f"{python.relative_to(Path.cwd()) if python.is_relative_to(Path.cwd()) else python} -m sonde"


def demo_opening(config: RunConfig, console: Console) -> None:
    """Say what is about to happen."""
    console.print(
        "\nA pendulum hangs down. Sonde does not know its equations; it may perturbation it for "
        f"{config.rounds} x {config.horizon} steps of {TIME_STEP} s,\n"
        "and chooses each perturbation so that it learns most (OpAx with Gaussian processes). It is never told of any task.\n"
        "After each episode we ask it, from what it knows by then, to swing the pendulum up and to keep it down.\n\n"
        "information: what the episode's measurements could tell at most, in nats.\n"
        "uncertainty: the largest std anywhere in reach (with one fixed kernel, so that episodes compare).\n"
        "model error: rms error of the predicted next state, anywhere in reach.\n"
        "swing-up, keep-down: return of the task planned on the learned model (0 is perfect, higher is better).\n",
        soft_wrap=True,
    )


def demo_summary(config: RunConfig, explorer: Explorer, store: RunStore, console: Console) -> None:
    """Say what was learned."""
    with console.status("comparing with a planner that knows the true equations ..."):
        played = evaluations(config, explorer, "swing-up", True)
    returns = {name: float(evaluation.returns.mean()) for name, evaluation in played.items()}
    rows = [row for row in store.load_metrics() if row["seed"] == config.first_seed]
    first, last = rows[0], rows[-1]
    score = float(normalised_score(*(np.asarray([returns[name]]) for name in ("learned", "random", "oracle")))[0])
    steps = explorer.transitions
    console.print(
        f"\nWhat was learned: from {steps} measurements ({steps * TIME_STEP:.0f} s of pendulum time) the model predicts "
        f"the next state, anywhere in reach,\nwith an rms error of {last['model_rmse']:.3f} (after the first episode: "
        f"{first['model_rmse']:.3f}). The largest uncertainty went from {first['max_epistemic_common']:.3f} to "
        f"{last['max_epistemic_common']:.3f}.\n"
        f"Swing-up, zero-shot: return {returns['learned']:.0f}. The same planner with the true equations gets "
        f"{returns['oracle']:.0f}, random perturbations get {returns['random']:.0f}:\n"
        f"on a scale from random (0) to perfect knowledge (1) that is {score:.2f}.\n\n"
        f"Files: {store.folder}\n"
        "  metrics.jsonl        one line per episode\n"
        "  figures/curves.png   how uncertainty fell and returns rose\n"
        "  figures/states.png   where it went, over what it does not know\n"
        "  data, checkpoints    the measurements, and the model, to go on from\n\n"
        f"Next: '{command()} list' shows methods and presets;\n"
        f"'{command()} explore pendulum-gp-lite --method random' is what OpAx beats.",
        soft_wrap=True,
    )
