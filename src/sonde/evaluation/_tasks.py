"""Tasks by name (those of a world, and FILE.py:NAME in a user's file), the checks on them, and the goals of their rollouts."""

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
    """Look up a task.

    Args:
        world: The world on which it is solved.
        name: A name in `world.tasks`, or FILE.py:NAME of a reward, a `Task` or a `GoalTask`.
    """
    if not is_in_file(name):
        if not world.tasks:
            raise SondeError(f"this world has no tasks of its own, got {name!r}; name a reward in a file as FILE.py:NAME")
        one_of("task", name, world.tasks)
        return _as_task(world.tasks[name])
    return checked_task(world, load_from_file(name), name)


def reward_named(world: World, name: str) -> RewardFunction:
    """Look up the reward of a task without a goal.

    Args:
        world: The world on which it is solved.
        name: A name in `world.tasks`, or FILE.py:NAME.
    """
    task = task_named(world, name)
    if isinstance(task, GoalTask):
        raise SondeError(f"{name} has another goal in each rollout: name a task without goals")
    return task.reward


def _as_task(given: RewardFunction | Task | GoalTask) -> Task | GoalTask:
    return given if isinstance(given, Task | GoalTask) else Task(given)


def checked_task(world: World, given: RewardFunction | Task | GoalTask, name: str) -> Task | GoalTask:
    """Check a task that a user wrote.

    Args:
        world: The world on which it is solved.
        given: A reward, a `Task` or a `GoalTask`.
        name: What error messages call it.

    Returns:
        The task; a plain reward becomes a `Task`.
    """
    task = _as_task(given)
    _check_reward(world, task.reward, name, (sample_goal(task, 0),) if isinstance(task, GoalTask) else ())
    return task


def sample_goal(task: GoalTask, seed: int) -> np.ndarray:
    """Draw a goal, and check it.

    Args:
        task: The task.
        seed: Seed of numpy's generator.

    Returns:
        The goal [dg].
    """
    goal = np.asarray(task.sample_goal(np.random.default_rng(seed)), np.float64)
    if goal.ndim != 1 or not np.isfinite(goal).all():
        raise SondeError(f"sample_goal must return finite numbers [dg], got {goal!r}")
    return goal


def check_goal_support(task: Task | GoalTask, solver: Solver, name: str) -> None:
    """Reject a solver that cannot solve a task with goals.

    Args:
        task: The task.
        solver: What would plan it.
        name: Name of the task, for the error message.
    """
    if isinstance(task, GoalTask) and not isinstance(solver, Planner):
        raise SondeError(
            f"{type(solver).__name__} trains one policy for one reward, and {name} has another goal in each rollout; "
            "use the solver icem"
        )


@double_precision
def goals_for(task: Task | GoalTask, keys: Key[Array, "seeds rollouts"]) -> Float[np.ndarray, "seeds rollouts dg"] | None:
    """Draw the goals of all rollouts.

    Args:
        task: The task.
        keys: Keys of the rollouts [S, R].

    Returns:
        Goals [S, R, dg], or None for a task without goals.
    """
    if not isinstance(task, GoalTask):
        return None
    goals = [sample_goal(task, int(seed)) for seed in seeds_of(for_purpose(keys, "goal")).ravel()]
    lengths = sorted({len(goal) for goal in goals})
    if len(lengths) > 1:
        raise SondeError(f"sample_goal must always return the same number of entries, got {lengths}")
    return np.stack(goals).reshape(*keys.shape, -1)


@double_precision
def _check_reward(world: World, reward: Callable[..., Array], name: str, goal: tuple[np.ndarray, ...]) -> None:
    """Reject a reward that does not turn a transition, and a goal if there is one, into one number."""
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
    except IndexError as error:  # JAX would silently use the last entry
        raise SondeError(
            f"{name} reads an entry that does not exist ({error}): x has {world.state_dim} numbers "
            f"({', '.join(world.state_names)}), u has {world.action_dim}"
        ) from None
    except Exception:  # some functions of jax.numpy only accept its own arrays, which they get later
        return
