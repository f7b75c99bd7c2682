"""Gaussian processes against scikit-learn and closed forms."""

from dataclasses import dataclass

import jax.numpy as jnp
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
from sonde.models import KERNELS, Kernel

CAPACITY = 500

# ---- the exact posterior -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kernel", list(KERNELS))
def test_exact_posterior_agrees_with_scikit_learn(x64, kernel):
    """From a nearly empty buffer to a full one."""
    model = GaussianProcess(kernel=KERNELS[kernel], hyperparameters="fixed", rank=0)
    for count in (10, 50, 200, CAPACITY):
        rng = np.random.default_rng(count)
        z, changes, queries = problem(rng, count)
        mean, std, noise = ours(model, parameters(), data_of(z, changes, CAPACITY, rng), queries)
        wanted_mean, wanted_std = reference_posterior(kernel, z, changes, queries)
        np.testing.assert_allclose(mean, wanted_mean, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(std, wanted_std, rtol=1e-6)
        np.testing.assert_allclose(noise, np.broadcast_to(NOISE, noise.shape), rtol=1e-12)


@pytest.mark.slow
def test_learned_hyperparameters_are_in_normalised_units(x64):
    """As scikit-learn on data that are standardised by hand; its results are brought back to state units by hand."""
    rng = np.random.default_rng(3)
    z, changes, queries = problem(rng, 60)
    z, changes, queries = z * [10, 0.1, 1] + [5, -1, 0], changes * [100, 0.01] + [3, 7], queries * [10, 0.1, 1] + [5, -1, 0]
    model = GaussianProcess(rank=0, affine_std=0.0)
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


# ---- a kernel of one's own ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RationalQuadratic(Kernel):
    """(1 + |a - b|^2 / (2 alpha))^-alpha."""

    alpha: float = 1.0

    def cross(self, a, b):
        squared = jnp.sum((a[:, None] - b[None]) ** 2, axis=-1)
        return (1 + squared / (2 * self.alpha)) ** -self.alpha

    def diagonal(self, a):
        return jnp.ones(a.shape[0], a.dtype)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 60])
@pytest.mark.parametrize("alpha", [0.5, 3.0])
def test_own_kernel_with_a_parameter_gives_the_closed_form_posterior(x64, alpha, rank):
    """A kernel that is passed as an object; exact, and with more inducing points than data."""
    rng = np.random.default_rng(6)
    z, changes, queries = problem(rng, 50)
    model = GaussianProcess(kernel=RationalQuadratic(alpha), hyperparameters="fixed", rank=rank)
    mean, std, _ = ours(model, parameters(), data_of(z, changes, 100, rng), queries)
    for j in range(2):
        squared = lambda a, b, scales=LENGTHSCALES[j]: np.sum(((a[:, None] - b[None]) / scales) ** 2, axis=-1)
        covariance = lambda a, b, of=squared, s=SIGNAL[j]: s**2 * (1 + of(a, b) / (2 * alpha)) ** -alpha
        solved = np.linalg.solve(covariance(z, z) + NOISE[j] ** 2 * np.eye(50), covariance(z, queries))
        explained = np.sum(covariance(z, queries) * solved, axis=0)
        np.testing.assert_allclose(mean[:, j], changes[:, j] @ solved, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(std[:, j], np.sqrt(SIGNAL[j] ** 2 - explained), rtol=1e-6)


@dataclass
class Unhashable(Kernel):
    """Not declared as frozen."""

    cross, diagonal = RationalQuadratic.cross, RationalQuadratic.diagonal


def test_kernels_that_cannot_be_used_are_rejected():
    with pytest.raises(SondeError, match=r"declare Unhashable as @dataclass\(frozen=True\)"):
        GaussianProcess(kernel=Unhashable())
    with pytest.raises((SondeError, TypeError), match="cubic"):
        GaussianProcess(kernel="cubic")  # ty: ignore[invalid-argument-type]


# ---- the setting of the theory -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, GaussianProcess().rank])
def test_uncertainty_only_shrinks_with_fixed_hyperparameters(x64, rank):
    """Ten random data sets that grow by five points at a time, up to fewer points than the rank."""
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


def test_invalid_settings_are_rejected():
    for wrong in (
        {"lengthscale": 0.0},
        {"noise_std": -1.0},
        {"noise_floor": 0.02},
        {"rank": -1},
        {"steps": 0},
        {"lengthscale_prior": (1.0, float("nan"))},
        {"gradient_limit": -1.0},
        {"gradient_limit": float("nan")},
        {"gradient_limit": float("inf")},
    ):
        with pytest.raises((SondeError, TypeError)):
            GaussianProcess(**wrong)
