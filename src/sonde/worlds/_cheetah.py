"""The control suite's two-legged cheetah, which runs in a vertical plane.

State x = (qpos, qvel): position, height and pitch of the torso and six joint angles, then their velocities. Action u: joint
torques relative to their limits.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sonde._internal.errors import not_negative
from sonde.worlds._mujoco import physics_step, stack_field
from sonde.worlds._mujoco_simulators import EpisodeStart, Observation
from sonde.worlds._suite import SuiteWorld
from sonde.worlds._task import ConstraintFunction, RewardFunction
from sonde.worlds._views import Plane

JOINTS = ("back thigh", "back shin", "back foot", "front thigh", "front shin", "front foot")
PITCH, SPEED = 2, 9
"""Indices of the torso's angle and of its forward velocity in the state."""
SETTLING_STEPS = 200
LARGEST_PITCH = 1.0
"""Largest angle of the torso that the constraint `torso` allows, in rad."""


def upright_torso(x: Float[Array, " dx"], u: Float[Array, " du"], x_next: Float[Array, " dx"]) -> Float[Array, ""]:
    """How far the torso's angle stays below `LARGEST_PITCH`, in rad.

    Args:
        x: State.
        u: Action.
        x_next: Next state.
    """
    del x, u
    return LARGEST_PITCH - jnp.abs(x_next[PITCH])


@functools.cache  # the same options must give the same functions: JAX caches compiled programs by their identity
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
    """Planar two-legged runner; episodes start with random joint angles, after it has settled on the ground."""

    action_repeat: int = 4
    """Number of the suite's control steps of 0.01 s per action."""
    control_cost: float = 0.0
    """Cost per unit of squared action and step, in both tasks; some published results use 0.1."""
    fall_penalty: float = 0.0
    """Cost per step in the forward task while pitched by more than a right angle; some published results use 10."""

    domain: ClassVar[str] = "cheetah"
    recorded_repeat: ClassVar[int] = 4
    time_step: ClassVar[float] = 0.01
    substeps: ClassVar[int] = 1
    camera: ClassVar[str] = "side"

    def __post_init__(self):
        """Reject invalid settings."""
        super().__post_init__()
        not_negative("cheetah", control_cost=self.control_cost, fall_penalty=self.fall_penalty)

    @property
    def state_names(self) -> tuple[str, ...]:
        """Lengths in m, angles in rad, and their rates per second."""
        positions = ("x", "height", "pitch", *JOINTS)
        return (*positions, *(f"{name} speed" for name in positions))

    @property
    def action_names(self) -> tuple[str, ...]:
        """Torques relative to their limits."""
        return tuple(f"{joint} torque" for joint in JOINTS)

    @property
    def tasks(self) -> Mapping[str, RewardFunction]:
        """Run forward; run backward."""
        return _tasks(self.control_cost, self.fall_penalty)

    @property
    def constraints(self) -> Mapping[str, ConstraintFunction]:
        """Keep the torso level, within 1 rad."""
        return {"torso": upright_torso}

    def start(self, model: Any, data: Any, rng: np.random.Generator) -> EpisodeStart:
        """Draw joints within their limits, then let it settle for two seconds without torque."""
        limited = model.jnt_limited == 1
        data.qpos[limited] = rng.uniform(*model.jnt_range[limited].T)
        physics_step(model, data, SETTLING_STEPS)
        data.time = 0.0
        return EpisodeStart(np.empty(0), np.empty(0))

    def observe(self, model: Any, copies: Sequence[Any], targets: np.ndarray, memory: np.ndarray) -> Observation:
        """Observe all positions and velocities, including the horizontal position, which nothing depends on."""
        del model, targets
        return Observation(np.concatenate([stack_field(copies, "qpos"), stack_field(copies, "qvel")], axis=1), memory)

    def plane(self) -> Plane:
        """Horizontal position and forward velocity."""
        return Plane(
            x_label="x [m]",
            y_label="forward velocity [m/s]",
            from_state=lambda states: (states[..., 0], states[..., SPEED]),
        )
