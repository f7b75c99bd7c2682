"""Which reader a source needs."""

import glob
import itertools
from collections.abc import Callable, Container, Sequence
from pathlib import Path

from sonde._internal.errors import SondeError, did_you_mean
from sonde.runs._measurements import MINARI
from sonde.runs.logs._arrays import MatLog, NpzLog
from sonde.runs.logs._format import LogFormat
from sonde.runs.logs._lerobot import INFO, LeRobotLog
from sonde.runs.logs._mcap import CDR, JSON, McapLog
from sonde.runs.logs._recording import LogFile
from sonde.runs.logs._ros import METADATA, RosLog
from sonde.runs.logs._text import TextLog

EXPECTED = (
    "FILE.csv (or .txt, .tsv), .npz, .mat, .mcap, .db3, the folder of a ROS 2 bag or of a LeRobot dataset, or minari:DATASET-v0"
)
TEXT = (".csv", ".txt", ".tsv", ".dat")


def expanded(sources: str | Sequence[str]) -> list[str]:
    """The files that are meant.

    Args:
        sources: Files, patterns such as logs/*.csv, folders or datasets.

    Returns:
        Each once, those of a pattern in the order of their names.
    """
    found = list[str]()
    for source in [sources] if isinstance(sources, str) else sources:
        if source.startswith(MINARI) or not glob.has_magic(source) or Path(source).expanduser().exists():
            found.append(source)
            continue
        files = sorted(glob.glob(str(Path(source).expanduser())))  # noqa: PTH207 (patterns may be absolute)
        if not files:
            raise SondeError(f"{source}: no file fits this pattern; looked in {Path(source).expanduser().absolute().parent}")
        found += files
    if len(set(found)) < len(found):
        twice = next(source for number, source in enumerate(found) if source in found[:number])
        raise SondeError(f"{twice} is given twice; name each file once")
    if not found:
        raise SondeError(f"no data: expected {EXPECTED}")
    return found


def open_log(source: str, log: LogFormat) -> LogFile:
    """Open a file or folder.

    Args:
        source: What `expanded` returns, other than Minari datasets.
        log: How it is read.
    """
    path = Path(source).expanduser()
    suffix = path.suffix.lower()
    readers: dict[str, Callable[[], LogFile]] = {
        **dict.fromkeys(TEXT, lambda: TextLog(path, log)),
        ".npz": lambda: NpzLog(path),
        ".mat": lambda: MatLog(path),
        ".mcap": lambda: _mcap(path),
        ".db3": lambda: RosLog(path),
    }
    if path.is_dir():
        if (path / INFO).is_file():
            return LeRobotLog(path)
        if (path / METADATA).is_file():
            return RosLog(path)
        raise SondeError(f"{source} is a folder without {INFO} (LeRobot) or {METADATA} (ROS 2); expected {EXPECTED}")
    if suffix not in readers:
        raise SondeError(f"{source}: expected {EXPECTED}; save the measurements as one of these")
    if not path.is_file():
        meant = did_you_mean(path.name, _files_beside(path, readers))
        raise SondeError(f"{source}: there is no such file;{meant} looked for {path.absolute()}")
    return readers[suffix]()


def _mcap(path: Path) -> LogFile:
    """By the encoding of the messages: JSON, or that of ROS 2."""
    file = McapLog(path)
    encodings = set(file.encodings().values())
    return RosLog(path) if CDR in encodings and JSON not in encodings else file


def _files_beside(path: Path, suffixes: Container[str]) -> list[str]:
    """Names of the files of some kinds in the folder of a file."""
    try:
        return [other.name for other in itertools.islice(path.parent.iterdir(), 1000) if other.suffix.lower() in suffixes]
    except OSError:
        return []
