"""What tests of several worlds share."""

import subprocess
import sys


def printed_by(code: str) -> str:
    """What a Python program prints in a process of its own; it must succeed."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True).stdout


def opengl_works() -> bool:
    """Whether MuJoCo itself can create an OpenGL context without a screen, so that a fault of ours is not skipped."""
    code = "from mujoco.egl import GLContext; context = GLContext(8, 8); context.make_current(); context.free()"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
