"""What a policy is worth on the model: taken at its word, and in the worst case that it holds for plausible.

The adversary answers every step of the policy: it looks ahead as far as the policy's own plan (or, of a policy without one,
some steps under that policy) and chooses the eta in [-1, 1]^dx that hurts most. Others never change their eta, a corner: a
policy that plans anew makes up for single blows better than for a steady perturbation. A policy that was trained against an adversary
has to face that one too. What the policy still brings against the worst of them is its guaranteed value. It is a guarantee if
the confidence region holds the truth and no adversary is stronger; the first is what `beta` claims, the second is what can be
found.
"""

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from sonde._internal.lockstep import lockstep_rollouts
from sonde._internal.randomness import for_purpose
from sonde.imagination import NoiseDraws, Pessimistic
from sonde.models import Posterior
from sonde.models._calibration import PosteriorWithBeta
from sonde.solvers._actor import ActorPolicy
from sonde.solvers._base import PlanningPolicy, planned_actions
from sonde.solvers._policy import Policy
from sonde.solvers._problem import ControlProblem
from sonde.solvers._worst_case import worst_case

SEARCHING = 1  # the number of that adversary: the first does nothing, steady ones follow
SEARCH_STEPS = 3
"""Steps of the adversary's search for each answer; only one plan is answered here, so it may take its time."""
MOST_CORNERS = 8
"""Adversaries that never change their eta; all corners of up to three dimensions, else some of them."""
REGION_SHARES = (0.5, 1.0)
"""Shares of the confidence region that plans are made against, beside the plain plan. A plan commits to its actions and cannot
react, so one against all of the region may dare too little: the policy is taken whose guaranteed value, against all of it, is
best. A policy that is trained reacts, and is trained against all of it."""
LOOK_AHEAD = 20
"""Steps that an adversary looks ahead if the policy does not plan."""


@dataclass(frozen=True)
class ModelReturns:
    """What a policy brings on the model, per run [S]."""

    against: Float[np.ndarray, "adversaries S R"]
    """In each rollout against each adversary, of which the first does nothing."""

    @property
    def nominal(self) -> Float[np.ndarray, " S"]:
        """If the model's mean is the truth."""
        return self.against[0].mean(axis=1)

    @property
    def guaranteed(self) -> Float[np.ndarray, " S"]:
        """Against the worst adversary of each rollout; not a number is worse than any."""
        return self.against.min(axis=0).mean(axis=1)


def with_region_share(posterior: Posterior, beta: Float[Array, "*seeds dx"], share: float) -> PosteriorWithBeta:
    """A posterior that holds less for plausible: this share of a region of `beta`, or of its own."""
    if isinstance(posterior, PosteriorWithBeta):
        return PosteriorWithBeta(posterior.posterior, share * posterior.beta)
    return PosteriorWithBeta(posterior, share * beta)


class OneOf(Policy):
    """Policies of which each run follows one."""

    policies: tuple[Policy, ...]
    number: Int[Array, "*seeds"]
    """Which one."""

    def with_goal(self, goal: Float[Array, "*seeds dg"] | None) -> "OneOf":
        """All of them at this goal."""
        return OneOf(tuple(policy.with_goal(goal) for policy in self.policies), self.number)

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
    starts: Float[Array, "seeds rollouts dx"],
    horizon: int,
    keys: Key[Array, "seeds rollouts"],
    goals: Float[Array, "seeds rollouts dg"] | None = None,
    known: ModelReturns | None = None,
) -> tuple[Policy, ModelReturns]:
    """For each run the policy whose guaranteed value is best (the first of them), and its values.

    An adversary can only lower what a policy guarantees. So the others meet them one by one, whichever looks best by then, and
    those that hurt the first policy most come first: a policy that loses need not meet all of them. `known` are the values of
    the first policy, if they are.
    """
    assert isinstance(problem.imagination, Pessimistic)
    problem = replace(problem, imagination=replace(problem.imagination, adversary_steps=SEARCH_STEPS))
    adversaries = 2 + len(_corners(problem.state_dim)) + _has_trained_adversary(policies[0])

    def returns(policy: Policy, adversary: int) -> np.ndarray:
        return np.asarray(_returns(policy, problem, horizon, starts, keys, jnp.asarray(adversary), goals))

    first = np.stack([returns(policies[0], number) for number in range(adversaries)]) if known is None else known.against
    order = np.argsort(first.mean(axis=(1, 2))).tolist()
    found, met = [first] + [np.full_like(first, np.inf) for _ in policies[1:]], [adversaries] + [0] * len(policies[1:])
    while True:
        guaranteed = [ModelReturns(against).guaranteed for against in found]
        # a policy that leads to no number guarantees nothing
        best = np.argmax(np.where(np.isnan(guaranteed), -np.inf, guaranteed), axis=0)
        waiting = [number for number in best if met[number] < adversaries]
        if not waiting:
            break
        number = waiting[0]
        found[number][order[met[number]]] = returns(policies[number], order[met[number]])
        met[number] += 1
    followed, number = np.unique(best, return_inverse=True)  # in lockstep, each of them plans for every run
    kept = tuple(policies[each] for each in followed)
    policy = kept[0] if len(kept) == 1 else OneOf(kept, jnp.asarray(number, jnp.int32))
    return policy, ModelReturns(np.stack([found[number][:, run] for run, number in enumerate(best)], axis=1))


