"""Normalisation of a model's inputs and targets."""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from sonde.data import Data

ROUNDING = 1e-12  # columns whose std is smaller than this fraction of their largest number count as constant
SMALLEST_SPREAD = 1e-18  # and those whose std is smaller than this; its square is a number in single precision
SMALLEST_ACTION_SPREAD = 0.1


class Normaliser(eqx.Module):
    """Affine map to zero mean and unit std: (rows - shift) / scale."""

    shift: Float[Array, " d"]
    scale: Float[Array, " d"]

    @classmethod
    def identity(cls, dim: int) -> "Normaliser":
        """Normaliser that changes nothing.

        Args:
            dim: Number of columns d.
        """
        return cls(jnp.zeros(dim), jnp.ones(dim))

    @classmethod
    def given(cls, scales: Sequence[float]) -> "Normaliser":
        """Normaliser with given scales and no shift.

        Args:
            scales: Scale of each column.
        """
        return cls(jnp.zeros(len(scales)), jnp.asarray(scales, float))

    @classmethod
    def of_inputs(cls, data: Data, smallest: float = SMALLEST_SPREAD) -> "Normaliser":
        """Normaliser of a model's inputs (x, u).

        Actions may lie anywhere in [-1, 1]. Their scale has a lower limit: where a policy hardly varies them, other actions
        would otherwise seem far away from the data.

        Args:
            data: Measurements.
            smallest: Columns with this std or less are not scaled.
        """
        inputs = cls.of(data.inputs(), data.mask(), smallest)
        floor = jnp.where(jnp.arange(inputs.scale.shape[0]) < data.states.shape[-1], 0.0, SMALLEST_ACTION_SPREAD)
        return cls(inputs.shift, jnp.maximum(inputs.scale, floor))

    @classmethod
    def of_targets(cls, data: Data, smallest: float = SMALLEST_SPREAD) -> "Normaliser":
        """Normaliser of a model's targets x' - x, whose rounding errors are those of the states.

        Args:
            data: Measurements.
            smallest: Columns with this std or less are not scaled.
        """
        largest = jnp.maximum(jnp.abs(data.states), jnp.abs(data.next_states))
        return cls.of(data.targets(), data.mask(), smallest, largest, data.smallest_change)

    @classmethod
    def of(
        cls,
        rows: Float[Array, "n d"],
        mask: Bool[Array, " n"],
        smallest: float = SMALLEST_SPREAD,
        rounded: Float[Array, "n d"] | None = None,
        floor: Float[Array, " d"] | None = None,
    ) -> "Normaliser":
        """Normaliser by mean and std of data; columns that vary by rounding errors only are not scaled.

        Args:
            rows: Data [n, d].
            mask: True for the rows that are used [n].
            smallest: Columns with this std or less get the scale 1, as do all columns if no row is used.
            rounded: Numbers whose rounding errors the data have; by default the data themselves.
            floor: Smallest scale of each column, if any row is used.
        """
        count = jnp.maximum(jnp.sum(mask), 1)
        largest = jnp.max(jnp.abs(rows if rounded is None else rounded), axis=0, where=mask[:, None], initial=0.0)
        shift = jnp.sum(rows, axis=0, where=mask[:, None]) / count
        spread = jnp.sqrt(jnp.sum((rows - shift) ** 2, axis=0, where=mask[:, None]) / count)
        if floor is not None:
            return cls(shift, jnp.where(jnp.any(mask), jnp.maximum(spread, floor), 1.0))
        return cls(shift, jnp.where(spread > jnp.maximum(smallest, ROUNDING * largest), spread, 1.0))

    def __call__(self, rows: Float[Array, "*n d"]) -> Float[Array, "*n d"]:
        """Normalise.

        Args:
            rows: Rows [..., d].
        """
        return (rows - self.shift) / self.scale
