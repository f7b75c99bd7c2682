"""A run's own copy of the measurements that it started from: what happens to the original file later does not matter.

DIR/data/initial.safetensors   [N, ...], the same for all seeds
DIR/data/initial.sha256        its checksum, in the format of sha256sum
"""

from pathlib import Path

import numpy as np
import safetensors.numpy

from sonde._internal.errors import SondeError
from sonde._internal.files import checksum, write_atomically
from sonde.data import Trajectory

ARRAYS = ("states", "actions", "next_states")


def _paths(folder: Path) -> tuple[Path, Path]:
    return folder / "data" / "initial.safetensors", folder / "data" / "initial.sha256"


def save_initial_data(folder: Path, measurements: Trajectory) -> None:
    """Copy them into the run's folder."""
    path, note = _paths(folder)
    content = safetensors.numpy.save({name: np.ascontiguousarray(getattr(measurements, name)) for name in ARRAYS})
    write_atomically(path, content)
    write_atomically(note, f"{checksum(content)}  {path.name}\n".encode())


def load_initial_data(folder: Path, source: str) -> Trajectory:
    """The copy, if it is what was written; `source` is where the measurements came from."""
    path, _ = _paths(folder)
    content = path.read_bytes() if path.is_file() else b""
    if checksum(content) != initial_data_checksum(folder):
        raise SondeError(
            f"{path} is missing or damaged, and the run cannot go on without it; restore it from a copy, "
            f"or start a new run with --data {source}"
        )
    arrays = safetensors.numpy.load(content)
    return Trajectory(arrays["states"], arrays["actions"], arrays["next_states"])


def initial_data_checksum(folder: Path) -> str | None:
    """As noted when the run was made; None: it started from nothing."""
    _, note = _paths(folder)
    return note.read_bytes().decode(errors="replace").split(" ")[0] if note.is_file() else None
