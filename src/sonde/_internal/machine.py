"""The machine and the versions that a result was made with, and the memory that is free on it."""

import os
import platform
from pathlib import Path
from typing import NamedTuple

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


class Memory(NamedTuple):
    """Memory that a program can still ask for."""

    bytes: int
    """How much is free."""
    where: str
    """What has it, in words."""
    accelerator: bool
    """Whether it is that of an accelerator."""


def free_memory() -> Memory:
    """Memory of the device that JAX computes on: what is free of the accelerator's, or of this machine's."""
    device = jax.local_devices()[0]
    stats = device.memory_stats() if device.platform != "cpu" else None
    if stats and "bytes_limit" in stats:
        return Memory(stats["bytes_limit"] - stats.get("bytes_in_use", 0), f"the {device.device_kind}", True)
    return Memory(free_host_memory(), "this machine", device.platform != "cpu")


def free_host_memory(root: Path = Path("/")) -> int:
    """Bytes of main memory that are free, within what a container may use.

    Args:
        root: Where `proc` and `sys` are.
    """
    meminfo = _lines(root / "proc/meminfo")
    available = next((int(line.split()[1]) * 1024 for line in meminfo if line.startswith("MemAvailable")), None)
    if available is None:  # not Linux: take all that there is
        available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    groups = root / "sys/fs/cgroup"
    own = next((line.split(":", 2)[2].strip("/") for line in _lines(root / "proc/self/cgroup")), "")
    for folder in (groups, groups / own):  # a container sees its own limits at the top, a service of the machine further down
        for limit, used in (("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")):
            most, now = (_lines(folder / name)[:1] for name in (limit, used))
            if most and most[0].isdigit():
                # files in the cache count as used, and can be dropped
                cached = [int(line.split()[1]) for line in _lines(folder / "memory.stat") if line.startswith("inactive_file ")]
                taken = int(now[0]) - sum(cached) if now and now[0].isdigit() else 0
                available = min(available, max(int(most[0]) - taken, 0))
    return available


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
