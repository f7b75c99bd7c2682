"""The machine and the versions that a result was made with."""

import os
import platform
from pathlib import Path

import jax

from sonde import __version__


def this_machine() -> dict[str, str]:
    """Versions, the device that JAX computes on, and the CPU.

    Returns:
        Descriptions by name, for a result's metadata.
    """
    return {
        "sonde": __version__,
        "python": platform.python_version(),
        "jax": jax.__version__,
        "device": jax.devices()[0].device_kind,
        "processor": processor(),
    }


def processor() -> str:
    """Name of the CPU and number of usable cores."""
    lines = (
        Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        if Path("/proc/cpuinfo").exists()
        else []
    )
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {cores()} core{'' if cores() == 1 else 's'}"


def cores() -> int:
    """Number of cores that this process may use, which may be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
