"""True systems. To add one, write its class in a file of its own and a line in `WORLDS`."""

from sonde.worlds.base import HostWorld, JaxWorld, Simulators, Stepped, Transitions, World
from sonde.worlds.own import OwnSystem
from sonde.worlds.pendulum import Pendulum

WORLDS: dict[str, type[World]] = {"pendulum": Pendulum, "own": OwnSystem}

__all__ = [
    "WORLDS",
    "HostWorld",
    "JaxWorld",
    "OwnSystem",
    "Pendulum",
    "Simulators",
    "Stepped",
    "Transitions",
    "World",
]
