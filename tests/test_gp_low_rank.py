"""The low-rank posterior against the exact one."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import cholesky, solve_triangular
from scipy.spatial.distance import cdist

from gp_reference import condition, data_of, fit, ours, parameters, predict, problem, reference_posterior, start_of
from sonde import GaussianProcess
from sonde._internal.precision import double_precision
from sonde.models import KERNELS
from sonde.models._gaussian_process import GPParams
from sonde.worlds import Pendulum


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_low_rank_with_enough_centres_is_exact(x64, kernel):
    """More centres than data: neither the surplus ones nor the unused rows may have an effect."""
    rng = np.random.default_rng(5)
    z, changes, queries = problem(rng, 50)
    model = GaussianProcess(kernel=KERNELS[kernel], hyperparameters="fixed", rank=60)
    mean, std, _ = ours(model, parameters(), data_of(z, changes, 100, rng), queries)
    wanted_mean, wanted_std = reference_posterior(kernel, z, changes, queries)
    np.testing.assert_allclose(mean, wanted_mean, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(std, wanted_std, rtol=1e-6)


@pytest.mark.slow
def test_queries_agree_on_all_devices(x64, cpu):
    """The forms for CPUs and for accelerators agree, for numbers of centres that equal a compiled size and that do not."""
    rng = np.random.default_rng(7)
    z, changes, queries = problem(rng, 150)
    model = GaussianProcess(hyperparameters="fixed", lengthscale=0.3, rank=140, tolerance=0.5)
    start = start_of(model)
    smooth = replace(start, log_lengthscales=start.log_lengthscales.at[1].set(jnp.log(3.0)))
    for params, count in ((start, 64), (start, 100), (start, 150), (smooth, 150)):
        posterior = condition(model, params, data_of(z[:count], changes[:count], 150))
        used, points = posterior.centres.used, posterior.inputs(jnp.asarray(queries))
        assert (used > 20).all() and np.allclose(posterior.centres.factor, np.triu(posterior.centres.factor), atol=0)
        short = posterior.truncate()
        by_size = jax.vmap(posterior._query)(points)  # as a CPU does
        every = jax.vmap(lambda z, p=posterior: jax.vmap(p._query_all, (None, 0, 0))(z, p.lengthscales, p.centres))(points)
        np.testing.assert_allclose(by_size, every, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(jax.vmap(short._query_truncated)(points), every, rtol=1e-9, atol=1e-9)
        for output, size in enumerate(short.sizes):  # as an accelerator does
            each = jax.vmap(lambda z, p=short, of=output, size=size: p._query_first(size, 4, z, of))(points)
            np.testing.assert_allclose(each, [values[:, output] for values in every], rtol=1e-9, atol=1e-9)
        assert short.sizes == tuple(64 if number <= 64 else 128 if number <= 128 else 140 for number in used)
        assert short.centres.points.shape[1] == max(short.sizes)
    assert short.sizes == (140, 64)  # in the last case: each output has as many as it needs
    assert posterior.specialise() is posterior, "a CPU keeps the branches"


@pytest.mark.slow
def test_differentiable_posterior_keeps_double_precision():
    """Also if it is made outside of the functions that run in double precision."""
    z, changes, _ = problem(np.random.default_rng(7), 30)
    model = GaussianProcess(hyperparameters="fixed", rank=100)
    with jax.enable_x64(True):
        posterior = condition(model, start_of(model), data_of(z, changes, 100))
    short = posterior.differentiable()
    assert short.sizes == (64, 64) and short.centres.points.shape == (2, 64, 3)
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(short.centres)} == {"float64", "int64", "bool"}


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["rbf", "matern52", "linear"])
def test_gradients_of_the_mean_agree_with_finite_differences(x64, kernel):
    """Forward mode through one step and reverse mode through two, against differences of scikit-learn's means."""
    z, changes, queries = problem(np.random.default_rng(8), 80)
    exact = GaussianProcess(kernel=KERNELS[kernel], hyperparameters="fixed", rank=0)
    posterior = condition(exact, parameters(), data_of(z, changes)).differentiable()
    step = lambda at: jnp.concatenate([posterior.predict(at[:2], at[2:]).mean, at[2:]])

    def wanted_step(at):
        return np.concatenate([at[:, :2] + reference_posterior(kernel, z, changes, at)[0], at[:, 2:]], axis=1)

    def differences(function):
        perturbations = 1e-5 * np.eye(3)
        return (
            np.stack(
                [function(queries + perturbation) - function(queries - perturbation) for perturbation in perturbations], axis=-1
            )
            / 2e-5
        )

    np.testing.assert_allclose(jax.vmap(jax.jacfwd(step))(queries), differences(wanted_step), rtol=1e-5, atol=1e-5)
    found = jax.vmap(jax.jacrev(lambda at: step(step(at))))(queries)
    wanted = differences(lambda at: wanted_step(wanted_step(at)))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def pendulum():
    """Stds and means in units of the signal std, by place ("visited", "elsewhere") and tolerance ("exact": by numpy)."""
    return _pendulum()


