"""Pictures of a MuJoCo simulation, drawn off screen.

MuJoCo's own renderer takes the OpenGL of a window system unless the environment says otherwise before the first import. Here
the choice is made when the first picture is asked for, so that a machine without a screen draws without being told how.
"""

import atexit
import importlib
import os
import platform
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from sonde._internal.errors import SondeError
from sonde.worlds._mujoco import engine

SIZE = 480
"""Width and height in pixels; even, as video formats want it."""


def _backend() -> str:
    """The way to OpenGL: what MUJOCO_GL says, else without a screen on Linux EGL, else MuJoCo's default."""
    wanted = os.environ.get("MUJOCO_GL", "").lower().strip()
    if wanted in ("egl", "osmesa", "glfw"):
        return f"mujoco.{wanted}"
    headless = not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    return "mujoco.egl" if platform.system() == "Linux" and headless else "mujoco"


class Marker(NamedTuple):
    """A cube that is only in the picture."""

    position: np.ndarray
    half_size: float
    colour: tuple[float, float, float, float]
    """Red, green, blue and how opaque, each from 0 to 1."""


class Painter:
    """Draws a model's data as its camera sees them."""

    def __init__(self, model: Any, camera: str):
        """Takes OpenGL; `close` gives it back."""
        mujoco, backend = engine(), _backend()
        try:
            gl = importlib.import_module(backend)
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # GLFW only warns that it has no screen
                self._gl: Any = gl.GLContext(SIZE, SIZE)
                self._gl.make_current()
            self._context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_150.value)
        except Exception as error:  # each backend fails in ways of its own
            raise SondeError(
                f"no picture: there is no OpenGL through {backend} ({type(error).__name__}: {error}); without a screen install "
                "EGL (Debian and Ubuntu: libegl1 libgl1-mesa-dri) or set MUJOCO_GL=osmesa and install libosmesa6"
            ) from error
        # EGL is taken down when the program ends; what was made with it must have been given back before
        atexit.register(self.close)
        self._model, self._scene = model, mujoco.MjvScene(model, maxgeom=1000)
        self._options, self._camera = mujoco.MjvOption(), mujoco.MjvCamera()
        self._camera.type, self._camera.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED, model.camera(camera).id
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._context)

    def draw(self, data: Any, markers: Sequence[Marker] = ()) -> np.ndarray:
        """An image, uint8 [height, width, 3]."""
        mujoco = engine()
        self._gl.make_current()
        everything = mujoco.mjtCatBit.mjCAT_ALL
        mujoco.mjv_updateScene(self._model, data, self._options, None, self._camera, everything, self._scene)
        for marker in markers:
            self._add(marker)
        image, frame = np.empty((SIZE, SIZE, 3), np.uint8), mujoco.MjrRect(0, 0, SIZE, SIZE)
        mujoco.mjr_render(frame, self._scene, self._context)
        mujoco.mjr_readPixels(image, None, frame, self._context)
        return image[::-1]  # OpenGL counts rows from below

    def _add(self, marker: Marker) -> None:
        mujoco, scene = engine(), self._scene
        size, turn = np.full(3, marker.half_size), np.eye(3).ravel()
        colour = np.array(marker.colour, np.float32)
        box = mujoco.mjtGeom.mjGEOM_BOX
        mujoco.mjv_initGeom(scene.geoms[scene.ngeom], box, size, np.asarray(marker.position, np.float64), turn, colour)
        scene.ngeom += 1

    def close(self) -> None:
        """Give OpenGL back."""
        atexit.unregister(self.close)
        if self._gl is not None:
            self._gl.make_current()
            self._context.free()
            self._gl.free()
            self._gl = None
