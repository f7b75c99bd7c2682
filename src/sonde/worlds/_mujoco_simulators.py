"""Worlds on C MuJoCo: S copies of one model that are stepped together.

A `MujocoWorld` defines what is specific: the model, how an episode starts, what an action does, what is observed.
`MujocoSimulators` does the rest: threads, restarts, saved states, images, and errors when a simulation diverges. Threads start
episodes and take the physics steps, during which MuJoCo releases Python's lock; everything else is done for all copies at once.
MuJoCo is imported when a world is opened, not before.
"""

import abc
import itertools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, NamedTuple

import numpy as np

from sonde._internal.errors import SondeError
from sonde.worlds._base import Simulators, Stepped
from sonde.worlds._mujoco import load_mujoco
from sonde.worlds._mujoco_renderer import Marker, Renderer
from sonde.worlds._scales import ScaledPhysics

MIN_STEPS_PER_THREAD = 50
"""Physics steps per action, summed over the copies of a thread, from which a thread pays off: about 0.4 ms of work."""
MIN_STEPS_PER_COPY = 4
"""Physics steps per action and copy, below which Python's own work dominates and threads wait for each other."""


class EpisodeStart(NamedTuple):
    """What an episode of one copy has besides MuJoCo's data."""

    target: np.ndarray
    """Position of the target [3], which has no physics, so that all copies share a model; empty [0] without a target."""
    memory: np.ndarray
    """What observations need to know of the episode so far [m], at its start; empty [0] if they depend on nothing earlier."""


class Observation(NamedTuple):
    """States of S copies, and their memories for the next observation."""

    states: np.ndarray
    """States [S, dx]."""
    memory: np.ndarray
    """Memories [S, m]."""


class MujocoWorld(ScaledPhysics):
    """A world simulated by MuJoCo."""

    domain: ClassVar[str]
    """Name in error messages."""
    camera: ClassVar[str]
    """The model's camera from which images are rendered."""
    step_cost: ClassVar[int] = 1
    """Cost of a physics step, relative to the control suite's small models."""

    @property
    @abc.abstractmethod
    def steps_per_action(self) -> int:
        """Physics steps per action."""

    @abc.abstractmethod
    def load_model(self) -> Any:
        """Return MuJoCo's model, which all copies share."""

    @abc.abstractmethod
    def start(self, model: Any, data: Any, rng: np.random.Generator) -> EpisodeStart:
        """Set one copy to the start of an episode.

        Args:
            model: MuJoCo's model.
            data: MuJoCo's data of the copy, reset to the model's defaults; modified in place.
            rng: The copy's random generator.
        """

    @abc.abstractmethod
    def control(self, copies: Sequence[Any], actions: np.ndarray) -> None:
        """Set the controls of all copies.

        Args:
            copies: MuJoCo's data of S copies, modified in place.
            actions: Actions [S, du].
        """

    @abc.abstractmethod
    def advance(self, model: Any, data: Any) -> None:
        """Take all physics steps of an action in one copy, so that what is observed is up to date afterwards.

        It is called in a thread and should do little besides calling MuJoCo: other threads wait while Python works.

        Args:
            model: MuJoCo's model.
            data: MuJoCo's data of the copy, modified in place.
        """

    @abc.abstractmethod
    def observe(self, model: Any, copies: Sequence[Any], targets: np.ndarray, memory: np.ndarray) -> Observation:
        """Observe the states of copies.

        Args:
            model: MuJoCo's model.
            copies: MuJoCo's data of S copies.
            targets: Their targets [S, 3] or [S, 0], as `start` returned them.
            memory: Their memories [S, m], as `start` or the last observation returned them.
        """

    def show_target(self, model: Any, target: np.ndarray) -> None:
        """Place the target in the model before an image is rendered.

        Args:
            model: MuJoCo's model, modified in place.
            target: Target of the rendered copy [3] or [0].
        """
        return

    def open(self, num_copies: int) -> "MujocoSimulators":
        """Open copies on threads."""
        return MujocoSimulators(self, num_copies)


