"""Worlds on C MuJoCo: S copies of one model that advance in lockstep.

A `MujocoWorld` says what is particular: the model, how an episode starts, what an action does, what is observed.
`MujocoSimulators` does the rest: threads, restarts, saved states, pictures, and a word when a simulation diverges. MuJoCo is
imported when a world is opened, not before.
"""

import abc
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import numpy as np

from sonde.errors import SondeError
from sonde.worlds.base import HostWorld, Simulators, Stepped
from sonde.worlds.mujoco_engine import engine
from sonde.worlds.mujoco_picture import Marker, Painter

STEPS_OF_A_THREAD = 50
"""Physics steps per action, over the copies that it serves, for which a thread is worth waking: about 0.4 ms of work."""
STEPS_OF_A_COPY = 4
"""Physics steps per action of one copy, below which Python's own work dominates, and threads only wait for each other."""


class MujocoWorld(HostWorld):
    """A world whose physics are MuJoCo's."""

    domain: ClassVar[str]
    """What messages call it."""
    camera: ClassVar[str]
    """The model's camera that takes the pictures."""
    step_weight: ClassVar[int] = 1
    """What a physics step costs, in those of the control suite's small models."""

    @property
    @abc.abstractmethod
    def steps_per_action(self) -> int:
        """Physics steps that one action lasts."""

    @abc.abstractmethod
    def compiled(self) -> Any:
        """MuJoCo's model, which all copies share."""

    @abc.abstractmethod
    def start(self, model: Any, data: Any, rng: np.random.Generator) -> np.ndarray:
        """Place a copy, whose data are MuJoCo's defaults, as at the start of an episode; where its target is.

        The target [3] moves nothing and is moved by nothing, so that all copies share a model. Empty if there is none.
        """

    @abc.abstractmethod
    def advance(self, model: Any, data: Any, action: np.ndarray) -> None:
        """Take all physics steps of an action [du]; what is observed is up to date afterwards."""

    @abc.abstractmethod
    def observe(self, data: Any, target: np.ndarray) -> np.ndarray:
        """The state [dx] of a copy."""

    def show_target(self, model: Any, target: np.ndarray) -> None:
        """Let the model that is drawn have the target where the copy has it."""
        return

    def open(self, runs: int) -> "MujocoSimulators":
        """That many copies."""
        return MujocoSimulators(self, runs)


