"""Measurements: a `Trajectory` holds those of one round, `Data` everything that one seed has collected.

`Data` has a fixed capacity and a count, so nothing recompiles as it grows: rows at and beyond `count` are empty, and every
reader masks them. `Data.latest` and `Data.after` take some of the measurements as data of their own, for models that forget the
others.
"""

from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from sonde._internal.errors import SondeError
from sonde._internal.measured import EXTREME, real_numbers
from sonde._internal.past import NO_PAST, Past
from sonde.data._layout import StateLayout

HELD_OUT_BLOCK = 20
"""Consecutive measurements that are held out together."""
PREDICTED = ("planned_information", "planned_margin")
"""Arrays of a trajectory that hold what a planner predicted at each step."""


@dataclass(frozen=True)
class SystemSpec:
    """Names of the state and action dimensions of a system."""

    state_names: tuple[str, ...]
    """A short name for each state dimension."""
    action_names: tuple[str, ...]
    """A short name for each action dimension."""
    past: Past = NO_PAST
    """What of the past belongs to the state, besides the dimensions above; by default nothing."""
    layout: StateLayout | None = None
    """How the state is made of an agent and objects; None where that is not known or not so."""

    def __post_init__(self):
        """Reject empty and ambiguous names, and a layout of another state."""
        for what, names in (("states", self.state_names), ("actions", self.action_names)):
            if not names or len(set(names)) != len(names) or not all(names):
                raise SondeError(f"system: {what} must be names, at least one and all different, got {list(names)}")
        if self.layout is not None and self.layout.state_dim != len(self.state_names):
            raise SondeError(
                f"system: the layout has {self.layout.state_dim} entries, and the state {len(self.state_names)} names"
            )

    @classmethod
    def of_size(cls, state_dim: int, action_dim: int) -> "SystemSpec":
        """Make the spec of a system whose dimensions have no names.

        Args:
            state_dim: Number of state dimensions.
            action_dim: Number of action dimensions.

        Returns:
            A spec with states x0, x1, ... and actions u0, u1, ...
        """
        if state_dim < 1 or action_dim < 1:
            raise SondeError(f"system: expected at least one state and one action, got {state_dim} and {action_dim}")
        return cls(tuple(f"x{i}" for i in range(state_dim)), tuple(f"u{i}" for i in range(action_dim)))

    @property
    def state_dim(self) -> int:
        """Number of state dimensions."""
        return len(self.state_names)

    @property
    def action_dim(self) -> int:
        """Number of action dimensions."""
        return len(self.action_names)

    @property
    def input_names(self) -> tuple[str, ...]:
        """A name for each number that a model is given beside the state: the past, then the action."""
        return (*self.past.names(self.state_names, self.action_names), *self.action_names)

    @property
    def input_dim(self) -> int:
        """Number of inputs: the past and the action; without a past, the number of action dimensions."""
        return self.past.size(self.state_dim, self.action_dim) + self.action_dim


