"""Learn a system that Sonde cannot run itself: ask for a policy, run it, tell what was measured.

with Experiment("runs/arm", config) as experiment:      # starts a run, or continues it
    while not experiment.finished:
        policy = experiment.ask(rate=20)                 # an action in time, 20 times per second
        trajectory = my_rollout(policy)                  # your part: numpy in, numpy out
        experiment.tell(trajectory)                      # learn and save; everything is on disk when this returns

The folder is that of any run. A program that is killed continues after the last round that was told; what was measured but not
yet learned from is learned from first, and the same measurements always give the same model. `tell` may be called again after
any exception: a round is recorded once.
"""

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sonde._internal.errors import SondeError
from sonde._internal.precision import double_precision
from sonde._internal.user_code import task_label
from sonde.control import Controller
from sonde.control._deadline import seconds_per_action
from sonde.data import Trajectory
from sonde.evaluation import Learned, TaskSetup, plan_task
from sonde.evaluation._schema import LATE_ACTIONS
from sonde.evaluation._tasks import checked_task, sample_goal, task_named
from sonde.explorer import Explorer
from sonde.runs._callbacks import Callback, Callbacks, Row
from sonde.runs._clock import RoundClock
from sonde.runs._config import EXPLORE, RunConfig, with_absolute_paths
from sonde.runs._run import learn, open_or_create, restore_explorer
from sonde.runs._saved import MEASURED
from sonde.runs._store import RunStore
from sonde.solvers import Policy
from sonde.worlds import GoalTask, RewardFunction, Task, has_simulator


class _Asked(NamedTuple):
    """What was asked for."""

    round: int = 0
    """The round that was planned."""
    policies: Mapping[str, Policy] = MappingProxyType({})
    """Its policies, by name."""
    seconds: float = 0.0
    """How long planning took."""
    controller: Controller | None = None
    """What was returned."""

    @property
    def late_actions(self) -> dict[str, float]:
        """The share of late actions so far, where there is a deadline and the policy was called."""
        timing = None if self.controller is None or self.controller.budget is None else self.controller.timing
        return {LATE_ACTIONS.key: timing.late / timing.calls} if timing and timing.calls else {}

    def with_checks(self, told: Trajectory) -> Trajectory:
        """The measurements with what the check of constraints said, if the policy was called once for each of their steps.

        Args:
            told: Measurements [S, T, ...].
        """
        checks = [] if self.controller is None else self.controller.checks
        if told.fallback is not None or len(checks) != told.states.shape[1]:
            return told
        margin, fallback = (np.stack(column, axis=1) for column in zip(*checks, strict=True))
        return replace(told, planned_margin=margin, fallback=fallback)


