"""What a policy is worth on the model: taken at its word, and in the worst case that it holds for plausible.

The opponent answers every step of the policy: it looks ahead as far as the policy's own plan (or, of a policy without one,
some steps under that policy) and chooses the eta in [-1, 1]^dx that hurts most. Others never change their eta, a corner: a
policy that plans anew makes up for single blows better than for a steady push. A policy that was trained against an opponent
has to face that one too. What the policy still brings against the worst of them is its guaranteed value. It is a guarantee if
the confidence region holds the truth and no opponent is stronger; the first is what `beta` claims, the second is what can be
found.
"""

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeGuard

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from sonde.calibration import Confident
from sonde.imagination import Chance, Pessimistic
from sonde.lockstep import side_by_side
from sonde.models.base import Posterior
from sonde.policies import Policy
from sonde.randomness import for_purpose
from sonde.solvers.actor import ActorPolicy
from sonde.solvers.base import ControlProblem, PlanningPolicy, planned_actions
from sonde.solvers.opponent import worst_answer

NOBODY, SEARCHING = 0, 1  # numbers of opponents; steady ones follow
SEARCH_STEPS = 3
"""Steps of the opponent's search for each answer; only one plan is answered here, so it may take its time."""
MOST_CORNERS = 8
"""Opponents that never change their eta; all corners of up to three dimensions, else some of them."""
CAUTIONS = (0.5, 1.0)
"""Shares of the confidence region that plans are made against, beside the plain plan. A plan commits to its actions and cannot
react, so one against all of the region may dare too little: the policy is taken whose guaranteed value, against all of it, is
best. A policy that is trained reacts, and is trained against all of it."""
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
    return most_robust([policy], problem, starts, horizon, keys, goals)[1]


def with_share(posterior: Posterior, beta: Float[Array, "*runs dx"], share: float) -> Confident:
    """A posterior that holds less for plausible: this share of a region of `beta`, or of its own."""
    if isinstance(posterior, Confident):
        return Confident(posterior.posterior, share * posterior.beta)
    return Confident(posterior, share * beta)


class OneOf(Policy):
    """Policies of which each run follows one."""

    policies: tuple[Policy, ...]
    number: Int[Array, "*runs"]
    """Which one."""

    def aimed_at(self, goal: Float[Array, "*runs dg"] | None) -> "OneOf":
        """All of them at this goal."""
        return OneOf(tuple(policy.aimed_at(goal) for policy in self.policies), self.number)

    def start(self) -> tuple:
        """The state of each."""
        return tuple(policy.start() for policy in self.policies)

    def act(
        self, state: tuple, x: Float[Array, " dx"], key: Key[Array, ""]
    ) -> tuple[Float[Array, " du"], tuple, Float[Array, ""]]:
        """What the one does; the states of the others stay as they are."""

        def act_as(number: int) -> tuple[Array, tuple, Array]:
            u, next_state, planned = self.policies[number].act(state[number], x, key)
            return u, (*state[:number], next_state, *state[number + 1 :]), planned

        return jax.lax.switch(self.number, [functools.partial(act_as, number) for number in range(len(self.policies))])


