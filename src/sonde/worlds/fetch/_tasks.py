"""What to do with the blocks: bring them to places, throw them beyond the arm's reach, turn them on their sides.

Each task has a `reward` of a transition and a goal, for planners (JAX), `sample_goal`, and `success`, the share of blocks for
which a rollout solved it (numpy). Goals are no part of the state. The same for any number of blocks.
"""

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
    first_angles,
    grip_position,
)

NEAR = 0.05
"""A block is at its goal within this."""
HELD = 5
"""A number of blocks at their goals counts if it was so in more steps than this."""
GOALS_APART = 0.071
TO_THE_ROBOT, IN_THE_AIR, LIFT = (-0.05, 0.0), 0.5, (0.1, 0.45)
"""The last block's goal lies nearer to the robot and, so often, raised by so much."""

BASE = (0.6919, 0.7441)
"""Where the robot stands."""
THROW_ANGLES, ARM, BEYOND = (50.0, 130.0), 0.8531, (0.16, 0.20)
"""Directions in degrees from the y axis; how far the arm reaches, and how much farther goals are."""
THROWN = (0.1, 0.1, REST_HEIGHT)
"""A block is at its goal where it is no farther than this in x, y and z."""

ON_ITS_SIDE, TILT = np.pi / 2, 0.087
"""A block is flipped when its first angle is this, to within so much."""


@dataclass(frozen=True)
class PickPlace:
    """Bring each block to its place, the last one perhaps in the air. The goal: the places, one after the other [3 blocks]."""

    blocks: int = 4

    def reward(
        self, x: Float[Array, " dx"], u: Float[Array, " du"], x_next: Float[Array, " dx"], goal: Float[Array, " dg"]
    ) -> Float[Array, ""]:
        """Minus the blocks' distances; nearer than half a block is no better."""
        del x, u
        distances = jnp.linalg.norm(block_positions(x_next) - goal.reshape(-1, 3), axis=-1)
        return -jnp.sum(jnp.maximum(distances, HALF_SIZE))

    def sample_goal(self, rng: np.random.Generator) -> np.ndarray:
        """Places around the grip's home, apart from each other as seen from above."""
        around = lambda: np.append(np.array(GRIP_HOME[:2]) + rng.uniform(-PLAYGROUND, PLAYGROUND, 2), REST_HEIGHT)
        last = around()
        last[:2] += TO_THE_ROBOT
        if rng.uniform() < IN_THE_AIR:
            last[2] += rng.uniform(*LIFT)
        goals = [last]
        while len(goals) < self.blocks:
            place = around()
            if all(np.linalg.norm((place - other)[:2]) > GOALS_APART for other in goals):
                goals.append(place)
        return np.concatenate([*goals[1:], last])

    def success(self, next_states: np.ndarray, goal: np.ndarray) -> float:
        """The highest number of blocks that were at their goals at once, exactly so many, in more than 5 steps of [T, dx]."""
        distances = np.linalg.norm(block_positions(next_states) - goal.reshape(-1, 3), axis=-1)
        steps = np.bincount(np.sum(distances < NEAR, axis=-1), minlength=self.blocks + 1)
        return float(np.flatnonzero(steps > HELD).max(initial=0)) / self.blocks


@dataclass(frozen=True)
class Throw:
    """Get each block to a place beyond the arm's reach. The goal: the places, one after the other [3 blocks]."""

    blocks: int = 4

    def reward(
        self, x: Float[Array, " dx"], u: Float[Array, " du"], x_next: Float[Array, " dx"], goal: Float[Array, " dg"]
    ) -> Float[Array, ""]:
        """Minus the number of blocks that are not there, and a little for how far they are."""
        del x, u
        threshold = jnp.asarray(THROWN, x_next.dtype)
        away = jnp.abs(block_positions(x_next) - goal.reshape(-1, 3))
        missed = jnp.any(away > threshold, axis=-1)
        far = jnp.mean(1.0 - jnp.exp(-0.5 * jnp.maximum(away, threshold)), axis=-1)
        return -jnp.sum(missed + 1e-3 * far)

    def sample_goal(self, rng: np.random.Generator) -> np.ndarray:
        """On an arc around the robot, in evenly spaced directions, dealt to the blocks at random."""
        angles = np.deg2rad(rng.permutation(np.linspace(*THROW_ANGLES, self.blocks)))
        radius = ARM + rng.uniform(*BEYOND, self.blocks)
        places = np.array(BASE) + radius[:, None] * np.stack([np.sin(angles), np.cos(angles)], axis=-1)
        return np.concatenate([places, np.full((self.blocks, 1), REST_HEIGHT)], axis=-1).ravel()

    def success(self, next_states: np.ndarray, goal: np.ndarray) -> float:
        """The share of blocks at their goals, as seen from above, in the last of [T, dx]."""
        away = np.abs(block_positions(next_states[-1]) - goal.reshape(-1, 3))
        return float(np.mean((away[:, :2] <= THROWN[:2]).all(axis=-1)))


@dataclass(frozen=True)
class Flip:
    """Turn each block by a quarter about its x axis. The goal is empty."""

    blocks: int = 4

    def reward(
        self, x: Float[Array, " dx"], u: Float[Array, " du"], x_next: Float[Array, " dx"], goal: Float[Array, " dg"]
    ) -> Float[Array, ""]:
        """Minus the number of blocks that are not turned, and a little for how far the grip is from its home."""
        del x, u, goal
        missed = jnp.abs(first_angles(x_next, jnp) - ON_ITS_SIDE) > TILT
        return -jnp.sum(missed) - 1e-3 * jnp.linalg.norm(grip_position(x_next) - jnp.asarray(GRIP_HOME, x_next.dtype))

    def sample_goal(self, rng: np.random.Generator) -> np.ndarray:
        """Always the same task."""
        del rng
        return np.empty(0)

    def success(self, next_states: np.ndarray, goal: np.ndarray) -> float:
        """The share of blocks that are turned in the last of [T, dx]."""
        del goal
        return float(np.mean(np.abs(first_angles(next_states[-1], np) - ON_ITS_SIDE) <= TILT))


FETCH_TASKS: dict[str, type[PickPlace] | type[Throw] | type[Flip]] = {"pick-place": PickPlace, "throw": Throw, "flip": Flip}


@functools.cache
def goal_tasks(blocks: int) -> Mapping[str, GoalTask]:
    """All of them for so many blocks; the same functions each time, since compilers know functions by their identity."""
    made = {name: kind(blocks) for name, kind in FETCH_TASKS.items()}
    return {name: GoalTask(task.reward, task.sample_goal, task.success) for name, task in made.items()}
