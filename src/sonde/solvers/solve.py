"""Solve the control problems of S runs in lockstep."""

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Key

from sonde.data import Data
from sonde.errors import SondeError
from sonde.lockstep import lockstep
from sonde.policies import Policy
from sonde.solvers.base import ControlProblem, Planner, Solver


@eqx.filter_jit
def _solve(solver: Solver, problem: ControlProblem, data: Data, keys: Key[Array, " runs"]) -> Policy:
    return lockstep(solver.policy)(problem, data, keys)


def solve(solver: Solver, problem: ControlProblem, data: Data, keys: Key[Array, " runs"]) -> Policy:
    """A policy for each run: `problem` and `data` carry the leading axis S on their arrays."""
    if isinstance(solver, Planner):  # nothing to compute yet
        return solver.policy(problem, data, keys)
    policy = _solve(solver, problem, data, keys)
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(policy)):
        raise SondeError(f"solver: {type(solver).__name__} diverged, its policy is not finite; lower its learning rates")
    return policy
