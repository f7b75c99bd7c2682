"""Solvers of optimal-control problems: problem in, policy out.

To write your own, subclass `Solver` or `Planner` as a frozen dataclass and pass an instance; `SOLVERS` only names the built-in
ones for the command line.
"""

from sonde.solvers._base import AnytimePlanner, Planner, PlanningPolicy, Solver
from sonde.solvers._fallback import Checked
from sonde.solvers._icem import ICEM
from sonde.solvers._policy import AnytimePolicy, CautiousPolicy, Policy, RandomPolicy
from sonde.solvers._problem import ControlProblem
from sonde.solvers._sac import SAC
from sonde.solvers._safety import Constraint, Safety, SafetySettings
from sonde.solvers._solve import solve

SOLVERS: dict[str, type[Solver]] = {"icem": ICEM, "sac": SAC}
"""Names of solvers for the command line."""

__all__ = [
    "ICEM",
    "SAC",
    "SOLVERS",
    "AnytimePlanner",
    "AnytimePolicy",
    "CautiousPolicy",
    "Checked",
    "Constraint",
    "ControlProblem",
    "Planner",
    "PlanningPolicy",
    "Policy",
    "RandomPolicy",
    "Safety",
    "SafetySettings",
    "Solver",
    "solve",
]
