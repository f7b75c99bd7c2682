"""The rows of each gradient step: passes over the data in random order, over the new part of them more often if asked."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from sonde.models._shuffle import shuffled

Batches = Callable[[Int[Array, ""]], Int[Array, " batch"]]
"""The rows of a gradient step, by its number from 0."""


class Span(NamedTuple):
    """A stretch of a list of rows."""

    start: Int[Array, ""] | int
    count: Int[Array, ""]
    """At least one."""


def in_passes(span: Span, size: int, per_pass: Int[Array, ""], key: Key[Array, ""]) -> Batches:
    """Go through a span again and again, each time in another random order.

    Args:
        span: Positions to go through.
        size: Positions per gradient step.
        per_pass: Gradient steps per pass; a pass that is longer than the span begins again at its end.
        key: Randomness of the orders.

    Returns:
        The positions of each step.
    """
    words = jax.random.key_data(key)

    def positions(i: Int[Array, ""]) -> Int[Array, " size"]:
        places = (i % per_pass * size + jnp.arange(size)) % span.count
        return span.start + shuffled(places, span.count, words, i // per_pass)

    return positions


def with_new(every: Span, old: Int[Array, ""], sizes: tuple[int, int], key: Key[Array, ""]) -> Batches:
    """Fill each batch partly from all positions and partly from the new ones.

    Args:
        every: All positions.
        old: How many of them, at the beginning, are not new; if no other is there, all count as new.
        sizes: Positions per step that are drawn from all, and from the new ones.
        key: Randomness of the orders.

    Returns:
        The positions of each step.
    """
    old = jnp.where(old < every.count, old, 0)
    spans = every, Span(old, every.count - old)
    parts = [
        in_passes(span, size, -(-span.count // size), jax.random.fold_in(key, number))
        for number, (span, size) in enumerate(zip(spans, sizes, strict=True))
    ]
    return lambda i: jnp.concatenate([part(i) for part in parts])
