"""Orders of the rows: permutations for every number of rows, and as uniform as sorted random numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chi2

from sonde.models._shuffle import shuffled

MOST = 300


@jax.jit
def many_orders(positions, counts, keys, epochs):
    """Orders [N, positions] of N counts, keys and epochs."""
    words = jax.vmap(jax.random.key_data)(keys)
    return jax.vmap(lambda count, words, epoch: shuffled(positions % count, count, words, epoch))(counts, words, epochs)


def orders(count: int, number: int, length: int | None = None) -> np.ndarray:
    """Orders of `count` rows under different keys and epochs; by default whole ones."""
    keys, epochs = jax.random.split(jax.random.key(count), number), jnp.arange(number) // 3
    positions = jnp.arange(count if length is None else length)
    return np.asarray(many_orders(positions, jnp.full(number, count), keys, epochs))


def is_uniform(counts: np.ndarray) -> bool:
    """Chi-square test at one in 10,000."""
    expected = counts.mean()
    return ((counts - expected) ** 2 / expected).sum() < chi2(counts.size - 1).isf(1e-4)


def test_every_epoch_visits_each_row_once():
    counts = np.arange(1, MOST + 1)
    keys = jax.random.split(jax.random.key(0), MOST)
    found = np.asarray(many_orders(jnp.arange(MOST), jnp.asarray(counts), keys, jnp.asarray(counts % 7)))
    for count, order in zip(counts, found, strict=True):
        np.testing.assert_array_equal(np.sort(order[:count]), np.arange(count))


@pytest.mark.slow
@pytest.mark.parametrize("count", [5000, 2**17 + 1, 10**6])
def test_large_buffers_are_permuted_too(count):
    found = orders(count, 1)[0]
    assert np.bincount(found, minlength=count).max() == 1 and found.min() == 0
    # neighbours are strangers: their distance is uniform, as is the place of a row
    bins = lambda values: np.bincount(values * 50 // count, minlength=50)
    assert is_uniform(bins(np.diff(found) % count)) and is_uniform(bins(found[: count // 2]))


@pytest.mark.slow
def test_orders_differ_between_keys_and_epochs():
    positions, keys = jnp.arange(50), jax.random.split(jax.random.key(0), 40)
    epochs = jnp.arange(40)
    by_key = many_orders(positions, jnp.full(40, 50), keys, jnp.zeros(40, int))
    by_epoch = many_orders(positions, jnp.full(40, 50), keys[jnp.zeros(40, int)], epochs)
    for found in (by_key, by_epoch):
        same = np.asarray(found[:, None] == found[None]).mean(axis=-1)[np.triu_indices(40, 1)]
        # one row in 50 is in the same place by chance
        assert abs(same.mean() - 1 / 50) < 0.004 and same.max() < 0.2


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3, 5, 8, 11])
def test_pairs_of_positions_get_every_pair_of_rows_equally_often(count):
    number = 600 * count * (count - 1)
    found = orders(count, number)
    for first, second in {(0, 1), (0, count - 1), (count // 2, count - 1)}:
        if first != second:
            pairs = np.bincount(found[:, first] * count + found[:, second], minlength=count**2)
            assert not pairs[:: count + 1].any()
            assert is_uniform(np.delete(pairs, np.arange(0, count**2, count + 1)))


@pytest.mark.slow
def test_all_orders_of_few_rows_are_equally_likely():
    found = orders(4, 24 * 1000)
    _, counts = np.unique(found @ 4 ** np.arange(4), return_counts=True)
    assert len(counts) == 24 and is_uniform(counts)


@pytest.mark.slow
def test_rows_of_a_batch_are_independent_of_each_other():
    """Among the first 16 of 1,000 rows, how many are in the lower half: as in draws without replacement."""
    lower = (orders(1000, 20_000, 16) < 500).sum(axis=1)
    variance = 16 * 0.25 * (1000 - 16) / 999
    assert abs(lower.mean() - 8) < 4 * (variance / 20_000) ** 0.5
    assert abs(lower.var() / variance - 1) < 4 * (2 / 20_000) ** 0.5


@pytest.mark.slow
def test_order_is_the_same_with_and_without_double_precision():
    single = orders(777, 2)
    with jax.enable_x64(True):
        assert np.array_equal(single, orders(777, 2))
