"""Any Gymnasium environment with continuous observations and actions, as a world.

This module holds the configuration; `_gym_simulators` has everything that needs Gymnasium and is imported on first use.
"""

from dataclasses import dataclass, replace

from sonde._internal.errors import SondeError
from sonde._internal.reading import parse_json
from sonde.worlds._base import HostWorld, Simulators, Transitions
from sonde.worlds._sampling import reached_by_noise
from sonde.worlds._views import Plane, plane_of_first_two


@dataclass(frozen=True)
class GymWorld(HostWorld):
    """Any Gymnasium environment with continuous observations and actions: gym:ENV or gym:FILE.py:NAME."""

    env: str = "Pendulum-v1"
    """An id such as Hopper-v5 or my_module:MyEnv-v0, or FILE.py:NAME, your own class or function that creates one."""
    options: str = "{}"
    """Keyword arguments for the environment, as a JSON object."""
    reachable_steps: int = 2000
    """Steps with coloured random actions that give the transitions on which models are evaluated; 0 for none."""
    processes: bool = False
    """Step each copy in its own process; this pays off if a step takes several milliseconds."""

    def __post_init__(self):
        """Reject invalid settings; the environment itself is only created when it is needed."""
        try:
            keywords = parse_json(self.options, "the text")
        except SondeError as error:
            raise SondeError(f"gym: options must be a JSON object, got {self.options[:200]!r} ({error})") from None
        if not isinstance(keywords, dict):
            raise SondeError(f"gym: options must be a JSON object such as '{{\"gravity\": 1.6}}', got {self.options[:200]!r}")
        if not self.env:
            raise SondeError("gym: no environment was given; name one, such as gym:Pendulum-v1 or gym:FILE.py:NAME")
        if self.reachable_steps < 0:
            raise SondeError(f"gym: reachable_steps must be 0 (none) or above, got {self.reachable_steps}")

    @property
    def state_names(self) -> tuple[str, ...]:
        """Keys and indices in a Dict or Tuple of observations; x0, x1, ... for a plain Box."""
        return self._interface.state_names

    @property
    def action_names(self) -> tuple[str, ...]:
        """The names u0, u1, ..."""
        return self._interface.action_names

    @property
    def seconds_per_step(self) -> float | None:
        """The environment's own time step, if it has one."""
        return self._interface.seconds_per_step

    @property
    def _interface(self):
        from sonde.worlds._gym_simulators import read_interface

        return read_interface(self.env, self.options)

    def open(self, num_copies: int) -> Simulators:
        """Open copies on a vector environment."""
        from sonde.worlds._gym_simulators import GymSimulators

        return GymSimulators.of_env(self.env, self.options, num_copies, self.processes)

    def reachable(self) -> Transitions | None:
        """Sample what coloured random actions reach within `reachable_steps` steps."""
        return reached_by_noise(replace(self, processes=False), self.reachable_steps)

    def plane(self) -> Plane | None:
        """The first two state dimensions."""
        return plane_of_first_two(self.state_names)
