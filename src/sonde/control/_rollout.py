"""Run a policy on the true system.

A world written in JAX steps inside one compiled call. A host world is stepped from here, all copies in lockstep; where it ends
an episode early it is restarted, and the experiment goes on until all its steps are taken. Each of S runs may have R rollouts
side by side: S * R copies of the world, planned for in one compiled call, where a run's rollouts share what it has learned.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from sonde._internal.errors import SondeError
from sonde._internal.lockstep import side_by_side
from sonde._internal.precision import double_precision
from sonde._internal.randomness import for_purpose, seeds_of
from sonde.control._controller import Controller
from sonde.data import Trajectory
from sonde.solvers._policy import Policy
from sonde.worlds._base import HostWorld, JaxWorld, Simulators, World

OnStep = Callable[[int, Simulators], None]
"""Called after each step of a host world with the number of steps taken."""
SIDE_BY_SIDE = 100
"""Most copies of a world that are planned for at the same time, unless there are more runs: memory is not endless."""


class Steps(NamedTuple):
    """Every step of an episode, as a `Trajectory` begins: leading axes [S, R, T]."""

    states: Array
    actions: Array
    next_states: Array
    planned_information: Array


@eqx.filter_jit
def episode(
    world: JaxWorld,
    policy: Policy,
    horizon: int,
    keys: Key[Array, "seeds rollouts"],
    goals: Float[Array, "seeds rollouts dg"] | None = None,
) -> Steps:
    """Plan, act and step `horizon` times, for all rollouts of all runs at once, as one compiled call."""

    def one_rollout(policy: Policy, key, goal):
        policy = policy.aimed_at(goal)
        plan_key, world_key = for_purpose(key, "plan"), for_purpose(key, "world")

        def step(carry, t):
            x, state = carry
            u, state, planned = policy.act(state, x, jax.random.fold_in(plan_key, t))
            x_next = world.step(x, u, jax.random.fold_in(world_key, t))
            return (x_next, state), Steps(x, u, x_next, planned)

        start = (world.reset(for_purpose(key, "reset")), policy.start())
        return jax.lax.scan(step, start, jnp.arange(horizon))[1]

    return side_by_side(one_rollout)(policy, keys, goals)


@double_precision
def rollout(
    world: World, policy: Controller, horizon: int, on_step: OnStep | None = None, until_done: bool = False
) -> Trajectory:
    """One experiment of `horizon` steps under `policy`, as `Explorer.tell` takes it.

    With `until_done` it is shorter if a host world has ended the first episode of every run.
    """
    first, *others = _side_by_side(world, policy, horizon, on_step, until_done)
    return first.joined(*others)


@double_precision
def repeated_rollouts(
    world: World,
    policy: Controller,
    horizon: int,
    count: int,
    most: int = SIDE_BY_SIDE,
    on_step: OnStep | None = None,
    until_done: bool = False,
    goals: Float[np.ndarray, "seeds count dg"] | None = None,
) -> list[Trajectory]:
    """`count` rollouts of `horizon` steps per run, each from a start and with draws of its own: a trajectory [S, T, ...] each.

    As many run side by side as `most` copies of the world allow, though at least one per run; what they bring does not depend
    on that. `on_step` sees those among which the first is. `goals` are what each is for, where the task has a goal.
    """
    at_once = max(1, most // policy.num_seeds)
    at_once = -(-count // -(-count // at_once))  # evenly, since every number of copies is compiled for
    found: list[Trajectory] = []
    for start in range(0, count, at_once):
        numbers = range(start, min(start + at_once, count))
        some = policy.side_by_side(numbers, None if goals is None else goals[:, start : numbers.stop])
        found += _side_by_side(world, some, horizon, on_step if start == 0 else None, until_done)
    return found


def initial_states(world: World, keys: Key[Array, "seeds rollouts"]) -> Float[Array, "seeds rollouts dx"]:
    """Where rollouts with these keys begin."""
    reset_keys = for_purpose(keys, "reset")
    if isinstance(world, JaxWorld):
        return jax.vmap(jax.vmap(world.reset))(reset_keys)
    assert isinstance(world, HostWorld)
    states = simulators(world, keys.size).reset([int(seed) for seed in seeds_of(reset_keys).ravel()])
    return jnp.asarray(states).reshape(*keys.shape, -1)


def _side_by_side(world: World, policy: Controller, horizon: int, on_step: OnStep | None, until_done: bool) -> list[Trajectory]:
    """The rollouts that a policy has for each run."""
    if isinstance(world, HostWorld):
        return _host_rollouts(world, policy, horizon, on_step, until_done)
    if not isinstance(world, JaxWorld):
        raise SondeError(f"{type(world).__name__} has no simulator: run it yourself, with ask and tell")
    if policy.budget is not None:
        raise SondeError(f"{type(world).__name__} waits for its planner: ask for the policy without a budget")
    steps = episode(world, policy.policy, horizon, policy.keys.reshape(policy.num_seeds, -1), policy.goals)
    by_rollout = [np.moveaxis(np.asarray(array), 1, 0) for array in steps]
    return [Trajectory(*arrays) for arrays in zip(*by_rollout, strict=True)]


_OPEN: dict[tuple[HostWorld, int], Simulators] = {}
MOST_OPEN = 4


def simulators(world: HostWorld, num_seeds: int) -> Simulators:
    """Copies of the world, opened once, since they are costly to make; of many worlds, those used last stay open."""
    key = (world, num_seeds)
    _OPEN[key] = _OPEN.pop(key) if key in _OPEN else world.open(num_seeds)
    while len(_OPEN) > MOST_OPEN:
        _OPEN.pop(next(iter(_OPEN))).close()
    return _OPEN[key]


def _host_rollouts(
    world: HostWorld, policy: Controller, horizon: int, on_step: OnStep | None, until_done: bool
) -> list[Trajectory]:
    try:
        return _step_through(world, policy, horizon, on_step, until_done)
    except BaseException:  # copies that failed in the middle of something are not used again
        if (copies := _OPEN.pop((world, policy.copies), None)) is not None:
            copies.close()
        raise


def _step_through(
    world: HostWorld, policy: Controller, horizon: int, on_step: OnStep | None, until_done: bool
) -> list[Trajectory]:
    copies, world_seconds = simulators(world, policy.copies), 0.0

    def timed(work):
        nonlocal world_seconds
        began = time.perf_counter()
        result = work()
        world_seconds += time.perf_counter() - began
        return result

    seeds = seeds_of(for_purpose(policy.keys, "reset")).ravel()
    rows: list[tuple[np.ndarray, ...]] = []
    ended = np.zeros(policy.copies, bool)
    policy.reset()
    copies.show_goal(None if policy.goals is None else np.asarray(policy.goals[0, 0]))
    x = timed(lambda: copies.reset([int(seed) for seed in seeds]))
    for t in range(horizon):
        u, planned = policy.act(x)
        after = timed(lambda u=u: copies.step(u))
        if not np.isfinite(after.next_states).all():
            raise SondeError(f"{type(world).__name__}: the system delivered NaN or infinity at step {t} of the episode")
        rows.append((x, u, after.next_states, planned, after.terminated, after.over))
        x = after.next_states
        if on_step is not None:
            on_step(t + 1, copies)  # before a restart, so that the last state of an episode can be seen
        ended = ended | after.over
        if until_done and ended.all():
            break
        if after.over.any() and t + 1 < horizon:
            x = timed(lambda over=after.over: copies.restart(over))
            policy.begin_anew(after.over)
    columns = (np.stack(column, axis=1) for column in zip(*rows, strict=True))
    by_rollout = [np.moveaxis(array.reshape(policy.num_seeds, -1, *array.shape[1:]), 1, 0) for array in columns]
    return [Trajectory(*arrays, world_seconds / len(by_rollout[0])) for arrays in zip(*by_rollout, strict=True)]
