"""The marginal likelihood and its gradient, against scikit-learn and finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import approx_fprime
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import WhiteKernel

from gp_reference import LENGTHSCALES, NOISE, SIGNAL, data_of, problem, reference_kernel, reference_scale
from sonde import GaussianProcess
from sonde.models._gaussian_process import GPParams
from sonde.models._kernels import KERNELS


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
