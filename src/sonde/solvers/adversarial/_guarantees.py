"""Returns of a policy on the model: as the model predicts, and in the worst case that it considers plausible.

Several adversaries are tried. One searches at every step of the policy: it looks ahead as far as the policy's own plan (or, if
the policy does not plan, a number of steps under that policy) and chooses the eta in [-1, 1]^dx that hurts most. Others keep
one eta, a corner of [-1, 1]^dx, because a policy that plans again at every step compensates for single disturbances better than
for a constant one. A policy that was trained against an adversary meets that one too. The guaranteed return is what remains
against the worst of them. It is a guarantee if the confidence region contains the truth and no adversary is stronger: the first
is what `beta` claims, the second is only as good as the search.
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
from sonde.solvers._base import PlanningPolicy
from sonde.solvers._policy import Policy
from sonde.solvers._problem import ControlProblem
from sonde.solvers._worst_case import worst_case

SEARCHING = 1  # number of the adversary that searches; number 0 does nothing, and constant ones follow
SEARCH_STEPS = 3
"""Steps of the adversary's search at each step of the policy; more than in planning, because only one plan is attacked."""
MAX_CORNERS = 8
"""Number of constant adversaries: all corners in up to three dimensions, otherwise some of them."""
REGION_SHARES = (0.5, 1.0)
"""Shares of the confidence region that cautious plans are made against. A plan does not anticipate that it will be revised, so
one against the whole region may be too cautious: of these and the plain plan, the one with the best guaranteed return against
the whole region is taken. A trained policy reacts to the state, and is trained against the whole region."""
LOOK_AHEAD = 20
"""Steps that the searching adversary looks ahead if the policy does not plan."""


@dataclass(frozen=True)
class ModelReturns:
    """Returns of a policy on the model."""

    by_adversary: Float[np.ndarray, "adversaries S R"]
    """Return of each rollout against each adversary, the first of which does nothing."""

    @property
    def nominal(self) -> Float[np.ndarray, " S"]:
        """Mean return of each seed if the model's mean is the truth."""
        return self.by_adversary[0].mean(axis=1)

    @property
    def guaranteed(self) -> Float[np.ndarray, " S"]:
        """Mean return of each seed against the worst adversary of each rollout; NaN if any is NaN.

        It bounds the true return from below only if the confidence region holds the truth and no stronger adversary exists.
        """
        return self.by_adversary.min(axis=0).mean(axis=1)


def with_region_share(posterior: Posterior, beta: Float[Array, "*seeds dx"], share: float) -> PosteriorWithBeta:
    """Shrink the confidence region of a posterior.

    Args:
        posterior: The posterior.
        beta: Half-width of the region in epistemic stds, unless the posterior has its own.
        share: Factor on the half-width.
    """
    if isinstance(posterior, PosteriorWithBeta):
        return PosteriorWithBeta(posterior.posterior, share * posterior.beta)
    return PosteriorWithBeta(posterior, share * beta)


class PolicyPerSeed(Policy):
    """Several policies, of which each seed follows one."""

    policies: tuple[Policy, ...]
    index: Int[Array, "*seeds"]
    """Number of the policy that is followed."""

    def with_goal(self, goal: Float[Array, "*seeds dg"] | None) -> "PolicyPerSeed":
        """All of the policies with this goal."""
        return PolicyPerSeed(tuple(policy.with_goal(goal) for policy in self.policies), self.index)

    def initial_state(self) -> tuple:
        """The initial state of each policy."""
        return tuple(policy.initial_state() for policy in self.policies)

    def act(
        self, state: tuple, x: Float[Array, " dx"], key: Key[Array, ""]
    ) -> tuple[Float[Array, " du"], tuple, Float[Array, ""]]:
        """Act as the policy that is followed; the states of the others do not change."""

        def act_as(number: int) -> tuple[Array, tuple, Array]:
            u, next_state, planned = self.policies[number].act(state[number], x, key)
            return u, (*state[:number], next_state, *state[number + 1 :]), planned

        return jax.lax.switch(self.index, [functools.partial(act_as, number) for number in range(len(self.policies))])


