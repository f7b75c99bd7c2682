"""True systems. To add one, write its class in a file of its own and a line in `WORLDS`."""

from sonde.worlds.base import HostWorld, JaxWorld, Simulators, Stepped, Transitions, World
from sonde.worlds.cheetah import Cheetah
from sonde.worlds.fetch import FetchConstruction
from sonde.worlds.gym import GymWorld
from sonde.worlds.mountain_car import MountainCar
from sonde.worlds.own import OwnSystem
from sonde.worlds.pendulum import Pendulum
from sonde.worlds.reacher import Reacher
from sonde.worlds.swimmer import Swimmer

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
