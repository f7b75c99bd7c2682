"""Measurements: a `Trajectory` is what one episode brings, `Data` is all that a run has collected.

`Data` has a fixed capacity and a count, so nothing recompiles as it grows: rows at and beyond `count` are empty and every
reader masks them.
"""

from dataclasses import dataclass, replace

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from sonde._internal.errors import SondeError


@dataclass(frozen=True)
class Trajectory:
    """One episode of S runs on the host: numpy arrays [S, T, ...]; for a single run [T, ...] serves too."""

    states: np.ndarray
    actions: np.ndarray
    next_states: np.ndarray
    planned_information: np.ndarray | None = None
    """Information per step that the planner expected when it acted [S, T]; a planner's own note, not a measurement."""
    terminated: np.ndarray | None = None
    """Where the system itself ended its episode [S, T]; None: nowhere."""
    over: np.ndarray | None = None
    """Where an episode ended, for that or for lack of time [S, T]: the next row begins a new one. None: with the last row."""
    world_seconds: float = 0.0
    """Time that the system took for its steps, where that was measured."""

    def checked(self, num_seeds: int, state_dim: int, action_dim: int) -> "Trajectory":
        """The same trajectory as float64 [S, T, ...], or an error that says what is wrong with it."""
        wanted = {"states": state_dim, "actions": action_dim, "next_states": state_dim}
        arrays = {}
        for name, dim in wanted.items():
            try:
                array = np.asarray(getattr(self, name), dtype=np.float64)
            except (TypeError, ValueError) as error:
                raise SondeError(f"trajectory: {name} must be an array of numbers ({error})") from None
            if array.ndim == 2 and num_seeds == 1:
                array = array[None]
            if array.ndim != 3 or array.shape[0] != num_seeds or array.shape[2] != dim or array.shape[1] == 0:
                raise SondeError(
                    f"trajectory: {name} must have shape [runs={num_seeds}, steps >= 1, {dim}], got {list(array.shape)}"
                )
            if not np.isfinite(array).all():
                run, step, column = np.argwhere(~np.isfinite(array))[0]
                raise SondeError(
                    f"trajectory: {name} must be finite, got {array[run, step, column]} at run {run}, step {step}, "
                    f"column {column}; drop or repair that measurement and tell it again"
                )
            arrays[name] = array
        steps = {name: array.shape[1] for name, array in arrays.items()}
        if len(set(steps.values())) != 1:
            raise SondeError(f"trajectory: states, actions and next_states must have equally many steps, got {steps}")
        largest = np.abs(arrays["actions"]).max()
        if largest > 1 + 1e-6:
            raise SondeError(
                f"trajectory: actions must lie in [-1, 1] (scale them by the actuator's limits), got magnitude {largest:.6g}"
            )
        return replace(self, **arrays, **self._checked_notes(arrays["states"].shape[:2]))

    def _checked_notes(self, shape: tuple[int, int]) -> dict[str, np.ndarray]:
        """What was given beside the measurements, one entry per step [S, T]."""
        notes = {}
        for name in ("planned_information", "terminated", "over"):
            given = getattr(self, name)
            if given is not None:
                array = np.asarray(given)
                array = array[None] if array.ndim == 1 and shape[0] == 1 else array
                if array.shape != shape:
                    raise SondeError(f"trajectory: {name} must have shape {list(shape)}, got {list(array.shape)}")
                notes[name] = array if name == "planned_information" else array.astype(bool)
        return notes

    def joined(self, *others: "Trajectory") -> "Trajectory":
        """With the others behind it, as one experiment of several episodes."""
        if not others:
            return self
        parts = (self, *others)

        def ends_of(part: Trajectory, name: str) -> np.ndarray:
            given = getattr(part, name)
            flags = np.zeros(part.states.shape[:2], bool) if given is None else np.asarray(given).copy()
            if name == "over":
                flags[:, -1] = True  # what follows begins elsewhere
            return flags

        names = ["states", "actions", "next_states"]
        if all(part.planned_information is not None for part in parts):
            names.append("planned_information")
        arrays = {name: np.concatenate([getattr(part, name) for part in parts], axis=1) for name in names}
        ends = {name: np.concatenate([ends_of(part, name) for part in parts], axis=1) for name in ("terminated", "over")}
        return Trajectory(**arrays, **ends, world_seconds=sum(part.world_seconds for part in parts))


class Data(eqx.Module):
    """All transitions of one run: rows 0 ... count-1 are filled."""

    states: Float[Array, "capacity dx"]
    actions: Float[Array, "capacity du"]
    next_states: Float[Array, "capacity dx"]
    count: Int[Array, ""]
    hidden: float = eqx.field(static=True, default=0.0)
    """Fraction of the rows that `mask` leaves out."""

    @classmethod
    def empty(cls, capacity: int, state_dim: int, action_dim: int) -> "Data":
        """No measurements yet."""
        state = jnp.zeros((capacity, state_dim))
        return cls(state, jnp.zeros((capacity, action_dim)), state, jnp.zeros((), int))

    @property
    def capacity(self) -> int:
        """How many transitions fit."""
        return self.states.shape[-2]

    def mask(self) -> Bool[Array, " capacity"]:
        """True where a row is filled and not hidden."""
        return (jnp.arange(self.capacity) < self.count) & ~_hidden_rows(self.capacity, self.hidden)

    def without(self, fraction: float) -> "Data":
        """The same data with this fraction of the rows hidden: always the same ones, so that no fit ever sees them."""
        return Data(self.states, self.actions, self.next_states, self.count, fraction)

    def held_out(self, fraction: float) -> Bool[Array, " capacity"]:
        """True for the rows that `without(fraction)` hides."""
        return self.mask() & _hidden_rows(self.capacity, fraction)

    def inputs(self) -> Float[Array, "capacity dz"]:
        """The model's inputs z = (x, u)."""
        return jnp.concatenate([self.states, self.actions], axis=-1)

    def targets(self) -> Float[Array, "capacity dx"]:
        """The model's targets: the change x' - x."""
        return self.next_states - self.states

    def append(
        self, states: Float[Array, "steps dx"], actions: Float[Array, "steps du"], next_states: Float[Array, "steps dx"]
    ) -> "Data":
        """With `steps` more rows; the caller has checked that they fit."""
        rows = self.count + jnp.arange(states.shape[0])
        return Data(
            self.states.at[rows].set(states),
            self.actions.at[rows].set(actions),
            self.next_states.at[rows].set(next_states),
            self.count + states.shape[0],
            self.hidden,
        )


def _hidden_rows(capacity: int, fraction: float) -> np.ndarray:
    """An even scatter: multiples of the golden ratio, modulo 1, fill the unit interval evenly at every length."""
    return np.modf(np.arange(1, capacity + 1) * 0.6180339887498949)[0] < fraction
