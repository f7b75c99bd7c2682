"""Tasks with the blocks: bring them to positions, throw them beyond the arm's reach, flip them on their sides.

Each task has a `reward` of a transition and a goal, for planners (JAX), `sample_goal`, and `success`, the share of blocks for
which a rollout solved the task (numpy). Tasks exist for any number of blocks.
"""

import abc
import functools
from collections.abc import Mapping
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sonde.worlds._task import GoalTask
from sonde.worlds.fetch._layout import (
    GRIP_HOME,
    HALF_SIZE,
    PLAYGROUND,
    REST_HEIGHT,
    block_positions,
    grip_position,
    roll_angles,
)

AT_GOAL = 0.05
"""Largest distance at which a block is at its goal."""
HOLD_STEPS = 5
"""Blocks count as placed if they are at their goals in more steps than this."""
GOAL_SPACING = 0.071
TOWARDS_ROBOT, IN_AIR_PROBABILITY, LIFT = (-0.05, 0.0), 0.5, (0.1, 0.45)
"""Offset of the last block's goal, and probability and height with which it lies in the air."""

ROBOT_BASE = (0.6919, 0.7441)
THROW_ANGLES, ARM_REACH, BEYOND_REACH = (50.0, 130.0), 0.8531, (0.16, 0.20)
"""Directions of goals in degrees from the y axis; the arm's reach, and how much farther goals lie."""
THROW_TOLERANCE = (0.1, 0.1, REST_HEIGHT)
"""Largest distances in x, y and z at which a thrown block is at its goal."""

FLIPPED_ANGLE, FLIP_TOLERANCE = np.pi / 2, 0.087
"""First angle of a flipped block, and its tolerance."""


