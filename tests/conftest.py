"""Settings of all tests: types and shapes are checked (jaxtyping with beartype), and compiled programs are shared.

Compiled programs lie in the user's cache folder, where later runs, other checkouts, workers and subprocesses
find them. Most of the time goes into compilation: tests compile with few optimisations, except those of numerical accuracy,
which compile as users do.
"""

import os
import re
import tempfile
from pathlib import Path

# these are read when JAX is imported, and subprocesses inherit them
os.environ.setdefault("JAX_PLATFORMS", "cpu")
_CACHES = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_CACHES / "sonde" / "tests"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
# threads of LAPACK in several processes wait for each other: up to a hundred times slower than one thread each
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# code that tests allow is not remembered in the developer's home folder
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="sonde-tests-")

from jaxtyping import install_import_hook

install_import_hook("sonde", "beartype.beartype")

import jax
import pytest

ACCURATE = re.compile("test_(fused|gp$|gp_abuse|gp_likelihood|gp_low_rank|information|linalg|members|noise|training)")
"""Modules that compare the last digits with a reference."""


def pytest_configure(config: pytest.Config) -> None:
    """Ignore a compiled program that another process has written only half: JAX then compiles it itself."""
    config.addinivalue_line("filterwarnings", "ignore:Error (reading|writing) persistent compilation cache entry")


@pytest.fixture(scope="module", autouse=True)
def optimisations(request):
    """Compile with few optimisations, except in tests of accuracy and on a GPU; subprocesses do the same."""
    few = os.environ["JAX_PLATFORMS"] == "cpu" and not ACCURATE.match(request.path.stem)
    if few != (os.environ.get("JAX_DISABLE_MOST_OPTIMIZATIONS") == "1"):
        os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1" if few else "0"
        jax.config.update("jax_disable_most_optimizations", few)
        jax.clear_caches()  # programs that were compiled the other way


@pytest.fixture
def x64():
    """Double precision for code that is called below the engine's entry points."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def cpu():
    """Run on the CPU, whatever the default device is."""
    with jax.default_device(jax.devices("cpu")[0]):
        yield


@pytest.fixture(autouse=True)
def room_for_compiled_programs():
    """Each compiled program holds memory maps, of which Linux grants a process 65,530; a long suite would use them up."""
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > 30_000:
        jax.clear_caches()
    yield
