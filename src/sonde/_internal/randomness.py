"""Named randomness: every key is folded from (seed, episode, purpose), and nothing threads a hidden key.

A run that is interrupted and resumed therefore draws exactly the numbers that it would have drawn.
"""

import zlib
from collections.abc import Iterable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key


def for_purpose(key: Key[Array, "*seeds"], purpose: str) -> Key[Array, "*seeds"]:
    """A key of its own for each purpose ("plan", "world", ...); works on one key or on a stack of them."""
    number = zlib.crc32(purpose.encode())
    fold = jax.random.fold_in
    for _ in range(key.ndim):
        fold = jax.vmap(fold, in_axes=(0, None))
    return fold(key, number)


def round_keys(seeds: Sequence[int], round_number: int) -> Key[Array, "seeds"]:
    """One key per run, for everything random that happens in `episode`."""
    return jnp.stack([jax.random.fold_in(jax.random.key(seed), round_number) for seed in seeds])


def rollout_keys(keys: Key[Array, "seeds"], numbers: Iterable[int]) -> Key[Array, "seeds rollouts"]:
    """For each run, a key for each of the rollouts of these numbers; the first, number 0, has the run's own."""
    return jnp.stack([for_purpose(keys, f"rollout/{number}") if number else keys for number in numbers], axis=1)


def seeds_of(keys: Key[Array, "*any"]) -> np.ndarray:
    """A number for each key: the seed of a generator outside of JAX."""
    numbers = jax.vmap(lambda key: jax.random.bits(key, (), jnp.uint32))(keys.reshape(-1))
    return np.asarray(numbers).reshape(keys.shape)
