"""What a policy is worth on the model: taken at its word, and in the worst case that it holds for plausible.

The opponent answers every step of the policy: it looks ahead as far as the policy's own plan (or, of a policy without one,
some steps under that policy) and chooses the eta in [-1, 1]^dx that hurts most. Others never change their eta, a corner: a
policy that plans anew makes up for single blows better than for a steady push. A policy that was trained against an opponent
has to face that one too. What the policy still brings against the worst of them is its guaranteed value. It is a guarantee if
the confidence region holds the truth and no opponent is stronger; the first is what `beta` claims, the second is what can be
found.
"""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeGuard

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from sonde.calibration import Confident
from sonde.imagination import Chance, Pessimistic
from sonde.lockstep import side_by_side
from sonde.models.base import Posterior
from sonde.policies import Policy
from sonde.randomness import for_purpose
from sonde.solvers.actor import ActorPolicy
from sonde.solvers.base import ControlProblem, PlanningPolicy, planned_actions
from sonde.solvers.opponent import worst_answer

SEARCH_STEPS = 3
"""Steps of the opponent's search for each answer; only one plan is answered here, so it may take its time."""
MOST_CORNERS = 8
"""Opponents that never change their eta; all corners of up to three dimensions, else some of them."""
CAUTIONS = (0.0, 0.5, 1.0)
"""Shares of the confidence region that plans are made against. A plan commits to its actions and cannot react, so one against
all of the region may dare too little: the policy is taken whose guaranteed value, against all of it, is best."""
LOOK_AHEAD = 20
"""Steps that an opponent looks ahead if the policy does not plan."""


class ImaginedReturns(NamedTuple):
    """What a policy brings on the model, per run [S]."""

    nominal: np.ndarray
    """If the model's mean is the truth."""
    guaranteed: np.ndarray
    """Against the opponent; in each rollout the worst, where there are several."""


def imagined_returns(
    policy: Policy,
    problem: ControlProblem,
    starts: Float[Array, "runs rollouts dx"],
    horizon: int,
    keys: Key[Array, "runs rollouts"],
    goals: Float[Array, "runs rollouts dg"] | None = None,
) -> ImaginedReturns:
    """Both values of a policy that begins in `starts`; `problem` says what counts, and holds a `Pessimistic` imagination."""
    assert isinstance(problem.imagination, Pessimistic)
    problem = replace(problem, imagination=replace(problem.imagination, opposing_steps=SEARCH_STEPS))
    rollouts = starts.shape[1]
    opponents = 2 + len(_corners(problem.state_dim)) + _trained_opponent(policy)
    against_each = lambda array: jnp.concatenate([array] * opponents, axis=1)
    opponent = jnp.broadcast_to(jnp.repeat(jnp.arange(opponents), rollouts), (len(starts), opponents * rollouts))
    aims = None if goals is None else against_each(goals)
    found = _returns(policy, problem, horizon, against_each(starts), against_each(keys), opponent, aims)
    found = np.asarray(found).reshape(len(starts), opponents, rollouts)
    # an opponent may always do nothing
    return ImaginedReturns(found[:, 0].mean(axis=1), found.min(axis=1).mean(axis=1))


def with_share(posterior: Posterior, beta: Float[Array, "*runs dx"], share: float) -> Confident:
    """A posterior that holds less for plausible: this share of a region of `beta`, or of its own."""
    if isinstance(posterior, Confident):
        return Confident(posterior.posterior, share * posterior.beta)
    return Confident(posterior, share * beta)


def most_robust(policies: Sequence[Policy], values: Sequence[ImaginedReturns]) -> tuple[Policy, ImaginedReturns]:
    """For each run the policy whose guaranteed value is best, and its values."""
    # a policy that leads to no number guarantees nothing
    best = np.argmax([np.nan_to_num(value.guaranteed, nan=-np.inf) for value in values], axis=0)
    of_best = lambda *leaves: jnp.stack(leaves)[best, np.arange(len(best))]
    return jax.tree.map(of_best, *policies), ImaginedReturns(*map(np.asarray, map(of_best, *values)))


@eqx.filter_jit
def _returns(policy: Policy, problem: ControlProblem, horizon: int, starts: Array, keys: Array, opponent: Array, goals):
    """Of each rollout [S, R], against none (0), an opponent that searches (1), a steady push or the one of the training."""

    def one(run, start, key, opponent, goal):
        policy, problem = run[0].aimed_at(goal), replace(run[1], goal=goal)
        plan_key = for_purpose(key, "plan")

        def step(carry, t):
            x, state = carry
            u, answer, state = _moves(policy, problem, state, x, jax.random.fold_in(plan_key, t))
            answers = [jnp.zeros_like(answer), answer, *_corners(problem.state_dim).astype(answer.dtype)]
            answers += [policy.answer(x)] if _trained_opponent(policy) else []
            x_next, reward = _certain_step(problem, x, jnp.concatenate([u, jnp.stack(answers)[opponent]]))
            return (x_next, state), reward

        return jnp.sum(jax.lax.scan(step, (start, policy.start()), jnp.arange(horizon))[1])

    return side_by_side(one)((policy, problem), starts, keys, opponent, goals)


def _corners(state_dim: int) -> Float[np.ndarray, "corners dx"]:
    """Corners of [-1, 1]^dx, each with its opposite."""
    if 2**state_dim <= MOST_CORNERS:
        return np.array(list(itertools.product((-1.0, 1.0), repeat=state_dim)))
    drawn = np.random.default_rng(0).choice([-1.0, 1.0], (MOST_CORNERS // 2, state_dim))
    return np.concatenate([drawn, -drawn])


def _trained_opponent(policy: Policy) -> TypeGuard[ActorPolicy]:
    return isinstance(policy, ActorPolicy) and policy.opponent is not None


def _certain_step(problem: ControlProblem, x: Float[Array, " dx"], control: Float[Array, " dc"]):
    """The next state and the reward, nothing left to chance."""
    nothing = jnp.zeros(problem.state_dim, x.dtype)
    return problem.step(x, control, jnp.asarray(0), Chance(nothing, nothing, jnp.zeros((), x.dtype)))


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
            x_next, reward = _certain_step(problem, x, jnp.concatenate([u, eta]))
            return (x_next, state), reward

        return jax.lax.scan(step, (x, state), eta)[1][None]

    unopposed = jnp.zeros((LOOK_AHEAD, problem.opposing_dim), x.dtype)
    answer, _ = worst_answer(rewards, unopposed, SEARCH_STEPS)
    u, state, _ = policy.act(state, x, key)
    return u, answer[0], state