def measured(world: Pendulum) -> np.ndarray:
    """1,000 transitions (x, u, x' - x): half of the rollouts have random torques, half swing up or rotate."""
    rng, rollouts = np.random.default_rng(0), 10
    dynamics = jax.jit(jax.vmap(world.dynamics))
    x, torque = np.tile([-1.0, 0.0, 0.0], (rollouts, 1)), np.zeros(rollouts)
    level, hold = rng.uniform(-1, 2, rollouts), rng.integers(1, 20, rollouts)
    rows = []
    for step in range(100):
        torque = np.where(step % hold == 0, rng.uniform(-1, 1, rollouts), torque)
        energy = x[:, 2] ** 2 / 60 + (x[:, 0] - 1) / 2
        pump = np.sign(level - energy) * np.where(x[:, 2] >= 0, 1, -1)
        u = np.where(np.arange(rollouts) % 2 == 0, np.clip(pump + 0.5 * torque, -1, 1), torque)[:, None]
        x_next = np.asarray(dynamics(jnp.asarray(x), jnp.asarray(u)))
        rows.append(np.concatenate([x, u, x_next - x], axis=1))
        x = x_next
    return np.concatenate(rows)


def exact(z: np.ndarray, y: np.ndarray, queries: np.ndarray, lengthscales, ratio) -> tuple[np.ndarray, np.ndarray]:
    """The posterior mean of normalised targets and the posterior std over the signal std, one output per column."""
    z, queries = ((rows - z.mean(axis=0)) / z.std(axis=0) for rows in (z, queries))
    y = (y - y.mean(axis=0)) / y.std(axis=0)
    means, stds = [], []
    for scales, share, target in zip(lengthscales, ratio, y.T, strict=True):
        kernel = lambda a, b, scales=scales: np.exp(-0.5 * cdist(a / scales, b / scales, "sqeuclidean"))
        factor = cholesky(kernel(z, z) + share * np.eye(len(z)), lower=True)
        explained = solve_triangular(factor, kernel(z, queries), lower=True)
        means.append(solve_triangular(factor, target, lower=True) @ explained)
        stds.append(np.sqrt(np.maximum(1 - np.sum(explained**2, axis=0), 0)))
    return np.stack(means, axis=1), np.stack(stds, axis=1)


# result of two fits of the default model to all 1,000 points, which take too long for a test
THOROUGH = (
    np.log([[3.51, 2.85, 1.1, 11.76], [2.95, 3.64, 1.06, 11.68], [9.76, 1.5, 0.23, 4.81]]),
    np.log([1.271, 1.244, 1.421]),
    np.log([0.001, 0.001, 0.001]),
)
FITS, WHERE = ["fitted to a few, little noise", "fitted to all"], ["visited", "elsewhere"]
DEFAULT, COARSE = GaussianProcess().tolerance, 3.0


