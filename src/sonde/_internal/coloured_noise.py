"""Coloured noise: Gaussian sequences whose power falls with frequency as f^-exponent."""

import functools

import jax
import numpy as np
from jaxtyping import Array, Float, Key


@functools.lru_cache(maxsize=32)
def colouring(horizon: int, exponent: float) -> np.ndarray:
    """The matrix B [H, H] that turns white noise z into coloured noise B z with unit variance at every step.

    B is the symmetric circulant matrix whose eigenvalues are the wanted amplitudes f^(-exponent / 2); the constant component
    gets the amplitude of the lowest frequency. For the horizons of planners one product with B is cheaper than an FFT.
    """
    frequency = np.fft.fftfreq(horizon)
    frequency[0] = 1.0 / horizon
    amplitude = np.abs(frequency) ** (-exponent / 2)
    amplitude /= np.sqrt(np.mean(amplitude**2))
    first_column = np.fft.ifft(amplitude).real
    steps = np.arange(horizon)
    return first_column[(steps[:, None] - steps[None, :]) % horizon]


def coloured_noise(key: Key[Array, ""], samples: int, horizon: int, dim: int, exponent: float) -> Float[Array, "P H dim"]:
    """Coloured over time; independent across samples and dimensions."""
    # single precision is ample for random numbers and twice as fast to draw
    white = jax.random.normal(key, (samples, dim, horizon), dtype="float32").astype(float)
    return (white @ colouring(horizon, exponent).T).swapaxes(1, 2)
