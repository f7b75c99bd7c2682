"""Follow a run: its page is written again whenever a round ends, and loads itself again in the browser."""

import time
from collections.abc import Callable
from pathlib import Path

from sonde._internal.errors import SondeError
from sonde.runs._place import is_being_started, is_locked, is_unfinished
from sonde.runs.report._content import Content, collect
from sonde.runs.report._subjects import Source, opened, subjects
from sonde.runs.report._tasks import Say, TaskWork
from sonde.runs.report._write import report_path, save

RENEW = 10.0
"""Seconds after which the page of a running exploration loads itself again."""
POLL = 1.0
"""Seconds between looks at the folder."""
PATIENCE = 15
"""Looks at an unfinished run that nobody works on until it counts as interrupted."""


def follow_report(
    folder: str | Path,
    out: str | Path | None = None,
    *,
    work: TaskWork | None = None,
    allow_code: bool = False,
    say: Say | None = None,
    on_first: Callable[[Path], None] | None = None,
) -> str:
    """Write the report of a run again after each of its rounds, until the run ends; films and plans come with its end.

    Args:
        folder: Folder of the run, which may still be in its first round.
        out: The file; by default report.html in the folder.
        work: What to compute for tasks at the end.
        allow_code: Whether code that the run names may run, even if the user never allowed it before.
        say: Called with what is being done.
        on_first: Called with the path once the page exists.

    Returns:
        How the run ended, as a sentence.
    """
    place, told = Path(folder).absolute(), say or (lambda _: None)
    path = report_path([place], None if out is None else Path(out))
    _wait_for_first_round(place, told)
    page = _Page(place, path, allow_code, told)
    try:
        return page.follow(work or TaskWork(), on_first or (lambda _: None))
    except KeyboardInterrupt:
        page.leave()
        raise


def _wait_for_first_round(place: Path, say: Say) -> None:
    idle = 0
    while idle < PATIENCE and not (place / "config.json").exists() and is_unfinished(place):
        say("waiting for the first round to end")
        idle = 0 if is_being_started(place) else idle + 1
        time.sleep(POLL)


class _Page:
    """The page of a run that goes on."""

    def __init__(self, place: Path, path: Path, allow_code: bool, say: Say):
        self.place, self.path, self.allow_code, self.say = place, path, allow_code, say
        self._content: Content | None = None
        self._shown = 0

    def follow(self, work: TaskWork, on_first: Callable[[Path], None]) -> str:
        """Write the page after each round, and once more at the end."""
        idle = 0
        while True:
            source = opened(self.place, self.allow_code)
            done = max(source.store.checkpoints(), default=0)
            ended = _how_it_ended(source, done)
            if done and (done > self._shown or ended):
                first = self._content is None
                self._write(source, done, TaskWork(False, False, False) if ended is None else work, ended)
                if first:
                    on_first(self.path)
            if ended is not None:
                return ended
            # a run that nobody works on is given some time: one process may take over from another
            idle = 0 if done > self._shown or is_locked(self.place) else idle + 1
            if idle >= PATIENCE:
                return self._interrupted(source, done)
            self.say(f"round {done} of {source.store.config.rounds} is on the page; waiting for the next")
            time.sleep(POLL)

    def _write(self, source: Source, done: int, work: TaskWork, ended: str | None) -> None:
        self.say(f"writing the page of round {done}")
        self._content = collect(subjects([source]), work, self.say)
        rounds = source.store.config.rounds
        if ended is None:
            save(self._content, self.path, RENEW, f"Running: round {done} of {rounds} is done. This page renews itself.")
        else:
            save(self._content, self.path)
        self._shown = done

    def _interrupted(self, source: Source, done: int) -> str:
        if not done:
            raise SondeError(f"{self.place} has no finished round, and no process works on it: there is nothing to follow")
        said = f"No process works on the run any more; round {done} of {source.store.config.rounds} was its last."
        self.leave(said)
        return f"{said} 'sonde resume {self.place}' continues it."

    def leave(self, status: str = "The page no longer follows the run.") -> None:
        """Write the page once more so that it no longer loads itself again.

        Args:
            status: What it says instead.
        """
        if self._content is not None:
            save(self._content, self.path, status=status)


def _how_it_ended(source: Source, done: int) -> str | None:
    """How a run ended, as a sentence; None if it goes on."""
    if done >= source.store.config.rounds:
        return f"The run has ended: all {done} rounds are done."
    return source.store.why_stopped() if done else None
