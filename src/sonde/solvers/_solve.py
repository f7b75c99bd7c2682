"""Solve the control problems of S runs in lockstep."""

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


@eqx.filter_jit
def _solve(solver: Solver, problem: ControlProblem, data: Data, keys: Key[Array, " seeds"]) -> Policy:
    return lockstep(solver.policy)(problem, data, keys)


def solve(solver: Solver, problem: ControlProblem, data: Data, keys: Key[Array, " seeds"]) -> Policy:
    """A policy for each run: `problem` and `data` carry the leading axis S on their arrays."""
    if isinstance(solver, Planner):  # nothing to compute yet
        return solver.policy(problem, data, keys)
    policy = _solve(solver, problem, data, keys)
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(policy)):
        raise SondeError(f"solver: {type(solver).__name__} diverged, its policy is not finite; lower its learning rates")
    return policy
