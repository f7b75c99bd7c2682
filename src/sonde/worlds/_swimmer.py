"""The control suite's swimmer with six links in a viscous plane, and a target that is fixed during an episode.

State x = (5 joint angles; of each link its velocities across, along and around in its own frame; vector from the nose to the
target in the head's frame). Action u: joint torques relative to their limits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sonde._internal.errors import positive
from sonde.worlds._mujoco import control_suite, randomise_joints, stack_field
from sonde.worlds._mujoco_simulators import EpisodeStart, Observation
from sonde.worlds._suite import SuiteWorld
from sonde.worlds._task import RewardFunction
from sonde.worlds._views import Plane

LINKS = 6
NEAR_TARGET_BOX, NEAR_TARGET_PROBABILITY = 0.3, 0.2
FIRST_VELOCITY_SENSOR = 12
"""Index of the links' velocities in the sensor data, after positions and axes of three numbers each."""


def go_to(x: Float[Array, " dx"], u: Float[Array, " du"], x_next: Float[Array, " dx"]) -> Float[Array, ""]:
    """Reward minus the distance from the nose to the target.

    Args:
        x: State.
        u: Action.
        x_next: Next state.
    """
    del x, u
    return -jnp.linalg.norm(x_next[-2:])


def go_away(x: Float[Array, " dx"], u: Float[Array, " du"], x_next: Float[Array, " dx"]) -> Float[Array, ""]:
    """Reward the distance from the nose to the target.

    Args:
        x: State.
        u: Action.
        x_next: Next state.
    """
    return -go_to(x, u, x_next)


@dataclass(frozen=True)
class Swimmer(SuiteWorld):
    """Six-link swimmer; episodes start at the origin with random joint angles, heading and target."""

    action_repeat: int = 4
    """Number of the suite's control steps of 0.03 s per action."""
    target_box: float = 1.0
    """Largest |x| and |y| of the target; one target in five lies within 0.3 instead. The suite's own task has 2."""

    domain: ClassVar[str] = "swimmer"
    recorded_repeat: ClassVar[int] = 4
    time_step: ClassVar[float] = 0.002
    substeps: ClassVar[int] = 15
    camera: ClassVar[str] = "tracking1"
    noise_rollouts: ClassVar[tuple[int, int]] = (20, 120)  # few, since an action takes many physics steps

    def __post_init__(self):
        """Reject invalid settings."""
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
        """Torques relative to their limits."""
        return tuple(f"{joint} torque" for joint in self._joints())

    @property
    def tasks(self) -> Mapping[str, RewardFunction]:
        """Swim to the target; swim away from it."""
        return {"go-to": go_to, "go-away": go_away}

    def model_and_assets(self) -> tuple[Any, dict[str, bytes]]:
        """Return the XML that the suite writes for six links."""
        return control_suite(self.domain).get_model_and_assets(LINKS)

    def start(self, model: Any, data: Any, rng: np.random.Generator) -> EpisodeStart:
        """Draw joints within their limits, any heading, and the target in one of two boxes."""
        randomise_joints(model, data, rng)
        box = NEAR_TARGET_BOX if rng.uniform() < NEAR_TARGET_PROBABILITY else self.target_box
        return EpisodeStart(np.array([*rng.uniform(-box, box, size=2), model.geom("target").pos[2]]), np.empty(0))

    def observe(self, model: Any, copies: Sequence[Any], targets: np.ndarray, memory: np.ndarray) -> Observation:
        """Observe joints, the links' velocities, and the target relative to the nose."""
        num_copies, sensors = len(copies), stack_field(copies, "sensordata")
        velocities = sensors[:, FIRST_VELOCITY_SENSOR:].reshape(num_copies, LINKS, 6)[..., [0, 1, 5]].reshape(num_copies, -1)
        noses = stack_field(copies, "geom_xpos")[:, model.geom("nose").id]
        heads = stack_field(copies, "xmat")[:, model.body("head").id].reshape(num_copies, 3, 3)
        to_target = ((targets - noses)[:, None] @ heads)[:, 0, :2]
        return Observation(np.concatenate([stack_field(copies, "qpos")[:, 3:], velocities, to_target], axis=1), memory)

    def show_target(self, model: Any, target: np.ndarray) -> None:
        """Place the target's ball and the light above it."""
        model.geom("target").pos[:] = target
        model.light("target_light").pos[:2] = target[:2]

    def plane(self) -> Plane:
        """The target relative to the nose."""
        return Plane(
            x_label="nose to target, across [m]",
            y_label="nose to target, along [m]",
            from_state=lambda states: (states[..., -2], states[..., -1]),
        )

    @staticmethod
    def _joints() -> tuple[str, ...]:
        return tuple(f"joint {i}" for i in range(1, LINKS))
