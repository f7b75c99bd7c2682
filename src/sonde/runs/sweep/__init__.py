"""Sweeps: many runs, on this machine's processes and GPUs or on a Ray cluster.

A `Sweep` names configs. Their seeds are run in batches, each a folder like any run's and a process of its own, so a sweep can
be stopped at any time and continued. `Results` is the table of what all batches measured.
"""

from sonde.runs.sweep._backend import Backend
from sonde.runs.sweep._batch import Batch
from sonde.runs.sweep._local import LocalBackend
from sonde.runs.sweep._progress import SweepProgress
from sonde.runs.sweep._ray import RayBackend
from sonde.runs.sweep._results import Results
from sonde.runs.sweep._summary import FinalValue, final_values, print_summary
from sonde.runs.sweep._sweep import Sweep, run_sweep

__all__ = [
    "Backend",
    "Batch",
    "FinalValue",
    "LocalBackend",
    "RayBackend",
    "Results",
    "Sweep",
    "SweepProgress",
    "final_values",
    "print_summary",
    "run_sweep",
]
