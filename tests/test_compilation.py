"""Programs that are compiled in less time, or while something else runs."""

import threading
from collections.abc import Iterator
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sonde._internal import compilation
from sonde._internal.compilation import QuickJit, compiled_meanwhile
from sonde._internal.precision import double_precision
from tiny import TINY


@pytest.fixture
def compiled() -> Iterator[list[tuple[str, str]]]:
    """Functions that were compiled, and the threads that did it."""
    seen: list[tuple[str, str]] = []

    def listen(event: str, _: float, **about: object) -> None:
        if "backend_compile" in event:
            seen.append((str(about.get("fun_name")), threading.current_thread().name))

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield seen
    jax.monitoring.unregister_event_duration_listener(listen)


@pytest.fixture
def other_compiler(monkeypatch):
    """A compiler that does not know the options."""
    compilation._is_known.cache_clear()
    monkeypatch.setattr(compilation, "QUICK", {"xla_cpu_no_such_option": True})
    yield
    compilation._is_known.cache_clear()


def test_quick_programs_compute_the_same():
    function = lambda matrix, power: jnp.linalg.cholesky(matrix) ** power
    matrix = jnp.asarray([[4.0, 2.0], [2.0, 5.0]])
    np.testing.assert_allclose(QuickJit(function)(matrix, 2), [[4.0, 0.0], [1.0, 4.0]], rtol=1e-6)


def test_quick_programs_have_the_options_where_the_compiler_knows_them(monkeypatch):
    for known in (True, False):
        monkeypatch.setattr(compilation, "_is_known", lambda known=known: known)
        program = QuickJit(lambda x: x + 1)
        assert (program._compiled is program._quick) == known


def test_compilers_without_the_options_compile_without_them(other_compiler):
    assert not compilation._is_known()
    assert QuickJit(lambda x: x + 1)(jnp.asarray(1.0)) == 2.0


@pytest.mark.parametrize("jit", [eqx.filter_jit, QuickJit])
def test_program_that_was_compiled_meanwhile_is_not_compiled_again(jit, compiled):
    def shifted_by_one_third(x, name):
        return x + 1 / 3 if name else x

    function, x = jit(shifted_by_one_third), jnp.arange(7.0)
    with compiled_meanwhile(function, x, "static"):
        pass
    double_precision(function)(x, "static")
    assert [thread for name, thread in compiled if "one_third" in name] == ["sonde-compiler"]


def test_error_of_a_program_is_raised_by_the_call_alone():
    @eqx.filter_jit
    def impossible(x):
        return x @ jnp.ones(5)

    with compiled_meanwhile(impossible, jnp.ones(3)):
        pass
    with pytest.raises(TypeError):
        impossible(jnp.ones(3))


@pytest.mark.slow
def test_fit_is_compiled_during_the_first_rollout(compiled):
    from sonde.runs._run import build_explorer, collect

    # a length that no other test has used in this process
    config = replace(TINY.with_method("random"), horizon=17)
    explorer = build_explorer(config)
    _, trajectory = collect(config, explorer)
    explorer.tell(trajectory)
    assert [thread for name, thread in compiled if "_fit_all" in name] == ["sonde-compiler"]
