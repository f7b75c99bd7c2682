"""What a run's folder says of a track.

    DIR/tracks/NAME.json    which track it is, and what was sent to it
    DIR/tracks/NAME/        files of the tracker itself, if it keeps any there

Both are read back as untrusted: a folder may be somebody else's. It never says where to send anything; that is what the user's
own settings say, and the record is compared with them.
"""

import dataclasses
import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sonde._internal.errors import SondeError
from sonde._internal.files import checksum, write_atomically
from sonde._internal.reading import MAX_JSON_BYTES, parse_json, read_limited
from sonde.runs._callbacks import Row

TRACKS = "tracks"
"""Folder of all tracks, in the folder of a run."""
FORMAT = 1
_ID = re.compile("[0-9a-f]{12}")
_SHA256 = re.compile("[0-9a-f]{64}")


@dataclass
class TrackRecord:
    """Which track it is, and what was sent to it."""

    id: str = field(default_factory=lambda: secrets.token_hex(6))
    """Names the track among all tracks of the tracker."""
    destination: str = ""
    """Where it is, such as a project; empty before anything was sent."""
    rounds: list[str] = field(default_factory=list)
    """Checksums of the metrics of the rounds that were sent, or were about to be when the process was killed."""
    figures: int = 0
    """The round of the newest figures that were sent; 0 for none."""
    films: dict[str, str] = field(default_factory=dict)
    """Films that were sent: checksums by name."""
    complete: int = 0
    """The round up to which all was sent, and the tracker had saved it."""

    @classmethod
    def load(cls, folder: Path, name: str) -> "TrackRecord":
        """Read a record; there is a new one where there is none yet.

        Args:
            folder: Folder of the run.
            name: Name of the tracker.
        """
        path = record_path(folder, name)
        if not path.is_file():
            return cls()
        found = parse_json(read_limited(path, MAX_JSON_BYTES), str(path))
        fields = {entry.name for entry in dataclasses.fields(cls)}
        if not isinstance(found, dict) or found.pop("format", None) != FORMAT or found.keys() != fields or not _is_valid(found):
            raise SondeError(f"{path} is not the record of a track; remove it, and the run goes on in a new track")
        return cls(**found)

    def save(self, folder: Path, name: str) -> None:
        """Write the record.

        Args:
            folder: Folder of the run.
            name: Name of the tracker.
        """
        own_folder(folder)
        text = json.dumps({"format": FORMAT, **dataclasses.asdict(self)}, indent=2) + "\n"
        write_atomically(record_path(folder, name), text.encode())


def record_path(folder: Path, name: str) -> Path:
    """Where the record of a track is.

    Args:
        folder: Folder of the run.
        name: Name of the tracker.
    """
    return folder / TRACKS / f"{name}.json"


def own_folder(folder: Path, *parts: str) -> Path:
    """Make a folder below `tracks`; a link in its place is rejected, since what is written would land elsewhere.

    Args:
        folder: Folder of the run.
        *parts: Names of folders, from the outermost.

    Returns:
        Path of the folder.
    """
    path = folder
    for part in (TRACKS, *parts):
        path = path / part
        if path.is_symlink():
            raise SondeError(f"{path} must be a folder, not a link to one; remove the link")
        path.mkdir(exist_ok=True)
    return path


def sums_of(rows: Sequence[Row]) -> list[str]:
    """Checksums of metrics, one for each round.

    Args:
        rows: Metrics of the first rounds, in their order.
    """
    texts: dict[int, str] = {}
    for row in rows:
        texts[row["round"]] = texts.get(row["round"], "") + json.dumps(row) + "\n"
    return [checksum(text.encode()) for text in texts.values()]


def _is_valid(entries: dict[str, Any]) -> bool:
    is_round = lambda value: type(value) is int and value >= 0
    is_sum = lambda value: isinstance(value, str) and bool(_SHA256.fullmatch(value))
    rounds, films = entries["rounds"], entries["films"]
    return (
        isinstance(entries["id"], str)
        and bool(_ID.fullmatch(entries["id"]))
        and isinstance(entries["destination"], str)
        and isinstance(rounds, list)
        and all(is_sum(value) for value in rounds)
        and isinstance(films, dict)
        and all(is_sum(value) for value in films.values())
        and is_round(entries["figures"])
        and is_round(entries["complete"])
    )
