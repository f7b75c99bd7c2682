"""Analysis of a learned system: equilibria, stability, controllability, sensitivity; regulators, and what they promise."""

from sonde.analysis._linear import Controllability, Linearisation
from sonde.analysis._lqr import Regulator, Weights, lqr
from sonde.analysis._plausible import Promise
from sonde.analysis._point import OperatingPoint
from sonde.analysis._responses import FrequencyResponse, StepResponse, frequency_response, step_response, to_control
from sonde.analysis._robust import robust_lqr
from sonde.analysis._schedule import gain_schedule, hold
from sonde.analysis._system import Equilibrium, LearnedSystem, Sensitivity

__all__ = [
    "Controllability",
    "Equilibrium",
    "FrequencyResponse",
    "LearnedSystem",
    "Linearisation",
    "OperatingPoint",
    "Promise",
    "Regulator",
    "Sensitivity",
    "StepResponse",
    "Weights",
    "frequency_response",
    "gain_schedule",
    "hold",
    "lqr",
    "robust_lqr",
    "step_response",
    "to_control",
]
