"""Random keys by name: every key is folded from (seed, round, purpose), and no hidden key is passed along.

A run that is interrupted and resumed therefore draws the same numbers as one that is not.
"""

import zlib
from collections.abc import Iterable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key


def for_purpose(key: Key[Array, "*seeds"], purpose: str) -> Key[Array, "*seeds"]:
    """Derive the key of one purpose.

    Args:
        key: One key or an array of keys.
        purpose: Name of the random stream, such as "plan" or "world".

    Returns:
        Keys with the shape of `key`.
    """
    number = zlib.crc32(purpose.encode())
    fold = jax.random.fold_in
    for _ in range(key.ndim):
        fold = jax.vmap(fold, in_axes=(0, None))
    return fold(key, number)


def round_keys(seeds: Sequence[int], round_number: int) -> Key[Array, "seeds"]:
    """Keys of a round, one per seed.

    Args:
        seeds: Seeds.
        round_number: Number of the round.
    """
    return jnp.stack([jax.random.fold_in(jax.random.key(seed), round_number) for seed in seeds])


def rollout_keys(keys: Key[Array, "seeds"], numbers: Iterable[int]) -> Key[Array, "seeds rollouts"]:
    """Keys of a round's rollouts; rollout 0 has the seed's own key.

    Args:
        keys: Keys of the seeds [S].
        numbers: Numbers of the R rollouts.

    Returns:
        Keys [S, R].
    """
    return jnp.stack([for_purpose(keys, f"rollout/{number}") if number else keys for number in numbers], axis=1)


def seeds_of(keys: Key[Array, "*any"]) -> np.ndarray:
    """Seeds for random number generators outside of JAX.

    Args:
        keys: Keys of any shape.

    Returns:
        One unsigned 32-bit number per key.
    """
    numbers = jax.vmap(lambda key: jax.random.bits(key, (), jnp.uint32))(keys.reshape(-1))
    return np.asarray(numbers).reshape(keys.shape)
