"""The car of Gymnasium's MountainCarContinuous-v0, too weak to drive straight uphill, in pure JAX.

State x = (position, velocity). Action u in [-1, 1] is the force relative to its limit. Episodes do not end at the goal.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from sonde._internal.errors import not_negative, positive
from sonde._internal.precision import double_precision
from sonde.worlds._base import JaxWorld, known_zero
from sonde.worlds._pumping import EpisodeKeys, Pump, pumped_points
from sonde.worlds._task import ConstraintFunction, Feedback, RewardFunction
from sonde.worlds._views import Plane

LEFT_WALL, RIGHT_WALL = -1.2, 0.6
GOAL_POSITION, GOAL_VELOCITY = 0.45, 0.0
START = (-0.6, -0.4)


def in_goal(x: Float[Array, " dx"]) -> Array:
    """Whether the car is at the goal and not moving back.

    Args:
        x: State.
    """
    return (x[0] >= GOAL_POSITION) & (x[1] >= GOAL_VELOCITY)


def reach_goal(x: Float[Array, " dx"], u: Float[Array, " du"], x_next: Float[Array, " dx"]) -> Float[Array, ""]:
    """Reward 100 for every step that ends at the goal, minus a cost of the force.

    Args:
        x: State.
        u: Action.
        x_next: Next state.
    """
    del x
    return jnp.where(in_goal(x_next), 100.0, 0.0) - 0.1 * jnp.sum(u**2)


LEFT_END = -1.1
"""Leftmost position that the constraint `left-end` allows."""
BRAKING_SPEED = 0.01
"""Velocity from which braking takes the largest force, per step."""


def right_of_left_end(x: Float[Array, " dx"], u: Float[Array, " du"], x_next: Float[Array, " dx"]) -> Float[Array, ""]:
    """Distance to `LEFT_END`, short of the wall.

    Args:
        x: State.
        u: Action.
        x_next: Next state.
    """
    del x, u
    return x_next[0] - LEFT_END


def brake_car(x: Float[Array, " dx"]) -> Float[Array, " du"]:
    """Force against the motion.

    Args:
        x: State.
    """
    return jnp.clip(-x[1:2] / BRAKING_SPEED, -1.0, 1.0)


@dataclass(frozen=True)
class MountainCar(JaxWorld):
    """Underpowered car in a valley; episodes start at rest near the bottom."""

    process_noise: float = 0.0
    """Std of the Gaussian noise added to each state dimension at every step."""
    power: float = 0.0015
    """Acceleration by the action 1, per step^2."""
    gravity: float = 0.0025
    """Acceleration by gravity where the track is steepest, per step^2."""
    friction: float = 0.0
    """Share of the velocity that viscous friction takes away at every step."""
    max_speed: float = 0.07
    """Limit of the velocity, per step."""

    @property
    def state_names(self) -> tuple[str, ...]:
        """Position along the track, and velocity per step."""
        return ("position", "velocity")

    @property
    def action_names(self) -> tuple[str, ...]:
        """Force relative to its limit."""
        return ("force",)

    @property
    def tasks(self) -> Mapping[str, RewardFunction]:
        """Reach the goal on the right."""
        return {"reach-goal": reach_goal}

    @property
    def constraints(self) -> Mapping[str, ConstraintFunction]:
        """Stay away from the wall on the left."""
        return {"left-end": right_of_left_end}

    @property
    def brake(self) -> Feedback:
        """Force against the motion."""
        return brake_car

    def __post_init__(self):
        """Reject physics that cannot be."""
        not_negative("mountain-car", process_noise=self.process_noise, friction=self.friction)
        positive("mountain-car", power=self.power, gravity=self.gravity, max_speed=self.max_speed)

    def reset(self, key: Key[Array, ""]) -> Float[Array, " dx"]:
        """Draw a position in the valley, at rest."""
        position = jax.random.uniform(key, minval=START[0], maxval=START[1])
        return jnp.stack([position, jnp.zeros_like(position)])

    def dynamics(self, x: Float[Array, " dx"], u: Float[Array, " du"]) -> Float[Array, " dx"]:
        """Semi-implicit Euler step with limited speed; the left wall stops the car, the right one only limits its position."""
        acceleration = self.power * jnp.clip(u[0], -1.0, 1.0) - self.gravity * jnp.cos(3 * x[0])
        if not known_zero(self.friction):  # without it, the operations are exactly Gymnasium's
            acceleration -= self.friction * x[1]
        velocity = jnp.clip(x[1] + acceleration, -self.max_speed, self.max_speed)
        position = jnp.clip(x[0] + velocity, LEFT_WALL, RIGHT_WALL)
        stopped = (position <= LEFT_WALL) & (velocity < 0)
        return jnp.stack([position, jnp.where(stopped, 0.0, velocity)])

    def step(self, x: Float[Array, " dx"], u: Float[Array, " du"], key: Key[Array, ""]) -> Float[Array, " dx"]:
        """Draw x' = f*(x, u) + w."""
        return self.dynamics(x, u) + self.process_noise * jax.random.normal(key, x.shape)

    def project(self, x: Float[Array, " dx"]) -> Float[Array, " dx"]:
        """Clip to the walls and the speed limits."""
        return jnp.clip(x, jnp.asarray([LEFT_WALL, -self.max_speed]), jnp.asarray([RIGHT_WALL, self.max_speed]))

    def reachable_points(self) -> tuple[np.ndarray, np.ndarray]:
        """Return points of random and energy-pumping rollouts of 300 steps with this world's own dynamics."""
        return _reachable(self)

    def plane(self) -> Plane:
        """Position and velocity."""
        return Plane(
            x_label="position",
            y_label="velocity [per step]",
            x_range=(LEFT_WALL, RIGHT_WALL),
            y_range=(-self.max_speed, self.max_speed),
            to_state=lambda position, velocity: np.stack([position, velocity], axis=-1),
            from_state=lambda states: (states[..., 0], states[..., 1]),
            x_ticks=((LEFT_WALL, "−1.2\nwall"), (-0.8, "−0.8"), (-np.pi / 6, "−π/6\nvalley"), (0.0, "0"), (0.45, "0.45\ngoal")),
        )

    def render(self, x: np.ndarray) -> np.ndarray:
        """Draw the car in its valley, and a flag at the goal."""
        from sonde.worlds._drawing import draw_mountain_car

        return draw_mountain_car(float(x[0]))


@functools.cache
@double_precision
def _reachable(world: MountainCar) -> tuple[np.ndarray, np.ndarray]:
    def pump(x: Float[Array, " dx"], level: Float[Array, ""]) -> Float[Array, ""]:
        """Push along the motion while the energy is too low, against it while it is too high; turn back at the right wall.

        At energy -1 the car rests in the valley, at 1 on the summit.
        """
        energy = 1.5 * x[1] ** 2 / world.gravity + jnp.sin(3 * x[0])
        along = jnp.sign(level - energy) * jnp.where(x[1] >= 0, 1.0, -1.0)
        return jnp.where(x[0] >= RIGHT_WALL, -1.0, along)  # the right wall takes no energy away

    highest = max(4.0, 1.5 * world.max_speed**2 / world.gravity + 1)  # on the summit at the speed limit, or above
    keys = lambda key: EpisodeKeys(*jax.random.split(key, 4))
    return pumped_points(world, Pump(pump, (-1.0, highest), keys), steps=300)
