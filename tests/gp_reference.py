"""Regression problems for Gaussian processes, and scikit-learn's solutions."""

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern

from sonde import GaussianProcess
from sonde.data import Data
from sonde.models._gaussian_process import GPParams

DX, DU, QUERIES = 2, 1, 40
LENGTHSCALES = np.array([[0.7, 1.6, 1.1], [2.5, 0.5, 0.9]])
SIGNAL, NOISE = np.array([0.6, 1.8]), np.array([0.05, 0.11])

condition = jax.jit(lambda model, params, data: model.condition(params, data), static_argnums=0)
predict = jax.jit(jax.vmap(lambda posterior, x, u: posterior.predict(x, u), in_axes=(None, 0, 0)))
fit = jax.jit(lambda model, params, data, key: model.fit(params, data, data.count, key), static_argnums=0)


def parameters() -> GPParams:
    return GPParams(jnp.log(LENGTHSCALES), jnp.log(SIGNAL), jnp.log(NOISE))


def start_of(model: GaussianProcess, state_dim: int = DX, action_dim: int = DU) -> GPParams:
    return model.init(state_dim, action_dim, jax.random.key(0))


def data_of(z: np.ndarray, changes: np.ndarray, capacity: int | None = None, rng=None) -> Data:
    """Rows (x, u) and x' - x in a buffer whose unused part, if any, is filled with random numbers (zeros without `rng`)."""
    count, dx = changes.shape
    capacity = capacity or count
    rows = np.zeros((capacity, z.shape[1] + dx)) if rng is None else 5 * rng.normal(size=(capacity, z.shape[1] + dx))
    rows[:count] = np.concatenate([z, z[:, :dx] + changes], axis=1)
    states, actions, next_states = np.split(rows, [dx, z.shape[1]], axis=1)
    return Data(jnp.asarray(states), jnp.asarray(actions), jnp.asarray(next_states), jnp.asarray(count))


def problem(rng, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, smooth targets with noise, and queries at some of the inputs and elsewhere."""
    z = np.concatenate([rng.normal(size=(count, DX)), rng.uniform(-1, 1, (count, DU))], axis=1)
    changes = np.stack([np.sin(2 * z[:, 0]) + z[:, 2], z[:, 0] * z[:, 1] - z[:, 2] ** 2], axis=1)
    changes += NOISE * rng.normal(size=changes.shape)
    far = 2 * rng.normal(size=(QUERIES - QUERIES // 4, DX + DU))
    return z, changes, np.concatenate([z[rng.integers(0, count, QUERIES // 4)], far])


def reference_kernel(name: str, signal: float, lengthscales: np.ndarray):
    """scikit-learn's kernel of this name; the linear one takes inputs divided by the length-scales."""
    shape = {
        "rbf": lambda: RBF(lengthscales),
        "matern32": lambda: Matern(lengthscales, nu=1.5),
        "matern52": lambda: Matern(lengthscales, nu=2.5),
        "linear": lambda: DotProduct(sigma_0=1.0),
    }[name]()
    return ConstantKernel(signal**2) * shape


def reference_scale(name: str, lengthscales: np.ndarray):
    return lengthscales if name == "linear" else np.ones_like(lengthscales)


def reference_posterior(name: str, z: np.ndarray, changes: np.ndarray, queries: np.ndarray, hyper=None):
    """Mean and std of the change at the queries, one scikit-learn regressor per output."""
    means, stds = [], []
    for lengthscales, signal, noise, target in zip(*(hyper or (LENGTHSCALES, SIGNAL, NOISE)), changes.T, strict=True):
        scale = reference_scale(name, lengthscales)
        kernel = reference_kernel(name, signal, lengthscales)
        regressor = GaussianProcessRegressor(kernel, alpha=noise**2, optimizer=None).fit(z / scale, target)
        mean, std = regressor.predict(queries / scale, return_std=True)
        means.append(mean)
        stds.append(std)
    return np.stack(means, axis=1), np.stack(stds, axis=1)


def ours(model: GaussianProcess, params: GPParams, data: Data, queries: np.ndarray, dx: int = DX):
    """Mean of the change, epistemic and aleatoric std at the queries."""
    prediction = predict(condition(model, params, data), jnp.asarray(queries[:, :dx]), jnp.asarray(queries[:, dx:]))
    return (
        np.asarray(prediction.mean) - queries[:, :dx],
        np.asarray(prediction.epistemic_std),
        np.asarray(prediction.aleatoric_std),
    )


def log_posterior(model: GaussianProcess, params, z: np.ndarray, changes: np.ndarray) -> np.ndarray:
    """The objective of a fit, per output, by scikit-learn: marginal likelihood and Gaussian priors on the logarithms."""
    z, changes = ((rows - rows.mean(axis=0)) / rows.std(axis=0) for rows in (z, changes))
    values = []
    for log_scales, log_signal, log_noise, target in zip(
        *(np.asarray(a) for a in jax.tree.leaves(params)), changes.T, strict=True
    ):
        noise = np.sqrt(model.noise_floor**2 + np.exp(2 * log_noise))
        kernel = reference_kernel("rbf", np.exp(log_signal), np.exp(log_scales))
        if model.affine_std:
            kernel += ConstantKernel(model.affine_std**2) * DotProduct(sigma_0=1.0)
        regressor = GaussianProcessRegressor(kernel, alpha=noise**2, optimizer=None).fit(z, target)
        (scale, scale_spread), (signal, signal_spread) = model.lengthscale_prior, model.signal_prior
        off = np.append((log_scales - np.log(scale)) / scale_spread, (log_signal - np.log(signal)) / signal_spread)
        values.append(regressor.log_marginal_likelihood_value_ - 0.5 * np.sum(off**2))
    return np.array(values)
