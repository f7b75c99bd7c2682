"""What worlds with models of the DeepMind control suite share.

They are stepped with the same calls as the suite's own physics, so both agree to the last bit.
"""

import functools
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import safetensors.numpy

from sonde._internal.errors import not_negative, positive, whole
from sonde.worlds._base import Transitions
from sonde.worlds._mujoco import compile_model, control_suite, physics_step
from sonde.worlds._mujoco_simulators import MujocoWorld
from sonde.worlds._sampling import visited_by_noise
from sonde.worlds._scales import STANDARD, Scales, scale_physics

TASK_STATES = Path(__file__).parent / "task_states"
"""Recorded transitions of good policies, a file per domain."""


@dataclass(frozen=True)
class SuiteWorld(MujocoWorld):
    """A world of the control suite; `domain` is the suite's name for it."""

    action_repeat: int = 1
    """Number of the suite's own control steps per action."""
    _: KW_ONLY
    damping_scale: float = 1.0
    """Factor on the damping of joints, and on the density of the swimmer's fluid."""
    torque_scale: float = 1.0
    """Factor on the torques of the joints."""
    time_step: ClassVar[float]
    """Duration of a physics step in seconds."""
    substeps: ClassVar[int]
    """Physics steps per control step of the suite."""
    recorded_repeat: ClassVar[int]
    """Action repeat of the recorded `task_transitions`."""
    noise_rollouts: ClassVar[tuple[int, int]] = (20, 250)
    """Number and length of the rollouts under noise that `reachable` is sampled from."""

    def __post_init__(self):
        """Reject invalid settings."""
        super().__post_init__()
        whole(self.domain, action_repeat=self.action_repeat)
        not_negative(self.domain, damping_scale=self.damping_scale)
        positive(self.domain, torque_scale=self.torque_scale)

    @property
    def scales(self) -> Scales:
        """The factors."""
        return super().scales._replace(damping=self.damping_scale, torque=self.torque_scale)

    @property
    def seconds_per_step(self) -> float:
        """Simulated time per action."""
        return self.time_step * self.steps_per_action

    @property
    def steps_per_action(self) -> int:
        """Physics steps per action."""
        return self.substeps * self.action_repeat

    def model_and_assets(self) -> tuple[Any, dict[str, bytes]]:
        """Return the suite's XML, and the contents of the files that it includes by name."""
        return control_suite(self.domain).get_model_and_assets()

    def load_model(self) -> Any:
        """Compile a model for each set of copies, since rendering moves its target."""
        return scale_physics(compile_model(*self.model_and_assets()), self.scales)

    def control(self, copies: Sequence[Any], actions: np.ndarray) -> None:
        """Use the action as the control and hold it."""
        for data, action in zip(copies, actions, strict=True):
            data.ctrl[:] = action

    def advance(self, model: Any, data: Any) -> None:
        """Take the same physics steps as the suite."""
        physics_step(model, data, self.steps_per_action)

    def reachable(self) -> Transitions:
        """Sample transitions from rollouts under coloured noise, which visits a part of what can be reached."""
        return visited_by_noise(self, *self.noise_rollouts)

    def task_transitions(self) -> Transitions | None:
        """Return what gaits and controllers visit that were found on the simulator (`experiments/scripts/task_states.py`).

        They are recorded for the suite's worlds themselves, with standard physics and one action repeat.
        """
        own_class = "domain" in vars(type(self))  # a subclass may have other dynamics
        if not own_class or self.scales != STANDARD or self.action_repeat != self.recorded_repeat:
            return None
        return _recorded(self.domain)


@functools.cache
def _recorded(domain: str) -> Transitions:
    """Read the recorded transitions of a domain."""
    arrays = safetensors.numpy.load((TASK_STATES / f"{domain}.safetensors").read_bytes())
    transitions = Transitions(*(arrays[name].astype(np.float64) for name in ("states", "actions", "next_states")))
    for array in transitions:
        array.flags.writeable = False  # the cache returns the same arrays to every caller
    return transitions
