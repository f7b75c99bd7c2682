"""True systems, and tasks on them.

To write your own, subclass `JaxWorld` or `HostWorld` as a frozen dataclass and pass an instance; `WORLDS` only names the
built-in ones for the command line.
"""

from sonde.worlds._base import HostWorld, JaxWorld, Simulators, Stepped, Transitions, World, has_simulator
from sonde.worlds._cheetah import Cheetah
from sonde.worlds._fmu import FmuWorld
from sonde.worlds._gym import GymWorld
from sonde.worlds._hidden import Delayed, Observed
from sonde.worlds._mountain_car import MountainCar
from sonde.worlds._own import OwnSystem
from sonde.worlds._pendulum import Pendulum
from sonde.worlds._reacher import Reacher
from sonde.worlds._swimmer import Swimmer
from sonde.worlds._task import ConstraintFunction, Feedback, GoalRewardFunction, GoalTask, RewardFunction, Task
from sonde.worlds._views import Coordinates, Plane
from sonde.worlds.fetch import FetchConstruction

WORLDS: dict[str, type[World]] = {
    "pendulum": Pendulum,
    "mountain-car": MountainCar,
    "reacher": Reacher,
    "swimmer": Swimmer,
    "cheetah": Cheetah,
    "fetch-construction": FetchConstruction,
    "delayed": Delayed,
    "observed": Observed,
    "gym": GymWorld,
    "fmu": FmuWorld,
    "own": OwnSystem,
}
"""Names of worlds for the command line."""

__all__ = [
    "WORLDS",
    "Cheetah",
    "ConstraintFunction",
    "Coordinates",
    "Delayed",
    "Feedback",
    "FetchConstruction",
    "FmuWorld",
    "GoalRewardFunction",
    "GoalTask",
    "GymWorld",
    "HostWorld",
    "JaxWorld",
    "MountainCar",
    "Observed",
    "OwnSystem",
    "Pendulum",
    "Plane",
    "Reacher",
    "RewardFunction",
    "Simulators",
    "Stepped",
    "Swimmer",
    "Task",
    "Transitions",
    "World",
    "has_simulator",
]
