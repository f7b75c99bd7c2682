"""MuJoCo's functions, called as the DeepMind control suite calls them. MuJoCo is imported on first use."""

import contextlib
import functools
import importlib
import threading
import warnings
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np

from sonde._internal.errors import SondeError


def _imported(module: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # both packages look for a screen on import and warn if there is none
            return importlib.import_module(module)
    except ImportError as error:
        hint = "pip install '.[mujoco]' in Sonde's folder"
        raise SondeError(f"this world needs MuJoCo and the control suite ({error}): {hint}") from None


@functools.cache
def load_mujoco() -> Any:
    """Import MuJoCo."""
    return _imported("mujoco")


def control_suite(domain: str) -> Any:
    """Import a module of the DeepMind control suite.

    Args:
        domain: The suite's name of the domain.
    """
    return getattr(_imported("dm_control.suite"), domain)


_WARNINGS = threading.RLock()
"""Held while MuJoCo's warnings are silenced: their handler is one for the process, and it must not change during a warning."""


@contextlib.contextmanager
def ignore_mujoco_warnings() -> Generator[None]:
    """Silence MuJoCo's own warnings, such as those about deprecated words in third-party models; in one thread at a time."""
    mujoco = load_mujoco()
    with _WARNINGS:
        handler = mujoco.get_mju_user_warning()
        mujoco.set_mju_user_warning(lambda _: None)
        try:
            yield
        finally:
            mujoco.set_mju_user_warning(handler)


def compile_model(xml: str | bytes, assets: dict[str, bytes]) -> Any:
    """Compile a MuJoCo model.

    Args:
        xml: The model's XML.
        assets: Contents of the files that the XML includes, by name.
    """
    with ignore_mujoco_warnings():
        return load_mujoco().MjModel.from_xml_string(xml, assets)


def stack_field(copies: Sequence[Any], field: str) -> np.ndarray:
    """Stack one field of MuJoCo's data over copies, so that numpy handles all copies in one call.

    Args:
        copies: MuJoCo's data of S copies.
        field: Name of the field, such as qpos.

    Returns:
        Array [S, ...].
    """
    return np.stack([getattr(data, field) for data in copies])


def physics_step(model: Any, data: Any, steps: int) -> None:
    """Advance under the current controls; positions and velocities are consistent before and after.

    The first half of each first step was computed at the end of the previous call, and the same is done here for the next one:
    quantities derived from positions and velocities then belong to the new state.

    Args:
        model: MuJoCo's model.
        data: MuJoCo's data, modified in place.
        steps: Number of physics steps.
    """
    mujoco = load_mujoco()
    mujoco.mj_step2(model, data)
    if steps > 1:
        mujoco.mj_step(model, data, steps - 1)
    mujoco.mj_step1(model, data)


def randomise_joints(model: Any, data: Any, rng: np.random.Generator) -> None:
    """Draw joint positions: limited joints uniformly within their limits, other hinges on the whole circle.

    Args:
        model: MuJoCo's model.
        data: MuJoCo's data, modified in place; other joints keep their positions.
        rng: Random generator.
    """
    for joint in range(model.njnt):
        if model.jnt_limited[joint]:
            data.qpos[model.jnt_qposadr[joint]] = rng.uniform(*model.jnt_range[joint])
        elif model.jnt_type[joint] == load_mujoco().mjtJoint.mjJNT_HINGE:
            data.qpos[model.jnt_qposadr[joint]] = rng.uniform(-np.pi, np.pi)
