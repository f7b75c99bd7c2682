"""Controllers in safetensors files; needs only numpy and safetensors.

The format is the file's only metadata entry:

    sonde-policy-1    a trained network; `sonde.control.deploy` documents its arrays
    sonde-gains-1     linear feedback u = action - gain (x - state), limited to [-1, 1]: gain [du, dx], state [dx], action [du]
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from sonde._internal.errors import SondeError

FORMAT = "sonde-policy-1"
GAINS = "sonde-gains-1"


def to_bytes(arrays: Mapping[str, Any], kind: str) -> bytes:
    """Content of a file.

    Args:
        arrays: Arrays by name.
        kind: The format.
    """
    # only one metadata entry: safetensors writes several in random order, and equal runs must give equal files
    whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    return safetensors.numpy.save(whole, metadata={"format": kind})


def read(path: Path) -> tuple[str, dict[str, np.ndarray]]:
    """Read a file whose format is one of these.

    Args:
        path: Path of the file.

    Returns:
        The format, and the arrays by name, not checked any further.
    """
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            kind = (file.metadata() or {}).get("format")
            if kind not in (FORMAT, GAINS):
                raise SondeError(f"{path} is not a policy: expected the format {FORMAT} or {GAINS}, got {kind!r}")
        return kind, safetensors.numpy.load_file(path)
    except (OSError, safetensors.SafetensorError) as error:
        raise SondeError(f"{path} cannot be read as a policy ({error}); trained policies are in policies/ of a run") from None
