"""True systems. To add one, write its class in a file of its own and a line in `WORLDS`."""

from sonde.worlds._base import HostWorld, JaxWorld, Simulators, Stepped, Transitions, World
from sonde.worlds._cheetah import Cheetah
from sonde.worlds._gym import GymWorld
from sonde.worlds._mountain_car import MountainCar
from sonde.worlds._own import OwnSystem
from sonde.worlds._pendulum import Pendulum
from sonde.worlds._reacher import Reacher
from sonde.worlds._swimmer import Swimmer
from sonde.worlds.fetch._world import FetchConstruction

WORLDS: dict[str, type[World]] = {
    "pendulum": Pendulum,
    "mountain-car": MountainCar,
    "reacher": Reacher,
    "swimmer": Swimmer,
    "cheetah": Cheetah,
    "fetch-construction": FetchConstruction,
    "gym": GymWorld,
    "own": OwnSystem,
}

__all__ = [
    "WORLDS",
    "Cheetah",
    "FetchConstruction",
    "GymWorld",
    "HostWorld",
    "JaxWorld",
    "MountainCar",
    "OwnSystem",
    "Pendulum",
    "Reacher",
    "Simulators",
    "Stepped",
    "Swimmer",
    "Transitions",
    "World",
]
