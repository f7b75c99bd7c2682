"""How a planner may treat what it does not know.

An imagination turns a `Belief` into an imagined next state. It says how many extra controls the planner must choose for that,
and whether two particles of the same plan can differ; where they cannot, only one is simulated.
"""

import abc
from dataclasses import dataclass
from typing import Any

import jax
from jaxtyping import Array, Float, Key

from sonde.errors import SondeError
from sonde.models.base import Belief


@dataclass(frozen=True)
class Imagination(abc.ABC):
    """The settings that all imaginations share; each uses what concerns it."""

    beta: float = 1.0
    """Width of the confidence region, in epistemic stds."""
    noise: bool = False
    """Also imagine the system's noise w ~ N(0, aleatoric^2). Off for deterministic systems, where all particles then agree."""

    def __post_init__(self):
        """Refuse a width that means nothing."""
        if not self.beta >= 0:
            raise SondeError(f"beta must be 0 or above, got {self.beta}")

    def extra_controls(self, state_dim: int) -> int:
        """How many numbers in [-1, 1] the planner chooses per step, beside the action."""
        del state_dim
        return 0

    @property
    def random(self) -> bool:
        """Whether particles of one plan can differ."""
        return self.noise

    def draw(self, key: Key[Array, ""], horizon: int, state_dim: int) -> Any:
        """All that one particle needs of chance: arrays with leading axis `horizon`."""
        return jax.random.normal(key, (horizon, state_dim)) if self.noise else None

    @abc.abstractmethod
    def centre(self, belief: Belief, extra: Float[Array, " extra"], draw: Any) -> Float[Array, " dx"]:
        """The imagined next state before the system's noise."""

    def next_state(self, belief: Belief, extra: Float[Array, " extra"], draw: Any) -> Float[Array, " dx"]:
        """The imagined next state."""
        centre = self.centre(belief, extra, draw)
        return centre + belief.aleatoric_std * draw if self.noise else centre


@dataclass(frozen=True)
class Optimistic(Imagination):
    """x' = mean + beta * epistemic_std * eta: the planner also chooses eta in [-1, 1]^dx, and so may believe the plausible."""

    def extra_controls(self, state_dim: int) -> int:
        """One eta per state dimension."""
        return state_dim

    def centre(self, belief: Belief, extra: Float[Array, " extra"], draw: Any) -> Float[Array, " dx"]:
        """The luckiest plausible state, as the planner defines luck."""
        del draw
        return belief.mean + self.beta * belief.epistemic_std * extra


@dataclass(frozen=True)
class Mean(Imagination):
    """x' = mean: the model is taken at its word."""

    def centre(self, belief: Belief, extra: Float[Array, " extra"], draw: Any) -> Float[Array, " dx"]:
        """The mean."""
        del extra, draw
        return belief.mean


@dataclass(frozen=True)
class TrajectorySampling(Imagination):
    """TS-1: each particle draws from the belief afresh at every step, x' ~ N(mean, epistemic^2)."""

    @property
    def random(self) -> bool:
        """Always."""
        return True

    def draw(self, key: Key[Array, ""], horizon: int, state_dim: int) -> Any:
        """One row for the belief, one for the noise."""
        return jax.random.normal(key, (horizon, 2, state_dim))

    def centre(self, belief: Belief, extra: Float[Array, " extra"], draw: Any) -> Float[Array, " dx"]:
        """A state that the belief considers likely."""
        del extra
        return belief.mean + belief.epistemic_std * draw[0]

    def next_state(self, belief: Belief, extra: Float[Array, " extra"], draw: Any) -> Float[Array, " dx"]:
        """That state, with the system's noise if asked for."""
        centre = self.centre(belief, extra, draw)
        return centre + belief.aleatoric_std * draw[1] if self.noise else centre
