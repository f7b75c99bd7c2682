"""Sonde learns an unknown dynamical system by choosing the experiments that teach it most.

Names are imported when they are first used, because `load_policy` runs on computers that have numpy and little else.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sonde._internal.errors import SondeError as SondeError
    from sonde.analysis import LearnedSystem as LearnedSystem
    from sonde.control import Controller as Controller
    from sonde.control import SimulatorPool as SimulatorPool
    from sonde.control import rollout as rollout
    from sonde.control.deploy import load_policy as load_policy
    from sonde.data import SystemSpec as SystemSpec
    from sonde.data import Trajectory as Trajectory
    from sonde.evaluation import Learned as Learned
    from sonde.evaluation import Metric as Metric
    from sonde.evaluation import MetricSpec as MetricSpec
    from sonde.evaluation import TaskSetup as TaskSetup
    from sonde.evaluation import TrueDynamics as TrueDynamics
    from sonde.evaluation import evaluate as evaluate
    from sonde.explorer import Explorer as Explorer
    from sonde.methods import METHODS as METHODS
    from sonde.methods import Method as Method
    from sonde.models import Confidence as Confidence
    from sonde.models import GaussianProcess as GaussianProcess
    from sonde.models import ProbabilisticEnsemble as ProbabilisticEnsemble
    from sonde.runs import PRESETS as PRESETS
    from sonde.runs import Callback as Callback
    from sonde.runs import Experiment as Experiment
    from sonde.runs import Run as Run
    from sonde.runs import RunConfig as RunConfig
    from sonde.runs import explore as explore
    from sonde.runs import fit as fit
    from sonde.runs import learned_system as learned_system
    from sonde.runs import load as load
    from sonde.runs import preset as preset
    from sonde.solvers import ICEM as ICEM
    from sonde.solvers import SAC as SAC
    from sonde.worlds import GoalTask as GoalTask
    from sonde.worlds import OwnSystem as OwnSystem
    from sonde.worlds import Task as Task

__version__ = "0.2.0"

_EXPORTS = {
    "sonde._internal.errors": "SondeError",
    "sonde.analysis": "LearnedSystem",
    "sonde.control": "Controller SimulatorPool rollout",
    "sonde.control.deploy": "load_policy",
    "sonde.data": "SystemSpec Trajectory",
    "sonde.evaluation": "Learned Metric MetricSpec TaskSetup TrueDynamics evaluate",
    "sonde.explorer": "Explorer",
    "sonde.methods": "METHODS Method",
    "sonde.models": "Confidence GaussianProcess ProbabilisticEnsemble",
    "sonde.runs": "PRESETS Callback Experiment Run RunConfig explore fit learned_system load preset",
    "sonde.solvers": "ICEM SAC",
    "sonde.worlds": "GoalTask OwnSystem Task",
}
_HOMES = {name: module for module, names in _EXPORTS.items() for name in names.split()}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
