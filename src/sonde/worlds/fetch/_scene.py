"""The Fetch arm, a wide table and blocks, as one MuJoCo model that is built in memory.

The arm's description and meshes are read from the installed `gymnasium-robotics`; that package is not imported, and none of
its files are copied here.
"""

import functools
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sonde._internal.errors import SondeError
from sonde.worlds._mujoco import ignore_mujoco_warnings, load_mujoco
from sonde.worlds._scales import STANDARD, Scales, scale_physics
from sonde.worlds.fetch._layout import HALF_SIZE, TABLE_TOP

SUBSTEPS = 20
"""Physics steps of 0.002 s per action."""
DOWNWARDS = (1.0, 0.0, 1.0, 0.0)
"""Quaternion, not normalised, of a gripper that points down."""
COLOURS = ("#D55E00", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#0072B2")
"""Colours of the blocks, distinguishable with colour blindness."""
CAMERA, _CAMERA_POSITION, _CAMERA_TARGET = "overview", (2.95, 0.4, 1.6), (1.27, 0.735, 0.53)

_BASE_BODIES = ("base_link", "torso_fixed_link", "estop_link", "laser_link")
_BASE_POSITION = {"slide0": 0.405, "slide1": 0.48, "slide2": 0.0}
_TO_HOME = (-0.498, 0.005, -0.231)
"""Offset from the grip of the stretched arm to the grip at the start of episodes."""
_STACK, _STACK_STEP = (1.25, 0.53, TABLE_TOP), 0.06
_SETTLING_STEPS = 10


@dataclass(frozen=True, eq=False)
class Scene:
    """The compiled model, the state from which episodes start, and indices into MuJoCo's arrays."""

    model: Any
    """MuJoCo's model."""
    settled: np.ndarray
    """MuJoCo's integration state with the arm at its home and the blocks at rest, in a stack beside it."""
    gripper: int
    """Index of the gripper's body."""
    grip: int
    """Index of the site between the fingers."""
    finger_positions: np.ndarray
    """Indices of both fingers in qpos [2]."""
    finger_velocities: np.ndarray
    """Indices of both fingers in qvel [2]."""
    actuated: np.ndarray
    """Index in qpos that each actuator moves."""
    bodies: np.ndarray
    """Indices of the blocks' bodies [blocks]."""
    block_positions: np.ndarray
    """Indices of the blocks' positions in qpos [blocks, 3]."""
    block_velocities: np.ndarray
    """Indices of the blocks' velocities in qvel [blocks, 6]."""


def rgb(colour: str) -> tuple[float, float, float]:
    """Convert a colour to red, green and blue from 0 to 1.

    Args:
        colour: Colour as #RRGGBB.
    """
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return red, green, blue


@functools.cache
def load_scene(blocks: int, scales: Scales = STANDARD) -> Scene:
    """Compile the model and let it settle; cached, since neither rendering nor simulation changes the model.

    Args:
        blocks: Number of blocks.
        scales: Factors on the physics; that of mass is on the blocks.
    """
    with ignore_mujoco_warnings():
        model = _specification(blocks).compile()
    # weld the gripper to the mocap body itself, without the offset between both in the description
    model.eq_data[0, :10] = [0, 0, 0, 0, 0, 0, 1, 0, 0, 0]
    bodies = np.array([model.body(_block_name(i)).id for i in range(blocks)])
    settled = _settled_state(model)  # before scaling: blocks that are lighter would still be in the air
    scale_physics(model, scales, bodies)
    fingers = [model.joint(f"robot0:{side}_gripper_finger_joint") for side in ("r", "l")]
    joints = [model.joint(_block_name(i)) for i in range(blocks)]
    return Scene(
        model=model,
        settled=settled,
        gripper=model.body("robot0:gripper_link").id,
        grip=model.site("robot0:grip").id,
        finger_positions=np.array([finger.qposadr[0] for finger in fingers]),
        finger_velocities=np.array([finger.dofadr[0] for finger in fingers]),
        actuated=model.jnt_qposadr[model.actuator_trnid[:, 0]],
        bodies=bodies,
        block_positions=np.array([joint.qposadr[0] + np.arange(3) for joint in joints]),
        block_velocities=np.array([joint.dofadr[0] + np.arange(6) for joint in joints]),
    )


def _description() -> Path:
    """The file with the arm's description."""
    found = importlib.util.find_spec("gymnasium_robotics")
    folders = [] if found is None else found.submodule_search_locations or []
    for folder in folders:
        if (file := Path(folder, "envs", "assets", "fetch", "pick_and_place.xml")).is_file():
            return file
    problem = "is not installed" if found is None else "does not have it"
    raise SondeError(
        f"fetch-construction needs the Fetch arm's description and meshes, and gymnasium-robotics {problem}: "
        "pip install '.[fetch]' in Sonde's folder"
    )


def _specification(blocks: int) -> Any:
    """The arm's description with a wide table and blocks instead of its own table and object."""
    mujoco = load_mujoco()
    spec = mujoco.MjSpec.from_file(str(_description()))
    for name in ("table0", "object0"):
        spec.delete(spec.body(name))
    spec.delete(spec.site("target0"))
    ground = spec.body("floor0")
    # a plane is drawn in this size but extends without limit
    plane, size = mujoco.mjtGeom.mjGEOM_PLANE, [1.3, 1.3, 0.1]
    ground.add_geom(name="table", type=plane, pos=[0, 0, TABLE_TOP], size=size, material="table_mat", condim=3)
    for body in _BASE_BODIES:  # the base stands inside the table's plane
        spec.add_exclude(bodyname1="floor0", bodyname2=f"robot0:{body}")
    for i in range(blocks):
        _add_block(spec, i)
    _add_appearance(spec)
    return spec


def _add_block(spec: Any, i: int) -> None:
    mujoco, (x, y, z) = load_mujoco(), _STACK
    body = spec.worldbody.add_body(name=_block_name(i), pos=[x, y, z + _STACK_STEP * i])
    body.add_joint(name=_block_name(i), type=mujoco.mjtJoint.mjJNT_FREE, damping=0.01)
    body.add_geom(
        name=_block_name(i),
        type=mujoco.mjtGeom.mjGEOM_BOX,
        size=[HALF_SIZE] * 3,
        mass=2.0,
        condim=3,
        friction=[1.0, 0.005, 0.0001],
        rgba=[*rgb(COLOURS[i]), 1.0],
    )


def _add_appearance(spec: Any) -> None:
    """Set what only images show: camera, light and colours; hide the mocap body."""
    for geom in spec.body("robot0:mocap").geoms:
        geom.group = 5  # this group is not drawn
    backdrop = spec.textures[0]
    backdrop.rgb1, backdrop.rgb2 = [0.97, 0.97, 0.97], [0.80, 0.86, 0.92]
    spec.material("table_mat").rgba = [0.80, 0.77, 0.72, 1.0]
    for light in spec.lights:
        light.diffuse = [0.2, 0.2, 0.2]
    spec.visual.headlight.diffuse = [0.25, 0.25, 0.25]
    sun = {"type": load_mujoco().mjtLightType.mjLIGHT_DIRECTIONAL, "castshadow": True, "specular": [0.1, 0.1, 0.1]}
    spec.worldbody.add_light(pos=[1.8, 0.3, 3.0], dir=[-0.3, 0.25, -1.0], diffuse=[0.5, 0.5, 0.5], **sun)
    orientation = _look_at(_CAMERA_POSITION, _CAMERA_TARGET)
    spec.worldbody.add_camera(name=CAMERA, pos=_CAMERA_POSITION, quat=orientation, fovy=43)


def _look_at(eye: tuple[float, float, float], at: tuple[float, float, float]) -> np.ndarray:
    """The quaternion of an upright camera that looks from one point to another."""
    backwards = np.subtract(eye, at)
    right = np.cross([0.0, 0.0, 1.0], backwards)
    axes = np.stack([right, np.cross(backwards, right), backwards], axis=1)
    quaternion = np.empty(4)
    load_mujoco().mju_mat2Quat(quaternion, (axes / np.linalg.norm(axes, axis=0)).ravel())
    return quaternion


def _block_name(i: int) -> str:
    return f"block{i}"


def _settled_state(model: Any) -> np.ndarray:
    """MuJoCo's integration state once the arm has moved to its home and everything is at rest."""
    mujoco, data = load_mujoco(), load_mujoco().MjData(model)
    for joint, position in _BASE_POSITION.items():
        data.joint(f"robot0:{joint}").qpos[:] = position
    mujoco.mj_forward(model, data)
    data.mocap_pos[0] = data.site("robot0:grip").xpos + _TO_HOME
    data.mocap_quat[0] = np.array(DOWNWARDS) / np.linalg.norm(DOWNWARDS)
    mujoco.mj_step(model, data, SUBSTEPS * _SETTLING_STEPS)
    data.time = 0.0
    integration = mujoco.mjtState.mjSTATE_INTEGRATION
    state = np.empty(mujoco.mj_stateSize(model, integration))
    mujoco.mj_getState(model, data, state, integration)
    return state
