"""Linear state feedback; needs only numpy and safetensors."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sonde._internal.errors import SondeError
from sonde.control._gain_file import check_arrays, load_arrays, save_arrays

FORMAT = "sonde-linear-feedback-1"
"""Format of a gain in a file."""


@dataclass(frozen=True)
class LinearFeedback:
    """The controller u = action - gain (x - state), limited to [-1, 1]; call it with states.

    The law is linear in the state itself. For a world that is studied in other coordinates (the pendulum's angle), the gain
    already contains their derivative at the operating point.
    """

    gain: np.ndarray
    """Gain K [du, dx]."""
    state: np.ndarray
    """State of the operating point [dx]."""
    action: np.ndarray
    """Action of the operating point [du]."""

    def __post_init__(self):
        for name in ("gain", "state", "action"):
            value = np.asarray(getattr(self, name), np.float64)
            if not np.isfinite(value).all():
                raise SondeError(f"LinearFeedback: {name} must be finite, got {value.tolist()}")
            object.__setattr__(self, name, value)
        expected = (*self.action.shape, *self.state.shape)
        if self.state.ndim != 1 or self.action.ndim != 1 or self.gain.shape != expected:
            raise SondeError(f"LinearFeedback: gain must have shape {list(expected)}, got {list(self.gain.shape)}")

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Choose an action.

        Args:
            x: State [dx].

        Returns:
            The action [du] in [-1, 1].
        """
        x = np.asarray(x, np.float64)
        if x.shape != self.state.shape:
            raise SondeError(f"LinearFeedback: the state must have shape {list(self.state.shape)}, got {list(x.shape)}")
        if not np.isfinite(x).all():
            raise SondeError("LinearFeedback: the state must be finite, got NaN or infinity; check the sensor")
        return np.clip(self.action - self.gain @ (x - self.state), -1.0, 1.0)

    def save(self, path: str | Path) -> None:
        """Write the controller to a file, whole or not at all.

        Args:
            path: A path that ends in .safetensors.
        """
        save_arrays(path, FORMAT, {"gain": self.gain, "state": self.state, "action": self.action})

    @classmethod
    def load(cls, path: str | Path) -> "LinearFeedback":
        """Read a controller that `save` wrote.

        Args:
            path: The file.
        """
        arrays = load_arrays(path, FORMAT)
        check_arrays(path, arrays, {"gain", "state", "action"})
        return cls(**arrays)