def workers(runs: int, steps_per_action: int) -> int:
    """Threads for S copies that take so many steps of a small model; 1 where more would not pay.

    MuJoCo lets other threads run while it steps. Measured: handing work to a second thread costs 0.05 to 0.2 ms per action,
    such a step takes 5 to 10 us, and the 5 us that Python needs per copy cannot be shared out.
    """
    if steps_per_action < STEPS_OF_A_COPY:
        return 1
    most = max(1, min(runs, os.cpu_count() or 1, runs * steps_per_action // STEPS_OF_A_THREAD))
    return -(-runs // -(-runs // most))  # who has most copies is waited for: no more threads than bring that number down


class MujocoSimulators(Simulators):
    """S copies of a MuJoCo world in lockstep: one model, and data and a target for each."""

    def __init__(self, world: MujocoWorld, runs: int, threads: int | None = None):
        """`threads`: how many step the copies; by default as many as pay. The results are the same."""
        self.world = world
        self.model = world.compiled()
        self.data = [engine().MjData(self.model) for _ in range(runs)]
        self.targets = [np.empty(0)] * runs
        self._rngs: list[np.random.Generator] = []
        self._threads = workers(runs, world.steps_per_action * world.step_weight) if threads is None else threads
        self._pool = ThreadPoolExecutor(self._threads, "sonde-mujoco") if self._threads > 1 else None
        self._painter: Painter | None = None
        self.markers: tuple[Marker, ...] = ()
        """What pictures show beside the model."""

    @property
    def runs(self) -> int:
        """How many copies there are."""
        return len(self.data)

    def reset(self, seeds: Sequence[int]) -> np.ndarray:
        """Start an episode in every copy."""
        if len(seeds) != self.runs:
            raise SondeError(f"{self.world.domain}: {self.runs} copies need as many seeds, got {len(seeds)}")
        self._rngs = [np.random.default_rng(seed) for seed in seeds]
        return self._for_all(self._start)

    def restart(self, which: np.ndarray) -> np.ndarray:
        """Start a new episode in some copies."""
        return self._for_all(lambda i: self._start(i) if which[i] else self._checked_state(i))

    def step(self, actions: np.ndarray) -> Stepped:
        """Advance every copy; an episode never ends by itself."""
        actions, expected = np.asarray(actions, np.float64), (self.runs, self.world.action_dim)
        if actions.shape != expected or not np.isfinite(actions).all():
            raise SondeError(f"{self.world.domain}: actions must be finite numbers of shape {expected}, got {actions!r}")
        self._check_started()

        def advance(i: int) -> np.ndarray:
            self.world.advance(self.model, self.data[i], actions[i])
            return self._checked_state(i)

        never = np.zeros(self.runs, bool)
        return Stepped(self._for_all(advance), never, never)

    def picture(self) -> np.ndarray:
        """The first copy, as the model's camera sees it."""
        if self._painter is None:
            self._painter = Painter(self.model, self.world.camera)
        self.world.show_target(self.model, self.targets[0])
        for place in (engine().mj_kinematics, engine().mj_camlight):
            place(self.model, self.data[0])
        return self._painter.draw(self.data[0], self.markers)

    def save(self, copy: int) -> np.ndarray:
        """All that the future of a copy depends on but its actions: MuJoCo's integration state, then the target."""
        self._check_started()
        mujoco, everything = engine(), engine().mjtState.mjSTATE_INTEGRATION
        state = np.empty(mujoco.mj_stateSize(self.model, everything))
        mujoco.mj_getState(self.model, self.data[copy], state, everything)
        return np.concatenate([state, self.targets[copy]])

    def restore(self, copy: int, saved: np.ndarray) -> np.ndarray:
        """Set a copy to what `save` gave, for this or another copy; its state [dx]. It goes on to the last bit as it did then.

        Starts that follow still come from the copy's own seed.
        """
        self._check_started()
        mujoco, everything, data = engine(), engine().mjtState.mjSTATE_INTEGRATION, self.data[copy]
        size = mujoco.mj_stateSize(self.model, everything)
        expected = (size + len(self.targets[copy]),)
        if saved.shape != expected or not np.isfinite(saved).all():
            raise SondeError(
                f"{self.world.domain}: a saved state is {expected} finite numbers, got shape {saved.shape}; "
                "restore what save() gave for the same world"
            )
        mujoco.mj_resetData(self.model, data)
        mujoco.mj_setState(self.model, data, saved[:size], everything)
        mujoco.mj_forward(self.model, data)
        mujoco.mj_setState(self.model, data, saved[:size], everything)  # in some versions that moved the solver's warm start
        self.targets[copy] = saved[size:].copy()
        return self._checked_state(copy)

    def close(self) -> None:
        """End the threads, give OpenGL back."""
        if self._pool is not None:
            self._pool.shutdown()
        if self._painter is not None:
            self._painter.close()
        self._pool, self._painter = None, None

    def _check_started(self) -> None:
        if not self._rngs:
            raise SondeError(f"{self.world.domain}: reset the copies before they are stepped, saved or restored")

    def _start(self, i: int) -> np.ndarray:
        mujoco, model, data = engine(), self.model, self.data[i]
        mujoco.mj_resetData(model, data)
        mujoco.mj_forward(model, data)
        self.targets[i] = self.world.start(model, data, self._rngs[i])
        mujoco.mj_forward(model, data)
        return self._checked_state(i)

    def _checked_state(self, i: int) -> np.ndarray:
        """The state, unless the simulation has diverged (MuJoCo then warns and starts it over from its defaults)."""
        warned = self.data[i].warning.number
        state = self.world.observe(self.data[i], self.targets[i])
        if warned.any() or not np.isfinite(state).all():
            names = [name for name, number in zip(engine().mjtWarning.__members__, warned, strict=False) if number]
            raise SondeError(
                f"{self.world.domain}: the simulation of copy {i} diverged ({', '.join(names) or 'NaN or infinity'}), and what "
                "follows would be meaningless; try another first_seed, or a smaller action_repeat where there is one"
            )
        return state

    def _for_all(self, work: Callable[[int], np.ndarray]) -> np.ndarray:
        """What `work` gives for each copy, [S, dx]; each thread takes a share of neighbours."""
        if self._pool is None:
            return np.stack([work(i) for i in range(self.runs)])
        shares = np.array_split(np.arange(self.runs), self._threads)
        results = self._pool.map(lambda share: [work(int(i)) for i in share], shares)
        return np.stack([state for states in results for state in states])
