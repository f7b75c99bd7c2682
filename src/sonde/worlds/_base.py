"""Interfaces of true systems.

A `World` defines states, actions and tasks. A `JaxWorld` is written in JAX, so a whole rollout compiles. A `HostWorld` is
stepped outside of JAX (a simulator in C, a Gymnasium environment): it opens `Simulators`, several copies of the system that
are stepped together. Planners see neither; they only see what a model has learned.
"""

import abc
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Key

from sonde._internal.errors import SondeError
from sonde._internal.metric_spec import MetricSpec
from sonde._internal.precision import double_precision
from sonde.data import StateLayout, SystemSpec
from sonde.worlds._task import ConstraintFunction, Feedback, GoalTask, RewardFunction, Task
from sonde.worlds._views import Coordinates, Plane

Start = tuple[float, ...] | str
"""Where a rollout starts: a state, or options of the reset as a JSON object."""


class Transitions(NamedTuple):
    """N separate transitions of a system."""

    states: np.ndarray
    """States before the step [N, dx]."""
    actions: np.ndarray
    """Actions [N, du]."""
    next_states: np.ndarray
    """States after the step [N, dx]."""


class World(abc.ABC):
    """A true system. Actions are scaled to [-1, 1]; configurations are hashable."""

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
        """Tasks by name: a reward function, a `Task` with a success criterion, or a `GoalTask`."""
        return {}

    @property
    def constraints(self) -> Mapping[str, ConstraintFunction]:
        """Constraints by name: constraint(x, u, x_next) -> margin in JAX, negative where it is violated.

        A world must return the same function objects each time, since JAX caches compiled programs by their identity.
        """
        return {}

    @property
    def brake(self) -> Feedback | None:
        """A cautious feedback u = f(x) in JAX that brings the system to rest; None if there is none."""
        return None

    def tasks_from(self, names: tuple[str, ...]) -> Mapping[str, RewardFunction | Task | GoalTask]:
        """Tasks whose rewards follow from some entries of the state, for systems of which no more is measured.

        Args:
            names: Names of the entries, in the order in which rewards get them.

        Returns:
            Tasks by name; by default none.
        """
        del names
        return {}

    def for_task(self, task: str) -> "World":
        """Return the variant of the system on which a task is solved, for example with other initial states.

        Args:
            task: Name of a task.

        Returns:
            A world with the same states and actions; by default this one.
        """
        del task
        return self

    @property
    def layout(self) -> StateLayout | None:
        """How the state is made of an agent and equal objects, for models that use it; None where it is not."""
        return None

    @property
    def spec(self) -> SystemSpec:
        """Names of states and actions, and the layout: all that an `Explorer` needs to know about a world."""
        return SystemSpec(self.state_names, self.action_names, layout=self.layout)

    @property
    def state_dim(self) -> int:
        """Number of state dimensions dx."""
        return len(self.state_names)

    @property
    def action_dim(self) -> int:
        """Number of action dimensions du."""
        return len(self.action_names)

    @property
    def seconds_per_step(self) -> float | None:
        """Duration of a step in the real world; None where steps have no duration."""
        return None

    @abc.abstractmethod
    def reachable(self) -> Transitions | None:
        """Return fixed transitions that cover what the system can reach, or as much of it as simple play visits.

        Models are evaluated on them.

        Returns:
            Transitions, the same at every call; None if they cannot be known.
        """

    def task_transitions(self) -> Transitions | None:
        """Return fixed transitions that good policies for the tasks visit.

        Returns:
            Transitions, the same at every call; None if there are none.
        """
        return None

    def narrow_box(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the points of a smaller box that earlier published results evaluated on.

        Returns:
            States [N, dx] and actions [N, du]; None where there are no such results.
        """
        return None

    def project(self, x: Float[Array, " dx"]) -> Float[Array, " dx"]:
        """Project a state onto the set of states that the dynamics can lead to, as far as that set is known.

        Args:
            x: A state, possibly outside that set.

        Returns:
            A nearby state inside it; by default `x`.
        """
        return x

    def coordinates(self) -> Coordinates | None:
        """Return minimal coordinates of the system; None if the states are minimal already."""
        return None

    @double_precision
    def check_start(self, start: Start) -> None:
        """Reject what no rollout can start from; by default the numbers of a state are expected.

        Args:
            start: A state [dx], or options of a reset as a JSON object.
        """
        expected = f"expected {self.state_dim} finite numbers ({', '.join(self.state_names)})"
        if isinstance(start, str):
            raise SondeError(f"start: {type(self).__name__} has no options of a reset, got {start[:200]}; {expected}")
        x = np.asarray(start, np.float64)
        if x.shape != (self.state_dim,) or not np.isfinite(x).all():
            raise SondeError(f"start: {expected}, got {' '.join(f'{value:g}' for value in x) or 'none'}")
        nearest = np.asarray(self.project(jax.numpy.asarray(x)))
        if not np.allclose(nearest, x, atol=1e-3):
            raise SondeError(
                f"start: {' '.join(f'{value:g}' for value in x)} is no state that {type(self).__name__} can be in; the nearest "
                f"is {' '.join(f'{value:.4g}' for value in nearest)} ({', '.join(self.state_names)})"
            )

    def episode_metrics(self, states: np.ndarray, next_states: np.ndarray) -> dict[str, float]:
        """Compute metrics of one exploration episode that do not depend on a model.

        `metrics.jsonl` has their mean over the episodes of a round.

        Args:
            states: States before each step [T, dx].
            next_states: States after each step [T, dx].

        Returns:
            Values by key; the keys are always the same.
        """
        del states, next_states
        return {}

    @property
    def metric_specs(self) -> tuple[MetricSpec, ...]:
        """Descriptions of the keys of `episode_metrics`, for figures and documentation."""
        return ()

    def plane(self) -> Plane | None:
        """Return a two-dimensional view of states; None if no view would be meaningful."""
        return None


class JaxWorld(World):
    """A system written in JAX, for one state and one action."""

    @abc.abstractmethod
    def reset(self, key: Key[Array, ""]) -> Float[Array, " dx"]:
        """Draw the initial state of an episode.

        Args:
            key: Random key.
        """

    @abc.abstractmethod
    def dynamics(self, x: Float[Array, " dx"], u: Float[Array, " du"]) -> Float[Array, " dx"]:
        """Compute the next state without noise, f*(x, u).

        Args:
            x: State.
            u: Action in [-1, 1].
        """

    @abc.abstractmethod
    def step(self, x: Float[Array, " dx"], u: Float[Array, " du"], key: Key[Array, ""]) -> Float[Array, " dx"]:
        """Draw the next state, with the system's noise.

        Args:
            x: State.
            u: Action in [-1, 1].
            key: Random key.
        """

    @abc.abstractmethod
    def reachable_points(self) -> tuple[np.ndarray, np.ndarray]:
        """Return fixed states [N, dx] and actions [N, du] that cover what the system can reach."""

    @double_precision
    def reachable(self) -> Transitions:
        """Return `reachable_points` and the next states there, with the system's noise."""
        states, actions = self.reachable_points()
        keys = jax.random.split(jax.random.key(0), len(states))
        return Transitions(states, actions, np.asarray(jax.jit(jax.vmap(self.step))(states, actions, keys)))

    def render(self, x: np.ndarray) -> np.ndarray:
        """Draw a state.

        Args:
            x: State [dx].

        Returns:
            An image, uint8 [height, width, 3].
        """
        raise SondeError(f"{type(self).__name__} cannot be drawn: define its render(x)")


class Stepped(NamedTuple):
    """The result of one step of S copies."""

    next_states: np.ndarray
    """States after the step [S, dx]."""
    terminated: np.ndarray
    """Where the system itself ended its episode [S], for example because it fell."""
    truncated: np.ndarray
    """Where the episode was cut off for another reason [S], such as a time limit."""

    @property
    def ended(self) -> np.ndarray:
        """Where a new episode must be started [S]."""
        return self.terminated | self.truncated


class Simulators(abc.ABC):
    """S copies of a system that is stepped outside of JAX, like Gymnasium's VectorEnv: numpy arrays, actions in [-1, 1]."""

    @abc.abstractmethod
    def reset(self, seeds: Sequence[int]) -> np.ndarray:
        """Seed every copy and start an episode in it.

        Args:
            seeds: One seed per copy; all later randomness, restarts included, derives from it.

        Returns:
            States [S, dx].
        """

    @abc.abstractmethod
    def step(self, actions: np.ndarray) -> Stepped:
        """Advance every copy by one step.

        Args:
            actions: Actions in [-1, 1] [S, du]; a copy that may be changed.
        """

    @abc.abstractmethod
    def restart(self, which: np.ndarray) -> np.ndarray:
        """Start a new episode in some copies.

        Args:
            which: Where to start a new episode, bool [S].

        Returns:
            States of all copies [S, dx].
        """

    def reset_at(self, seeds: Sequence[int], start: Start) -> np.ndarray:
        """Seed every copy and start an episode where the caller says; `HostWorld.check_start` has accepted it.

        Args:
            seeds: One seed per copy.
            start: A state [dx], or options of the reset as a JSON object.

        Returns:
            States [S, dx].
        """
        del seeds, start
        raise SondeError(f"{type(self).__name__} cannot start in a chosen state: define its reset_at(seeds, start)")

    def show_goal(self, goal: np.ndarray | None) -> None:
        """Set the goal that `render` may show; simulators that cannot show goals ignore it.

        Args:
            goal: Goal of the first copy [dg]; None to show none.
        """
        return

    def render(self) -> np.ndarray:
        """Draw the first copy.

        Returns:
            An image, uint8 [height, width, 3].
        """
        raise SondeError(f"{type(self).__name__} cannot be drawn: define its render()")

    def close(self) -> None:
        """Release processes, threads and windows."""
        return


class HostWorld(World):
    """A system that is stepped outside of JAX."""

    def check_start(self, start: Start) -> None:
        """Reject all starts, unless a world overrides this and the `reset_at` of its simulators."""
        raise SondeError(
            f"start: {type(self).__name__} draws its own starts and cannot be put into a state, got {start}; leave it out "
            "(worlds written in JAX take a state, Gymnasium environments the options of their reset)"
        )

    @abc.abstractmethod
    def open(self, num_copies: int) -> Simulators:
        """Open copies of the system.

        Args:
            num_copies: Number of copies S.
        """


def has_simulator(world: World) -> bool:
    """Whether Sonde can step the system itself; otherwise only the user can.

    Args:
        world: The system.
    """
    return isinstance(world, JaxWorld | HostWorld)


def known_zero(value: Any) -> bool:
    """Whether a parameter is zero for certain, so that its operations can be left out.

    Args:
        value: The parameter; where it is estimated it is traced, and may have any value.
    """
    return isinstance(value, int | float) and value == 0
