"""The fit of the hyper-parameters."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize
from sklearn.gaussian_process import GaussianProcessRegressor

from gp_reference import DX, data_of, fit, ours, reference_kernel, start_of
from sonde import GaussianProcess
from sonde.models.gp import GPParams


def sample_of_a_gp(count=250, noise=0.1):
    """Two outputs drawn from RBF processes with known hyper-parameters, noise included."""
    rng = np.random.default_rng(12)
    z = rng.uniform(-2, 2, (count, 3))
    lengthscales = np.array([[0.8, 1.3, 1.5], [1.4, 0.7, 1.0]])
    changes = []
    for scales in lengthscales:
        covariance = np.exp(-0.5 * np.sum(((z[:, None] - z[None]) / scales) ** 2, axis=-1))
        changes.append(np.linalg.cholesky(covariance + noise**2 * np.eye(count)) @ rng.normal(size=count))
    return z, np.stack(changes, axis=1), lengthscales, noise


def log_posterior(model: GaussianProcess, params, z: np.ndarray, changes: np.ndarray) -> np.ndarray:
    """What a fit is to raise, per output, by scikit-learn: marginal likelihood and Gaussian priors on the logarithms."""
    z, changes = ((rows - rows.mean(axis=0)) / rows.std(axis=0) for rows in (z, changes))
    values = []
    for log_scales, log_signal, log_noise, target in zip(
        *(np.asarray(a) for a in jax.tree.leaves(params)), changes.T, strict=True
    ):
        noise = np.sqrt(model.noise_floor**2 + np.exp(2 * log_noise))
        kernel = reference_kernel("rbf", np.exp(log_signal), np.exp(log_scales))
        regressor = GaussianProcessRegressor(kernel, alpha=noise**2, optimizer=None).fit(z, target)
        off = np.append(log_scales - np.log(model.lengthscale), log_signal - np.log(model.signal_std))
        values.append(regressor.log_marginal_likelihood_value_ - 0.5 * np.sum(off**2) / model.prior_std**2)
    return np.array(values)


def test_fit_recovers_hyperparameters_and_never_gets_worse(x64):
    z, changes, lengthscales, noise = sample_of_a_gp()
    data, model = data_of(z, changes), GaussianProcess()
    params = start_of(model)
    worth = [log_posterior(model, params, z, changes)]
    for episode in range(3):
        params = fit(model, params, data, jax.random.key(episode))
        worth.append(log_posterior(model, params, z, changes))
    assert np.all(worth[1] > worth[0] + 10)
    for before, after in itertools.pairwise(worth[1:]):
        assert np.all(after > before - 0.05), "a warm start must improve, or keep, what was reached"
    found_noise = np.sqrt(model.noise_floor**2 + np.exp(2 * params.log_noise)) * changes.std(axis=0)
    np.testing.assert_allclose(found_noise, noise, rtol=0.2)
    found_scales = np.exp(params.log_lengthscales) * z.std(axis=0)
    np.testing.assert_allclose(found_scales, lengthscales, rtol=0.3)
    found_signal = np.exp(params.log_signal) * changes.std(axis=0)
    np.testing.assert_allclose(found_signal, 1.0, rtol=0.4)


def test_fit_reaches_the_maximum_that_scipy_finds(x64):
    """A narrow prior, so that its part in what is maximised shows."""
    z, changes, *_ = sample_of_a_gp(80)
    model = GaussianProcess(prior_std=0.1)
    params = start_of(model)
    for episode in range(4):
        params = fit(model, params, data_of(z, changes), jax.random.key(episode))
    worth = lambda v, j: log_posterior(model, (v[None, :3], v[3:4], v[4:]), z, changes[:, j : j + 1])[0]
    for j in range(DX):
        found = np.concatenate([params.log_lengthscales[j], params.log_signal[j : j + 1], params.log_noise[j : j + 1]])
        best = minimize(lambda v, j=j: -worth(v, j), found, method="Nelder-Mead", options={"maxiter": 400})
        assert -best.fun - worth(found, j) < 0.05


def test_fit_respects_the_noise_floor(x64):
    """On a function without noise the noise goes to its floor and not below."""
    rng = np.random.default_rng(4)
    z = rng.uniform(-1, 1, (250, 3))
    changes = np.stack([np.sin(2 * z[:, 0]) + z[:, 2], z[:, 0] * z[:, 1]], axis=1)
    data, model = data_of(z, changes), GaussianProcess()
    params = start_of(model)
    for episode in range(3):
        params = fit(model, params, data, jax.random.key(episode))
    _, _, noise = ours(model, params, data, z)
    assert np.all(params.log_noise >= np.log(0.1 * model.noise_floor) - 1e-9), "the way back must stay short"
    floor = model.noise_floor * changes.std(axis=0)
    assert np.all(noise >= floor) and np.all(noise < 1.05 * floor)


def test_noise_comes_back_from_the_floor(x64):
    """A system that turns out to be noisy after all."""
    z, changes, _, noise = sample_of_a_gp()
    model = GaussianProcess()
    params = start_of(model)
    params = GPParams(params.log_lengthscales, params.log_signal, jnp.full(DX, np.log(0.1 * model.noise_floor)))
    data = data_of(z, changes)
    for episode in range(3):
        params = fit(model, params, data, jax.random.key(episode))
    found = np.sqrt(model.noise_floor**2 + np.exp(2 * params.log_noise)) * changes.std(axis=0)
    np.testing.assert_allclose(found, noise, rtol=0.2)


def test_fit_does_not_see_the_empty_part_of_the_buffer(x64):
    """The buffer of 300 is fitted in branches of 150 and 300 rows, as it is filled; the outcome must not show which."""
    z, changes, *_ = sample_of_a_gp()
    model = GaussianProcess(steps=10)
    branch = jax.jit(lambda data, filled: model.fit(start_of(model), data, filled, jax.random.key(0)))

    def fitted(count, filled, seed=0):
        data = data_of(z[:count], changes[:count], 300, np.random.default_rng(seed))
        return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(branch(data, jnp.asarray(filled)))])

    alone = fitted(150, 150)  # as if there were no other rows
    np.testing.assert_allclose(fitted(150, 300), alone, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(fitted(150, 300, seed=1), alone, rtol=1e-6, atol=1e-9)
    one_more = fitted(151, 151)
    np.testing.assert_allclose(one_more, fitted(151, 300), rtol=1e-6, atol=1e-9)
    assert np.abs(one_more - alone).max() > 1e-4, "the 151st row counts"


def test_fit_of_more_points_than_it_looks_at(x64):
    z, changes, _, noise = sample_of_a_gp()
    model = GaussianProcess(fit_points=140)
    data = data_of(z, changes, 300, np.random.default_rng(0))
    fits = []
    for seed in range(2):
        params = start_of(model)
        for episode in range(2):
            params = fit(model, params, data, jax.random.key(10 * seed + episode))
        found = np.sqrt(model.noise_floor**2 + np.exp(2 * params.log_noise)) * changes.std(axis=0)
        np.testing.assert_allclose(found, noise, rtol=0.4)
        fits.append(params)
    assert np.all(fits[0].log_noise != fits[1].log_noise), "another key is another subset"


def test_fixed_hyperparameters_are_not_fitted(x64):
    z, changes, *_ = sample_of_a_gp(50)
    model = GaussianProcess(hyperparameters="fixed", lengthscale=0.7, signal_std=1.3, noise_std=0.05)
    params = fit(model, start_of(model), data_of(z, changes), jax.random.key(0))
    np.testing.assert_allclose(np.exp(params.log_lengthscales), 0.7)
    np.testing.assert_allclose(np.exp(params.log_signal), 1.3)
    np.testing.assert_allclose(np.exp(params.log_noise), 0.05)
