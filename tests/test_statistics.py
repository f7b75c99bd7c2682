"""Statistics over seeds, against scipy and closed forms."""

import numpy as np
import pytest
from scipy import stats

from sonde.evaluation._statistics import (
    Curve,
    Sample,
    best_so_far,
    curve_interval,
    estimate,
    iqm,
    mean_and_band,
    on_common_rounds,
    paired,
    share_interval,
    stratified_interval,
)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def sample(values, seeds=None) -> Sample:
    return Sample(np.arange(len(values)) if seeds is None else np.array(seeds), np.array(values, float))


def test_best_so_far_keeps_the_best():
    np.testing.assert_array_equal(best_so_far(np.array([[1.0, 3, 2, 4], [-1, -2, -3, 0]])), [[1, 3, 3, 4], [-1, -1, -1, 0]])


def test_band_is_two_standard_errors():
    values = normal(7, 4)
    mean, band = mean_and_band(values)
    np.testing.assert_allclose(mean, values.mean(0))
    np.testing.assert_allclose(band, 2 * stats.sem(values))


def test_single_seed_has_a_mean_and_no_band():
    mean, band = mean_and_band(np.array([[1.0, 2.0]]))
    assert mean.tolist() == [1, 2] and np.isnan(band).all()
    assert np.isnan(curve_interval(np.array([[1.0, 2.0]]))).all()
    assert np.isnan(stratified_interval([np.array([1.0, 2.0]), np.array([3.0])])).all()


@pytest.mark.parametrize("seeds", [1, 3, 4, 10])
def test_interquartile_mean_leaves_out_the_outer_quarters(seeds):
    values = normal(seeds, 5)
    cut = seeds // 4
    np.testing.assert_allclose(iqm(values), np.sort(values, axis=0)[cut : seeds - cut].mean(axis=0))
    np.testing.assert_allclose(iqm(values.T, axis=1), iqm(values))


def test_interquartile_mean_does_not_hide_nan():
    assert np.isnan(iqm(np.array([1.0, 2, 3, np.nan])))


@pytest.mark.parametrize("statistic", [np.mean, iqm, np.median])
def test_interval_of_one_group_is_near_scipys(statistic):
    values = normal(30)
    scipys = stats.bootstrap(
        (values,), statistic, method="percentile", n_resamples=5000, axis=0, random_state=np.random.default_rng(1)
    ).confidence_interval
    np.testing.assert_allclose(stratified_interval([values], statistic), scipys, atol=0.04)
    np.testing.assert_array_equal(stratified_interval([values], statistic), curve_interval(values[:, None], statistic)[:, 0])


def test_strata_are_resampled_separately():
    """The spread between tasks is no uncertainty: constant groups, far apart, leave none, and add none to that of others."""
    values = normal(12)
    assert stratified_interval([np.full(5, 100.0), np.full(7, -90.0)], np.mean) == pytest.approx((5, 5))  # whatever their sizes
    low, high = stratified_interval([values, np.full(12, 100.0)], np.mean)
    alone = np.array(stratified_interval([values], np.mean))
    assert [low, high] == pytest.approx(50 + alone / 2, abs=0.02)


def test_strata_are_independent():
    """The mean of two groups varies by 1 / sqrt 2 of what one varies; with the same resamples for both, as much as one."""
    values = normal(40)
    width = lambda groups: np.diff(stratified_interval(groups, np.mean)).item()
    assert width([values, values]) / width([values]) == pytest.approx(0.5**0.5, abs=0.04)


def test_rounds_share_the_resampled_seeds():
    values = normal(6, 1)
    low, high = curve_interval(np.hstack([values, values + 5, -values]), np.mean)
    assert low[1] == pytest.approx(low[0] + 5) and high[1] == pytest.approx(high[0] + 5)
    assert (low[2], high[2]) == pytest.approx((-high[0], -low[0]))


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "expected"), [(5, 0.83), (10, 0.90), (20, 0.93)])
def test_coverage_is_as_documented(seeds, expected):
    """Each column is an experiment of its own; 1500 of them know the coverage up to two standard errors of 0.02."""
    low, high = curve_interval(normal(seeds, 1500), np.mean)
    assert np.mean((low < 0) & (high > 0)) == pytest.approx(expected, abs=0.025)


