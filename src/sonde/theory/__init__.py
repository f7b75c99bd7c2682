"""What the theory of the paper says, computed; and the learned system, studied.

`information`: information gains and their maxima. `confidence`: beta. `rates`: the theorems' bounds and how fast they fall.
`derivatives`: what is believed of a system's Jacobians. `analysis`: equilibria, stability, controllability, sensitivity.
`logged`: what a run notes of all this after each episode. Everything is in double precision and for one run (`one_run`).
"""

from sonde.theory.analysis import Equilibrium, LearnedSystem, Sensitivity
from sonde.theory.confidence import Confidence, held_out_beta, mean_norm, rkhs_beta
from sonde.theory.derivatives import JacobianBelief, believe_jacobian
from sonde.theory.information import (
    GREEDY_SHARE,
    Prior,
    exact_information_gain,
    greedy_information,
    greedy_model_complexity,
    information_bound,
    model_complexity,
    one_run,
)
from sonde.theory.linear import Controllability, Linearisation
from sonde.theory.rates import Decay, bound_exponent, fit_decay, information_exponent, information_growth, theorem_bound

__all__ = [
    "GREEDY_SHARE",
    "Confidence",
    "Controllability",
    "Decay",
    "Equilibrium",
    "JacobianBelief",
    "LearnedSystem",
    "Linearisation",
    "Prior",
    "Sensitivity",
    "believe_jacobian",
    "bound_exponent",
    "exact_information_gain",
    "fit_decay",
    "greedy_information",
    "greedy_model_complexity",
    "held_out_beta",
    "information_bound",
    "information_exponent",
    "information_growth",
    "mean_norm",
    "model_complexity",
    "one_run",
    "rkhs_beta",
    "theorem_bound",
]
