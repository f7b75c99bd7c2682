"""Run a policy on the true system for one episode."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from sonde.data import Trajectory
from sonde.lockstep import lockstep
from sonde.policies import Controller, Policy
from sonde.precision import double_precision
from sonde.randomness import for_purpose
from sonde.worlds import World


class Steps(NamedTuple):
    """Every step of an episode: leading axes [S, T]."""

    states: Array
    actions: Array
    next_states: Array
    planned_information: Array


@eqx.filter_jit
def episode(world: World, policy: Policy, horizon: int, keys: Key[Array, " runs"]) -> Steps:
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
def rollout(world: World, policy: Controller, horizon: int) -> Trajectory:
    """One episode of `horizon` steps under `policy`, as `Explorer.tell` takes it."""
    steps = episode(world, policy.policy, horizon, policy.keys)
    return Trajectory(*(np.asarray(array) for array in steps[:3]), planned_information=np.asarray(steps.planned_information))
