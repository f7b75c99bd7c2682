"""Linear state feedback whose gain depends on the operating point; needs only numpy and safetensors."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from sonde._internal.errors import SondeError, one_of
from sonde.control._gain_file import check_arrays, load_arrays, save_arrays
from sonde.control._linear_feedback import LinearFeedback

FORMAT = "sonde-gain-schedule-1"
"""Format of a schedule in a file."""

Values = np.ndarray | Sequence[float] | float


@dataclass(frozen=True)
class GainSchedule:
    """The controller u = action - gain (x - state), limited to [-1, 1], with all three interpolated in a table.

    The table is a grid over k scheduling variables: entries of the state, or numbers that are given with each call, such as the
    step along a reference trajectory. Between the points of the grid all three are interpolated linearly in each variable.
    """

    axes: tuple[np.ndarray, ...]
    """Increasing values [n_i] of each scheduling variable."""
    gains: np.ndarray
    """Gain at each point of the grid [n_1, ..., n_k, du, dx]."""
    states: np.ndarray
    """State of each operating point [n_1, ..., n_k, dx]."""
    actions: np.ndarray
    """Action of each operating point [n_1, ..., n_k, du]."""
    scheduled: tuple[int, ...] = ()
    """Entries of the state that are the scheduling variables; empty if they are given with each call."""
    outside: Literal["refuse", "hold"] = "refuse"
    """What to do outside the grid: raise an error, or use the nearest point of its boundary."""

    def __post_init__(self):
        object.__setattr__(self, "axes", tuple(np.asarray(axis, np.float64) for axis in self.axes))
        for name in ("gains", "states", "actions"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), np.float64))
        one_of("value of outside", self.outside, ("refuse", "hold"))
        for axis in self.axes:
            if axis.ndim != 1 or not len(axis) or not np.isfinite(axis).all() or (np.diff(axis) <= 0).any():
                raise SondeError(f"GainSchedule: an axis must be finite and increasing numbers, got {axis.tolist()}")
        grid = tuple(len(axis) for axis in self.axes)
        if not grid or self.states.ndim != len(grid) + 1 or self.actions.ndim != len(grid) + 1:
            raise SondeError("GainSchedule: expected at least one axis, states [*grid, dx] and actions [*grid, du]")
        du, dx = self.actions.shape[-1], self.states.shape[-1]
        for name, rest in {"gains": (du, dx), "states": (dx,), "actions": (du,)}.items():
            value = getattr(self, name)
            if value.shape != (*grid, *rest) or not np.isfinite(value).all():
                raise SondeError(f"GainSchedule: {name} must be finite, of shape {[*grid, *rest]}, got {list(value.shape)}")
        if self.scheduled and (len(self.scheduled) != len(grid) or not all(0 <= i < dx for i in self.scheduled)):
            raise SondeError(f"GainSchedule: scheduled must name {len(grid)} entries of the state, got {list(self.scheduled)}")

    def at(self, values: Values) -> LinearFeedback:
        """The linear feedback at one place of the table.

        Args:
            values: Values of the scheduling variables [k]; of one variable, the number alone.
        """
        values = np.asarray(values, np.float64).reshape(-1)
        if values.shape != (len(self.axes),) or not np.isfinite(values).all():
            raise SondeError(f"GainSchedule: expected {len(self.axes)} finite scheduling values, got {values.tolist()}")
        corners = [self._corner(number, value) for number, value in enumerate(values)]
        found = {name: np.zeros(getattr(self, name).shape[len(self.axes) :]) for name in ("gains", "states", "actions")}
        for corner in itertools.product(*corners):
            share = np.prod([weight for _, weight in corner])
            for name in found:
                found[name] += share * getattr(self, name)[tuple(index for index, _ in corner)]
        return LinearFeedback(found["gains"], found["states"], found["actions"])

    def _corner(self, number: int, value: float) -> list[tuple[int, float]]:
        """Neighbours of a value on an axis, with their weights."""
        axis = self.axes[number]
        if not axis[0] <= value <= axis[-1]:
            if self.outside == "refuse":
                table = f"{axis[0]:.6g} to {axis[-1]:.6g}"
                raise SondeError(f"GainSchedule: scheduling variable {number} is {value:.6g}, outside the table's {table}")
            value = min(max(value, axis[0]), axis[-1])
        if len(axis) == 1:
            return [(0, 1.0)]
        left = min(int(np.searchsorted(axis, value, side="right")) - 1, len(axis) - 2)
        share = (value - axis[left]) / (axis[left + 1] - axis[left])
        return [(left, 1.0 - share), (left + 1, share)]

    def __call__(self, x: np.ndarray, values: Values | None = None) -> np.ndarray:
        """Choose an action.

        Args:
            x: State [dx].
            values: Values of the scheduling variables [k]; left out if they are entries of the state.

        Returns:
            The action [du] in [-1, 1].
        """
        x = np.asarray(x, np.float64)
        if (values is None) != bool(self.scheduled):
            raise SondeError(
                "GainSchedule: the scheduling values are entries of the state here; leave them out"
                if self.scheduled
                else "GainSchedule: give the scheduling values with the state, as the second argument"
            )
        if x.shape != self.states.shape[-1:]:
            raise SondeError(f"GainSchedule: the state must have shape {list(self.states.shape[-1:])}, got {list(x.shape)}")
        return self.at(x[list(self.scheduled)] if values is None else values)(x)

    def save(self, path: str | Path) -> None:
        """Write the controller to a file, whole or not at all.

        Args:
            path: A path that ends in .safetensors.
        """
        axes = {f"axis{i}": axis for i, axis in enumerate(self.axes)}
        tables = {name: getattr(self, name) for name in ("gains", "states", "actions")}
        extra = {"scheduled": np.array(self.scheduled, np.int64)} if self.scheduled else {}
        hold = {"hold": np.ones(1, np.int64)} if self.outside == "hold" else {}
        save_arrays(path, FORMAT, {**axes, **tables, **extra, **hold})

    @classmethod
    def load(cls, path: str | Path) -> "GainSchedule":
        """Read a controller that `save` wrote.

        Args:
            path: The file.
        """
        arrays = load_arrays(path, FORMAT)
        axes = [f"axis{i}" for i in range(sum(name.startswith("axis") for name in arrays))]
        optional = {"scheduled", "hold"} & arrays.keys()
        check_arrays(path, arrays, {*axes, "gains", "states", "actions", *optional})
        scheduled = tuple(int(i) for i in np.atleast_1d(arrays.get("scheduled", np.zeros(0))))
        outside: Literal["refuse", "hold"] = "hold" if "hold" in arrays else "refuse"
        tables = (arrays[name] for name in ("gains", "states", "actions"))
        return cls(tuple(arrays[name] for name in axes), *tables, scheduled=scheduled, outside=outside)
