"""Read what a run has saved, as untrusted: names, types and shapes are checked here, so that the rest can rely on them."""

from typing import Any

import numpy as np
import safetensors.numpy

from sonde._internal.errors import SondeError, first_line
from sonde._internal.reading import parse_json
from sonde.evaluation._schema import LATE_ACTIONS

MEASURED = ("states", "actions", "next_states")
"""Arrays that measurements always have."""
FLAGS = ("terminated", "truncated", "fallback")
"""Arrays that they may have, with one entry per step."""
PLANNED = ("planned_margin",)
"""Numbers that they may have, with one entry per step."""
KNOWN = {LATE_ACTIONS.key}
"""Metrics that do not follow from the measurements, and are saved with them; all are shares."""
_COUNTS = ("seed", "round")


def saved_arrays(content: bytes, source: str) -> dict[str, np.ndarray]:
    """Decode arrays.

    Args:
        content: A safetensors file.
        source: Its path, for error messages.

    Returns:
        Arrays by name.
    """
    try:
        return safetensors.numpy.load(content)
    except Exception as error:  # besides its own errors, the library raises those of the types and shapes that it is given
        raise SondeError(f"{source} cannot be read ({first_line(error)})") from None


def saved_measurements(content: bytes, source: str) -> dict[str, np.ndarray]:
    """Decode measurements.

    Args:
        content: A safetensors file.
        source: Its path, for error messages.

    Returns:
        States, actions and next states [..., N, d], and where episodes end [..., N], as far as the file has that.
    """
    arrays = saved_arrays(content, source)
    steps = {name: array.shape[:-1] if name in MEASURED else array.shape for name, array in arrays.items()}
    known = set(MEASURED) <= arrays.keys() <= {*MEASURED, *FLAGS, *PLANNED}
    kinds = all(array.dtype.kind == ("b" if name in FLAGS else "f") for name, array in arrays.items())
    if not known or not kinds or len(set(steps.values())) > 1 or any(arrays[name].ndim < 2 for name in MEASURED):
        found = ", ".join(f"{name} {array.dtype}{list(array.shape)}" for name, array in arrays.items())
        raise SondeError(f"{source} does not hold measurements; expected {', '.join(MEASURED)} of equal length, got {found}")
    return arrays


def saved_known(content: bytes, source: str) -> dict[str, float]:
    """Decode the metrics that are saved with measurements.

    Args:
        content: A safetensors file.
        source: Its path, for error messages.

    Returns:
        Shares by key; empty if there are none.
    """
    saved_arrays(content, source)  # so that the header is as it should be
    header = parse_json(content[8 : 8 + int.from_bytes(content[:8], "little")], source)
    found = {key: parse_json(text, source) for key, text in header.get("__metadata__", {}).items()}
    if not found.keys() <= KNOWN or not all(type(value) in (int, float) and 0 <= value <= 1 for value in found.values()):
        raise SondeError(f"{source} does not hold measurements; with them may be saved {', '.join(KNOWN)}, got {found}")
    return found


def saved_row(line: str | bytes, source: str) -> dict[str, Any]:
    """Decode a line of metrics.

    Args:
        line: A JSON object.
        source: Its file and line, for error messages.

    Returns:
        Seed, round, and metrics by key.
    """
    row = parse_json(line, source)
    if not isinstance(row, dict) or not all(type(row.get(key)) is int and row[key] >= 0 for key in _COUNTS):
        raise SondeError(f"{source} is not a line of metrics; expected whole numbers for {', '.join(_COUNTS)}")
    for key, value in row.items():
        if key == "stopped" if isinstance(value, str) else value is None or type(value) in (int, float):
            continue
        raise SondeError(f"{source}: {key!r} must be a number, got {str(value)[:80]!r}")
    return row
