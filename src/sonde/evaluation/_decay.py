"""How fast a metric falls over rounds: a power law, fitted by least squares on logarithmic axes."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sonde._internal.errors import SondeError


class PowerLaw(NamedTuple):
    """A fitted power law: value = constant * round^exponent."""

    exponent: float
    """Power of the round; negative if the metric falls."""
    constant: float
    """Value of the fit at round 1."""
    error: float
    """Standard error of the exponent."""


def fit_power_law(rounds: Sequence[int] | np.ndarray, values: Sequence[float] | np.ndarray) -> PowerLaw:
    """Fit a power law to a metric.

    Args:
        rounds: Numbers of the rounds [n], from 1; three or more different ones.
        values: Positive values of the metric [n].

    Returns:
        The least-squares line through the logarithms of both.
    """
    n, measured = np.asarray(rounds, float), np.asarray(values, float)
    if n.shape != measured.shape or len(np.unique(n)) < 3 or not (n > 0).all() or not (measured > 0).all():
        raise SondeError(f"fit of a decay: expected positive values of three or more rounds, got {measured} at {n}")
    x, y = np.log(n), np.log(measured)
    slope, offset = np.polyfit(x, y, 1)
    residual = y - (slope * x + offset)
    spread = np.sum((x - x.mean()) ** 2)
    error = np.sqrt(np.sum(residual**2) / max(len(x) - 2, 1) / spread)
    return PowerLaw(float(slope), float(np.exp(offset)), float(error))
