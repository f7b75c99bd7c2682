"""Runs on disk: configs, presets, measurements in and out, checkpoints, resuming, callbacks, figures, and sweeps.

Names are imported when they are first used: a run needs neither the analysis with its optimisers nor a progress display.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sonde.runs._analysis import learned_system as learned_system
    from sonde.runs._callbacks import Callback as Callback
    from sonde.runs._config import RunConfig as RunConfig
    from sonde.runs._config import TaskSettings as TaskSettings
    from sonde.runs._experiment import Experiment as Experiment
    from sonde.runs._fit import fit as fit
    from sonde.runs._initial_data import read_measurements as read_measurements
    from sonde.runs._judgement import Judgement as Judgement
    from sonde.runs._loaded import Run as Run
    from sonde.runs._loaded import RunData as RunData
    from sonde.runs._loaded import load as load
    from sonde.runs._presets import PRESETS as PRESETS
    from sonde.runs._presets import default_config as default_config
    from sonde.runs._presets import preset as preset
    from sonde.runs._progress import ProgressDisplay as ProgressDisplay
    from sonde.runs._run import explore as explore
    from sonde.runs._simulation import Simulation as Simulation
    from sonde.runs._together import explore_together as explore_together
    from sonde.runs.report import write_report as write_report

_HOMES = {
    "PRESETS": "_presets",
    "Callback": "_callbacks",
    "Experiment": "_experiment",
    "Judgement": "_judgement",
    "ProgressDisplay": "_progress",
    "Run": "_loaded",
    "RunConfig": "_config",
    "RunData": "_loaded",
    "Simulation": "_simulation",
    "TaskSettings": "_config",
    "default_config": "_presets",
    "explore": "_run",
    "explore_together": "_together",
    "fit": "_fit",
    "learned_system": "_analysis",
    "load": "_loaded",
    "preset": "_presets",
    "read_measurements": "_initial_data",
    "write_report": "report",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"sonde.runs.{_HOMES[name]}"), name)
