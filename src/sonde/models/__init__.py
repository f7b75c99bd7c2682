"""Models of an unknown system: what has been learned, and how certain it is.

To write your own, subclass `Model` as a frozen dataclass and pass an instance; `MODELS` only names the built-in ones for the
command line.
"""

from sonde.models._auto import Auto
from sonde.models._base import JacobianPrediction, MemberPredictions, Model, Posterior, Prediction
from sonde.models._beta import BETA_RULES, BetaRule, HeldOutBeta, RKHSBeta, held_out_beta, mean_norm, rkhs_beta
from sonde.models._calibration import Calibration
from sonde.models._confidence import Confidence
from sonde.models._gaussian_process import GaussianProcess
from sonde.models._kernels import KERNELS, RBF, Kernel, Linear, Matern32, Matern52
from sonde.models._known_physics import KnownPhysics
from sonde.models._prior import Prior
from sonde.models._probabilistic import ProbabilisticEnsemble
from sonde.models._relational import RelationalEnsemble

MODELS: dict[str, type[Model]] = {
    "gp": GaussianProcess,
    "pe": ProbabilisticEnsemble,
    "relational": RelationalEnsemble,
    "auto": Auto,
}
"""Names of models for the command line."""

__all__ = [
    "BETA_RULES",
    "KERNELS",
    "MODELS",
    "RBF",
    "Auto",
    "BetaRule",
    "Calibration",
    "Confidence",
    "GaussianProcess",
    "HeldOutBeta",
    "JacobianPrediction",
    "Kernel",
    "KnownPhysics",
    "Linear",
    "Matern32",
    "Matern52",
    "MemberPredictions",
    "Model",
    "Posterior",
    "Prediction",
    "Prior",
    "ProbabilisticEnsemble",
    "RKHSBeta",
    "RelationalEnsemble",
    "held_out_beta",
    "mean_norm",
    "rkhs_beta",
]
