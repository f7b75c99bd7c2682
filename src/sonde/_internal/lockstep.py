"""Runs that advance together."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax

Tree = TypeVar("Tree")


def lockstep(function: Callable[..., Any]) -> Callable[..., Any]:
    """Like `vmap`: code that is written for one run, for S runs at once (the leading axis of every array).

    A single run keeps its plain shapes: compilers make slower code of products that carry an axis of length one.
    """

    def mapped(*trees: Any) -> Any:
        num_seeds = jax.tree.leaves(trees)[0].shape[0]
        if num_seeds > 1:
            return jax.vmap(function)(*trees)
        result = function(*jax.tree.map(lambda leaf: leaf[0], trees))
        return jax.tree.map(lambda leaf: leaf[None], result)

    return mapped


def lockstep_rollouts(function: Callable[..., Any]) -> Callable[..., Any]:
    """`lockstep` of runs that have R rollouts each, for `function(run, *rollout)`.

    Arrays of the first argument lead with the axis S: a run's rollouts share them. Those of the others lead with [S, R].
    """

    def one_seed(run: Any, *rollouts: Any) -> Any:
        return lockstep(lambda *rollout: function(run, *rollout))(*rollouts)

    return lockstep(one_seed)


def one_seed(tree: Tree, run: int = 0) -> Tree:
    """Of a posterior, prior or data of S runs in lockstep, that of one."""
    return jax.tree.map(lambda leaf: leaf[run], tree)
