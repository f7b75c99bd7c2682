"""Systems whose next state does not follow from what is measured at present: late actions, and entries that nobody measures.

They wrap any other system that Sonde can run, for studies of `--delay` and `--history`. What they hide lives in the simulators,
so they are stepped outside of JAX, whatever is inside.
"""

import abc
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sonde._internal.errors import SondeError, did_you_mean, whole
from sonde._internal.metric_spec import MetricSpec
from sonde._internal.precision import double_precision
from sonde.data import StateLayout
from sonde.worlds._base import HostWorld, JaxWorld, Simulators, Start, Stepped, Transitions, World
from sonde.worlds._pendulum import Pendulum
from sonde.worlds._sampling import visited_by_noise
from sonde.worlds._task import GoalTask, RewardFunction, Task
from sonde.worlds._views import Plane


class JaxSimulators(Simulators):
    """Copies of a world in JAX that are stepped from outside."""

    def __init__(self, world: JaxWorld, num_copies: int):
        """Start no episode yet.

        Args:
            world: The world.
            num_copies: Number of copies S.
        """
        self._world, self._copies = world, num_copies
        self._count, self._keys, self._x = 0, jax.random.split(jax.random.key(0), num_copies), np.zeros(())

    def _next_keys(self) -> Array:
        self._count += 1
        return jax.vmap(lambda key: jax.random.fold_in(key, self._count))(self._keys)

    @double_precision
    def reset(self, seeds: Sequence[int]) -> np.ndarray:
        """Start episodes with these seeds."""
        self._keys, self._count = jax.vmap(jax.random.key)(jnp.asarray(seeds, jnp.uint32)), 0
        self._x = np.array(_reset(self._world, self._next_keys()))
        return self._x.copy()

    def reset_at(self, seeds: Sequence[int], start: Start) -> np.ndarray:
        """Start episodes with these seeds in a state."""
        self.reset(seeds)
        self._x = np.tile(np.asarray(start, np.float64), (self._copies, 1))
        return self._x.copy()

    @double_precision
    def step(self, actions: np.ndarray) -> Stepped:
        """Advance by one step; episodes of a world in JAX do not end."""
        never = np.zeros(self._copies, bool)
        self._x = np.array(_step(self._world, jnp.asarray(self._x), jnp.asarray(actions), self._next_keys()))
        return Stepped(self._x.copy(), never, never)

    @double_precision
    def restart(self, which: np.ndarray) -> np.ndarray:
        """Start new episodes."""
        new = np.asarray(_reset(self._world, self._next_keys()))
        self._x = np.where(which[:, None], new, self._x)
        return self._x.copy()

    def render(self) -> np.ndarray:
        """Draw the first copy."""
        return self._world.render(self._x[0])


@functools.partial(jax.jit, static_argnums=0)
def _reset(world: JaxWorld, keys: Array) -> Array:
    return jax.vmap(world.reset)(keys)


@functools.partial(jax.jit, static_argnums=0)
def _step(world: JaxWorld, states: Array, actions: Array, keys: Array) -> Array:
    return jax.vmap(world.step)(states, actions, keys)


def _opened(world: World, num_copies: int) -> Simulators:
    """Copies of any world that Sonde can run."""
    if isinstance(world, JaxWorld):
        return JaxSimulators(world, num_copies)
    assert isinstance(world, HostWorld)
    return world.open(num_copies)


class _Around(Simulators):
    """Simulators that change what goes into others or comes out of them; by default nothing."""

    def __init__(self, inner: Simulators):
        self.inner = inner

    def reset(self, seeds: Sequence[int]) -> np.ndarray:
        return self.inner.reset(seeds)

    def reset_at(self, seeds: Sequence[int], start: Start) -> np.ndarray:
        return self.inner.reset_at(seeds, start)

    def step(self, actions: np.ndarray) -> Stepped:
        return self.inner.step(actions)

    def restart(self, which: np.ndarray) -> np.ndarray:
        return self.inner.restart(which)

    def show_goal(self, goal: np.ndarray | None) -> None:
        self.inner.show_goal(goal)

    def render(self) -> np.ndarray:
        return self.inner.render()

    def close(self) -> None:
        self.inner.close()


class _LateActions(_Around):
    """Each action acts some steps later; before the first one arrives, the action is zero."""

    def __init__(self, inner: Simulators, shape: tuple[int, int, int]):
        super().__init__(inner)
        self._waiting = np.zeros(shape)  # [steps, S, du], the next one first

    def reset(self, seeds: Sequence[int]) -> np.ndarray:
        self._waiting[:] = 0.0
        return super().reset(seeds)

    def reset_at(self, seeds: Sequence[int], start: Start) -> np.ndarray:
        self._waiting[:] = 0.0
        return super().reset_at(seeds, start)

    def step(self, actions: np.ndarray) -> Stepped:
        arrived, self._waiting = self._waiting[0].copy(), np.concatenate([self._waiting[1:], actions[None]])
        return super().step(arrived)

    def restart(self, which: np.ndarray) -> np.ndarray:
        self._waiting[:, which] = 0.0
        return super().restart(which)


