"""Information gains against numpy's log-determinants, Lemma 1, the greedy maximum against all choices, and growth rates."""

import itertools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gp_reference import condition, data_of, parameters, problem, reference_kernel, reference_scale
from sonde import GaussianProcess, ProbabilisticEnsemble, SondeError
from sonde.evaluation._metrics import realised_information_gain
from sonde.models import KERNELS, RBF, Kernel, Linear, Matern32, Matern52
from sonde.models._normaliser import Normaliser
from sonde.theory import (
    GREEDY_FACTOR,
    Prior,
    bound_exponent,
    exact_information_gain,
    greedy_information,
    greedy_model_complexity,
    information_bound,
    information_exponent,
    information_growth,
    model_complexity,
    one_seed,
)

DZ = 3
LENGTHSCALES = np.array([[0.7, 1.6, 1.1], [2.5, 0.5, 0.9]])
SIGNAL, NOISE = np.array([0.6, 1.8]), np.array([0.05, 0.11])
SHIFT, SCALE = np.array([0.3, -1.0, 0.0]), np.array([2.0, 0.5, 1.0])


def prior_of(kernel: str = "rbf") -> Prior:
    with jax.enable_x64(True):
        units = Normaliser(jnp.asarray(SHIFT), jnp.asarray(SCALE))
        return Prior(units, *(jnp.asarray(array) for array in (LENGTHSCALES, SIGNAL, NOISE)), KERNELS[kernel])


def covariance(kernel: str, output: int, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """scikit-learn's kernel over the noise variance."""
    scale = SCALE * reference_scale(kernel, LENGTHSCALES[output])
    reference = reference_kernel(kernel, SIGNAL[output], LENGTHSCALES[output])
    return reference((a - SHIFT) / scale, (b - SHIFT) / scale) / NOISE[output] ** 2


def information(kernel: str, output: int, points: np.ndarray) -> float:
    return 0.5 * np.linalg.slogdet(np.eye(len(points)) + covariance(kernel, output, points, points))[1]


def posterior_covariance(kernel: str, output: int, points: np.ndarray, given: np.ndarray) -> np.ndarray:
    cross = covariance(kernel, output, points, given)
    known = covariance(kernel, output, given, given) + np.eye(len(given))
    return covariance(kernel, output, points, points) - cross @ np.linalg.solve(known, cross.T)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["rbf", "matern32", "matern52", "linear"])
def test_exact_gain_and_bound_agree_with_log_determinants(kernel):
    rng = np.random.default_rng(0)
    points, given = rng.normal(size=(17, DZ)), rng.normal(size=(9, DZ))
    prior = prior_of(kernel)
    alone, after = exact_information_gain(prior, points), exact_information_gain(prior, points, given)
    bound = information_bound(prior, points, given)
    for j in range(2):
        k = posterior_covariance(kernel, j, points, given)
        np.testing.assert_allclose(alone[j], information(kernel, j, points), rtol=1e-9)
        np.testing.assert_allclose(after[j], 0.5 * np.linalg.slogdet(np.eye(17) + k)[1], rtol=1e-7)
        np.testing.assert_allclose(bound[j], 0.5 * np.log1p(np.diag(k)).sum(), rtol=1e-7)


@pytest.mark.slow
def test_lemma_1_holds_on_a_thousand_trajectories():
    """Smooth random walks of 12 points after 10 earlier measurements, far apart or close together."""
    rng = np.random.default_rng(1)
    prior, slack = prior_of(), []
    for _ in range(1000):
        walk = np.cumsum(10 ** rng.uniform(-2, 1) * rng.normal(size=(12, DZ)), axis=0)
        given = rng.normal(size=(10, DZ))
        exact, bound = exact_information_gain(prior, walk, given), information_bound(prior, walk, given)
        assert (exact >= 0).all()
        slack.append(bound / exact - 1)
    assert np.min(slack) >= -1e-9
    assert np.max(slack) > 1, "the bound must be loose for points close together"


@pytest.mark.slow
def test_lemma_1_is_an_equality_for_one_point_and_for_uncorrelated_points():
    rng = np.random.default_rng(2)
    prior, given = prior_of(), rng.normal(size=(10, DZ))
    one = rng.normal(size=(1, DZ))
    np.testing.assert_allclose(exact_information_gain(prior, one, given), information_bound(prior, one, given), rtol=1e-9)
    far = 100.0 * np.arange(8)[:, None] * np.ones(DZ)
    np.testing.assert_allclose(exact_information_gain(prior, far), information_bound(prior, far), rtol=1e-9)
    np.testing.assert_allclose(information_bound(prior, far), 8 * 0.5 * np.log1p((SIGNAL / NOISE) ** 2), rtol=1e-9)


