"""Optimal-control solvers. To add one, write its class in a file of its own and a line in `SOLVERS`."""

from sonde.solvers._base import ControlProblem, Planner, Solver
from sonde.solvers._icem import ICEM
from sonde.solvers._sac import SAC

SOLVERS: dict[str, type[Solver]] = {"icem": ICEM, "sac": SAC}

__all__ = ["ICEM", "SAC", "SOLVERS", "ControlProblem", "Planner", "Solver"]