class Experiment:
    """A run whose rollouts you run yourself; as a context manager it locks the folder against other processes."""

    def __init__(self, folder: str | Path, config: RunConfig, callbacks: Sequence[Callback] = ()):
        """Nothing is read or written yet.

        Args:
            folder: Folder of the run.
            config: The run, with `OwnSystem(states=..., actions=...)` as its world; `config.horizon` is the longest rollout.
            callbacks: Called in this order as the run proceeds.
        """
        if has_simulator(config.world):
            name = type(config.world).__name__
            raise SondeError(f"experiment: Sonde can run {name} itself; give the config OwnSystem(states=..., actions=...)")
        self.folder, self.config = Path(folder).absolute(), with_absolute_paths(config)
        self._listeners = Callbacks(callbacks)
        self._store: RunStore | None = None
        self._explorer: Explorer | None = None
        self._asked = _Asked()
        self._telling: tuple[int, Trajectory] | None = None

    def __enter__(self) -> "Experiment":
        """Start the run, or continue it."""
        store = open_or_create(self.folder, self.config)
        with contextlib.ExitStack() as stack:
            stack.enter_context(store.locked())
            newest = max(store.checkpoints(), default=0)
            explorer = restore_explorer(store, newest)
            store.forget_after(newest)
            self._store, self._explorer, self._asked, self._telling = store, explorer, _Asked(), None
            self._listeners.on_run_opened(store, explorer)
            stack.callback(self._listeners.on_run_end)
            self._listeners.on_run_start(store.config, store.load_metrics())
            store.publish()  # before anything is measured, which must not get lost with a draft
            self._learn_what_was_measured()
            self._open = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """Release the folder."""
        self._store = self._explorer = None
        self._open.close()

    def _learn_what_was_measured(self) -> None:
        """A kill may come after the measurements were saved and before they were learned from."""
        store, explorer = self._parts()
        while not self.finished and store.has_data(explorer.round + 1):
            try:
                measured, clock = store.load_data(explorer.round + 1)[-1], self._clock()
                clock.shared = store.load_known(explorer.round + 1)
                learn(store, explorer, measured, {}, clock)
            except SondeError as error:
                path = store.data_path(explorer.round + 1)
                raise SondeError(f"{error}; the measurements are in {path}: move them away to continue without them") from None

    def _parts(self) -> tuple[RunStore, Explorer]:
        if self._store is None or self._explorer is None:
            raise SondeError("experiment: open it first: 'with Experiment(folder, config) as experiment:'")
        return self._store, self._explorer

    @property
    def explorer(self) -> Explorer:
        """The explorer, which holds what has been learned."""
        return self._parts()[1]

    @property
    def round(self) -> int:
        """Number of rounds that were told."""
        return self.explorer.round

    @property
    def finished(self) -> bool:
        """Whether all rounds were told, or the stopping rule ended the run (`stopped`)."""
        return self.round >= self.config.rounds or self.stopped is not None

    @property
    def stopped(self) -> str | None:
        """Why the config's `until` ended the run, in words; None if it did not."""
        return self._parts()[0].why_stopped()

    def ask(self, budget: float | None = None, rate: float | int | None = None) -> Controller:
        """Plan the next round; until the round is told, asking again gives the same policy.

        Args:
            budget: Most seconds that the policy may take per action; by default as many as it needs.
            rate: The same as a rate in Hz: the policy takes at most nine tenths of each period.

        Returns:
            The policy to run, called with states.
        """
        self._reject_if_finished()
        began = time.perf_counter()
        controller = self.explorer.ask(budget, rate)
        self._asked = _Asked(self.round + 1, {EXPLORE: controller.policy}, time.perf_counter() - began, controller)
        return controller

    def tell(self, trajectory: Trajectory) -> list[Row]:
        """Learn from a round and save it; measurements that cannot be used are rejected and change nothing.

        A round is recorded once or not at all. Whatever is raised, `tell` may be called again with the same measurements: if
        the round was finished before the exception (a callback failed, say), its metrics are returned and nothing is recorded
        twice. Measurements that were saved and not yet learned from stay on disk, for the next start of the program.

        Args:
            trajectory: Measurements [S, T, ...], or [T, ...] with a single seed.

        Returns:
            Metrics of the round, one row per seed.
        """
        store, explorer = self._parts()
        checked = trajectory.checked(explorer.num_seeds, explorer.spec)
        if self._is_repeated(checked):
            rows = [row for row in store.load_metrics() if row["round"] == explorer.round]
            return self._answered(rows)
        self._reject_if_finished()
        longest, steps = self.config.steps, checked.states.shape[1]
        if steps > longest:
            raise SondeError(
                f"experiment: a round may have at most {longest} steps (the config's horizon), got {steps}; "
                "tell a shorter one, or start over in another folder with a larger horizon"
            )
        clock = self._clock()
        asked = self._asked if self._asked.round == clock.round else _Asked()
        clock.seconds["plan"], clock.shared = asked.seconds, asked.late_actions
        self._telling = clock.round, checked
        try:
            return self._answered(learn(store, explorer, asked.with_checks(checked), asked.policies, clock))
        except SondeError:
            if explorer.round < clock.round and clock.phase == "fit":  # it cannot be learned from, and the caller has it
                store.drop_data(clock.round)
            raise

    def _is_repeated(self, checked: Trajectory) -> bool:
        """Whether these are the measurements of a round that was finished, although its `tell` raised an exception."""
        if self._telling is None:
            return False
        round_number, told = self._telling
        return self.round == round_number and _same_measurements(checked, told)

    def _answered(self, rows: list[Row]) -> list[Row]:
        """Return the metrics of a round, and forget its measurements in the same moment: the caller knows that it was told."""
        return vars(self).update(_telling=None) or rows

    def _clock(self) -> RoundClock:
        return RoundClock(self._listeners, self.round + 1)

    @double_precision
    def solve(
        self,
        task: str | RewardFunction | Task | GoalTask,
        budget: float | None = None,
        rate: float | int | None = None,
        goal: np.ndarray | None = None,
    ) -> Controller:
        """Make a policy for a task from what has been learned so far.

        A policy that needs no planner (solver sac) is also saved in the folder, for `sonde.load_policy`.

        Args:
            task: A reward(x, u, x_next), a `Task` or `GoalTask`, or a name as FILE.py:NAME.
            budget: As for `ask`.
            rate: As for `ask`.
            goal: The goal [dg] of a `GoalTask`.

        Returns:
            The controller to call with states.
        """
        store, explorer = self._parts()
        budget = seconds_per_action(budget, rate)
        setup = self._setup(task)
        goals = _goals(setup.task, goal, explorer.num_seeds, setup.name)
        policy = plan_task(setup, Learned(explorer.posterior, explorer.recent), explorer.keys())
        store.save_policies({setup.name: policy})
        return Controller(policy, setup.keys(explorer.keys()), explorer.spec.state_dim, budget, goals, explorer.spec)

    def _setup(self, task: str | RewardFunction | Task | GoalTask) -> TaskSetup:
        world = self.config.world
        if isinstance(task, str):
            name, asked = task_label(task), task_named(world, task)
        else:
            reward = getattr(task, "reward", task)
            name = getattr(reward, "__name__", type(task).__name__)
            asked = checked_task(world, task, name)
        settings = self.config.settings_for(name)
        imagination = self.config.evaluation_imagination
        setup = TaskSetup(world, asked, name, settings.solver, settings.horizon, imagination=imagination)
        return replace(setup, safety=self.config.resolved_safety, past=self.config.past)

    def _reject_if_finished(self) -> None:
        if self.finished:
            why = self.stopped or f"all {self.config.rounds} rounds were told"
            raise SondeError(f"experiment: {why.rstrip('.')}; solve tasks with what was learned")


def _same_measurements(one: Trajectory, other: Trajectory) -> bool:
    given = lambda trajectory: [getattr(trajectory, name) for name in (*MEASURED, "terminated", "truncated")]
    return all(
        a is b if a is None or b is None else np.array_equal(a, b) for a, b in zip(given(one), given(other), strict=True)
    )


def _goals(task: Task | GoalTask, goal: np.ndarray | None, num_seeds: int, name: str) -> Array | None:
    """The goal for every seed [S, dg]; one that the task cannot have is rejected."""
    if not isinstance(task, GoalTask):
        if goal is not None:
            raise SondeError(f"{name} is a task without a goal, got {goal!r}: leave it out")
        return None
    example, given = sample_goal(task, 0), np.asarray(np.nan if goal is None else goal, np.float64)
    if given.shape != example.shape or not np.isfinite(given).all():
        raise SondeError(f"{name} is solved for a goal: give goal=, finite numbers such as {example}; got {goal!r}")
    return jnp.broadcast_to(jnp.asarray(given), (num_seeds, *given.shape))
