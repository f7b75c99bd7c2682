"""Several runs in one process, whose models are fitted by one program.

Each run is the same loop as always (`run`), in a thread of its own: one plans on the device while the simulators of another
step. The threads meet where a round is told. Once every run that is left waits there, those with the fewest measurements are
fitted together and go on; runs that an earlier process left behind catch up this way, while those ahead wait. A run that ends,
for whatever reason, is waited for no longer.
"""

import contextlib
import contextvars
import dataclasses
import threading
import time
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax

from sonde._internal.errors import SondeError, first_line
from sonde.data import Trajectory
from sonde.explorer import Explorer, Told, fit_together
from sonde.models import Model
from sonde.runs._callbacks import Callback
from sonde.runs._clock import RoundClock
from sonde.runs._config import RunConfig, differences
from sonde.runs._memory import check_memory
from sonde.runs._run import open_or_create, run
from sonde.runs._store import RunStore
from sonde.runs.logs import LogFormat


def explore_together(
    configs: Sequence[RunConfig], folders: Sequence[str | Path], callbacks: Sequence[Sequence[Callback]] = ()
) -> list[Explorer]:
    """Explore with several configs at the same time, such as several methods, and fit all their models by one program.

    An accelerator does that faster than one fit after the other. Each folder is that of an ordinary run: it can be continued
    alone or together with others, and ends with what `explore` would have given, up to rounding. An error in one run does not
    stop the others.

    Args:
        configs: What to explore, how, and for how long. They may differ in all that does not concern the fit: methods, solvers,
            tasks, seeds.
        folders: Folder of each run.
        callbacks: Callbacks of each run, called in threads; by default none.

    Returns:
        The explorers after their last rounds.
    """
    for what, given in (("folders", folders), ("lists of callbacks", callbacks or configs)):
        if len(given) != len(configs) or not configs:
            raise SondeError(f"explore_together: expected as many {what} as configs, got {len(given)} and {len(configs)}")
    check_alike(configs)
    stores = _opened(configs, [Path(folder) for folder in folders])
    ended = run_together(stores, callbacks or [()] * len(stores))
    errors = {Path(folder): end for folder, end in zip(folders, ended, strict=True) if isinstance(end, BaseException)}
    if errors:
        listed = "; ".join(f"{folder}: {first_line(error)}" for folder, error in errors.items())
        rest = "" if len(errors) == len(configs) else "; the others ended as they should"
        raise SondeError(f"{len(errors)} of {len(configs)} runs failed: {listed}{rest}") from next(iter(errors.values()))
    return [end for end in ended if isinstance(end, Explorer)]


@dataclass(frozen=True)
class FitSizes:
    """What configs must share to be fitted by one program."""

    model: Model
    states: int
    inputs: int
    capacity: int
    steps_per_round: int
    holdout: float
    data: str | tuple[str, ...] | None
    log: LogFormat
    window: int | None

    @classmethod
    def of(cls, config: RunConfig) -> "FitSizes":
        """Take them from a config.

        Args:
            config: The config.
        """
        spec, sizes, seen = config.spec, (config.data_capacity, config.steps), config.confidence
        known = seen.holdout, config.data, config.log, seen.window
        return cls(config.model.for_system(spec), spec.state_dim, spec.input_dim, *sizes, *known)


def unlike(one: RunConfig, other: RunConfig) -> list[str]:
    """Say in words why two configs cannot be fitted together.

    Args:
        one: A config.
        other: Another one.

    Returns:
        What differs; nothing if they can.
    """
    return list(differences(FitSizes.of(one), FitSizes.of(other)))


def check_alike(configs: Sequence[RunConfig]) -> None:
    """Reject configs that cannot be fitted together.

    Args:
        configs: The configs.
    """
    for number, config in enumerate(configs):
        if differing := unlike(configs[0], config):
            raise SondeError(
                f"configs 0 (there) and {number} (here) cannot be fitted by one program: {'; '.join(differing)}; "
                "explore them one after the other"
            )


def _opened(configs: Sequence[RunConfig], folders: Sequence[Path]) -> list[RunStore]:
    stores: list[RunStore] = []
    try:
        for config, folder in zip(configs, folders, strict=True):
            stores.append(open_or_create(folder, config))
    except BaseException:
        for store in stores:
            with contextlib.suppress(SondeError), store.locked():
                pass  # a run that was started here and has nothing to keep leaves no folder
        raise
    return stores


