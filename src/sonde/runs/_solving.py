"""Controllers for tasks, from what an explorer has learned."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sonde._internal.errors import SondeError
from sonde._internal.precision import double_precision
from sonde._internal.user_code import task_label
from sonde.control import Controller
from sonde.control._deadline import seconds_per_action
from sonde.evaluation import Learned, TaskSetup, plan_task
from sonde.evaluation._tasks import checked_task, sample_goal, task_named
from sonde.explorer import Explorer
from sonde.runs._config import RunConfig
from sonde.solvers import Solver
from sonde.worlds import GoalTask, RewardFunction, Task

AnyTask = str | RewardFunction | Task | GoalTask
"""A task by name or as FILE.py:NAME, a reward(x, u, x_next), or a task object."""


def setup_of(config: RunConfig, task: AnyTask, solver: Solver | None = None) -> TaskSetup:
    """What solving a task needs.

    Args:
        config: The config of the run.
        task: The task.
        solver: What plans it, or trains a policy; by default as in the run.
    """
    world = config.world
    if isinstance(task, str):
        name, asked = task_label(task), task_named(world, task)
        world = world.for_task(task)
    else:
        reward = getattr(task, "reward", task)
        name = getattr(reward, "__name__", type(task).__name__)
        asked = checked_task(world, task, name)
    settings = config.settings_for(name)
    imagination = config.evaluation_imagination
    setup = TaskSetup(world, asked, name, solver or settings.solver, settings.horizon, imagination=imagination)
    return replace(setup, safety=config.resolved_safety, past=config.past)


@double_precision
def controller_for(
    setup: TaskSetup,
    explorer: Explorer,
    goal: np.ndarray | None = None,
    budget: float | None = None,
    rate: float | int | None = None,
) -> Controller:
    """Solve a task with what was learned.

    Args:
        setup: The task.
        explorer: What was learned.
        goal: The goal [dg] of a `GoalTask`.
        budget: Most seconds per action; by default as many as it needs.
        rate: The same as a rate in Hz.

    Returns:
        The controller to call with states.
    """
    budget = seconds_per_action(budget, rate)
    goals = _goals(setup.task, goal, explorer.num_seeds, setup.name)
    policy = plan_task(setup, Learned(explorer.posterior, explorer.recent), explorer.keys())
    return Controller(policy, setup.keys(explorer.keys()), explorer.spec.state_dim, budget, goals, explorer.spec)


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
