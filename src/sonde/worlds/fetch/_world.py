"""The Fetch arm among blocks on a wide table (FetchConstruction), on C MuJoCo.

`fetch_layout` says what the state's numbers are, `fetch_scene` puts the model together. Action u: the grip's way in x, y, z,
over 0.05 m (of which about two thirds are made good in a step), and the fingers, which u3 > 0 opens and u3 < 0 closes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float

from sonde._internal.errors import SondeError, one_of, positive
from sonde._internal.metric_spec import MetricSpec
from sonde.worlds._base import Plane, Transitions
from sonde.worlds._mujoco import engine, gathered
from sonde.worlds._mujoco_picture import Marker
from sonde.worlds._mujoco_simulators import MujocoSimulators, MujocoWorld
from sonde.worlds._sampling import reachable_by_noise
from sonde.worlds._task import GoalTask
from sonde.worlds.fetch._interaction import interaction
from sonde.worlds.fetch._layout import (
    GRIP_HOME,
    HALF_SIZE,
    MOST_BLOCKS,
    PLAYGROUND,
    REST_HEIGHT,
    SECONDS_PER_STEP,
    block_names,
    block_positions,
    grip_position,
    robot_names,
)
from sonde.worlds.fetch._scene import CAMERA, COLOURS, DOWNWARDS, SUBSTEPS, rgb, scene
from sonde.worlds.fetch._script import play
from sonde.worlds.fetch._tasks import goal_tasks

REACH = 0.05
"""How far from the grip its target is set by an action of 1."""
WIDEST = 0.2
"""The farthest from the middle that a finger can be told to go; it stops at 0.05."""
CLEAR_OF_GRIP = 0.1
"""Blocks start at least so far from below the grip."""
WIDEST_SPACING, THROW_SPACING = 0.1, 0.08
TRIES = 100


def euler_angles(matrices: Float[np.ndarray, "*n 3 3"]) -> Float[np.ndarray, "*n 3"]:
    """Angles e of rotations R = Rx(e0) Ry(e1) Rz(e2): e0 and e2 in [-pi, pi], e1 in [-pi/2, pi/2].

    Where e1 is +-pi/2, only the sum or the difference of the others is defined; e0 is then 0.
    """
    r = matrices
    cosine = np.hypot(r[..., 2, 2], r[..., 1, 2])
    defined = cosine > 1e-12
    # 0 - a, not -a: that would make -pi of an angle of pi
    first = np.where(defined, np.arctan2(0.0 - r[..., 1, 2], r[..., 2, 2]), 0.0)
    third = np.where(defined, np.arctan2(0.0 - r[..., 0, 1], r[..., 0, 0]), np.arctan2(r[..., 1, 0], r[..., 1, 1]))
    return np.stack([first, np.arctan2(r[..., 0, 2], cosine), third], axis=-1)


def nearest_angles(angles: Float[np.ndarray, "*n 3"], before: Float[np.ndarray, "*n 3"]) -> Float[np.ndarray, "*n 3"]:
    """Of all angles that mean the same rotations, those nearest to what they were before.

    Full turns mean nothing, nor do half turns of e0 and e2 if e1 is mirrored at pi/2.
    """
    twins = np.stack([angles, np.pi + angles * [1.0, -1.0, 1.0]])
    twins += 2 * np.pi * np.round((before - twins) / (2 * np.pi))
    nearer = np.argmin(np.linalg.norm(twins - before, axis=-1), axis=0)
    return np.take_along_axis(twins, nearer[None, ..., None], axis=0)[0]


def scatter_blocks(rng: np.random.Generator, blocks: int, spacing: float) -> np.ndarray:
    """Places [blocks, 2] around the grip's home: not below it, and `spacing` apart, which is less than a block's diagonal."""
    home = np.array(GRIP_HOME[:2])
    places: list[np.ndarray] = []
    while len(places) < blocks:
        for _ in range(TRIES):
            place = home + rng.uniform(-PLAYGROUND, PLAYGROUND, 2)
            if np.linalg.norm(place - home) >= CLEAR_OF_GRIP and all(np.linalg.norm(place - p) >= spacing for p in places):
                places.append(place)
                break
        else:
            places = []  # those that lie already may have left no room
    return np.array(places)


@dataclass(frozen=True)
class FetchConstruction(MujocoWorld):
    """An arm and blocks on a wide table; starts with the gripper closed over it, and the blocks scattered around."""

    blocks: int = 4
    """Blocks on the table, 1 to 6."""
    spacing: float = 0.06
    """Least distance between blocks at the start, in m; where they are to be thrown, 0.08 or more."""
    angles: Literal["bounded", "continuous"] = "bounded"
    """bounded: a block's angles lie within pi and jump at the end of that. continuous: they go on from what they were, past pi
    if need be, since the start of the episode."""

    domain: ClassVar[str] = "fetch-construction"
    camera: ClassVar[str] = CAMERA
    step_weight: ClassVar[int] = 4  # 30 us each

    def __post_init__(self):
        """Refuse settings that mean nothing."""
        if not isinstance(self.blocks, int) or isinstance(self.blocks, bool) or not 1 <= self.blocks <= MOST_BLOCKS:
            raise SondeError(f"{self.domain}: blocks must be a whole number from 1 to {MOST_BLOCKS}, got {self.blocks!r}")
        positive(self.domain, spacing=self.spacing)
        one_of("setting of the world's angles", self.angles, ("bounded", "continuous"))
        if self.spacing > WIDEST_SPACING:
            raise SondeError(f"{self.domain}: spacing must be at most {WIDEST_SPACING} to leave room, got {self.spacing}")

    @property
    def state_names(self) -> tuple[str, ...]:
        """Lengths in m, angles in rad, velocities in m and rad per step."""
        return (*robot_names(), *(name for i in range(self.blocks) for name in block_names(i)))

    @property
    def action_names(self) -> tuple[str, ...]:
        """The grip's way, and the fingers."""
        return ("move x", "move y", "move z", "open")

    @property
    def tasks(self) -> Mapping[str, GoalTask]:
        """The paper's three."""
        return goal_tasks(self.blocks)

    def for_task(self, task: str) -> "FetchConstruction":
        """To be thrown, blocks lie further apart at the start."""
        return replace(self, spacing=max(self.spacing, THROW_SPACING)) if task == "throw" else self

    def episode_metrics(self, states: np.ndarray, next_states: np.ndarray) -> dict[str, float]:
        """What became of the blocks."""
        return {f"interaction/{name}": float(value) for name, value in interaction(states, next_states)._asdict().items()}

    @property
    def metric_specs(self) -> tuple[MetricSpec, ...]:
        """How much the blocks were moved."""
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
        """Simulated time that one action lasts."""
        return SECONDS_PER_STEP

    @property
    def steps_per_action(self) -> int:
        """Physics steps that one action lasts."""
        return SUBSTEPS

    def compiled(self) -> Any:
        """One for all that have so many blocks."""
        return scene(self.blocks).model

    def start(self, model: Any, data: Any, rng: np.random.Generator) -> np.ndarray:
        """The settled scene, with the blocks scattered."""
        it = scene(self.blocks)
        engine().mj_setState(model, data, it.settled, engine().mjtState.mjSTATE_INTEGRATION)
        data.qpos[it.block_positions[:, :2]] = scatter_blocks(rng, self.blocks, self.spacing)
        data.qpos[it.block_positions[:, 2]] = REST_HEIGHT
        return np.zeros(3 * self.blocks if self.angles == "continuous" else 0)

    def control(self, copies: Sequence[Any], actions: np.ndarray) -> None:
        """The target of the gripper is set anew from where it is, so that it never runs ahead of the arm."""
        it, actions = scene(self.blocks), np.clip(actions, -1.0, 1.0)
        places = gathered(copies, "xpos")[:, it.gripper] + REACH * actions[:, :3]
        turns = gathered(copies, "xquat")[:, it.gripper] + DOWNWARDS
        turns /= np.sqrt(np.vecdot(turns, turns))[:, None]
        fingers = np.clip(gathered(copies, "qpos")[:, it.actuated] + actions[:, 3:], 0.0, WIDEST)
        for data, place, turn, finger in zip(copies, places, turns, fingers, strict=True):
            data.mocap_pos[0], data.mocap_quat[0], data.ctrl[:] = place, turn, finger

    def advance(self, model: Any, data: Any) -> None:
        """Places of bodies, which the next target is set from, belong to the new state only after mj_forward."""
        engine().mj_step(model, data, SUBSTEPS)
        engine().mj_forward(model, data)

    def observe(self, model: Any, copies: Sequence[Any], targets: np.ndarray) -> np.ndarray:
        """Robot, then block by block; `targets` have the angles from before, where they are continuous."""
        mujoco, it, num_copies, velocities = engine(), scene(self.blocks), len(copies), np.empty((len(copies), 6))
        for data, velocity in zip(copies, velocities, strict=True):
            mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_SITE, it.grip, velocity, 0)
        qvel = SECONDS_PER_STEP * gathered(copies, "qvel")
        robot = [gathered(copies, "site_xpos")[:, it.grip], gathered(copies, "qpos")[:, it.finger_positions]]
        robot += [SECONDS_PER_STEP * velocities[:, 3:], qvel[:, it.finger_velocities]]
        # take, not [:, ...]: in memory its result lies copy by copy, and sums then do not depend on how many copies there are
        turns = gathered(copies, "xmat").take(it.bodies, axis=1).reshape(num_copies, -1, 3, 3)
        rates = qvel.take(it.block_velocities, axis=1)
        spins = np.einsum("sbij,sbj->sbi", turns, rates[..., 3:])  # MuJoCo has them in the block's own frame
        angles = euler_angles(turns)
        if self.angles == "continuous":
            angles = nearest_angles(angles, targets.reshape(num_copies, -1, 3))
            targets[:] = angles.reshape(num_copies, -1)
        blocks = [gathered(copies, "xpos")[:, it.bodies], angles, rates[..., :3], spins]
        return np.concatenate([*robot, np.concatenate(blocks, axis=-1).reshape(num_copies, -1)], axis=1)

    def open(self, num_copies: int) -> "FetchSimulators":
        """That many copies."""
        return FetchSimulators(self, num_copies)

    def reachable(self) -> Transitions:
        """Half of them under noise alone, which hardly ever meets a block, and half while a script carries one about, badly."""
        return reachable_by_noise(self, episodes=40, steps=60, steer=play)

    def plane(self) -> Plane:
        """How near a block the grip came, and how high a block was."""

        def from_state(states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            blocks = block_positions(states)
            nearest = np.linalg.norm(blocks - grip_position(states)[..., None, :], axis=-1).min(axis=-1)
            return nearest, blocks[..., 2].max(axis=-1) - REST_HEIGHT

        return Plane("grip to nearest block [m]", "highest block above its place on the table [m]", from_state)


class FetchSimulators(MujocoSimulators):
    """Copies of the Fetch scene, whose pictures can show goals."""

    def show_goal(self, goal: Float[np.ndarray, " dg"] | None) -> None:
        """From now on draw where each block should go, in its colour; nothing without places. The simulation does not know."""
        places = np.empty((0, 3)) if goal is None else goal.reshape(-1, 3)
        pairs = zip(places, COLOURS, strict=False)
        self.markers = tuple(Marker(place, HALF_SIZE, (*rgb(colour), 0.25)) for place, colour in pairs)
