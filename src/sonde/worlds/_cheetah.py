"""The control suite's two-legged cheetah, which runs in a vertical plane.

State x = (qpos, qvel): place, height and pitch of the torso and six joint angles, then their velocities. Action u: the joints'
torques over their limits.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from sonde._internal.errors import SondeError
from sonde.worlds._base import Plane
from sonde.worlds._mujoco import gathered, physics_step
from sonde.worlds._suite import SuiteWorld
from sonde.worlds._task import RewardFunction

JOINTS = ("back thigh", "back shin", "back foot", "front thigh", "front shin", "front foot")
PITCH, SPEED = 2, 9
"""Where the state has the torso's angle and its forward velocity."""
SETTLING_STEPS = 200


@functools.cache  # the same functions for the same options: the compiler knows functions by their identity
def _tasks(control_cost: float, fall_penalty: float) -> Mapping[str, RewardFunction]:
    def cost(u):
        return control_cost * jnp.sum(u**2)

    def forward(x, u, x_next):
        del x
        fallen = jnp.abs(x_next[PITCH]) > jnp.pi / 2
        return x_next[SPEED] - cost(u) - fall_penalty * fallen

    def backward(x, u, x_next):
        del x
        return -x_next[SPEED] - cost(u)

    return {"forward": forward, "backward": backward}


@dataclass(frozen=True)
class Cheetah(SuiteWorld):
    """Starts with random joints, after it has settled on the ground."""

    action_repeat: int = 4
    """Times that the suite's control step of 0.01 s is taken with each action."""
    control_cost: float = 0.0
    """What a unit of squared action costs per step, in both tasks; some public results use 0.1."""
    fall_penalty: float = 0.0
    """What it costs per step in the forward task to be pitched over by more than a right angle; some public results use 10."""

    domain: ClassVar[str] = "cheetah"
    time_step: ClassVar[float] = 0.01
    substeps: ClassVar[int] = 1
    camera: ClassVar[str] = "side"

    def __post_init__(self):
        """Refuse settings that mean nothing."""
        super().__post_init__()
        for name in ("control_cost", "fall_penalty"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise SondeError(f"cheetah: {name} must be 0 or above and finite, got {getattr(self, name)}")

    @property
    def state_names(self) -> tuple[str, ...]:
        """Lengths in m, angles in rad, and their rates per second."""
        places = ("x", "height", "pitch", *JOINTS)
        return (*places, *(f"{place} speed" for place in places))

    @property
    def action_names(self) -> tuple[str, ...]:
        """Torques over their limits."""
        return tuple(f"{joint} torque" for joint in JOINTS)

    @property
    def tasks(self) -> Mapping[str, RewardFunction]:
        """Run forward; run backward."""
        return _tasks(self.control_cost, self.fall_penalty)

    def start(self, model: Any, data: Any, rng: np.random.Generator) -> np.ndarray:
        """Joints anywhere within their limits, then two seconds without torque."""
        limited = model.jnt_limited == 1
        data.qpos[limited] = rng.uniform(*model.jnt_range[limited].T)
        physics_step(model, data, SETTLING_STEPS)
        data.time = 0.0
        return np.empty(0)

    def observe(self, model: Any, copies: Sequence[Any], targets: np.ndarray) -> np.ndarray:
        """Everything: the place, too, although nothing depends on it."""
        del model, targets
        return np.concatenate([gathered(copies, "qpos"), gathered(copies, "qvel")], axis=1)

    def plane(self) -> Plane:
        """How far it came, and how fast it was."""
        return Plane(
            x_label="x [m]",
            y_label="forward velocity [m/s]",
            from_state=lambda states: (states[..., 0], states[..., SPEED]),
        )
