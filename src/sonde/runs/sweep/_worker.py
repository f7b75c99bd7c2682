"""What is done for one batch, or for several in lockstep, wherever the process runs.

It continues where the folder stands, so it can be killed and started again at any time.
"""

import importlib
import json
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sonde._internal.errors import SondeError
from sonde._internal.files import append_line
from sonde._internal.machine import this_machine
from sonde.runs._callbacks import Callback
from sonde.runs._codec import from_json, to_json
from sonde.runs._run import run
from sonde.runs._store import RunStore
from sonde.runs._together import run_together
from sonde.runs.sweep._backend import LOG
from sonde.runs.sweep._batch import MACHINES, Batch
from sonde.runs.trackers._names import is_behind


@dataclass(frozen=True)
class _Callbacks:
    callbacks: tuple[Callback, ...]


def to_text(callbacks: Sequence[Callback]) -> str:
    """Callbacks as a text that reaches any process.

    Args:
        callbacks: Each must be a dataclass of numbers and texts, as the parts of a config are.
    """
    return to_json(_Callbacks(tuple(callbacks)))


def from_text(text: str) -> tuple[Callback, ...]:
    """New callbacks that are like those which were sent.

    Args:
        text: What `to_text` wrote.
    """
    return from_json(_Callbacks, text, "callbacks of the sweep").callbacks


def work(worker: str, folder: Path, callbacks: str) -> None:
    """Run a batch to completion.

    Args:
        worker: MODULE:FUNCTION that does it.
        folder: Folder of the batch.
        callbacks: Callbacks, as text.
    """
    store = _opened(folder)
    module, function = worker.split(":")
    getattr(importlib.import_module(module), function)(store, from_text(callbacks))


def _opened(folder: Path) -> RunStore:
    store = RunStore.open(folder)
    append_line(folder / MACHINES, json.dumps(this_machine()))
    return store


def explore_in_lockstep(folders: Sequence[Path], callbacks: str) -> bool:
    """Explore in several batches, which one program fits, until all rounds are done; what fails does not stop the others.

    Args:
        folders: Folders of the batches.
        callbacks: Callbacks, as text; each batch has its own.

    Returns:
        Whether all batches are finished; the logs of the others say why they are not.
    """
    stores, errors = list[RunStore](), dict[Path, BaseException]()
    for folder in folders:
        try:
            store = _opened(folder)
            stores += [] if _is_done(store, from_text(callbacks)) else [store]
        except SondeError as error:
            errors[folder] = error
    try:
        ended = run_together(stores, [from_text(callbacks) for _ in stores]) if stores else []
    except SondeError as error:
        ended = [error] * len(stores)
    errors |= {store.folder: end for store, end in zip(stores, ended, strict=True) if isinstance(end, BaseException)}
    for folder, error in errors.items():
        said = f"sonde: error: {error}" if isinstance(error, SondeError) else "".join(traceback.format_exception(error))
        append_line(folder / LOG, said.rstrip("\n"))
    return not errors


def _is_done(store: RunStore, callbacks: Sequence[Callback]) -> bool:
    finished = Batch("", store.config.method.name, store.config, store.folder).finished
    return finished and not is_behind(store.folder, callbacks)


def explore_batch(store: RunStore, callbacks: Sequence[Callback]) -> None:
    """Explore until all rounds are done.

    Args:
        store: The run.
        callbacks: Who listens.
    """
    if not _is_done(store, callbacks):
        run(store, callbacks)
