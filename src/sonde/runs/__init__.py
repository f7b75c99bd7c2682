"""Runs on disk: configs, presets, measurements in and out, checkpoints, resuming, callbacks, figures, and sweeps."""

from sonde.runs._analysis import learned_system
from sonde.runs._callbacks import Callback
from sonde.runs._config import RunConfig, TaskSettings
from sonde.runs._experiment import Experiment
from sonde.runs._initial_data import read_measurements
from sonde.runs._presets import PRESETS, default_config, preset
from sonde.runs._progress import ProgressDisplay
from sonde.runs._run import explore
from sonde.runs._together import explore_together

__all__ = [
    "PRESETS",
    "Callback",
    "Experiment",
    "ProgressDisplay",
    "RunConfig",
    "TaskSettings",
    "default_config",
    "explore",
    "explore_together",
    "learned_system",
    "preset",
    "read_measurements",
]
