"""What all trackers share: what was sent is known after any interruption, and failures do not stop a run.

A track begins when the first round is on disk, for only then the run has a folder. From then on, at the start of each process:

1. The record in the folder (`_record`) says which rounds were sent. If the run was taken back to an earlier round, or was
   computed again, the tracks of the two differ, and a new one begins.
2. The tracker says which rounds its track really holds: a process may have been killed between the two.
3. Rounds that are missing are sent, from `metrics.jsonl`.

Each further round is noted in the record before it is sent.
"""

import abc
import contextlib
import importlib.util
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from sonde._internal.errors import SondeError, first_line
from sonde._internal.files import checksum
from sonde._internal.reading import read_limited
from sonde.explorer import Explorer
from sonde.runs._callbacks import Row, RunCallback
from sonde.runs._config import RunConfig
from sonde.runs._store import RunStore
from sonde.runs.trackers._drawing import drawn_figures
from sonde.runs.trackers._events import MAX_PICTURE_BYTES
from sonde.runs.trackers._origin import config_document, origin
from sonde.runs.trackers._record import TrackRecord, record_path, sums_of

FILMS = (".gif", ".mp4")


@dataclass
class Track:
    """The track of one run, as a `Tracker` sees it."""

    folder: Path
    """Folder of the run."""
    config: RunConfig
    """Its config."""
    record: TrackRecord
    """What the folder says of the track."""
    origin: dict[str, Any]
    """Git state (`git`) and versions (`versions`) of this process."""

    @property
    def id(self) -> str:
        """Names the track among all tracks of the tracker."""
        return self.record.id

    @property
    def name(self) -> str:
        """The run in a word; several tracks may have the same."""
        return re.sub(r"[^\w.=,+-]+", "-", self.folder.name) or "run"

    def document(self, seed: int | None = None) -> dict[str, Any]:
        """What a tracker shows as the settings of the run.

        Args:
            seed: Add this seed, for a tracker with a track per seed.

        Returns:
            The config as in `config.json`, and `origin`.
        """
        return {**config_document(self.config), **self.origin, **({} if seed is None else {"seed": seed})}