@pytest.mark.slow
def test_realised_information_gain_is_the_bound_of_lemma_1(x64):
    """The metric is computed from the posterior, the bound from its prior."""
    rng = np.random.default_rng(3)
    z, changes, queries = problem(rng, 20)
    model = GaussianProcess(hyperparameters="fixed", rank=0)
    posterior = jax.tree.map(lambda leaf: leaf[None], condition(model, parameters(), data_of(z, changes, 30, rng)))
    realised = realised_information_gain(posterior, queries[None, :, :2], queries[None, :, 2:])
    bound = information_bound(Prior.of(one_seed(posterior)), queries, z)
    np.testing.assert_allclose(realised[0], bound.sum(), rtol=1e-7)


@pytest.mark.slow
def test_model_scales_are_units_of_the_prior(x64):
    """A model with scales has the same prior as one without, on data in units of the scales."""
    rng = np.random.default_rng(4)
    z, changes, queries = problem(rng, 20)
    scales, spread = np.array([2.0, 0.5, 3.0]), np.array([0.2, 5.0])
    model = GaussianProcess(hyperparameters="fixed", rank=0, input_scales=(2.0, 0.5, 3.0), target_scales=(0.2, 5.0))
    plain = GaussianProcess(hyperparameters="fixed", rank=0)
    given = Prior.of(condition(model, model.init(2, 1, jax.random.key(0)), data_of(z, changes)))
    unit = Prior.of(condition(plain, plain.init(2, 1, jax.random.key(0)), data_of(z / scales, changes / spread)))
    np.testing.assert_allclose(exact_information_gain(given, queries), exact_information_gain(unit, queries / scales))
    np.testing.assert_allclose(given.noise_std, spread * np.asarray(unit.noise_std))


@pytest.mark.parametrize("scales", [{"input_scales": (1.0, 2.0)}, {"target_scales": (1.0, 1.0, 1.0)}])
def test_wrong_number_of_scales_is_rejected(scales):
    with pytest.raises(SondeError, match=r"must be [23] numbers \(or none\)"):
        GaussianProcess(**scales).init(2, 1, jax.random.key(0))


def brute_force(kernel: str, output: int, candidates: np.ndarray, count: int) -> float:
    """The largest gain of any `count` candidates, with repetition."""
    choices = itertools.combinations_with_replacement(range(len(candidates)), count)
    return max(information(kernel, output, candidates[list(choice)]) for choice in choices)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["rbf", "matern52", "linear"])
def test_greedy_gain_is_close_to_the_maximum(kernel):
    rng = np.random.default_rng(5)
    ratios = []
    for _ in range(20):
        candidates = rng.normal(size=(7, DZ))
        greedy = greedy_information(prior_of(kernel), candidates, 4)
        for j, n in itertools.product(range(2), range(1, 5)):
            best = brute_force(kernel, j, candidates, n)
            ratios.append(greedy[n - 1, j] / best)
            assert greedy[n - 1, j] >= GREEDY_FACTOR * best
            if n == 1:
                np.testing.assert_allclose(greedy[0, j], best, rtol=1e-9)
    assert max(ratios) <= 1 + 1e-9, "no choice is better than the best"


def test_greedy_gain_is_the_maximum_for_uncorrelated_points():
    """Also with more measurements than points, so that some are repeated."""
    candidates = 100.0 * np.arange(4)[:, None] * np.ones(DZ)
    greedy = greedy_information(prior_of(), candidates, 6)
    for j, n in itertools.product(range(2), range(1, 7)):
        np.testing.assert_allclose(greedy[n - 1, j], brute_force("rbf", j, candidates, n), rtol=1e-7)


def test_greedy_gains_agree_with_log_determinants_of_greedily_chosen_points():
    """The rank-one updates against points chosen by brute force."""
    rng = np.random.default_rng(6)
    candidates, chosen = rng.normal(size=(30, DZ)), []
    for _ in range(25):
        gains = [information("rbf", 1, candidates[[*chosen, i]]) for i in range(30)]
        chosen.append(int(np.argmax(gains)))
    expected = [information("rbf", 1, candidates[chosen[: n + 1]]) for n in range(25)]
    np.testing.assert_allclose(greedy_information(prior_of(), candidates, 25)[:, 1], expected, rtol=1e-8)


