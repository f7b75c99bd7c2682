"""Run a policy on the true system for one episode.

A world written in JAX steps inside one compiled call. A host world is stepped from here, all runs in lockstep; where it ends
an episode early it is restarted, and the experiment goes on until all its steps are taken.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from sonde.data import Trajectory
from sonde.errors import SondeError
from sonde.lockstep import lockstep
from sonde.policies import Controller, Policy
from sonde.precision import double_precision
from sonde.randomness import for_purpose
from sonde.worlds.base import HostWorld, JaxWorld, Simulators, World

OnStep = Callable[[int, Simulators], None]
"""Called after each step of a host world with the number of steps taken."""


class Steps(NamedTuple):
    """Every step of an episode: leading axes [S, T]."""

    states: Array
    actions: Array
    next_states: Array
    planned_information: Array


@eqx.filter_jit
def episode(world: JaxWorld, policy: Policy, horizon: int, keys: Key[Array, " runs"]) -> Steps:
    """Plan, act and step `horizon` times, for all runs at once, as one compiled call."""

    def one_run(policy: Policy, key):
        plan_key, world_key = for_purpose(key, "plan"), for_purpose(key, "world")

        def step(carry, t):
            x, state = carry
            u, state, planned = policy.act(state, x, jax.random.fold_in(plan_key, t))
            x_next = world.step(x, u, jax.random.fold_in(world_key, t))
            return (x_next, state), Steps(x, u, x_next, planned)

        start = (world.reset(for_purpose(key, "reset")), policy.start())
        return jax.lax.scan(step, start, jnp.arange(horizon))[1]

    return lockstep(one_run)(policy, keys)


@double_precision
def rollout(
    world: World, policy: Controller, horizon: int, on_step: OnStep | None = None, until_over: bool = False
) -> Trajectory:
    """One experiment of `horizon` steps under `policy`, as `Explorer.tell` takes it.

    With `until_over` it is shorter if a host world has ended the first episode of every run.
    """
    if isinstance(world, HostWorld):
        return _host_rollout(world, policy, horizon, on_step, until_over)
    if not isinstance(world, JaxWorld):
        raise SondeError(f"{type(world).__name__} has no simulator: run it yourself, with ask and tell")
    if policy.budget is not None:
        raise SondeError(f"{type(world).__name__} waits for its planner: ask for the policy without a budget")
    steps = episode(world, policy.policy, horizon, policy.keys)
    return Trajectory(*(np.asarray(array) for array in steps[:3]), planned_information=np.asarray(steps.planned_information))


_OPEN: dict[tuple[HostWorld, int], Simulators] = {}
MOST_OPEN = 4


def simulators(world: HostWorld, runs: int) -> Simulators:
    """Copies of the world, opened once, since they are costly to make; of many worlds, those used last stay open."""
    key = (world, runs)
    _OPEN[key] = _OPEN.pop(key) if key in _OPEN else world.open(runs)
    while len(_OPEN) > MOST_OPEN:
        _OPEN.pop(next(iter(_OPEN))).close()
    return _OPEN[key]


def _host_rollout(world: HostWorld, policy: Controller, horizon: int, on_step: OnStep | None, until_over: bool) -> Trajectory:
    try:
        return _step_through(world, policy, horizon, on_step, until_over)
    except BaseException:  # copies that failed in the middle of something are not used again
        if (copies := _OPEN.pop((world, policy.runs), None)) is not None:
            copies.close()
        raise


def _step_through(world: HostWorld, policy: Controller, horizon: int, on_step: OnStep | None, until_over: bool) -> Trajectory:
    copies, world_seconds = simulators(world, policy.runs), 0.0

    def timed(work):
        nonlocal world_seconds
        began = time.perf_counter()
        result = work()
        world_seconds += time.perf_counter() - began
        return result

    seeds = np.asarray(jax.vmap(lambda key: jax.random.bits(key, (), jnp.uint32))(for_purpose(policy.keys, "reset")))
    rows: list[tuple[np.ndarray, ...]] = []
    ended = np.zeros(policy.runs, bool)
    policy.reset()
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
        if until_over and ended.all():
            break
        if after.over.any() and t + 1 < horizon:
            x = timed(lambda over=after.over: copies.restart(over))
            policy.begin_anew(after.over)
    states, actions, next_states, planned, terminated, over = (np.stack(column, axis=1) for column in zip(*rows, strict=True))
    return Trajectory(states, actions, next_states, planned, terminated, over, world_seconds)
