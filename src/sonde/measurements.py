"""Measurements from and to files: .npz, .csv, and Minari datasets."""

from sonde.data import Trajectory
from sonde.worlds.base import World


def read_measurements(source: str, world: World) -> Trajectory:
    """The transitions of FILE.npz, FILE.csv or minari:DATASET."""
    raise NotImplementedError(source, world)
