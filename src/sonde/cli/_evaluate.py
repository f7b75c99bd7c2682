"""`sonde evaluate DIR --task T`: solve a task with what a run has learned."""

from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, cast

import tyro

from sonde._internal.errors import SondeError, positive
from sonde._internal.user_code import with_absolute_path
from sonde.cli._answers import GivenCommand
from sonde.cli._choices import part_named
from sonde.cli._console import plain_console
from sonde.cli._names import known_names
from sonde.evaluation import TaskSetup
from sonde.evaluation._oracle import check_oracle
from sonde.imagination import Pessimistic
from sonde.models import BetaRule
from sonde.runs import RunConfig
from sonde.runs._store import RunStore
from sonde.solvers import ICEM, Solver
from sonde.worlds import has_simulator
from sonde.worlds._base import Start


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
    start: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Start a rollout here: the numbers of a state, such as '1 0 -0.5', or the options of a Gymnasium environment's reset as a
    JSON object; give it several times for several rollouts."""
    video: Path | None = None
    """Film the first seed: FILE.mp4 (needs the extra 'render') or FILE.gif. With --robust, its robust plan."""
    allow_code: bool = False
    """Run code of others that the run names, such as FILE.py:NAME; code that you ran before needs no permission."""
    solver: Solver = field(default_factory=ICEM)
    """What plans the task, or trains a policy for it: --solver NAME or FILE.py:NAME; as in the run by default."""


def main(args: list[str]) -> None:
    """Run the command.

    Args:
        args: Words after the command.
    """
    store, solver, rest = _opened(args)
    default = EvaluateArguments(Path(), "", solver=solver)
    vars(default).update(folder=tyro.MISSING, task=tyro.MISSING)
    marks = (tyro.conf.AvoidSubcommands,)
    chosen = tyro.cli(EvaluateArguments, default=default, args=rest, prog="sonde evaluate", config=marks)
    if chosen.oracle and chosen.robust:
        raise SondeError("evaluate: --oracle and --robust are two reports: ask for one at a time")
    if store is None:  # which says what is wrong with the folder
        store = RunStore.open(chosen.folder, chosen.allow_code)
    config = store.config
    _check_beta(chosen.beta, chosen.robust, config.confidence.beta_rule)
    setup = _setup(chosen, config)
    if not store.checkpoints():
        raise SondeError(f"{store.folder} has no finished round yet: run 'sonde resume {store.folder}' first")
    from sonde.runs._evaluation_report import evaluation_report, promise_report, robust_report
    from sonde.runs._run import restore_explorer

    explorer, console = restore_explorer(store), plain_console()
    if chosen.robust:
        beta = _run_beta(config) if chosen.beta is None else chosen.beta
        return robust_report(config, setup, explorer, beta, console, chosen.video)
    if has_simulator(setup.world):
        policy = evaluation_report(setup, explorer, chosen.oracle, console, chosen.video)
    else:
        policy = promise_report(setup, explorer, console)
    for path in store.save_policies({setup.name: policy}):
        console.print(f"Policy: {path}", soft_wrap=True)


def _opened(args: list[str]) -> tuple[RunStore | None, Solver, list[str]]:
    """The run, the solver that options then change, and the other words: a solver's options depend on both."""
    given = GivenCommand(known_names(), "evaluate", args).line
    rest, words, name = list[str](), iter(args), None
    for word in words:
        option, equals, value = word.partition("=")
        if option == "--solver":
            name = value if equals else next(words, "")
        else:
            rest.append(word)
    store = None
    solver: Solver = ICEM()
    folder = Path(given.positional[0]) if given.positional else None
    if folder is not None and (folder / "config.json").exists() and not {"-h", "--help"} & set(args):
        store = RunStore.open(folder, "--allow-code" in args)
        solver = store.config.settings_for(next(iter(given.options.get("--task", ())), "")).solver
    if name is not None:
        solver = part_named("solver", name, solver)
    known = {f"--solver.{each.name}".replace("_", "-") for each in fields(cast(Any, solver))}
    wrong = [option for option in given.options if option.startswith("--solver.") and option.replace("_", "-") not in known]
    if wrong and store is not None:
        raise SondeError(f"evaluate: {type(solver).__name__} has no option {wrong[0]}; it has {', '.join(sorted(known))}")
    return store, solver, rest


def _setup(chosen: EvaluateArguments, config: RunConfig) -> TaskSetup:
    """The task with what was chosen for it; what cannot be done is rejected before anything is computed."""
    starts = tuple(map(_start, chosen.start))
    if starts and chosen.rollouts is not None:
        raise SondeError("evaluate: each --start is a rollout of its own: leave --rollouts out")
    setup = config.task_setup(with_absolute_path(chosen.task))
    rollouts = setup.rollouts if chosen.rollouts is None else chosen.rollouts
    positive("evaluate", rollouts=rollouts)
    setup = replace(setup, solver=chosen.solver, rollouts=len(starts) or rollouts, starts=starts)
    if chosen.oracle:
        check_oracle(setup.world)
    if chosen.robust and not has_simulator(setup.world):
        raise SondeError(f"evaluate: --robust needs a system to run the plans on, and {type(setup.world).__name__} has none")
    if chosen.video is not None:
        from sonde.runs.figures._film import check_film

        check_film(chosen.video)
    return setup


def _start(text: str) -> Start:
    """A start as its words say it."""
    if text.lstrip().startswith("{"):
        return text
    try:
        return tuple(float(word) for word in text.replace(",", " ").split())
    except ValueError:
        raise SondeError(
            f"--start: expected numbers such as '1 0 -0.5', or a JSON object with options of a reset, got {text!r}"
        ) from None


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
