"""Controllers in safetensors files, whose format is the only entry of the metadata; needs only numpy and safetensors."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from sonde._internal.errors import SondeError

FORMAT = "sonde-policy-1"
"""The format of a trained policy; `sonde.control.deploy` documents it."""


def to_bytes(arrays: Mapping[str, Any], kind: str = FORMAT) -> bytes:
    """Content of a file.

    Args:
        arrays: Arrays by name.
        kind: The format; by default that of a trained policy.
    """
    # only one metadata entry: safetensors writes several in random order, and equal runs must give equal files
    whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    return safetensors.numpy.save(whole, metadata={"format": kind})


def read(path: Path, kinds: Sequence[str]) -> tuple[str, dict[str, np.ndarray]]:
    """Read a file.

    Args:
        path: Path of the file.
        kinds: The formats that it may have.

    Returns:
        The format, and the arrays by name, not checked any further.
    """
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            kind = (file.metadata() or {}).get("format", "none")
            if kind not in kinds:
                raise SondeError(f"{path} is not a policy: expected the format {' or '.join(kinds)}, got {kind!r}")
        return kind, safetensors.numpy.load_file(path)
    except (OSError, safetensors.SafetensorError) as error:
        raise SondeError(f"{path} cannot be read as a policy ({error}); trained policies are in policies/ of a run") from None
