"""The car of Gymnasium's MountainCarContinuous-v0, too weak to drive straight up its mountain, in pure JAX.

State x = (position, velocity). Action u in [-1, 1] is the force over its limit. An episode does not end at the goal.
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
from sonde.worlds._base import JaxWorld, Plane
from sonde.worlds._task import RewardFunction

POWER, GRAVITY = 0.0015, 0.0025
LEFT_WALL, RIGHT_WALL, MAX_SPEED = -1.2, 0.6, 0.07
GOAL_POSITION, GOAL_VELOCITY = 0.45, 0.0
START = (-0.6, -0.4)
REACHABLE_SEED, REACHABLE_POINTS = 20231, 2000


def in_goal(x: Float[Array, " dx"]) -> Array:
    """Whether the car is at the goal, and not on its way back."""
    return (x[0] >= GOAL_POSITION) & (x[1] >= GOAL_VELOCITY)


def reach_goal(x: Float[Array, " dx"], u: Float[Array, " du"], x_next: Float[Array, " dx"]) -> Float[Array, ""]:
    """Go to the goal, with little force: 100 for every step that ends there."""
    del x
    return jnp.where(in_goal(x_next), 100.0, 0.0) - 0.1 * jnp.sum(u**2)


@dataclass(frozen=True)
class MountainCar(JaxWorld):
    """Starts at rest, somewhere in the valley."""

    process_noise: float = 0.0
    """Std of the Gaussian noise that is added to each state dimension at every step."""

    @property
    def state_names(self) -> tuple[str, ...]:
        """Position along the track, and its change per step."""
        return ("position", "velocity")

    @property
    def action_names(self) -> tuple[str, ...]:
        """Force over its limit."""
        return ("force",)

    @property
    def tasks(self) -> Mapping[str, RewardFunction]:
        """Go to the goal."""
        return {"reach-goal": reach_goal}

    def __post_init__(self):
        """Refuse noise that means nothing."""
        if not 0 <= self.process_noise < float("inf"):
            raise SondeError(f"mountain-car: process_noise must be 0 or above, got {self.process_noise}")

    def reset(self, key: Key[Array, ""]) -> Float[Array, " dx"]:
        """At rest, in the valley."""
        position = jax.random.uniform(key, minval=START[0], maxval=START[1])
        return jnp.stack([position, jnp.zeros_like(position)])

    def dynamics(self, x: Float[Array, " dx"], u: Float[Array, " du"]) -> Float[Array, " dx"]:
        """Semi-implicit Euler, speed limited; the left wall stops the car, the right one only holds its position."""
        acceleration = POWER * jnp.clip(u[0], -1.0, 1.0) - GRAVITY * jnp.cos(3 * x[0])
        velocity = jnp.clip(x[1] + acceleration, -MAX_SPEED, MAX_SPEED)
        position = jnp.clip(x[0] + velocity, LEFT_WALL, RIGHT_WALL)
        stopped = (position <= LEFT_WALL) & (velocity < 0)
        return jnp.stack([position, jnp.where(stopped, 0.0, velocity)])

    def step(self, x: Float[Array, " dx"], u: Float[Array, " du"], key: Key[Array, ""]) -> Float[Array, " dx"]:
        """x' = f*(x, u) + w."""
        return self.dynamics(x, u) + self.process_noise * jax.random.normal(key, x.shape)

    def project(self, x: Float[Array, " dx"]) -> Float[Array, " dx"]:
        """Between the walls, no faster than the limit."""
        return jnp.clip(x, jnp.asarray([LEFT_WALL, -MAX_SPEED]), jnp.asarray([RIGHT_WALL, MAX_SPEED]))

    def reachable_points(self) -> tuple[np.ndarray, np.ndarray]:
        """Points of many random and climbing rollouts of the true system; see `_reachable`."""
        return _reachable()

    def plane(self) -> Plane:
        """Position and velocity."""
        return Plane(
            x_label="position",
            y_label="velocity [per step]",
            x_range=(LEFT_WALL, RIGHT_WALL),
            y_range=(-MAX_SPEED, MAX_SPEED),
            to_state=lambda position, velocity: np.stack([position, velocity], axis=-1),
            from_state=lambda states: (states[..., 0], states[..., 1]),
            x_ticks=((LEFT_WALL, "−1.2\nwall"), (-0.8, "−0.8"), (-np.pi / 6, "−π/6\nvalley"), (0.0, "0"), (0.45, "0.45\ngoal")),
        )

    def picture(self, x: np.ndarray) -> np.ndarray:
        """The car in its valley, and the flag at the goal."""
        from sonde.worlds._pictures import mountain_car

        return mountain_car(float(x[0]))


@functools.cache
@double_precision
def _reachable() -> tuple[np.ndarray, np.ndarray]:
    """Half random rollouts, half that pump energy towards a random level and so roll, climb, or race between the walls.

    The pump perturbations along the motion while the energy is too low and against it while it is too high; at the
    right wall, which takes no energy away, it turns back. Of the states visited, a fixed random choice is kept, with actions
    drawn uniformly: any force is project in any state.
    """
    world, rollouts, steps = MountainCar(), 400, 300

    def episode(key, pumping):
        reset_key, level_key, hold_key, step_key = jax.random.split(key, 4)
        # -1 is at rest in the valley, 1 at rest on the summit; at full speed one passes the summit with almost 4
        level = jax.random.uniform(level_key, minval=-1.0, maxval=4.0)
        hold = jax.random.randint(hold_key, (), 1, 20)  # a random force is held for so many steps

        def step(x, t):
            force = jax.random.uniform(jax.random.fold_in(step_key, t // hold), minval=-1.0, maxval=1.0)
            energy = 1.5 * x[1] ** 2 / GRAVITY + jnp.sin(3 * x[0])
            along = jnp.sign(level - energy) * jnp.where(x[1] >= 0, 1.0, -1.0)
            pump = jnp.where(x[0] >= RIGHT_WALL, -1.0, along)
            u = jnp.where(pumping, jnp.clip(pump + 0.5 * force, -1, 1), force)
            return world.dynamics(x, u[None]), x

        return jax.lax.scan(step, world.reset(reset_key), jnp.arange(steps))[1]

    keys = jax.random.split(jax.random.key(REACHABLE_SEED), rollouts)
    states = jax.jit(jax.vmap(episode))(keys, jnp.arange(rollouts) % 2 == 0)
    rng = np.random.default_rng(REACHABLE_SEED)
    chosen = rng.choice(rollouts * steps, REACHABLE_POINTS, replace=False)
    return np.asarray(states).reshape(-1, 2)[chosen], rng.uniform(-1, 1, (REACHABLE_POINTS, 1))
