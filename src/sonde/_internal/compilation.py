"""Programs that are compiled in less time, or while something else runs."""

import contextlib
import functools
import threading
from collections.abc import Callable, Generator
from typing import Any

import equinox as eqx
import jax

from sonde._internal.precision import double_precision

QUICK = {"xla_cpu_use_fusion_emitters": False}
"""Compiler options that halve the time to compile for a CPU. Products and factorisations of matrices run as fast with them, but
element-wise functions up to twice as slowly."""


@functools.cache
def _is_known() -> bool:
    """Whether the installed compiler has these options; it rejects a program with one that it does not know."""
    try:
        jax.jit(lambda: 0, compiler_options=QUICK).lower().compile()
    except Exception:
        return False
    return True


class QuickJit:
    """A function that is compiled in less time than by `eqx.filter_jit`, and may run more slowly.

    For work that comes once per round and is mostly linear algebra; not to be called inside another compiled function.
    """

    def __init__(self, function: Callable[..., Any]):
        """Wrap a function.

        Args:
            function: The function.
        """
        functools.update_wrapper(self, function)
        options: dict[str, Any] = {"compiler_options": QUICK}  # passed on to `jax.jit`
        self._quick, self._plain = eqx.filter_jit(function, **options), eqx.filter_jit(function)

    def __call__(self, *args: Any) -> Any:
        """Call the function, compiled."""
        return self._compiled(*args)

    def lower(self, *args: Any) -> Any:
        """As the method of `eqx.filter_jit`."""
        return self._compiled.lower(*args)

    @property
    def _compiled(self) -> Any:
        return self._quick if _is_known() else self._plain


@contextlib.contextmanager
def compiled_meanwhile(function: Any, *args: Any) -> Generator[None]:
    """Compile a function for arguments like these while the block runs, in a thread of its own; later calls find the program.

    Args:
        function: A function of `eqx.filter_jit` or a `QuickJit`.
        *args: Its arguments; only their types and shapes count.
    """
    thread = threading.Thread(target=_compile, args=(function, args), name="sonde-compiler")
    thread.start()
    try:
        yield
    finally:
        thread.join()


@double_precision
def _compile(function: Any, args: tuple[Any, ...]) -> None:
    with contextlib.suppress(Exception):  # the call will raise it again, where someone can handle it
        function.lower(*args).compile()
