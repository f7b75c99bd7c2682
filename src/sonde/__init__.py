"""Sonde learns an unknown dynamical system by choosing the experiments that teach it most."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sonde._internal.errors import SondeError as SondeError
    from sonde.analysis import LearnedSystem as LearnedSystem
    from sonde.control._controller import Controller as Controller
    from sonde.control._rollout import rollout as rollout
    from sonde.data import Trajectory as Trajectory

__version__ = "0.2.0"

_EXPORTS = {
    "sonde._internal.errors": "SondeError",
    "sonde.runs._config": "RunConfig TaskSettings",
    "sonde.data": "Trajectory",
    "sonde.evaluation._evaluate": "TrueDynamics evaluate normalised_score",
    "sonde.explorer": "Explorer",
    "sonde.methods": "METHODS",
    "sonde.models": "Prediction GaussianProcess Model Posterior ProbabilisticEnsemble",
    "sonde.worlds._task": "GoalTask Task",
    "sonde.control._controller": "Controller",
    "sonde.runs._presets": "PRESETS preset",
    "sonde.control._rollout": "rollout",
    "sonde.runs._analysis": "learned_system",
    "sonde.runs._experiment": "Experiment",
    "sonde.solvers": "ICEM SAC Planner Solver",
    "sonde.analysis._system": "LearnedSystem",
    "sonde.worlds": "WORLDS Cheetah FetchConstruction GymWorld HostWorld JaxWorld MountainCar OwnSystem Pendulum Reacher Swimmer World",
}
_HOMES = {name: module for module, names in _EXPORTS.items() for name in names.split()}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