@dataclass
class Tracker(RunCallback, abc.ABC):
    """Abstract: sends what a run measures to a tracking service; subclass it as a dataclass of numbers and texts.

    It follows one run at a time, and may follow another one afterwards. What it raises stops the tracking and not the run,
    except before the first round of a process: then nothing is lost yet.
    """

    figures_every: int = 0
    """Draw and send figures after every n-th round; 0: only when the run is finished."""

    name: ClassVar[str]
    """Name of the tracker: `--track NAME`, and `tracks/NAME.json` in the folder of a run."""
    package: ClassVar[str]
    """The module that it needs, which the extra of the tracker's name installs."""
    films: ClassVar[tuple[str, ...]] = FILMS
    """Suffixes of the films that it can show."""
    can_go_back: ClassVar[bool] = False
    """Whether rounds can be removed from its track; if not, a run that goes back begins a new one."""

    def __post_init__(self):
        """Reject settings that cannot be, and a package that is not installed."""
        if type(self.figures_every) is not int or self.figures_every < 0:
            raise SondeError(f"{self.name}: figures_every must be a whole number, 0 or above, got {self.figures_every!r}")
        if importlib.util.find_spec(self.package) is None:
            raise SondeError(
                f"the tracker {self.name!r} needs {self.package}, which is not installed: pip install 'sonde[{self.name}]'"
            )
        self._store: RunStore | None = None
        self._explorer: Explorer | None = None
        self._track: Track | None = None
        self._held: dict[int, int] = {}
        self._failed = False

    # What a tracker implements

    @abc.abstractmethod
    def destination(self) -> str:
        """Where this user's settings send tracks to, such as a project; a track is never continued elsewhere."""

    def check(self) -> None:
        """Raise a `SondeError` if nothing could be sent; called before the first round of a process."""
        return None

    @abc.abstractmethod
    def begin(self, track: Track) -> Mapping[int, int]:
        """Open a track.

        Args:
            track: A new track, or one that earlier processes have sent to.

        Returns:
            The last round that it holds of each seed; 0 or nothing for none.
        """

    @abc.abstractmethod
    def log(self, row: Row) -> None:
        """Send the metrics of one seed and round.

        Args:
            row: As in `metrics.jsonl`; metrics that are not defined are None, and `stopped` is a text.
        """

    @abc.abstractmethod
    def log_media(self, kind: str, round_number: int, paths: Sequence[Path]) -> None:
        """Send figures or films.

        Args:
            kind: "figures" or "films".
            round_number: The round after which they were made.
            paths: Files whose names without suffix are the names to show; figures are PNG, films have a suffix of `films`.
        """

    @abc.abstractmethod
    def end(self) -> None:
        """Save all that was sent, and close the track; also called after a failure, such as one of `begin`."""

    @abc.abstractmethod
    def where(self, track: Track) -> str:
        """How to look at the track, in a line: a command or an address.

        Args:
            track: The track, which is open.
        """

    # How it follows a run

    @property
    def shown(self) -> str:
        """How to look at the last track that was opened; empty if there is none."""
        return self._shown if hasattr(self, "_shown") else ""

    def on_run_opened(self, store: RunStore, explorer: Explorer) -> None:
        """Keep the run, whose folder may still be a draft."""
        if self._store is not None:
            raise SondeError(f"{self.name}: a tracker follows one run at a time; make one for each")
        self._store, self._explorer, self._failed = store, explorer, False

    def on_run_start(self, config: RunConfig, rows: Sequence[Row]) -> None:
        """Send what earlier processes have not sent."""
        self.check()
        if rows:
            self._guarded(lambda: self._continue(rows), strict=True)

    def on_round_end(self, round_number: int, rows: Sequence[Row]) -> None:
        """Send the round, and the figures if they are due."""
        self._guarded(lambda: self._round(round_number, rows))

    def on_run_end(self) -> None:
        """Close the track."""
        try:
            if self._failed:
                with contextlib.suppress(Exception):
                    self.end()
            elif self._track is not None:
                self._guarded(self._end)
        finally:
            self._store = self._explorer = self._track = None

    def _guarded(self, action: Callable[[], None], strict: bool = False) -> None:
        """Do something that must not stop the run.

        Args:
            action: What to do; nothing is done after a failure.
            strict: Whether errors about the folder or the settings are raised.
        """
        if self._failed:
            return
        try:
            action()
        except Exception as error:
            if strict and isinstance(error, SondeError):
                raise
            self._failed = True
            folder = "DIR" if self._store is None else self._store.folder
            warnings.warn(
                f"tracking with {self.name} stopped ({type(error).__name__}: {first_line(error)}); the run goes on, and "
                f"'sonde resume {folder} --track {self.name}' sends what is missing",
                stacklevel=2,
            )

    def _open(self, rows: Sequence[Row]) -> Track:
        """Open the track, and note where it is.

        Args:
            rows: Metrics of all finished rounds.
        """
        assert self._store is not None
        folder, config, destination = self._store.folder, self._store.config, self.destination()
        record, sums = TrackRecord.load(folder, self.name), sums_of(rows)
        if record.destination not in ("", destination):
            raise SondeError(
                f"{folder} has a track of {self.name} at {record.destination}, and your settings say {destination}: "
                f"set them as they were, or remove {record_path(folder, self.name)} to begin a new track"
            )
        common = next((n for n, (a, b) in enumerate(zip(record.rounds, sums, strict=False)) if a != b), len(sums))
        if len(record.rounds) > common:  # the run went back, or was computed again
            record = TrackRecord(record.id, rounds=record.rounds[:common]) if self.can_go_back else TrackRecord()
        record.destination = destination
        record.complete = min(record.complete, max(len(sums) - 1, 0))  # until this process has closed the track
        record.save(folder, self.name)
        track = Track(folder, config, record, origin())
        self._held = dict(self.begin(track))
        self._track, self._shown = track, self.where(track)
        return track

    def _continue(self, rows: Sequence[Row]) -> None:
        """Open the track of a run with finished rounds, and send what is missing."""
        self._open(rows)
        self._send(rows)
        self._media(rows[-1])

    def _round(self, round_number: int, rows: Sequence[Row]) -> None:
        assert self._store is not None
        if self._track is None:
            return self._continue(self._store.load_metrics())
        self._send(rows)
        self._media(rows[-1])

    def _send(self, rows: Sequence[Row]) -> None:
        """Note rounds in the record, then send them."""
        track = self._opened()
        known = len(track.record.rounds)
        track.record.rounds += sums_of([row for row in rows if row["round"] > known])
        track.record.save(track.folder, self.name)
        for row in rows:
            if row["round"] > self._held.get(row["seed"], 0):
                self.log(row)
                self._held[row["seed"]] = row["round"]

    def _media(self, last: Row) -> None:
        """Send figures and films, if they are due after a round."""
        track, number = self._opened(), last["round"]
        finished = number == track.config.rounds or "stopped" in last
        every = self.figures_every > 0 and number % self.figures_every == 0
        if (finished or every) and track.record.figures != number:
            assert self._store is not None and self._explorer is not None
            self.log_media("figures", number, drawn_figures(self._store, self._explorer))
            track.record.figures = number
        if finished:
            films = {path: checksum(content) for path, content in _films(track.folder, self.films)}
            new = [path for path, digest in films.items() if track.record.films.get(path.name) != digest]
            if new:
                self.log_media("films", number, new)
            track.record.films = {path.name: digest for path, digest in films.items()}
        track.record.save(track.folder, self.name)

    def _end(self) -> None:
        track = self._opened()
        self.end()
        track.record.complete = len(track.record.rounds)
        track.record.save(track.folder, self.name)

    def _opened(self) -> Track:
        assert self._track is not None
        return self._track


def _films(folder: Path, suffixes: Sequence[str]) -> list[tuple[Path, bytes]]:
    """Films among the figures of a run, with their content; links are left out."""
    paths = sorted(path for path in (folder / "figures").iterdir() if path.suffix.lower() in suffixes)
    return [(path, read_limited(path, MAX_PICTURE_BYTES)) for path in paths if path.is_file() and not path.is_symlink()]
