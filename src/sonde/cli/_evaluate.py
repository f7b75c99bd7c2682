"""`sonde evaluate DIR --task T`: solve a task with what a run has learned."""

from dataclasses import dataclass, replace
from pathlib import Path

import tyro

from sonde._internal.errors import SondeError
from sonde._internal.user_code import with_absolute_path
from sonde.cli._console import plain_console
from sonde.evaluation._tasks import task_named
from sonde.imagination import Pessimistic
from sonde.models import BetaRule
from sonde.runs import RunConfig
from sonde.runs._store import RunStore


@dataclass
class EvaluateArguments:
    """Solve a task zero-shot: plan it on the learned model, run the plan on the true system."""

    folder: tyro.conf.Positional[Path]
    """Folder of the run."""
    task: str
    """The task: one of the world's ('sonde list'), or FILE.py:NAME, a reward, Task or GoalTask of your own."""
    oracle: bool = False
    """Also plan on the true system, and act at random, and print a score between the two."""
    robust: bool = False
    """Also plan for the worst case that the model considers plausible, and compare nominal, guaranteed and true returns."""
    beta: float | None = None
    """Width of the confidence region for --robust, in epistemic stds; as in the run by default."""
    rollouts: int | None = None
    """Rollouts per seed, each from another start and for another goal, if the task has goals; as in the run by default."""
    video: Path | None = None
    """Film the first seed: FILE.mp4 (needs the extra 'render') or FILE.gif. With --robust, its robust plan."""
    allow_code: bool = False
    """Run code of others that the run names, such as FILE.py:NAME; code that you ran before needs no permission."""


def main(args: list[str]) -> None:
    """Run the command.

    Args:
        args: Words after the command.
    """
    chosen = tyro.cli(EvaluateArguments, args=args, prog="sonde evaluate")
    if chosen.oracle and chosen.robust:
        raise SondeError("evaluate: --oracle and --robust are two reports: ask for one at a time")
    store = RunStore.open(chosen.folder, chosen.allow_code)
    _check_beta(chosen.beta, chosen.robust, store.config.confidence.beta_rule)
    config = store.config if chosen.rollouts is None else replace(store.config, evaluation_rollouts=chosen.rollouts)
    task = with_absolute_path(chosen.task)
    task_named(config.world, task)
    if chosen.video is not None:
        from sonde.runs.figures._film import check_film

        check_film(chosen.video)
    if not store.checkpoints():
        raise SondeError(f"{store.folder} has no finished round yet: run 'sonde resume {store.folder}' first")
    from sonde.runs._run import restore_explorer
    from sonde.runs._summary import evaluation_report, robust_report

    explorer = restore_explorer(store)
    if chosen.robust:
        beta = _run_beta(config) if chosen.beta is None else chosen.beta
        return robust_report(config, explorer, task, beta, plain_console(), chosen.video)
    evaluation_report(config, explorer, task, chosen.oracle, plain_console(), chosen.video)


def _check_beta(beta: float | None, robust: bool, rule: BetaRule | None) -> None:
    """Reject a width that would not be used."""
    if beta is None:
        return
    if not robust:
        raise SondeError("evaluate: --beta is the width of the confidence region for --robust; give --robust as well")
    if rule is not None:
        raise SondeError(f"evaluate: the run computes its own width ({type(rule).__name__}); leave --beta out")
    if not 0 <= beta < float("inf"):
        raise SondeError(f"evaluate: --beta must be 0 or above and finite, got {beta}")


def _run_beta(config: RunConfig) -> float:
    """The width that the run explored with; that of `Pessimistic` if its method has none."""
    return getattr(config.method.imagination, "beta", Pessimistic().beta)
