"""Policies on the real system: controllers, rollouts, deadlines, and deployment without JAX (`sonde.control.deploy`).

Names are imported when they are first used, because `sonde.control.deploy` runs on computers that have numpy and little else.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sonde.control._controller import Controller as Controller
    from sonde.control._deadline import Timing as Timing
    from sonde.control._export import to_c as to_c
    from sonde.control._export import to_onnx as to_onnx
    from sonde.control._gain_schedule import GainSchedule as GainSchedule
    from sonde.control._linear_feedback import LinearFeedback as LinearFeedback
    from sonde.control._ongoing import Ongoing as Ongoing
    from sonde.control._rollout import MAX_COPIES as MAX_COPIES
    from sonde.control._rollout import OnStep as OnStep
    from sonde.control._rollout import RolloutSettings as RolloutSettings
    from sonde.control._rollout import rollout as rollout
    from sonde.control._rollout import run_rollouts as run_rollouts
    from sonde.control._rollout import start_states as start_states
    from sonde.control._simulators import SimulatorPool as SimulatorPool

_HOMES = {
    "Controller": "_controller",
    "GainSchedule": "_gain_schedule",
    "LinearFeedback": "_linear_feedback",
    "MAX_COPIES": "_rollout",
    "OnStep": "_rollout",
    "Ongoing": "_ongoing",
    "RolloutSettings": "_rollout",
    "SimulatorPool": "_simulators",
    "Timing": "_deadline",
    "start_states": "_rollout",
    "rollout": "_rollout",
    "run_rollouts": "_rollout",
    "to_c": "_export",
    "to_onnx": "_export",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"sonde.control.{_HOMES[name]}"), name)