def most_robust(
    policies: Sequence[Policy],
    problem: ControlProblem,
    starts: Float[Array, "seeds rollouts dx"],
    horizon: int,
    keys: Key[Array, "seeds rollouts"],
    goals: Float[Array, "seeds rollouts dg"] | None = None,
    known: ModelReturns | None = None,
) -> tuple[Policy, ModelReturns]:
    """For each seed, find the policy with the best guaranteed return; ties go to the first.

    Another adversary can only lower a guaranteed return. So policies meet adversaries one by one: always the policy that is
    best so far, and first the adversaries that hurt the first policy most. A policy that is not the best need not meet all.

    Args:
        policies: The candidates, with a leading axis S on their arrays.
        problem: The control problem with a `Pessimistic` imagination, with a leading axis S.
        starts: First state of each rollout.
        horizon: Steps of each rollout.
        keys: Randomness of each rollout.
        goals: Goal of each rollout, if the task has goals.
        known: The returns of the first policy, if they are known already.

    Returns:
        The policy that each seed follows, and its returns.
    """
    assert isinstance(problem.imagination, Pessimistic)
    problem = replace(problem, imagination=replace(problem.imagination, adversary_steps=SEARCH_STEPS))
    adversaries = 2 + len(_corners(problem.state_dim)) + _has_trained_adversary(policies[0])

    def returns(policy: Policy, adversary: int) -> np.ndarray:
        return np.asarray(_returns(policy, problem, horizon, starts, keys, jnp.asarray(adversary), goals))

    first = np.stack([returns(policies[0], number) for number in range(adversaries)]) if known is None else known.by_adversary
    found, best = _tournament(first, len(policies), lambda policy, adversary: returns(policies[policy], adversary))
    followed, index = np.unique(best, return_inverse=True)  # in lockstep, each of them plans for every seed
    kept = tuple(policies[each] for each in followed)
    policy = kept[0] if len(kept) == 1 else PolicyPerSeed(kept, jnp.asarray(index, jnp.int32))
    return policy, ModelReturns(np.stack([found[number][:, seed] for seed, number in enumerate(best)], axis=1))


def _tournament(
    first: Float[np.ndarray, "adversaries S R"], count: int, returns: Callable[[int, int], np.ndarray]
) -> tuple[list[np.ndarray], np.ndarray]:
    """The returns [adversaries, S, R] of each of `count` policies as far as needed, and the best policy of each seed [S]."""
    adversaries, order = len(first), np.argsort(first.mean(axis=(1, 2))).tolist()
    found, met = [first] + [np.full_like(first, np.inf) for _ in range(count - 1)], [adversaries] + [0] * (count - 1)
    while True:
        guaranteed = [ModelReturns(each).guaranteed for each in found]
        # a policy that leads to NaN guarantees nothing
        best = np.argmax(np.where(np.isnan(guaranteed), -np.inf, guaranteed), axis=0)
        waiting = [number for number in best if met[number] < adversaries]
        if not waiting:
            return found, best
        number = waiting[0]
        found[number][order[met[number]]] = returns(number, order[met[number]])
        met[number] += 1


@eqx.filter_jit
def _returns(policy: Policy, problem: ControlProblem, horizon: int, starts: Array, keys: Array, adversary: Array, goals):
    """Returns [S, R] against the adversary of this number: none (0), searching (1), constant (2, ...), trained (the last)."""

    def one(shared, start, key, goal):
        policy, problem = shared[0].with_goal(goal), replace(shared[1], goal=goal)
        plan_key = for_purpose(key, "plan")
        zero = jnp.zeros(problem.adversary_dim, start.dtype)
        constants = jnp.stack([zero, zero, *_corners(problem.state_dim), zero])

        def step(carry, t):
            x, state = carry
            key = jax.random.fold_in(plan_key, t)
            u, next_state, search = _act(policy, problem, state, x, key)
            eta = jax.lax.cond(adversary == SEARCHING, search, lambda: constants[adversary])
            if _has_trained_adversary(policy):
                eta = jnp.where(adversary == len(constants) - 1, policy.adversary_controls(x), eta)
            x_next, reward = _step_without_noise(problem, x, jnp.concatenate([u, eta]))
            return (x_next, next_state), reward

        return jnp.sum(jax.lax.scan(step, (problem.start(start), policy.initial_state()), jnp.arange(horizon))[1])

    return lockstep_rollouts(one)((policy, problem), starts, keys, goals)


