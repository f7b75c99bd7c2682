"""The fit of the hyper-parameters."""

import itertools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize

from gp_reference import DX, data_of, fit, log_posterior, ours, start_of
from sonde import GaussianProcess
from sonde.models._gaussian_process import GPParams
from sonde.runs._presets import PENDULUM_GP_MODEL as ADAM


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


def one_output(params: GPParams, j: int) -> np.ndarray:
    """All logarithms of an output: length-scales, signal, noise."""
    return np.concatenate([np.ravel(leaf[j]) for leaf in jax.tree.leaves(params)])


def worth_of(model: GaussianProcess, values: np.ndarray, z: np.ndarray, target: np.ndarray) -> float:
    """`log_posterior` of one output."""
    return log_posterior(model, (values[None, :-2], values[-2:-1], values[-1:]), z, target[:, None])[0]


@pytest.mark.slow
def test_fit_recovers_hyperparameters_and_never_gets_worse(x64):
    z, changes, lengthscales, noise = sample_of_a_gp()
    data, model = data_of(z, changes), GaussianProcess()
    params = start_of(model)
    worth = [log_posterior(model, params, z, changes)]
    for round_number in range(3):
        params = fit(model, params, data, jax.random.key(round_number))
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


@pytest.mark.slow
def test_fit_reaches_the_maximum_that_scipy_finds(x64):
    """With a narrow prior, so that it matters."""
    z, changes, *_ = sample_of_a_gp(80)
    model = GaussianProcess(lengthscale_prior=(1.0, 0.1), signal_prior=(1.0, 0.1))
    params = start_of(model)
    for round_number in range(4):
        params = fit(model, params, data_of(z, changes), jax.random.key(round_number))
    worth = lambda values, j: worth_of(model, values, z, changes[:, j])
    for j in range(DX):
        found = one_output(params, j)
        best = minimize(lambda values, j=j: -worth(values, j), found, method="Nelder-Mead", options={"maxiter": 400})
        assert -best.fun - worth(found, j) < 0.05


def adam_by_hand(worth, start: np.ndarray, steps: int, rate: float, limit: float) -> tuple[np.ndarray, list[float]]:
    """Adam as published, on gradients clipped to the limit; also the norms before clipping."""
    values, mean, square, lengths = start, 0.0, 0.0, []
    for t in range(1, steps + 1):
        gradient = approx_fprime(values, lambda v: -worth(v), 1e-7)
        lengths.append(np.linalg.norm(gradient))
        gradient = gradient * min(1.0, limit / lengths[-1] if limit else 1.0)
        mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2
        values = values - rate * (mean / (1 - 0.9**t)) / (np.sqrt(square / (1 - 0.999**t)) + 1e-8)
    return values, lengths


@pytest.mark.slow
@pytest.mark.parametrize("limit", [0.0, 4.0])
def test_fit_is_adam_on_clipped_gradients(x64, limit):
    """The gradient of each output is clipped by its own norm, whatever those of the others are."""
    z, changes, *_ = sample_of_a_gp(30)
    model = replace(ADAM, steps=6, gradient_limit=limit, noise_std=0.3)
    found = fit(model, start_of(model), data_of(z, changes), jax.random.key(0))
    for j in range(DX):
        worth = lambda values, j=j: worth_of(model, values, z, changes[:, j])
        by_hand, lengths = adam_by_hand(worth, one_output(start_of(model), j), 6, model.learning_rate, limit)
        assert min(lengths) < 4 < max(lengths), "the limit must matter at some steps and not at others"
        np.testing.assert_allclose(one_output(found, j), by_hand, atol=1e-4)


@pytest.mark.slow
def test_gradient_limit_lets_the_fit_adapt_to_data_unlike_all_before(x64):
    """Two fits to a smooth function, and then one to the same function clipped from both sides."""
    z = np.random.default_rng(0).uniform(-1, 1, (60, 3))
    smooth = np.stack([3 * z[:, 0] + 0.3 * np.sin(2 * z[:, 1]), z[:, 0] * z[:, 1]], axis=1)
    broken = np.clip(smooth, [-1.0, -0.3], [1.0, 0.3])
    data, reached = [data_of(z, changes) for changes in (smooth, smooth, broken)], {}
    for limit in (0.0, 10.0):
        model = replace(ADAM, gradient_limit=limit)
        params = start_of(model)
        for round_number, known in enumerate(data):
            params = fit(model, params, known, jax.random.key(round_number))
        reached[limit] = log_posterior(model, params, z, broken)
    worth = lambda values, j: worth_of(model, values, z, broken[:, j])
    for j in range(DX):
        best = minimize(lambda values, j=j: -worth(values, j), one_output(start_of(model), j), method="L-BFGS-B")
        assert reached[0.0][j] < -best.fun - 15 and abs(reached[10.0][j] + best.fun) < 1, (
            "in nats, relative to what SciPy reaches"
        )


