"""Initial data: read from a file or dataset, and copied into the run, so that the original may change or go.

DIR/data/initial.safetensors   measurements [N, ...], the same for all seeds
DIR/data/initial.sha256        their checksum, in the format of sha256sum
"""

import itertools
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sonde._internal.errors import SondeError
from sonde._internal.files import checksum, write_atomically
from sonde._internal.reading import MAX_ARRAY_BYTES, read_limited
from sonde.data import SystemSpec, Trajectory
from sonde.runs._saved import MEASURED, measurements_to_bytes, saved_measurements
from sonde.runs.logs import LogFormat
from sonde.runs.logs._load import load
from sonde.runs.logs._open import expanded
from sonde.worlds import World


def read_measurements(source: str | Sequence[str], world: World, log: LogFormat | None = None) -> Trajectory:
    """Read measurements; what is left out, such as what surrounds lost samples, is warned of.

    Args:
        source: One or several files, patterns such as `logs/*.csv`, folders, or minari:DATASET for local Minari datasets; each
            begins a new episode.
        world: The system that was measured.
        log: How logs are read: columns, units, clock.

    Returns:
        Transitions [N, ...], with actions in [-1, 1].
    """
    loaded = load(expanded(source), world, log or LogFormat())
    for finding in itertools.chain.from_iterable(one.findings for one in loaded):
        if finding.level == "warning":
            warnings.warn(str(finding), stacklevel=2)
    parts = [one.measured for one in loaded]
    return Trajectory(*(np.concatenate([getattr(part, name) for part in parts]) for name in MEASURED))


def _paths(folder: Path) -> tuple[Path, Path]:
    return folder / "data" / "initial.safetensors", folder / "data" / "initial.sha256"


def initial_data_path(folder: Path) -> Path:
    """Where a run keeps the measurements that it started from, whether there are any or not.

    Args:
        folder: Folder of the run.
    """
    return _paths(folder)[0]


def save_initial_data(folder: Path, measurements: Trajectory, spec: SystemSpec) -> None:
    """Copy initial data into a run.

    Args:
        folder: Folder of the run.
        measurements: Transitions [N, ...].
        spec: The system that was measured.
    """
    path, note = _paths(folder)
    content = measurements_to_bytes({name: getattr(measurements, name) for name in MEASURED}, spec)
    write_atomically(path, content)
    write_atomically(note, f"{checksum(content)}  {path.name}\n".encode())


def load_initial_data(folder: Path, source: str | Sequence[str]) -> Trajectory:
    """Read the copy; one that is missing or damaged is rejected.

    Args:
        folder: Folder of the run.
        source: Where the measurements came from, for error messages.

    Returns:
        Transitions [N, ...].
    """
    path, _ = _paths(folder)
    content = read_limited(path, MAX_ARRAY_BYTES) if path.is_file() else b""
    if checksum(content) != initial_data_checksum(folder):
        raise SondeError(
            f"{path} is missing or damaged, and the run cannot continue without it; restore it from a copy, "
            f"or start a new run with --data {source if isinstance(source, str) else ' '.join(source)}"
        )
    arrays = saved_measurements(content, str(path))
    return Trajectory(arrays["states"], arrays["actions"], arrays["next_states"])


def initial_data_checksum(folder: Path) -> str | None:
    """Checksum of the initial data when the run was made; None if it started from nothing.

    Args:
        folder: Folder of the run.
    """
    _, note = _paths(folder)
    return note.read_bytes().decode(errors="replace").split(" ")[0] if note.is_file() else None
