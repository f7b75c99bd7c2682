"""beta: does the region hold what it promises, is it the smallest that does, and does it reach the planner."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF

from gp_reference import condition, data_of, parameters, problem
from sonde import Prediction, Explorer, GaussianProcess, Pendulum, ProbabilisticEnsemble, SondeError, rollout
from sonde._internal.lockstep import one_seed
from sonde.imagination import Mean, Optimistic, draw_noise
from sonde.models._prior import Prior
from sonde.runs._config import from_json, to_json
from sonde.runs._run import build_explorer
from sonde.theory import exact_information_gain, held_out_beta, mean_norm, rkhs_beta
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
def test_the_region_holds_functions_of_known_norm_everywhere(x64, noise):
    """In all of 200 x 3 cases; a function counts as missed if it leaves the region anywhere, at any time."""
    misses, betas = worst_misses(noise, 200, seed=1)
    assert np.mean((misses <= betas).all(axis=1)) >= 0.9
    assert (np.diff(betas, axis=1) > 0).all(), "more data, more information, wider in stds"
    # and it is no matter of course: with the noise alone, or with a std's usual factor of 2, it would not
    assert np.mean((misses <= 2.0).all(axis=1)) < 0.9


def test_the_norm_in_beta_cannot_be_smaller(x64):
    """Without noise in the data, the function that is hardest to see attains B stds."""
    rng = np.random.default_rng(2)
    x, at, noise, norm = rng.uniform(-1, 1, 6), np.array([0.35]), 1e-3, 3.0
    # what the data cannot see of a bump at that place
    weights = -np.linalg.solve(kernel(x, x) + noise**2 * np.eye(6), kernel(x, at)[:, 0])
    centres, weights = np.append(x, at), np.append(weights, 1.0)
    weights *= norm / np.sqrt(weights @ kernel(centres, centres) @ weights)
    regressor = GaussianProcessRegressor(RBF(0.3), alpha=noise**2, optimizer=None)
    regressor.fit(x[:, None], kernel(x, centres) @ weights)
    mean, std = regressor.predict(at[:, None], return_std=True)
    miss = abs((kernel(at, centres) @ weights - mean) / std)[0]
    bound = float(rkhs_beta(jnp.asarray(norm), jnp.asarray(5.0), 0.1, noise_ratio=0.0))
    assert bound == norm and 0.999 * norm < miss <= norm


def test_beta_by_hand(x64):
    beta = rkhs_beta(jnp.asarray([1.0, 4.0]), jnp.asarray([2.0, 7.0]), 0.05, 0.5)
    np.testing.assert_allclose(beta, [1 + 0.5 * np.sqrt(2 * (3 + np.log(20))), 4 + 0.5 * np.sqrt(2 * (8 + np.log(20)))])


def test_the_norm_of_the_mean(x64):
    """Against dense algebra; without noise it is at most the truth's, and grows towards it."""
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


# ---- the calibrated region ---------------------------------------------------------------------------------------------------


def test_held_out_beta_is_the_smallest_that_holds_the_share(x64):
    rng = np.random.default_rng(4)
    mean, std, truth = rng.normal(size=(200, 2)), rng.uniform(0.1, 3, (200, 2)), rng.normal(size=(200, 2))
    rows = rng.uniform(size=200) < 0.6
    prediction = Prediction(jnp.asarray(mean), jnp.asarray(std), jnp.asarray(std))
    for delta in (0.05, 0.1, 0.5):
        beta = np.asarray(held_out_beta(prediction, jnp.asarray(truth), jnp.asarray(rows), delta, 2.0))
        held = lambda width: np.mean(np.abs(truth - mean)[rows] <= width * std[rows], axis=0)
        assert (held(beta * (1 + 1e-12)) >= 1 - delta).all()
        assert (held(beta * (1 - 1e-9)) < 1 - delta).all()


def test_held_out_beta_without_held_out_rows(x64):
    prediction = Prediction(jnp.zeros((20, 2)), jnp.ones((20, 2)), jnp.ones((20, 2)))
    few = held_out_beta(prediction, jnp.ones((20, 2)), jnp.arange(20) < 9, 0.1, 1.7)
    np.testing.assert_array_equal(few, [1.7, 1.7])


# ---- in a run ----------------------------------------------------------------------------------------------------------------


def test_beta_of_the_belief_is_what_optimism_uses(x64):
    prediction = Prediction(jnp.zeros(2), jnp.asarray([1.0, 2.0]), jnp.ones(2), beta=jnp.asarray([3.0, 0.5]))
    draws = jax.tree.map(lambda leaf: leaf[0], draw_noise(jax.random.key(0), 1, 2))
    eta = jnp.asarray([1.0, -1.0])
    np.testing.assert_array_equal(Optimistic(beta=9.0).next_state(prediction, eta, draws), [3.0, -1.0])
    np.testing.assert_array_equal(Mean(beta=9.0).next_state(prediction, eta[:0], draws), [0.0, 0.0])


