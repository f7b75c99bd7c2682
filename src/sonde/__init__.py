"""Sonde learns an unknown dynamical system by choosing the experiments that teach it most."""

from sonde.config import RunConfig
from sonde.data import Trajectory
from sonde.errors import SondeError
from sonde.evaluate import TrueDynamics, evaluate, normalised_score
from sonde.explorer import Explorer
from sonde.methods import METHODS
from sonde.models import Belief, GaussianProcess, Model, Posterior, ProbabilisticEnsemble
from sonde.policies import Controller
from sonde.presets import PRESETS, preset
from sonde.rollout import rollout
from sonde.solvers import ICEM, Planner, Solver
from sonde.worlds import WORLDS, HostWorld, JaxWorld, OwnSystem, Pendulum, World

__version__ = "0.1.0"

__all__ = [
    "ICEM",
    "METHODS",
    "PRESETS",
    "WORLDS",
    "Belief",
    "Controller",
    "Explorer",
    "GaussianProcess",
    "HostWorld",
    "JaxWorld",
    "Model",
    "OwnSystem",
    "Pendulum",
    "Planner",
    "Posterior",
    "ProbabilisticEnsemble",
    "RunConfig",
    "Solver",
    "SondeError",
    "Trajectory",
    "TrueDynamics",
    "World",
    "evaluate",
    "normalised_score",
    "preset",
    "rollout",
]
