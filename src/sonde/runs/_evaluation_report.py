"""Tables on evaluations of a run: returns and success of each seed, the oracle, plans for the worst case, and films."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sonde._internal.precision import double_precision
from sonde.control import OnStep
from sonde.evaluation import (
    Evaluation,
    Learned,
    ScoredPolicy,
    TaskSetup,
    TrueDynamics,
    evaluate,
    normalised_score,
    plan_robust_task,
    plan_task,
    run_task,
    score_on_model,
)
from sonde.evaluation._robust import returns_on_mean
from sonde.explorer import Explorer
from sonde.imagination import Pessimistic
from sonde.runs._config import RunConfig
from sonde.solvers import Policy
from sonde.worlds import World

if TYPE_CHECKING:
    from sonde.runs.figures._film import Film


@double_precision
def evaluations(setup: TaskSetup, explorer: Explorer, oracle: bool, on_step: OnStep | None = None) -> dict[str, Evaluation]:
    """Evaluate a task on what was learned and, if asked for, on the true system and with random actions.

    Args:
        setup: The task.
        explorer: What was learned.
        oracle: Whether to evaluate the oracle and random actions too.
        on_step: Called after each step of the learned policy on a host world.

    Returns:
        Evaluations by name: 'learned' and, if asked for, 'oracle' and 'random'.
    """
    learned = Learned(explorer.posterior, explorer.recent)
    planners: dict[str, Learned | None] = {"learned": learned}
    if oracle:
        planners |= {"oracle": Learned(TrueDynamics(setup.world), explorer.recent), "random": None}
    seen_by, keys, starts = {"learned": on_step}, explorer.keys(), explorer.evaluation_keys()
    return {
        name: evaluate(setup, planner, keys, starts=starts, on_step=seen_by.get(name)) for name, planner in planners.items()
    }


def evaluation_report(
    setup: TaskSetup, explorer: Explorer, oracle: bool, console: Console, video: Path | None = None
) -> Policy:
    """Print return and success of each seed, and how they compare with random actions and the oracle.

    Args:
        setup: The task.
        explorer: What was learned.
        oracle: Whether to compare with the oracle and random actions.
        console: Where to print.
        video: Path of a film of the first seed; None for no film.

    Returns:
        The policy for the task.
    """
    film = _film(setup.world, video)
    with console.status(Text(f"planning {setup.name} ...")):
        played = evaluations(setup, explorer, oracle, film)
    columns = {name: evaluation.returns for name, evaluation in played.items()}
    if oracle:
        columns["score"] = normalised_score(columns["learned"], columns["random"], columns["oracle"])
    for name, evaluation in played.items():
        if evaluation.success is not None:
            columns[f"{name} success"] = evaluation.success
    _print_returns(setup, explorer, columns, console)
    if oracle:
        console.print("oracle: the same planner on the true system; score: 0 is random actions, 1 is the oracle")
    _save_film(film, setup.name, played["learned"], console)
    return played["learned"].policy


@double_precision
def promise_report(setup: TaskSetup, explorer: Explorer, console: Console) -> Policy:
    """Print what the model of a system without a simulator promises for a task.

    Args:
        setup: The task; without starts, rollouts begin where measured episodes began.
        explorer: What was learned.
        console: Where to print.

    Returns:
        The policy for the task.
    """
    if not setup.starts:
        starts = measured_starts(explorer)[: setup.rollouts]
        setup = replace(setup, starts=starts, rollouts=len(starts))
    with console.status(Text(f"planning {setup.name} ...")):
        policy = plan_task(setup, Learned(explorer.posterior, explorer.recent), explorer.keys())
        promised = returns_on_mean(setup, explorer.posterior, explorer.evaluation_keys(), policy)
    _print_returns(setup, explorer, {"on the model": promised}, console)
    console.print(
        f"on the model: {type(setup.world).__name__} has no simulator, so this is what the model promises; run the policy of "
        "sonde.load(DIR).solve(task) on your system",
        soft_wrap=True,
    )
    return policy


def measured_starts(explorer: Explorer) -> tuple[tuple[float, ...], ...]:
    """The states in which measured episodes of the first seed began, the first ones first.

    Args:
        explorer: What was measured.
    """
    count = int(explorer.data.count[0])
    states, nexts = (np.asarray(array)[0, :count] for array in (explorer.data.states, explorer.data.next_states))
    begins = np.append(True, (nexts[:-1] != states[1:]).any(axis=-1))
    return tuple(tuple(map(float, x)) for x in states[begins])


def _print_returns(setup: TaskSetup, explorer: Explorer, columns: dict[str, np.ndarray], console: Console) -> None:
    title = f"{setup.name} after {explorer.transitions} transitions, at most {setup.horizon} steps"
    console.print(title, markup=False, highlight=False)  # as a title of the table it would be broken at the table's width
    console.print(_seeds_table(explorer, columns))
    for number, start in enumerate(setup.starts[:10], 1):
        named = start if isinstance(start, str) else ", ".join(f"{x:g}" for x in start)
        console.print(f"start {number}: {named}", markup=False, highlight=False)


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


def _film(world: World, video: Path | None) -> "Film | None":
    """The film of the first seed, if a video is asked for."""
    if video is None:
        return None
    from sonde.runs.figures._film import Film

    return Film(video, world)


def _save_film(film: "Film | None", task: str, played: Evaluation, console: Console) -> None:
    if film is not None:
        with console.status("filming ..."):
            film.save(task, played)
        console.print(f"Video: {film.out}", soft_wrap=True)


@double_precision
def robust_report(
    config: RunConfig, setup: TaskSetup, explorer: Explorer, beta: float, console: Console, video: Path | None = None
) -> None:
    """Print the nominal, guaranteed and true returns of a plan on the model's mean and of one for its worst case.

    Args:
        config: The config of the run.
        setup: The task.
        explorer: What was learned.
        beta: Width of the confidence region, where the run has no rule for it.
        console: Where to print.
        video: Path of a film of the robust plan for the first seed; None for no film.
    """
    film, label = _film(setup.world, video), setup.name
    adversary, keys = Pessimistic(beta=beta), explorer.evaluation_keys()
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
    _save_film(film, label, played["robust"], console)


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
