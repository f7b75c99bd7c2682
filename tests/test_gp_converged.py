"""Fits of the hyper-parameters find what an independent optimiser finds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy.optimize import minimize, rosen

from gp_reference import data_of, fit, start_of
from sonde import GaussianProcess
from sonde.models._bfgs import minimise

RESTARTS = 20
SMOOTH = lambda z: np.sin(2 * z[:, 0]) + 0.5 * z[:, -1] ** 2
KINKED = lambda z: np.abs(z[:, 0]) + np.maximum(z[:, -1], 0.3)
LINEAR = lambda z: z @ np.arange(1.0, z.shape[1] + 1)

# name: number of points, number of inputs, function, noise relative to the spread of the targets
DATA_SETS = {
    "smooth, 2-D": (120, 2, SMOOTH, 0.0),
    "smooth, 5-D": (150, 5, SMOOTH, 0.0),
    "smooth, 12-D": (150, 12, SMOOTH, 0.0),
    "kinked, 2-D": (120, 2, KINKED, 0.0),
    "kinked, 5-D": (150, 5, KINKED, 0.0),
    "little noise, 2-D": (120, 2, SMOOTH, 0.05),
    "noisy, 2-D": (150, 2, SMOOTH, 0.5),
    "noisy, 5-D": (200, 5, SMOOTH, 1.0),
    "noisy and kinked, 5-D": (150, 5, KINKED, 0.3),
    "noisy, 12-D": (150, 12, SMOOTH, 0.3),
    "linear, 5-D": (80, 5, LINEAR, 0.1),
    "few points, 2-D": (15, 2, SMOOTH, 0.02),
    "pure noise, 5-D": (150, 5, lambda z: 0.0 * z[:, 0], 1.0),
}


def data_set(name: str):
    """One state dimension and the rest actions."""
    count, inputs, function, noise = DATA_SETS[name]
    rng = np.random.default_rng(len(name))
    z = rng.uniform(-1, 1, (count, inputs))
    target = function(z)
    std = noise * (target.std() or 1.0)
    return z, (target + std * rng.normal(size=count))[:, None], std


@pytest.mark.slow
@pytest.mark.parametrize("name", DATA_SETS)
def test_one_fit_is_as_good_as_the_best_of_many_restarts(x64, name):
    """Within half a nat of the best of 20 starts of SciPy's L-BFGS-B on the same density, and with the right noise."""
    z, changes, std = data_set(name)
    model, data = GaussianProcess(), data_of(z, changes)
    found = fit(model, start_of(model, 1, z.shape[1] - 1), data, jax.random.key(0))
    found = jax.tree.map(lambda leaf: leaf[0], found)
    flat, unravel = ravel_pytree(found)
    inputs, targets = model._normalisers(data)
    rows = inputs(data.inputs()), targets(data.targets())[:, 0], data.mask()
    loss = jax.jit(jax.value_and_grad(lambda flat: model._loss(unravel(flat), *rows)))
    rng, best = np.random.default_rng(0), np.inf
    for _ in range(RESTARTS):
        start = np.concatenate([rng.normal(1.5, 1.0, z.shape[1]), rng.normal(1.0, 0.5, 1), rng.uniform(-6, 0, 1)])
        function = lambda flat: [np.asarray(part) for part in loss(jnp.asarray(flat))]
        best = min(best, minimize(function, start, jac=True, method="L-BFGS-B", bounds=[(-8, 8)] * start.size).fun)
    assert loss(flat)[0] < best + 0.5
    learned = np.sqrt(model.noise_floor**2 + np.exp(2 * found.log_noise)) * changes.std()
    if std > 0 and len(z) > 50:
        np.testing.assert_allclose(learned, std, rtol=0.2)


def test_minimise_finds_the_minimum_of_a_curved_valley(x64):
    valley = lambda x: jnp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)
    start = jnp.asarray([-1.2, 1.0, 0.5])
    assert valley(start) == pytest.approx(rosen(np.asarray(start)))
    found, value = minimise(valley, start, 200, 1e-6)
    np.testing.assert_allclose(found, 1.0, atol=1e-5)
    assert value == pytest.approx(0.0, abs=1e-10)


def test_minimise_stays_out_of_what_is_not_finite(x64):
    """The logarithm has no value below 0, where a full step leads."""
    found, _ = minimise(lambda x: x[0] - 1e-3 * jnp.log(x[0]), jnp.asarray([0.5]), 100, 1e-6)
    np.testing.assert_allclose(found, [1e-3], rtol=1e-3)


def test_minimise_works_for_several_problems_at_once(x64):
    """Some end long before the others."""
    several = jax.vmap(lambda start: minimise(lambda x: jnp.sum((x - 3.0) ** 4), start, 200, 1e-9)[0])
    np.testing.assert_allclose(several(jnp.asarray([[3.0], [2.0], [-5.0]])), 3.0, atol=1e-2)


def test_minimise_keeps_to_its_budget(x64):
    evaluations = []

    def function(x):
        jax.debug.callback(lambda _: evaluations.append(1), x)
        return jnp.sum(x**4)

    minimise(function, jnp.asarray([5.0]), 7, 0.0)
    jax.effects_barrier()
    assert len(evaluations) == 7
