"""Linear-quadratic regulators for a learned system, around an equilibrium or any other point.

    rest = system.equilibria()[0]
    regulator = lqr(system, rest)
    print(regulator.gain, regulator.promise)
    u = regulator.feedback(x)

A gain is designed in the system's coordinates, where a deviation q becomes drift + A q + B u in a step, for the cost
sum of q' Q q + u' R u.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import solve_discrete_are

from sonde._internal.errors import SondeError
from sonde._internal.precision import double_precision
from sonde.analysis._linear import UNIT_TOLERANCE, Linearisation
from sonde.analysis._plausible import Promise, plausible
from sonde.analysis._point import OperatingPoint
from sonde.analysis._system import Equilibrium, LearnedSystem
from sonde.control import LinearFeedback
from sonde.worlds import Coordinates

HELD_TOLERANCE = 1e-6
"""Relative error up to which a linear system counts as held in place."""

Numbers = Sequence[Any] | np.ndarray


@dataclass(frozen=True)
class Weights:
    """Weights of a quadratic cost q' Q q + u' R u, per step."""

    states: np.ndarray
    """Q [d, d], of deviations in coordinates."""
    actions: np.ndarray
    """R [du, du], of deviations of the action."""

    @classmethod
    def of(cls, states: Numbers, actions: Numbers) -> "Weights":
        """Weights from diagonals or matrices.

        Args:
            states: Q [d, d], or its diagonal [d].
            actions: R [du, du], or its diagonal [du].
        """
        return cls(_weight("states", states, definite=False), _weight("actions", actions, definite=True))

    @classmethod
    def by_range(cls, system: LearnedSystem) -> "Weights":
        """Bryson's rule: a deviation by half of the visited range costs as much as an action at its limit.

        Args:
            system: The system; its `spread` is the visited range.
        """
        return cls(np.diag((system.spread / 2) ** -2.0), np.eye(system.world.action_dim))


def _weight(name: str, given: Numbers, definite: bool) -> np.ndarray:
    """Check a weight matrix."""
    weight = np.asarray(given, np.float64)
    weight = np.diag(weight) if weight.ndim == 1 else weight
    kind = "positive definite" if definite else "positive semi-definite"
    square = weight.ndim == 2 and weight.shape[0] == weight.shape[1] and np.isfinite(weight).all()
    if square and np.allclose(weight, weight.T):
        least, most = np.linalg.eigvalsh(weight)[[0, -1]]
        if least > 0 if definite else least >= -1e-12 * max(most, 0.0):
            return (weight + weight.T) / 2
    raise SondeError(f"lqr: the weights of {name} must be a diagonal, or a symmetric {kind} matrix, got {weight.tolist()}")


@dataclass(frozen=True)
class Regulator:
    """A gain for the feedback u = u* - K (q - q*) around a point, and what it promises."""

    place: OperatingPoint | Equilibrium
    """The point that it was designed at."""
    coordinates: Coordinates
    """Coordinates of the system."""
    weights: Weights
    """Weights of the cost."""
    gain: np.ndarray
    """Gain K [du, d], in coordinates."""
    cost: np.ndarray
    """Cost matrix P [d, d]: a deviation q of the mean system costs q' P q from now on."""
    promise: Promise
    """The share of all plausible systems that it stabilises."""

    @property
    def linearisation(self) -> Linearisation:
        """The system that it was designed for, without feedback."""
        return self.place.linearisation

    @property
    def closed_loop(self) -> Linearisation:
        """The system with feedback, whose new action is added to the feedback's."""
        return self.linearisation.closed(self.gain)

    @property
    def state_gain(self) -> np.ndarray:
        """Gain [du, dx] for deviations of the state, at the point."""
        return self._state_gain(self.place.state)

    @double_precision
    def _state_gain(self, state: np.ndarray) -> np.ndarray:
        return self.gain @ np.asarray(jax.jacfwd(self.coordinates.from_state)(jnp.asarray(state)))

    @property
    def target(self) -> tuple[np.ndarray, np.ndarray]:
        """Where the regulator holds the system: point [d] and action [du].

        At an equilibrium it is that one. Elsewhere the system would drift away, so it is the equilibrium of the linearised
        system whose deviation from the point, and whose action's, have the least cost.
        """
        deviation, extra = _held(self.linearisation, _drift(self.place), self.weights)
        action = self.place.action + extra
        if (np.abs(action) > 1 + 1e-9).any():
            raise SondeError(
                f"lqr: no action holds the system near {np.round(self.place.point, 4).tolist()}: it would take "
                f"{np.round(action, 3).tolist()}, and actions lie in [-1, 1]; choose a point nearer to an equilibrium"
            )
        return self.place.point + deviation, np.clip(action, -1.0, 1.0)

    @property
    @double_precision
    def feedback(self) -> LinearFeedback:
        """The controller, which needs only numpy: it holds the system at `target`."""
        point, action = self.target
        state = np.asarray(self.coordinates.to_state(jnp.asarray(point)))
        return LinearFeedback(self._state_gain(state), state, action)


