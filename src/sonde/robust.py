"""What a policy is worth on the model: taken at its word, and in the worst case that it holds for plausible.

The opponent answers every step of the policy: it looks ahead as far as the policy's own plan (or, of a policy without one, some
steps under that policy) and chooses the eta in [-1, 1]^dx that hurts most. What the policy still brings is its guaranteed value.
It is a guarantee if the confidence region holds the truth and no opponent is stronger; the first is what `beta` claims, the
second is what a search can find.
"""

import functools
from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from sonde.imagination import Pessimistic, draw_chance
from sonde.lockstep import side_by_side
from sonde.policies import Policy
from sonde.randomness import for_purpose
from sonde.solvers.base import ControlProblem, PlanningPolicy, planned_actions
from sonde.solvers.opponent import worst_answer

LOOK_AHEAD = 20
"""Steps that an opponent looks ahead if the policy does not plan."""


class ImaginedReturns(NamedTuple):
    """What a policy brings on the model, per run [S]."""

    nominal: np.ndarray
    """If the model's mean is the truth."""
    guaranteed: np.ndarray
    """Against the opponent."""


def imagined_returns(
    policy: Policy,
    problem: ControlProblem,
    starts: Float[Array, "runs rollouts dx"],
    horizon: int,
    keys: Key[Array, "runs rollouts"],
    goals: Float[Array, "runs rollouts dg"] | None = None,
) -> ImaginedReturns:
    """Both values of a policy that begins in `starts`; `problem` says what counts, and holds a `Pessimistic` imagination."""
    play = functools.partial(_returns, policy, problem, horizon, starts, keys, goals)
    nominal, opposed = (np.asarray(play(opposed=opposed)) for opposed in (False, True))
    # an opponent may always do nothing
    return ImaginedReturns(nominal.mean(axis=1), np.minimum(nominal, opposed).mean(axis=1))


@eqx.filter_jit
def _returns(policy: Policy, problem: ControlProblem, horizon: int, starts, keys, goals, *, opposed: bool):
    """Of each rollout [S, R]."""

    def one(run, start, key, goal):
        policy, problem = run[0].aimed_at(goal), replace(run[1], goal=goal)
        certain = jax.tree.map(lambda leaf: jnp.zeros_like(leaf[0]), draw_chance(key, 1, problem.state_dim))
        plan_key = for_purpose(key, "plan")

        def step(carry, t):
            x, state = carry
            u, answer, state = _moves(policy, problem, state, x, jax.random.fold_in(plan_key, t))
            control = jnp.concatenate([u, answer if opposed else jnp.zeros_like(answer)])
            x_next, reward = problem.step(x, control, jnp.asarray(0), certain)
            return (x_next, state), reward

        return jnp.sum(jax.lax.scan(step, (start, policy.start()), jnp.arange(horizon))[1])

    return side_by_side(one)((policy, problem), starts, keys, goals)


def _moves(
    policy: Policy, problem: ControlProblem, state: Any, x: Float[Array, " dx"], key: Key[Array, ""]
) -> tuple[Float[Array, " du"], Float[Array, " dx"], Any]:
    """The policy's action, the opponent's answer, and the policy's next state."""
    if isinstance(policy, PlanningPolicy):
        plan, state = policy.planner.plan(policy.problem, state, x, policy.plan_key(key))
        actions = planned_actions(policy.problem, plan)
        return actions[0], problem.opposed(x, actions, key)[0][0], state

    def rewards(eta: Float[Array, "H dx"]) -> Float[Array, "1 H"]:
        def step(carry, eta):
            x, state = carry
            u, state, _ = policy.act(state, x, key)
            x_next, reward = problem.step(x, jnp.concatenate([u, eta]), jnp.asarray(0), certain)
            return (x_next, state), reward

        return jax.lax.scan(step, (x, state), eta)[1][None]

    certain = jax.tree.map(lambda leaf: jnp.zeros_like(leaf[0]), draw_chance(key, 1, problem.state_dim))
    assert isinstance(problem.imagination, Pessimistic)
    unopposed = jnp.zeros((LOOK_AHEAD, problem.opposing_dim), x.dtype)
    answer, _ = worst_answer(rewards, unopposed, problem.imagination.opposing_steps)
    u, state, _ = policy.act(state, x, key)
    return u, answer[0], state