@eqx.filter_jit
def _returns(policy: Policy, problem: ControlProblem, horizon: int, starts: Array, keys: Array, adversary: Array, goals):
    """Of each rollout [S, R], against none (0), an adversary that searches (1), a steady perturbation or the one of the training."""

    def one(run, start, key, goal):
        policy, problem = run[0].with_goal(goal), replace(run[1], goal=goal)
        plan_key = for_purpose(key, "plan")
        nothing = jnp.zeros(problem.adversary_dim, start.dtype)
        perturbations = jnp.stack([nothing, nothing, *_corners(problem.state_dim), nothing])

        def step(carry, t):
            x, state = carry
            key = jax.random.fold_in(plan_key, t)
            u, next_state, search = _moves(policy, problem, state, x, key)
            response = jax.lax.cond(adversary == SEARCHING, search, lambda: perturbations[adversary])
            if _has_trained_adversary(policy):
                response = jnp.where(adversary == len(perturbations) - 1, policy.response(x), response)
            x_next, reward = _certain_step(problem, x, jnp.concatenate([u, response]))
            return (x_next, next_state), reward

        return jnp.sum(jax.lax.scan(step, (start, policy.start()), jnp.arange(horizon))[1])

    return lockstep_rollouts(one)((policy, problem), starts, keys, goals)


def _corners(state_dim: int) -> Float[np.ndarray, "corners dx"]:
    """Corners of [-1, 1]^dx, each with its opposite."""
    if 2**state_dim <= MOST_CORNERS:
        return np.array(list(itertools.product((-1.0, 1.0), repeat=state_dim)))
    drawn = np.random.default_rng(0).choice([-1.0, 1.0], (MOST_CORNERS // 2, state_dim))
    return np.concatenate([drawn, -drawn])


def _has_trained_adversary(policy: Policy) -> TypeGuard[ActorPolicy]:
    return isinstance(policy, ActorPolicy) and policy.adversary is not None


def _certain_step(problem: ControlProblem, x: Float[Array, " dx"], control: Float[Array, " dc"]):
    """The next state and the reward, nothing left to draws."""
    nothing = jnp.zeros(problem.state_dim, x.dtype)
    return problem.step(x, control, jnp.asarray(0), NoiseDraws(nothing, nothing, jnp.zeros((), x.dtype)))


def _moves(
    policy: Policy, problem: ControlProblem, state: Any, x: Float[Array, " dx"], key: Key[Array, ""]
) -> tuple[Float[Array, " du"], Any, Callable[[], Float[Array, " dx"]]]:
    """The policy's action, its next state, and how an adversary that searches finds its answer."""
    if isinstance(policy, PlanningPolicy):
        plan, next_state = policy.planner.plan(policy.problem, state, x, policy.plan_key(key))
        actions = planned_actions(policy.problem, plan)
        return actions[0], next_state, lambda: problem.worst_case_rewards(x, actions, key)[0][0]

    def rewards(eta: Float[Array, "H dx"]) -> Float[Array, "1 H"]:
        def step(carry, inputs):
            x, state = carry
            t, eta = inputs
            u, state, _ = policy.act(state, x, jax.random.fold_in(key, t))
            x_next, reward = _certain_step(problem, x, jnp.concatenate([u, eta]))
            return (x_next, state), reward

        return jax.lax.scan(step, (x, state), (jnp.arange(LOOK_AHEAD), eta))[1][None]

    u, next_state, _ = policy.act(state, x, jax.random.fold_in(key, 0))  # the first step that the adversary looks at
    nominal = jnp.zeros((LOOK_AHEAD, problem.adversary_dim), x.dtype)
    return u, next_state, lambda: worst_case(rewards, nominal, SEARCH_STEPS)[0][0]
