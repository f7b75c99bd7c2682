"""Loops of gradient steps, for CPUs and for accelerators."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

Carry = TypeVar("Carry")
Step = Callable[[Carry, Int[Array, " batch"]], Carry]
Rows = Callable[[Int[Array, ""]], Int[Array, " batch"]]

CHUNK = 20
"""Steps that an accelerator takes before the host decides whether there are more."""


def one_by_one(step: Step[Carry], start: Carry, rows: Rows, total: Int[Array, ""]) -> Carry:
    """Take gradient steps.

    Args:
        step: A step on the rows of one batch.
        start: What steps change: weights and the state of the optimiser.
        rows: The rows of each step, by its number from 0.
        total: Number of steps.
    """
    return jax.lax.fori_loop(0, total, lambda i, carry: step(carry, rows(i)), start)


def in_chunks(step: Step[Carry], start: Carry, rows: Rows, total: Int[Array, ""]) -> Carry:
    """The same for accelerators; see `one_by_one`.

    The host decides before each iteration of a loop of unknown length whether there is one more, for which it waits until the
    last one is done. With other processes on the same device, it waits for their turn too. So the loop of unknown length is one
    of chunks, whose length is known, and the steps after the last change nothing. The rows of a chunk are computed at once.
    """

    def chunk(number: Int[Array, ""], carry: Carry) -> Carry:
        numbers = number * CHUNK + jnp.arange(CHUNK)

        def keep_or_step(carry: Carry, given: tuple[Array, Array]) -> tuple[Carry, None]:
            chosen, live = given
            return jax.tree.map(lambda new, old: jnp.where(live, new, old), step(carry, chosen), carry), None

        return jax.lax.scan(keep_or_step, carry, (jax.vmap(rows)(numbers), numbers < total))[0]

    return jax.lax.fori_loop(0, -(-total // CHUNK), chunk, start)
