"""Inputs and targets in units of their own spread."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


class Normaliser(eqx.Module):
    """Shift and scale to zero mean and unit spread."""

    shift: Float[Array, " d"]
    scale: Float[Array, " d"]

    @classmethod
    def identity(cls, dim: int) -> "Normaliser":
        """Leaves everything as it is."""
        return cls(jnp.zeros(dim), jnp.ones(dim))

    @classmethod
    def of(cls, rows: Float[Array, "n d"], mask: Bool[Array, " n"]) -> "Normaliser":
        """From the rows that count; the identity where there are none, and for columns that do not vary."""
        count = jnp.maximum(jnp.sum(mask), 1)
        shift = jnp.sum(rows, axis=0, where=mask[:, None]) / count
        spread = jnp.sqrt(jnp.sum((rows - shift) ** 2, axis=0, where=mask[:, None]) / count)
        return cls(shift, jnp.where(spread > 1e-8, spread, 1.0))

    def __call__(self, rows: Float[Array, "*n d"]) -> Float[Array, "*n d"]:
        """The normalised rows."""
        return (rows - self.shift) / self.scale
