"""Training of one network until the error on measurements that it does not see stops falling."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from sonde.models._linalg import any_of_all
from sonde.models._steps import Rows, Step

CHECK_EVERY = 100
"""Gradient steps between two looks at the error."""
BLOCK, VALIDATION_BLOCKS = 10, 10
"""Every tenth block of ten consecutive measurements is not trained on: neighbours in time are too much alike to judge by."""
MOST_JUDGED = 1000
"""Most measurements that an error is computed from."""
SMALLEST_FALL = 0.003
"""Nats per output by which the error must fall to count as smaller."""


class _Progress(NamedTuple):
    carry: Any
    best: Any
    """Weights with the smallest error so far."""
    error: Float[Array, ""]
    """Their error."""
    steps: Int[Array, ""]
    best_at: Int[Array, ""]
    """Steps after which they were reached."""


def validation_rows(mask: Bool[Array, " capacity"], member: Int[Array, ""]) -> Bool[Array, " capacity"]:
    """Rows that a member is judged by, others for each member; none while there are fewer than ten blocks.

    Args:
        mask: True for the rows that may be used.
        member: Number of the member.
    """
    place = jnp.cumsum(mask) - 1
    chosen = (place // BLOCK + 3 * member) % VALIDATION_BLOCKS == 0
    return mask & chosen & (jnp.sum(mask) >= VALIDATION_BLOCKS * BLOCK)


class SomeRows(NamedTuple):
    """A limited number of rows."""

    rows: Int[Array, " n"]
    used: Bool[Array, " n"]
    """False where there are fewer rows than places."""


def some_rows(mask: Bool[Array, " capacity"]) -> SomeRows:
    """Choose at most `MOST_JUDGED` rows, evenly.

    Args:
        mask: True for the rows to choose from.
    """
    places = min(mask.shape[0], MOST_JUDGED)
    count = jnp.sum(mask)
    rows = jnp.nonzero(mask, size=mask.shape[0], fill_value=0)[0]
    numbers = jnp.arange(places)
    return SomeRows(rows[jnp.where(count > places, numbers * count // places, numbers)], numbers < count)


def until_converged(
    loop: Callable[..., Any],
    step: Step[Any],
    start: Any,
    rows: Rows,
    error: Callable[[Any], Float[Array, ""]],
    limits: tuple[Int[Array, ""], int],
) -> Any:
    """Take gradient steps until the error stops falling.

    Args:
        loop: Takes a number of steps: `one_by_one` or `in_chunks`.
        step: A step on the rows of one batch.
        start: What steps change.
        rows: The rows of each step, by its number from 0.
        error: Error after some steps, in nats.
        limits: Most steps, and steps without a smaller error after which the training ends.

    Returns:
        What had the smallest error.
    """
    most, patience = limits

    def unfinished(progress: _Progress) -> Bool[Array, ""]:
        return (progress.steps < most) & (progress.steps - progress.best_at < patience)

    def go_on(progress: _Progress) -> _Progress:
        taken = jnp.minimum(CHECK_EVERY, most - progress.steps)
        carry = loop(step, progress.carry, lambda i: rows(progress.steps + i), taken)
        new, steps = error(carry), progress.steps + taken
        better = new < progress.error - SMALLEST_FALL
        best = jax.tree.map(lambda yes, no: jnp.where(better, yes, no), carry, progress.best)
        after = _Progress(
            carry, best, jnp.where(better, new, progress.error), steps, jnp.where(better, steps, progress.best_at)
        )
        # under `vmap`, others may still be at work
        return jax.tree.map(lambda old, new: jnp.where(unfinished(progress), new, old), progress, after)

    zero = jnp.zeros((), int)
    first = _Progress(start, start, error(start), zero, zero)
    return jax.lax.while_loop(lambda progress: any_of_all(unfinished(progress)), go_on, first).best
