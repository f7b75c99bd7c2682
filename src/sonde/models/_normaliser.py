"""Inputs and targets in units of their own spread."""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from sonde.data import Data

SMALLEST_SPREAD = 1e-8
SMALLEST_ACTION_SPREAD = 0.1


class Normaliser(eqx.Module):
    """Shift and scale to zero mean and unit spread."""

    shift: Float[Array, " d"]
    scale: Float[Array, " d"]

    @classmethod
    def identity(cls, dim: int) -> "Normaliser":
        """Leaves everything as it is."""
        return cls(jnp.zeros(dim), jnp.ones(dim))

    @classmethod
    def given(cls, scales: Sequence[float]) -> "Normaliser":
        """Divides by these, whatever the data."""
        return cls(jnp.zeros(len(scales)), jnp.asarray(scales, float))

    @classmethod
    def of_inputs(cls, data: Data, smallest: float = SMALLEST_SPREAD) -> "Normaliser":
        """For a model's inputs (x, u).

        Actions are known to fill [-1, 1]: where a policy hardly varies them, their tiny spread must not make others look far.
        """
        inputs = cls.of(data.inputs(), data.mask(), smallest)
        floor = jnp.where(jnp.arange(inputs.scale.shape[0]) < data.states.shape[-1], 0.0, SMALLEST_ACTION_SPREAD)
        return cls(inputs.shift, jnp.maximum(inputs.scale, floor))

    @classmethod
    def of(cls, rows: Float[Array, "n d"], mask: Bool[Array, " n"], smallest: float = SMALLEST_SPREAD) -> "Normaliser":
        """From the rows that count; a scale of 1 where there are none, and for columns that vary by `smallest` or less."""
        count = jnp.maximum(jnp.sum(mask), 1)
        shift = jnp.sum(rows, axis=0, where=mask[:, None]) / count
        spread = jnp.sqrt(jnp.sum((rows - shift) ** 2, axis=0, where=mask[:, None]) / count)
        return cls(shift, jnp.where(spread > smallest, spread, 1.0))

    def __call__(self, rows: Float[Array, "*n d"]) -> Float[Array, "*n d"]:
        """The normalised rows."""
        return (rows - self.shift) / self.scale
