"""Sonde learns an unknown dynamical system by choosing the experiments that teach it most.

Names are imported when they are first used: `sonde.deploy` runs on computers that have numpy and little else.
"""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sonde.config import RunConfig, TaskSettings
    from sonde.data import Trajectory
    from sonde.errors import SondeError
    from sonde.evaluate import TrueDynamics, evaluate, normalised_score
    from sonde.explorer import Explorer
    from sonde.methods import METHODS
    from sonde.models import Belief, GaussianProcess, Model, Posterior, ProbabilisticEnsemble
    from sonde.objectives import GoalTask, Task
    from sonde.policies import Controller
    from sonde.presets import PRESETS, preset
    from sonde.rollout import rollout
    from sonde.runs.analysis import learned_system
    from sonde.runs.experiment import Experiment
    from sonde.solvers import ICEM, SAC, Planner, Solver
    from sonde.theory import LearnedSystem
    from sonde.worlds import (
        WORLDS,
        Cheetah,
        FetchConstruction,
        GymWorld,
        HostWorld,
        JaxWorld,
        MountainCar,
        OwnSystem,
        Pendulum,
        Reacher,
        Swimmer,
        World,
    )

__version__ = "0.1.0"

__all__ = [
    "ICEM",
    "METHODS",
    "PRESETS",
    "SAC",
    "WORLDS",
    "Belief",
    "Cheetah",
    "Controller",
    "Experiment",
    "Explorer",
    "FetchConstruction",
    "GaussianProcess",
    "GoalTask",
    "GymWorld",
    "HostWorld",
    "JaxWorld",
    "LearnedSystem",
    "Model",
    "MountainCar",
    "OwnSystem",
    "Pendulum",
    "Planner",
    "Posterior",
    "ProbabilisticEnsemble",
    "Reacher",
    "RunConfig",
    "Solver",
    "SondeError",
    "Swimmer",
    "Task",
    "TaskSettings",
    "Trajectory",
    "TrueDynamics",
    "World",
    "evaluate",
    "learned_system",
    "normalised_score",
    "preset",
    "rollout",
]

# the same as the imports above, which only type checkers read
_HOMES = {
    "sonde.config": ("RunConfig", "TaskSettings"),
    "sonde.data": ("Trajectory",),
    "sonde.errors": ("SondeError",),
    "sonde.evaluate": ("TrueDynamics", "evaluate", "normalised_score"),
    "sonde.explorer": ("Explorer",),
    "sonde.methods": ("METHODS",),
    "sonde.models": ("Belief", "GaussianProcess", "Model", "Posterior", "ProbabilisticEnsemble"),
    "sonde.objectives": ("GoalTask", "Task"),
    "sonde.policies": ("Controller",),
    "sonde.presets": ("PRESETS", "preset"),
    "sonde.rollout": ("rollout",),
    "sonde.runs.analysis": ("learned_system",),
    "sonde.runs.experiment": ("Experiment",),
    "sonde.solvers": ("ICEM", "SAC", "Planner", "Solver"),
    "sonde.theory": ("LearnedSystem",),
    "sonde.worlds": (
        "WORLDS",
        "Cheetah",
        "FetchConstruction",
        "GymWorld",
        "HostWorld",
        "JaxWorld",
        "MountainCar",
        "OwnSystem",
        "Pendulum",
        "Reacher",
        "Swimmer",
        "World",
    ),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


class _Package(ModuleType):
    """The package, with names that are imported when they are first used."""

    def __getattr__(self, name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(_HOME[name]), name)
        setattr(self, name, value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        # an import of the module sonde.rollout leaves that module here under the name of the function `rollout`
        if name in _HOME and isinstance(value, ModuleType):
            value = getattr(value, name)
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})


sys.modules[__name__].__class__ = _Package
