"""Learn a system that only its owner can run: ask for a policy, run it, tell what was measured.

with Experiment("runs/arm", config) as experiment:      # begins, or goes on where the folder stands
    while not experiment.finished:
        policy = experiment.ask(rate=20)                 # an action in time, 20 times per second
        trajectory = my_episode(policy)                  # your part: numpy in, numpy out
        experiment.tell(trajectory)                      # learn and save; all is on disk when this returns

The folder is that of any run (`sonde.runs._store`). A program that is killed goes on after the last episode that was told; what
was measured but not yet learned from is learned from first, and the same measurements always make the same model.
"""

import contextlib
import time
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sonde._internal.errors import SondeError
from sonde._internal.precision import double_precision
from sonde._internal.randomness import for_purpose
from sonde._internal.user_code import task_label
from sonde.control._controller import Controller
from sonde.control._deadline import seconds_per_action
from sonde.data import Trajectory
from sonde.evaluation._evaluate import task_policy
from sonde.evaluation._tasks import checked_task, sample_goal, task_named
from sonde.explorer import Explorer
from sonde.runs._config import EXPLORE, RunConfig, differences, with_absolute_paths
from sonde.runs._run import Phases, learn, restore_explorer
from sonde.runs._store import RunStore
from sonde.solvers._policy import Policy
from sonde.worlds._base import has_simulator
from sonde.worlds._task import GoalTask, RewardFunction, Task


