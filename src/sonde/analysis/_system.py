"""Analysis of a learned system: its equilibria, their stability, what actions can do, how deviations grow.

    system = sonde.learned_system(explorer, world)
    for equilibrium in system.equilibria():
        print(equilibrium.point, equilibrium.point_std, equilibrium.linearisation.stability)

It analyses the predicted mean, with stds for the epistemic uncertainty. States whose dimensions constrain each other (an angle
as cosine and sine) are analysed in the world's `Coordinates`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sonde._internal.errors import SondeError, whole
from sonde._internal.precision import double_precision
from sonde.analysis._linear import Linearisation
from sonde.analysis._point import OperatingPoint
from sonde.models import Posterior
from sonde.models._base import JacobianPrediction
from sonde.worlds import Coordinates, World

STARTS, ITERATIONS, SAMPLES = 200, 100, 1000
STEP_TOLERANCE = 1e-6
"""A point that moves less than this in a step is an equilibrium; networks, in single precision, are no more accurate."""
SAME_TOLERANCE = 1e-3
"""Equilibria that are closer than this are the same."""
MAX_POINT_STD = 0.1
"""Equilibria with a larger epistemic std are left out."""
RANGE_MARGIN = 0.1
"""How far outside the visited range an equilibrium may lie. All four are in units of the visited range of each coordinate."""


@dataclass(frozen=True)
class Equilibrium:
    """A fixed point of the predicted mean dynamics under a constant action."""

    point: np.ndarray
    """The point in coordinates [d]."""
    point_std: np.ndarray
    """Epistemic std of the point [d], to first order from that of the next state."""
    state: np.ndarray
    """The point as a state [dx]."""
    action: np.ndarray
    """The constant action [du]."""
    linearisation: Linearisation
    """Linearisation at the point, in coordinates. Its samples are plausible systems, each at its own equilibrium, so its stds
    include that the point itself is uncertain."""


@dataclass(frozen=True)
class Sensitivity:
    """Growth of small deviations along a trajectory of T steps (finite-time Lyapunov analysis)."""

    growth: np.ndarray
    """Factors by which deviations at the start have grown after each step [T, d], the largest first."""

    @property
    def rate(self) -> float:
        """Growth rate of the largest deviation over the whole trajectory: the logarithm of its factor, per step."""
        return float(np.log(self.growth[-1, 0]) / len(self.growth))


def _same(array: Array) -> Array:
    return array


def _identity(world: World) -> Coordinates:
    return Coordinates(world.state_names, _same, _same, (np.inf,) * world.state_dim)


def _difference(a: Array, b: Array, periods: tuple[float, ...]) -> Array:
    """a - b, modulo the periods, of smallest magnitude."""
    period = jnp.asarray(periods)
    turns = jnp.where(jnp.isfinite(period), jnp.round((a - b) / period), 0.0)
    return a - b - jnp.where(jnp.isfinite(period), period, 0.0) * turns


def _in_coordinates(system: Coordinates, q: Array, after: Array, jacobian: Array) -> tuple[Array, Array]:
    """A and B in coordinates, from Jacobians [..., dx, dz] at a point and the state after it."""
    lift, project = jax.jacfwd(system.to_state)(q), jax.jacfwd(system.from_state)(after)
    return project @ jacobian[..., : after.shape[0]] @ lift, project @ jacobian[..., after.shape[0] :]


def _at_mean(posterior: Posterior, system: Coordinates, q: Array, u: Array, error: Array | float = 0.0) -> tuple[Array, Array]:
    """A and B of the predicted mean, of which `error` [dx] is the error at this point."""
    x = system.to_state(q)
    return _in_coordinates(system, q, posterior.predict(x, u).mean + error, posterior.mean_jacobian(x, u))


@eqx.filter_jit
def _search(posterior: Posterior, system: Coordinates, starts: Array, u: Array, spread: Array) -> tuple[Array, Array]:
    """Fixed points [N, d] of a step by Levenberg-Marquardt, and how far a step moves them [N], in units of the spread."""

    def change(q: Array) -> Array:
        after = system.from_state(posterior.predict(system.to_state(q), u).mean)
        return _difference(after, q, system.periods) / spread

    def slope(q: Array) -> Array:
        A, _ = _at_mean(posterior, system, q, u)
        return (A - jnp.eye(q.shape[0])) * spread / spread[:, None]

    def step(carry, _):
        q, error, damping = carry
        J = slope(q)
        move = jnp.linalg.solve(J.T @ J + damping * jnp.eye(q.shape[0]), -J.T @ error) * spread
        new = change(q + move)
        better = jnp.sum(new**2) < jnp.sum(error**2)
        q, error = jnp.where(better, q + move, q), jnp.where(better, new, error)
        return (q, error, jnp.clip(damping * jnp.where(better, 0.1, 10.0), 1e-15, 1e3)), None

    def one(q: Array) -> tuple[Array, Array]:
        (q, error, _), _ = jax.lax.scan(step, (q, change(q), jnp.asarray(1e-3)), length=ITERATIONS)
        return q, jnp.linalg.norm(error)

    return jax.vmap(one)(starts)


class _Linearised(NamedTuple):
    """A linearisation, and what the model does not know about the next state."""

    A: Any
    B: Any
    A_samples: Any
    B_samples: Any
    errors: Any
    """Samples of the true next state minus the mean [N, dx], which belong to those of A and B."""
    error_root: Any
    """A root [d, r] of the epistemic covariance of the next point in coordinates."""


@eqx.filter_jit
def _linearise(posterior: Posterior, smooth: Posterior, system: Coordinates, q: Array, u: Array, key: Array, count: int):
    x = system.to_state(q)
    jacobian, predicted = posterior.predict_jacobian(x, u, key, count), smooth.predict(x, u)
    A, B = _in_coordinates(system, q, predicted.mean, jacobian.mean)
    A_samples, B_samples = _in_coordinates(system, q, predicted.mean, jacobian.samples)
    project, members = jax.jacfwd(system.from_state)(predicted.mean), predicted.members
    if members is not None:
        errors = members.means - predicted.mean  # outputs of one member err together
        root = project @ errors.T / errors.shape[0] ** 0.5
    else:
        errors = _errors_beside(smooth, x, u, jacobian, jax.random.fold_in(key, 1))
        root = project * predicted.epistemic_std
    return _Linearised(A, B, A_samples, B_samples, errors, root)


def _errors_beside(smooth: Posterior, x: Array, u: Array, jacobian: JacobianPrediction, key: Array) -> Array:
    """Samples of the error of the mean [N, dx] beside those of the Jacobian: value and slopes at a point are correlated.

    The covariance of f(z) and its gradient is half the gradient of the variance of f(z), so it needs no other query.
    """
    variance = lambda z: smooth.predict(z[: x.shape[0]], z[x.shape[0] :]).epistemic_std ** 2
    z = jnp.concatenate([x, u])
    normal = jax.random.normal(key, jacobian.samples.shape[:2])

    def one_output(slopes: Array, covariance: Array, variance: Array, normal: Array) -> Array:
        weights = jnp.linalg.pinv(slopes.T @ slopes / slopes.shape[0], rtol=1e-9, hermitian=True) @ covariance
        return slopes @ weights + jnp.sqrt(jnp.maximum(variance - covariance @ weights, 0.0)) * normal

    slopes = jnp.swapaxes(jacobian.samples - jacobian.mean, 0, 1)
    return jax.vmap(one_output)(slopes, 0.5 * jax.jacrev(variance)(z), variance(z), normal.T).T


@eqx.filter_jit
def _carried(smooth: Posterior, system: Coordinates, q: Array, u: Array, moves: Array, errors: Array) -> tuple[Array, Array]:
    """Changes of A and B [N, ...] to first order, from a fixed point of the mean to those of the sampled systems."""
    local = lambda q, error: _at_mean(smooth, system, q, u, error)
    slopes = jax.jacrev(local, argnums=(0, 1))(q, jnp.zeros(errors.shape[1]))
    along = lambda slope, change: jnp.einsum("ijk,nk->nij", slope, change)
    A, B = (along(by_point, moves) + along(by_error, errors) for by_point, by_error in slopes)
    return A, B


@eqx.filter_jit
def _along(posterior: Posterior, system: Coordinates, points: Array, actions: Array) -> Array:
    """Singular values [T, d] of the products of Jacobians along a trajectory."""

    def step(product, at):
        q, u = at
        A, _ = _at_mean(posterior, system, q, u)
        product = A @ product
        return product, jnp.linalg.svd(product, compute_uv=False)

    return jax.lax.scan(step, jnp.eye(points.shape[1]), (points, actions))[1]


def _linearisation(found: _Linearised) -> Linearisation:
    stds = (np.std(samples, axis=0) for samples in (found.A_samples, found.B_samples))
    return Linearisation(found.A, found.B, *stds, found.A_samples, found.B_samples)


class LearnedSystem:
    """The dynamics that one seed has learned, in unconstrained coordinates."""

    @double_precision
    def __init__(self, posterior: Posterior, world: World, visited: np.ndarray):
        """Prepare the analysis.

        Args:
            posterior: Posterior of one seed.
            world: The world that was learned; it gives the dimensions and the coordinates.
            visited: States of the measurements [N, dx].
        """
        self.posterior, self.world = posterior, world
        self.differentiable, self.coordinates = posterior.differentiable(), world.coordinates() or _identity(world)
        self.visited = self._points(visited, "visited states")
        low, high = self.visited.min(axis=0), self.visited.max(axis=0)
        periodic = np.isfinite(self.coordinates.periods)
        self.low, self.high = np.where(periodic, -np.inf, low), np.where(periodic, np.inf, high)
        self.spread = np.where(periodic, np.minimum(high - low, self.coordinates.periods), high - low)
        self.spread = np.where(self.spread > 0, self.spread, 1.0)

    @double_precision
    def _points(self, states: np.ndarray, name: str) -> np.ndarray:
        """Validate states [N, dx] and convert them to coordinates [N, d]."""
        states = np.asarray(states, dtype=np.float64)
        if states.ndim != 2 or states.shape[1] != self.world.state_dim or not len(states) or not np.isfinite(states).all():
            raise SondeError(f"{name} must be finite, of shape [N, {self.world.state_dim}], got shape {list(states.shape)}")
        return np.asarray(jax.vmap(self.coordinates.from_state)(jnp.asarray(states)))

    def _action(self, action: Sequence[float] | np.ndarray | None) -> np.ndarray:
        u = np.zeros(self.world.action_dim) if action is None else np.asarray(action, dtype=np.float64)
        if u.shape != (self.world.action_dim,) or not (np.abs(u) <= 1).all():
            raise SondeError(f"action must be {self.world.action_dim} numbers in [-1, 1], got {u.tolist()}")
        return u

    @double_precision
    def equilibria(
        self, action: Sequence[float] | np.ndarray | None = None, starts: np.ndarray | None = None, samples: int = SAMPLES
    ) -> list[Equilibrium]:
        """Find the points at which the predicted mean stays under a constant action.

        Points that the model does not know are left out: those outside the visited range, and those whose epistemic std is more
        than a tenth of it.

        Args:
            action: The action [du]; by default zeros.
            starts: States [N, dx] from which the search starts; by default visited ones.
            samples: Number of samples of the linearisations.
        """
        u = self._action(action)
        points = self.visited if starts is None else self._points(starts, "starts")
        points = points[np.linspace(0, len(points) - 1, min(STARTS, len(points))).round().astype(int)]
        arguments = (jnp.asarray(array) for array in (points, u, self.spread))
        roots, misses = (np.asarray(array) for array in _search(self.differentiable, self.coordinates, *arguments))
        found: list[Equilibrium] = []
        for q in roots[np.argsort(misses)][: np.sum(misses < STEP_TOLERANCE)]:
            inside = (q >= self.low - RANGE_MARGIN * self.spread) & (q <= self.high + RANGE_MARGIN * self.spread)
            if inside.all() and all(self._gap(q, other.point) >= SAME_TOLERANCE for other in found):
                found.append(self._equilibrium(q, u, samples))
        known = [equilibrium for equilibrium in found if (equilibrium.point_std <= MAX_POINT_STD * self.spread).all()]
        # sorted by states: one angle may come out as pi or as -pi, and the order should not depend on which
        return sorted(known, key=lambda equilibrium: equilibrium.state.tolist())

    def _gap(self, a: np.ndarray, b: np.ndarray) -> float:
        """Distance of two points in units of the visited range."""
        gap = np.asarray(_difference(jnp.asarray(a), jnp.asarray(b), self.coordinates.periods))
        return float(np.linalg.norm(gap / self.spread))

    def _equilibrium(self, q: np.ndarray, u: np.ndarray, samples: int) -> Equilibrium:
        state = np.asarray(self.coordinates.to_state(jnp.asarray(q)))
        found = self._linearised(q, u, samples)
        moved = np.linalg.pinv(np.eye(len(q)) - found.A)  # how far an error of the next point moves the equilibrium
        # a sampled system has its own equilibrium, and its linearisation is there
        project = np.asarray(jax.jacfwd(self.coordinates.from_state)(jnp.asarray(state)))
        moves = found.errors @ project.T @ moved.T
        at = (self.coordinates, *(jnp.asarray(array) for array in (q, u, moves, found.errors)))
        A_change, B_change = (np.asarray(array) for array in _carried(self.differentiable, *at))
        linear = _linearisation(found._replace(A_samples=found.A_samples + A_change, B_samples=found.B_samples + B_change))
        # by way of the state, an angle comes out in its usual range
        point = np.asarray(self.coordinates.from_state(jnp.asarray(state)))
        return Equilibrium(point, np.linalg.norm(moved @ found.error_root, axis=1), state, u, linear)

    @double_precision
    def linearise(
        self, state: np.ndarray, action: Sequence[float] | np.ndarray | None = None, samples: int = SAMPLES
    ) -> Linearisation:
        """Linearise at a state, in coordinates.

        Args:
            state: State [dx].
            action: Action [du]; by default zeros.
            samples: Number of samples of A and B; ensembles give one per member instead.
        """
        (q,) = self._points(np.asarray(state)[None], "state")
        return _linearisation(self._linearised(q, self._action(action), samples))

    @double_precision
    def at(
        self, state: np.ndarray, action: Sequence[float] | np.ndarray | None = None, samples: int = SAMPLES
    ) -> OperatingPoint:
        """Study the system at any state and action, an equilibrium or not.

        Args:
            state: State [dx].
            action: Action [du]; by default zeros.
            samples: Number of samples of A and B; ensembles give one per member instead.
        """
        (q,) = self._points(np.asarray(state)[None], "state")
        u = self._action(action)
        x = self.coordinates.to_state(jnp.asarray(q))
        after = self.coordinates.from_state(self.differentiable.predict(x, jnp.asarray(u)).mean)
        drift = np.asarray(_difference(after, jnp.asarray(q), self.coordinates.periods))
        found = self._linearised(q, u, samples)
        return OperatingPoint(q, np.asarray(x), u, drift, np.linalg.norm(found.error_root, axis=1), _linearisation(found))

    def _linearised(self, q: np.ndarray, u: np.ndarray, samples: int) -> _Linearised:
        whole("linearisation", samples=samples)
        at = (self.coordinates, jnp.asarray(q), jnp.asarray(u))
        found = _linearise(self.posterior, self.differentiable, *at, jax.random.key(0), samples)
        return _Linearised(*(np.asarray(array) for array in found))

    @double_precision
    def sensitivity(self, states: np.ndarray, actions: np.ndarray) -> Sensitivity:
        """Growth of small deviations along a trajectory, by the Jacobians of the predicted mean.

        Args:
            states: States before each step [T, dx].
            actions: Actions of each step [T, du].
        """
        points = self._points(states, "states")
        u = np.asarray(actions, dtype=np.float64)
        if u.shape != (len(points), self.world.action_dim) or not np.isfinite(u).all():
            raise SondeError(f"actions must be finite, of shape [{len(points)}, {self.world.action_dim}], got {list(u.shape)}")
        return Sensitivity(np.asarray(_along(self.differentiable, self.coordinates, jnp.asarray(points), jnp.asarray(u))))
