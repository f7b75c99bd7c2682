"""Optimal-control solvers. To add one, write its class in a file of its own and a line in `SOLVERS`."""

from sonde.solvers.base import ControlProblem, Planner, Solver
from sonde.solvers.icem import ICEM

SOLVERS: dict[str, type[Solver]] = {"icem": ICEM}

__all__ = ["ICEM", "SOLVERS", "ControlProblem", "Planner", "Solver"]
