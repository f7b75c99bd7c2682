"""Figures of a run, drawn once for all that show them."""

import threading
import weakref
from pathlib import Path

from sonde.explorer import Explorer
from sonde.runs._store import RunStore

_lock = threading.Lock()  # Matplotlib's settings belong to the process; runs in lockstep have threads
_drawn: weakref.WeakKeyDictionary[RunStore, tuple[int, list[Path]]] = weakref.WeakKeyDictionary()


def drawn_figures(store: RunStore, explorer: Explorer) -> list[Path]:
    """Draw the figures of a run, unless that was done in this process since its last round.

    Args:
        store: The run.
        explorer: The explorer after its last finished round.

    Returns:
        Paths of the figures.
    """
    from sonde.runs.figures import draw_run  # only where a figure is drawn

    with _lock:
        number, paths = _drawn.get(store, (0, []))
        if number != explorer.round or not all(path.is_file() for path in paths):
            paths = draw_run(store, explorer)
            _drawn[store] = explorer.round, paths
        return paths
