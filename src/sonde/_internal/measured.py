"""What may be taken for a measurement, wherever it comes from."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from sonde._internal.errors import SondeError

EXTREME = 1e15
"""Larger numbers are not measurements, but placeholders of a logger."""


def real_numbers(what: str, values: Any, kinds: str = "iuf") -> np.ndarray:
    """Measurements as an array of real numbers, without a copy if they are one.

    Args:
        what: What is measured, for error messages.
        values: An array, or nested lists of numbers. Masked values, complex numbers, dates, texts and objects are rejected,
            because a conversion would invent numbers.
        kinds: Kinds of numpy's dtypes to accept.
    """
    try:
        masked = isinstance(values, np.ma.MaskedArray | list | tuple) and bool(np.ma.getmaskarray(np.ma.asarray(values)).any())
        array = np.asarray(values)
    except (TypeError, ValueError, OverflowError) as error:
        raise SondeError(f"{what} must be an array of numbers ({error})") from None
    if masked:
        raise SondeError(f"{what} has masked values, which were not measured; drop or repair these rows")
    if array.dtype.kind not in kinds and not jnp.issubdtype(array.dtype, jnp.floating):  # those of JAX, such as bfloat16
        raise SondeError(f"{what} must be an array of real numbers, got one of type {array.dtype}")
    return array
