"""A batch axis for code that is written for one seed."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from sonde._internal.platforms import by_platform

Tree = TypeVar("Tree")
CHUNK_BYTES = 2**32
"""Working memory, about, of what an accelerator computes side by side in `in_chunks`."""


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


def in_chunks(function: Callable[[Int[Array, ""]], Any], count: int, bytes_each: int) -> Any:
    """Map a function over 0 ... count-1 without the working memory of all of them at the same time.

    A CPU computes one after the other, which takes no longer: one keeps its cores busy, and in its cache. An accelerator
    computes as many side by side as fit into `CHUNK_BYTES`.

    Args:
        function: Function of a number.
        count: How many numbers there are.
        bytes_each: Working memory of one call.

    Returns:
        The results, stacked along a leading axis.
    """
    chunks = -(-count // max(1, CHUNK_BYTES // max(bytes_each, 1)))
    size = -(-count // chunks)

    def side_by_side(numbers):
        if chunks == 1:
            return jax.vmap(function)(numbers)
        # chunks of one size, so that they share compiled code; the last ones may compute a few numbers a second time
        rows = jnp.arange(chunks * size).reshape(chunks, size) % count
        found = jax.lax.map(lambda row: jax.vmap(function)(numbers[row]), rows)
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:count], found)

    one_by_one = lambda numbers: jax.lax.map(function, numbers)
    return by_platform(jnp.arange(count), cpu=one_by_one, default=side_by_side)


def one_seed(tree: Tree, seed: int = 0) -> Tree:
    """Take one seed's slice of a posterior, prior or data.

    Args:
        tree: Pytree whose arrays have a leading axis S.
        seed: Position on that axis.
    """
    return jax.tree.map(lambda leaf: leaf[seed], tree)
