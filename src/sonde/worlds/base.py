"""The true system, which a planner never sees, and the tasks that a person may ask for later."""

import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Array, Float, Key

from sonde.objectives import RewardFunction


@dataclass(frozen=True)
class Plane:
    """The two numbers (a, b) that show a state in a picture; functions are vectorised over numpy arrays."""

    x_label: str
    y_label: str
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    to_state: Callable[[np.ndarray, np.ndarray], np.ndarray]
    """(a [...], b [...]) -> states [..., dx]."""
    from_state: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
    """states [..., dx] -> (a [...], b [...])."""
    x_ticks: tuple[tuple[float, str], ...] = ()
    """Positions and words to mark on the x axis, where plain numbers would say less."""


class World(abc.ABC):
    """A system written in JAX. Actions are scaled to [-1, 1]; configuration is hashable."""

    @property
    @abc.abstractmethod
    def state_names(self) -> tuple[str, ...]:
        """A short name for each state dimension."""

    @property
    @abc.abstractmethod
    def action_names(self) -> tuple[str, ...]:
        """A short name for each action dimension."""

    @property
    @abc.abstractmethod
    def tasks(self) -> Mapping[str, RewardFunction]:
        """Reward functions that a person may ask for, by name."""

    @property
    def state_dim(self) -> int:
        """Numbers in a state."""
        return len(self.state_names)

    @property
    def action_dim(self) -> int:
        """Numbers in an action."""
        return len(self.action_names)

    @abc.abstractmethod
    def reset(self, key: Key[Array, ""]) -> Float[Array, " dx"]:
        """The state at the start of an episode."""

    @abc.abstractmethod
    def dynamics(self, x: Float[Array, " dx"], u: Float[Array, " du"]) -> Float[Array, " dx"]:
        """The next state, without noise: f*(x, u)."""

    @abc.abstractmethod
    def step(self, x: Float[Array, " dx"], u: Float[Array, " du"], key: Key[Array, ""]) -> Float[Array, " dx"]:
        """The next state, with the system's noise."""

    @abc.abstractmethod
    def reachable(self) -> tuple[np.ndarray, np.ndarray]:
        """Fixed states [N, dx] and actions [N, du] that cover what the system can reach; what models are judged on."""

    @abc.abstractmethod
    def narrow_box(self) -> tuple[np.ndarray, np.ndarray]:
        """Like `reachable`, from the box that earlier public results sampled: for comparison with those only."""

    def plane(self) -> Plane | None:
        """How to draw states in two dimensions; None where no picture would be fair to them."""
        return None
