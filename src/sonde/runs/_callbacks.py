"""Callbacks: how progress displays, trackers, reports and users listen to a run."""

from collections.abc import Sequence
from typing import Any

from sonde.runs._config import RunConfig

Row = dict[str, Any]
"""Metrics of one seed and round, as in `metrics.jsonl`."""
PHASES = ("plan", "fit", "evaluate")
"""Phases of a round, in their order."""


class Callback:
    """Listens to a run; override what you need.

    `explore`, `Experiment` and the workers of sweeps take a list of them and call each in turn. What a callback raises stops the
    run; everything up to the last finished round is safe on disk.
    """

    def on_run_start(self, config: RunConfig, rows: Sequence[Row]) -> None:
        """Called before the first round of this process.

        Args:
            config: What is run.
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
        """Called when a round is safe on disk.

        Args:
            round_number: The round, from 1.
            rows: Its metrics, one row per seed.

        """

    def on_run_end(self) -> None:
        """Called when this process is done with the run, for whatever reason."""


class Callbacks(Callback):
    """Calls several callbacks in turn."""

    def __init__(self, callbacks: Sequence[Callback]):
        """Keep the list.

        Args:
            callbacks: Whom to call.

        """
        self._callbacks = tuple(callbacks)

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
        """Call each."""
        for callback in self._callbacks:
            callback.on_run_end()
