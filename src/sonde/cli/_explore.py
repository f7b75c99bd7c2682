"""`sonde explore SYSTEM ...`: explore a system."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from sonde.cli._choices import folder_name, named_system, parts_help, starting_point, try_world, with_parts
from sonde.cli._console import plain_console
from sonde.cli._run import run_and_draw, say_report
from sonde.runs import RunConfig
from sonde.runs._store import RunStore
from sonde.runs.trackers._names import trackers_named


@dataclass
class ExploreArguments:
    """Explore a system. The options change the settings that it starts from."""

    config: Annotated[RunConfig, tyro.conf.arg(name="")]
    out: Path | None = None
    """Folder of the run; runs/SYSTEM-METHOD by default."""
    overwrite: bool = False
    """Replace the run in the folder, once the first round of the new one is finished."""
    constraint: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """The same as constraints, one at a time."""
    track: tuple[str, ...] = ()
    """Trackers that follow the run: tensorboard, wandb, trackio."""


def main(args: list[str]) -> None:
    """Run the command.

    Args:
        args: Words after the command.
    """
    name = named_system("explore", args)
    if name is None:
        return
    config, rest = with_parts(starting_point(name), args[1:])
    chosen = tyro.cli(
        ExploreArguments,
        default=ExploreArguments(config),
        args=with_constraints(rest),
        prog=f"sonde explore {name}",
        description=f"{ExploreArguments.__doc__}\n\n{parts_help()}",
        config=(tyro.conf.AvoidSubcommands,),  # parts were chosen by name above
    )
    config, trackers = chosen.config, trackers_named(chosen.track)
    try_world(config.world)
    folder = chosen.out or Path("runs") / f"{folder_name(name)}-{config.method.name}"
    store, console = RunStore.start(folder, config, chosen.overwrite), plain_console()
    run_and_draw(store, console, trackers=trackers)
    say_report(store, console)


def with_constraints(args: list[str]) -> list[str]:
    """Collect what `--constraint` and `--constraints` name, however often they are given, in `--constraints`.

    Args:
        args: Words of the command line.
    """
    named, rest, option = list[str](), list[str](), ""
    for word in args:
        words = [word]
        if word.startswith("--"):
            rest += [option] if option == "--constraint" else []  # without a value, which the parser complains about
            option, _, value = word.partition("=")
            words = [value] if value else []
        if option not in ("--constraint", "--constraints"):
            rest.append(word)
            continue
        named += words
        option = "" if option == "--constraint" and words else option  # it takes one word
    rest += [option] if option == "--constraint" else []
    return [*rest, "--constraints", *named] if named else rest