@pytest.mark.slow
def test_fit_of_noiseless_data_ends_at_the_noise_floor(x64):
    rng = np.random.default_rng(4)
    z = rng.uniform(-1, 1, (250, 3))
    changes = np.stack([np.sin(2 * z[:, 0]) + z[:, 2], z[:, 0] * z[:, 1]], axis=1)
    data, model = data_of(z, changes), GaussianProcess()
    params = start_of(model)
    for round_number in range(3):
        params = fit(model, params, data, jax.random.key(round_number))
    _, _, noise = ours(model, params, data, z)
    assert np.all(params.log_noise >= np.log(0.1 * model.noise_floor) - 1e-9), "it must not be far to come back"
    floor = model.noise_floor * changes.std(axis=0)
    assert np.all(noise >= floor) and np.all(noise < 1.05 * floor)


def test_noise_is_learned_when_the_fit_starts_below_the_floor(x64):
    z, changes, _, noise = sample_of_a_gp()
    model = GaussianProcess()
    params = start_of(model)
    params = GPParams(params.log_lengthscales, params.log_signal, jnp.full(DX, np.log(0.1 * model.noise_floor)))
    data = data_of(z, changes)
    for round_number in range(3):
        params = fit(model, params, data, jax.random.key(round_number))
    found = np.sqrt(model.noise_floor**2 + np.exp(2 * params.log_noise)) * changes.std(axis=0)
    np.testing.assert_allclose(found, noise, rtol=0.2)


@pytest.mark.slow
def test_fit_ignores_the_unused_part_of_the_buffer(x64):
    """A buffer of 300 rows is fitted in branches of 150 and 300 rows; the result must not depend on the branch."""
    z, changes, *_ = sample_of_a_gp()
    model = replace(ADAM, steps=10)
    branch = jax.jit(lambda data, filled: model.fit(start_of(model), data, filled, jax.random.key(0)))

    def fitted(count, filled, seed=0):
        data = data_of(z[:count], changes[:count], 300, np.random.default_rng(seed))
        return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(branch(data, jnp.asarray(filled)))])

    alone = fitted(150, 150)  # as if there were no other rows
    np.testing.assert_allclose(fitted(150, 300), alone, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(fitted(150, 300, seed=1), alone, rtol=1e-6, atol=1e-9)
    one_more = fitted(151, 151)
    np.testing.assert_allclose(one_more, fitted(151, 300), rtol=1e-6, atol=1e-9)
    assert np.abs(one_more - alone).max() > 1e-4, "the 151st row matters"


@pytest.mark.slow
def test_fit_uses_a_random_subset_of_many_points(x64):
    z, changes, _, noise = sample_of_a_gp()
    model = GaussianProcess(fit_points=140)
    data = data_of(z, changes, 300, np.random.default_rng(0))
    fits = []
    for seed in range(2):
        params = start_of(model)
        for round_number in range(2):
            params = fit(model, params, data, jax.random.key(10 * seed + round_number))
        found = np.sqrt(model.noise_floor**2 + np.exp(2 * params.log_noise)) * changes.std(axis=0)
        np.testing.assert_allclose(found, noise, rtol=0.4)
        fits.append(params)
    assert np.all(fits[0].log_noise != fits[1].log_noise), "another key must draw another subset"


def test_fixed_hyperparameters_are_not_fitted(x64):
    z, changes, *_ = sample_of_a_gp(50)
    model = GaussianProcess(hyperparameters="fixed", lengthscale=0.7, signal_std=1.3, noise_std=0.05)
    params = fit(model, start_of(model), data_of(z, changes), jax.random.key(0))
    np.testing.assert_allclose(np.exp(params.log_lengthscales), 0.7)
    np.testing.assert_allclose(np.exp(params.log_signal), 1.3)
    np.testing.assert_allclose(np.exp(params.log_noise), 0.05)
