"""Coloured noise: Gaussian sequences whose power falls with frequency as f^-exponent.

Planners draw power-law noise after Timmer and Koenig (1995) with the std of the package that public versions of iCEM use
(colorednoise, from 2.1 on): it is normalised by the components of all frequencies but zero, so that the constant component
adds to it and the std is above 1.
"""

import functools

import jax
import numpy as np
from jaxtyping import Array, Float, Key


@functools.lru_cache(maxsize=32)
def colouring(horizon: int, exponent: float) -> np.ndarray:
    """Matrix that turns white noise into coloured noise with unit variance at every step.

    It is the symmetric circulant matrix whose eigenvalues are the amplitudes f^(-exponent / 2); the constant component gets the
    amplitude of the lowest frequency. For the horizons of planners one matrix product is cheaper than an FFT.

    Args:
        horizon: Length of the sequences H.
        exponent: Power of the frequency with which the spectral power falls; 0 is white noise.

    Returns:
        The matrix B [H, H]: B z is coloured where z is white.
    """
    frequency = np.fft.fftfreq(horizon)
    frequency[0] = 1.0 / horizon
    amplitude = np.abs(frequency) ** (-exponent / 2)
    amplitude /= np.sqrt(np.mean(amplitude**2))
    first_column = np.fft.ifft(amplitude).real
    steps = np.arange(horizon)
    return first_column[(steps[:, None] - steps[None, :]) % horizon]


def published_std(horizon: int, exponent: float) -> float:
    """Std at every step of the noise that public versions of iCEM use.

    Its components have the amplitudes of `colouring`; it is divided by a std that leaves out frequency zero and, where the
    horizon is even, counts half of the power at the highest frequency.

    Args:
        horizon: Length of the sequences H. A single step, for which nothing is published, has unit variance.
        exponent: Power of the frequency with which the spectral power falls.
    """
    if horizon == 1:
        return 1.0
    frequency = np.fft.rfftfreq(horizon)[1:]
    power = frequency**-exponent
    highest = np.arange(1, len(power) + 1) == horizon / 2
    # each frequency but these two counts twice, for its cosine and its sine
    all_power = power[0] + np.sum(np.where(highest, 1.0, 2.0) * power)
    return float(np.sqrt(all_power / np.sum(np.where(highest, 0.5, 2.0) * power)))


def coloured_noise(key: Key[Array, ""], samples: int, horizon: int, dim: int, exponent: float) -> Float[Array, "P H dim"]:
    """Draw noise that is coloured over time and independent across samples and dimensions.

    Args:
        key: Randomness of the draw.
        samples: Number of sequences P.
        horizon: Steps of each sequence H.
        dim: Dimensions of each step.
        exponent: Power of the frequency with which the spectral power falls.

    Returns:
        Normal at each step, with mean 0 and std `published_std` [P, H, dim].
    """
    # single precision is enough for random numbers and twice as fast to draw
    white = jax.random.normal(key, (samples, dim, horizon), dtype="float32").astype(float)
    return (white @ (published_std(horizon, exponent) * colouring(horizon, exponent).T)).swapaxes(1, 2)
