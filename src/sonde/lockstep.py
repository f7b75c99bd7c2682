"""Runs that advance together."""

from collections.abc import Callable
from typing import Any

import jax


def lockstep(function: Callable[..., Any]) -> Callable[..., Any]:
    """Like `vmap`: code that is written for one run, for S runs at once (the leading axis of every array).

    A single run keeps its plain shapes: compilers make slower code of products that carry an axis of length one.
    """

    def mapped(*trees: Any) -> Any:
        runs = jax.tree.leaves(trees)[0].shape[0]
        if runs > 1:
            return jax.vmap(function)(*trees)
        result = function(*jax.tree.map(lambda leaf: leaf[0], trees))
        return jax.tree.map(lambda leaf: leaf[None], result)

    return mapped
