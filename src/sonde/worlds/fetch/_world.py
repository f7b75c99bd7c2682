"""The Fetch arm with blocks on a wide table (FetchConstruction), on C MuJoCo.

`_layout` describes the state, `_scene` builds the model. Action u: displacement of the grip's target in x, y, z in units of
0.05 m (of which the grip covers about two thirds in a step), and the fingers, which u3 > 0 opens and u3 < 0 closes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float

from sonde._internal.errors import SondeError, one_of, positive
from sonde._internal.metric_spec import MetricSpec
from sonde.data import StateLayout
from sonde.worlds._base import Transitions
from sonde.worlds._mujoco import load_mujoco, stack_field
from sonde.worlds._mujoco_renderer import Marker
from sonde.worlds._mujoco_simulators import EpisodeStart, MujocoSimulators, MujocoWorld, Observation
from sonde.worlds._sampling import visited_by_noise
from sonde.worlds._task import GoalTask
from sonde.worlds._views import Plane
from sonde.worlds.fetch._interaction import interaction
from sonde.worlds.fetch._layout import (
    GRIP_HOME,
    HALF_SIZE,
    MAX_BLOCKS,
    PLAYGROUND,
    REST_HEIGHT,
    SECONDS_PER_STEP,
    block_names,
    block_positions,
    grip_position,
    layout,
    robot_names,
)
from sonde.worlds.fetch._scene import CAMERA, COLOURS, DOWNWARDS, SUBSTEPS, Scene, load_scene, rgb
from sonde.worlds.fetch._script import mixed_play
from sonde.worlds.fetch._tasks import goal_tasks

TARGET_STEP = 0.05
"""Distance in m from the grip to its target for an action of 1."""
MAX_FINGER_TARGET = 0.2
"""Largest finger position that can be commanded; the finger stops at 0.05."""
CLEAR_OF_GRIP = 0.1
"""Smallest horizontal distance between the grip and a block at the start."""
MAX_SPACING, THROW_SPACING = 0.1, 0.08
TRIES = 100


def euler_angles(matrices: Float[np.ndarray, "*n 3 3"]) -> Float[np.ndarray, "*n 3"]:
    """Compute angles e of rotations R = Rx(e0) Ry(e1) Rz(e2).

    Args:
        matrices: Rotation matrices.

    Returns:
        e0 and e2 in [-pi, pi], e1 in [-pi/2, pi/2]; e0 = 0 where e1 = +-pi/2 and only e0 + e2 or e0 - e2 is defined.
    """
    r = matrices
    cosine = np.hypot(r[..., 2, 2], r[..., 1, 2])
    defined = cosine > 1e-12
    # 0 - a instead of -a, which would turn an angle of pi into -pi
    first = np.where(defined, np.arctan2(0.0 - r[..., 1, 2], r[..., 2, 2]), 0.0)
    third = np.where(defined, np.arctan2(0.0 - r[..., 0, 1], r[..., 0, 0]), np.arctan2(r[..., 1, 0], r[..., 1, 1]))
    return np.stack([first, np.arctan2(r[..., 0, 2], cosine), third], axis=-1)


def nearest_angles(angles: Float[np.ndarray, "*n 3"], before: Float[np.ndarray, "*n 3"]) -> Float[np.ndarray, "*n 3"]:
    """Choose, of all angles that represent the same rotations, those nearest to given ones.

    A rotation does not change if an angle changes by a full turn, or if e0 and e2 change by half a turn and e1 is mirrored at
    pi/2.

    Args:
        angles: Angles of rotations.
        before: Angles to be near to.
    """
    twins = np.stack([angles, np.pi + angles * [1.0, -1.0, 1.0]])
    twins += 2 * np.pi * np.round((before - twins) / (2 * np.pi))
    nearer = np.argmin(np.linalg.norm(twins - before, axis=-1), axis=0)
    return np.take_along_axis(twins, nearer[None, ..., None], axis=0)[0]


def scatter_blocks(rng: np.random.Generator, blocks: int, spacing: float) -> np.ndarray:
    """Draw horizontal block positions around the grip's home, but not below it.

    Args:
        rng: Random generator.
        blocks: Number of blocks.
        spacing: Smallest distance between blocks in m; it may be less than a block's diagonal.

    Returns:
        Positions [blocks, 2].
    """
    home = np.array(GRIP_HOME[:2])
    positions: list[np.ndarray] = []
    while len(positions) < blocks:
        for _ in range(TRIES):
            drawn = home + rng.uniform(-PLAYGROUND, PLAYGROUND, 2)
            if np.linalg.norm(drawn - home) >= CLEAR_OF_GRIP and all(np.linalg.norm(drawn - p) >= spacing for p in positions):
                positions.append(drawn)
                break
        else:
            positions = []  # the first blocks may have left no room for the next
    return np.array(positions)


@dataclass(frozen=True)
class FetchConstruction(MujocoWorld):
    """Fetch arm with blocks on a wide table; episodes start with a closed gripper and scattered blocks."""

    blocks: int = 4
    """Number of blocks, 1 to 6."""
    spacing: float = 0.06
    """Smallest distance between blocks at the start, in m; at least 0.08 for the task throw."""
    angles: Literal["bounded", "continuous"] = "bounded"
    """bounded: a block's angles lie in [-pi, pi] and jump at its ends. continuous: they change continuously during an episode,
    beyond pi if necessary."""

    domain: ClassVar[str] = "fetch-construction"
    camera: ClassVar[str] = CAMERA
    step_cost: ClassVar[int] = 4  # 30 us per physics step

    def __post_init__(self):
        """Reject invalid settings."""
        super().__post_init__()
        if not isinstance(self.blocks, int) or isinstance(self.blocks, bool) or not 1 <= self.blocks <= MAX_BLOCKS:
            raise SondeError(f"{self.domain}: blocks must be a whole number from 1 to {MAX_BLOCKS}, got {self.blocks!r}")
        positive(self.domain, spacing=self.spacing)
        one_of("setting of the world's angles", self.angles, ("bounded", "continuous"))
        if self.spacing > MAX_SPACING:
            raise SondeError(f"{self.domain}: spacing must be at most {MAX_SPACING} to leave room, got {self.spacing}")

    @property
    def state_names(self) -> tuple[str, ...]:
        """Lengths in m, angles in rad, velocities in m and rad per step."""
        return (*robot_names(), *(name for i in range(self.blocks) for name in block_names(i)))

    @property
    def layout(self) -> StateLayout:
        """The robot is the agent, and the blocks are the objects."""
        return layout(self.blocks, self.angles == "bounded")

    @property
    def action_names(self) -> tuple[str, ...]:
        """Displacement of the grip's target, and the fingers."""
        return ("move x", "move y", "move z", "open")

    @property
    def tasks(self) -> Mapping[str, GoalTask]:
        """The paper's three tasks: pick-place, throw and flip."""
        return goal_tasks(self.blocks)

    def for_task(self, task: str) -> "FetchConstruction":
        """Return a world whose blocks start farther apart if they are to be thrown."""
        return replace(self, spacing=max(self.spacing, THROW_SPACING)) if task == "throw" else self

    def episode_metrics(self, states: np.ndarray, next_states: np.ndarray) -> dict[str, float]:
        """Compute how much the blocks were moved."""
        return {f"interaction/{name}": float(value) for name, value in interaction(states, next_states)._asdict().items()}

    @property
    def metric_specs(self) -> tuple[MetricSpec, ...]:
        """Metrics of the interaction with the blocks."""
        return (
            MetricSpec(
                "interaction/moving",
                "Time in which a block moves",
                "share of the steps",
                "Share of steps in which a block moves.",
            ),
            MetricSpec(
                "interaction/blocks_moved",
                "Blocks moved by half a block",
                "per rollout",
                "Number of blocks that were moved by at least half their size.",
            ),
            MetricSpec(
                "interaction/highest_lift",
                "Highest lift of a block",
                "m, mean over rollouts",
                "Largest height of a block above its place on the table.",
            ),
        )

    @property
    def seconds_per_step(self) -> float:
        """Simulated time per action."""
        return SECONDS_PER_STEP

    @property
    def steps_per_action(self) -> int:
        """Physics steps per action."""
        return SUBSTEPS

    def load_model(self) -> Any:
        """Return the model, which all worlds with this number of blocks and these physics share."""
        return self._scene().model

    def _scene(self) -> Scene:
        return load_scene(self.blocks, self.scales)

    def start(self, model: Any, data: Any, rng: np.random.Generator) -> EpisodeStart:
        """Set the settled scene and scatter the blocks; continuous angles start from zero."""
        scene = self._scene()
        load_mujoco().mj_setState(model, data, scene.settled, load_mujoco().mjtState.mjSTATE_INTEGRATION)
        data.qpos[scene.block_positions[:, :2]] = scatter_blocks(rng, self.blocks, self.spacing)
        data.qpos[scene.block_positions[:, 2]] = REST_HEIGHT
        return EpisodeStart(np.empty(0), np.zeros(3 * self.blocks if self.angles == "continuous" else 0))

    def control(self, copies: Sequence[Any], actions: np.ndarray) -> None:
        """Set the gripper's target relative to its current pose, so that it never runs ahead of the arm."""
        scene, actions = self._scene(), np.clip(actions, -1.0, 1.0)
        positions = stack_field(copies, "xpos")[:, scene.gripper] + TARGET_STEP * actions[:, :3]
        rotations = stack_field(copies, "xquat")[:, scene.gripper] + DOWNWARDS
        rotations /= np.sqrt(np.vecdot(rotations, rotations))[:, None]
        fingers = np.clip(stack_field(copies, "qpos")[:, scene.actuated] + actions[:, 3:], 0.0, MAX_FINGER_TARGET)
        for data, position, rotation, finger in zip(copies, positions, rotations, fingers, strict=True):
            data.mocap_pos[0], data.mocap_quat[0], data.ctrl[:] = position, rotation, finger

    def advance(self, model: Any, data: Any) -> None:
        """Take the physics steps; mj_forward then updates the bodies' poses, which the next target is relative to."""
        load_mujoco().mj_step(model, data, SUBSTEPS)
        load_mujoco().mj_forward(model, data)

    def observe(self, model: Any, copies: Sequence[Any], targets: np.ndarray, memory: np.ndarray) -> Observation:
        """Observe the robot, then each block; the memory holds the previous angles [S, 3 blocks] if they are continuous."""
        del targets
        scene, num_copies, qvel = self._scene(), len(copies), SECONDS_PER_STEP * stack_field(copies, "qvel")
        robot = [stack_field(copies, "site_xpos")[:, scene.grip], stack_field(copies, "qpos")[:, scene.finger_positions]]
        robot += [SECONDS_PER_STEP * _grip_velocities(model, copies, scene.grip), qvel[:, scene.finger_velocities]]
        # take() gives a C-contiguous array, unlike [:, ...]: sums then do not depend on the number of copies
        rotations = stack_field(copies, "xmat").take(scene.bodies, axis=1).reshape(num_copies, -1, 3, 3)
        rates = qvel.take(scene.block_velocities, axis=1)
        spins = np.einsum("sbij,sbj->sbi", rotations, rates[..., 3:])  # MuJoCo's are in the block's own frame
        angles = euler_angles(rotations)
        if self.angles == "continuous":
            angles = nearest_angles(angles, memory.reshape(num_copies, -1, 3))
            memory = angles.reshape(num_copies, -1)
        blocks = [stack_field(copies, "xpos")[:, scene.bodies], angles, rates[..., :3], spins]
        states = np.concatenate([*robot, np.concatenate(blocks, axis=-1).reshape(num_copies, -1)], axis=1)
        return Observation(states, memory)

    def open(self, num_copies: int) -> "FetchSimulators":
        """Open copies whose images can show goals."""
        return FetchSimulators(self, num_copies)

    def reachable(self) -> Transitions:
        """Sample rollouts, half under noise alone, which rarely meets a block, half while a script carries a block around."""
        return visited_by_noise(self, episodes=40, steps=60, steer=mixed_play)

    def plane(self) -> Plane:
        """Distance from the grip to the nearest block, and height of the highest block."""

        def from_state(states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            blocks = block_positions(states)
            nearest = np.linalg.norm(blocks - grip_position(states)[..., None, :], axis=-1).min(axis=-1)
            return nearest, blocks[..., 2].max(axis=-1) - REST_HEIGHT

        return Plane("grip to nearest block [m]", "highest block above its place on the table [m]", from_state)


def _grip_velocities(model: Any, copies: Sequence[Any], grip: int) -> np.ndarray:
    """Velocities of the grip in m/s [S, 3]."""
    mujoco, velocities = load_mujoco(), np.empty((len(copies), 6))
    for data, velocity in zip(copies, velocities, strict=True):
        mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_SITE, grip, velocity, 0)
    return velocities[:, 3:]


class FetchSimulators(MujocoSimulators):
    """Copies of the Fetch scene whose images can show goals."""

    def show_goal(self, goal: Float[np.ndarray, " dg"] | None) -> None:
        """Show each block's goal position in the block's colour; the simulation is not affected."""
        positions = np.empty((0, 3)) if goal is None else goal.reshape(-1, 3)
        pairs = zip(positions, COLOURS, strict=False)
        self.markers = tuple(Marker(position, HALF_SIZE, (*rgb(colour), 0.25)) for position, colour in pairs)
