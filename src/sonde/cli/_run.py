"""What `explore`, `resume` and `demo` share: run to completion with a progress display, then draw the figures."""

from rich.console import Console

from sonde.cli._interrupts import saying
from sonde.explorer import Explorer
from sonde.runs._progress import ProgressDisplay
from sonde.runs._report import how_it_ended
from sonde.runs._run import run
from sonde.runs._store import RunStore


def run_and_draw(store: RunStore, console: Console, from_round: int | None = None) -> Explorer:
    """Run to completion with a progress display, then draw the figures.

    Args:
        store: The run.
        console: Where to print.
        from_round: Start after this round; by default after the newest checkpoint.

    Returns:
        The explorer after the last round.
    """
    from sonde.runs.figures import draw_run

    def what_is_safe() -> str:
        if store.checkpoints():
            return f"Stopped. Everything up to the last finished round is safe: 'sonde resume {store.folder}' continues."
        return "Stopped before the first round was finished: nothing was kept or replaced, and the same command starts over."

    with saying(what_is_safe):
        explorer = run(store, [ProgressDisplay(console, store.place)], from_round)
    if ending := how_it_ended(store):
        console.print(ending, soft_wrap=not console.is_terminal)
    figures = draw_run(store, explorer)
    console.print(f"Run: {store.folder}", soft_wrap=True)
    for figure in figures:
        console.print(f"Figure: {figure}", soft_wrap=True)
    return explorer
