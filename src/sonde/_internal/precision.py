"""Double precision for the entry points of the package, without changing the user's own JAX program."""

import functools
from collections.abc import Callable
from typing import TypeVar

import jax

F = TypeVar("F", bound=Callable)


def double_precision(function: F) -> F:
    """Run a function with 64-bit JAX arrays and full-precision matrix products.

    Gaussian-process algebra needs it: near the data the posterior std is as small as the rounding error of single precision.
    Setting the process-wide flag at import would change the caller's own arrays, so the scope ends with the call. On some GPUs
    the default matrix product rounds its inputs to 10 bits, hence "highest".

    Args:
        function: The function to wrap.
    """

    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        with jax.enable_x64(True), jax.default_matmul_precision("highest"):
            return function(*args, **kwargs)

    return wrapped  # ty: ignore[invalid-explicit-return]
