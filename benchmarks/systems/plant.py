"""Plants: systems with known equations and physical parameters, and measurements of them.

A `Plant` is a `JaxWorld` given by a differential equation. `collect` makes the data that models learn from, `rollouts` the
windows that they are tested on.
"""

import abc
import functools
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from sonde._internal.errors import SondeError, one_of, whole
from sonde._internal.precision import double_precision
from sonde._internal.randomness import for_purpose
from sonde.data import Trajectory
from sonde.worlds import JaxWorld

EXCITATIONS = ("random", "prbs")
"""Kinds of inputs: uniform and independent at every step, or -1 and 1 with random hold times."""
HOLDS = (1, 2, 5, 10)
"""Hold times in steps of pseudo-random binary inputs; each is equally likely."""
NOISE = 0.01
"""`process_noise` of the noisy plants."""
POINTS = 2000
"""Number of points of `reachable_points`."""


@dataclass(frozen=True)
class Plant(JaxWorld):
    """A system x' = derivative(x, u) in continuous time, sampled with inputs held constant.

    The fields of subclasses are physical parameters.
    """

    process_noise: float = 0.0
    """Std of the Gaussian noise added to each state dimension at every step, relative to `spreads`."""

    names: ClassVar[tuple[str, ...]]
    """Names of the state dimensions."""
    inputs: ClassVar[tuple[str, ...]]
    """Names of the action dimensions."""
    sample_time: ClassVar[float]
    """Seconds between measurements."""
    substeps: ClassVar[int] = 5
    """Runge-Kutta steps per sample."""
    episode: ClassVar[int] = 100
    """Steps after which an experiment is started again."""
    spreads: ClassVar[tuple[float, ...]]
    """Typical std of each state dimension over the windows of `rollouts`."""

    def __post_init__(self):
        """Reject negative noise."""
        if not 0 <= self.process_noise < float("inf"):
            raise SondeError(f"plant: process_noise must be 0 or above and finite, got {self.process_noise}")

    @property
    def state_names(self) -> tuple[str, ...]:
        """Names of the state dimensions."""
        return self.names

    @property
    def action_names(self) -> tuple[str, ...]:
        """Names of the action dimensions."""
        return self.inputs

    @property
    def seconds_per_step(self) -> float:
        """The sample time."""
        return self.sample_time

    @property
    def parameters(self) -> dict[str, float]:
        """The physical parameters by name."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "process_noise"}

    def with_parameters(self, values: Sequence[Any] | Array) -> Self:
        """The same plant with other physical parameters.

        Args:
            values: Values in the order of `parameters`; they may be traced by JAX.
        """
        return replace(self, **dict(zip(self.parameters, values, strict=True)))

    @abc.abstractmethod
    def derivative(self, x: Float[Array, " dx"], u: Float[Array, " du"]) -> Float[Array, " dx"]:
        """Time derivative of the state.

        Args:
            x: State.
            u: Action in [-1, 1].
        """

    def dynamics(self, x: Float[Array, " dx"], u: Float[Array, " du"]) -> Float[Array, " dx"]:
        """Classical Runge-Kutta steps over one sample."""
        u, h = jnp.clip(u, -1.0, 1.0), self.sample_time / self.substeps

        def step(_, x):
            a = self.derivative(x, u)
            b = self.derivative(x + h / 2 * a, u)
            c = self.derivative(x + h / 2 * b, u)
            d = self.derivative(x + h * c, u)
            return x + h / 6 * (a + 2 * b + 2 * c + d)

        return jax.lax.fori_loop(0, self.substeps, step, x)

    def step(self, x: Float[Array, " dx"], u: Float[Array, " du"], key: Key[Array, ""]) -> Float[Array, " dx"]:
        """Draw x' = f*(x, u) + w."""
        return self.dynamics(x, u) + self.process_noise * jnp.asarray(self.spreads) * jax.random.normal(key, x.shape)

    def reachable_points(self) -> tuple[np.ndarray, np.ndarray]:
        """Return points of experiments with random and binary inputs."""
        return _reachable(replace(self, process_noise=0.0))