@double_precision
def _pendulum():
    rows, rng = measured(Pendulum()), np.random.default_rng(1)
    data = data_of(rows[:, :4], rows[:, 4:])
    little_noise = GaussianProcess(noise_floor=0.002, fit_points=200)
    params = start_of(little_noise, 3, 1)
    for round_number in range(2):
        params = fit(little_noise, params, data, jax.random.key(round_number))
    fitted = [(little_noise, params), (GaussianProcess(), GPParams(*(jnp.asarray(a) for a in THOROUGH)))]
    theta, speed, u = rng.uniform(-1, 1, (3, 1000)) * np.array([[np.pi], [8.0], [1.0]])
    points = {"visited": rows[:, :4], "elsewhere": np.stack([np.cos(theta), np.sin(theta), speed, u], axis=1)}
    found = {}
    for how, (model, hyper) in zip(FITS, fitted, strict=True):
        for tolerance in (COARSE, DEFAULT):
            posterior = condition(replace(model, tolerance=tolerance), hyper, data)
            signal = np.asarray(posterior.targets.scale * posterior.signal_std)
            for where, z in points.items():
                prediction = predict(posterior, jnp.asarray(z[:, :3]), jnp.asarray(z[:, 3:]))
                found[how, where, tolerance] = np.asarray(prediction.epistemic_std) / signal
                found[how, where, "mean", tolerance] = (
                    np.asarray(prediction.mean) - z[:, :3] - rows[:, 4:].mean(axis=0)
                ) / signal
            found[how, "centres", tolerance] = np.asarray(posterior.centres.used)
        ratio = np.asarray(posterior.noise_std / posterior.signal_std) ** 2
        for where, z in points.items():
            mean, std = exact(rows[:, :4], rows[:, 4:], z, np.asarray(posterior.lengthscales), ratio)
            found[how, where, "mean", "exact"] = mean / np.asarray(posterior.signal_std)
            found[how, where, "exact"] = std
    return found


@pytest.mark.slow
@pytest.mark.parametrize("how", FITS)
def test_pendulum_data_leave_some_states_uncertain(pendulum, how):
    """Otherwise the tests below would compare zeros."""
    assert pendulum[how, "elsewhere", "exact"].max() > 0.1 and np.median(pendulum[how, "visited", "exact"]) < 0.01


@pytest.mark.parametrize("how", FITS)
@pytest.mark.parametrize("where", WHERE)
def test_low_rank_std_is_close_to_the_exact_one(pendulum, how, where):
    error = np.abs(pendulum[how, where, DEFAULT] - pendulum[how, where, "exact"])
    assert error.max() < 1e-3, f"largest error in units of the signal std, per output: {error.max(axis=0)}"


@pytest.mark.parametrize("how", FITS)
@pytest.mark.parametrize("where", WHERE)
def test_low_rank_mean_is_close_to_the_exact_one(pendulum, how, where):
    """In units of the predicted std."""
    error = np.abs(pendulum[how, where, "mean", DEFAULT] - pendulum[how, where, "mean", "exact"])
    in_stds = (error / pendulum[how, where, "exact"]).max(axis=0)
    assert in_stds.max() < 0.1, f"largest error in stds, per output: {in_stds}"


@pytest.mark.parametrize("how", FITS)
def test_smaller_tolerance_gives_more_centres_and_accuracy(pendulum, how):
    error = {t: np.abs(pendulum[how, "elsewhere", t] - pendulum[how, "elsewhere", "exact"]).max() for t in (COARSE, DEFAULT)}
    assert error[DEFAULT] < 0.2 * error[COARSE]
    fewer, more = pendulum[how, "centres", COARSE], pendulum[how, "centres", DEFAULT]
    assert (fewer < more).all() and (more < 1000).all()


@pytest.mark.slow
def test_low_rank_posterior_of_20000_points_is_accurate(x64):
    rng = np.random.default_rng(1)
    z = rng.uniform(-1, 1, (20_000, 2))
    truth = lambda z: np.sin(3 * z[:, :1]) * np.cos(2 * z[:, 1:])
    data = data_of(z, truth(z) + 0.05 * rng.normal(size=(len(z), 1)))
    model = GaussianProcess(hyperparameters="fixed", lengthscale=0.5, noise_std=0.05, rank=128)
    queries = rng.uniform(-0.9, 0.9, (200, 2))
    mean, std, _ = ours(model, start_of(model, 1, 1), data, queries, dx=1)
    assert np.isfinite(mean).all() and np.isfinite(std).all()
    # noise averages out over the many neighbours of a query: the error is far below it, and as large as the std
    error = mean - truth(queries)
    assert np.sqrt(np.mean(error**2)) < 0.006 and std.max() < 0.01
    assert 0.5 < np.sqrt(np.mean((error / std) ** 2)) < 1.5
