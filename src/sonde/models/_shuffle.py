"""A random order of rows that is computed entry by entry, so that no pass over the data has to sort them.

Sorting random numbers costs as much as the whole buffer is long, also where few of its rows are filled. The swap-or-not shuffle
(Hoang, Morris and Rogaway 2012) gives the row at one position from that position alone. Each of its rounds reflects the rows
about a random pivot and decides by a hash of the pair {x, pivot - x} whether the two trade places, so it is a permutation for
every number of rows. Two rows that decide alike in every round would stay neighbours; with 24 rounds that happens once in 2^24.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, UInt32

ROUNDS = 24


def shuffled(
    positions: Int[Array, "*batch"], count: Int[Array, ""], key_data: UInt32[Array, " words"], epoch: Int[Array, ""]
) -> Int[Array, "*batch"]:
    """Look up positions in the order of one epoch, a permutation of 0 ... count-1.

    Args:
        positions: Positions in 0 ... count-1.
        count: Number of rows.
        key_data: Words of a random key.
        epoch: Number of the pass; each one has its own order.
    """
    count = count.astype(jnp.int32)
    x = positions.astype(jnp.int32)
    state = _mixed(epoch.astype(jnp.uint32))
    for word in range(key_data.shape[0]):
        state = _mixed(state ^ key_data[word])
    salts = _mixed(state + np.arange(1, ROUNDS + 1, dtype=np.uint32) * np.uint32(0x9E3779B9))
    fractions = (salts >> 8).astype(jnp.float32) * np.float32(2.0**-24)
    pivots = jnp.minimum((fractions * count.astype(jnp.float32)).astype(jnp.int32), count - 1)
    for number in range(ROUNDS):
        partner = pivots[number] - x
        partner = jnp.where(partner < 0, partner + count, partner)
        trade = _mixed(jnp.maximum(x, partner).astype(jnp.uint32) ^ salts[number]) >> 31
        x = jnp.where(trade == 1, partner, x)
    return x


def _mixed(word: UInt32[Array, "*batch"]) -> UInt32[Array, "*batch"]:
    """A hash of 32 bits: multiplications and shifts after which every bit depends on all of them."""
    word = (word ^ (word >> 16)) * np.uint32(0x7FEB352D)
    word = (word ^ (word >> 15)) * np.uint32(0x846CA68B)
    return word ^ (word >> 16)