@functools.cache
def _reachable(plant: Plant) -> tuple[np.ndarray, np.ndarray]:
    parts = [collect(plant, kind, POINTS // len(EXCITATIONS), seed=0) for kind in EXCITATIONS]
    return np.concatenate([part.states for part in parts]), np.concatenate([part.actions for part in parts])


@eqx.filter_jit
def _simulate(plant: Plant, actions: Float[Array, "episodes T du"], key: Key[Array, ""]):
    def one(key, actions):
        world = for_purpose(key, "world")

        def step(x, given):
            u, t = given
            x_next = plant.step(x, u, jax.random.fold_in(world, t))
            return x_next, (x, x_next)

        start = plant.reset(for_purpose(key, "reset"))
        return jax.lax.scan(step, start, (actions, jnp.arange(actions.shape[0])))[1]

    return jax.vmap(one)(jax.random.split(key, actions.shape[0]), actions)


@double_precision
def simulate(plant: Plant, actions: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Run experiments from drawn starts.

    Args:
        plant: The system.
        actions: Inputs [episodes, T, du].
        seed: Randomness of starts and noise.

    Returns:
        States before and after each step [episodes, T, dx].
    """
    states, next_states = _simulate(plant, jnp.asarray(actions), jax.random.key(seed))
    return np.asarray(states), np.asarray(next_states)


def excite(kind: str, shape: tuple[int, int, int], rng: np.random.Generator) -> np.ndarray:
    """Draw inputs.

    Args:
        kind: One of `EXCITATIONS`.
        shape: Numbers of episodes, steps and inputs.
        rng: Randomness.

    Returns:
        Actions in [-1, 1] of that shape.
    """
    one_of("excitation", kind, EXCITATIONS)
    if kind == "random":
        return rng.uniform(-1, 1, shape)
    episodes, steps, inputs = shape
    levels = rng.choice([-1.0, 1.0], (episodes, inputs, steps))
    holds = rng.choice(HOLDS, (episodes, inputs, steps))
    held = [
        [np.repeat(*signal)[:steps] for signal in zip(*episode, strict=True)] for episode in zip(levels, holds, strict=True)
    ]
    return np.swapaxes(np.array(held), 1, 2)


def collect(plant: Plant, kind: str, steps: int, seed: int) -> Trajectory:
    """Measure a plant in as many experiments as needed.

    Args:
        plant: The system.
        kind: One of `EXCITATIONS`.
        steps: Number of measurements.
        seed: Randomness; other seeds give independent measurements.

    Returns:
        Measurements [steps, ...], truncated where an experiment ends.
    """
    whole("measurements", steps=steps)
    episodes = -(-steps // plant.episode)
    actions = excite(kind, (episodes, plant.episode, plant.action_dim), np.random.default_rng([seed, 0]))
    states, next_states = simulate(plant, actions, seed)
    truncated = np.zeros((episodes, plant.episode), bool)
    truncated[:, -1] = True
    flat = [array.reshape(-1, *array.shape[2:])[:steps] for array in (states, actions, next_states, truncated)]
    flat[3][-1] = True
    return Trajectory(*flat[:3], truncated=flat[3])


def rollouts(plant: Plant, count: int, steps: int, seed: int) -> Trajectory:
    """Measure windows of experiments that models are tested on: half with random and half with binary inputs.

    A window starts anywhere in an experiment. The measurements are independent of those that `collect` makes.

    Args:
        plant: The system.
        count: Number of windows.
        steps: Steps per window, at most `plant.episode`.
        seed: Randomness; starts and inputs are the same for noisy and noise-free plants.

    Returns:
        Measurements [count, steps, ...].
    """
    whole("rollouts", count=count, steps=steps)
    if steps > plant.episode:
        raise SondeError(f"rollouts: windows of {type(plant).__name__} have at most {plant.episode} steps, got {steps}")
    rng = np.random.default_rng([seed, 1])
    halves = (count - count // 2, count // 2)
    shape = lambda episodes: (episodes, plant.episode, plant.action_dim)
    actions = np.concatenate([excite(kind, shape(half), rng) for kind, half in zip(EXCITATIONS, halves, strict=True)])
    first = rng.integers(0, plant.episode - steps + 1, count)
    states, next_states = simulate(plant, actions, seed + 1_000_000)
    rows = np.arange(count)[:, None], first[:, None] + np.arange(steps)
    return Trajectory(states[rows], actions[rows], next_states[rows])
