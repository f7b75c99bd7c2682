"""The outputs of S seeds, each computed alone, without the working memory of all of them at the same time.

Gaussian processes have a matrix, or several, for each output of each seed. With every one of them in memory at once, fifty runs
or a world of twenty dimensions would need hundreds of gigabytes.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from sonde._internal.lockstep import in_chunks


def over_outputs(function: Callable[[Any, Any], Any], shared: Any, own: Any, bytes_each: int) -> Any:
    """Compute each output of a seed; under `vmap` over seeds, the outputs of all seeds in the same chunks.

    Args:
        function: Function of `shared` and one output's slice of `own`; it closes over no arrays.
        shared: Pytree of what all outputs of a seed share.
        own: Pytree of arrays with a leading axis of outputs.
        bytes_each: Working memory of one call.

    Returns:
        The results, stacked along a leading axis of outputs.
    """

    @jax.custom_batching.custom_vmap
    def of_seed(shared: Any, own: Any) -> Any:
        found = _of_seeds(function, *jax.tree.map(lambda leaf: leaf[None], (shared, own)), bytes_each)
        return jax.tree.map(lambda leaf: leaf[0], found)

    @of_seed.def_vmap
    def _(axis_size: int, in_batched: list, shared: Any, own: Any) -> tuple[Any, Any]:
        whole = lambda leaf, batched: leaf if batched else jnp.broadcast_to(leaf, (axis_size, *leaf.shape))
        found = _of_seeds(function, *jax.tree.map(whole, (shared, own), tuple(in_batched)), bytes_each)
        return found, jax.tree.map(lambda _: True, found)

    return of_seed(shared, own)


def seed_by_seed(function: Callable[..., Any], *arguments: Any, bytes_each: int) -> Any:
    """Call a function of one seed; under `vmap` over seeds, for as many of them at once as `in_chunks` allows.

    Args:
        function: Function of the arguments; it closes over no arrays.
        *arguments: Pytrees of one seed.
        bytes_each: Working memory of one call.

    Returns:
        The result of the function.
    """
    found = over_outputs(lambda arguments, _: function(*arguments), arguments, jnp.zeros(1), bytes_each)
    return jax.tree.map(lambda leaf: leaf[0], found)


def _of_seeds(function: Callable[[Any, Any], Any], shared: Any, own: Any, bytes_each: int) -> Any:
    """The same with a leading axis S on all arrays."""
    seeds, outputs = jax.tree.leaves(own)[0].shape[:2]

    def one(number):
        seed, output = number // outputs, number % outputs
        return function(jax.tree.map(lambda leaf: leaf[seed], shared), jax.tree.map(lambda leaf: leaf[seed, output], own))

    found = in_chunks(one, seeds * outputs, bytes_each)
    return jax.tree.map(lambda leaf: leaf.reshape(seeds, outputs, *leaf.shape[1:]), found)
