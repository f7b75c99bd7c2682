"""Coloured noise, measured with SciPy's periodogram."""

import jax
import numpy as np
import pytest
from scipy.signal import periodogram

from sonde._internal.coloured_noise import coloured_noise

HORIZON, SAMPLES, DIM = 100, 20_000, 2
EXPONENTS = [0.0, 0.25, 2.0, 3.5]
draw = jax.jit(coloured_noise, static_argnums=(1, 2, 3, 4))


@pytest.fixture(scope="module")
def drawn():
    # with the fast products of a GPU, samples would coincide
    with jax.default_matmul_precision("highest"):
        return {e: np.asarray(draw(jax.random.key(7), SAMPLES, HORIZON, DIM, e), dtype=np.float64) for e in EXPONENTS}


@pytest.mark.slow
@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("dim", range(DIM))
def test_power_falls_with_frequency_to_the_exponent(drawn, exponent, dim):
    frequency, power = periodogram(drawn[exponent][:, :, dim], detrend=False, return_onesided=False, axis=1)
    positive = frequency > 0
    slope, _ = np.polyfit(np.log(frequency[positive]), np.log(power.mean(axis=0)[positive]), 1)
    assert abs(-slope - exponent) <= max(0.1 * exponent, 0.05 if exponent == 0 else 0.0)


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_every_step_has_zero_mean_and_unit_variance(drawn, exponent):
    noise = drawn[exponent]
    five_sigma = 5 / np.sqrt(SAMPLES)
    assert np.abs(noise.mean(axis=0)).max() < five_sigma
    assert np.abs(noise.var(axis=0) - 1).max() < five_sigma * np.sqrt(2)


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_dimensions_and_samples_are_independent(drawn, exponent):
    first, second = drawn[exponent][:, :, 0], drawn[exponent][:, :, 1]
    # all pairs of steps, one of each dimension: [H, H] correlations, all zero
    assert np.abs(first.T @ second / SAMPLES).max() < 6 / np.sqrt(SAMPLES)
    # at each step, between neighbouring samples
    assert np.abs(np.mean(first[1:] * first[:-1], axis=0)).max() < 6 / np.sqrt(SAMPLES)


def test_samples_and_keys_differ(drawn):
    for noise in drawn.values():
        assert len(np.unique(noise[:, 0, 0])) > 0.99 * SAMPLES
    with jax.default_matmul_precision("highest"):
        other = draw(jax.random.key(8), SAMPLES, HORIZON, DIM, 2.0)
    assert np.abs(np.corrcoef(other[:, 50, 0], drawn[2.0][:, 50, 0])[0, 1]) < 6 / np.sqrt(SAMPLES)


def test_noise_is_gaussian_at_every_exponent(drawn):
    for noise in drawn.values():
        kurtosis = np.mean(noise[:, 30, 1] ** 4) / np.mean(noise[:, 30, 1] ** 2) ** 2
        assert abs(kurtosis - 3) < 6 * np.sqrt(24 / SAMPLES)


@pytest.mark.slow
@pytest.mark.parametrize("horizon", [1, 2, 3])
def test_shortest_horizons_have_unit_variance(horizon):
    noise = np.asarray(draw(jax.random.key(0), SAMPLES, horizon, 1, 2.0))
    assert noise.shape == (SAMPLES, horizon, 1)
    assert np.abs(noise.var(axis=0) - 1).max() < 5 * np.sqrt(2 / SAMPLES)
