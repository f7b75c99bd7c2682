"""Worlds with the models of the DeepMind control suite: what they share.

They are stepped with the same calls as the suite's own physics, so that both agree to the last bit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sonde._internal.errors import whole
from sonde.worlds._base import Transitions
from sonde.worlds._mujoco import compile_model, control_suite, physics_step
from sonde.worlds._mujoco_simulators import MujocoWorld
from sonde.worlds._sampling import reachable_by_noise


@dataclass(frozen=True)
class SuiteWorld(MujocoWorld):
    """A world of the control suite; `domain` is the suite's name for it."""

    action_repeat: int = 1
    """Times that the suite's own control step is taken with each action."""
    time_step: ClassVar[float]
    """Seconds of one physics step."""
    substeps: ClassVar[int]
    """Physics steps in the suite's control step."""
    reachable_rollouts: ClassVar[tuple[int, int]] = (20, 250)
    """Episodes, and steps of each, from which the reachable set is chosen."""

    def __post_init__(self):
        """Refuse settings that mean nothing."""
        whole(self.domain, action_repeat=self.action_repeat)

    @property
    def seconds_per_step(self) -> float:
        """Simulated time that one action lasts."""
        return self.time_step * self.steps_per_action

    @property
    def steps_per_action(self) -> int:
        """Physics steps that one action lasts."""
        return self.substeps * self.action_repeat

    def model_and_assets(self) -> tuple[Any, dict[str, bytes]]:
        """The suite's XML, and the files that it includes."""
        return control_suite(self.domain).get_model_and_assets()

    def compiled(self) -> Any:
        """A model of its own for each set of copies, since pictures move its target."""
        return compile_model(*self.model_and_assets())

    def control(self, copies: Sequence[Any], actions: np.ndarray) -> None:
        """The action is the control, held."""
        for data, action in zip(copies, actions, strict=True):
            data.ctrl[:] = action

    def advance(self, model: Any, data: Any) -> None:
        """As many steps as the suite takes."""
        physics_step(model, data, self.steps_per_action)

    def reachable(self) -> Transitions:
        """Transitions of fixed rollouts under noise from slow to white; see `reachable_by_noise`."""
        return reachable_by_noise(self, *self.reachable_rollouts)
