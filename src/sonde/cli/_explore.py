"""`sonde explore SYSTEM ...`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from sonde._internal.errors import SondeError
from sonde.cli._choices import CHOOSE_PARTS, WHAT_TO_EXPLORE, folder_name, starting_point, try_world, with_parts
from sonde.cli._run import run_and_draw
from sonde.runs import RunConfig
from sonde.runs._store import RunStore


@dataclass
class ExploreArguments:
    """Explore a system, with its settings changed by any of these options."""

    config: Annotated[RunConfig, tyro.conf.arg(name="")]
    out: Path | None = None
    """Folder for the run; by default runs/SYSTEM-METHOD."""
    overwrite: bool = False
    """Replace the folder if it exists."""


def main(args: list[str]) -> None:
    """Run the command.

    Args:
        args: Words after the command.

    """
    if not args or args[0].startswith("-"):
        if args and args[0] not in ("-h", "--help"):
            raise SondeError(f"explore: name a preset first (or another system), then options:\n{WHAT_TO_EXPLORE.rstrip()}")
        print(f"usage: sonde explore SYSTEM [options]\n\nSYSTEM is\n{WHAT_TO_EXPLORE}")
        print("'sonde explore SYSTEM --help' lists all options with the values that SYSTEM gives them.")
        return
    name = args[0]
    config, rest = with_parts(starting_point(name), args[1:])
    text = f"{ExploreArguments.__doc__}\n{CHOOSE_PARTS}"
    chosen = tyro.cli(
        ExploreArguments, default=ExploreArguments(config), args=rest, prog=f"sonde explore {name}", description=text
    )
    config = chosen.config
    try_world(config.world)
    folder = chosen.out or Path("runs") / f"{folder_name(name)}-{config.method.name}"
    run_and_draw(RunStore.create(folder, config, chosen.overwrite), Console())
