"""Trackers by name, for the command line, and what a folder says of its tracks."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from sonde._internal.errors import one_of
from sonde.runs._checkpoints import Checkpoints
from sonde.runs.trackers._record import TrackRecord, record_path
from sonde.runs.trackers._tensorboard import TensorBoard
from sonde.runs.trackers._tracker import Tracker
from sonde.runs.trackers._trackio import Trackio
from sonde.runs.trackers._wandb import WandB

TRACKERS: dict[str, type[Tracker]] = {kind.name: kind for kind in (TensorBoard, WandB, Trackio)}
"""Names for the command line."""


def trackers_named(names: Sequence[str]) -> tuple[Tracker, ...]:
    """Trackers with their default settings.

    Args:
        names: Names of trackers; unknown ones, and those whose package is not installed, are rejected.
    """
    for name in names:
        one_of("tracker", name, TRACKERS)
    return tuple(TRACKERS[name]() for name in dict.fromkeys(names))


def tracks_in(folder: Path) -> list[str]:
    """Names of the trackers that have followed a run.

    Args:
        folder: Folder of the run.
    """
    return [name for name in TRACKERS if record_path(folder, name).is_file()]


def is_behind(folder: Path, trackers: Iterable[object]) -> bool:
    """Whether a track lacks anything of what a run has finished.

    Args:
        folder: Folder of the run.
        trackers: Callbacks, of which the trackers count.
    """
    newest = max(Checkpoints(folder).rounds(), default=0)
    names = [tracker.name for tracker in trackers if isinstance(tracker, Tracker)]
    return any(TrackRecord.load(folder, name).complete < newest for name in names)
