"""Predicted Jacobians: against finite differences, and against dense algebra on scikit-learn's kernels."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gp_reference import LENGTHSCALES, NOISE, SIGNAL, condition, data_of, parameters, problem, reference_kernel, reference_scale
from sonde import GaussianProcess, ProbabilisticEnsemble, SondeError, TrueDynamics
from sonde.models import KERNELS, RBF, Kernel, Posterior, Prediction
from sonde.models._calibration import Factors, PosteriorWithBeta, RecalibratedPosterior
from sonde.models._gp_posterior import GPPosterior
from sonde.worlds import Pendulum

COUNT = 2000
X, U = np.array([0.3, -0.4]), np.array([0.2])


@partial(jax.jit, static_argnums=4)
def predict(posterior, x, u, key, count):
    return posterior.predict_jacobian(x, u, key, count)


def gp(kernel: Kernel = KERNELS["rbf"], rank: int = 0) -> tuple[GPPosterior, np.ndarray, np.ndarray]:
    z, changes, _ = problem(np.random.default_rng(0), 25)
    model = GaussianProcess(kernel=kernel, hyperparameters="fixed", rank=rank)
    return condition(model, parameters(), data_of(z, changes, 30, np.random.default_rng(1))), z, changes


def reference_gradient(kernel: str, output: int, z: np.ndarray, change: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the gradient of the change at (X, U): central differences of scikit-learn's covariance."""
    scale = reference_scale(kernel, LENGTHSCALES[output])
    k = lambda a, b: reference_kernel(kernel, SIGNAL[output], LENGTHSCALES[output])(a / scale, b / scale)
    at, step = np.concatenate([X, U]), 1e-3
    around = np.concatenate([at + step * np.eye(3), at - step * np.eye(3)])
    known = k(z, z) + NOISE[output] ** 2 * np.eye(len(z))
    cross = k(around, z)
    mean = cross @ np.linalg.solve(known, change)
    covariance = k(around, around) - cross @ np.linalg.solve(known, cross.T)
    halves = np.concatenate([np.eye(3), -np.eye(3)], axis=1) / (2 * step)
    return halves @ mean, halves @ covariance @ halves.T


@pytest.mark.slow
@pytest.mark.parametrize(("kernel", "tolerance"), [("rbf", 1e-4), ("matern32", 2e-2), ("matern52", 1e-3), ("linear", 1e-6)])
def test_jacobian_of_a_gaussian_process_agrees_with_dense_algebra(x64, kernel, tolerance):
    posterior, z, changes = gp(KERNELS[kernel])
    prediction = predict(posterior, jnp.asarray(X), jnp.asarray(U), jax.random.key(0), COUNT)
    for j in range(2):
        mean, covariance = reference_gradient(kernel, j, z, changes[:, j])
        np.testing.assert_allclose(prediction.mean[j] - np.eye(3)[j], mean, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(prediction.std[j], np.sqrt(np.diag(covariance)), rtol=tolerance)
        # samples have the full covariance
        samples = np.asarray(prediction.samples[:, j])
        scale = np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)))
        np.testing.assert_allclose(np.cov(samples.T) / scale, covariance / scale, atol=0.1)
        np.testing.assert_allclose(samples.mean(axis=0), prediction.mean[j], atol=0.1 * np.sqrt(np.diag(covariance)).max())


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 30])
def test_mean_jacobian_agrees_with_finite_differences(x64, rank):
    posterior, _, _ = gp(rank=rank)
    prediction = predict(posterior, jnp.asarray(X), jnp.asarray(U), jax.random.key(0), 10)
    step, mean = 1e-5, jax.jit(lambda z: posterior.predict(z[:2], z[2:]).mean)
    z = np.concatenate([X, U])
    differences = [(mean(z + step * e) - mean(z - step * e)) / (2 * step) for e in np.eye(3)]
    np.testing.assert_allclose(prediction.mean, np.stack(differences, axis=1), rtol=1e-6, atol=1e-7)
    for form in (posterior, posterior.differentiable()):
        automatic = jax.jit(lambda p, x, u: p.mean_jacobian(x, u))(form, jnp.asarray(X), jnp.asarray(U))
        np.testing.assert_allclose(prediction.mean, automatic, rtol=1e-9, atol=1e-10)