def most_robust(
    policies: Sequence[Policy],
    problem: ControlProblem,
    starts: Float[Array, "runs rollouts dx"],
    horizon: int,
    keys: Key[Array, "runs rollouts"],
    goals: Float[Array, "runs rollouts dg"] | None = None,
    known: ImaginedReturns | None = None,
) -> tuple[Policy, ImaginedReturns]:
    """For each run the policy whose guaranteed value is best (the first of them), and its values.

    Policies meet their opponents one by one, whichever looks best by then: an opponent can only lower what a policy guarantees,
    so that those which lose need not meet all of them. `known` are the values of the first policy, if they are.
    """
    assert isinstance(problem.imagination, Pessimistic)
    problem = replace(problem, imagination=replace(problem.imagination, opposing_steps=SEARCH_STEPS))
    met: list[list[np.ndarray]] = [[] for _ in policies]  # what each opponent so far has left [S, R]

    def values(number: int) -> ImaginedReturns:
        if number == 0 and known is not None:
            return known
        if not met[number]:
            return ImaginedReturns(*np.full((2, len(starts)), np.inf))
        # an opponent may always do nothing
        return ImaginedReturns(met[number][NOBODY].mean(axis=1), np.min(met[number], axis=0).mean(axis=1))

    while True:
        found = [values(number) for number in range(len(policies))]
        # a policy that leads to no number guarantees nothing
        best = np.argmax([np.nan_to_num(value.guaranteed, nan=-np.inf, posinf=np.inf) for value in found], axis=0)
        waiting = [i for i in best if len(met[i]) < _opponents(policies[i], problem) and found[i] is not known]
        if not waiting:
            break
        policy, opponent = policies[waiting[0]], jnp.asarray(len(met[waiting[0]]))
        met[waiting[0]].append(np.asarray(_returns(policy, problem, horizon, starts, keys, opponent, goals)))
    of_best = lambda *arrays: np.stack(arrays)[best, np.arange(len(best))]
    policy = policies[best[0]] if np.all(best == best[0]) else OneOf(tuple(policies), jnp.asarray(best))
    return policy, ImaginedReturns(*map(of_best, *found))


def _opponents(policy: Policy, problem: ControlProblem) -> int:
    """How many there are, nobody included."""
    return 2 + len(_corners(problem.state_dim)) + _trained_opponent(policy)


@eqx.filter_jit
def _returns(policy: Policy, problem: ControlProblem, horizon: int, starts: Array, keys: Array, opponent: Array, goals):
    """Of each rollout [S, R], against none (0), an opponent that searches (1), a steady push or the one of the training."""

    def one(run, start, key, goal):
        policy, problem = run[0].aimed_at(goal), replace(run[1], goal=goal)
        plan_key = for_purpose(key, "plan")
        nothing = jnp.zeros(problem.opposing_dim, start.dtype)
        pushes = jnp.stack([nothing, nothing, *_corners(problem.state_dim), nothing])

        def step(carry, t):
            x, state = carry
            key = jax.random.fold_in(plan_key, t)
            u, next_state, search = _moves(policy, problem, state, x, key)
            answer = jax.lax.cond(opponent == SEARCHING, search, lambda: pushes[opponent])
            if _trained_opponent(policy):
                answer = jnp.where(opponent == len(pushes) - 1, policy.answer(x), answer)
            x_next, reward = _certain_step(problem, x, jnp.concatenate([u, answer]))
            return (x_next, next_state), reward

        return jnp.sum(jax.lax.scan(step, (start, policy.start()), jnp.arange(horizon))[1])

    return side_by_side(one)((policy, problem), starts, keys, goals)


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
) -> tuple[Float[Array, " du"], Any, Callable[[], Float[Array, " dx"]]]:
    """The policy's action, its next state, and how an opponent that searches finds its answer."""
    if isinstance(policy, PlanningPolicy):
        plan, next_state = policy.planner.plan(policy.problem, state, x, policy.plan_key(key))
        actions = planned_actions(policy.problem, plan)
        return actions[0], next_state, lambda: problem.opposed(x, actions, key)[0][0]

    def rewards(eta: Float[Array, "H dx"]) -> Float[Array, "1 H"]:
        def step(carry, inputs):
            x, state = carry
            t, eta = inputs
            u, state, _ = policy.act(state, x, jax.random.fold_in(key, t))
            x_next, reward = _certain_step(problem, x, jnp.concatenate([u, eta]))
            return (x_next, state), reward

        return jax.lax.scan(step, (x, state), (jnp.arange(LOOK_AHEAD), eta))[1][None]

    u, next_state, _ = policy.act(state, x, jax.random.fold_in(key, 0))  # the first step that the opponent looks at
    unopposed = jnp.zeros((LOOK_AHEAD, problem.opposing_dim), x.dtype)
    return u, next_state, lambda: worst_answer(rewards, unopposed, SEARCH_STEPS)[0][0]
