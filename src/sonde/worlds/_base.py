"""The true system, which a planner never sees, and the tasks that a person may ask for later.

A `World` says what states and actions are. A `JaxWorld` is written in JAX, so that a whole episode compiles. A `HostWorld` is
stepped outside of JAX (a simulator in C, a Gymnasium environment): it opens `Simulators`, S copies that advance in lockstep.
"""

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Key

from sonde._internal.errors import SondeError
from sonde._internal.metric_spec import MetricSpec
from sonde._internal.precision import double_precision
from sonde.data import SystemSpec
from sonde.worlds._task import GoalTask, RewardFunction, Task


class Transitions(NamedTuple):
    """States [N, dx], actions [N, du] and the states [N, dx] that followed."""

    states: np.ndarray
    actions: np.ndarray
    next_states: np.ndarray


@dataclass(frozen=True)
class Plane:
    """The two numbers (a, b) that show a state in a picture; functions are vectorised over numpy arrays."""

    x_label: str
    y_label: str
    from_state: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
    """states [..., dx] -> (a [...], b [...])."""
    x_range: tuple[float, float] | None = None
    """What the picture shows; None: what was visited."""
    y_range: tuple[float, float] | None = None
    to_state: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None
    """(a [...], b [...]) -> states [..., dx]; None where two numbers do not make a state."""
    x_ticks: tuple[tuple[float, str], ...] = ()
    """Positions and words to mark on the x axis, where plain numbers would say less."""


@dataclass(frozen=True)
class Coordinates:
    """As many numbers q as a system has degrees of freedom, where its states x have more (an angle as cosine and sine).

    Functions are for one point, in JAX.
    """

    names: tuple[str, ...]
    to_state: Callable[[Array], Array]
    """q -> x."""
    from_state: Callable[[Array], Array]
    """x -> q; also for an x that no q has, by projection."""
    periods: tuple[float, ...]
    """After which a coordinate is the same again; infinity for those that are no angles."""


class World(abc.ABC):
    """A system. Actions are scaled to [-1, 1]; configuration is hashable."""

    @property
    @abc.abstractmethod
    def state_names(self) -> tuple[str, ...]:
        """A short name for each state dimension."""

    @property
    @abc.abstractmethod
    def action_names(self) -> tuple[str, ...]:
        """A short name for each action dimension."""

    @property
    def tasks(self) -> Mapping[str, RewardFunction | Task | GoalTask]:
        """What a person may ask for, by name: rewards, with success (`Task`) or with goals too (`GoalTask`)."""
        return {}

    def for_task(self, task: str) -> "World":
        """The system to solve a task of this name on: other starts may suit it; states and actions are the same."""
        del task
        return self

    @property
    def spec(self) -> SystemSpec:
        """Names of states and actions, which is all that an `Explorer` needs to know of a world."""
        return SystemSpec(self.state_names, self.action_names)

    @property
    def state_dim(self) -> int:
        """Number of state dimensions."""
        return len(self.state_names)

    @property
    def action_dim(self) -> int:
        """Numbers in an action."""
        return len(self.action_names)

    @property
    def seconds_per_step(self) -> float | None:
        """How long a step takes in the real world; None where that means nothing."""
        return None

    @abc.abstractmethod
    def reachable(self) -> Transitions | None:
        """Fixed transitions that cover what the system can reach; what models are judged on. None: it cannot be known."""

    def narrow_box(self) -> tuple[np.ndarray, np.ndarray] | None:
        """States and actions from the box that earlier public results sampled, where there are such results."""
        return None

    def project(self, x: Float[Array, " dx"]) -> Float[Array, " dx"]:
        """The state, or one near it that the dynamics can lead to, where it is known that they cannot lead to `x`; in JAX."""
        return x

    def coordinates(self) -> Coordinates | None:
        """Coordinates with no constraints between them; None: the states are such."""
        return None

    def episode_metrics(self, states: np.ndarray, next_states: np.ndarray) -> dict[str, float]:
        """What there is to say, beside what was learned, of an episode that explored: states [T, dx], and those that followed.

        Always the same names; `metrics.jsonl` has the mean over the episodes of a round.
        """
        del states, next_states
        return {}

    @property
    def metric_specs(self) -> tuple[MetricSpec, ...]:
        """What the names of `episode_metrics` mean, for figures and documentation."""
        return ()

    def plane(self) -> Plane | None:
        """How to draw states in two dimensions; None where no picture would be fair to them."""
        return None


class JaxWorld(World):
    """A system written in JAX, for one state and one action."""

    @abc.abstractmethod
    def reset(self, key: Key[Array, ""]) -> Float[Array, " dx"]:
        """The state at the start of an episode."""

    @abc.abstractmethod
    def dynamics(self, x: Float[Array, " dx"], u: Float[Array, " du"]) -> Float[Array, " dx"]:
        """The next state, without noise: f*(x, u)."""

    @abc.abstractmethod
    def step(self, x: Float[Array, " dx"], u: Float[Array, " du"], key: Key[Array, ""]) -> Float[Array, " dx"]:
        """The next state, with the system's noise."""

    @abc.abstractmethod
    def reachable_points(self) -> tuple[np.ndarray, np.ndarray]:
        """Fixed states [N, dx] and actions [N, du] that cover what the system can reach."""

    @double_precision
    def reachable(self) -> Transitions:
        """Those points, and what follows there, with the system's noise."""
        states, actions = self.reachable_points()
        keys = jax.random.split(jax.random.key(0), len(states))
        return Transitions(states, actions, np.asarray(jax.jit(jax.vmap(self.step))(states, actions, keys)))

    def picture(self, x: np.ndarray) -> np.ndarray:
        """The state as an image, uint8 [height, width, 3]."""
        raise SondeError(f"{type(self).__name__} has no picture: write its picture(x)")


class Stepped(NamedTuple):
    """What a step brought, for each of S copies."""

    next_states: np.ndarray
    terminated: np.ndarray
    """The system itself ended its episode (it fell, it broke)."""
    truncated: np.ndarray
    """The episode was cut off for another reason, such as a time limit."""

    @property
    def ended(self) -> np.ndarray:
        """Where a new episode must be started [S]."""
        return self.terminated | self.truncated


class Simulators(abc.ABC):
    """S copies of a system that is stepped outside of JAX. Numpy in, numpy out; actions in [-1, 1]."""

    @abc.abstractmethod
    def reset(self, seeds: Sequence[int]) -> np.ndarray:
        """Start an episode in every copy: states [S, dx]. All draws that follows, in restarts too, comes from these seeds."""

    @abc.abstractmethod
    def step(self, actions: np.ndarray) -> Stepped:
        """Advance every copy under actions [S, du]."""

    @abc.abstractmethod
    def restart(self, which: np.ndarray) -> np.ndarray:
        """Start a new episode where `which` [S] is true; the states [S, dx] of all copies then."""

    def show_goal(self, goal: np.ndarray | None) -> None:
        """From now on pictures may show the goal [dg] that the first copy is to reach; None for nothing."""
        return

    def picture(self) -> np.ndarray:
        """The first copy as an image, uint8 [height, width, 3]."""
        raise SondeError(f"{type(self).__name__} has no picture: write its picture()")

    def close(self) -> None:
        """Let go of processes and windows."""
        return


class HostWorld(World):
    """A system that is stepped outside of JAX."""

    @abc.abstractmethod
    def open(self, num_copies: int) -> Simulators:
        """That many copies of the system."""


def has_simulator(world: World) -> bool:
    """Whether Sonde can run the system; otherwise only its owner can."""
    return isinstance(world, JaxWorld | HostWorld)
