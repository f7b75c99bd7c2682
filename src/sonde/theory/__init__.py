"""Quantities of the OpAx paper's theory (Sukhija et al. 2023): information gains, confidence widths, the theorems' bounds."""

from sonde._internal.lockstep import one_seed
from sonde.models import Prior, held_out_beta, mean_norm, rkhs_beta
from sonde.theory._information import (
    GREEDY_FACTOR,
    exact_information_gain,
    greedy_information,
    greedy_model_complexity,
    information_bound,
    model_complexity,
)
from sonde.theory._rates import bound_exponent, information_exponent, information_growth, theorem_bound

__all__ = [
    "GREEDY_FACTOR",
    "Prior",
    "bound_exponent",
    "exact_information_gain",
    "greedy_information",
    "greedy_model_complexity",
    "held_out_beta",
    "information_bound",
    "information_exponent",
    "information_growth",
    "mean_norm",
    "model_complexity",
    "one_seed",
    "rkhs_beta",
    "theorem_bound",
]
