"""Which part of the past belongs to the state, and how it moves on with each step.

A system whose actions act late, or whose measurements leave something out, is not Markov in what is measured: what comes next
also depends on what came before. The past is a vector [p] beside the present observation x [dx]: first the latest changes of
the observation, then the latest actions, newest first in both. Changes say the same as earlier observations, and are what a
model can learn from: the velocity of a joint is small beside its position. At the start of an episode all of it is 0: the
system rested.

Models take the past as if it were part of the action: they predict x' from x and the inputs (past, u), so any model can learn
such a system, and predicts, and is uncertain about, new observations only. This module does without JAX unless it is given
arrays of JAX, because deployed policies use it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sonde._internal.errors import SondeError, whole


@dataclass(frozen=True)
class Past:
    """What belongs to the state besides the present observation."""

    delay: int = 0
    """Steps by which actions act late, at most: as many actions are on their way."""
    history: int = 1
    """Observations that determine the state together: 1 for the present one alone, 2 with the one before and the action between
    them, and so on."""

    def __post_init__(self):
        """Reject what cannot be."""
        whole("state", history=self.history)
        if self.delay:
            whole("state", delay=self.delay)
        elif isinstance(self.delay, bool) or not isinstance(self.delay, int):
            raise SondeError(f"state: delay must be a whole number of steps, 0 or more, got {self.delay!r}")

    def __bool__(self) -> bool:
        """Whether anything of the past belongs to the state."""
        return self.actions > 0

    @property
    def changes(self) -> int:
        """Number of past changes of the observation."""
        return self.history - 1

    @property
    def actions(self) -> int:
        """Number of past actions: those on their way, and those between the past observations, which acted as late."""
        return self.delay + self.history - 1

    def size(self, state_dim: int, action_dim: int) -> int:
        """Length p of the past.

        Args:
            state_dim: Number of dimensions dx of an observation.
            action_dim: Number of action dimensions du.
        """
        return self.changes * state_dim + self.actions * action_dim

    def split(self, inputs: Any, state_dim: int) -> tuple[Any, Any]:
        """Separate the past from the actions.

        Args:
            inputs: What a model is given beside the observation [..., p + du].
            state_dim: Number of dimensions dx of an observation.

        Returns:
            The past [..., p] and the actions [..., du].
        """
        changes = self.changes * state_dim
        size = inputs.shape[-1] - (inputs.shape[-1] - changes) // (self.actions + 1)
        return inputs[..., :size], inputs[..., size:]

    def names(self, state_names: Sequence[str], action_names: Sequence[str]) -> tuple[str, ...]:
        """A name for each entry, such as `change of th [-1]` and `torque [-2]`.

        Args:
            state_names: Names of the observation's dimensions.
            action_names: Names of the actions.
        """
        changes = (f"change of {name} [-{ago}]" for ago in range(1, self.changes + 1) for name in state_names)
        return (*changes, *(f"{name} [-{ago}]" for ago in range(1, self.actions + 1) for name in action_names))

    def moved(self, past: Any, x: Any, u: Any, x_next: Any) -> Any:
        """The past one step later; arrays of JAX or of numpy, with any leading axes.

        Args:
            past: The past before the step [..., p].
            x: Observations before the step [..., dx].
            u: Actions [..., du].
            x_next: Observations after the step [..., dx].

        Returns:
            The past after the step [..., p].
        """
        if not self:
            return past
        at = self.changes * x.shape[-1]
        kept, changes = past[..., at : past.shape[-1] - u.shape[-1]], past[..., : max(0, at - x.shape[-1])]
        parts = [*([x_next - x, changes] if self.changes else []), u, kept]
        return _joined([part.astype(past.dtype) for part in parts])

    def along(self, states: np.ndarray, actions: np.ndarray, begins: np.ndarray) -> np.ndarray:
        """The past of each step of measured trajectories.

        Args:
            states: Observations before each step [S, T, dx].
            actions: Actions [S, T, du].
            begins: Where an episode begins, bool [S, T]; the first step always begins one.

        Returns:
            The past before each step [S, T, p].
        """
        size = self.size(states.shape[-1], actions.shape[-1])
        found = np.zeros((*states.shape[:2], size))
        for t in range(1, states.shape[1]):
            moved = self.moved(found[:, t - 1], states[:, t - 1], actions[:, t - 1], states[:, t])
            found[:, t] = np.where(begins[:, t, None], 0.0, moved)
        return found


NO_PAST = Past()
"""The state is what is measured at present."""


class Memory:
    """The past of running copies of a system, remembered between the calls of a policy."""

    def __init__(self, past: Past, copies: int, state_dim: int, action_dim: int):
        """Start all episodes.

        Args:
            past: What is remembered.
            copies: Number of copies n.
            state_dim: Number of dimensions dx of an observation.
            action_dim: Number of action dimensions du.
        """
        self.past = past
        self._shape = copies, past.size(state_dim, action_dim)
        self.reset()

    def reset(self, which: np.ndarray | None = None) -> None:
        """Forget everything, or what came before the present in some copies.

        Args:
            which: Where a new episode begins, bool [n]; by default everywhere.
        """
        if which is None:
            self._before, self._begins = np.zeros(self._shape), np.ones(self._shape[0], bool)
            self._last: tuple[np.ndarray, np.ndarray] | None = None
        else:
            self._begins = self._begins | which

    def recall(self, x: np.ndarray) -> np.ndarray:
        """The past of observations; nothing changes before `acted`.

        Args:
            x: The present observations [n, dx].

        Returns:
            The past [n, p].
        """
        if self._last is None:
            return self._before
        return np.where(self._begins[:, None], 0.0, self.past.moved(self._before, *self._last, x))

    def acted(self, past: np.ndarray, x: np.ndarray, u: np.ndarray) -> None:
        """Remember a step.

        Args:
            past: What `recall` returned [n, p].
            x: The observations [n, dx].
            u: The actions that were taken [n, du].
        """
        self._before, self._last, self._begins = past, (x.copy(), u.copy()), np.zeros(self._shape[0], bool)


def _joined(parts: list[Any]) -> Any:
    """Concatenate the last axes of arrays of numpy or of JAX."""
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate(parts, axis=-1)
    import jax.numpy as jnp

    return jnp.concatenate(parts, axis=-1)
