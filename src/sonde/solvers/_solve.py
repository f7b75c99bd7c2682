"""Solve the control problems of S seeds in lockstep."""

from typing import Literal

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Key

from sonde._internal.errors import SondeError
from sonde._internal.lockstep import lockstep
from sonde.data import Data
from sonde.solvers._base import Planner, Solver
from sonde.solvers._policy import Policy
from sonde.solvers._problem import ControlProblem

Purpose = Literal["policy", "exploration_policy", "first_policy"]
"""The method of `Solver` that makes the policy: for a task, for exploration, or for its first round."""


@eqx.filter_jit
def _solve(solver: Solver, purpose: Purpose, problem: ControlProblem, data: Data, keys: Key[Array, " seeds"]) -> Policy:
    return lockstep(getattr(solver, purpose))(problem, data, keys)


def solve(
    solver: Solver, problem: ControlProblem, data: Data, keys: Key[Array, " seeds"], purpose: Purpose = "policy"
) -> Policy:
    """Make a policy for each seed.

    Args:
        solver: The solver.
        problem: The control problem, with a leading axis S on its arrays.
        data: The measurements so far, with a leading axis S.
        keys: Randomness, one key per seed.
        purpose: What the policy is for.

    Returns:
        The policy, with a leading axis S on its arrays.
    """
    data = problem.visited(data)
    if isinstance(solver, Planner):  # nothing to compute before the first step
        return getattr(solver, purpose)(problem, data, keys)
    policy = _solve(solver, purpose, problem, data, keys)
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(policy)):
        raise SondeError(
            f"solver: expected a finite policy, but the training of {type(solver).__name__} diverged; lower its learning rates"
        )
    return policy
