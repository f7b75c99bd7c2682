"""Tasks: what a person may ask for after exploration."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Array

RewardFunction = Callable[[Array, Array, Array], Array]
"""reward(x, u, x_next) -> scalar, written for one transition in JAX."""
GoalRewardFunction = Callable[[Array, Array, Array, Array], Array]
"""reward(x, u, x_next, goal) -> scalar, written for one transition in JAX."""


@dataclass(frozen=True)
class Task:
    """What a person may ask for: a reward and, where that means something, what counts as success."""

    reward: RewardFunction
    success: Callable[[np.ndarray], float] | None = None
    """success(next_states [T, dx]): how far an episode, from its first step on, has solved the task, from 0 to 1; in numpy."""


@dataclass(frozen=True)
class GoalTask:
    """A task with a goal [dg], another one in each rollout; it is no part of the state: planners are told, models are not.

    A world must offer the same functions each time it is asked, since compilers know functions by their identity.
    """

    reward: GoalRewardFunction
    sample_goal: Callable[[np.random.Generator], np.ndarray]
    """The goal of a rollout."""
    success: Callable[[np.ndarray, np.ndarray], float] | None = None
    """success(next_states [T, dx], goal [dg]), as for `Task`."""
