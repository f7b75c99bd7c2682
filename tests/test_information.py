"""Information gain, objectives and imaginations: Lemma 1 against numpy's log-determinants, and each formula by hand."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from sonde import GaussianProcess
from sonde.data import Data
from sonde.evaluation._metrics import realised_information_gain
from sonde.imagination import Mean, Optimistic, TrajectorySampling
from sonde.models import Posterior, Prediction
from sonde.models._calibration import LEVELS, calibration_error, coverage
from sonde.models._gaussian_process import GPParams
from sonde.objectives import Imagined, InformationGain, TaskReward, UncertaintySum, information_gain
from sonde.solvers import ControlProblem

CAPACITY, STEPS = 20, 12
LENGTHSCALES = np.array([[0.8, 1.5, 1.0], [2.0, 0.6, 0.7]])
SIGNAL, NOISE = np.array([0.5, 1.3]), np.array([0.05, 0.3])
MODEL = GaussianProcess(hyperparameters="fixed", rank=0)


def parameters() -> GPParams:
    return GPParams(jnp.log(LENGTHSCALES), jnp.log(SIGNAL), jnp.log(NOISE))


def random_data(rng, count: int) -> Data:
    states, next_states = rng.normal(size=(2, CAPACITY, 2))
    arrays = (jnp.asarray(a) for a in (states, rng.uniform(-1, 1, (CAPACITY, 1)), next_states))
    return Data(*arrays, jnp.asarray(count))


def covariance(j: int, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    difference = (a[:, None] - b[None]) / LENGTHSCALES[j]
    return SIGNAL[j] ** 2 * np.exp(-0.5 * np.sum(difference**2, axis=-1))


def mutual_information(seen: np.ndarray, points: np.ndarray) -> float:
    """I(f; y at points | y at seen) in nats: 1/2 log det(I + K / noise^2) with the posterior covariance K."""
    total = 0.0
    for j in range(2):
        k = covariance(j, points, points)
        if len(seen):
            cross = covariance(j, points, seen)
            k = k - cross @ np.linalg.solve(covariance(j, seen, seen) + NOISE[j] ** 2 * np.eye(len(seen)), cross.T)
        total += 0.5 * np.linalg.slogdet(np.eye(len(points)) + k / NOISE[j] ** 2)[1]
    return total


@eqx.filter_jit
def imagined_plan(data: Data, x, actions, key, imagination):
    posterior = MODEL.condition(parameters(), data)
    problem = ControlProblem(posterior, imagination, InformationGain(), 2, 1)
    controls = jnp.concatenate([actions, jax.random.uniform(key, (STEPS, problem.control_dim - 1), minval=-1)], axis=-1)
    return problem.imagine(x, controls, key), problem.rewards(x, controls[None], key)[0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("imagination", [Mean(), Optimistic(beta=2.0)])
def test_objective_is_an_upper_bound_on_the_mutual_information(x64, imagination):
    """Lemma 1 on 100 random trajectories for each imagination, after 0 to 20 earlier measurements."""
    rng = np.random.default_rng(1)
    slack = []
    for trial in range(100):
        data = random_data(rng, trial % (CAPACITY + 1))
        start, actions = rng.normal(size=2), rng.uniform(-1, 1, (STEPS, 1))
        imagined, rewards = imagined_plan(data, jnp.asarray(start), jnp.asarray(actions), jax.random.key(trial), imagination)
        seen = np.asarray(data.inputs())[: int(data.count)]
        points = np.concatenate([imagined.states[0], actions], axis=-1)
        exact = mutual_information(seen, points)
        assert exact > 0
        slack.append(float(rewards.sum()) / exact - 1)
        # equality for each point alone
        single = [mutual_information(seen, point[None]) for point in points]
        np.testing.assert_allclose(rewards, single, rtol=1e-8, atol=1e-12)
    assert min(slack) >= -1e-9
    assert max(slack) > 0.1, "correlated points must make the bound loose"


def test_gains_with_an_updated_posterior_sum_to_the_mutual_information(x64):
    """The chain rule: the posterior is updated after each point."""
    rng = np.random.default_rng(2)
    data = random_data(rng, 12)
    points = np.asarray(data.inputs())

    @jax.jit
    def gain(count):
        posterior = MODEL.condition(parameters(), Data(data.states, data.actions, data.next_states, count))
        return information_gain(posterior.predict(data.states[count], data.actions[count]))

    gains = sum(float(gain(jnp.asarray(count))) for count in range(5, 12))
    np.testing.assert_allclose(gains, mutual_information(points[:5], points[5:12]), rtol=1e-9)


def prediction_of(epistemic, aleatoric, mean=None) -> Prediction:
    epistemic = jnp.asarray(epistemic)
    return Prediction(
        jnp.zeros_like(epistemic) if mean is None else jnp.asarray(mean),
        epistemic,
        jnp.broadcast_to(jnp.asarray(aleatoric), epistemic.shape),
    )


def test_information_gain_is_the_closed_form(x64):
    gain = information_gain(prediction_of([0.3, 1.2], [0.1, 0.4]))
    np.testing.assert_allclose(gain, 0.5 * (np.log(1 + 9) + np.log(1 + 9)), rtol=1e-12)
    assert information_gain(prediction_of([0.0, 0.0], [0.1, 0.4])) == 0
    # small ratios are accurate: log(1 + r) ~ r
    np.testing.assert_allclose(information_gain(prediction_of([1e-9], [1.0])), 0.5e-18, rtol=1e-9)


def test_objectives_by_hand(x64):
    """Two particles, three steps, two dimensions."""
    rng = np.random.default_rng(3)
    epistemic, aleatoric = rng.uniform(0.1, 2, (2, 2, 3, 2))
    states, next_states = rng.normal(size=(2, 2, 3, 2))
    actions = rng.uniform(-1, 1, (3, 1))
    predictions = prediction_of(epistemic, aleatoric)
    imagined = Imagined(jnp.asarray(states), jnp.asarray(actions), jnp.asarray(next_states), predictions)
    gain, variance, task = np.zeros((3, 2, 3))
    for at in np.ndindex(2, 3):
        e, a, x, x_next = epistemic[at], aleatoric[at], states[at], next_states[at]
        gain[at] = sum(np.log(1 + (e[j] / a[j]) ** 2) for j in range(2)) / 2
        variance[at] = e[0] ** 2 + e[1] ** 2
        task[at] = x[0] * actions[at[1], 0] + x_next[1] ** 3
    np.testing.assert_allclose(InformationGain().rewards(imagined), gain, rtol=1e-12)
    np.testing.assert_allclose(UncertaintySum().rewards(imagined), variance, rtol=1e-12)
    reward = TaskReward(lambda x, u, x_next: x[0] * u[0] + x_next[1] ** 3)
    np.testing.assert_allclose(reward.rewards(imagined), task, rtol=1e-12)


@pytest.mark.slow
def test_realised_information_gain_uses_the_posterior_before_the_round(x64):
    rng = np.random.default_rng(4)
    data = [random_data(rng, count) for count in (6, 9)]
    both = jax.tree.map(lambda *leaves: jnp.stack(leaves), *data)
    posterior = jax.jit(jax.vmap(lambda d: MODEL.condition(parameters(), d)))(both)
    states, actions = rng.normal(size=(2, 5, 2)), rng.uniform(-1, 1, (2, 5, 1))
    realised = realised_information_gain(posterior, states, actions)
    for seed in range(2):
        seen = np.asarray(data[seed].inputs())[: int(data[seed].count)]
        points = np.concatenate([states[seed], actions[seed]], axis=-1)
        np.testing.assert_allclose(realised[seed], sum(mutual_information(seen, p[None]) for p in points), rtol=1e-9)


# ---- imaginations ------------------------------------------------------------------------------------------------------------

MEAN, EPISTEMIC, ALEATORIC = np.array([1.0, -2.0]), np.array([0.3, 0.05]), np.array([0.02, 0.4])


class Anywhere(Posterior):
    """Predicts the same next state everywhere."""

    def predict(self, x, u):
        return prediction_of(EPISTEMIC, ALEATORIC, MEAN)


def next_states(imagination, controls=(0.0,), draws=1):
    """The imagined state after one step, once per particle."""
    problem = ControlProblem(Anywhere(), replace(imagination, particles=draws), InformationGain(), 2, 1)
    imagine = jax.jit(lambda key: problem.imagine(jnp.zeros(2), jnp.asarray([controls]), key).next_states[:, 0])
    return np.asarray(imagine(jax.random.key(11)))


def assert_normal(samples, mean, std):
    count = len(samples)
    assert np.all(np.abs(samples.mean(axis=0) - mean) <= 5 * std / np.sqrt(count))
    np.testing.assert_allclose(samples.std(axis=0), std, rtol=5 / np.sqrt(2 * count))
    assert abs(np.corrcoef(samples.T)[0, 1]) < 5 / np.sqrt(count)
    kurtosis = np.mean(((samples - mean) / std) ** 4, axis=0)
    assert np.all(np.abs(kurtosis - 3) < 5 * np.sqrt(96 / count))


DRAWS = 40_000


def test_mean_imagines_the_mean(x64):
    np.testing.assert_array_equal(next_states(Mean(), draws=7), [MEAN])
    assert_normal(next_states(Mean(noise=True), draws=DRAWS), MEAN, ALEATORIC)


@pytest.mark.slow
@pytest.mark.parametrize("beta", [0.0, 1.0, 2.5])
def test_optimistic_imagines_the_state_that_eta_chooses(x64, beta):
    eta = np.array([0.7, -1.0])
    expected = MEAN + beta * EPISTEMIC * eta
    np.testing.assert_allclose(next_states(Optimistic(beta=beta), (0.3, *eta), draws=7), [expected], rtol=1e-12)
    assert_normal(next_states(Optimistic(beta=beta, noise=True), (0.3, *eta), draws=DRAWS), expected, ALEATORIC)


@pytest.mark.slow
def test_trajectory_sampling_draws_from_the_prediction(x64):
    assert_normal(next_states(TrajectorySampling(), draws=DRAWS), MEAN, EPISTEMIC)
    both = np.sqrt(EPISTEMIC**2 + ALEATORIC**2)
    assert_normal(next_states(TrajectorySampling(noise=True), draws=DRAWS), MEAN, both)


@pytest.mark.slow
@pytest.mark.parametrize("imagination", [TrajectorySampling(), TrajectorySampling(noise=True), Mean(noise=True)])
def test_draws_of_different_steps_are_independent(x64, imagination):
    problem = ControlProblem(Anywhere(), replace(imagination, particles=DRAWS), InformationGain(), 2, 1)
    states = eqx.filter_jit(problem.imagine)(jnp.zeros(2), jnp.zeros((2, 1)), jax.random.key(3)).next_states
    assert abs(np.corrcoef(states[:, 0, 0], states[:, 1, 0])[0, 1]) < 5 / np.sqrt(DRAWS)


# ---- calibration -------------------------------------------------------------------------------------------------------------


def calibration_when(claimed: float) -> float:
    """Error of predictions of `claimed` times the true std; half of the variance is epistemic, half aleatoric."""
    rng = np.random.default_rng(0)
    mean, std = rng.normal(size=(20_000, 2)), rng.uniform(0.1, 3, (20_000, 2))
    truth = mean + std * rng.normal(size=mean.shape)
    prediction = prediction_of(claimed * std / np.sqrt(2), claimed * std / np.sqrt(2), mean)
    return float(calibration_error(coverage(prediction, jnp.asarray(truth), jnp.ones(len(truth), bool))))


@pytest.mark.slow
def test_calibration_error_of_right_stds_is_zero(x64):
    assert calibration_when(1.0) < 0.005


@pytest.mark.parametrize("claimed", [0.3, 0.8, 1.5, 4.0])
def test_calibration_error_of_wrong_stds_agrees_with_scipy(x64, claimed):
    covered = 2 * norm.cdf(claimed * norm.ppf((1 + LEVELS) / 2)) - 1
    np.testing.assert_allclose(calibration_when(claimed), np.mean(np.abs(covered - LEVELS)), atol=0.005)


def test_calibration_error_is_at_most_one_half(x64):
    assert 0.498 < calibration_when(1e-4) <= 0.5
    assert 0.498 < calibration_when(1e4) <= 0.5
