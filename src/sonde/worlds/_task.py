"""Tasks: rewards, with success criteria and goals where the task has them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Array

RewardFunction = Callable[[Array, Array, Array], Array]
"""reward(x, u, x_next) -> scalar, written for one transition in JAX."""
GoalRewardFunction = Callable[[Array, Array, Array, Array], Array]
"""reward(x, u, x_next, goal) -> scalar, written for one transition in JAX."""
ConstraintFunction = Callable[[Array, Array, Array], Array]
"""constraint(x, u, x_next) -> scalar margin that must not be negative, written for one transition in JAX."""
Feedback = Callable[[Array], Array]
"""feedback(x) -> action [du] in [-1, 1], written for one state in JAX."""


@dataclass(frozen=True)
class Task:
    """A reward and, optionally, a success criterion."""

    reward: RewardFunction
    """The reward of one transition, in JAX."""
    success: Callable[[np.ndarray], float] | None = None
    """success(next_states [T, dx]) -> how far one episode solved the task, from 0 to 1; in numpy."""


@dataclass(frozen=True)
class GoalTask:
    """A task with a goal [dg] that is drawn for each rollout.

    The goal is not part of the state: planners receive it, models do not. A world must return the same function objects each
    time, since JAX caches compiled programs by the identity of functions.
    """

    reward: GoalRewardFunction
    """The reward of one transition for a goal, in JAX."""
    sample_goal: Callable[[np.random.Generator], np.ndarray]
    """Draws the goal [dg] of a rollout."""
    success: Callable[[np.ndarray, np.ndarray], float] | None = None
    """success(next_states [T, dx], goal [dg]) -> how far one episode solved the task, from 0 to 1; in numpy."""
