"""Tasks planned once more on what a run has learned: what the plan promises, what it achieves, and a film of it."""

import base64
import importlib.util
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from sonde._internal.errors import SondeError, first_line
from sonde._internal.precision import double_precision
from sonde._internal.user_code import task_label
from sonde.control import OnStep, SimulatorPool
from sonde.evaluation import Evaluation, Learned, TaskSetup, TrueDynamics, evaluate, plan_task, run_task
from sonde.evaluation._robust import returns_on_mean
from sonde.explorer import Explorer
from sonde.runs._config import RunConfig
from sonde.runs.report._subjects import Source
from sonde.worlds import JaxWorld, World, has_simulator

FILM_WIDTH = 320
"""Most pixels of a film's width."""
Say = Callable[[str], None]
"""Called with what is being done."""


@dataclass(frozen=True)
class Film:
    """A film of the first seed."""

    content: bytes
    kind: str
    """Its media type."""

    @property
    def source(self) -> str:
        """The film as the content of an attribute `src`."""
        return f"data:{self.kind};base64,{base64.b64encode(self.content).decode()}"


@dataclass
class Solved:
    """A task that was planned on what a run has learned."""

    task: str
    seeds: tuple[int, ...]
    returns: dict[str, np.ndarray] = field(default_factory=dict)
    """Returns [S] of 'learned' and, where they were computed, 'random', 'oracle' and 'promised'."""
    film: Film | None = None
    why_no_film: str | None = None
    """Why there is no film, as a sentence."""


@dataclass(frozen=True)
class TaskWork:
    """What is computed for tasks."""

    films: bool = True
    promises: bool = True
    oracle: bool = False

    @property
    def plans(self) -> bool:
        """Whether tasks are planned again."""
        return self.films or self.promises or self.oracle


@double_precision
def solve_tasks(source: Source, work: TaskWork, say: Say) -> list[Solved]:
    """Plan each task of a run on what it has learned, as the run did after its last round.

    Args:
        source: The run.
        work: What to compute.
        say: Called with what is being done.
    """
    config, wanted = source.store.config, work.plans or source.evaluations
    if not wanted or not has_simulator(config.world) or not config.evaluate_every or not source.store.checkpoints():
        return []
    explorer, found = source.restored(), []
    with SimulatorPool() as pool:
        for task in config.task_names:
            label = task_label(task)
            solved = Solved(label, explorer.seeds)
            camera = _Camera(config.world, task) if work.films else None
            given = dict(source.evaluations.get(label, {}))
            if "learned" not in given and work.plans:
                say(f"{source.store.folder.name}: planning {label}")
                given["learned"] = _learned(config, explorer, task, pool, camera)
            _add_returns(solved, given, _TaskOf(config, explorer, task, pool), work, say)
            if camera is not None:
                say(f"{source.store.folder.name}: filming {label}")
                solved.film, solved.why_no_film = camera.film(given["learned"])
            found.append(solved)
    return found


@dataclass(frozen=True)
class _TaskOf:
    """A task with what it is solved on."""

    config: RunConfig
    explorer: Explorer
    name: str
    pool: SimulatorPool

    @property
    def setup(self) -> TaskSetup:
        return self.config.task_setup(self.name)


def _learned(config: RunConfig, explorer: Explorer, task: str, pool: SimulatorPool, camera: "_Camera | None") -> Evaluation:
    """The evaluation of the run itself: the same plan from the same starts."""
    setup, learned = config.task_setup(task), Learned(explorer.posterior, explorer.recent)
    policy = plan_task(setup, learned, explorer.keys())
    on_step = None if camera is None else camera.on_step
    if camera is not None and not isinstance(config.world, JaxWorld):
        return run_task(setup, policy, explorer.evaluation_keys(), on_step=on_step)  # copies of its own can be filmed
    return run_task(setup, policy, explorer.evaluation_keys(), pool=pool)


def _add_returns(solved: Solved, given: Mapping[str, Evaluation], task: _TaskOf, work: TaskWork, say: Say) -> None:
    """The returns of what was evaluated, and of what can be compared with it."""
    known, explorer, setup = dict(given), task.explorer, task.setup
    keys, starts = explorer.keys(), explorer.evaluation_keys()
    if work.plans and "random" not in known:
        known["random"] = evaluate(setup, None, keys, starts=starts, pool=task.pool)
    if work.oracle and "oracle" not in known and isinstance(task.config.world, JaxWorld):
        say(f"planning {solved.task} on the true system")
        known["oracle"] = evaluate(
            setup, Learned(TrueDynamics(setup.world), explorer.recent), keys, starts=starts, pool=task.pool
        )
    solved.returns |= {name: each.returns for name, each in known.items()}
    if work.promises and "learned" in known:
        say(f"asking the model what its plan for {solved.task} promises")
        promised = returns_on_mean(setup, explorer.posterior, starts, known["learned"].policy, task.pool)
        solved.returns["promised"] = promised


class _Camera:
    """Films one evaluation; whatever prevents that becomes a sentence, and the evaluation goes on."""

    def __init__(self, world: World, task: str):
        self.task, self.problem, self._film = task, None, None
        self._folder = tempfile.TemporaryDirectory(prefix="sonde-report-")
        suffix = ".gif" if importlib.util.find_spec("imageio_ffmpeg") is None else ".mp4"
        try:
            self._film = _small_film()(Path(self._folder.name) / f"film{suffix}", world)
        except Exception as error:  # a renderer may raise anything
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        said = first_line(error).rstrip(".")
        self.problem = f"There is no film: {said if isinstance(error, SondeError) else f'{type(error).__name__}: {said}'}."
        self._film = None

    @property
    def on_step(self) -> OnStep:
        """What takes the pictures of a host world."""

        def take(taken: int, copies: Any) -> None:
            if self._film is not None:
                try:
                    self._film(taken, copies)
                except Exception as error:
                    self._failed(error)

        return take

    def film(self, evaluation: Evaluation) -> tuple[Film | None, str | None]:
        """The film of an evaluation, or why there is none.

        Args:
            evaluation: The evaluation, which `on_step` has watched if its world is stepped outside of JAX.
        """
        try:
            if self._film is not None:
                self._film.save(self.task, evaluation)
                kind = "video/mp4" if self._film.out.suffix == ".mp4" else "image/gif"
                return Film(self._film.out.read_bytes(), kind), None
        except Exception as error:
            self._failed(error)
        finally:
            self._folder.cleanup()
        return None, self.problem


def _small_film() -> type:
    """The class of films with pictures of a width that suits a page."""
    from sonde.runs.figures import _film  # not above: it needs matplotlib's fonts

    class SmallFilm(_film.Film):
        """A film whose pictures are made smaller."""

        def _shots(self, evaluation: Evaluation, steps: int) -> Iterator[tuple[int, np.ndarray]]:
            for step, picture in super()._shots(evaluation, steps):
                yield step, _shrunk(picture)

    return SmallFilm


def _shrunk(picture: np.ndarray) -> np.ndarray:
    height, width = picture.shape[:2]
    if width <= FILM_WIDTH:
        return picture
    size = FILM_WIDTH, max(round(height * FILM_WIDTH / width), 1)
    return np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.LANCZOS))
