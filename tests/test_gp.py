"""Gaussian processes against scikit-learn."""

import numpy as np
import pytest

from gp_reference import (
    LENGTHSCALES,
    NOISE,
    SIGNAL,
    data_of,
    ours,
    parameters,
    problem,
    reference_posterior,
    start_of,
)
from sonde import GaussianProcess, SondeError
from sonde.models._kernels import KERNELS

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


# ---- the setting of the theory -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [0, GaussianProcess().rank])
def test_with_fixed_hyperparameters_uncertainty_only_shrinks(x64, rank):
    """Ten random data sets that grow by five points at a time, fewer than the rank allows for."""
    model = GaussianProcess(hyperparameters="fixed", noise_std=0.02, rank=rank)
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
        {"gradient_limit": -1.0},
        {"gradient_limit": float("nan")},
        {"gradient_limit": float("inf")},
    ):
        with pytest.raises((SondeError, TypeError)):
            GaussianProcess(**wrong)
