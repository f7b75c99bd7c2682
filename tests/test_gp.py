"""Gaussian processes against scikit-learn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import approx_fprime
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import WhiteKernel

from gp_reference import (
    LENGTHSCALES,
    NOISE,
    SIGNAL,
    data_of,
    ours,
    parameters,
    problem,
    reference_kernel,
    reference_posterior,
    reference_scale,
    start_of,
)
from sonde import GaussianProcess, SondeError
from sonde.models.gp import GPParams
from sonde.models.kernels import KERNELS

CAPACITY = 500

# ---- the exact posterior -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", list(KERNELS))
def test_exact_posterior_is_scikit_learns(x64, kernel):
    """From a nearly empty buffer to a full one."""
    model = GaussianProcess(kernel=kernel, hyperparameters="fixed", rank=0)
    for count in (10, 50, 200, CAPACITY):
        rng = np.random.default_rng(count)
        z, changes, queries = problem(rng, count)
        mean, std, noise = ours(model, parameters(), data_of(z, changes, CAPACITY, rng), queries)
        wanted_mean, wanted_std = reference_posterior(kernel, z, changes, queries)
        np.testing.assert_allclose(mean, wanted_mean, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(std, wanted_std, rtol=1e-6)
        np.testing.assert_allclose(noise, np.broadcast_to(NOISE, noise.shape), rtol=1e-12)


def test_learned_hyperparameters_live_in_normalised_units(x64):
    """The same as scikit-learn on data that are standardised by hand, and brought back to state units by hand."""
    rng = np.random.default_rng(3)
    z, changes, queries = problem(rng, 60)
    z, changes, queries = z * [10, 0.1, 1] + [5, -1, 0], changes * [100, 0.01] + [3, 7], queries * [10, 0.1, 1] + [5, -1, 0]
    model = GaussianProcess(rank=0)
    mean, std, noise = ours(model, parameters(), data_of(z, changes, 100, rng), queries)
    normalise = lambda rows, of: (rows - of.mean(axis=0)) / of.std(axis=0)
    all_noise = np.sqrt(NOISE**2 + model.noise_floor**2)
    hyper = (LENGTHSCALES, SIGNAL, all_noise)
    wanted_mean, wanted_std = reference_posterior(
        "rbf", normalise(z, z), normalise(changes, changes), normalise(queries, z), hyper
    )
    scale = changes.std(axis=0)
    np.testing.assert_allclose(mean, changes.mean(axis=0) + scale * wanted_mean, rtol=1e-6)
    np.testing.assert_allclose(std, scale * wanted_std, rtol=1e-6)
    np.testing.assert_allclose(noise, np.broadcast_to(scale * all_noise, noise.shape), rtol=1e-9)


# ---- marginal likelihood -----------------------------------------------------------------------------------------------------


def unpack(vector) -> GPParams:
    """Of one output: logarithms of three length-scales, of the signal and of the noise."""
    return GPParams(vector[:3], vector[3], vector[4])


@pytest.mark.parametrize("kernel", list(KERNELS))
def test_marginal_likelihood_and_its_gradient_are_scikit_learns(x64, kernel):
    """A full buffer and a padded one; of a size that is split into blocks, odd halves included."""
    rng = np.random.default_rng(8)
    model = GaussianProcess(kernel=kernel, hyperparameters="fixed")
    at = np.log([*LENGTHSCALES[0], SIGNAL[0], NOISE[0]])
    value_and_grad = jax.jit(
        jax.value_and_grad(lambda v, z, y, mask: model.log_marginal_likelihood(unpack(v), z, y, mask)),
    )
    for count in (141, 90):
        z, changes, _ = problem(rng, count)
        data = data_of(z, changes, 141, rng)
        ours_at = lambda v, d=data: value_and_grad(jnp.asarray(v), d.inputs(), d.targets()[:, 0], d.mask())
        value, gradient = ours_at(at)
        reference = reference_kernel(kernel, SIGNAL[0], LENGTHSCALES[0]) + WhiteKernel(NOISE[0] ** 2)
        regressor = GaussianProcessRegressor(reference, alpha=0.0, optimizer=None)
        regressor.fit(z / reference_scale(kernel, LENGTHSCALES[0]), changes[:, 0])
        wanted, slope = regressor.log_marginal_likelihood(regressor.kernel_.theta, eval_gradient=True)
        np.testing.assert_allclose(value, wanted, rtol=1e-9)
        if kernel == "linear":  # scikit-learn's has no length-scales
            slope = approx_fprime(at, lambda v, f=ours_at: float(f(v)[0]), 1e-6)
            np.testing.assert_allclose(gradient, slope, rtol=1e-4, atol=1e-3 * np.abs(slope).max())
        else:  # it differentiates by the logarithms of the variances, we by those of the stds
            np.testing.assert_allclose(gradient, [*slope[1:-1], 2 * slope[0], 2 * slope[-1]], rtol=1e-6)


def test_gradient_where_the_noise_is_its_floor_and_a_free_part(x64):
    rng = np.random.default_rng(11)
    z, changes, _ = problem(rng, 40)
    data = data_of(z, changes, 64, rng)
    model = GaussianProcess(noise_floor=0.1, noise_std=0.2)
    at = np.log([0.7, 1.6, 1.1, 0.6, 0.1])
    value_and_grad = jax.jit(
        jax.value_and_grad(lambda v: model.log_marginal_likelihood(unpack(v), data.inputs(), data.targets()[:, 0], data.mask()))
    )
    wanted = approx_fprime(at, lambda v: float(value_and_grad(jnp.asarray(v))[0]), 1e-6)
    value, gradient = value_and_grad(jnp.asarray(at))
    np.testing.assert_allclose(gradient, wanted, rtol=1e-4, atol=1e-3)
    reference = reference_kernel("rbf", 0.6, np.array([0.7, 1.6, 1.1]))
    regressor = GaussianProcessRegressor(reference, alpha=0.1**2 + 0.1**2, optimizer=None).fit(z, changes[:, 0])
    np.testing.assert_allclose(value, regressor.log_marginal_likelihood_value_, rtol=1e-9)


# ---- the setting of the theory -----------------------------------------------------------------------------------------------


def test_with_fixed_hyperparameters_uncertainty_only_shrinks(x64):
    """Ten random data sets that grow by five points at a time; the exact posterior."""
    model = GaussianProcess(hyperparameters="fixed", noise_std=0.02, rank=0)
    for seed in range(10):
        rng = np.random.default_rng(seed)
        z, changes, queries = problem(rng, 40)
        rows, last = np.concatenate([queries, z]), np.inf
        for count in range(0, 41, 5):
            data = data_of(z[:count], changes[:count], 40)
            _, std, _ = ours(model, start_of(model), data, rows)
            assert np.all(std <= last + 1e-9)
            last = std


def test_settings_that_cannot_work_are_refused():
    for wrong in (
        {"kernel": "cubic"},
        {"lengthscale": 0.0},
        {"noise_std": -1.0},
        {"noise_floor": 0.02},
        {"rank": -1},
        {"steps": 0},
        {"prior_std": float("nan")},
    ):
        with pytest.raises((SondeError, TypeError)):
            GaussianProcess(**wrong)
