"""Gains in files: safetensors with a format in their metadata; needs only numpy and safetensors."""

from pathlib import Path

import numpy as np

from sonde._internal.errors import SondeError
from sonde._internal.files import write_atomically
from sonde._internal.policy_file import read, to_bytes


def save_arrays(path: str | Path, kind: str, arrays: dict[str, np.ndarray]) -> None:
    """Write arrays, whole or not at all.

    Args:
        path: Path of the file; it ends in .safetensors.
        kind: The format, kept in the metadata.
        arrays: Arrays by name.
    """
    path = Path(path)
    if path.suffix != ".safetensors":
        raise SondeError(f"a gain cannot be written to {path.name!r}: end its name in .safetensors")
    write_atomically(path, to_bytes(arrays, kind))


def load_arrays(path: str | Path, kind: str) -> dict[str, np.ndarray]:
    """Read arrays; the file may come from anywhere.

    Args:
        path: Path of the file.
        kind: The format that its metadata must name.

    Returns:
        Arrays by name.
    """
    return read(Path(path), (kind,))[1]


def check_arrays(path: str | Path, arrays: dict[str, np.ndarray], expected: set[str]) -> None:
    """Reject a file with other arrays than expected.

    Args:
        path: Path of the file.
        arrays: Its arrays.
        expected: Names of the arrays that it must have.
    """
    if arrays.keys() != expected:
        names = ", ".join(sorted(arrays)) or "no arrays"
        raise SondeError(f"{path} is damaged: expected the arrays {', '.join(sorted(expected))}, got {names}; save it again")