@dataclass(frozen=True)
class Trajectory:
    """Measurements of one round, as numpy arrays [S, T, ...] for S seeds; with a single seed, [T, ...] is accepted too."""

    states: np.ndarray
    """States before each step [S, T, dx]."""
    actions: np.ndarray
    """Actions in [-1, 1] [S, T, du]."""
    next_states: np.ndarray
    """States after each step [S, T, dx]."""
    planned_information: np.ndarray | None = None
    """Information gain per step that the planner expected when it acted [S, T], in nats; not a measurement."""
    terminated: np.ndarray | None = None
    """Where the system itself ended an episode [S, T], as in Gymnasium; None if nowhere."""
    truncated: np.ndarray | None = None
    """Where an episode was cut off for another reason [S, T], as in Gymnasium: the next row starts a new one. None if only at
    the last row."""
    planned_margin: np.ndarray | None = None
    """Smallest margin of the constraints that the plan of each step had, in the worst case [S, T]; None without constraints."""
    fallback: np.ndarray | None = None
    """Where no plan was admissible and the fallback acted [S, T]; None without constraints."""

    @property
    def ended(self) -> np.ndarray | None:
        """Where an episode ended for either reason [S, T]; None if neither was given."""
        flags = [flag for flag in (self.terminated, self.truncated) if flag is not None]
        return np.logical_or.reduce(flags) if flags else None

    def checked(self, num_seeds: int, spec: SystemSpec) -> "Trajectory":
        """Validate types, shapes, magnitudes and action bounds.

        Args:
            num_seeds: Number of seeds S that the arrays must have.
            spec: The system that was measured.

        Returns:
            The same trajectory with float64 arrays [S, T, ...].
        """
        arrays = {
            name: _checked_array(name, getattr(self, name), num_seeds, dim)
            for name, dim in (("states", spec.state_dim), ("actions", spec.action_dim), ("next_states", spec.state_dim))
        }
        steps = {name: array.shape[1] for name, array in arrays.items()}
        if len(set(steps.values())) != 1:
            raise SondeError(f"trajectory: states, actions and next_states must have equally many steps, got {steps}")
        largest = np.abs(arrays["actions"]).max()
        if largest > 1 + 1e-6:
            raise SondeError(
                f"trajectory: actions must lie in [-1, 1] (scale them by the actuator's limits), got magnitude {largest:.6g}"
            )
        return replace(self, **arrays, **self._checked_flags(arrays["states"].shape[:2]))

    def _checked_flags(self, shape: tuple[int, int]) -> dict[str, np.ndarray]:
        """The optional arrays, one entry per step [S, T]."""
        flags = {}
        for name in ("planned_information", "terminated", "truncated", "planned_margin", "fallback"):
            given = getattr(self, name)
            if given is not None:
                array = _checked_flag(name, given)
                array = array[None] if array.ndim == 1 and shape[0] == 1 else array
                if array.shape != shape:
                    raise SondeError(f"trajectory: {name} must have shape {list(shape)}, got {list(array.shape)}")
                flags[name] = array if name in PREDICTED else array.astype(bool)
        return flags

    def with_past(self, past: Past) -> "Trajectory":
        """Put the past of each step before its action, as models take it.

        Args:
            past: What belongs to the past.

        Returns:
            The same measurements [S, T, ...] with inputs [S, T, p + du] in place of actions; the past is 0 where an episode
            begins.
        """
        if not past:
            return self
        begins = np.zeros(self.states.shape[:2], bool)
        if self.ended is not None:
            begins[:, 1:] = self.ended[:, :-1]
        known = past.along(self.states, self.actions, begins)
        return replace(self, actions=np.concatenate([known, self.actions], axis=-1))

    def joined(self, *others: "Trajectory") -> "Trajectory":
        """Concatenate rollouts along time into the trajectory of one round.

        Args:
            *others: Trajectories with the same leading axis S.

        Returns:
            One trajectory, truncated where each part ends unless it terminated there.
        """
        if not others:
            return self
        parts = (self, *others)
        names = ["states", "actions", "next_states"]
        names += [name for name in (*PREDICTED, "fallback") if all(getattr(part, name) is not None for part in parts)]
        arrays = {name: np.concatenate([getattr(part, name) for part in parts], axis=1) for name in names}
        ends = [part._ends() for part in parts]
        return Trajectory(
            **arrays,
            terminated=np.concatenate([terminated for terminated, _ in ends], axis=1),
            truncated=np.concatenate([truncated for _, truncated in ends], axis=1),
        )

    def _ends(self) -> tuple[np.ndarray, np.ndarray]:
        """`terminated` and `truncated` [S, T] if another part follows."""
        never = np.zeros(self.states.shape[:2], bool)
        terminated = never if self.terminated is None else np.asarray(self.terminated, bool)
        truncated = never.copy() if self.truncated is None else np.array(self.truncated, bool)
        truncated[:, -1] |= ~terminated[:, -1]
        return terminated, truncated


def _checked_flag(name: str, values: Any) -> np.ndarray:
    """An optional array of a trajectory: numbers, or for ends of episodes booleans."""
    if name in PREDICTED:
        return real_numbers(f"trajectory: {name}", values)
    array = real_numbers(f"trajectory: {name}", values, "biuf")
    if not np.isin(array, (0, 1)).all():
        raise SondeError(f"trajectory: {name} must be true or false at each step, got {array.ravel()[:3]} ...")
    return array


def _checked_array(name: str, values: Any, num_seeds: int, dim: int) -> np.ndarray:
    """One array of a trajectory as float64 [S, T, dim], or an error that says what is wrong with it."""
    array = real_numbers(f"trajectory: {name}", values).astype(np.float64)
    if array.ndim == 2 and num_seeds == 1:
        array = array[None]
    if array.ndim != 3 or array.shape[0] != num_seeds or array.shape[2] != dim or array.shape[1] == 0:
        raise SondeError(f"trajectory: {name} must have shape [seeds={num_seeds}, steps >= 1, {dim}], got {list(array.shape)}")
    for expected, bad in (("finite", ~np.isfinite(array)), (f"at most {EXTREME:g}", np.abs(array) > EXTREME)):
        if bad.any():
            seed, step, column = np.argwhere(bad)[0]
            raise SondeError(
                f"trajectory: {name} must be {expected}, got {array[seed, step, column]:.6g} at seed {seed}, step {step}, "
                f"column {column}; drop or repair that measurement and tell it again"
            )
    return array


