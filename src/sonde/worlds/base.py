"""The true system, which a planner never sees, and the tasks that a person may ask for later."""

import abc
from collections.abc import Mapping

import numpy as np
from jaxtyping import Array, Float, Key

from sonde.objectives import RewardFunction


class World(abc.ABC):
    """A system written in JAX. Actions are scaled to [-1, 1]; configuration is hashable."""

    state_dim: int
    action_dim: int
    state_names: tuple[str, ...]
    tasks: Mapping[str, RewardFunction]

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