@eqx.filter_jit
def mean_returns(policy: Policy, problem: ControlProblem, horizon: int, starts: Array, keys: Array, goals: Array | None):
    """Returns of a policy on the model's mean, without an adversary.

    Args:
        policy: The policy, with a leading axis S on its arrays.
        problem: The control problem with a `Pessimistic` imagination, whose adversary does nothing, with a leading axis S.
        horizon: Steps of each rollout.
        starts: First state of each rollout [S, R, dx].
        keys: Randomness of each rollout [S, R].
        goals: Goal of each rollout [S, R, dg], if the task has goals.

    Returns:
        The return of each rollout [S, R].
    """

    def one(shared, start, key, goal):
        policy, problem = shared[0].with_goal(goal), replace(shared[1], goal=goal)
        plan_key = for_purpose(key, "plan")

        def step(carry, t):
            x, state = carry
            u, next_state, _ = policy.act(state, x, jax.random.fold_in(plan_key, t))
            x_next, reward = _step_without_noise(problem, x, jnp.concatenate([u, jnp.zeros(problem.adversary_dim, u.dtype)]))
            return (x_next, next_state), reward

        return jnp.sum(jax.lax.scan(step, (problem.start(start), policy.initial_state()), jnp.arange(horizon))[1])

    return lockstep_rollouts(one)((policy, problem), starts, keys, goals)


def _corners(state_dim: int) -> Float[np.ndarray, "corners dx"]:
    """Corners of [-1, 1]^dx, each with its opposite."""
    if 2**state_dim <= MAX_CORNERS:
        return np.array(list(itertools.product((-1.0, 1.0), repeat=state_dim)))
    drawn = np.random.default_rng(0).choice([-1.0, 1.0], (MAX_CORNERS // 2, state_dim))
    return np.concatenate([drawn, -drawn])


def _has_trained_adversary(policy: Policy) -> TypeGuard[ActorPolicy]:
    return isinstance(policy, ActorPolicy) and policy.adversary is not None


def _step_without_noise(problem: ControlProblem, x: Float[Array, " dx"], control: Float[Array, " dc"]):
    """The next state and the reward, with all noise draws zero."""
    zero = jnp.zeros(problem.state_dim, x.dtype)
    return problem.step(x, control, jnp.asarray(0), NoiseDraws(zero, zero, jnp.zeros((), x.dtype)))


def _act(
    policy: Policy, problem: ControlProblem, state: Any, x: Float[Array, " dx"], key: Key[Array, ""]
) -> tuple[Float[Array, " du"], Any, Callable[[], Float[Array, " dx"]]]:
    """The policy's action, its next state, and the search of the adversary for its eta at this step."""
    if isinstance(policy, PlanningPolicy):
        actions, next_state, _ = policy.plan(state, x, key)
        return actions[0], next_state, lambda: problem.worst_case_rewards(x, actions, key)[0][0]

    def rewards(eta: Float[Array, "H dx"]) -> Float[Array, "1 H"]:
        def step(carry, inputs):
            x, state = carry
            t, eta = inputs
            u, state, _ = policy.act(state, x, jax.random.fold_in(key, t))
            x_next, reward = _step_without_noise(problem, x, jnp.concatenate([u, eta]))
            return (x_next, state), reward

        return jax.lax.scan(step, (x, state), (jnp.arange(LOOK_AHEAD), eta))[1][None]

    # the key of the first step that the adversary looks at
    u, next_state, _ = policy.act(state, x, jax.random.fold_in(key, 0))
    zero = jnp.zeros((LOOK_AHEAD, problem.adversary_dim), x.dtype)
    return u, next_state, lambda: worst_case(rewards, zero, SEARCH_STEPS)[0][0]
