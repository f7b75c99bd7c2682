"""What is done for one batch, wherever its process runs.

It continues where the folder stands, so it can be killed and started again at any time.
"""

import importlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sonde._internal.files import append_line
from sonde._internal.machine import this_machine
from sonde.runs._callbacks import Callback
from sonde.runs._codec import from_json, to_json
from sonde.runs._run import run
from sonde.runs._store import RunStore
from sonde.runs.sweep._batch import MACHINES, Batch


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
    store = RunStore.open(folder)
    append_line(folder / MACHINES, json.dumps(this_machine()))
    module, function = worker.split(":")
    getattr(importlib.import_module(module), function)(store, from_text(callbacks))


def explore_batch(store: RunStore, callbacks: Sequence[Callback]) -> None:
    """Explore until all rounds are done.

    Args:
        store: The run.
        callbacks: Who listens.
    """
    if not Batch("", store.config.method.name, store.config, store.folder).finished:
        run(store, callbacks)