def expected_by_theory(explorer: Explorer, run: int) -> np.ndarray:
    points = np.concatenate([explorer.data.states, explorer.data.actions], axis=-1)[run, : explorer.transitions]
    information = exact_information_gain(Prior.of(one_seed(explorer.posterior, run)), points)
    return 1.5 + np.sqrt(2 * (information + 1 + np.log(3 / 0.3)))


def expected_by_held_out(explorer: Explorer, run: int) -> np.ndarray:
    params, data = one_seed((explorer.params, explorer.data), run)
    predict = jax.jit(lambda p, d: jax.vmap(explorer.model.condition(p, d.without(0.4)).predict)(d.states, d.actions))
    with jax.enable_x64(True):
        prediction, rows = predict(params, data), np.asarray(data.held_out(0.4))
    misses = np.abs(np.asarray(data.next_states) - np.asarray(prediction.mean)) / np.asarray(prediction.epistemic_std)
    return np.quantile(misses[rows], 0.7, axis=0, method="inverted_cdf")


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"confidence": "rkhs", "norm_bound": 1.5, "model": FIXED}, expected_by_theory),
        ({"confidence": "calibrated", "holdout": 0.4}, expected_by_held_out),
    ],
)
def test_a_beta_that_follows_the_data_is_right_and_compiles_once(rule, expected):
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, _, **__: compiled.append(event) if "backend_compile" in event else None
    )
    explorer = build_explorer(replace(TINY, horizon=13, rounds=4, seeds=2, delta=0.3, **rule))
    counts, betas = [], []
    for _ in range(4):
        explorer.tell(rollout(Pendulum(), explorer.ask(), 13))
        counts.append(len(compiled))
        betas.append(np.asarray(explorer.posterior.beta))
    assert counts[0] > 0 and counts[-1] == counts[0]
    assert not np.array_equal(betas[-1], betas[-2])
    for run in range(2):
        np.testing.assert_allclose(betas[-1][run], expected(explorer, run), rtol=1e-6)
    prediction = explorer.predict(np.asarray(explorer.data.states[:, 3]), np.zeros((2, 1)))
    np.testing.assert_array_equal(prediction.beta, betas[-1])


@pytest.mark.parametrize(
    "changes",
    [
        {"confidence": "rkhs", "delta": 0.05, "norm_bound": 3.0},
        {"confidence": "calibrated", "holdout": 0.2},
        {"model": replace(FIXED, input_scales=(1.0, 1.0, 8.0, 1.0), target_scales=(0.4, 0.4, 1.0))},
    ],
)
def test_configs_go_to_json_and_back(changes):
    config = replace(TINY, **changes)
    assert from_json(to_json(config), "here") == config
    assert "confidence" not in json.loads(to_json(TINY)), "what was recorded before stays as it is"
    whole = to_json(config).replace("3.0", "3").replace("8.0", "8")
    assert from_json(whole, "here") == config, "a whole number is a number"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"confidence": "total"}, "expected 'constant' or 'rkhs' or 'calibrated', got 'total'"),
        ({"delta": 0.0}, "delta must lie between 0 and 1, got 0.0"),
        ({"norm_bound": -1.0}, "norm_bound must be above 0, got -1.0"),
        ({"confidence": "calibrated"}, "needs measurements that no fit sees: set holdout to 0.2, say"),
        ({"confidence": "rkhs", "model": ProbabilisticEnsemble()}, "is for Gaussian processes, got ProbabilisticEnsemble"),
        ({"confidence": "rkhs", "holdout": 0.2, "calibrated": True}, "about the model's own stds: turn calibrated off"),
        ({"confidence": "rkhs", "capacity": 5000}, "takes up to 4000 measurements, got a capacity of 5000"),
        ({"model": {"input_scales": (1.0, 0.0)}}, r"input_scales\[1\] must be above 0, got 0.0"),
    ],
)
def test_what_cannot_work_is_refused(changes, message):
    entries = json.loads(to_json(TINY))
    model = changes.get("model", {})
    if isinstance(model, ProbabilisticEnsemble):
        entries["model"] = json.loads(to_json(replace(TINY, model=model)))["model"]
    else:
        entries["model"] |= model
    entries |= {name: value for name, value in changes.items() if name != "model"}
    with pytest.raises(SondeError, match=message):
        from_json(json.dumps(entries), "here")
