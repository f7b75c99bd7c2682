"""Images of a MuJoCo simulation, rendered off screen.

MuJoCo's own renderer chooses its OpenGL backend on import, by default that of a window system. Here the choice is made for the
first image, so a machine without a screen needs no configuration.
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
from sonde.worlds._mujoco import load_mujoco

SIZE = 480
"""Width and height in pixels; even, as video formats require."""


def _backend() -> str:
    """The OpenGL backend: MUJOCO_GL if set, EGL on Linux without a screen, else MuJoCo's default."""
    wanted = os.environ.get("MUJOCO_GL", "").lower().strip()
    if wanted in ("egl", "osmesa", "glfw"):
        return f"mujoco.{wanted}"
    headless = not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    return "mujoco.egl" if platform.system() == "Linux" and headless else "mujoco"


class Marker(NamedTuple):
    """A cube that exists only in images."""

    position: np.ndarray
    """Centre [3]."""
    half_size: float
    """Half of its edge length."""
    colour: tuple[float, float, float, float]
    """Red, green, blue and opacity, each from 0 to 1."""


class Renderer:
    """Renders a model's data from one of its cameras."""

    def __init__(self, model: Any, camera: str):
        """Create an OpenGL context; `close` releases it.

        Args:
            model: MuJoCo's model.
            camera: Name of one of its cameras.
        """
        mujoco, backend = load_mujoco(), _backend()
        try:
            gl = importlib.import_module(backend)
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # GLFW only warns if there is no screen
                self._gl: Any = gl.GLContext(SIZE, SIZE)
                self._gl.make_current()
            self._context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_150.value)
        except Exception as error:  # each backend raises errors of its own
            raise SondeError(
                f"no image: OpenGL is not available through {backend} ({type(error).__name__}: {error}); without a screen "
                "install EGL (Debian and Ubuntu: libegl1 libgl1-mesa-dri) or set MUJOCO_GL=osmesa and install libosmesa6"
            ) from error
        # EGL is shut down at exit; contexts must be released before that
        atexit.register(self.close)
        self._model, self._scene = model, mujoco.MjvScene(model, maxgeom=1000)
        self._options, self._camera = mujoco.MjvOption(), mujoco.MjvCamera()
        self._camera.type, self._camera.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED, model.camera(camera).id
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._context)

    def render(self, data: Any, markers: Sequence[Marker] = ()) -> np.ndarray:
        """Render one image.

        Args:
            data: MuJoCo's data.
            markers: Cubes to add to the image.

        Returns:
            An image, uint8 [SIZE, SIZE, 3].
        """
        mujoco = load_mujoco()
        self._gl.make_current()
        everything = mujoco.mjtCatBit.mjCAT_ALL
        mujoco.mjv_updateScene(self._model, data, self._options, None, self._camera, everything, self._scene)
        for marker in markers:
            self._add(marker)
        image, frame = np.empty((SIZE, SIZE, 3), np.uint8), mujoco.MjrRect(0, 0, SIZE, SIZE)
        mujoco.mjr_render(frame, self._scene, self._context)
        mujoco.mjr_readPixels(image, None, frame, self._context)
        return image[::-1]  # OpenGL's rows start at the bottom

    def _add(self, marker: Marker) -> None:
        mujoco, scene = load_mujoco(), self._scene
        size, rotation = np.full(3, marker.half_size), np.eye(3).ravel()
        colour = np.array(marker.colour, np.float32)
        box = mujoco.mjtGeom.mjGEOM_BOX
        mujoco.mjv_initGeom(scene.geoms[scene.ngeom], box, size, np.asarray(marker.position, np.float64), rotation, colour)
        scene.ngeom += 1

    def close(self) -> None:
        """Release OpenGL."""
        atexit.unregister(self.close)
        if self._gl is not None:
            self._gl.make_current()
            self._context.free()
            self._gl.free()
            self._gl = None