def _drift(place: OperatingPoint | Equilibrium) -> np.ndarray:
    return place.drift if isinstance(place, OperatingPoint) else np.zeros_like(place.point)


def _held(linear: Linearisation, drift: np.ndarray, weights: Weights) -> tuple[np.ndarray, np.ndarray]:
    """The cheapest deviation [d] and extra action [du] at which drift + A q + B u = q."""
    (d, du), scale = linear.B.shape, np.abs(drift).max(initial=0.0)
    if scale == 0:
        return np.zeros(d), np.zeros(du)
    stays = np.concatenate([np.eye(d) - linear.A, -linear.B], axis=1)
    costs = np.zeros((d + du, d + du))
    costs[:d, :d], costs[d:, d:] = weights.states, weights.actions
    conditions = np.block([[costs, stays.T], [stays, np.zeros((d, d))]])
    found = np.linalg.lstsq(conditions, np.concatenate([np.zeros(d + du), drift]), rcond=None)[0][: d + du]
    if np.abs(stays @ found - drift).max() > HELD_TOLERANCE * scale:
        raise SondeError("lqr: no constant action holds the linearised system near this point; choose an equilibrium")
    return found[:d], found[d:]


def riccati(A: np.ndarray, B: np.ndarray, weights: Weights) -> tuple[np.ndarray, np.ndarray]:
    """Solve the linear-quadratic regulator in discrete time.

    Args:
        A: State matrix [d, d].
        B: Action matrix [d, du].
        weights: Weights of the cost.

    Returns:
        Gain K [du, d] and cost matrix P [d, d].
    """
    d, du = B.shape
    if weights.states.shape != (d, d) or weights.actions.shape != (du, du):
        sizes = f"{len(weights.states)} and {len(weights.actions)}"
        raise SondeError(f"lqr: expected weights for {d} coordinates and {du} actions, got {sizes}")
    try:
        P = solve_discrete_are(A, B, weights.states, weights.actions)
    except np.linalg.LinAlgError:
        P = np.full((d, d), np.nan)
    K = np.linalg.solve(weights.actions + B.T @ P @ B, B.T @ P @ A)
    if not np.isfinite(K).all() or np.abs(np.linalg.eigvals(A - B @ K)).max() >= 1 - UNIT_TOLERANCE:
        raise SondeError(
            "lqr: no gain stabilises the linearised system: actions do not reach a direction in which deviations grow or "
            "persist (see its controllability), or deviations there have no weight; choose another point or other weights"
        )
    return K, P


def lqr(
    system: LearnedSystem, place: OperatingPoint | Equilibrium, weights: Weights | None = None, confidence: float = 0.95
) -> Regulator:
    """Linear-quadratic regulator of the predicted mean.

    Args:
        system: The system.
        place: One of its equilibria, or `system.at` any point.
        weights: Weights of the cost; by default those of `Weights.by_range`.
        confidence: Confidence of the promised share.
    """
    weights, linear = weights or Weights.by_range(system), place.linearisation
    gain, cost = riccati(linear.A, linear.B, weights)
    promise = Promise.of(gain, plausible(linear), linear, confidence)
    return Regulator(place, system.coordinates, weights, gain, cost, promise)
