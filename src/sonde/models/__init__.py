"""Models of an unknown system. To add one, write its class in a file of its own and a line in `MODELS`."""

from sonde.models._base import Prediction, Members, Model, Posterior
from sonde.models._ensemble import ProbabilisticEnsemble
from sonde.models._gaussian_process import GaussianProcess

MODELS: dict[str, type[Model]] = {"gp": GaussianProcess, "pe": ProbabilisticEnsemble}

__all__ = ["MODELS", "Prediction", "GaussianProcess", "Members", "Model", "Posterior", "ProbabilisticEnsemble"]
