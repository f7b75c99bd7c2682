"""The control suite's two-link arm in the plane, with a target that stays for an episode.

State x = (shoulder, wrist, their velocities, vector from the finger to the target). Action u: the torques over their limits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sonde.worlds._base import Plane
from sonde.worlds._mujoco import gathered, randomise_joints
from sonde.worlds._suite import SuiteWorld
from sonde.worlds._task import RewardFunction

TARGET_SIZE, NEAREST_TARGET, FARTHEST_TARGET = 0.03, 0.05, 0.20
REACHED, REACHED_REWARD = 0.05, 100.0


def reach(x: Float[Array, " dx"], u: Float[Array, " du"], x_next: Float[Array, " dx"]) -> Float[Array, ""]:
    """100 wherever the finger is within 0.05 of the target."""
    del x, u
    return jnp.where(jnp.linalg.norm(x_next[4:]) <= REACHED, REACHED_REWARD, 0.0)


@dataclass(frozen=True)
class Reacher(SuiteWorld):
    """Starts with random joints and a random target."""

    action_repeat: int = 1
    """Times that the suite's control step of 0.02 s is taken with each action."""

    domain: ClassVar[str] = "reacher"
    time_step: ClassVar[float] = 0.02
    substeps: ClassVar[int] = 1
    camera: ClassVar[str] = "fixed"
    reachable_rollouts: ClassVar[tuple[int, int]] = (100, 50)  # many targets

    @property
    def state_names(self) -> tuple[str, ...]:
        """Angles in rad, velocities in rad/s, lengths in m."""
        return ("shoulder", "wrist", "shoulder speed", "wrist speed", "to target x", "to target y")

    @property
    def action_names(self) -> tuple[str, ...]:
        """Torques over their limits."""
        return ("shoulder torque", "wrist torque")

    @property
    def tasks(self) -> Mapping[str, RewardFunction]:
        """Reach the target and stay there."""
        return {"reach": reach}

    def start(self, model: Any, data: Any, rng: np.random.Generator) -> np.ndarray:
        """Joints anywhere within their limits; the target on an annulus around the shoulder."""
        randomise_joints(model, data, rng)
        angle, radius = rng.uniform(0, 2 * np.pi), rng.uniform(NEAREST_TARGET, FARTHEST_TARGET)
        return np.array([radius * np.sin(angle), radius * np.cos(angle), model.geom("target").pos[2]])

    def observe(self, model: Any, copies: Sequence[Any], targets: np.ndarray) -> np.ndarray:
        """Joints, velocities, and where the target is, seen from the finger."""
        fingers = gathered(copies, "geom_xpos")[:, model.geom("finger").id]
        return np.concatenate([gathered(copies, "qpos"), gathered(copies, "qvel"), (targets - fingers)[:, :2]], axis=1)

    def show_target(self, model: Any, target: np.ndarray) -> None:
        """A ball."""
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
