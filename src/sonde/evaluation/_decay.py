"""How fast a metric falls over rounds: a power law, by least squares on logarithmic axes."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sonde._internal.errors import SondeError


class Decay(NamedTuple):
    """A fitted law: value = constant * episode^exponent, and the standard error of the exponent."""

    exponent: float
    constant: float
    error: float


def fit_decay(rounds: Sequence[int] | np.ndarray, values: Sequence[float] | np.ndarray) -> Decay:
    """The straight line through the values on logarithmic axes, by least squares."""
    n, measured = np.asarray(rounds, float), np.asarray(values, float)
    if n.shape != measured.shape or len(np.unique(n)) < 3 or not (n > 0).all() or not (measured > 0).all():
        raise SondeError(f"fit of a decay: expected positive values of three or more episodes, got {measured} at {n}")
    x, y = np.log(n), np.log(measured)
    slope, offset = np.polyfit(x, y, 1)
    residual = y - (slope * x + offset)
    spread = np.sum((x - x.mean()) ** 2)
    error = np.sqrt(np.sum(residual**2) / max(len(x) - 2, 1) / spread)
    return Decay(float(slope), float(np.exp(offset)), float(error))
