"""Analysis of a learned system: equilibria, stability, controllability, sensitivity."""

from sonde.analysis._linear import Controllability, Linearisation
from sonde.analysis._system import Equilibrium, LearnedSystem, Sensitivity

__all__ = ["Controllability", "Equilibrium", "LearnedSystem", "Linearisation", "Sensitivity"]