class _SomeEntries(_Around):
    """Only some entries of the states can be seen."""

    def __init__(self, inner: Simulators, seen: list[int]):
        super().__init__(inner)
        self._seen = seen

    def reset(self, seeds: Sequence[int]) -> np.ndarray:
        return super().reset(seeds)[:, self._seen]

    def step(self, actions: np.ndarray) -> Stepped:
        after = super().step(actions)
        return after._replace(next_states=after.next_states[:, self._seen])

    def restart(self, which: np.ndarray) -> np.ndarray:
        return super().restart(which)[:, self._seen]


@dataclass(frozen=True)
class _Wrapper(HostWorld, abc.ABC):
    """What both worlds share."""

    world: World = field(default_factory=Pendulum)
    """The system inside, which Sonde can run."""

    def __post_init__(self):
        """Reject a system that Sonde cannot run."""
        if not isinstance(self.world, JaxWorld | HostWorld):
            name = type(self.world).__name__
            raise SondeError(f"{type(self).__name__}: Sonde cannot run {name}, so it cannot be inside; choose another")

    @property
    def state_names(self) -> tuple[str, ...]:
        """Those of the system inside."""
        return self.world.state_names

    @property
    def action_names(self) -> tuple[str, ...]:
        """Those of the system inside."""
        return self.world.action_names

    @property
    def seconds_per_step(self) -> float | None:
        """That of the system inside."""
        return self.world.seconds_per_step

    def reachable(self) -> Transitions:
        """Sample what coloured random actions reach."""
        return visited_by_noise(self, steps=100)


@dataclass(frozen=True)
class Delayed(_Wrapper):
    """A system whose actions act some steps late; its state does not show the actions that are on their way."""

    steps: int = 2
    """Steps from the choice of an action to its effect."""

    def __post_init__(self):
        """Reject a delay that is none."""
        super().__post_init__()
        whole("delayed", steps=self.steps)

    def check_start(self, start: Start) -> None:
        """As the system inside; no action is on its way at the start."""
        self.world.check_start(start)

    @property
    def tasks(self) -> Mapping[str, RewardFunction | Task | GoalTask]:
        """Those of the system inside. Rewards see the action that was chosen, not the one that acts."""
        return self.world.tasks

    def for_task(self, task: str) -> "Delayed":
        """The same around the variant of the system on which the task is solved."""
        return Delayed(self.world.for_task(task), self.steps)

    @property
    def metric_specs(self) -> tuple[MetricSpec, ...]:
        """Those of the system inside."""
        return self.world.metric_specs

    def episode_metrics(self, states: np.ndarray, next_states: np.ndarray) -> dict[str, float]:
        """Those of the system inside."""
        return self.world.episode_metrics(states, next_states)

    @property
    def layout(self) -> StateLayout | None:
        """That of the system inside."""
        return self.world.layout

    def project(self, x: Array) -> Array:
        """As the system inside."""
        return self.world.project(x)

    def plane(self) -> Plane | None:
        """That of the system inside."""
        return self.world.plane()

    def open(self, num_copies: int) -> Simulators:
        """Open copies with actions that wait."""
        return _LateActions(_opened(self.world, num_copies), (self.steps, num_copies, self.action_dim))


@dataclass(frozen=True)
class Observed(_Wrapper):
    """A system of which only some entries of the state are measured."""

    names: tuple[str, ...] = ("cos th", "sin th")
    """Names of the entries that are measured, in this order."""

    def __post_init__(self):
        """Reject names that the system does not have."""
        super().__post_init__()
        known = self.world.state_names
        if not self.names or len(set(self.names)) != len(self.names) or not set(self.names) <= set(known):
            wrong = next((name for name in self.names if name not in known), "")
            raise SondeError(
                f"observed: names must be different entries of the state ({', '.join(known)}), got {', '.join(self.names)};"
                f"{did_you_mean(wrong, known) or ' choose among them'}"
            )

    @property
    def state_names(self) -> tuple[str, ...]:
        """What is measured."""
        return self.names

    @property
    def tasks(self) -> Mapping[str, RewardFunction | Task | GoalTask]:
        """The tasks of the system whose rewards follow from what is measured (`World.tasks_from`)."""
        return self.world.tasks if self.names == self.world.state_names else self.world.tasks_from(self.names)

    def for_task(self, task: str) -> "Observed":
        """The same around the variant of the system on which the task is solved."""
        return Observed(self.world.for_task(task), self.names)

    def plane(self) -> Plane | None:
        """The first two entries that are measured."""
        return None if len(self.names) < 2 else Plane(self.names[0], self.names[1], _first_two)

    def open(self, num_copies: int) -> Simulators:
        """Open copies that show some entries."""
        return _SomeEntries(_opened(self.world, num_copies), [self.world.state_names.index(name) for name in self.names])


def _first_two(states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return states[..., 0], states[..., 1]
