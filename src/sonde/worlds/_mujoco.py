"""MuJoCo's own functions as the control suite calls them. Nothing is imported before it is needed."""

import contextlib
import functools
import importlib
import warnings
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np

from sonde._internal.errors import SondeError


def _imported(module: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on import they look for a screen
            return importlib.import_module(module)
    except ImportError as error:
        hint = "pip install '.[mujoco]' in Sonde's folder"
        raise SondeError(f"this world needs MuJoCo and the control suite ({error}): {hint}") from None


@functools.cache
def engine() -> Any:
    """MuJoCo."""
    return _imported("mujoco")


def control_suite(domain: str) -> Any:
    """That module of the DeepMind control suite."""
    return getattr(_imported("dm_control.suite"), domain)


@contextlib.contextmanager
def without_warnings() -> Generator[None]:
    """Others' models use words that MuJoCo is about to retire, which is nothing that a user could change."""
    mujoco = engine()
    reader = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda _: None)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(reader)


def compile_model(xml: str | bytes, assets: dict[str, bytes]) -> Any:
    """MuJoCo's model of an XML text and the files that it includes."""
    with without_warnings():
        return engine().MjModel.from_xml_string(xml, assets)


def gathered(copies: Sequence[Any], field: str) -> np.ndarray:
    """That field of MuJoCo's data, [S, ...]: numpy then works on all copies in one call."""
    return np.stack([getattr(data, field) for data in copies])


def physics_step(model: Any, data: Any, steps: int) -> None:
    """Advance under the controls that are set; positions and velocities are up to date before and after.

    The first half of the first step was done at the end of the last call, and the same is done for the next one here:
    observations that derive from positions and velocities then belong to the new state.
    """
    mujoco = engine()
    mujoco.mj_step2(model, data)
    if steps > 1:
        mujoco.mj_step(model, data, steps - 1)
    mujoco.mj_step1(model, data)


def randomise_joints(model: Any, data: Any, rng: np.random.Generator) -> None:
    """Limited hinges and slides uniformly within their limits, other hinges anywhere on the circle; the rest stays."""
    for joint in range(model.njnt):
        if model.jnt_limited[joint]:
            data.qpos[model.jnt_qposadr[joint]] = rng.uniform(*model.jnt_range[joint])
        elif model.jnt_type[joint] == engine().mjtJoint.mjJNT_HINGE:
            data.qpos[model.jnt_qposadr[joint]] = rng.uniform(-np.pi, np.pi)
