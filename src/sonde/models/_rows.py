"""Predictions of an ensemble on CPUs; only `EnsemblePosterior.specialise` uses it.

Code is written for one input and mapped over plans and particles. Here the inputs of all those maps are collected and become
rows of matrices, whose number decides how the networks are evaluated. Few rows: all members in one product per layer, since
products of one member alone are so small that the cores mostly wait for each other. Many rows: tile after tile and member after
member, so that the activations stay in the cache.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Float32

from sonde.models._network import MemberNetwork

MOST_TOGETHER = 1024
"""Rows of activations up to which all members are evaluated at once."""
LARGEST_TILE = 2048
"""Rows of activations that are taken through all layers of all members before the next ones."""


@jax.custom_vjp
def in_rows(networks: MemberNetwork, z: Float[Array, " inputs"]) -> Float32[Array, "E outputs"]:
    """Outputs of each member for one input; under `vmap` all inputs are evaluated together.

    Args:
        networks: MemberNetworks of all members [E, ...].
        z: Normalised input.
    """
    return _for_rows(networks, z.astype(jnp.float32)[None])[:, 0]


def _forward(networks: MemberNetwork, z: Array) -> tuple[Array, tuple[MemberNetwork, Array]]:
    return in_rows(networks, z), (networks, z)


def _backward(saved: tuple[MemberNetwork, Array], gradient: Array) -> tuple[MemberNetwork, Array]:
    # of the networks one by one: planners, for which rows are collected, need no gradients
    plain = lambda networks, z: jax.vmap(_outputs, in_axes=(0, None))(networks, z.astype(jnp.float32)[None])[:, 0]
    return jax.vjp(plain, *saved)[1](gradient)


in_rows.defvjp(_forward, _backward)


@jax.custom_batching.custom_vmap
def _for_rows(networks: MemberNetwork, z: Float32[Array, "rows inputs"]) -> Float32[Array, "E rows outputs"]:
    rows, inputs = z.shape
    if rows * networks.rows_per_input <= MOST_TOGETHER:
        return jax.vmap(_outputs, in_axes=(0, None))(networks, z)
    tiles = -(-rows * networks.rows_per_input // LARGEST_TILE)
    size = -(-rows // tiles)
    z = jnp.pad(z, ((0, tiles * size - rows), (0, 0))).reshape(tiles, size, inputs)
    output = jax.lax.map(lambda tile: jax.lax.map(lambda network: _outputs(network, tile), networks), z)
    return jnp.moveaxis(output, 0, 1).reshape(output.shape[1], tiles * size, -1)[:, :rows]


@_for_rows.def_vmap
def _(axis_size, in_batched, networks, z):
    all_batched = lambda leaf, batched: leaf if batched else jnp.broadcast_to(leaf, (axis_size, *leaf.shape))
    z = all_batched(z, in_batched[1])
    if any(jax.tree.leaves(in_batched[0])):  # the batch is one of seeds, which have networks of their own
        return _for_seeds(jax.tree.map(all_batched, networks, in_batched[0]), z), True
    output = _for_rows(networks, z.reshape(-1, z.shape[-1]))  # the batch is one of more rows for the same networks
    return jnp.moveaxis(output.reshape(output.shape[0], axis_size, -1, output.shape[-1]), 1, 0), True


@jax.custom_batching.custom_vmap
def _for_seeds(networks: MemberNetwork, z: Float32[Array, "seeds rows inputs"]) -> Float32[Array, "seeds E rows outputs"]:
    return jax.lax.map(lambda each: _for_rows(*each), (networks, z))


@_for_seeds.def_vmap
def _(axis_size, in_batched, networks, z):
    all_batched = lambda leaf, batched: leaf if batched else jnp.broadcast_to(leaf, (axis_size, *leaf.shape))
    z = all_batched(z, in_batched[1])
    if any(jax.tree.leaves(in_batched[0])):
        networks = jax.tree.map(all_batched, networks, in_batched[0])
        return jax.lax.map(lambda each: _for_seeds(*each), (networks, z)), True
    num_seeds, rows = z.shape[1:3]
    output = _for_seeds(networks, jnp.moveaxis(z, 0, 1).reshape(num_seeds, axis_size * rows, -1))
    return jnp.moveaxis(output.reshape(*output.shape[:2], axis_size, rows, -1), 2, 0), True


def _outputs(network: MemberNetwork, z: Float32[Array, "rows inputs"]) -> Float32[Array, "rows outputs"]:
    return network(z, _swish)


def _swish(h: Array) -> Array:
    """Swish by tanh, which CPUs compute in fewer instructions than an exponential and a division."""
    half = 0.5 * h
    return half + half * jnp.tanh(half)
