"""Coloured noise: Gaussian sequences whose power falls with frequency as f^-exponent."""

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


def coloured_noise(key: Key[Array, ""], samples: int, horizon: int, dim: int, exponent: float) -> Float[Array, "P H dim"]:
    """Draw noise that is coloured over time and independent across samples and dimensions.

    Args:
        key: Randomness of the draw.
        samples: Number of sequences P.
        horizon: Steps of each sequence H.
        dim: Dimensions of each step.
        exponent: Power of the frequency with which the spectral power falls.

    Returns:
        Standard normal at each step [P, H, dim].
    """
    # single precision is enough for random numbers and twice as fast to draw
    white = jax.random.normal(key, (samples, dim, horizon), dtype="float32").astype(float)
    return (white @ colouring(horizon, exponent).T).swapaxes(1, 2)
