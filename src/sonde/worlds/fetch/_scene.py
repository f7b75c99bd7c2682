"""The Fetch arm, a wide table and blocks, as one MuJoCo model that is put together in memory.

The arm's description and meshes are read where the installed `gymnasium-robotics` has them; that package itself is not
imported, and nothing of it is kept here.
"""

import functools
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sonde._internal.errors import SondeError
from sonde.worlds._mujoco import engine, without_warnings
from sonde.worlds.fetch._layout import HALF_SIZE, TABLE_TOP

SUBSTEPS = 20
"""Physics steps of 0.002 s in a control step."""
DOWNWARDS = (1.0, 0.0, 1.0, 0.0)
"""The quaternion, not normalised, of a gripper that points down."""
COLOURS = ("#D55E00", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#0072B2")
"""Of the blocks: also told apart by people who see colours differently."""
CAMERA, _EYE, _LOOKS_AT = "overview", (2.95, 0.4, 1.6), (1.27, 0.735, 0.53)

_BASE = ("base_link", "torso_fixed_link", "estop_link", "laser_link")
_BASE_POSITION = {"slide0": 0.405, "slide1": 0.48, "slide2": 0.0}
_TO_HOME = (-0.498, 0.005, -0.231)
"""From where the stretched arm has its grip to where episodes start."""
_STACK, _STACK_STEP = (1.25, 0.53, TABLE_TOP), 0.06
_SETTLING_STEPS = 10


@dataclass(frozen=True, eq=False)
class Scene:
    """The compiled model, the state from which episodes start, and where MuJoCo's arrays have what."""

    model: Any
    settled: np.ndarray
    """MuJoCo's integration state once the arm is at its home and the blocks lie still, in a stack beside it."""
    gripper: int
    grip: int
    finger_positions: np.ndarray
    finger_velocities: np.ndarray
    actuated: np.ndarray
    """Of each actuator, the position that it moves."""
    bodies: np.ndarray
    block_positions: np.ndarray
    """[blocks, 3] into qpos."""
    block_velocities: np.ndarray
    """[blocks, 6] into qvel."""


def rgb(colour: str) -> tuple[float, float, float]:
    """Red, green and blue, from 0 to 1, of #RRGGBB."""
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return red, green, blue


def _description() -> Path:
    found = importlib.util.find_spec("gymnasium_robotics")
    where = [] if found is None else found.submodule_search_locations or []
    for folder in where:
        if (file := Path(folder, "envs", "assets", "fetch", "pick_and_place.xml")).is_file():
            return file
    problem = "is not installed" if found is None else "does not have it"
    raise SondeError(
        f"fetch-construction needs the Fetch arm's description and meshes, and gymnasium-robotics {problem}: "
        "pip install '.[fetch]' in Sonde's folder"
    )


def _specification(blocks: int) -> Any:
    mujoco = engine()
    spec = mujoco.MjSpec.from_file(str(_description()))
    for name in ("table0", "object0"):
        spec.delete(spec.body(name))
    spec.delete(spec.site("target0"))
    ground = spec.body("floor0")
    # a plane: it is drawn as large as this, and has no end for what lies on it
    plane, size = mujoco.mjtGeom.mjGEOM_PLANE, [1.3, 1.3, 0.1]
    ground.add_geom(name="table", type=plane, pos=[0, 0, TABLE_TOP], size=size, material="table_mat", condim=3)
    for body in _BASE:  # it stands in the table's plane
        spec.add_exclude(bodyname1="floor0", bodyname2=f"robot0:{body}")
    for i in range(blocks):
        x, y, z = _STACK
        body = spec.worldbody.add_body(name=_block(i), pos=[x, y, z + _STACK_STEP * i])
        body.add_joint(name=_block(i), type=mujoco.mjtJoint.mjJNT_FREE, damping=0.01)
        body.add_geom(
            name=_block(i),
            type=mujoco.mjtGeom.mjGEOM_BOX,
            size=[HALF_SIZE] * 3,
            mass=2.0,
            condim=3,
            friction=[1.0, 0.005, 0.0001],
            rgba=[*rgb(COLOURS[i]), 1.0],
        )
    _make_presentable(spec)
    return spec


def _make_presentable(spec: Any) -> None:
    """What only pictures show: a camera, light, and nothing that is there for the control alone."""
    for geom in spec.body("robot0:mocap").geoms:
        geom.group = 5  # which is not drawn
    backdrop = spec.textures[0]
    backdrop.rgb1, backdrop.rgb2 = [0.97, 0.97, 0.97], [0.80, 0.86, 0.92]
    spec.material("table_mat").rgba = [0.80, 0.77, 0.72, 1.0]
    for light in spec.lights:
        light.diffuse = [0.2, 0.2, 0.2]
    spec.visual.headlight.diffuse = [0.25, 0.25, 0.25]
    sun = {"type": engine().mjtLightType.mjLIGHT_DIRECTIONAL, "castshadow": True, "specular": [0.1, 0.1, 0.1]}
    spec.worldbody.add_light(pos=[1.8, 0.3, 3.0], dir=[-0.3, 0.25, -1.0], diffuse=[0.5, 0.5, 0.5], **sun)
    spec.worldbody.add_camera(name=CAMERA, pos=_EYE, quat=_looking(_EYE, _LOOKS_AT), fovy=43)


def _looking(eye: tuple[float, float, float], at: tuple[float, float, float]) -> np.ndarray:
    """The quaternion of a camera that looks from one point to another, upright."""
    backwards = np.subtract(eye, at)
    right = np.cross([0.0, 0.0, 1.0], backwards)
    axes = np.stack([right, np.cross(backwards, right), backwards], axis=1)
    quaternion = np.empty(4)
    engine().mju_mat2Quat(quaternion, (axes / np.linalg.norm(axes, axis=0)).ravel())
    return quaternion


def _block(i: int) -> str:
    return f"block{i}"


@functools.cache
def scene(blocks: int) -> Scene:
    """Compiled and settled once; pictures and simulations leave the model as it is."""
    with without_warnings():
        model = _specification(blocks).compile()
    # the weld holds the gripper at the mocap body itself, not at the offset that both have in the description
    model.eq_data[0, :10] = [0, 0, 0, 0, 0, 0, 1, 0, 0, 0]
    fingers = [model.joint(f"robot0:{side}_gripper_finger_joint") for side in ("r", "l")]
    joints = [model.joint(_block(i)) for i in range(blocks)]
    return Scene(
        model=model,
        settled=_settled(model),
        gripper=model.body("robot0:gripper_link").id,
        grip=model.site("robot0:grip").id,
        finger_positions=np.array([finger.qposadr[0] for finger in fingers]),
        finger_velocities=np.array([finger.dofadr[0] for finger in fingers]),
        actuated=model.jnt_qposadr[model.actuator_trnid[:, 0]],
        bodies=np.array([model.body(_block(i)).id for i in range(blocks)]),
        block_positions=np.array([joint.qposadr[0] + np.arange(3) for joint in joints]),
        block_velocities=np.array([joint.dofadr[0] + np.arange(6) for joint in joints]),
    )


def _settled(model: Any) -> np.ndarray:
    mujoco, data = engine(), engine().MjData(model)
    for joint, position in _BASE_POSITION.items():
        data.joint(f"robot0:{joint}").qpos[:] = position
    mujoco.mj_forward(model, data)
    data.mocap_pos[0] = data.site("robot0:grip").xpos + _TO_HOME
    data.mocap_quat[0] = np.array(DOWNWARDS) / np.linalg.norm(DOWNWARDS)
    mujoco.mj_step(model, data, SUBSTEPS * _SETTLING_STEPS)
    data.time = 0.0
    everything = mujoco.mjtState.mjSTATE_INTEGRATION
    state = np.empty(mujoco.mj_stateSize(model, everything))
    mujoco.mj_getState(model, data, state, everything)
    return state
