"""The control suite's swimmer with six links in a viscous plane, and a target that stays for an episode.

State x = (5 joint angles, of each link its velocity across, along and around in its own frame, vector from the nose to the
target in the head's frame). Action u: the joints' torques over their limits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sonde._internal.errors import positive
from sonde.worlds._base import Plane
from sonde.worlds._mujoco import control_suite, gathered, randomise_joints
from sonde.worlds._suite import SuiteWorld
from sonde.worlds._task import RewardFunction

LINKS = 6
NEAR_TARGET, NEAR_TARGET_PROBABILITY = 0.3, 0.2
FIRST_VELOCITY_SENSOR = 12
"""Before the links' velocities the sensors tell positions and axes, of three numbers each."""


def go_to(x: Float[Array, " dx"], u: Float[Array, " du"], x_next: Float[Array, " dx"]) -> Float[Array, ""]:
    """Minus the distance from the nose to the target."""
    del x, u
    return -jnp.linalg.norm(x_next[-2:])


def go_away(x: Float[Array, " dx"], u: Float[Array, " du"], x_next: Float[Array, " dx"]) -> Float[Array, ""]:
    """The distance from the nose to the target."""
    return -go_to(x, u, x_next)


@dataclass(frozen=True)
class Swimmer(SuiteWorld):
    """Starts at the origin with random joints, heading and target."""

    action_repeat: int = 4
    """Times that the suite's control step of 0.03 s is taken with each action."""
    target_box: float = 1.0
    """The target lies within so much of the origin in x and y, or, every fifth time, within 0.3. The suite's own task has 2."""

    domain: ClassVar[str] = "swimmer"
    time_step: ClassVar[float] = 0.002
    substeps: ClassVar[int] = 15
    camera: ClassVar[str] = "tracking1"
    reachable_rollouts: ClassVar[tuple[int, int]] = (20, 120)  # its many physics steps take time

    def __post_init__(self):
        """Refuse settings that mean nothing."""
        super().__post_init__()
        positive(self.domain, target_box=self.target_box)

    @property
    def state_names(self) -> tuple[str, ...]:
        """Angles in rad, velocities in m/s and rad/s, lengths in m."""
        links = ["head", *(f"link {i}" for i in range(1, LINKS))]
        velocities = [f"{link} {what}" for link in links for what in ("vx", "vy", "spin")]
        return (*self._joints(), *velocities, "to target x", "to target y")

    @property
    def action_names(self) -> tuple[str, ...]:
        """Torques over their limits."""
        return tuple(f"{joint} torque" for joint in self._joints())

    @property
    def tasks(self) -> Mapping[str, RewardFunction]:
        """Swim to the target; swim away from it."""
        return {"go-to": go_to, "go-away": go_away}

    def model_and_assets(self) -> tuple[Any, dict[str, bytes]]:
        """The suite writes its XML for a number of links."""
        return control_suite(self.domain).get_model_and_assets(LINKS)

    def start(self, model: Any, data: Any, rng: np.random.Generator) -> np.ndarray:
        """Joints anywhere within their limits, any heading; the target in one of two boxes."""
        randomise_joints(model, data, rng)
        box = NEAR_TARGET if rng.uniform() < NEAR_TARGET_PROBABILITY else self.target_box
        return np.array([*rng.uniform(-box, box, size=2), model.geom("target").pos[2]])

    def observe(self, model: Any, copies: Sequence[Any], targets: np.ndarray) -> np.ndarray:
        """Joints, links' velocities, and where the target is, seen from the nose."""
        num_copies, sensors = len(copies), gathered(copies, "sensordata")
        velocities = sensors[:, FIRST_VELOCITY_SENSOR:].reshape(num_copies, LINKS, 6)[..., [0, 1, 5]].reshape(num_copies, -1)
        noses = gathered(copies, "geom_xpos")[:, model.geom("nose").id]
        heads = gathered(copies, "xmat")[:, model.body("head").id].reshape(num_copies, 3, 3)
        to_target = ((targets - noses)[:, None] @ heads)[:, 0, :2]
        return np.concatenate([gathered(copies, "qpos")[:, 3:], velocities, to_target], axis=1)

    def show_target(self, model: Any, target: np.ndarray) -> None:
        """A ball with a lamp above it."""
        model.geom("target").pos[:] = target
        model.light("target_light").pos[:2] = target[:2]

    def plane(self) -> Plane:
        """Where the target is, seen from the nose."""
        return Plane(
            x_label="nose to target, across [m]",
            y_label="nose to target, along [m]",
            from_state=lambda states: (states[..., -2], states[..., -1]),
        )

    @staticmethod
    def _joints() -> tuple[str, ...]:
        return tuple(f"joint {i}" for i in range(1, LINKS))