class Experiment:
    """A run whose episodes you run yourself; use it as a context, which keeps other processes out of the folder."""

    def __init__(self, folder: str | Path, config: RunConfig):
        """Nothing is read or written yet. `config.horizon` is the longest episode that may be told."""
        if has_simulator(config.world):
            name = type(config.world).__name__
            raise SondeError(f"experiment: Sonde can run {name} itself; give the config OwnSystem(states=..., actions=...)")
        self.folder, self.config = Path(folder).absolute(), with_absolute_paths(config)
        self._store: RunStore | None = None
        self._explorer: Explorer | None = None

    def __enter__(self) -> "Experiment":
        """Begin the run, or go on with it."""
        new = not self.folder.exists() or (self.folder.is_dir() and not any(self.folder.iterdir()))
        store = RunStore.create(self.folder, self.config, overwrite=self.folder.exists()) if new else RunStore.open(self.folder)
        _refuse_another(store.config, self.config, self.folder)
        with contextlib.ExitStack() as stack:
            stack.enter_context(store.locked())
            newest = max(store.checkpoints(), default=0)
            explorer = restore_explorer(store, newest)
            store.forget_after(newest)
            self._store, self._explorer, self._policies, self._asking = store, explorer, {}, 0.0
            self._learn_what_was_measured()
            self._open = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of the folder."""
        self._store = self._explorer = None
        self._open.close()

    def _learn_what_was_measured(self) -> None:
        """A kill may come after the measurements were saved and before they were learned from."""
        store, explorer = self._parts()
        while not self.finished and store.has_data(explorer.round + 1):
            try:
                self._learn(store.load_data(explorer.round + 1)[-1], {}, 0.0)
            except SondeError as error:
                path = store.data_path(explorer.round + 1)
                raise SondeError(f"{error}; the measurements are in {path}: move them away to go on without them") from None

    def _parts(self) -> tuple[RunStore, Explorer]:
        if self._store is None or self._explorer is None:
            raise SondeError("experiment: open it first: 'with Experiment(folder, config) as experiment:'")
        return self._store, self._explorer

    @property
    def explorer(self) -> Explorer:
        """What has been learned."""
        return self._parts()[1]

    @property
    def round(self) -> int:
        """Episodes that were told."""
        return self.explorer.round

    @property
    def finished(self) -> bool:
        """Whether all episodes were told, or those that were are enough (`stopped`)."""
        return self.round >= self.config.rounds or self.stopped is not None

    @property
    def stopped(self) -> str | None:
        """Why there is no need for more episodes, as `until` of the config asks, in words; None: there is."""
        return self._parts()[0].why_stopped()

    def ask(self, budget: float | None = None, rate: float | int | None = None) -> Controller:
        """The policy for the next episode; with a `budget`, it takes at most so many seconds per action.

        With a `rate` in Hz it takes at most nine tenths of each period, and leaves the rest to the caller. Until the episode
        is told, asking again gives the same policy.
        """
        self._refuse_more()
        began = time.perf_counter()
        controller = self.explorer.ask(budget, rate)
        self._policies, self._asking = {EXPLORE: controller.policy}, time.perf_counter() - began
        return controller

    def tell(self, trajectory: Trajectory) -> list[dict[str, Any]]:
        """Learn from an episode and save it; its metrics, one row per run. What cannot be used is refused, nothing changes."""
        self._refuse_more()
        explorer, longest = self.explorer, self.config.steps
        checked = trajectory.checked(explorer.num_seeds, explorer.state_dim, explorer.action_dim)
        steps = checked.states.shape[1]
        if steps > longest:
            raise SondeError(
                f"experiment: an episode may have at most {longest} steps (the config's horizon), got {steps}; "
                "tell a shorter one, or begin anew in another folder with a larger horizon"
            )
        number = explorer.round + 1
        try:
            return self._learn(checked, self._policies, self._asking)
        except SondeError:
            if explorer.round < number:  # nothing was learned from it, and the caller still has it
                self._parts()[0].drop_data(number)
            raise

    def _learn(self, trajectory: Trajectory, policies: dict[str, Policy], asking: float) -> list[dict[str, Any]]:
        store, explorer = self._parts()
        timed = Phases(lambda *_: None, explorer.round + 1)
        timed.seconds["plan"] = asking
        rows = learn(store, explorer, trajectory, policies, timed)
        self._policies, self._asking = {}, 0.0
        return rows

    @double_precision
    def solve(
        self,
        task: str | RewardFunction | Task | GoalTask,
        budget: float | None = None,
        rate: float | int | None = None,
        goal: np.ndarray | None = None,
    ) -> Controller:
        """A policy for a task, with what has been learned so far: reward(x, u, x_next), or its name as FILE.py:NAME.

        `budget` and `rate` are those of `ask`. A policy that needs no planner (solver sac) is saved in the folder too, for
        `sonde.control.deploy`. A `GoalTask` is solved for the `goal` [dg] that is given.
        """
        store, explorer = self._parts()
        budget = seconds_per_action(budget, rate)
        world = self.config.world
        if isinstance(task, str):
            name, asked = task_label(task), task_named(world, task)
        else:
            reward = getattr(task, "reward", task)
            name = getattr(reward, "__name__", type(task).__name__)
            asked = checked_task(world, task, name)
        goals = _goals(asked, goal, explorer.num_seeds, name)
        keys = for_purpose(explorer.keys(), f"evaluate/{name}")
        solver, members = self.config.settings_for(name).solver, self.config.evaluation_members
        policy = task_policy(world, explorer.posterior, asked, solver, explorer.data, keys, members)
        store.save_policies({name: policy})
        return Controller(policy, keys, explorer.state_dim, budget, goals)

    def _refuse_more(self) -> None:
        if self.finished:
            why = self.stopped or f"all {self.config.rounds} episodes were told"
            raise SondeError(f"experiment: {why.rstrip('.')}; solve tasks with what was learned")


def _goals(task: Task | GoalTask, goal: np.ndarray | None, num_seeds: int, name: str) -> Array | None:
    """The goal for every run [S, dg]; refused if the task has none, or another kind of one."""
    if not isinstance(task, GoalTask):
        if goal is not None:
            raise SondeError(f"{name} is a task without a goal, got {goal!r}: leave it out")
        return None
    example, given = sample_goal(task, 0), np.asarray(np.nan if goal is None else goal, np.float64)
    if given.shape != example.shape or not np.isfinite(given).all():
        raise SondeError(f"{name} is solved for a goal: give goal=, finite numbers such as {example}; got {goal!r}")
    return jnp.broadcast_to(jnp.asarray(given), (num_seeds, *given.shape))


def _refuse_another(saved: RunConfig, given: RunConfig, folder: Path) -> None:
    """A run goes on under the config that it began with, or not at all."""
    differing = list(differences(saved, given))
    if differing:
        raise SondeError(
            f"{folder} was begun with another config: {'; '.join(differing)}; "
            "give the same config to go on, or another folder to begin anew "
            "('sonde export' and data=FILE take the measurements there)"
        )
