"""A learned system at one state and action, an equilibrium or not."""

from dataclasses import dataclass

import numpy as np

from sonde.analysis._linear import Linearisation


@dataclass(frozen=True)
class OperatingPoint:
    """A point, where the predicted mean goes from there in a step, and the linearisation around it."""

    point: np.ndarray
    """The point in coordinates [d]."""
    state: np.ndarray
    """The point as a state [dx]."""
    action: np.ndarray
    """The action [du]."""
    drift: np.ndarray
    """How far a step moves the point, in coordinates [d]; zeros at an equilibrium."""
    drift_std: np.ndarray
    """Epistemic std of the drift [d]."""
    linearisation: Linearisation
    """Linearisation at the point, in coordinates: a deviation q becomes drift + A q + B u in a step."""

    @property
    def next_point(self) -> np.ndarray:
        """The point after a step, in coordinates [d]."""
        return self.point + self.drift
