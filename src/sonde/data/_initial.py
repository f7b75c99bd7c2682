"""Initial data of a system whose past belongs to its state."""

from dataclasses import replace

import numpy as np

from sonde._internal.errors import SondeError
from sonde.data._data import SystemSpec, Trajectory


def initial_inputs(measurements: Trajectory, spec: SystemSpec) -> Trajectory:
    """Initial data [1, N, ...] with the past, as far as it was measured.

    An episode ends where the measurements say so, and where the next row starts elsewhere. What came before its first rows is
    unknown: it may have been cut out of a longer one. They are left out.

    Args:
        measurements: Transitions [1, N, ...].
        spec: The system.
    """
    if not spec.past:
        return measurements
    breaks = (measurements.next_states[:, :-1] != measurements.states[:, 1:]).any(axis=-1)
    ends = np.pad(breaks, ((0, 0), (0, 1)), constant_values=True)
    if measurements.ended is not None:
        ends |= measurements.ended
    known = replace(measurements, terminated=None, truncated=ends).with_past(spec.past)
    place = np.arange(ends.shape[1])
    first = np.maximum.accumulate(np.where(np.append(True, ends[0, :-1]), place, 0))
    kept = place - first >= spec.past.actions
    if not kept.any():
        raise SondeError(
            f"initial data: no row has the {spec.past.actions} row(s) of its episode before it that belong to the state (delay "
            f"{spec.past.delay}, history {spec.past.history}); give longer episodes, or leave the data out"
        )
    return Trajectory(known.states[:, kept], known.actions[:, kept], known.next_states[:, kept])
