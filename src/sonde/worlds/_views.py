"""Other coordinates for states: two numbers for figures, or as few as the system has degrees of freedom."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Array


@dataclass(frozen=True)
class Plane:
    """A two-dimensional view (a, b) of states for figures; its functions are vectorised over numpy arrays."""

    x_label: str
    """Label of the x axis."""
    y_label: str
    """Label of the y axis."""
    from_state: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
    """states [..., dx] -> (a [...], b [...])."""
    x_range: tuple[float, float] | None = None
    """Limits of the x axis; None: the range that was visited."""
    y_range: tuple[float, float] | None = None
    """Limits of the y axis; None: the range that was visited."""
    to_state: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None
    """(a [...], b [...]) -> states [..., dx]; None where two numbers do not determine a state."""
    x_ticks: tuple[tuple[float, str], ...] = ()
    """Positions and labels of ticks on the x axis; empty: chosen automatically."""


@dataclass(frozen=True)
class Coordinates:
    """Minimal coordinates q of a system whose states x are redundant, such as an angle given as cosine and sine.

    The functions take one point and are written in JAX.
    """

    names: tuple[str, ...]
    """Name of each coordinate."""
    to_state: Callable[[Array], Array]
    """q -> x."""
    from_state: Callable[[Array], Array]
    """x -> q; an x that no q maps to is projected first."""
    periods: tuple[float, ...]
    """Period of each coordinate; infinity for those that are not angles."""


def plane_of_first_two(state_names: tuple[str, ...]) -> Plane | None:
    """The first two state dimensions, for a system of which no more is known; None if it has fewer.

    Args:
        state_names: Names of the states.
    """
    if len(state_names) < 2:
        return None

    def first_two(states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return states[..., 0], states[..., 1]

    return Plane(state_names[0], state_names[1], first_two)
