"""Run a policy on the true system.

A world written in JAX steps inside one compiled call. A host world is stepped from here, all copies in lockstep; where it ends
an episode early it is restarted, and the rollout continues until all its steps are taken. Each of S seeds may have R rollouts
in parallel: S * R copies of the world, planned for in one compiled call, where a seed's rollouts share what it has learned.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from sonde._internal.errors import SondeError, whole
from sonde._internal.lockstep import lockstep_rollouts, one_seed
from sonde._internal.past import NO_PAST, Past
from sonde._internal.precision import double_precision
from sonde._internal.randomness import for_purpose, seeds_of
from sonde.control._controller import Controller
from sonde.control._simulators import SimulatorPool
from sonde.data import Trajectory
from sonde.solvers import Checked, Policy
from sonde.worlds import HostWorld, JaxWorld, Simulators, World
from sonde.worlds._base import Start

OnStep = Callable[[int, Simulators], None]
"""on_step(steps taken, simulators): called after each step of a host world."""
MAX_COPIES = 100
"""Default limit on the copies of a world that are simulated and planned for at the same time."""


@dataclass(frozen=True)
class RolloutSettings:
    """How often and how long a policy is run."""

    horizon: int
    """Steps of each rollout."""
    count: int = 1
    """Rollouts per seed, each from a start and with noise draws of its own."""
    max_copies: int = MAX_COPIES
    """Most copies of the world, over all seeds, at the same time (at least one per seed); the result does not depend on it."""
    first_episode_only: bool = False
    """Stop early once a host world has ended the first episode of every copy."""
    starts: tuple[Start, ...] = ()
    """Where each rollout starts, for all seeds; by default the world draws that."""

    def __post_init__(self):
        """Reject what cannot be run."""
        whole("rollouts", horizon=self.horizon, count=self.count, max_copies=self.max_copies)
        if len(self.starts) not in (0, self.count):
            raise SondeError(f"rollouts: expected a start for each of {self.count} rollout(s), got {len(self.starts)}")


class Steps(NamedTuple):
    """Every step of a rollout, in the order of `Trajectory`: leading axes [S, R, T]."""

    states: Array
    actions: Array
    next_states: Array
    planned_information: Array
    checked: Checked | None = None
    """What the check of constraints said; None without constraints."""

    def by_rollout(self) -> list[Trajectory]:
        """One trajectory [S, T, ...] per rollout."""
        apart = jax.tree.map(lambda array: np.moveaxis(np.array(array), 1, 0), self)  # copies, which can be written to
        return [_trajectory(one_seed(apart, number)) for number in range(len(apart.states))]


def _trajectory(steps: Any) -> Trajectory:
    checked = {} if steps.checked is None else {"planned_margin": steps.checked.margin, "fallback": steps.checked.fallback}
    return Trajectory(*steps[:4], **checked)


@eqx.filter_jit
def compiled_rollout(
    world: JaxWorld,
    policy: Policy,
    horizon: int,
    keys: Key[Array, "seeds rollouts"],
    goals: Float[Array, "seeds rollouts dg"] | None = None,
    starts: Float[Array, "seeds rollouts dx"] | None = None,
    past: Past = NO_PAST,
) -> Steps:
    """Plan, act and step for all rollouts of all seeds, as one compiled call.

    Args:
        world: A world written in JAX.
        policy: The policy, with a leading axis S on its arrays.
        horizon: Number of steps T.
        keys: Randomness of each rollout.
        goals: Goal of each rollout, if the task has goals.
        starts: State in which each rollout starts; by default the world draws it.
        past: What of the past belongs to the states that the policy sees.
    """

    def one_rollout(policy: Policy, key, goal, start):
        policy = policy.with_goal(goal)
        plan_key, world_key = for_purpose(key, "plan"), for_purpose(key, "world")

        def step(carry, t):
            x, before, state = carry
            full = jnp.concatenate([x, before]) if past else x
            u, state, planned = policy.act(state, full, jax.random.fold_in(plan_key, t))
            x_next = world.step(x, u, jax.random.fold_in(world_key, t))
            moved = past.moved(before, x, u, x_next)
            return (x_next, moved, state), Steps(x, u, x_next, planned, policy.checked(state))

        x = world.reset(for_purpose(key, "reset")) if start is None else start
        before = jnp.zeros(past.size(world.state_dim, world.action_dim), x.dtype)
        return jax.lax.scan(step, (x, before, policy.initial_state()), jnp.arange(horizon))[1]

    return lockstep_rollouts(one_rollout)(policy, keys, goals, starts)


@double_precision
def rollout(
    world: World,
    policy: Controller,
    horizon: int,
    *,
    pool: SimulatorPool | None = None,
    on_step: OnStep | None = None,
) -> Trajectory:
    """Run a policy on a world, as `Explorer.tell` takes it.

    Args:
        world: The true system.
        policy: What `Explorer.ask` returned.
        horizon: Number of steps T; where a host world ends its episode earlier, it is restarted and the steps go on.
        pool: Simulators to reuse; by default they are opened for this call and closed after it.
        on_step: Called after each step of a host world.

    Returns:
        Measurements [S, T, ...].
    """
    first, *others = _in_parallel(world, policy, RolloutSettings(horizon), pool, on_step)
    return first.joined(*others)


@double_precision
def run_rollouts(
    world: World,
    policy: Controller,
    rollouts: RolloutSettings,
    *,
    goals: Float[np.ndarray, "seeds count dg"] | None = None,
    pool: SimulatorPool | None = None,
    on_step: OnStep | None = None,
) -> list[Trajectory]:
    """Run a policy several times per seed.

    Args:
        world: The true system.
        policy: The policy for all seeds.
        rollouts: How often and how long.
        goals: Goal of each rollout, if the task has goals.
        pool: Simulators to reuse; by default they are opened for this call and closed after it.
        on_step: Called after each step of a host world, for the copies among which the first rollout is.

    Returns:
        One trajectory [S, T, ...] per rollout.
    """
    count = rollouts.count
    at_once = max(1, rollouts.max_copies // policy.num_seeds)
    if rollouts.starts and isinstance(world, HostWorld):
        at_once = 1  # copies are all started alike
    at_once = -(-count // -(-count // at_once))  # in equal parts, because every number of copies compiles a program of its own
    found: list[Trajectory] = []
    with _opened(pool) as pool:
        for start in range(0, count, at_once):
            numbers = range(start, min(start + at_once, count))
            some = policy.for_rollouts(numbers, None if goals is None else goals[:, start : numbers.stop])
            chosen = replace(rollouts, count=len(numbers), starts=rollouts.starts[start : numbers.stop])
            found += _in_parallel(world, some, chosen, pool, on_step if start == 0 else None)
    return found


def start_states(
    world: World, keys: Key[Array, "seeds rollouts"], pool: SimulatorPool | None = None, starts: Sequence[Start] = ()
) -> Float[Array, "seeds rollouts dx"]:
    """The states in which rollouts start.

    Args:
        world: The true system; one that Sonde cannot run needs `starts`.
        keys: Randomness of each rollout.
        pool: Simulators to reuse.
        starts: Where each rollout starts, for all seeds; by default the world draws that.
    """
    if isinstance(world, HostWorld):
        with _opened(pool) as pool:
            if not starts:
                return jnp.asarray(pool.get(world, keys.size).reset(reset_seeds(keys))).reshape(*keys.shape, -1)
            of_seeds = pool.get(world, keys.shape[0])
            numbered = enumerate(starts)
            return jnp.stack([jnp.asarray(of_seeds.reset_at(reset_seeds(keys[:, i]), start)) for i, start in numbered], axis=1)
    if starts:
        return jnp.asarray(_for_all_seeds(starts, keys.shape[0]))
    if not isinstance(world, JaxWorld):
        raise SondeError(f"{type(world).__name__} has no simulator that could draw starts: name them (--start)")
    return jax.vmap(jax.vmap(world.reset))(for_purpose(keys, "reset"))


def _for_all_seeds(starts: Sequence[Start], num_seeds: int) -> np.ndarray:
    """The same states [S, R, dx] for all seeds."""
    states = np.asarray(starts, np.float64)
    return np.broadcast_to(states, (num_seeds, *states.shape))


def reset_seeds(keys: Key[Array, "*any"]) -> list[int]:
    """Seeds of simulators for the start of rollouts.

    Args:
        keys: Randomness of each rollout.

    Returns:
        One seed per key.
    """
    return [int(seed) for seed in seeds_of(for_purpose(keys, "reset")).ravel()]


def _opened(pool: SimulatorPool | None) -> contextlib.AbstractContextManager[SimulatorPool]:
    """The given pool, which stays open, or one for the duration of a call."""
    return SimulatorPool() if pool is None else contextlib.nullcontext(pool)


def _in_parallel(
    world: World, policy: Controller, rollouts: RolloutSettings, pool: SimulatorPool | None, on_step: OnStep | None
) -> list[Trajectory]:
    """The rollouts that a policy has for each seed."""
    if isinstance(world, HostWorld):
        with _opened(pool) as pool:
            begin = None
            if rollouts.starts:
                (only,) = rollouts.starts
                begin = lambda copies: copies.reset_at(reset_seeds(policy.keys), only)
            try:
                return step_through(world, policy, rollouts, pool, on_step, begin)
            except BaseException:
                pool.discard(world, policy.copies)
                raise
    starts = _for_all_seeds(rollouts.starts, policy.num_seeds) if rollouts.starts else None
    return compiled_trajectories(world, policy, rollouts.horizon, starts)


def compiled_trajectories(
    world: World, policy: Controller, horizon: int, starts: Float[np.ndarray, "seeds rollouts dx"] | None = None
) -> list[Trajectory]:
    """Run a policy on a world written in JAX; other systems are rejected.

    Args:
        world: The true system.
        policy: The policy, with the rollouts that it has for each seed.
        horizon: Number of steps T.
        starts: State in which each rollout starts; by default the world draws it.

    Returns:
        One trajectory [S, T, ...] per rollout.
    """
    if not isinstance(world, JaxWorld):
        raise SondeError(f"{type(world).__name__} has no simulator: run it yourself, with ask and tell")
    if policy.budget is not None:
        raise SondeError(f"{type(world).__name__} is simulated, and simulated time waits: ask for the policy without a budget")
    keys = policy.keys.reshape(policy.num_seeds, -1)
    given = None if starts is None else jnp.asarray(starts)
    return compiled_rollout(world, policy.policy, horizon, keys, policy.goals, given, policy.past).by_rollout()


def step_through(
    world: HostWorld,
    policy: Controller,
    rollouts: RolloutSettings,
    pool: SimulatorPool,
    on_step: OnStep | None = None,
    start: Callable[[Simulators], np.ndarray] | None = None,
) -> list[Trajectory]:
    """Run a policy on a host world, all copies in lockstep.

    Args:
        world: The true system.
        policy: The policy, with the rollouts that it has for each seed.
        rollouts: How long.
        pool: Open simulators.
        on_step: Called after each step.
        start: Brings the copies to their first states [S, dx]; by default they are reset.

    Returns:
        One trajectory [S, T, ...] per rollout.
    """
    copies = pool.get(world, policy.copies)
    rows: list[tuple[Any, ...]] = []
    names = ["states", "actions", "next_states", "planned_information", "terminated", "truncated"]
    ended = np.zeros(policy.copies, bool)
    policy.reset()
    copies.show_goal(None if policy.goals is None else np.asarray(policy.goals[0, 0]))
    x = np.array(pool.timed(lambda: start(copies) if start else copies.reset(reset_seeds(policy.keys))))
    for t in range(rollouts.horizon):
        u, planned = policy.act(x)
        # copies on both sides: the system may change the actions that it is given, and reuse the states that it returns
        after = pool.timed(lambda u=u: copies.step(u.copy()))
        x_next = np.array(after.next_states)
        if not np.isfinite(x_next).all():
            name = type(world).__name__
            raise SondeError(f"{name}: expected finite next states, got NaN or infinity at step {t} of the rollout")
        rows.append((x, u, x_next, planned, np.array(after.terminated), np.array(after.truncated), *(policy.checked or ())))
        x = x_next
        if on_step is not None:
            on_step(t + 1, copies)  # before a restart, so that the last state of an episode can be seen
        ended = ended | after.ended
        if rollouts.first_episode_only and ended.all():
            break
        if after.ended.any() and t + 1 < rollouts.horizon:
            x = np.array(pool.timed(lambda which=after.ended: copies.restart(which)))
            policy.restart_episodes(after.ended)
    names += [] if policy.checked is None else ["planned_margin", "fallback"]
    columns = (np.stack(column, axis=1) for column in zip(*rows, strict=True))
    by_rollout = [np.moveaxis(array.reshape(policy.num_seeds, -1, *array.shape[1:]), 1, 0) for array in columns]
    return [Trajectory(**dict(zip(names, arrays, strict=True))) for arrays in zip(*by_rollout, strict=True)]
