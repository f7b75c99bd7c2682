"""Tasks by name: those of a world, and rewards in a person's own file (`rewards.py:stand_still`); and their goals."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from sonde._internal.errors import SondeError, first_line, one_of
from sonde._internal.precision import double_precision
from sonde._internal.randomness import for_purpose, seeds_of
from sonde._internal.user_code import is_in_file, load_from_file
from sonde.solvers import Planner, Solver
from sonde.worlds import GoalTask, RewardFunction, Task, World


def task_named(world: World, name: str) -> Task | GoalTask:
    """The world's task of that name, or what FILE.py:NAME names: a reward, a `Task` or a `GoalTask`."""
    if not is_in_file(name):
        if not world.tasks:
            raise SondeError(f"this world has no task of its own, got {name!r}; give a function as FILE.py:NAME")
        one_of("task", name, world.tasks)
        return _as_task(world.tasks[name])
    return checked_task(world, load_from_file(name), name)


def reward_named(world: World, name: str) -> RewardFunction:
    """The reward of a task without a goal."""
    task = task_named(world, name)
    if isinstance(task, GoalTask):
        raise SondeError(f"{name} has another goal in each rollout: h-ucrl explores for a task without one, name such a task")
    return task.reward


def _as_task(given: RewardFunction | Task | GoalTask) -> Task | GoalTask:
    return given if isinstance(given, Task | GoalTask) else Task(given)


def checked_task(world: World, given: RewardFunction | Task | GoalTask, name: str) -> Task | GoalTask:
    """What a person gave as a task, if its reward is one; `name` is what errors call it."""
    task = _as_task(given)
    _check_reward(world, task.reward, name, (sample_goal(task, 0),) if isinstance(task, GoalTask) else ())
    return task


def sample_goal(task: GoalTask, seed: int) -> np.ndarray:
    """The goal [dg] that the task draws with this seed, if it is one."""
    goal = np.asarray(task.sample_goal(np.random.default_rng(seed)), np.float64)
    if goal.ndim != 1 or not np.isfinite(goal).all():
        raise SondeError(f"sample_goal must give finite numbers [dg], got {goal!r}")
    return goal


def check_goal_support(task: Task | GoalTask, solver: Solver, name: str) -> None:
    """Refuse a solver that cannot be told of goals."""
    if isinstance(task, GoalTask) and not isinstance(solver, Planner):
        raise SondeError(
            f"{type(solver).__name__} trains one policy for one reward, and {name} has another goal in each rollout; "
            "take the solver icem"
        )


@double_precision
def goals_for(task: Task | GoalTask, keys: Key[Array, "seeds rollouts"]) -> Float[np.ndarray, "seeds rollouts dg"] | None:
    """A goal for each rollout, from its key; None for a task that has none."""
    if not isinstance(task, GoalTask):
        return None
    goals = [sample_goal(task, int(seed)) for seed in seeds_of(for_purpose(keys, "goal")).ravel()]
    if len({goal.shape for goal in goals}) > 1:
        raise SondeError(f"sample_goal must always give equally many numbers, got {sorted({len(goal) for goal in goals})}")
    return np.stack(goals).reshape(*keys.shape, -1)


@double_precision
def _check_reward(world: World, reward: Callable[..., Array], name: str, goal: tuple[np.ndarray, ...]) -> None:
    """Refuse what is no function from a transition, and a goal if there is one, to a number."""
    x, u = jnp.zeros(world.state_dim), jnp.zeros(world.action_dim)
    try:
        result = jax.eval_shape(reward, x, u, x, *map(jnp.asarray, goal))
    except Exception as error:
        called = "reward(x, u, x_next, goal)" if goal else "reward(x, u, x_next)"
        raise SondeError(
            f"{name} is not a reward: called as {called} with x [{world.state_dim}] and u [{world.action_dim}] it "
            f"failed with {type(error).__name__}: {first_line(error)}; write it with jax.numpy for one transition, and with "
            "jnp.where in place of if"
        ) from error
    if not hasattr(result, "shape") or result.shape != () or not jnp.issubdtype(result.dtype, jnp.floating):
        found = f"shape {list(result.shape)} of {result.dtype}" if hasattr(result, "shape") else repr(result)
        raise SondeError(f"{name} must return one real number per transition, got {found}")
    numbers: list[Any] = [np.zeros(n) for n in (world.state_dim, world.action_dim, world.state_dim)]
    try:
        reward(*numbers, *goal)
    except IndexError as error:  # JAX would take the last entry without a word
        raise SondeError(
            f"{name} asks for an entry that is not there ({error}): x has {world.state_dim} numbers "
            f"({', '.join(world.state_names)}), u has {world.action_dim}"
        ) from None
    except Exception:  # jax.numpy may want its own arrays, which it gets
        return
