"""`sonde demo`: a first run, with explanations."""

from dataclasses import dataclass
from pathlib import Path

import tyro


@dataclass
class DemoArguments:
    """Explore the pendulum with OpAx and a Gaussian process, swing it up zero-shot, and print what was learned."""

    out: Path | None = None
    """Folder of the run; runs/demo by default, or runs/demo-2 and so on if that exists."""


def main(args: list[str]) -> None:
    """Run the command.

    Args:
        args: Words after the command.
    """
    chosen = tyro.cli(DemoArguments, args=args, prog="sonde demo")
    from sonde.cli._console import plain_console  # not above: help does not wait for JAX
    from sonde.cli._run import run_and_draw
    from sonde.runs import preset
    from sonde.runs._store import RunStore
    from sonde.runs._summary import demo_ending, demo_opening, demo_summary
    from sonde.runs.report._subjects import Source
    from sonde.runs.report._tasks import TaskWork
    from sonde.runs.report._write import report_of

    names = ["demo", *(f"demo-{i}" for i in range(2, 10_000))]
    free = (Path("runs") / name for name in names if not (Path("runs") / name).exists())
    config, console = preset("pendulum-gp-lite"), plain_console()
    store = RunStore.start(chosen.out or next(free), config)
    demo_opening(config, console)
    explorer = run_and_draw(store, console)
    played = demo_summary(config, explorer, store, console)
    with console.status("writing the report ...") as status:
        source = Source(store, explorer, {"swing-up": played})
        path = report_of(source, TaskWork(promises=False), lambda doing: status.update(f"{doing} ..."))
    demo_ending(path, console)
