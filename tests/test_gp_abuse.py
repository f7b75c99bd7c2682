"""Gaussian processes on degenerate data: never NaN, never a negative variance."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gp_reference import LENGTHSCALES, NOISE, SIGNAL, data_of, fit, ours, parameters, start_of
from sonde import GaussianProcess
from sonde.data import Data
from sonde.models import KERNELS
from sonde.models._gaussian_process import GPParams
from sonde.models._normaliser import Normaliser

SMALL = 12
QUICK = {"learned": GaussianProcess(steps=5, rank=0), "low rank": GaussianProcess(steps=5, rank=6)}


@jax.jit
def learned_predictions(data: Data, x, u):
    """Fit, condition and predict at one far point and at all data, for both posteriors."""
    predictions = []
    for model in QUICK.values():
        params = model.fit(start_of(model), data, data.count, jax.random.key(0))
        posterior = model.condition(params, data)
        predictions.append(
            jax.vmap(posterior.predict)(jnp.append(data.states, x[None], 0), jnp.append(data.actions, u[None], 0))
        )
    return predictions


def assert_finite_and_positive(data: Data, x=(0.3, 0.1), u=(0.2,)):
    for prediction in learned_predictions(data, jnp.asarray(x), jnp.asarray(u)):
        assert np.isfinite(prediction.mean).all()
        assert np.isfinite(prediction.epistemic_std).all() and np.all(prediction.epistemic_std >= 0)
        assert np.isfinite(prediction.aleatoric_std).all() and np.all(prediction.aleatoric_std > 0)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["duplicates", "all the same", "constant input", "constant target", "one point", "none"])
def test_degenerate_data_give_finite_predictions(x64, case):
    rng = np.random.default_rng(0)
    z, changes = rng.normal(size=(SMALL, 3)), rng.normal(size=(SMALL, 2))
    if case == "duplicates":
        z[6:], changes[6:] = z[:6], changes[:6]
    if case == "all the same":
        z[:], changes[:] = z[0], changes[0]
    if case == "constant input":
        z[:, 1] = 3.0
    if case == "constant target":
        changes[:] = [0.0, 1.0]
    count = {"one point": 1, "none": 0}.get(case, SMALL)
    assert_finite_and_positive(data_of(z[:count], changes[:count], SMALL))


@pytest.mark.slow
@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    exponents=st.lists(st.integers(-12, 12), min_size=5, max_size=5),
    offsets=st.lists(st.sampled_from([0.0, 1.0, -1e3, 1e8]), min_size=5, max_size=5),
    count=st.integers(0, SMALL),
    copies=st.integers(1, 4),
    seed=st.integers(0, 1000),
)
def test_extreme_scales_give_finite_predictions(exponents, offsets, count, copies, seed):
    rng = np.random.default_rng(seed)
    rows = (10.0 ** np.array(exponents)) * rng.normal(size=(SMALL, 5)) + np.array(offsets)
    rows = rows[rng.integers(0, SMALL // copies, SMALL)]
    with jax.enable_x64(True):
        data = data_of(rows[:count, :3], rows[:count, 3:], SMALL)
        assert_finite_and_positive(data, x=rows[0, :2] * 10 + 1, u=rows[0, 2:3])


@pytest.mark.slow
@settings(max_examples=40, deadline=None, derandomize=True)
@given(exponent=st.integers(-6, 6), noise=st.sampled_from([1e-9, 1e-6, 1e-3, 1.0]), seed=st.integers(0, 1000))
def test_fixed_hyperparameters_give_valid_stds_at_any_input_scale(exponent, noise, seed):
    """There is no normalisation, and hardly any noise: rounding must not make a variance negative."""
    rng = np.random.default_rng(seed)
    z = 10.0**exponent * rng.normal(size=(SMALL, 3))
    z[::3] = z[0]
    with jax.enable_x64(True):
        data = data_of(z, rng.normal(size=(SMALL, 2)))
        hyper = GPParams(jnp.zeros((2, 3)), jnp.zeros(2), jnp.full(2, np.log(noise)))
        for kernel, rank in (("rbf", 0), ("rbf", 6), ("linear", 0), ("linear", 6)):
            model = GaussianProcess(kernel=KERNELS[kernel], hyperparameters="fixed", rank=rank)
            mean, std, _ = ours(model, hyper, data, z)
            assert np.isfinite(mean).all() and np.isfinite(std).all()
            assert std.min() >= 0
            prior = 1.0 if kernel == "rbf" else np.sqrt(1 + np.sum(z**2, axis=1, keepdims=True))
            assert np.all(std <= prior * (1 + 1e-6))


@pytest.mark.slow
@pytest.mark.parametrize("kernel, rank", [("rbf", 0), ("rbf", 6), ("linear", 0), ("linear", 6)])
def test_prediction_without_data_is_the_prior(x64, kernel, rank):
    rng = np.random.default_rng(2)
    data = data_of(np.zeros((0, 3)), np.zeros((0, 2)), SMALL, rng)
    queries = rng.normal(size=(5, 3))
    model = GaussianProcess(kernel=KERNELS[kernel], hyperparameters="fixed", rank=rank)
    mean, std, noise = ours(model, parameters(), data, queries)
    np.testing.assert_allclose(mean, 0, atol=1e-15)
    growth = 1.0
    if kernel == "linear":
        growth = np.sqrt(1 + np.sum((queries[:, None] / LENGTHSCALES) ** 2, axis=-1))
    np.testing.assert_allclose(std, np.broadcast_to(SIGNAL * growth, std.shape), rtol=1e-12)
    np.testing.assert_allclose(noise, np.broadcast_to(NOISE, noise.shape), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 6])
def test_posterior_of_one_point_is_the_closed_form(x64, rank):
    z, change = np.array([[0.5, -0.3, 0.2]]), np.array([[1.0, -2.0]])
    model = GaussianProcess(hyperparameters="fixed", rank=rank)
    mean, std, _ = ours(model, parameters(), data_of(z, change, SMALL), z)
    shrinkage = SIGNAL**2 / (SIGNAL**2 + NOISE**2)
    np.testing.assert_allclose(mean[0], shrinkage * change[0], rtol=1e-9)
    np.testing.assert_allclose(std[0], np.sqrt(SIGNAL**2 * (1 - shrinkage)), rtol=1e-9)


def test_tiny_units_are_normalised_and_rounding_errors_are_not(x64):
    """Spreads of 1e-10 around 0 and of 1e-3 around 1e6; a change, and then a state, that are constant up to rounding."""
    rng = np.random.default_rng(0)
    draw, same = lambda: rng.normal(size=40), np.full(40, 0.1)
    states = np.column_stack([1e-10 * draw(), 1e6 + 1e-3 * draw(), 1e3 * draw(), 1e3 + 1e-12 * draw()])
    changes = np.column_stack([1e-10 * draw(), 1e-3 * draw(), same, same])
    data = Data(*(jnp.asarray(rows) for rows in (states, np.zeros((40, 1)), states + changes)), jnp.asarray(40))
    inputs, targets = Normaliser.of_inputs(data), Normaliser.of_targets(data)
    np.testing.assert_allclose(inputs.scale, [*states[:, :3].std(axis=0), 1, 1], rtol=1e-6)
    assert np.ptp(states[:, 3]) > 0 and np.ptp(np.asarray(data.targets())[:, 2]) > 0
    np.testing.assert_allclose(targets.scale, [changes[:, 0].std(), changes[:, 1].std(), 1, 1], rtol=1e-6)


@pytest.mark.slow
def test_system_in_tiny_units_is_learned(x64):
    """The predictions are those in units of order 1."""
    rng = np.random.default_rng(1)
    z = np.concatenate([rng.normal(size=(40, 2)), rng.uniform(-1, 1, (40, 1))], axis=1)
    changes, model = np.sin(2 * z[:, :2]), QUICK["learned"]
    learned = []
    for unit in (1.0, 1e-10):
        scale = np.array([unit, unit, 1.0])
        data = data_of(scale * z, unit * changes)
        params = fit(model, start_of(model), data, jax.random.key(0))
        learned.append([found / unit for found in ours(model, params, data, scale * (z + 0.1))])
    for plain, tiny in zip(*learned, strict=True):
        np.testing.assert_allclose(tiny, plain, rtol=1e-5, atol=1e-7)
