"""Gains for many operating points in one table, and the actions that hold a system in place."""

from collections.abc import Sequence

import numpy as np

from sonde._internal.errors import SondeError
from sonde.analysis._lqr import Regulator
from sonde.analysis._point import OperatingPoint
from sonde.analysis._system import SAMPLES, LearnedSystem
from sonde.control import GainSchedule

HOLD_STEPS = 20
"""Most corrections of an action that is to hold a system in place."""
SETTLED = 1e-10
"""Change of an action below which it is accepted."""


def hold(system: LearnedSystem, state: np.ndarray, samples: int = SAMPLES) -> OperatingPoint:
    """Find the action under which a state moves least, and study the system there.

    What drift remains, in units of the visited range, is as small as an action in [-1, 1] can make it.

    Args:
        system: The system.
        state: State [dx].
        samples: Number of samples of A and B.
    """
    u = np.zeros(system.world.action_dim)
    for _ in range(HOLD_STEPS):
        place = system.at(state, u, samples)
        slope, miss = place.linearisation.B / system.spread[:, None], place.drift / system.spread
        new = np.clip(u - np.linalg.lstsq(slope, miss, rcond=None)[0], -1.0, 1.0)
        moved, u = np.abs(new - u).max(), new
        if moved < SETTLED:
            return place
    return system.at(state, u, samples)


def gain_schedule(
    axes: Sequence[Sequence[float] | np.ndarray], regulators: Sequence[Regulator], scheduled: tuple[int, ...] = ()
) -> GainSchedule:
    """Put the gains of many points into one controller, which interpolates between them.

    Each point's own state and action are its reference, also where the system drifts: along a trajectory it moves on. Points of
    a grid should be equilibria; `hold` finds their actions.

    Args:
        axes: Increasing values of each scheduling variable.
        regulators: Regulators at all points of the grid, the last axis fastest.
        scheduled: Entries of the state that are the scheduling variables; empty if they are given at each call.

    Returns:
        The controller, which needs only numpy.
    """
    shape = tuple(len(values) for values in axes)
    if not shape or int(np.prod(shape)) != len(regulators):
        grid = " x ".join(map(str, shape)) or "0"
        raise SondeError(f"gain schedule: a grid of {grid} points has as many regulators, got {len(regulators)}")
    table = lambda rows: np.stack(rows).reshape(*shape, *rows[0].shape)
    return GainSchedule(
        axes=tuple(np.asarray(values, np.float64) for values in axes),
        gains=table([one.state_gain for one in regulators]),
        states=table([one.place.state for one in regulators]),
        actions=table([one.place.action for one in regulators]),
        scheduled=scheduled,
    )
