"""Parts in a file of one's own, as a user would write them, for tests of configs."""

from dataclasses import dataclass

import numpy as np

from sonde.evaluation import Metric, MetricSpec
from sonde.solvers import ICEM


@dataclass(frozen=True)
class MySolver(ICEM):
    """iCEM with a tuple of two numbers and a name."""

    window: tuple[int, float] = (3, 0.5)
    note: str | None = None


@dataclass(frozen=True)
class LargestAction(Metric):
    """The largest action of a round; `count` numbers per seed, where 1 is right."""

    scale: float = 1.0
    count: int = 1
    defined: bool = True

    @property
    def spec(self) -> MetricSpec:
        return MetricSpec("largest_action", "Largest action", "share of the limit", "Largest action of the round.")

    def compute(self, result):
        largest = self.scale * np.abs(result.trajectory.actions).max(axis=(1, 2))
        return np.repeat(largest if self.defined else np.nan * largest, self.count)


def function(x, u, x_next):
    """A reward, which a config cannot hold."""
    return x_next[0]
