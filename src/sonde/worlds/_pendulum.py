"""The torque-limited pendulum of Gymnasium's Pendulum-v1, in pure JAX.

State x = (cos th, sin th, thdot) with th = 0 upright. Action u in [-1, 1] is the torque relative to its limit.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from sonde._internal.errors import not_negative, positive
from sonde._internal.precision import double_precision
from sonde.worlds._base import JaxWorld, known_zero
from sonde.worlds._pumping import REACHABLE_POINTS, REACHABLE_SEED, EpisodeKeys, Pump, pumped_points
from sonde.worlds._task import ConstraintFunction, Feedback, RewardFunction
from sonde.worlds._views import Coordinates, Plane


def angle(x: Float[Array, " dx"]) -> Float[Array, ""]:
    """Compute the angle th in [-pi, pi], 0 upright.

    Args:
        x: State.
    """
    return jnp.arctan2(x[1], x[0])


def observe(theta: Float[Array, "*n"], speed: Float[Array, "*n"]) -> Float[Array, "*n dx"]:
    """Compute states from angles and angular velocities.

    Args:
        theta: Angles.
        speed: Angular velocities.
    """
    return jnp.stack([jnp.cos(theta), jnp.sin(theta), speed], axis=-1)


def _from_angle_and_speed(q: Float[Array, " 2"]) -> Float[Array, " dx"]:
    return observe(q[0], q[1])


def _angle_and_speed(x: Float[Array, " dx"]) -> Float[Array, " 2"]:
    return jnp.stack([angle(x), x[2]])


SPEED_LIMIT = 5.0
"""Largest angular velocity that the constraint `speed` allows, in rad/s."""


def within_speed(x: Float[Array, " dx"], u: Float[Array, " du"], x_next: Float[Array, " dx"]) -> Float[Array, ""]:
    """How far the angular velocity stays below `SPEED_LIMIT`, in rad/s.

    Args:
        x: State.
        u: Action.
        x_next: Next state.
    """
    del x, u
    return SPEED_LIMIT - jnp.abs(x_next[2])


def brake_pendulum(x: Float[Array, " dx"]) -> Float[Array, " du"]:
    """Torque against the motion, its limit from 1 rad/s on.

    Args:
        x: State.
    """
    return jnp.clip(-x[2:3], -1.0, 1.0)


@functools.cache  # the same limit must give the same functions: JAX caches compiled programs by their identity
def _tasks(max_torque: float) -> Mapping[str, RewardFunction]:
    def cost(theta, x, u):
        return theta**2 + 0.1 * x[2] ** 2 + 0.001 * jnp.sum((max_torque * u) ** 2)

    def swing_up(x, u, x_next):  # Gymnasium's reward
        del x_next
        return -cost(angle(x), x, u)

    def keep_down(x, u, x_next):  # the same, relative to hanging
        del x_next
        return -cost(jnp.arctan2(-x[1], -x[0]), x, u)

    return MappingProxyType({"swing-up": swing_up, "keep-down": keep_down})


@functools.cache
def _tasks_from_angles(max_torque: float, time_step: float) -> Mapping[str, RewardFunction]:
    """The tasks with the speed that leads from one angle to the next, which is exactly that of the next state."""

    def cost(theta, x, u, x_next):
        turn = angle(x_next) - angle(x)
        speed = ((turn + jnp.pi) % (2 * jnp.pi) - jnp.pi) / time_step
        return theta**2 + 0.1 * speed**2 + 0.001 * jnp.sum((max_torque * u) ** 2)

    def swing_up(x, u, x_next):
        return -cost(angle(x), x, u, x_next)

    def keep_down(x, u, x_next):
        return -cost(jnp.arctan2(-x[1], -x[0]), x, u, x_next)

    return MappingProxyType({"swing-up": swing_up, "keep-down": keep_down})


@dataclass(frozen=True)
class Pendulum(JaxWorld):
    """Torque-limited pendulum, a uniform rod; episodes start hanging down, at rest."""

    process_noise: float = 0.0
    """Std of the Gaussian noise added to each state dimension at every step."""
    gravity: float = 10.0
    """Gravitational acceleration in m/s^2."""
    mass: float = 1.0
    """Mass of the rod in kg."""
    length: float = 1.0
    """Length of the rod in m."""
    friction: float = 0.0
    """Viscous friction of the bearing: torque per angular velocity, in N m s/rad."""
    max_torque: float = 2.0
    """Torque of the action 1, in N m."""
    max_speed: float = 8.0
    """Limit of the angular velocity in rad/s."""
    time_step: float = 0.05
    """Duration of a step in s."""

    @property
    def state_names(self) -> tuple[str, ...]:
        """Cosine and sine of the angle, and angular velocity in rad/s."""
        return ("cos th", "sin th", "thdot")

    @property
    def action_names(self) -> tuple[str, ...]:
        """Torque relative to its limit."""
        return ("torque",)

    @property
    def tasks(self) -> Mapping[str, RewardFunction]:
        """Swing up and balance; hang still."""
        return _tasks(self.max_torque)

    @property
    def constraints(self) -> Mapping[str, ConstraintFunction]:
        """Turn no faster than 5 rad/s."""
        return {"speed": within_speed}

    @property
    def brake(self) -> Feedback:
        """Torque against the motion."""
        return brake_pendulum

    def tasks_from(self, names: tuple[str, ...]) -> Mapping[str, RewardFunction]:
        """All tasks, if cosine and sine of the angle come first: two angles give the speed between them."""
        return _tasks_from_angles(self.max_torque, self.time_step) if names[:2] == ("cos th", "sin th") else {}

    def __post_init__(self):
        """Reject physics that cannot be."""
        not_negative("pendulum", process_noise=self.process_noise, friction=self.friction)
        positive("pendulum", gravity=self.gravity, mass=self.mass, length=self.length)
        positive("pendulum", max_torque=self.max_torque, max_speed=self.max_speed, time_step=self.time_step)

    def reset(self, key: Key[Array, ""]) -> Float[Array, " dx"]:
        """Return the state hanging down, at rest."""
        del key
        return jnp.asarray([-1.0, 0.0, 0.0])

    def dynamics(self, x: Float[Array, " dx"], u: Float[Array, " du"]) -> Float[Array, " dx"]:
        """Semi-implicit Euler step with limited speed, as in Gymnasium."""
        theta, torque = angle(x), self.max_torque * jnp.clip(u[0], -1.0, 1.0)
        if not known_zero(self.friction):  # without it, the operations are exactly Gymnasium's
            torque -= self.friction * x[2]
        acceleration = 3 * self.gravity / (2 * self.length) * jnp.sin(theta) + 3.0 / (self.mass * self.length**2) * torque
        speed = jnp.clip(x[2] + acceleration * self.time_step, -self.max_speed, self.max_speed)
        return observe(theta + speed * self.time_step, speed)

    def step(self, x: Float[Array, " dx"], u: Float[Array, " du"], key: Key[Array, ""]) -> Float[Array, " dx"]:
        """Draw x' = f*(x, u) + w."""
        return self.dynamics(x, u) + self.process_noise * jax.random.normal(key, x.shape)

    def project(self, x: Float[Array, " dx"]) -> Float[Array, " dx"]:
        """Project onto the unit circle and the speed limits."""
        return observe(angle(x), jnp.clip(x[2], -self.max_speed, self.max_speed))

    def reachable_points(self) -> tuple[np.ndarray, np.ndarray]:
        """Return points of random and energy-pumping rollouts of 200 steps with this world's own dynamics."""
        return _reachable(self)

    @property
    def seconds_per_step(self) -> float:
        """The time step."""
        return self.time_step

    def render(self, x: np.ndarray) -> np.ndarray:
        """Draw rod and bob; upright is at the top."""
        from sonde.worlds._drawing import draw_pendulum

        return draw_pendulum(float(np.arctan2(x[1], x[0])))

    def narrow_box(self) -> tuple[np.ndarray, np.ndarray]:
        """All angles, and speeds in [-1, 1] as far as they are allowed."""
        rng = np.random.default_rng(REACHABLE_SEED)
        theta, speed, u = (rng.uniform(-1, 1, REACHABLE_POINTS) for _ in range(3))
        speed *= min(1.0, self.max_speed)
        return np.stack([np.cos(np.pi * theta), np.sin(np.pi * theta), speed], axis=-1), u[:, None]

    def coordinates(self) -> Coordinates:
        """Angle (0 upright) and angular velocity."""
        return Coordinates(("th", "thdot"), _from_angle_and_speed, _angle_and_speed, (2 * np.pi, np.inf))

    def plane(self) -> Plane:
        """Angle and angular velocity."""
        return Plane(
            x_label="angle [rad]",
            y_label="angular velocity [rad/s]",
            x_range=(-np.pi, np.pi),
            y_range=(-self.max_speed, self.max_speed),
            to_state=lambda theta, speed: np.stack([np.cos(theta), np.sin(theta), speed], axis=-1),
            from_state=lambda states: (np.arctan2(states[..., 1], states[..., 0]), states[..., 2]),
            x_ticks=(
                (-np.pi, "−π\nhanging"),
                (-np.pi / 2, "−π/2"),
                (0.0, "0\nupright"),
                (np.pi / 2, "π/2"),
                (np.pi, "π\nhanging"),
            ),
        )


@functools.cache
@double_precision
def _reachable(world: Pendulum) -> tuple[np.ndarray, np.ndarray]:
    def pump(x: Float[Array, " dx"], level: Float[Array, ""]) -> Float[Array, ""]:
        """Push along the motion while the energy is too low, against it while it is too high.

        Energy is in units of the difference between hanging and upright; at 0 the pendulum is upright at rest.
        """
        energy = world.length * x[2] ** 2 / (6 * world.gravity) + (x[0] - 1) / 2
        return jnp.sign(level - energy) * jnp.where(x[2] >= 0, 1.0, -1.0)

    highest = max(2.0, world.length * world.max_speed**2 / (6 * world.gravity))  # upright at the speed limit, or above
    keys = lambda key: EpisodeKeys(key, *jax.random.split(key, 3))
    return pumped_points(world, Pump(pump, (-1.0, highest), keys), steps=200)
