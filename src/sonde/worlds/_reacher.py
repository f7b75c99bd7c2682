"""The control suite's planar two-link arm, with a target that is fixed during an episode.

State x = (shoulder, wrist, their velocities, vector from the finger to the target). Action u: torques relative to their limits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sonde.worlds._mujoco import randomise_joints, stack_field
from sonde.worlds._mujoco_simulators import EpisodeStart, Observation
from sonde.worlds._suite import SuiteWorld
from sonde.worlds._task import RewardFunction
from sonde.worlds._views import Plane

TARGET_SIZE, MIN_TARGET_RADIUS, MAX_TARGET_RADIUS = 0.03, 0.05, 0.20
REACHED, REACHED_REWARD = 0.05, 100.0


def reach(x: Float[Array, " dx"], u: Float[Array, " du"], x_next: Float[Array, " dx"]) -> Float[Array, ""]:
    """Reward 100 wherever the finger is within 0.05 of the target.

    Args:
        x: State.
        u: Action.
        x_next: Next state.
    """
    del x, u
    return jnp.where(jnp.linalg.norm(x_next[4:]) <= REACHED, REACHED_REWARD, 0.0)


@dataclass(frozen=True)
class Reacher(SuiteWorld):
    """Planar two-link arm; episodes start with random joint angles and a random target."""

    action_repeat: int = 1
    """Number of the suite's control steps of 0.02 s per action."""

    domain: ClassVar[str] = "reacher"
    recorded_repeat: ClassVar[int] = 1
    time_step: ClassVar[float] = 0.02
    substeps: ClassVar[int] = 1
    camera: ClassVar[str] = "fixed"
    noise_rollouts: ClassVar[tuple[int, int]] = (100, 50)  # many rollouts, since each has one target

    @property
    def state_names(self) -> tuple[str, ...]:
        """Angles in rad, velocities in rad/s, lengths in m."""
        return ("shoulder", "wrist", "shoulder speed", "wrist speed", "to target x", "to target y")

    @property
    def action_names(self) -> tuple[str, ...]:
        """Torques relative to their limits."""
        return ("shoulder torque", "wrist torque")

    @property
    def tasks(self) -> Mapping[str, RewardFunction]:
        """Reach the target and stay there."""
        return {"reach": reach}

    def start(self, model: Any, data: Any, rng: np.random.Generator) -> EpisodeStart:
        """Draw joints within their limits, and the target on an annulus around the shoulder."""
        randomise_joints(model, data, rng)
        angle, radius = rng.uniform(0, 2 * np.pi), rng.uniform(MIN_TARGET_RADIUS, MAX_TARGET_RADIUS)
        target = np.array([radius * np.sin(angle), radius * np.cos(angle), model.geom("target").pos[2]])
        return EpisodeStart(target, np.empty(0))

    def observe(self, model: Any, copies: Sequence[Any], targets: np.ndarray, memory: np.ndarray) -> Observation:
        """Observe joints, velocities, and the target relative to the finger."""
        fingers = stack_field(copies, "geom_xpos")[:, model.geom("finger").id]
        parts = [stack_field(copies, "qpos"), stack_field(copies, "qvel"), (targets - fingers)[:, :2]]
        return Observation(np.concatenate(parts, axis=1), memory)

    def show_target(self, model: Any, target: np.ndarray) -> None:
        """Place the target's ball."""
        model.geom("target").pos[:] = target
        model.geom("target").size[0] = TARGET_SIZE

    def plane(self) -> Plane:
        """The two joint angles."""
        wrapped = lambda angle: (angle + np.pi) % (2 * np.pi) - np.pi
        return Plane(
            x_label="shoulder [rad]",
            y_label="wrist [rad]",
            from_state=lambda states: (wrapped(states[..., 0]), states[..., 1]),
            x_range=(-np.pi, np.pi),
            y_range=(-np.pi, np.pi),
        )
