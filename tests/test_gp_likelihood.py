"""The marginal likelihood and its gradient, against scikit-learn and finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import approx_fprime
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, DotProduct, WhiteKernel

from gp_reference import LENGTHSCALES, NOISE, SIGNAL, data_of, problem, reference_kernel, reference_scale
from sonde import GaussianProcess
from sonde.models import KERNELS
from sonde.models._gaussian_process import GPParams


def unpack(vector) -> GPParams:
    """Logarithms of one output's three length-scales, signal std and noise std."""
    return GPParams(vector[:3], vector[3], vector[4])


@pytest.mark.slow
@pytest.mark.parametrize("kernel", list(KERNELS))
def test_marginal_likelihood_and_its_gradient_agree_with_scikit_learn(x64, kernel):
    """A full buffer and a partly filled one, of a size that is factorised in blocks of different sizes."""
    rng = np.random.default_rng(8)
    model = GaussianProcess(kernel=KERNELS[kernel], hyperparameters="fixed")
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
        if kernel == "linear":  # scikit-learn's linear kernel has no length-scales
            slope = approx_fprime(at, lambda v, f=ours_at: float(f(v)[0]), 1e-6)
            np.testing.assert_allclose(gradient, slope, rtol=1e-4, atol=1e-3 * np.abs(slope).max())
        else:  # its gradient is by the logarithms of variances, ours by those of stds
            np.testing.assert_allclose(gradient, [*slope[1:-1], 2 * slope[0], 2 * slope[-1]], rtol=1e-6)


@pytest.mark.slow
def test_marginal_likelihood_with_a_noise_floor_agrees_with_scikit_learn(x64):
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
    reference = reference_kernel("rbf", 0.6, np.array([0.7, 1.6, 1.1])) + ConstantKernel(9.0) * DotProduct(1.0)
    regressor = GaussianProcessRegressor(reference, alpha=0.1**2 + 0.1**2, optimizer=None).fit(z, changes[:, 0])
    np.testing.assert_allclose(value, regressor.log_marginal_likelihood_value_, rtol=1e-9)
