"""True systems. To add one, write its class in a file of its own and a line in `WORLDS`."""

from sonde.worlds.base import World
from sonde.worlds.pendulum import Pendulum

WORLDS: dict[str, type[World]] = {"pendulum": Pendulum}

__all__ = ["WORLDS", "Pendulum", "World"]