def num_threads(num_copies: int, steps_per_action: int) -> int:
    """Choose the number of threads; 1 where more would not pay off.

    Measured: handing work to a second thread costs 0.05 to 0.2 ms per action, a physics step of a small model takes 5 to 10 us,
    and the few us that Python needs per copy cannot be shared between threads.

    Args:
        num_copies: Number of copies S.
        steps_per_action: Physics steps of a small model per action and copy.
    """
    if steps_per_action < MIN_STEPS_PER_COPY:
        return 1
    most = max(1, min(num_copies, os.cpu_count() or 1, num_copies * steps_per_action // MIN_STEPS_PER_THREAD))
    # a step lasts as long as the thread with most copies: use no more threads than lower that number
    copies_per_thread = -(-num_copies // most)
    return -(-num_copies // copies_per_thread)


class MujocoSimulators(Simulators):
    """S copies of a MuJoCo world: one model, and for each copy its data, target and memory."""

    def __init__(self, world: MujocoWorld, num_copies: int, threads: int | None = None):
        """Load the model and create the copies.

        Args:
            world: The world.
            num_copies: Number of copies S.
            threads: Number of threads, which does not change results; by default chosen by `num_threads`.
        """
        self.world = world
        self.model = world.load_model()
        self.data = [load_mujoco().MjData(self.model) for _ in range(num_copies)]
        self.targets = np.empty((num_copies, 0))
        """Target of each copy's episode [S, 3] or [S, 0]."""
        self.memory = np.empty((num_copies, 0))
        """What the next observation of each copy needs to know of its episode so far [S, m]."""
        self.markers: tuple[Marker, ...] = ()
        """Shapes that images show in addition to the model."""
        self._rngs: list[np.random.Generator] = []
        self._threads = num_threads(num_copies, world.steps_per_action * world.step_cost) if threads is None else threads
        self._pool = ThreadPoolExecutor(self._threads, "sonde-mujoco") if self._threads > 1 else None
        self._renderer: Renderer | None = None

    @property
    def num_copies(self) -> int:
        """Number of copies S."""
        return len(self.data)

    def reset(self, seeds: Sequence[int]) -> np.ndarray:
        """Seed every copy and start an episode in it."""
        if len(seeds) != self.num_copies:
            raise SondeError(f"{self.world.domain}: expected one seed for each of {self.num_copies} copies, got {len(seeds)}")
        self._rngs = [np.random.default_rng(seed) for seed in seeds]
        started = self._for_each(self._start, range(self.num_copies))
        self.targets, self.memory = (np.stack(column) for column in zip(*started, strict=True))
        return self._observe(slice(None))

    def restart(self, which: np.ndarray) -> np.ndarray:
        """Start a new episode in some copies."""
        chosen = [i for i in range(self.num_copies) if which[i]]
        for i, started in zip(chosen, self._for_each(self._start, chosen), strict=True):
            self.targets[i], self.memory[i] = started
        return self._observe(slice(None))

    def step(self, actions: np.ndarray) -> Stepped:
        """Advance every copy; episodes never end by themselves."""
        actions, expected = np.asarray(actions, np.float64), (self.num_copies, self.world.action_dim)
        if actions.shape != expected or not np.isfinite(actions).all():
            raise SondeError(f"{self.world.domain}: actions must be finite numbers of shape {expected}, got {actions!r}")
        self._check_started()
        self.world.control(self.data, actions)
        self._for_each(lambda i: self.world.advance(self.model, self.data[i]), range(self.num_copies))
        never = np.zeros(self.num_copies, bool)
        return Stepped(self._observe(slice(None)), never, never)

    def render(self) -> np.ndarray:
        """Render the first copy from the model's camera."""
        if self._renderer is None:
            self._renderer = Renderer(self.model, self.world.camera)
        self.world.show_target(self.model, self.targets[0])
        for update in (load_mujoco().mj_kinematics, load_mujoco().mj_camlight):
            update(self.model, self.data[0])
        return self._renderer.render(self.data[0], self.markers)

    def save(self, copy: int) -> np.ndarray:
        """Save all that a copy's future depends on besides its actions.

        Args:
            copy: Index of the copy.

        Returns:
            MuJoCo's integration state, then the target, then the memory, as one vector.
        """
        self._check_started()
        mujoco, integration = load_mujoco(), load_mujoco().mjtState.mjSTATE_INTEGRATION
        state = np.empty(mujoco.mj_stateSize(self.model, integration))
        mujoco.mj_getState(self.model, self.data[copy], state, integration)
        return np.concatenate([state, self.targets[copy], self.memory[copy]])

    def restore(self, copy: int, saved: np.ndarray) -> np.ndarray:
        """Set a copy to a saved state, from which it continues bit for bit as the saved copy did.

        Later episodes still start from the copy's own seed.

        Args:
            copy: Index of the copy.
            saved: What `save` returned, for this or another copy.

        Returns:
            The copy's state [dx].
        """
        self._check_started()
        mujoco, integration, data = load_mujoco(), load_mujoco().mjtState.mjSTATE_INTEGRATION, self.data[copy]
        size = mujoco.mj_stateSize(self.model, integration)
        memory_at = size + self.targets.shape[1]
        expected = (memory_at + self.memory.shape[1],)
        if saved.shape != expected or not np.isfinite(saved).all():
            raise SondeError(
                f"{self.world.domain}: a saved state is {expected} finite numbers, got shape {saved.shape}; "
                "restore what save() returned for the same world"
            )
        mujoco.mj_resetData(self.model, data)
        mujoco.mj_setState(self.model, data, saved[:size], integration)
        mujoco.mj_forward(self.model, data)
        mujoco.mj_setState(self.model, data, saved[:size], integration)  # in some versions mj_forward moved the warm start
        self.targets[copy], self.memory[copy] = saved[size:memory_at], saved[memory_at:]
        index = range(self.num_copies)[copy]  # also for a negative index
        return self._observe(slice(index, index + 1))[0]

    def close(self) -> None:
        """End the threads and release OpenGL."""
        if self._pool is not None:
            self._pool.shutdown()
        if self._renderer is not None:
            self._renderer.close()
        self._pool, self._renderer = None, None

    def _check_started(self) -> None:
        if not self._rngs:
            raise SondeError(f"{self.world.domain}: reset the copies before they are stepped, saved or restored")

    def _start(self, i: int) -> EpisodeStart:
        mujoco, model, data = load_mujoco(), self.model, self.data[i]
        mujoco.mj_resetData(model, data)
        mujoco.mj_forward(model, data)
        started = self.world.start(model, data, self._rngs[i])
        mujoco.mj_forward(model, data)
        return started

    def _observe(self, which: slice) -> np.ndarray:
        """States of some copies; reject a simulation that diverged (MuJoCo then warns and resets it to its defaults)."""
        copies = self.data[which]
        warned = np.stack([data.warning.number for data in copies])
        states, self.memory[which] = self.world.observe(self.model, copies, self.targets[which], self.memory[which])
        diverged = warned.any(axis=1) | ~np.isfinite(states).all(axis=1)
        if diverged.any():
            first = int(np.argmax(diverged))
            names = [name for name, number in zip(load_mujoco().mjtWarning.__members__, warned[first], strict=False) if number]
            raise SondeError(
                f"{self.world.domain}: the simulation of copy {range(self.num_copies)[which][first]} diverged "
                f"({', '.join(names) or 'NaN or infinity'}), so its next states would be meaningless; "
                "try another first_seed, or a smaller action_repeat where there is one"
            )
        return states

    def _for_each(self, work: Callable[[int], Any], copies: Sequence[int]) -> list[Any]:
        """Results of `work` for some copies; each thread takes a contiguous share of them."""
        if self._pool is None:
            return [work(i) for i in copies]
        shares = np.array_split(copies, self._threads)
        results = self._pool.map(lambda share: [work(i) for i in share.tolist()], shares)
        return list(itertools.chain.from_iterable(results))
