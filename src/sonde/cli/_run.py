"""What `explore`, `resume` and `demo` share: run to completion with a progress display, then draw the figures."""

import shlex
from collections.abc import Sequence

from rich.console import Console

from sonde.cli._interrupts import saying
from sonde.explorer import Explorer
from sonde.runs._progress import ProgressDisplay
from sonde.runs._run import run
from sonde.runs._store import RunStore
from sonde.runs._summary import command, how_it_ended
from sonde.runs.trackers import Tracker
from sonde.runs.trackers._drawing import drawn_figures


def run_and_draw(
    store: RunStore, console: Console, from_round: int | None = None, trackers: Sequence[Tracker] = ()
) -> Explorer:
    """Run to completion with a progress display, then draw the figures.

    Args:
        store: The run.
        console: Where to print.
        from_round: Start after this round; by default after the newest checkpoint.
        trackers: Follow the run too.

    Returns:
        The explorer after the last round.
    """

    def what_is_safe() -> str:
        if store.checkpoints():
            return f"Stopped. Everything up to the last finished round is safe: 'sonde resume {store.folder}' continues."
        return "Stopped before the first round was finished: nothing was kept or replaced, and the same command starts over."

    with saying(what_is_safe):
        explorer = run(store, [ProgressDisplay(console, store.place), *trackers], from_round)
    if ending := how_it_ended(store):
        console.print(ending, soft_wrap=not console.is_terminal)
    figures = drawn_figures(store, explorer)
    console.print(f"Run: {store.folder}", soft_wrap=True)
    for figure in figures:
        console.print(f"Figure: {figure}", soft_wrap=True)
    for tracker in trackers:
        if tracker.shown:
            console.print(f"Track: {tracker.shown}", soft_wrap=True, markup=False)
    return explorer


def say_report(store: RunStore, console: Console) -> None:
    """Say how to get the report of a run.

    Args:
        store: The run.
        console: Where to print.
    """
    console.print(f"Report: {command()} report {shlex.quote(str(store.folder))}", soft_wrap=True)