def test_paired_matches_seeds_by_number():
    difference = paired(sample([5, 7, 9, 11], [3, 1, 2, 8]), sample([1, 1, 2, 50], [2, 3, 1, 9]))
    # seed 1: 7 - 2, seed 2: 9 - 1, seed 3: 5 - 1
    assert difference.seeds == 3 and difference.mean == pytest.approx((5 + 8 + 4) / 3)
    assert difference.bootstrap == pytest.approx((4, 8))


@pytest.mark.parametrize("seeds", [2, 3, 10, 13, 14, 30])
def test_p_values_are_scipys(seeds):
    first, second = normal(seeds), 0.3 + normal(seeds, seed=1)
    difference = paired(sample(first), sample(second))
    assert difference.p_t == pytest.approx(stats.ttest_rel(first, second).pvalue)
    assert difference.p_wilcoxon == pytest.approx(stats.wilcoxon(first, second, method="exact").pvalue)
    assert difference == paired(sample(first), sample(second))


def test_wilcoxon_with_ties_counts_all_signs():
    """Differences 1, 1, 2 and a zero: of the 8 assignments of signs only the two with equal signs are as far from even."""
    assert estimate(np.array([1.0, 1, 2, 0])).p_wilcoxon == pytest.approx(2 / 8)


@pytest.mark.parametrize(("value", "p_t", "p_wilcoxon"), [(0.0, 1.0, 1.0), (0.5, 0.0, 2 / 2**6)])
def test_equal_differences_have_exact_p_values(value, p_t, p_wilcoxon):
    answer = estimate(np.full(6, value))
    assert answer.bootstrap == answer.interval() == (value, value) and (answer.p_t, answer.p_wilcoxon) == (p_t, p_wilcoxon)


@pytest.mark.parametrize(("seeds", "confidence"), [(2, 0.95), (5, 0.95), (10, 0.999)])
def test_the_interval_is_students(seeds, confidence):
    values = 3 + normal(seeds)
    found = stats.ttest_1samp(values, 0).confidence_interval(confidence)
    assert estimate(values).interval(confidence) == pytest.approx((found.low, found.high))


@pytest.mark.parametrize("values", [[], [1.0], [1.0, np.nan, 2.0], [np.inf, -np.inf, 1.0]])
def test_too_few_or_infinite_values_have_no_interval(values):
    answer = estimate(np.array(values, float))
    assert np.isnan([*answer.interval(), *answer.bootstrap, answer.p_t, answer.p_wilcoxon]).all() and answer.seeds == len(
        values
    )
    assert answer.mean == 1 if len(values) == 1 else np.isnan(answer.mean)


@pytest.mark.parametrize(("successes", "trials"), [(0, 10), (3, 10), (10, 10), (1, 1)])
def test_share_interval_is_clopper_and_pearsons(successes, trials):
    low = stats.beta.ppf(0.025, successes, trials - successes + 1) if successes else 0.0
    high = stats.beta.ppf(0.975, successes + 1, trials - successes) if successes < trials else 1.0
    assert share_interval(successes, trials) == pytest.approx((low, high))


def test_curves_are_compared_on_common_rounds():
    long = Curve(np.array([0]), np.array([1, 2, 3, 4]), np.array([[1.0, 2, 3, 4]]))
    sparse = Curve(np.array([0]), np.array([2, 4, 6]), np.array([[20.0, 40, 60]]))
    first, second = on_common_rounds([long, sparse])
    assert first.rounds.tolist() == [2, 4] and first.values.tolist() == [[2, 4]] and second.values.tolist() == [[20, 40]]
