"""Code for accelerators computes what code for CPUs does; where a CPU is the default device only the latter is traced."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sonde import Explorer, GaussianProcess, ProbabilisticEnsemble, Trajectory
from sonde._internal import lockstep, platforms
from sonde.methods import METHODS
from sonde.models import _gp_posterior, _network
from tiny import TINY

pytestmark = pytest.mark.slow
GP = GaussianProcess(steps=2, rank=8)
MODELS = {
    "gp": GP,
    "exact gp": replace(GP, rank=0),
    "ensemble": ProbabilisticEnsemble(members=2, layers=1, width=8, epochs=2),
}


def for_accelerators(*operands, cpu, default):
    return default(*operands)


def learned(model, seeds: int) -> list[np.ndarray]:
    """Predictions of an explorer that has learned from a few measurements."""
    world, rng = TINY.world, np.random.default_rng(0)
    explorer = Explorer(METHODS["opax"], model, TINY.solver, world.spec, capacity=12, seeds=tuple(range(seeds)))
    states = rng.normal(size=(seeds, 13, world.state_dim))
    explorer.tell(Trajectory(states[:, :-1], rng.uniform(-1, 1, (seeds, 12, world.action_dim)), states[:, 1:]))
    prediction = explorer.predict(states[:, 0], np.zeros((seeds, world.action_dim)))
    return [np.asarray(part) for part in (prediction.mean, prediction.epistemic_std, prediction.aleatoric_std)]


@pytest.mark.parametrize("name", MODELS)
def test_both_forms_predict_the_same(name, monkeypatch):
    here = learned(MODELS[name], seeds=2)
    jax.clear_caches()
    for module in (lockstep, _gp_posterior, _network):
        monkeypatch.setattr(module, "by_platform", for_accelerators)
    elsewhere = learned(MODELS[name], seeds=2)
    jax.clear_caches()
    for one, other in zip(here, elsewhere, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_only_the_form_of_the_default_device_is_traced(monkeypatch):
    traced = []

    def form(name):
        return lambda x: traced.append(name) or x

    both = lambda x: platforms.by_platform(x, cpu=form("cpu"), default=form("default"))
    jax.jit(both)(jnp.ones(1))
    assert traced == (["cpu"] if jax.default_backend() == "cpu" else ["cpu", "default"])
    traced.clear()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    jax.jit(lambda x: both(x))(jnp.ones(1))
    assert set(traced) == {"cpu", "default"}
