"""Gaussian processes with an affine part."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import cho_factor, cho_solve
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, DotProduct

from gp_reference import (
    LENGTHSCALES,
    NOISE,
    SIGNAL,
    condition,
    data_of,
    fit,
    ours,
    parameters,
    problem,
    reference_kernel,
    start_of,
)
from sonde import GaussianProcess
from sonde.models._prior import Prior, information_gain

AFFINE = 3.0


def normalised(rows, of):
    return (rows - of.mean(axis=0)) / of.std(axis=0)


@pytest.mark.parametrize("rank", [0, 60])
def test_posterior_is_that_of_a_linear_plus_stationary_kernel(x64, rank):
    """As scikit-learn on data that are standardised by hand."""
    rng = np.random.default_rng(3)
    z, changes, queries = problem(rng, 60)
    model = GaussianProcess(rank=rank, affine_std=AFFINE)
    mean, std, _ = ours(model, parameters(), data_of(z, changes, 100, rng), queries)
    scale = changes.std(axis=0)
    for j in range(2):
        kernel = reference_kernel("rbf", SIGNAL[j], LENGTHSCALES[j]) + ConstantKernel(AFFINE**2) * DotProduct(1.0)
        regressor = GaussianProcessRegressor(kernel, alpha=NOISE[j] ** 2 + model.noise_floor**2, optimizer=None)
        regressor.fit(normalised(z, z), normalised(changes, changes)[:, j])
        wanted_mean, wanted_std = regressor.predict(normalised(queries, z), return_std=True)
        off = np.abs(mean[:, j] - changes.mean(axis=0)[j] - scale[j] * wanted_mean) / (scale[j] * wanted_std)
        assert off.max() < (model.tolerance if rank else 1e-6), "in stds"
        np.testing.assert_allclose(std[:, j], scale[j] * wanted_std, rtol=0.055 if rank else 1e-6)


def test_affine_systems_are_learned_from_few_measurements_and_everywhere(x64):
    """Far from the data too, where a stationary kernel returns to the mean; rounding is all that is left."""
    rng = np.random.default_rng(0)
    matrix, offset = rng.normal(size=(3, 2)), np.array([3.0, -1.0])
    z, queries = rng.normal(size=(12, 3)), 10 * rng.normal(size=(50, 3))
    model = GaussianProcess(rank=0)
    data = data_of(z, z @ matrix + offset)
    params = fit(model, start_of(model), data, jax.random.key(0))
    mean, std, _ = ours(model, params, data, queries)
    error = np.abs(mean - (queries @ matrix + offset))
    assert np.all(error < 0.02 * np.abs(queries @ matrix).max(axis=0)) and np.all(error < 4 * std)


def test_derivatives_agree_with_the_posterior_of_differences(x64):
    """A derivative is a difference of the process at two close points, whose mean and variance follow from the kernel."""
    rng = np.random.default_rng(5)
    z, changes, _ = problem(rng, 25)
    model, h = GaussianProcess(rank=0, affine_std=AFFINE), 1e-4
    data = data_of(z, changes)
    posterior = condition(model, parameters(), data)
    at = np.array([0.3, -0.2, 0.1])
    found = posterior.predict_jacobian(jnp.asarray(at[:2]), jnp.asarray(at[2:]), jax.random.key(0), 4)
    for j, i in np.ndindex(2, 3):
        kernel = reference_kernel("rbf", SIGNAL[j], LENGTHSCALES[j]) + ConstantKernel(AFFINE**2) * DotProduct(1.0)
        pair = normalised(at + h * np.outer([0.5, -0.5], np.eye(3)[i]), z)
        rows = normalised(z, z)
        solve = cho_factor(kernel(rows) + (NOISE[j] ** 2 + model.noise_floor**2) * np.eye(25))
        contrast = np.array([1.0, -1.0]) / h * changes.std(axis=0)[j]
        cross = contrast @ kernel(pair, rows)
        mean = cross @ cho_solve(solve, normalised(changes, changes)[:, j]) + (i == j)
        variance = contrast @ kernel(pair) @ contrast - cross @ cho_solve(solve, cross)
        np.testing.assert_allclose(found.mean[j, i], mean, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(found.std[j, i], np.sqrt(variance), rtol=1e-3)


def test_information_includes_the_affine_part(x64):
    rng = np.random.default_rng(6)
    z, changes, _ = problem(rng, 20)
    model, data = GaussianProcess(rank=0, affine_std=AFFINE), data_of(z, changes)
    found = information_gain(Prior.of(condition(model, parameters(), data)), data.inputs(), data.mask())
    for j in range(2):
        kernel = reference_kernel("rbf", SIGNAL[j], LENGTHSCALES[j]) + ConstantKernel(AFFINE**2) * DotProduct(1.0)
        ratio = kernel(normalised(z, z)) / (NOISE[j] ** 2 + model.noise_floor**2)
        np.testing.assert_allclose(found[j], 0.5 * np.linalg.slogdet(np.eye(20) + ratio)[1], rtol=1e-9)
