"""Coloured noise, against the published definition in NumPy and measured with SciPy's periodogram."""

import jax
import numpy as np
import pytest
from scipy.signal import periodogram

from sonde._internal.coloured_noise import coloured_noise, published_std

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


def published(exponent: float, samples: int, horizon: int, rng) -> np.ndarray:
    """Power-law noise as iCEM takes it (Timmer and Koenig 1995): random Fourier components, then the transform and a
    theoretical std, in which the constant component does not count."""
    frequency = np.fft.rfftfreq(horizon)
    frequency[0] = frequency[1]
    amplitude = frequency ** (-exponent / 2)
    counted = amplitude[1:].copy()
    counted[-1] *= 0.5 if horizon % 2 == 0 else 1.0
    real, imaginary = rng.normal(size=(2, samples, len(amplitude))) * amplitude
    only_real = [0, -1] if horizon % 2 == 0 else [0]
    real[:, only_real] *= np.sqrt(2)
    imaginary[:, only_real] = 0
    return np.fft.irfft(real + 1j * imaginary, n=horizon) / (2 * np.sqrt(np.sum(counted**2)) / horizon)


@pytest.mark.slow
@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("horizon", [2, 3, 15, 20, 30])
def test_std_and_spectrum_are_as_published(exponent, horizon):
    """Covariances of all pairs of steps; the noise is stationary, so they hold the std and the spectrum."""
    count = 200_000
    expected = published(exponent, count, horizon, np.random.default_rng(0))
    with jax.default_matmul_precision("highest"):
        noise = np.asarray(draw(jax.random.key(3), count, horizon, 1, exponent), dtype=np.float64)[:, :, 0]
    variance = expected.var()
    np.testing.assert_allclose(noise.T @ noise / count, expected.T @ expected / count, atol=0.02 * variance)
    np.testing.assert_allclose(noise.std(), published_std(horizon, exponent), rtol=0.01)
    power = lambda sequences: np.mean(np.abs(np.fft.rfft(sequences)) ** 2, axis=0)
    np.testing.assert_allclose(power(noise), power(expected), rtol=0.03)


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_every_step_has_zero_mean_and_the_published_std(drawn, exponent):
    noise = drawn[exponent] / published_std(HORIZON, exponent)
    five_sigma = 5 / np.sqrt(SAMPLES)
    assert np.abs(noise.mean(axis=0)).max() < five_sigma
    assert np.abs(noise.var(axis=0) - 1).max() < five_sigma * np.sqrt(2)


def test_published_std_is_above_one_by_the_constant_component():
    """The horizons and exponents of the presets; values measured on 100,000 draws of the package that iCEM's authors use."""
    stds = [published_std(*setting) for setting in ((20, 0.25), (15, 0.25), (10, 0.25), (30, 3.5), (35, 2.0))]
    np.testing.assert_allclose(stds, [1.0467, 1.0452, 1.0902, 1.1979, 1.1459], atol=0.005)


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


def test_a_single_step_has_unit_variance():
    noise = np.asarray(draw(jax.random.key(0), SAMPLES, 1, 1, 2.0))
    assert noise.shape == (SAMPLES, 1, 1)
    assert np.abs(noise.var(axis=0) - 1).max() < 5 * np.sqrt(2 / SAMPLES)
