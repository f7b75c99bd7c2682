"""Trackio: a SQLite database on this machine, or a server or Space that the user's settings name.

Trackio takes what it is given in a thread and writes it a moment later, so a kill may lose the newest rounds. Its database says
which ones it has.
"""

import contextlib
import contextvars
import functools
import importlib
import io
import os
import threading
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from sonde.runs._callbacks import Row
from sonde.runs.trackers._tracker import Track, Tracker

_printing = threading.Lock()


@dataclass
class Trackio(Tracker):
    """Sends each seed to a run of its own, in a group per run folder, where `trackio.init` would send it."""

    project: str = field(default="sonde", kw_only=True)
    """The project."""

    name: ClassVar[str] = "trackio"
    package: ClassVar[str] = "trackio"

    def destination(self) -> str:
        """The project, and where it is if it is not on this machine."""
        server = os.environ.get("TRACKIO_SPACE_ID") or os.environ.get("TRACKIO_SERVER_URL", "").partition("?")[0]
        return "/".join(filter(None, (server, self.project)))

    def begin(self, track: Track) -> Mapping[int, int]:
        """Open a run per seed, and ask what it holds."""
        self._runs: dict[int, Any] = {}
        held = {}
        for seed in track.config.seed_list:
            start = functools.partial(
                _library().init,
                project=self.project,
                name=f"{track.name}-{track.id}-seed-{seed}",  # runs are found again by their names
                group=f"{track.name}-{track.id}",
                config=track.document(seed),
                resume="allow",
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )
            with _quietly():  # in a context of its own: another run of the context would be ended
                self._runs[seed] = contextvars.Context().run(start)
            held[seed] = max(self._runs[seed]._next_step - 1, 0)
        return held

    def log(self, row: Row) -> None:
        """Send the metrics of a seed and round."""
        self._runs[row["seed"]].log({key: value for key, value in row.items() if value is not None}, step=row["round"])

    def log_media(self, kind: str, round_number: int, paths: Sequence[Path]) -> None:
        """Send figures and films to the run of the first seed."""
        media = _library().Image if kind == "figures" else _library().Video
        first = next(iter(self._runs.values()))
        first.log({f"{kind}/{path.stem}": media(str(path)) for path in paths}, step=round_number)

    def end(self) -> None:
        """Wait until all is written."""
        runs, self._runs = self._runs, {}
        for run in runs.values():
            with _quietly():
                run.finish()

    def where(self, track: Track) -> str:
        """The command that shows the track."""
        return f"trackio show --project {self.project}"


def _library() -> Any:
    return importlib.import_module("trackio")


@contextlib.contextmanager
def _quietly() -> Generator[None]:
    """Keep what Trackio prints away from the terminal, where the progress of the run is shown."""
    with _printing, contextlib.redirect_stdout(io.StringIO()):
        yield
