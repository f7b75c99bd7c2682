"""Plans for the worst case that the model considers plausible, and what plans are worth then.

`score_on_model` runs a policy on the model, alone and against an adversary; `plan_robust_task` makes cautious policies and
chooses, for each seed, the one whose guaranteed return is largest.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from sonde._internal.precision import double_precision
from sonde._internal.randomness import rollout_keys
from sonde.control import SimulatorPool, start_states
from sonde.evaluation._evaluate import plan_task, with_projection
from sonde.evaluation._setup import Learned, TaskSetup
from sonde.evaluation._tasks import goals_for
from sonde.imagination import Pessimistic
from sonde.models import Posterior
from sonde.solvers import Planner, Policy
from sonde.solvers.adversarial import REGION_SHARES, ModelReturns, mean_returns, most_robust, with_region_share


class ScoredPolicy(NamedTuple):
    """A policy, and what it is worth on the model."""

    policy: Policy
    """The policy, with a leading axis S on its arrays."""
    returns: ModelReturns
    """Its return on the model's mean and its guaranteed return, per seed."""


@double_precision
def score_on_model(
    setup: TaskSetup,
    posterior: Posterior,
    keys: Key[Array, " seeds"],
    policy: Policy,
    adversary: Pessimistic,
    pool: SimulatorPool | None = None,
) -> ScoredPolicy:
    """Run a policy on the model, alone and against an adversary; of the true system, only the initial states are used.

    Args:
        setup: The task.
        posterior: What was learned, with a leading axis S.
        keys: Keys of the round, one per seed.
        policy: The policy, with a leading axis S on its arrays.
        adversary: The confidence region from which the adversary chooses, and how hard it searches.
        pool: Open simulators to reuse.

    Returns:
        The policy with its nominal and guaranteed returns [S].
    """
    return _most_robust(setup, posterior, keys, adversary, _Candidates([policy]), pool)


@double_precision
def plan_robust_task(
    setup: TaskSetup,
    learned: Learned,
    keys: Key[Array, " seeds"],
    adversary: Pessimistic,
    plain: ScoredPolicy,
    pool: SimulatorPool | None = None,
) -> ScoredPolicy:
    """Make policies for the plausible worst case, and choose for each seed the one with the largest guaranteed return.

    A planner makes one plan against each of `REGION_SHARES` of the confidence region, and the plain policy is a candidate too.
    A solver that trains a policy trains it once, against the whole region, and the plain policy is not considered.

    Args:
        setup: The task.
        learned: What was learned.
        keys: Keys of the round, one per seed.
        adversary: The confidence region from which the adversary chooses, and how hard it searches.
        plain: The policy planned on the model's mean, with its returns.
        pool: Open simulators to reuse.

    Returns:
        The chosen policies with their nominal and guaranteed returns [S].
    """
    plans = isinstance(setup.solver, Planner)
    beta = jnp.full((len(keys), setup.world.state_dim), adversary.beta)
    policies, known = ([plain.policy], plain.returns) if plans else ([], None)
    for share in REGION_SHARES if plans else REGION_SHARES[-1:]:
        narrowed = learned._replace(posterior=with_region_share(learned.posterior, beta, share))
        policies.append(plan_task(setup, narrowed, keys, adversary))
    return _most_robust(setup, learned.posterior, keys, adversary, _Candidates(policies, known), pool)


class _Candidates(NamedTuple):
    """Policies to choose from, and the returns of the first where they are known."""

    policies: list[Policy]
    known: ModelReturns | None = None


def _most_robust(
    setup: TaskSetup,
    posterior: Posterior,
    keys: Array,
    adversary: Pessimistic,
    candidates: _Candidates,
    pool: SimulatorPool | None,
) -> ScoredPolicy:
    """The best candidate of each seed, on the starts and goals that the evaluation will have."""
    each = rollout_keys(setup.keys(keys), range(setup.rollouts))
    goals = goals_for(setup.task, each)
    starts = start_states(setup.world, each, pool, setup.starts)
    problem = setup.problem(posterior.differentiable(), with_projection(adversary, setup.world))
    aims = None if goals is None else jnp.asarray(goals)
    return ScoredPolicy(
        *most_robust(candidates.policies, problem, starts, setup.horizon, each, goals=aims, known=candidates.known)
    )


@double_precision
def returns_on_mean(
    setup: TaskSetup, posterior: Posterior, keys: Key[Array, " seeds"], policy: Policy, pool: SimulatorPool | None = None
) -> np.ndarray:
    """Run a policy on the model's mean, as `score_on_model` does without an adversary; far less is compiled and computed.

    Args:
        setup: The task.
        posterior: What was learned, with a leading axis S.
        keys: Keys of the rollouts, with their starts and goals, one per seed.
        policy: The policy, with a leading axis S on its arrays.
        pool: Open simulators to reuse, for the initial states.

    Returns:
        What the model promises, mean over the rollouts [S].
    """
    each = rollout_keys(setup.keys(keys), range(setup.rollouts))
    goals = goals_for(setup.task, each)
    starts = start_states(setup.world, each, pool, setup.starts)
    problem = setup.problem(posterior, with_projection(Pessimistic(), setup.world))
    aims = None if goals is None else jnp.asarray(goals)
    return np.asarray(mean_returns(policy, problem, setup.horizon, starts, each, aims)).mean(axis=1)
