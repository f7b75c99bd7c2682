"""Worlds on C MuJoCo: S copies of one model that advance in lockstep.

A `MujocoWorld` says what is particular: the model, how an episode starts, what an action does, what is observed.
`MujocoSimulators` does the rest: threads, restarts, saved states, pictures, and a word when a simulation diverges. Threads
start episodes and take the physics steps, for which MuJoCo lets go of Python's lock; the rest of a step Python does for all
copies at once. MuJoCo is imported when a world is opened, not before.
"""

import abc
import itertools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import numpy as np

from sonde._internal.errors import SondeError
from sonde.worlds._base import HostWorld, Simulators, Stepped
from sonde.worlds._mujoco import engine
from sonde.worlds._mujoco_picture import Marker, Painter

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
    def control(self, copies: Sequence[Any], actions: np.ndarray) -> None:
        """Set in each copy's data what its action, of [S, du], asks of the physics."""

    @abc.abstractmethod
    def advance(self, model: Any, data: Any) -> None:
        """Take all physics steps of an action; what is observed is up to date afterwards.

        Runs in a thread: it should call MuJoCo and do little else, since other threads wait while Python works.
        """

    @abc.abstractmethod
    def observe(self, model: Any, copies: Sequence[Any], targets: np.ndarray) -> np.ndarray:
        """The states [S, dx] of copies, whose targets, one row each, are as `start` gave them.

        What is observed may depend on what was observed before, in this episode: a world may write that into `targets`.
        """

    def show_target(self, model: Any, target: np.ndarray) -> None:
        """Let the model that is drawn have the target where the copy has it."""
        return

    def open(self, num_copies: int) -> "MujocoSimulators":
        """That many copies."""
        return MujocoSimulators(self, num_copies)


def workers(num_copies: int, steps_per_action: int) -> int:
    """Threads for S copies that take so many steps of a small model; 1 where more would not pay.

    MuJoCo lets other threads run while it steps. Measured: handing work to a second thread costs 0.05 to 0.2 ms per action,
    such a step takes 5 to 10 us, and the few us that Python needs per copy cannot be shared out.
    """
    if steps_per_action < STEPS_OF_A_COPY:
        return 1
    most = max(1, min(num_copies, os.cpu_count() or 1, num_copies * steps_per_action // STEPS_OF_A_THREAD))
    return -(
        -num_copies // -(-num_copies // most)
    )  # who has most copies is waited for: no more threads than bring that number down


class MujocoSimulators(Simulators):
    """S copies of a MuJoCo world in lockstep: one model, and data and a target for each."""

    def __init__(self, world: MujocoWorld, num_copies: int, threads: int | None = None):
        """`threads`: how many step the copies; by default as many as pay. The results are the same."""
        self.world = world
        self.model = world.compiled()
        self.data = [engine().MjData(self.model) for _ in range(num_copies)]
        self.targets = np.empty((num_copies, 0))
        self._rngs: list[np.random.Generator] = []
        self._threads = workers(num_copies, world.steps_per_action * world.step_weight) if threads is None else threads
        self._pool = ThreadPoolExecutor(self._threads, "sonde-mujoco") if self._threads > 1 else None
        self._painter: Painter | None = None
        self.markers: tuple[Marker, ...] = ()
        """What pictures show beside the model."""

    @property
    def num_copies(self) -> int:
        """How many copies there are."""
        return len(self.data)

    def reset(self, seeds: Sequence[int]) -> np.ndarray:
        """Start an episode in every copy."""
        if len(seeds) != self.num_copies:
            raise SondeError(f"{self.world.domain}: {self.num_copies} copies need as many seeds, got {len(seeds)}")
        self._rngs = [np.random.default_rng(seed) for seed in seeds]
        self.targets = np.stack(self._for_all(self._start, range(self.num_copies)))
        return self._checked_states(slice(None))

    def restart(self, which: np.ndarray) -> np.ndarray:
        """Start a new episode in some copies."""
        chosen = [i for i in range(self.num_copies) if which[i]]
        for i, target in zip(chosen, self._for_all(self._start, chosen), strict=True):
            self.targets[i] = target
        return self._checked_states(slice(None))

    def step(self, actions: np.ndarray) -> Stepped:
        """Advance every copy; an episode never ends by itself."""
        actions, expected = np.asarray(actions, np.float64), (self.num_copies, self.world.action_dim)
        if actions.shape != expected or not np.isfinite(actions).all():
            raise SondeError(f"{self.world.domain}: actions must be finite numbers of shape {expected}, got {actions!r}")
        self._check_started()
        self.world.control(self.data, actions)
        self._for_all(lambda i: self.world.advance(self.model, self.data[i]), range(self.num_copies))
        never = np.zeros(self.num_copies, bool)
        return Stepped(self._checked_states(slice(None)), never, never)

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
        self.targets[copy] = saved[size:]
        place = range(self.num_copies)[copy]  # of -1, the last one
        return self._checked_states(slice(place, place + 1))[0]

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
        target = self.world.start(model, data, self._rngs[i])
        mujoco.mj_forward(model, data)
        return target

    def _checked_states(self, which: slice) -> np.ndarray:
        """States of those copies, unless a simulation has diverged (MuJoCo then warns and starts it over from its defaults).

        Neighbours, so that their targets are those of the array and no copies: a world may write into them.
        """
        copies = self.data[which]
        warned = np.stack([data.warning.number for data in copies])
        states = self.world.observe(self.model, copies, self.targets[which])
        diverged = warned.any(axis=1) | ~np.isfinite(states).all(axis=1)
        if diverged.any():
            first = int(np.argmax(diverged))
            names = [name for name, number in zip(engine().mjtWarning.__members__, warned[first], strict=False) if number]
            raise SondeError(
                f"{self.world.domain}: the simulation of copy {range(self.num_copies)[which][first]} diverged "
                f"({', '.join(names) or 'NaN or infinity'}), and what follows would be meaningless; "
                "try another first_seed, or a smaller action_repeat where there is one"
            )
        return states

    def _for_all(self, work: Callable[[int], Any], copies: Sequence[int]) -> list[Any]:
        """What `work` gives for each of those copies; each thread takes a share of neighbours."""
        if self._pool is None:
            return [work(i) for i in copies]
        shares = np.array_split(copies, self._threads)
        results = self._pool.map(lambda share: [work(i) for i in share.tolist()], shares)
        return list(itertools.chain.from_iterable(results))