class Data(eqx.Module):
    """All transitions of one seed; rows 0 ... count-1 are filled."""

    states: Float[Array, "*seeds capacity dx"]
    actions: Float[Array, "*seeds capacity du"]
    next_states: Float[Array, "*seeds capacity dx"]
    count: Int[Array, "*seeds"]
    hidden: float = eqx.field(static=True, default=0.0)
    """Fraction of the rows that `mask` leaves out."""
    smallest_change: Float[Array, " dx"] | None = None
    """Least unit in which a model measures its targets, per dimension; None for none. Errors of known physics need one: they
    may be nearly zero."""
    forgotten: Int[Array, "*seeds"] | None = None
    """Measurements from before the first row; None for none, ever."""

    @classmethod
    def empty(cls, capacity: int, state_dim: int, action_dim: int) -> "Data":
        """Make a buffer without measurements.

        Args:
            capacity: Number of transitions that fit.
            state_dim: Number of state dimensions dx.
            action_dim: Number of action dimensions du.
        """
        state = jnp.zeros((capacity, state_dim))
        return cls(state, jnp.zeros((capacity, action_dim)), state, jnp.zeros((), int))

    @property
    def capacity(self) -> int:
        """Number of transitions that fit."""
        return self.states.shape[-2]

    @property
    def total(self) -> Int[Array, "*seeds"]:
        """Number of measurements, those from before the first row included."""
        return self.count if self.forgotten is None else self.forgotten + self.count

    def mask(self) -> Bool[Array, " capacity"]:
        """True where a row is filled and not hidden."""
        return (jnp.arange(self.capacity) < self.count) & ~_hidden_rows(self.numbers(), self.hidden)

    def numbers(self) -> Int[Array | np.ndarray, " capacity"]:
        """Number of each row among all measurements, those before the first row included."""
        rows = np.arange(self.capacity)
        return rows if self.forgotten is None else self.forgotten + rows

    def latest(self, count: int) -> "Data":
        """The last measurements, as data with room for no more than them.

        They come first, so that whatever reads data need not know of others, and what is hidden stays hidden: that depends on
        `numbers`. It is done in numpy, as in `append`.

        Args:
            count: How many measurements.
        """
        if count >= self.capacity:
            return self
        start = np.asarray(np.maximum(np.asarray(self.count) - count, 0))
        return replace(self._rows_from(start, count), forgotten=jnp.asarray(start))

    def after(self, first: Int[np.ndarray, "*seeds"]) -> "Data":
        """The measurements that follow the first ones, as if those had never been; the room stays the same.

        Args:
            first: How many measurements are left out; a number for each seed.
        """
        return self._rows_from(first, self.capacity)

    def _rows_from(self, start: Int[np.ndarray, "*seeds"], room: int) -> "Data":
        """The filled rows from one on, with room for some; empty rows are zeros, as they always are."""
        count = np.asarray(self.count) - start
        rows = np.minimum(start[..., None] + np.arange(room), self.capacity - 1)
        filled = np.arange(room) < count[..., None]

        def part(buffer: Array) -> Array:
            taken = np.take_along_axis(np.asarray(buffer), rows[..., None], axis=-2)
            return jnp.asarray(np.where(filled[..., None], taken, 0))

        moved = {name: part(getattr(self, name)) for name in ("states", "actions", "next_states")}
        return replace(self, **moved, count=jnp.asarray(count))

    def without(self, fraction: float) -> "Data":
        """Hide a fixed fraction of the rows in blocks, always the same ones, so that no fit ever sees them.

        Args:
            fraction: Fraction of the rows to hide.
        """
        return replace(self, hidden=fraction)

    def held_out(self, fraction: float) -> Bool[Array, " capacity"]:
        """True for the filled rows that `without(fraction)` hides.

        Args:
            fraction: Fraction of the rows that is hidden.
        """
        return self.mask() & _hidden_rows(self.numbers(), fraction)

    def inputs(self) -> Float[Array, "capacity dz"]:
        """Model inputs z = (x, u)."""
        return jnp.concatenate([self.states, self.actions], axis=-1)

    def targets(self) -> Float[Array, "capacity dx"]:
        """Model targets: the change x' - x."""
        return self.next_states - self.states

    def append(
        self,
        states: Float[Array | np.ndarray, "*seeds steps dx"],
        actions: Float[Array | np.ndarray, "*seeds steps du"],
        next_states: Float[Array | np.ndarray, "*seeds steps dx"],
    ) -> "Data":
        """Add rows, to one seed or to all in lockstep; the caller has checked that they fit.

        It is done in numpy: compiled code would be compiled again for every number of rows.

        Args:
            states: States before each step [T, dx], with the same leading axes as the buffer.
            actions: Actions of each step [T, du].
            next_states: States after each step [T, dx].
        """
        start, steps = int(np.ravel(self.count)[0]), states.shape[-2]

        def added(buffer: Array, rows: Array | np.ndarray) -> Array:
            whole = np.array(buffer)
            whole[..., start : start + steps, :] = rows
            return jnp.asarray(whole)

        return replace(
            self,
            states=added(self.states, states),
            actions=added(self.actions, actions),
            next_states=added(self.next_states, next_states),
            count=jnp.asarray(np.asarray(self.count) + steps),
        )


def _hidden_rows(numbers: Int[Array | np.ndarray, " rows"], fraction: float) -> Bool[Array | np.ndarray, " rows"]:
    """Blocks of consecutive rows, evenly scattered: a row alone could be predicted from its neighbours in time.

    Multiples of the golden ratio, modulo 1, fill the unit interval evenly at every length. The first block is always seen; with
    the offset, the second one is hidden by any fraction from a tenth on.
    """
    blocks = numbers // HELD_OUT_BLOCK
    return ((blocks + 4) * 0.6180339887498949 % 1 < fraction) & (blocks > 0)
