"""Solve the control problems of S runs in lockstep."""

import equinox as eqx
from jaxtyping import Array, Key

from sonde.data import Data
from sonde.errors import SondeError
from sonde.lockstep import lockstep
from sonde.policies import Policy
from sonde.solvers.base import ControlProblem, Planner, PlanningPolicy, Solver


@eqx.filter_jit
def _solve(solver: Solver, problem: ControlProblem, data: Data, keys: Key[Array, " runs"]) -> Policy:
    return lockstep(solver.policy)(problem, data, keys)


def solve(solver: Solver, problem: ControlProblem, data: Data, keys: Key[Array, " runs"]) -> Policy:
    """A policy for each run: `problem` and `data` carry the leading axis S on their arrays."""
    if isinstance(solver, Planner):  # nothing to compute yet
        return PlanningPolicy(problem, solver)
    if solver.one_particle and problem.objective.compares_particles:
        raise SondeError(
            f"{type(solver).__name__} imagines one particle at a time and cannot maximise {type(problem.objective).__name__}, "
            "which compares several; take the solver icem"
        )
    return _solve(solver, problem, data, keys)
