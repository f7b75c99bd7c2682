"""Callbacks: how progress displays, trackers, reports and users follow a run."""

import contextlib
from collections.abc import Sequence
from typing import Any

from sonde.explorer import Explorer
from sonde.runs._config import RunConfig
from sonde.runs._store import RunStore

Row = dict[str, Any]
"""Metrics of one seed and round, as in `metrics.jsonl`."""
PHASES = ("plan", "fit", "evaluate")
"""Phases of a round, in their order."""


class Callback:
    """Follows a run; override the methods that you need.

    `explore`, `Experiment` and sweeps take a list of callbacks and call them in its order. An exception in a callback stops the
    run; all finished rounds are on disk, and the run can be resumed.
    """

    def on_run_start(self, config: RunConfig, rows: Sequence[Row]) -> None:
        """Called before the first round of this process.

        Args:
            config: The config of the run.
            rows: Metrics of the rounds that an earlier process finished.
        """

    def on_phase(self, round_number: int, phase: str, detail: str) -> None:
        """Called when a phase of a round begins, and after each step of a host world.

        Args:
            round_number: The round, from 1.
            phase: One of `PHASES`.
            detail: What is being done, such as a step number or a task; empty when the phase begins.
        """

    def on_round_end(self, round_number: int, rows: Sequence[Row]) -> None:
        """Called when a round is finished and on disk.

        Args:
            round_number: The round, from 1.
            rows: Its metrics, one row per seed.
        """

    def on_run_end(self) -> None:
        """Called once when this process stops working on the run, also after an exception."""


class RunCallback(Callback):
    """A callback that reads more of the run than its metrics."""

    def on_run_opened(self, store: RunStore, explorer: Explorer) -> None:
        """Called before `on_run_start`.

        Args:
            store: The run; its folder may be a draft, which takes its place with the first finished round.
            explorer: The explorer, which changes as the run proceeds.
        """


class Callbacks(RunCallback):
    """Calls several callbacks in turn."""

    def __init__(self, callbacks: Sequence[Callback]):
        """Keep the list.

        Args:
            callbacks: Called in this order.
        """
        self._callbacks = tuple(callbacks)

    def on_run_opened(self, store: RunStore, explorer: Explorer) -> None:
        """Call those that listen to it; if one of them fails, tell the others before it of the end."""
        with contextlib.ExitStack() as stack:
            for callback in self._callbacks:
                if isinstance(callback, RunCallback):
                    callback.on_run_opened(store, explorer)
                    stack.callback(callback.on_run_end)
            stack.pop_all()

    def on_run_start(self, config: RunConfig, rows: Sequence[Row]) -> None:
        """Call each."""
        for callback in self._callbacks:
            callback.on_run_start(config, rows)

    def on_phase(self, round_number: int, phase: str, detail: str) -> None:
        """Call each."""
        for callback in self._callbacks:
            callback.on_phase(round_number, phase, detail)

    def on_round_end(self, round_number: int, rows: Sequence[Row]) -> None:
        """Call each."""
        for callback in self._callbacks:
            callback.on_round_end(round_number, rows)

    def on_run_end(self) -> None:
        """Call each, even if another one fails."""
        with contextlib.ExitStack() as stack:
            for callback in reversed(self._callbacks):
                stack.callback(callback.on_run_end)
