"""Beta rules: whether the region contains what it should, whether it could be smaller, and whether planners use it."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF

from gp_reference import condition, data_of, parameters, problem
from sonde import Confidence, Explorer, GaussianProcess, ProbabilisticEnsemble, RunConfig, SondeError, rollout
from sonde.imagination import Mean, Optimistic, draw_noise
from sonde.models import HeldOutBeta, Prediction, RKHSBeta
from sonde.runs._codec import from_json, to_json
from sonde.runs._run import build_explorer
from sonde.theory import Prior, exact_information_gain, held_out_beta, mean_norm, one_seed, rkhs_beta
from sonde.worlds import Pendulum
from tiny import TINY

FIXED = GaussianProcess(hyperparameters="fixed", rank=0)


# ---- the theory's region -----------------------------------------------------------------------------------------------------


def kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.exp(-0.5 * (a[:, None] - b[None]) ** 2 / 0.3**2)


def worst_misses(noise: float, functions: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """For each function of norm 3: the most stds that a grid point is away from the mean, and beta, at 5, 20 and 60 points."""
    rng = np.random.default_rng(seed)
    norm, grid = 3.0, np.linspace(-1.2, 1.2, 201)
    misses, betas = [], []
    for _ in range(functions):
        centres, weights = rng.uniform(-1, 1, 12), rng.normal(size=12)
        weights *= norm / np.sqrt(weights @ kernel(centres, centres) @ weights)
        x = rng.uniform(-1, 1, 60)
        y = kernel(x, centres) @ weights + noise * rng.normal(size=60)
        for n in (5, 20, 60):
            k = kernel(x[:n], x[:n])
            inverse, cross = np.linalg.inv(k + noise**2 * np.eye(n)), kernel(grid, x[:n])
            std = np.sqrt(1 - np.sum((cross @ inverse) * cross, axis=1))
            error = np.abs(cross @ inverse @ y[:n] - kernel(grid, centres) @ weights)
            information = 0.5 * np.linalg.slogdet(np.eye(n) + k / noise**2)[1]
            misses.append(np.max(error / std))
            betas.append(float(rkhs_beta(jnp.asarray(norm), jnp.asarray(information), 0.1)))
    return np.reshape(misses, (functions, 3)), np.reshape(betas, (functions, 3))


@pytest.mark.parametrize("noise", [0.3, 0.05])
def test_rkhs_region_contains_functions_of_known_norm_everywhere(x64, noise):
    """200 functions at 3 sizes of data; a function counts as missed if it leaves the region anywhere, at any size."""
    misses, betas = worst_misses(noise, 200, seed=1)
    assert np.mean((misses <= betas).all(axis=1)) >= 0.9
    assert (np.diff(betas, axis=1) > 0).all(), "more data give more information and a larger beta"
    # a beta of 2 would not be enough
    assert np.mean((misses <= 2.0).all(axis=1)) < 0.9


def test_norm_in_rkhs_beta_cannot_be_smaller(x64):
    """Without noise in the data there is a function of norm B that is B stds away from the mean."""
    rng = np.random.default_rng(2)
    x, at, noise, norm = rng.uniform(-1, 1, 6), np.array([0.35]), 1e-3, 3.0
    # the part of a bump at that place that the data do not determine
    weights = -np.linalg.solve(kernel(x, x) + noise**2 * np.eye(6), kernel(x, at)[:, 0])
    centres, weights = np.append(x, at), np.append(weights, 1.0)
    weights *= norm / np.sqrt(weights @ kernel(centres, centres) @ weights)
    regressor = GaussianProcessRegressor(RBF(0.3), alpha=noise**2, optimizer=None)
    regressor.fit(x[:, None], kernel(x, centres) @ weights)
    mean, std = regressor.predict(at[:, None], return_std=True)
    miss = abs((kernel(at, centres) @ weights - mean) / std)[0]
    bound = float(rkhs_beta(jnp.asarray(norm), jnp.asarray(5.0), 0.1, noise_ratio=0.0))
    assert bound == norm and 0.999 * norm < miss <= norm


def test_rkhs_beta_by_hand(x64):
    beta = rkhs_beta(jnp.asarray([1.0, 4.0]), jnp.asarray([2.0, 7.0]), 0.05, 0.5)
    np.testing.assert_allclose(beta, [1 + 0.5 * np.sqrt(2 * (3 + np.log(20))), 4 + 0.5 * np.sqrt(2 * (8 + np.log(20)))])


@pytest.mark.slow
def test_norm_of_the_mean_agrees_with_dense_algebra_and_approaches_the_truth(x64):
    """Without noise it is at most the norm of the truth."""
    rng = np.random.default_rng(3)
    z, changes, _ = problem(rng, 30)
    norms = mean_norm(condition(FIXED, parameters(), data_of(z, changes, 40, rng)))
    hyper = parameters()
    for j in range(2):
        scales, signal, noise = (np.exp(np.asarray(p[j])) for p in (hyper.log_lengthscales, hyper.log_signal, hyper.log_noise))
        k = signal**2 * RBF(scales)(z)
        alpha = np.linalg.solve(k + noise**2 * np.eye(30), changes[:, j])
        np.testing.assert_allclose(norms[j], np.sqrt(alpha @ k @ alpha), rtol=1e-8)

    centres, weights = rng.uniform(-1, 1, (8, 3)), rng.normal(size=8)
    truth = np.sqrt(weights @ RBF(1.0)(centres) @ weights)
    estimates = []
    for count in (5, 20, 80):
        z = rng.uniform(-1, 1, (count, 3))
        changes = np.repeat((RBF(1.0)(z, centres) @ weights)[:, None], 2, axis=1)
        start = FIXED.init(2, 1, jax.random.key(0))
        estimates.append(float(mean_norm(condition(FIXED, start, data_of(z, changes)))[0]))
    assert estimates[0] < estimates[1] < estimates[2] <= truth
    assert estimates[2] > 0.5 * truth


# ---- the region by held-out measurements -------------------------------------------------------------------------------------


def test_held_out_beta_is_the_smallest_with_the_wanted_coverage(x64):
    rng = np.random.default_rng(4)
    mean, std, truth = rng.normal(size=(200, 2)), rng.uniform(0.1, 3, (200, 2)), rng.normal(size=(200, 2))
    rows = rng.uniform(size=200) < 0.6
    prediction = Prediction(jnp.asarray(mean), jnp.asarray(std), jnp.asarray(std))
    for delta in (0.05, 0.1, 0.5):
        beta = np.asarray(held_out_beta(prediction, jnp.asarray(truth), jnp.asarray(rows), delta, 2.0))
        held = lambda width: np.mean(np.abs(truth - mean)[rows] <= width * std[rows], axis=0)
        assert (held(beta * (1 + 1e-12)) >= 1 - delta).all()
        assert (held(beta * (1 - 1e-9)) < 1 - delta).all()


def test_held_out_beta_of_few_rows_is_the_initial_one(x64):
    prediction = Prediction(jnp.zeros((20, 2)), jnp.ones((20, 2)), jnp.ones((20, 2)))
    few = held_out_beta(prediction, jnp.ones((20, 2)), jnp.arange(20) < 9, 0.1, 1.7)
    np.testing.assert_array_equal(few, [1.7, 1.7])


# ---- in an explorer ----------------------------------------------------------------------------------------------------------


def test_optimistic_imagination_uses_the_beta_of_the_prediction(x64):
    prediction = Prediction(jnp.zeros(2), jnp.asarray([1.0, 2.0]), jnp.ones(2), beta=jnp.asarray([3.0, 0.5]))
    draws = jax.tree.map(lambda leaf: leaf[0], draw_noise(jax.random.key(0), 1, 2))
    eta = jnp.asarray([1.0, -1.0])
    np.testing.assert_array_equal(Optimistic(beta=9.0).next_state(prediction, eta, draws), [3.0, -1.0])
    np.testing.assert_array_equal(Mean().next_state(prediction, eta[:0], draws), [0.0, 0.0])


def expected_by_theory(explorer: Explorer, seed: int) -> np.ndarray:
    points = np.concatenate([explorer.data.states, explorer.data.actions], axis=-1)[seed, : explorer.transitions]
    information = exact_information_gain(Prior.of(one_seed(explorer.posterior, seed)), points)
    return 1.5 + np.sqrt(2 * (information + 1 + np.log(3 / 0.3)))


def expected_by_held_out(explorer: Explorer, seed: int) -> np.ndarray:
    params, data = one_seed((explorer.params, explorer.data), seed)
    predict = jax.jit(lambda p, d: jax.vmap(explorer.model.condition(p, d.without(0.4)).predict)(d.states, d.actions))
    with jax.enable_x64(True):
        prediction, rows = predict(params, data), np.asarray(data.held_out(0.4))
    misses = np.abs(np.asarray(data.next_states) - np.asarray(prediction.mean)) / np.asarray(prediction.epistemic_std)
    return np.quantile(misses[rows], 0.7, axis=0, method="inverted_cdf")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"confidence": Confidence(beta_rule=RKHSBeta(delta=0.3, norm_bound=1.5)), "model": FIXED}, expected_by_theory),
        ({"confidence": Confidence(holdout=0.4, beta_rule=HeldOutBeta(delta=0.3))}, expected_by_held_out),
    ],
    ids=["rkhs", "held-out"],
)
def test_explorer_updates_beta_after_each_round_and_compiles_once(settings, expected):
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, _, **__: compiled.append(event) if "backend_compile" in event else None
    )
    explorer = build_explorer(replace(TINY, horizon=13, rounds=4, seeds=2, **settings))
    counts, betas = [], []
    for _ in range(4):
        explorer.tell(rollout(Pendulum(), explorer.ask(), 13))
        counts.append(len(compiled))
        betas.append(np.asarray(explorer.posterior.beta))
    assert counts[0] > 0 and counts[-1] == counts[0]
    assert not np.array_equal(betas[-1], betas[-2])
    for seed in range(2):
        np.testing.assert_allclose(betas[-1][seed], expected(explorer, seed), rtol=1e-6)
    prediction = explorer.predict(np.asarray(explorer.data.states[:, 3]), np.zeros((2, 1)))
    np.testing.assert_array_equal(prediction.beta, betas[-1])


@pytest.mark.parametrize(
    "changes",
    [
        {"confidence": Confidence(beta_rule=RKHSBeta(delta=0.05, norm_bound=3.0))},
        {"confidence": Confidence(holdout=0.2, beta_rule=HeldOutBeta())},
        {"model": replace(FIXED, input_scales=(1.0, 1.0, 8.0, 1.0), target_scales=(0.4, 0.4, 1.0))},
    ],
)
def test_confidence_settings_are_read_back_from_json(changes):
    config = replace(TINY, **changes)
    assert from_json(RunConfig, to_json(config), "here") == config
    assert json.loads(to_json(TINY))["confidence"]["beta_rule"] is None, "beta is a constant by default"
    integers = to_json(config).replace("3.0", "3").replace("8.0", "8")
    assert from_json(RunConfig, integers, "here") == config, "an integer is a number"


RKHS = {"class": "sonde.models:RKHSBeta", "delta": 0.1, "norm_bound": None}
HELD_OUT = {"class": "sonde.models:HeldOutBeta", "delta": 0.1, "initial": 2.0}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"beta_rule": "total"}, "confidence: beta_rule: expected BetaRule or None, got 'total'"),
        ({"beta_rule": RKHS | {"delta": 0.0}}, "delta must lie between 0 and 1, got 0.0"),
        ({"beta_rule": HELD_OUT | {"delta": 1.0}}, "delta must lie between 0 and 1, got 1.0"),
        ({"beta_rule": HELD_OUT | {"initial": 0.0}}, "initial must be above 0, got 0.0"),
        ({"beta_rule": RKHS | {"norm_bound": -1.0}}, "norm_bound must be above 0, got -1.0"),
        ({"beta_rule": HELD_OUT}, "needs measurements that no fit sees: set holdout, for example to 0.2"),
        ({"beta_rule": RKHS, "model": ProbabilisticEnsemble()}, "is for Gaussian processes, got ProbabilisticEnsemble"),
        ({"beta_rule": RKHS, "holdout": 0.2, "recalibrate": True}, "applies to the model's own stds: turn recalibrate off"),
        ({"beta_rule": RKHS, "capacity": 5000}, "takes up to 4000 measurements, got a capacity of 5000"),
        ({"model": {"input_scales": (1.0, 0.0)}}, r"input_scales\[1\] must be above 0, got 0.0"),
    ],
)
def test_invalid_settings_are_rejected(changes, message):
    entries, changes = json.loads(to_json(TINY)), dict(changes)
    model = changes.pop("model", {})
    if isinstance(model, ProbabilisticEnsemble):
        entries["model"] = json.loads(to_json(replace(TINY, model=model)))["model"]
    else:
        entries["model"] |= model
    for name, value in changes.items():
        (entries if name == "capacity" else entries["confidence"])[name] = value
    with pytest.raises(SondeError, match=message):
        from_json(RunConfig, json.dumps(entries), "here")
