"""Worlds on C MuJoCo with the models of the DeepMind control suite: what they share.

A `MujocoWorld` says what is particular: the model, how an episode starts, what is observed. `MujocoSimulators` steps S copies
with the same calls as the suite's own physics, so that both agree to the last bit. MuJoCo and the suite are imported when
a world is opened, not before.
"""

import abc
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sonde.errors import SondeError, whole
from sonde.worlds.base import HostWorld, Simulators, Stepped, Transitions
from sonde.worlds.mujoco_engine import compile_model, control_suite, engine, physics_step
from sonde.worlds.mujoco_picture import Painter
from sonde.worlds.sampling import reachable_by_noise

STEPS_OF_A_THREAD = 50
"""Physics steps per action, over the copies that it serves, for which a thread is worth waking: about 0.4 ms of work."""
STEPS_OF_A_COPY = 4
"""Physics steps per action of one copy, below which Python's own work dominates, and threads only wait for each other."""


@dataclass(frozen=True)
class MujocoWorld(HostWorld):
    """A world of the control suite."""

    action_repeat: int = 1
    """Times that the suite's own control step is taken with each action."""
    domain: ClassVar[str]
    """The suite's name for it."""
    time_step: ClassVar[float]
    """Seconds of one physics step."""
    substeps: ClassVar[int]
    """Physics steps in the suite's control step."""
    camera: ClassVar[str]
    """The model's camera that takes the pictures."""
    reachable_rollouts: ClassVar[tuple[int, int]] = (20, 250)
    """Episodes, and steps of each, from which the reachable set is chosen."""

    def __post_init__(self):
        """Refuse settings that mean nothing."""
        whole(self.domain, action_repeat=self.action_repeat)

    @property
    def seconds_per_step(self) -> float:
        """Simulated time that one action lasts."""
        return self.time_step * self.steps_per_action

    @property
    def steps_per_action(self) -> int:
        """Physics steps that one action lasts."""
        return self.substeps * self.action_repeat

    def model_and_assets(self) -> tuple[Any, dict[str, bytes]]:
        """The suite's XML, and the files that it includes."""
        return control_suite(self.domain).get_model_and_assets()

    @abc.abstractmethod
    def start(self, model: Any, data: Any, rng: np.random.Generator) -> np.ndarray:
        """Place a copy, whose data are MuJoCo's defaults, as the suite does at the start of an episode; where its target is.

        The target [3] moves nothing and is moved by nothing, so that all copies share a model. Empty if there is none.
        """

    @abc.abstractmethod
    def observe(self, data: Any, target: np.ndarray) -> np.ndarray:
        """The state [dx] of a copy."""

    def show_target(self, model: Any, target: np.ndarray) -> None:
        """Let the model that is drawn have the target where the copy has it."""
        return

    def open(self, runs: int) -> "MujocoSimulators":
        """That many copies."""
        return MujocoSimulators(self, runs)

    def reachable(self) -> Transitions:
        """Transitions of fixed rollouts under noise from slow to white; see `reachable_by_noise`."""
        return reachable_by_noise(self, *self.reachable_rollouts)


def workers(runs: int, steps_per_action: int) -> int:
    """Threads for S copies; 1 where more would not pay.

    MuJoCo lets other threads run while it steps. Measured: handing work to a second thread costs 0.05 to 0.2 ms per action,
    a physics step takes 5 to 10 us, and the 5 us that Python needs per copy cannot be shared out.
    """
    if steps_per_action < STEPS_OF_A_COPY:
        return 1
    return max(1, min(runs, os.cpu_count() or 1, runs * steps_per_action // STEPS_OF_A_THREAD))


class MujocoSimulators(Simulators):
    """S copies of a MuJoCo world in lockstep: one model, and data and a target for each."""

    def __init__(self, world: MujocoWorld, runs: int, threads: int | None = None):
        """`threads`: how many step the copies; by default as many as pay. The results are the same."""
        self.world = world
        self.model = compile_model(*world.model_and_assets())
        self.data = [engine().MjData(self.model) for _ in range(runs)]
        self.targets = [np.empty(0)] * runs
        self._rngs: list[np.random.Generator] = []
        self._threads = workers(runs, world.steps_per_action) if threads is None else threads
        self._pool = ThreadPoolExecutor(self._threads, "sonde-mujoco") if self._threads > 1 else None
        self._painter: Painter | None = None

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
        if not self._rngs:
            raise SondeError(f"{self.world.domain}: reset the copies before they are stepped")

        def advance(i: int) -> np.ndarray:
            self.data[i].ctrl[:] = actions[i]
            physics_step(self.model, self.data[i], self.world.steps_per_action)
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
        return self._painter.draw(self.data[0])

    def close(self) -> None:
        """End the threads, give OpenGL back."""
        if self._pool is not None:
            self._pool.shutdown()
        if self._painter is not None:
            self._painter.close()
        self._pool, self._painter = None, None

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
                "follows would be meaningless; run again with another first_seed, or with a smaller action_repeat"
            )
        return state

    def _for_all(self, work: Callable[[int], np.ndarray]) -> np.ndarray:
        """What `work` gives for each copy, [S, dx]; each thread takes a share of neighbours."""
        if self._pool is None:
            return np.stack([work(i) for i in range(self.runs)])
        shares = np.array_split(np.arange(self.runs), self._threads)
        results = self._pool.map(lambda share: [work(int(i)) for i in share], shares)
        return np.stack([state for states in results for state in states])
