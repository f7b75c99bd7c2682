"""What a run saves: how measurements are written, and how all is read, as untrusted.

Names, types and shapes are checked here, so that the rest can rely on them.
"""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import safetensors.numpy

from sonde._internal.errors import SondeError, first_line
from sonde._internal.reading import parse_json
from sonde.data import SystemSpec
from sonde.evaluation._schema import LATE_ACTIONS

MEASURED = ("states", "actions", "next_states")
"""Arrays that measurements always have."""
FLAGS = ("terminated", "truncated", "fallback")
"""Arrays that they may have, with one entry per step."""
PLANNED = ("planned_margin",)
"""Numbers that they may have, with one entry per step."""
ABOUT = "measurements"
"""Key of the metadata that says what was measured: names of states and actions, and metrics."""
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


def measurements_to_bytes(
    arrays: Mapping[str, np.ndarray], spec: SystemSpec, known: Mapping[str, float] = MappingProxyType({})
) -> bytes:
    """Encode measurements, with the names of their columns: they can be read without the run's config.

    Args:
        arrays: Arrays by name.
        spec: The system that was measured.
        known: Metrics that do not follow from the measurements.
    """
    about = {"states": spec.state_names, "actions": spec.action_names, "metrics": dict(known)}
    # one entry of metadata: safetensors writes several in random order, and equal runs must give equal files
    content = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    return safetensors.numpy.save(content, metadata={ABOUT: json.dumps(about)})


def _about(content: bytes, source: str) -> dict[str, Any]:
    """What a file of measurements says about them; empty for one that says nothing."""
    header = parse_json(content[8 : 8 + int.from_bytes(content[:8], "little")], source)
    text = header.get("__metadata__", {}).get(ABOUT)
    found = {} if text is None else parse_json(text, source)
    if not isinstance(found, dict):
        raise SondeError(f"{source} does not hold measurements: it says {str(text)[:200]} about them")
    return found


def saved_spec(content: bytes, source: str) -> SystemSpec | None:
    """The names of states and actions in a file of measurements.

    Args:
        content: What `measurements_to_bytes` wrote.
        source: Its path, for error messages.

    Returns:
        The names; None where the file has none.
    """
    arrays, about = saved_measurements(content, source), _about(content, source)
    if not about:
        return None
    sizes = [arrays["states"].shape[-1], arrays["actions"].shape[-1]]
    listed = [about.get("states"), about.get("actions")]
    for each, size in zip(listed, sizes, strict=True):
        if not isinstance(each, list) or len(each) != size or not all(isinstance(name, str) for name in each):
            raise SondeError(f"{source}: expected {sizes[0]} names of states and {sizes[1]} of actions, got {listed}")
    states, actions = (tuple(map(str, each or ())) for each in listed)
    return SystemSpec(states, actions)


def saved_known(content: bytes, source: str) -> dict[str, float]:
    """Decode the metrics that are saved with measurements.

    Args:
        content: What `measurements_to_bytes` wrote.
        source: Its path, for error messages.

    Returns:
        Shares by key; empty if there are none.
    """
    saved_arrays(content, source)  # so that the header is as it should be
    found = _about(content, source).get("metrics", {})
    shares = isinstance(found, dict) and all(type(value) in (int, float) and 0 <= value <= 1 for value in found.values())
    if not shares or not found.keys() <= KNOWN:
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
