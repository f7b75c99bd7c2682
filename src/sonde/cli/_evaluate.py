"""`sonde evaluate DIR --task T`: solve a task with what a run has learned."""

from dataclasses import dataclass, replace
from pathlib import Path

import tyro
from rich.console import Console

from sonde._internal.errors import SondeError
from sonde._internal.user_code import with_absolute_path
from sonde.evaluation._tasks import task_named
from sonde.imagination import Pessimistic
from sonde.models import BetaRule
from sonde.runs import RunConfig


@dataclass
class EvaluateArguments:
    """Solve a task zero-shot: plan it on the learned model, act on the true system."""

    folder: tyro.conf.Positional[Path]
    """The run's folder."""
    task: str
    """The task; `sonde list` shows those of each world. FILE.py:NAME is a reward, Task or GoalTask of your own."""
    oracle: bool = False
    """Also plan on the true system, and act at random, to normalise the score between the two."""
    robust: bool = False
    """Also plan for the worst that the model holds for plausible, and compare what each plan promises with what it brings."""
    beta: float | None = None
    """How wide the plausible is with --robust, in epistemic stds; by default as in the run."""
    rollouts: int | None = None
    """How often to try, from other starts and with other goals where there are any; by default as in the run."""
    video: Path | None = None
    """Film the first run's episode: FILE.mp4 (needs the extra 'render') or FILE.gif. With --robust, that of the robust plan."""


def main(args: list[str]) -> None:
    """`sonde evaluate DIR --task T`."""
    chosen = tyro.cli(EvaluateArguments, args=args, prog="sonde evaluate")
    from sonde.runs._store import RunStore

    if chosen.oracle and chosen.robust:
        raise SondeError("evaluate: --oracle and --robust are two reports: ask for one after the other")
    store = RunStore.open(chosen.folder)
    config = store.config if chosen.rollouts is None else replace(store.config, evaluation_rollouts=chosen.rollouts)
    _check_width(chosen.beta, chosen.robust, store.config.confidence.beta_rule)
    task = with_absolute_path(chosen.task)
    task_named(store.config.world, task)
    if chosen.video is not None:
        from sonde.runs.figures._film import check_film

        check_film(chosen.video)
    checkpoints = store.checkpoints()
    if not checkpoints:
        raise SondeError(f"{store.folder} has no finished episode yet: run 'sonde resume {store.folder}' first")
    from sonde.runs._report import evaluation_report, robust_report
    from sonde.runs._run import restore_explorer

    explorer = restore_explorer(store, checkpoints[-1])
    if chosen.robust:
        beta = _own_beta(store.config) if chosen.beta is None else chosen.beta
        return robust_report(config, explorer, task, beta, Console(), chosen.video)
    evaluation_report(config, explorer, task, chosen.oracle, Console(), chosen.video)


def _check_width(beta: float | None, robust: bool, rule: BetaRule | None) -> None:
    """Refuse a width that nothing would look at."""
    if beta is None:
        return
    if not robust:
        raise SondeError("evaluate: --beta says how wide the plausible is; give --robust as well")
    if rule is not None:
        raise SondeError(f"evaluate: the run finds its own width ({type(rule).__name__}); leave --beta out")
    if not 0 <= beta < float("inf"):
        raise SondeError(f"evaluate: --beta must be 0 or above and finite, got {beta}")


def _own_beta(config: RunConfig) -> float:
    """The width that the run explored with; that of `Pessimistic` if its method has none."""
    return getattr(config.method.imagination, "beta", Pessimistic().beta)
