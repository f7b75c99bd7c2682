"""Shapes and types are checked in tests only: jaxtyping with beartype on the whole package."""

import os
from pathlib import Path

# no device is looked for in vain, and two test processes share two cores
os.environ.setdefault("JAX_PLATFORMS", "cpu")

from jaxtyping import install_import_hook

install_import_hook("sonde", "beartype.beartype")

import jax
import pytest


@pytest.fixture
def x64():
    """Double precision for code that is called below the engine's entry points."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(autouse=True)
def room_for_compiled_programs():
    """Each compiled program holds memory maps, of which Linux grants a process 65,530; a long suite would use them up."""
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > 30_000:
        jax.clear_caches()
    yield
