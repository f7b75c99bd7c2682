"""Measurements, and what is known of the system that they are of.

A `Trajectory` holds the measurements of one round, `Data` everything that one seed has collected. `SystemSpec` names states and
actions, and its `StateLayout` says how a state is made of an agent and objects.
"""

from sonde._internal.past import Past
from sonde.data._data import HELD_OUT_BLOCK as HELD_OUT_BLOCK
from sonde.data._data import Data, SystemSpec, Trajectory
from sonde.data._layout import Body, StateLayout

__all__ = ["Body", "Data", "Past", "StateLayout", "SystemSpec", "Trajectory"]
