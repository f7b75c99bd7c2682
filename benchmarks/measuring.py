"""Clocks, and the machine's own limit."""

import resource
import sys
import time
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

PRECISIONS = {"default": jax.lax.Precision.DEFAULT, "highest": jax.lax.Precision.HIGHEST}


def note(text: str) -> None:
    """Progress, beside the results on standard output."""
    print(text, file=sys.stderr, flush=True)


def on_cpu() -> bool:
    return jax.default_backend() == "cpu"


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def measure(work, repeats: int) -> dict[str, float]:
    """Seconds per call, the median over `repeats` without compilation: CPU-seconds on a CPU, wall time elsewhere."""
    jax.block_until_ready(work())
    cpu, wall = [], []
    for _ in range(repeats):
        began_cpu, began_wall = cpu_seconds(), time.perf_counter()
        jax.block_until_ready(work())
        cpu.append(cpu_seconds() - began_cpu)
        wall.append(time.perf_counter() - began_wall)
    return {"seconds": float(np.median(cpu if on_cpu() else wall)), "wall_seconds": float(np.median(wall))}


def gemm_rate(dtype: Any, precision: Literal["default", "highest"]) -> float:
    """GFLOP per second of large matrix products, one after the other: the machine's own limit for this kind of work."""
    size, products = (1536, 8) if on_cpu() else (8192, 20)
    matrix = jnp.asarray(np.random.default_rng(0).standard_normal((size, size)) / size**0.5, dtype)

    @jax.jit
    def chain(x, y):
        return jax.lax.fori_loop(0, products, lambda _, x: jax.lax.dot(x, y, precision=PRECISIONS[precision]), x)

    return products * 2 * size**3 / measure(lambda: chain(matrix, matrix), 3)["seconds"] / 1e9


def in_lockstep(tree: Any, runs: int) -> Any:
    """The same for each of `runs` runs."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (runs, *leaf.shape)), tree)
