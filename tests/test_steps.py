"""Loops of gradient steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sonde.models._steps import CHUNK, in_chunks, one_by_one


def step(carry, rows):
    """The order of rows changes the sum, and steps are counted."""
    total, count = carry
    return 0.9 * total + rows.astype(jnp.float32).sum(), count + 1


def rows(i):
    return 3 * i + jnp.arange(2)


@jax.jit
def both(totals):
    start = jnp.float32(1.0), jnp.asarray(7)
    return [jax.vmap(lambda total, loop=loop: loop(step, start, rows, total))(totals) for loop in (one_by_one, in_chunks)]


def test_chunks_take_the_same_steps_and_no_more():
    totals = np.array([0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 3])
    (expected, steps), (found, steps_in_chunks) = both(totals)
    assert np.array_equal(steps, 7 + totals) and np.array_equal(steps_in_chunks, 7 + totals)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("total", [0, CHUNK + 1])
def test_steps_that_are_not_taken_may_be_undefined(total):
    """Rows beyond the last step's, or a gradient that is not finite, must leave no trace."""
    division = lambda carry, rows: carry + 1 / (rows[0] < 3 * total).astype(jnp.float32)
    assert jax.jit(lambda n: in_chunks(division, jnp.float32(0), rows, n))(total) == total
