"""The torque-limited pendulum of Gymnasium's Pendulum-v1, in pure JAX.

State x = (cos th, sin th, thdot), th = 0 upright. Action u in [-1, 1] is the torque over its limit.
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
from sonde.worlds._base import Coordinates, JaxWorld, Plane
from sonde.worlds._task import RewardFunction

GRAVITY, MASS, LENGTH, TIME_STEP = 10.0, 1.0, 1.0, 0.05
MAX_TORQUE, MAX_SPEED = 2.0, 8.0
REACHABLE_SEED, REACHABLE_POINTS = 20231, 2000


def angle(x: Float[Array, " dx"]) -> Float[Array, ""]:
    """th in [-pi, pi], 0 upright."""
    return jnp.arctan2(x[1], x[0])


def observe(theta: Float[Array, "*n"], speed: Float[Array, "*n"]) -> Float[Array, "*n dx"]:
    """The state of an angle and an angular velocity."""
    return jnp.stack([jnp.cos(theta), jnp.sin(theta), speed], axis=-1)


def _of_angle_and_speed(q: Float[Array, " 2"]) -> Float[Array, " dx"]:
    return observe(q[0], q[1])


def _angle_and_speed(x: Float[Array, " dx"]) -> Float[Array, " 2"]:
    return jnp.stack([angle(x), x[2]])


def _cost(theta, x, u):
    return theta**2 + 0.1 * x[2] ** 2 + 0.001 * jnp.sum((MAX_TORQUE * u) ** 2)


def swing_up(x: Float[Array, " dx"], u: Float[Array, " du"], x_next: Float[Array, " dx"]) -> Float[Array, ""]:
    """Gymnasium's reward: upright, slow, with little torque."""
    del x_next
    return -_cost(angle(x), x, u)


def keep_down(x: Float[Array, " dx"], u: Float[Array, " du"], x_next: Float[Array, " dx"]) -> Float[Array, ""]:
    """The same, hanging down."""
    del x_next
    return -_cost(jnp.arctan2(-x[1], -x[0]), x, u)


@dataclass(frozen=True)
class Pendulum(JaxWorld):
    """Starts hanging down, at rest."""

    process_noise: float = 0.0
    """Std of the Gaussian noise that is added to each state dimension at every step."""

    @property
    def state_names(self) -> tuple[str, ...]:
        """Angle on the circle, and angular velocity in rad/s."""
        return ("cos th", "sin th", "thdot")

    @property
    def action_names(self) -> tuple[str, ...]:
        """Torque over its limit."""
        return ("torque",)

    @property
    def tasks(self) -> Mapping[str, RewardFunction]:
        """Swing up and stay there; hang still."""
        return {"swing-up": swing_up, "keep-down": keep_down}

    def __post_init__(self):
        """Refuse noise that means nothing."""
        if not self.process_noise >= 0:
            raise SondeError(f"pendulum: process_noise must be 0 or above, got {self.process_noise}")

    def reset(self, key: Key[Array, ""]) -> Float[Array, " dx"]:
        """Hanging down, at rest."""
        del key
        return jnp.asarray([-1.0, 0.0, 0.0])

    def dynamics(self, x: Float[Array, " dx"], u: Float[Array, " du"]) -> Float[Array, " dx"]:
        """Semi-implicit Euler, speed limited, as Gymnasium does it."""
        theta, torque = angle(x), MAX_TORQUE * jnp.clip(u[0], -1.0, 1.0)
        acceleration = 3 * GRAVITY / (2 * LENGTH) * jnp.sin(theta) + 3.0 / (MASS * LENGTH**2) * torque
        speed = jnp.clip(x[2] + acceleration * TIME_STEP, -MAX_SPEED, MAX_SPEED)
        return observe(theta + speed * TIME_STEP, speed)

    def step(self, x: Float[Array, " dx"], u: Float[Array, " du"], key: Key[Array, ""]) -> Float[Array, " dx"]:
        """x' = f*(x, u) + w."""
        return self.dynamics(x, u) + self.process_noise * jax.random.normal(key, x.shape)

    def project(self, x: Float[Array, " dx"]) -> Float[Array, " dx"]:
        """On the circle, no faster than the limit."""
        return observe(angle(x), jnp.clip(x[2], -MAX_SPEED, MAX_SPEED))

    def reachable_points(self) -> tuple[np.ndarray, np.ndarray]:
        """Points of many random and swing-up rollouts of the true system; see `_reachable`."""
        return _reachable()

    @property
    def seconds_per_step(self) -> float:
        """Gymnasium's time step."""
        return TIME_STEP

    def picture(self, x: np.ndarray) -> np.ndarray:
        """Rod and bob; at the top is upright."""
        from sonde.worlds._pictures import pendulum

        return pendulum(float(np.arctan2(x[1], x[0])))

    def narrow_box(self) -> tuple[np.ndarray, np.ndarray]:
        """Every angle, but speeds in [-1, 1] only."""
        rng = np.random.default_rng(REACHABLE_SEED)
        theta, speed, u = (rng.uniform(-1, 1, REACHABLE_POINTS) for _ in range(3))
        return np.stack([np.cos(np.pi * theta), np.sin(np.pi * theta), speed], axis=-1), u[:, None]

    def coordinates(self) -> Coordinates:
        """Angle, 0 upright, and angular velocity."""
        return Coordinates(("th", "thdot"), _of_angle_and_speed, _angle_and_speed, (2 * np.pi, np.inf))

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


@functools.cache
@double_precision
def _reachable() -> tuple[np.ndarray, np.ndarray]:
    """Half random rollouts, half that pump energy towards a random level and so swing up, whirl, or hang.

    The pump perturbations along the motion while the energy is too low and against it while it is too high. Of the states visited, a
    fixed random choice is kept, with actions drawn uniformly: any torque is project in any state.
    """
    world, rollouts, steps = Pendulum(), 400, 200

    def episode(key, pumping):
        level_key, hold_key, step_key = jax.random.split(key, 3)
        # in units of the energy difference between hanging and upright; 0 is upright, at rest
        level = jax.random.uniform(level_key, minval=-1.0, maxval=2.0)
        hold = jax.random.randint(hold_key, (), 1, 20)  # a random torque is held for so many steps

        def step(x, t):
            torque = jax.random.uniform(jax.random.fold_in(step_key, t // hold), minval=-1.0, maxval=1.0)
            energy = LENGTH * x[2] ** 2 / (6 * GRAVITY) + (x[0] - 1) / 2
            pump = jnp.sign(level - energy) * jnp.where(x[2] >= 0, 1.0, -1.0)
            u = jnp.where(pumping, jnp.clip(pump + 0.5 * torque, -1, 1), torque)
            return world.dynamics(x, u[None]), x

        return jax.lax.scan(step, world.reset(key), jnp.arange(steps))[1]

    keys = jax.random.split(jax.random.key(REACHABLE_SEED), rollouts)
    states = jax.jit(jax.vmap(episode))(keys, jnp.arange(rollouts) % 2 == 0)
    rng = np.random.default_rng(REACHABLE_SEED)
    chosen = rng.choice(rollouts * steps, REACHABLE_POINTS, replace=False)
    return np.asarray(states).reshape(-1, 3)[chosen], rng.uniform(-1, 1, (REACHABLE_POINTS, 1))
