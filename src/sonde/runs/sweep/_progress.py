"""What a person sees while a sweep runs: every batch, how far it is, and how long all of it may still take.

On a terminal it is live; elsewhere (a log, a pipe) a line is printed for each round that is finished.
"""

import time
from collections.abc import Sequence

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sonde.runs._progress import duration
from sonde.runs.sweep._batch import Batch

MOST_LINES = 24


class SweepProgress:
    """Shows batches on a console; pass it to `run_sweep` as `watch`, and use it as a context manager."""

    def __init__(self, batches: Sequence[Batch], console: Console):
        """Look how far the batches are; nothing is shown yet.

        Args:
            batches: All batches of the sweep, finished ones too.
            console: Where to show them.
        """
        self.batches, self.console, self.at_once = batches, console, 1
        self.done = {batch: batch.rounds_done() for batch in batches}
        self.pace = {batch: batch.seconds_per_round() for batch in batches}
        self.began = time.perf_counter()
        self.live = Live(console=console, refresh_per_second=2, transient=True) if console.is_terminal else None

    def __enter__(self) -> "SweepProgress":
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            self.live.stop()

    def __call__(self, running: Sequence[Batch]) -> None:
        """Look how far the batches are, and show it.

        Args:
            running: The batches that are being worked on.
        """
        self.at_once = max(1, len(running))
        for batch in self.batches:
            done = batch.rounds_done() if self.done[batch] < batch.rounds else batch.rounds
            if done != self.done[batch]:
                self.done[batch], self.pace[batch] = done, batch.seconds_per_round()
                if not self.live:
                    line = f"{batch.name}: round {done} of {batch.rounds}; {self.summary()}"
                    self.console.print(line, soft_wrap=True, markup=False, emoji=False)
        if self.live:
            self.live.update(self._table(running))

    def seconds_left(self) -> float | None:
        """An estimate from the pace of each batch, or of others in its setting; None while nothing is known."""
        left = 0.0
        for batch in self.batches:
            missing = batch.rounds - self.done[batch]
            if missing:
                pace = self._pace(batch)
                if pace is None:
                    return None
                left += missing * pace
        return left / self.at_once

    def _pace(self, batch: Batch) -> float | None:
        known = lambda others: [pace for b in others if (pace := self.pace[b]) is not None]
        alike = known([batch]) or known(b for b in self.batches if b.setting == batch.setting) or known(self.batches)
        return sum(alike) / len(alike) if alike else None

    def summary(self) -> str:
        """Everything in one line."""
        done, total = sum(self.done.values()), sum(batch.rounds for batch in self.batches)
        left = self.seconds_left()
        text = "" if left is None else f", about {duration(left)} left"
        return f"{done} of {total} rounds in all, {duration(time.perf_counter() - self.began)}{text}"

    def _table(self, running: Sequence[Batch]) -> Table:
        table = Table("setting", "method", "seeds", "round", "s per round", "", title=self.summary(), title_justify="left")
        active = set(running)
        # what is being worked on is always shown; of the others as many as have room
        order = sorted(self.batches, key=lambda b: (b not in active, self.done[b] >= b.rounds))
        for batch in order[:MOST_LINES]:
            pace, done = self.pace[batch], self.done[batch]
            state = "running" if batch in active else "done" if done >= batch.rounds else "waiting"
            shown = "" if pace is None else f"{pace:.1f}"
            table.add_row(Text(batch.setting), Text(batch.method), batch.seeds, f"{done}/{batch.rounds}", shown, state)
        if len(order) > MOST_LINES:
            table.caption = f"and {len(order) - MOST_LINES} more"
        return table
