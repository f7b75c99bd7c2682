"""The torque-limited pendulum of Gymnasium's Pendulum-v1, in pure JAX.

State x = (cos th, sin th, thdot) with th = 0 upright. Action u in [-1, 1] is the torque relative to its limit.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from sonde._internal.errors import SondeError
from sonde._internal.precision import double_precision
from sonde.worlds._base import JaxWorld
from sonde.worlds._pumping import REACHABLE_POINTS, REACHABLE_SEED, EpisodeKeys, Pump, pumped_points
from sonde.worlds._task import RewardFunction
from sonde.worlds._views import Coordinates, Plane

GRAVITY, MASS, LENGTH, TIME_STEP = 10.0, 1.0, 1.0, 0.05
MAX_TORQUE, MAX_SPEED = 2.0, 8.0


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


def _cost(theta, x, u):
    return theta**2 + 0.1 * x[2] ** 2 + 0.001 * jnp.sum((MAX_TORQUE * u) ** 2)


def swing_up(x: Float[Array, " dx"], u: Float[Array, " du"], x_next: Float[Array, " dx"]) -> Float[Array, ""]:
    """Gymnasium's reward, highest upright, at rest and without torque.

    Args:
        x: State.
        u: Action.
        x_next: Next state.
    """
    del x_next
    return -_cost(angle(x), x, u)


def keep_down(x: Float[Array, " dx"], u: Float[Array, " du"], x_next: Float[Array, " dx"]) -> Float[Array, ""]:
    """The same reward, highest hanging down.

    Args:
        x: State.
        u: Action.
        x_next: Next state.
    """
    del x_next
    return -_cost(jnp.arctan2(-x[1], -x[0]), x, u)


@dataclass(frozen=True)
class Pendulum(JaxWorld):
    """Torque-limited pendulum; episodes start hanging down, at rest."""

    process_noise: float = 0.0
    """Std of the Gaussian noise added to each state dimension at every step."""

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
        return {"swing-up": swing_up, "keep-down": keep_down}

    def __post_init__(self):
        """Reject negative noise."""
        if not 0 <= self.process_noise < float("inf"):
            raise SondeError(f"pendulum: process_noise must be 0 or above and finite, got {self.process_noise}")

    def reset(self, key: Key[Array, ""]) -> Float[Array, " dx"]:
        """Return the state hanging down, at rest."""
        del key
        return jnp.asarray([-1.0, 0.0, 0.0])

    def dynamics(self, x: Float[Array, " dx"], u: Float[Array, " du"]) -> Float[Array, " dx"]:
        """Semi-implicit Euler step with limited speed, as in Gymnasium."""
        theta, torque = angle(x), MAX_TORQUE * jnp.clip(u[0], -1.0, 1.0)
        acceleration = 3 * GRAVITY / (2 * LENGTH) * jnp.sin(theta) + 3.0 / (MASS * LENGTH**2) * torque
        speed = jnp.clip(x[2] + acceleration * TIME_STEP, -MAX_SPEED, MAX_SPEED)
        return observe(theta + speed * TIME_STEP, speed)

    def step(self, x: Float[Array, " dx"], u: Float[Array, " du"], key: Key[Array, ""]) -> Float[Array, " dx"]:
        """Draw x' = f*(x, u) + w."""
        return self.dynamics(x, u) + self.process_noise * jax.random.normal(key, x.shape)

    def project(self, x: Float[Array, " dx"]) -> Float[Array, " dx"]:
        """Project onto the unit circle and the speed limits."""
        return observe(angle(x), jnp.clip(x[2], -MAX_SPEED, MAX_SPEED))

    def reachable_points(self) -> tuple[np.ndarray, np.ndarray]:
        """Return points of random and energy-pumping rollouts; see `pumped_points`."""
        return _reachable()

    @property
    def seconds_per_step(self) -> float:
        """Gymnasium's time step."""
        return TIME_STEP

    def render(self, x: np.ndarray) -> np.ndarray:
        """Draw rod and bob; upright is at the top."""
        from sonde.worlds._drawing import draw_pendulum

        return draw_pendulum(float(np.arctan2(x[1], x[0])))

    def narrow_box(self) -> tuple[np.ndarray, np.ndarray]:
        """All angles, and speeds in [-1, 1]."""
        rng = np.random.default_rng(REACHABLE_SEED)
        theta, speed, u = (rng.uniform(-1, 1, REACHABLE_POINTS) for _ in range(3))
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
            y_range=(-MAX_SPEED, MAX_SPEED),
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


def _pump(x: Float[Array, " dx"], level: Float[Array, ""]) -> Float[Array, ""]:
    """Push along the motion while the energy is too low, against it while it is too high.

    Energy is in units of the difference between hanging and upright; at 0 the pendulum is upright at rest.
    """
    energy = LENGTH * x[2] ** 2 / (6 * GRAVITY) + (x[0] - 1) / 2
    return jnp.sign(level - energy) * jnp.where(x[2] >= 0, 1.0, -1.0)


@functools.cache
@double_precision
def _reachable() -> tuple[np.ndarray, np.ndarray]:
    keys = lambda key: EpisodeKeys(key, *jax.random.split(key, 3))
    return pumped_points(Pendulum(), Pump(_pump, (-1.0, 2.0), keys), steps=200)
