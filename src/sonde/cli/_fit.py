"""`sonde fit FILE [FILE ...]`: a model from logs alone, judged by what it predicts of a part that it has not seen."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import RenderableType
from rich.table import Table

from sonde._internal.errors import SondeError
from sonde.cli._answers import GivenCommand
from sonde.cli._choices import folder_name, parts_help, starting_point, with_parts
from sonde.cli._console import plain_console
from sonde.cli._interrupts import saying
from sonde.cli._names import known_names
from sonde.cli._run import say_report
from sonde.runs import RunConfig, fit
from sonde.runs._judgement import AFFINE, MODEL, NOTHING, Judgement
from sonde.runs._store import RunStore
from sonde.runs.logs import system_of
from sonde.worlds import OwnSystem

SYSTEM = "--system"
LEGEND = (
    "Errors are root mean squares in units of each state's spread: model, affine least squares, and predicting no change. "
    "in band: measurements within the model's 90 % bands."
)


@dataclass
class FitArguments:
    """Make a run from logs alone, without exploration: the model is judged on a part of them that it has not seen."""

    config: Annotated[RunConfig, tyro.conf.arg(name="")]
    files: tyro.conf.Positional[tuple[str, ...]]
    """The logs: files, patterns such as 'logs/*.csv', folders, or minari:DATASET."""
    system: str | None = None
    """The system that was measured: a world or preset of Sonde, gym:ENV or FILE.py:NAME; by default one without a simulator,
    whose states and actions --columns or the first file names."""
    states: tuple[str, ...] = ()
    """Names of the states, where these are columns of the log and it has others."""
    actions: tuple[str, ...] = ()
    """Names of the actions, in the same way."""
    judge_on: float = 0.2
    """Share of the measurements that the model is judged on: the last episodes, or the last rows."""
    steps: int = 20
    """Steps of the simulations that it is judged by."""
    refit: bool = True
    """Fit the model of the run to all measurements in the end; with --no-refit it never sees those that it is judged on."""
    out: Path | None = None
    """Folder of the run; runs/FILE by default."""
    overwrite: bool = False
    """Replace the run in the folder."""


def main(args: list[str]) -> None:
    """Run the command.

    Args:
        args: Words after the command.
    """
    config, rest = with_parts(*_system(args))
    chosen = tyro.cli(
        FitArguments,
        default=FitArguments(config, ()),
        args=rest,
        prog="sonde fit",
        description=f"{FitArguments.__doc__}\n\n{parts_help()}",
        config=(tyro.conf.AvoidSubcommands,),  # parts were chosen by name above
    )
    config, console = _config(chosen), plain_console()
    folder = chosen.out or Path("runs") / folder_name(Path(chosen.files[0]).stem)
    judging = {"holdout": chosen.judge_on, "steps": chosen.steps, "refit": chosen.refit}
    with saying(lambda: "Stopped: nothing was kept or replaced."), console.status("fitting and judging the model ..."):
        run = fit(config, folder, **judging, overwrite=chosen.overwrite)
    assert run.judgement is not None
    for part in report(run.judgement):
        console.print(part, highlight=False)
    console.print(f"Run: {run.folder}", soft_wrap=True)
    console.print(f"Figure: {run.folder / 'figures' / 'fit.png'}", soft_wrap=True)
    say_report(RunStore.open(run.folder), console)


def _system(args: list[str]) -> tuple[RunConfig, list[str]]:
    """The config of the named system, which options then change, and the other words."""
    rest, words, name = list[str](), iter(args), None
    for word in words:
        option, equals, value = word.partition("=")
        if option == SYSTEM:
            name = value if equals else next(words, "")
        else:
            rest.append(word)
    files = tuple(GivenCommand(known_names(), "fit", args).line.positional) or None  # options of logs need them
    return replace(RunConfig(world=OwnSystem()) if name is None else starting_point(name), data=files), rest


def _config(chosen: FitArguments) -> RunConfig:
    """The config of the run."""
    if not chosen.files:
        raise SondeError("fit: name the logs first: sonde fit log.csv --columns 'x=position [mm]' 'u=voltage -24..24'")
    if chosen.config.data != chosen.files:
        raise SondeError("fit: logs are named without --data: sonde fit FILE [FILE ...]")
    config = replace(chosen.config, data=chosen.files)
    if not isinstance(config.world, OwnSystem):
        if chosen.states or chosen.actions:
            raise SondeError("fit: --system names states and actions already; leave out --states and --actions")
        return config
    if not chosen.states and not chosen.actions:
        return replace(config, world=system_of(config.log, chosen.files))
    if not chosen.states or not chosen.actions:
        raise SondeError("fit: --states and --actions belong together: name both, such as --states x1 x2 --actions u")
    return replace(config, world=OwnSystem(states=chosen.states, actions=chosen.actions))


def report(judgement: Judgement) -> Iterator[RenderableType]:
    """The judgement as sentences and tables, within 80 columns.

    Args:
        judgement: How well the model predicts.
    """
    yield (
        f"Held out: {judgement.split} ({judgement.held_out} transitions); the judged model was fitted to the other "
        f"{judgement.fitted}."
    )
    for number, (steps, windows) in enumerate(zip(judgement.steps, judgement.windows, strict=True)):
        ahead = "One step ahead" if steps == 1 else f"Simulated {steps} steps ahead"
        table = Table(
            "state", MODEL, AFFINE, NOTHING, "in band", title=f"{ahead} ({windows} predictions)", title_justify="left"
        )
        for row, name in enumerate(judgement.states):
            errors = (judgement.errors[kind][number][row] for kind in (MODEL, AFFINE, NOTHING))
            table.add_row(name, *(f"{error:.4f}" for error in errors), f"{100 * judgement.coverage[number][row]:.0f} %")
        for column in table.columns[1:]:
            column.justify = "right"
        yield table
    yield LEGEND
    yield f"The model of the run is fitted to {judgement.final}."
