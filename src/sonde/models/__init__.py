"""Models of an unknown system. To add one, write its class in a file of its own and a line in `MODELS`."""

from sonde.models.base import Belief, Model, Posterior
from sonde.models.gp import GaussianProcess

MODELS: dict[str, type[Model]] = {"gp": GaussianProcess}

__all__ = ["MODELS", "Belief", "GaussianProcess", "Model", "Posterior"]
