"""Trackers: callbacks that send what a run measures to TensorBoard, Weights & Biases or Trackio.

explore(config, "runs/opax", [TensorBoard(), WandB(project="pendulum")])

A `Tracker` goes on where its track ends, so a run that was killed has no gap and no double points in it. Whatever a tracker
fails with, the run goes on.
"""

from sonde.runs.trackers._names import TRACKERS
from sonde.runs.trackers._tensorboard import TensorBoard
from sonde.runs.trackers._tracker import Track, Tracker
from sonde.runs.trackers._trackio import Trackio
from sonde.runs.trackers._wandb import WandB

__all__ = ["TRACKERS", "TensorBoard", "Track", "Tracker", "Trackio", "WandB"]