@dataclass(frozen=True)
class BlockTask(abc.ABC):
    """A task whose reward depends on the next state and the goal."""

    blocks: int = 4
    """Number of blocks."""

    def reward(
        self, x: Float[Array, " dx"], u: Float[Array, " du"], x_next: Float[Array, " dx"], goal: Float[Array, " dg"]
    ) -> Float[Array, ""]:
        """Compute the reward of one transition.

        Args:
            x: State.
            u: Action.
            x_next: Next state.
            goal: Goal of the rollout.
        """
        del x, u
        return self.state_reward(x_next, goal)

    @abc.abstractmethod
    def state_reward(self, x: Float[Array, " dx"], goal: Float[Array, " dg"]) -> Float[Array, ""]:
        """Compute the reward of a step that ends in a state.

        Args:
            x: State after the step.
            goal: Goal of the rollout.
        """

    @abc.abstractmethod
    def sample_goal(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the goal [dg] of a rollout.

        Args:
            rng: Random generator.
        """

    @abc.abstractmethod
    def success(self, next_states: np.ndarray, goal: np.ndarray) -> float:
        """Compute the share of blocks for which a rollout solved the task.

        Args:
            next_states: States after each step [T, dx].
            goal: Goal of the rollout [dg].
        """


@dataclass(frozen=True)
class PickPlace(BlockTask):
    """Bring each block to its goal position, the last one possibly in the air. Goal: the positions, flattened [3 blocks]."""

    def state_reward(self, x: Float[Array, " dx"], goal: Float[Array, " dg"]) -> Float[Array, ""]:
        """Minus the sum of the blocks' distances, each at least half a block."""
        distances = jnp.linalg.norm(block_positions(x) - goal.reshape(-1, 3), axis=-1)
        return -jnp.sum(jnp.maximum(distances, HALF_SIZE))

    def sample_goal(self, rng: np.random.Generator) -> np.ndarray:
        """Draw positions around the grip's home with a minimum horizontal distance to each other."""
        draw = lambda: np.append(np.array(GRIP_HOME[:2]) + rng.uniform(-PLAYGROUND, PLAYGROUND, 2), REST_HEIGHT)
        last = draw()
        last[:2] += TOWARDS_ROBOT
        if rng.uniform() < IN_AIR_PROBABILITY:
            last[2] += rng.uniform(*LIFT)
        goals = [last]
        while len(goals) < self.blocks:
            position = draw()
            if all(np.linalg.norm((position - other)[:2]) > GOAL_SPACING for other in goals):
                goals.append(position)
        return np.concatenate([*goals[1:], last])

    def success(self, next_states: np.ndarray, goal: np.ndarray) -> float:
        """Share for the largest number of blocks that were at their goals, exactly that many, in more than 5 steps."""
        distances = np.linalg.norm(block_positions(next_states) - goal.reshape(-1, 3), axis=-1)
        steps = np.bincount(np.sum(distances < AT_GOAL, axis=-1), minlength=self.blocks + 1)
        return float(np.flatnonzero(steps > HOLD_STEPS).max(initial=0)) / self.blocks


@dataclass(frozen=True)
class Throw(BlockTask):
    """Get each block to a goal position beyond the arm's reach. Goal: the positions, flattened [3 blocks]."""

    def state_reward(self, x: Float[Array, " dx"], goal: Float[Array, " dg"]) -> Float[Array, ""]:
        """Minus the number of blocks that are not at their goals, and a small cost of their distances."""
        tolerance = jnp.asarray(THROW_TOLERANCE, x.dtype)
        away = jnp.abs(block_positions(x) - goal.reshape(-1, 3))
        missed = jnp.any(away > tolerance, axis=-1)
        far = jnp.mean(1.0 - jnp.exp(-0.5 * jnp.maximum(away, tolerance)), axis=-1)
        return -jnp.sum(missed + 1e-3 * far)

    def sample_goal(self, rng: np.random.Generator) -> np.ndarray:
        """Draw positions on an arc around the robot, in evenly spaced directions that are assigned to blocks at random."""
        angles = np.deg2rad(rng.permutation(np.linspace(*THROW_ANGLES, self.blocks)))
        radius = ARM_REACH + rng.uniform(*BEYOND_REACH, self.blocks)
        positions = np.array(ROBOT_BASE) + radius[:, None] * np.stack([np.sin(angles), np.cos(angles)], axis=-1)
        return np.concatenate([positions, np.full((self.blocks, 1), REST_HEIGHT)], axis=-1).ravel()

    def success(self, next_states: np.ndarray, goal: np.ndarray) -> float:
        """Share of blocks that are horizontally at their goals in the last state."""
        away = np.abs(block_positions(next_states[-1]) - goal.reshape(-1, 3))
        return float(np.mean((away[:, :2] <= THROW_TOLERANCE[:2]).all(axis=-1)))


@dataclass(frozen=True)
class Flip(BlockTask):
    """Turn each block by a quarter turn about its x axis. The goal is empty."""

    def state_reward(self, x: Float[Array, " dx"], goal: Float[Array, " dg"]) -> Float[Array, ""]:
        """Minus the number of blocks that are not flipped, and a small cost of the grip's distance from its home."""
        del goal
        missed = jnp.abs(roll_angles(x, jnp) - FLIPPED_ANGLE) > FLIP_TOLERANCE
        return -jnp.sum(missed) - 1e-3 * jnp.linalg.norm(grip_position(x) - jnp.asarray(GRIP_HOME, x.dtype))

    def sample_goal(self, rng: np.random.Generator) -> np.ndarray:
        """Return an empty goal."""
        del rng
        return np.empty(0)

    def success(self, next_states: np.ndarray, goal: np.ndarray) -> float:
        """Share of blocks that are flipped in the last state."""
        del goal
        return float(np.mean(np.abs(roll_angles(next_states[-1], np) - FLIPPED_ANGLE) <= FLIP_TOLERANCE))


FETCH_TASKS: dict[str, type[BlockTask]] = {"pick-place": PickPlace, "throw": Throw, "flip": Flip}
"""Tasks by name."""


@functools.cache  # JAX caches compiled programs by the identity of functions, so they must be the same at each call
def goal_tasks(blocks: int) -> Mapping[str, GoalTask]:
    """Return all tasks for a number of blocks, with the same function objects at each call.

    Args:
        blocks: Number of blocks.
    """
    made = {name: kind(blocks) for name, kind in FETCH_TASKS.items()}
    return {name: GoalTask(task.reward, task.sample_goal, task.success) for name, task in made.items()}