@pytest.mark.slow
def test_model_complexity_by_hand():
    rng = np.random.default_rng(7)
    rounds = list(rng.normal(size=(3, 5, DZ)))
    expected = sum(NOISE[j] ** 2 * np.trace(covariance("rbf", j, rounds[0], rounds[0])) for j in range(2))
    for n in (1, 2):
        given = np.concatenate(rounds[:n])
        expected += sum(NOISE[j] ** 2 * np.trace(posterior_covariance("rbf", j, rounds[n], given)) for j in range(2))
    np.testing.assert_allclose(model_complexity(prior_of(), rounds), expected, rtol=1e-9)


@pytest.mark.slow
def test_greedy_model_complexity_is_that_of_its_rounds_and_above_others():
    rng = np.random.default_rng(8)
    prior, candidates = prior_of(), rng.normal(size=(40, DZ))
    greedy = greedy_model_complexity(prior, candidates, 4, 6)
    # the same rounds, one at a time: all steps where the norm of the std is largest
    rounds = []
    for _ in range(4):
        given = np.concatenate([*rounds, np.zeros((0, DZ))])
        squared = sum(NOISE[j] ** 2 * np.diag(posterior_covariance("rbf", j, candidates, given)) for j in range(2))
        rounds.append(np.repeat(candidates[[np.argmax(squared)]], 6, axis=0))
        np.testing.assert_allclose(greedy[len(rounds) - 1], model_complexity(prior, rounds), rtol=1e-8)
    for _ in range(10):
        assert model_complexity(prior, list(rng.choice(candidates, (4, 6)))) < greedy[-1]


def test_invalid_input_is_rejected(x64):
    with pytest.raises(SondeError, match=r"points must be finite rows \(x, u\) of shape \[n, 3\], got shape \[4, 2\]"):
        exact_information_gain(prior_of(), np.zeros((4, 2)))
    with pytest.raises(SondeError, match="finite"):
        greedy_information(prior_of(), np.full((4, DZ), np.nan), 3)
    with pytest.raises(SondeError, match="count must be a whole number above 0"):
        greedy_information(prior_of(), np.zeros((4, DZ)), 0)
    stacked = jax.tree.map(lambda leaf: leaf[None], prior_of())
    with pytest.raises(SondeError, match="expected the prior of one seed, got that of several"):
        information_bound(stacked, np.zeros((4, DZ)))
    with pytest.raises(SondeError, match="at least one round"):
        model_complexity(prior_of(), [])
    ensemble = ProbabilisticEnsemble(members=2, layers=1, width=4)
    params = ensemble.init(2, 1, jax.random.key(0))
    with pytest.raises(SondeError, match="exist for Gaussian processes that are not recalibrated, got EnsemblePosterior"):
        Prior.of(ensemble.condition(params, data_of(np.zeros((1, 3)), np.zeros((1, 2)))))


# ---- growth rates ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Unknown(Kernel):
    """A kernel that does not say how fast the information gain grows."""

    power: float = 2.0

    def cross(self, a, b):
        return jnp.exp(-jnp.sum(jnp.abs(a[:, None] - b[None]) ** self.power, axis=-1))

    def diagonal(self, a):
        return jnp.ones(a.shape[0], a.dtype)


def test_growth_rates_are_those_of_the_papers_table():
    n = np.array([10.0, 1000.0])
    np.testing.assert_allclose(information_growth(RBF(), n, 4), np.log(n) ** 5)
    np.testing.assert_allclose(information_growth(Linear(), n, 4), 4 * np.log(n))
    assert information_exponent(RBF(), 4) == information_exponent(Linear(), 4) == 0
    for kernel, nu in ((Matern32(), 1.5), (Matern52(), 2.5)):
        power = 4 / (2 * nu + 4)
        assert information_exponent(kernel, 4) == power
        np.testing.assert_allclose(information_growth(kernel, n, 4), n**power * np.log(n) ** (1 - power))
        assert bound_exponent(kernel, 4) == power - 0.5 and bound_exponent(kernel, 4, constant_beta=True) == power / 2 - 0.5


@pytest.mark.parametrize(
    "rate", [information_exponent, bound_exponent, lambda kernel, dim: information_growth(kernel, 10.0, dim)]
)
def test_rates_of_a_kernel_that_does_not_know_its_growth_are_rejected(rate):
    """Before, such a kernel counted as one whose information gain grows logarithmically."""
    with pytest.raises(SondeError, match=r"under Unknown\(power=2.0\) grows, .*; implement its information_exponent"):
        rate(Unknown(), 4)
