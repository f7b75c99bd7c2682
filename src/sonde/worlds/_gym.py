"""Any Gymnasium environment with continuous observations and actions, as a world.

Here is what a config says of it; `sonde.worlds._gym_copies` has what needs Gymnasium, and is imported when an environment is.
"""

import json
from dataclasses import dataclass, replace

import numpy as np

from sonde._internal.errors import SondeError
from sonde.worlds._base import HostWorld, Plane, Simulators, Transitions

JUDGED_EPISODES = 20  # one for each kind of noise
JUDGED_POINTS = 2000  # more are not judged


@dataclass(frozen=True)
class GymWorld(HostWorld):
    """Any Gymnasium environment with continuous observations and actions: gym:ENV or gym:FILE.py:NAME."""

    env: str = "Pendulum-v1"
    """An id such as Hopper-v5 or my_module:MyEnv-v0, or FILE.py:NAME, a class or function of your own that makes one."""
    options: str = "{}"
    """Keyword arguments for the environment, as a JSON object."""
    judge_steps: int = 2000
    """Steps on the system, with coloured random actions, to judge models by; 0 for none."""
    processes: bool = False
    """Step each copy, of every run and rollout, in a process of its own; it pays where a step takes several milliseconds."""

    def __post_init__(self):
        """Refuse what cannot work; the environment itself is only made when it is needed."""
        try:
            keywords = json.loads(self.options)
        except json.JSONDecodeError as error:
            raise SondeError(f"gym: options must be a JSON object, got {self.options!r} ({error})") from None
        if not isinstance(keywords, dict):
            raise SondeError(f"gym: options must be a JSON object such as '{{\"gravity\": 1.6}}', got {self.options!r}")
        if not self.env:
            raise SondeError("gym: name an environment, such as gym:Pendulum-v1 or gym:FILE.py:NAME")
        if self.judge_steps < 0:
            raise SondeError(f"gym: judge_steps must be 0 (none) or above, got {self.judge_steps}")

    @property
    def state_names(self) -> tuple[str, ...]:
        """Keys and places in a Dict or Tuple of observations; x0, x1, ... for a plain Box."""
        return self._interface.state_names

    @property
    def action_names(self) -> tuple[str, ...]:
        """u0, u1, ..."""
        return self._interface.action_names

    @property
    def seconds_per_step(self) -> float | None:
        """What the environment says of its time step."""
        return self._interface.seconds_per_step

    @property
    def _interface(self):
        from sonde.worlds._gym_copies import interface

        return interface(self.env, self.options)

    def open(self, num_copies: int) -> Simulators:
        """Copies on a vector environment."""
        from sonde.worlds._gym_copies import GymCopies

        return GymCopies(self.env, self.options, num_copies, self.processes)

    def reachable(self) -> Transitions | None:
        """What coloured random actions reach within `judge_steps` steps."""
        if self.judge_steps == 0:
            return None
        from sonde.worlds._sampling import reachable_by_noise

        episodes = min(JUDGED_EPISODES, self.judge_steps)
        steps = self.judge_steps // episodes
        return reachable_by_noise(replace(self, processes=False), episodes, steps, points=min(JUDGED_POINTS, episodes * steps))

    def plane(self) -> Plane | None:
        """The first two numbers of the state."""
        if self.state_dim < 2:
            return None

        def first_two(states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return states[..., 0], states[..., 1]

        return Plane(self.state_names[0], self.state_names[1], first_two)
