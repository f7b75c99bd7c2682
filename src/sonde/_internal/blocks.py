"""Compiled work on rollouts of any length, without a program for each length."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

BLOCK = 256
"""Steps of a rollout that compiled code gets at once."""


def in_blocks(work: Callable[..., Any], *arrays: np.ndarray) -> Any:
    """Apply compiled work to each step of rollouts, `BLOCK` steps at a time.

    Args:
        work: Function of arrays [S, BLOCK, ...] that treats every step alone; it returns a pytree of arrays [S, BLOCK, ...].
        *arrays: Arrays [S, T, ...] of the same T.

    Returns:
        The results as numpy arrays [S, T, ...].
    """
    steps = arrays[0].shape[1]
    found = []
    for start in range(0, steps, BLOCK):
        some = [array[:, start : start + BLOCK] for array in arrays]
        missing = BLOCK - some[0].shape[1]
        # copies of the last step, where the work is as well-defined as there
        full = [np.pad(part, [(0, 0), (0, missing), *[(0, 0)] * (part.ndim - 2)], mode="edge") for part in some]
        found.append(jax.tree.map(np.asarray, work(*map(jnp.asarray, full))))
    return jax.tree.map(lambda *parts: np.concatenate(parts, axis=1)[:, :steps], *found)