@pytest.mark.slow
def test_jacobian_with_given_scales_is_in_state_units(x64):
    """The same function in other units has the same Jacobian in state units."""
    z, changes, _ = problem(np.random.default_rng(2), 25)
    scales, spread = np.array([2.0, 0.5, 3.0]), np.array([0.2, 5.0])
    model = GaussianProcess(hyperparameters="fixed", rank=0, input_scales=(2.0, 0.5, 3.0), target_scales=(0.2, 5.0))
    plain = GaussianProcess(hyperparameters="fixed", rank=0)
    given = condition(model, model.init(2, 1, jax.random.key(0)), data_of(z, changes))
    unit = condition(plain, plain.init(2, 1, jax.random.key(0)), data_of(z / scales, changes / spread))
    key = jax.random.key(0)
    ours = predict(given, jnp.asarray(X), jnp.asarray(U), key, 10)
    theirs = predict(unit, jnp.asarray(X / scales[:2]), jnp.asarray(U / scales[2:]), key, 10)
    factor = spread[:, None] / scales
    np.testing.assert_allclose(ours.std, factor * theirs.std, rtol=1e-9)
    np.testing.assert_allclose(ours.mean - np.eye(2, 3), factor * (theirs.mean - np.eye(2, 3)), rtol=1e-9)


@pytest.fixture(scope="module")
def ensemble():
    model = ProbabilisticEnsemble(members=4, layers=1, width=8)
    with jax.enable_x64(True):
        data = data_of(np.zeros((1, 3)), np.zeros((1, 2)))
        return model.condition(model.init(2, 1, jax.random.key(3)), data)


@pytest.mark.slow
def test_jacobian_of_an_ensemble_is_that_of_its_members(x64, cpu, ensemble):
    """On the CPU: GPUs round the inputs of products to 11 bits, which is too coarse for finite differences."""
    ensemble = jax.device_put(ensemble, jax.devices("cpu")[0])
    prediction = predict(ensemble, jnp.asarray(X), jnp.asarray(U), jax.random.key(0), 10)
    members = jax.jit(lambda z: ensemble.predict(z[:2], z[2:]).members.means)
    z, step = np.concatenate([X, U]), 1e-2  # networks are in single precision
    differences = np.stack([(members(z + step * e) - members(z - step * e)) / (2 * step) for e in np.eye(3)], axis=-1)
    np.testing.assert_allclose(prediction.samples, differences, atol=2e-3)
    np.testing.assert_allclose(prediction.mean, differences.mean(axis=0), atol=2e-3)
    np.testing.assert_allclose(prediction.std, differences.std(axis=0), atol=2e-3)


@pytest.mark.slow
def test_recalibration_rescales_jacobian_stds_and_beta_does_not(x64, ensemble):
    factors = Factors(jnp.asarray([3.0, 0.5]), jnp.ones(2))
    arguments = (jnp.asarray(X), jnp.asarray(U), jax.random.key(0), 50)
    factor = np.array([[3.0], [0.5]])
    for posterior in (ensemble, gp()[0]):
        plain, wide = predict(posterior, *arguments), predict(RecalibratedPosterior(posterior, factors), *arguments)
        np.testing.assert_allclose(wide.mean, plain.mean)
        np.testing.assert_allclose(wide.std, factor * plain.std, rtol=1e-6)
        np.testing.assert_allclose(np.std(wide.samples, axis=0), factor * np.std(plain.samples, axis=0), rtol=1e-5)
        same = predict(PosteriorWithBeta(posterior, jnp.full(2, 9.0)), *arguments)
        np.testing.assert_array_equal(same.samples, plain.samples)


def test_jacobian_of_the_true_system_has_no_uncertainty(x64):
    prediction = predict(TrueDynamics(Pendulum()), jnp.asarray([1.0, 0.0, 0.0]), jnp.zeros(1), jax.random.key(0), 10)
    assert not np.asarray(prediction.std).any()
    np.testing.assert_allclose(prediction.mean[2], [0.0, 0.75, 1.0, 0.3], atol=1e-12)  # 15 dt sin th + thdot + 6 dt u


class Rough(RBF):
    """A kernel that does not know the variance of derivatives."""

    slope_variance = None


def test_posteriors_and_kernels_without_derivatives_are_rejected(x64):
    class Stubborn(Posterior):
        def predict(self, x, u):
            return Prediction(x, x, x)

    arguments = (jnp.asarray(X), jnp.asarray(U), jax.random.key(0), 10)
    with pytest.raises(SondeError, match="Stubborn does not say how certain its derivatives are"):
        Stubborn().predict_jacobian(*arguments)
    with pytest.raises(SondeError, match=r"the kernel Rough\(\) does not say how .*; implement its slope_variance"):
        gp(Rough())[0].predict_jacobian(*arguments)
