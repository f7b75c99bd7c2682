"""Double precision, scoped: the engine's entry points run under it, the user's own JAX program is left alone."""

import functools
from collections.abc import Callable
from typing import TypeVar

import jax

F = TypeVar("F", bound=Callable)


def double_precision(function: F) -> F:
    """Run `function` with 64-bit JAX arrays.

    Gaussian-process algebra needs it: near the data the posterior std is as small as the rounding of single precision.
    Setting the process-wide flag at import would change the caller's own arrays, so the scope ends with the call. On
    some GPUs the default matrix product rounds its inputs to 10 bits, so "highest" is asked for as well.
    """

    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        with jax.enable_x64(True), jax.default_matmul_precision("highest"):
            return function(*args, **kwargs)

    return wrapped  # ty: ignore[invalid-return-type]