def run_together(stores: Sequence[RunStore], callbacks: Sequence[Sequence[Callback]]) -> list[Explorer | BaseException]:
    """Bring several runs to their end.

    Args:
        stores: The runs, whose configs can be fitted together.
        callbacks: Callbacks of each.

    Returns:
        The explorer of each run after its last round, or what was raised in it.
    """
    configs = [store.config for store in stores]
    check_alike(configs)
    initial, seeds = stores[0].load_initial_data(), sum(config.seeds for config in configs)
    for config in configs:  # each as if all seeds were its own, since any method may need most
        together = dataclasses.replace(config, first_seed=0, seeds=seeds)
        check_memory(together, 0 if initial is None else initial.states.shape[-2])
    # A CPU is busy with one run, and batched decompositions in several programs at the same time can deadlock on few cores.
    meeting = Meeting(len(stores), at_once=1 if jax.default_backend() == "cpu" else len(stores))

    def attend(store: RunStore, own: Sequence[Callback]) -> Explorer:
        with meeting.attended():
            return run(store, [_Stop(meeting), *own], tell=meeting.tell)

    with ThreadPoolExecutor(len(stores)) as threads:
        futures: list[Future[Explorer]] = [
            threads.submit(contextvars.copy_context().run, attend, store, own)
            for store, own in zip(stores, callbacks, strict=True)
        ]
        try:
            wait(futures)
        except BaseException:
            meeting.stopped = True  # each run ends at its next step; all finished rounds are on disk
            raise
    return [future.exception() or future.result() for future in futures]


class _Fitted(NamedTuple):
    params: Any
    error: BaseException | None
    seconds: float
    """How long the fit took."""


class Meeting:
    """Where the threads of several runs meet to be fitted together."""

    stopped: bool
    """Whether all runs must end."""

    def __init__(self, runs: int, at_once: int):
        """Expect some runs.

        Args:
            runs: How many threads will call `attended`.
            at_once: How many of them may be at work at the same time.
        """
        self.stopped = False
        self._present = runs
        self._changed = threading.Condition()
        self._waiting: dict[Explorer, Told] = {}
        self._fitted: dict[Explorer, _Fitted] = {}
        self._turns = threading.Semaphore(at_once)

    @contextlib.contextmanager
    def attended(self) -> Generator[None]:
        """Take part with one run, until it ends."""
        try:
            with self._turns:
                yield
        finally:
            with self._changed:
                self._present -= 1
                self._fit_if_all_wait()

    def check_stopped(self) -> None:
        """End the run whose thread calls it, if all must end."""
        if self.stopped:
            raise SondeError("the runs were stopped")

    def tell(self, explorer: Explorer, trajectory: Trajectory, clock: RoundClock) -> None:
        """Learn from a round together with the other runs.

        Args:
            explorer: The explorer, which is changed.
            trajectory: Measurements of the round [S, T, ...].
            clock: The clock of the round; the time that is spent waiting is a phase of its own.
        """
        waited = clock("fit", lambda: self._tell(explorer, trajectory))
        clock.seconds["fit"] -= waited
        clock.seconds["wait"] = waited

    def _tell(self, explorer: Explorer, trajectory: Trajectory) -> float:
        """Learn, and return for how long this run waited for others."""
        told = Told.of(explorer, trajectory)
        began = time.perf_counter()
        self._turns.release()
        try:
            with self._changed:
                self._waiting[explorer] = told
                self._fit_if_all_wait()
                self._changed.wait_for(lambda: explorer in self._fitted)
                fitted = self._fitted.pop(explorer)
        finally:
            self._turns.acquire()
        waited = time.perf_counter() - began - fitted.seconds
        if fitted.error is not None:
            raise fitted.error
        told.learn(fitted.params)
        return waited

    def _fit_if_all_wait(self) -> None:
        """Fit those that are furthest behind, once no other run is at work."""
        if len(self._waiting) < self._present or not self._waiting:
            return
        fewest = min(explorer.transitions for explorer in self._waiting)
        group = {explorer: told for explorer, told in self._waiting.items() if explorer.transitions == fewest}
        began, params, error = time.perf_counter(), [None] * len(group), None
        try:
            self.check_stopped()
            params = jax.block_until_ready(fit_together(list(group.values())))
        except BaseException as raised:  # for each run of the group to deal with
            error = raised
        seconds = time.perf_counter() - began
        for explorer, own in zip(group, params, strict=True):
            del self._waiting[explorer]
            self._fitted[explorer] = _Fitted(own, error, seconds)
        self._changed.notify_all()


class _Stop(Callback):
    """Ends a run when all must end."""

    def __init__(self, meeting: Meeting):
        """Listen to a meeting.

        Args:
            meeting: The meeting that may be stopped.
        """
        self.meeting = meeting

    def on_phase(self, round_number: int, phase: str, detail: str) -> None:
        """Look whether they must."""
        self.meeting.check_stopped()
