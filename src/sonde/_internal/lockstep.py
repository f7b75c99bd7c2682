"""A batch axis for code that is written for one seed."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax

Tree = TypeVar("Tree")


def lockstep(function: Callable[..., Any]) -> Callable[..., Any]:
    """Map a function of one seed over S seeds, like `vmap`.

    With a single seed the function is called without the axis: compilers make slower code of matrix products that have a batch
    axis of length one.

    Args:
        function: Function of pytrees of one seed.

    Returns:
        The same function of pytrees whose arrays have a leading axis S.
    """

    def mapped(*trees: Any) -> Any:
        num_seeds = jax.tree.leaves(trees)[0].shape[0]
        if num_seeds > 1:
            return jax.vmap(function)(*trees)
        result = function(*jax.tree.map(lambda leaf: leaf[0], trees))
        return jax.tree.map(lambda leaf: leaf[None], result)

    return mapped


def lockstep_rollouts(function: Callable[..., Any]) -> Callable[..., Any]:
    """Map a function of one rollout over S seeds with R rollouts each.

    Args:
        function: Called as `function(shared, *rollout)`.

    Returns:
        The same function of arrays with leading axes [S] in the first argument, which a seed's rollouts share, and [S, R] in
        the others.
    """

    def of_seed(shared: Any, *rollouts: Any) -> Any:
        return lockstep(lambda *rollout: function(shared, *rollout))(*rollouts)

    return lockstep(of_seed)


def one_seed(tree: Tree, seed: int = 0) -> Tree:
    """Take one seed's slice of a posterior, prior or data.

    Args:
        tree: Pytree whose arrays have a leading axis S.
        seed: Position on that axis.
    """
    return jax.tree.map(lambda leaf: leaf[seed], tree)
