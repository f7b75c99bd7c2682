"""The learned system, studied: where it rests, whether it stays there, what actions can do, how errors grow.

    system = LearnedSystem(one_run(explorer.posterior), world, visited)
    for rest in system.equilibria():
        print(rest.point, rest.point_std, rest.linearisation.eigenvalues, rest.linearisation.stability)

All of it is about the mean of what is predicted, with error bars for what is not known. States whose numbers constrain each
other (an angle as cosine and sine) are studied in the world's `Coordinates`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sonde._internal.errors import SondeError, whole
from sonde._internal.precision import double_precision
from sonde.analysis._linear import Linearisation
from sonde.models import Posterior
from sonde.worlds import Coordinates, World

STARTS, ITERATIONS, SAMPLES = 200, 100, 1000
NO_CHANGE = 1e-6
"""Of the visited spread: a point that moves less than this in a step stays; networks, in single precision, do no better."""
SAME = 1e-3
"""Of the visited spread: roots that are closer than this are one."""
KNOWN = 0.1
"""Of the visited spread: an equilibrium whose place is less certain than this is no finding."""
MARGIN = 0.1
"""Of the visited range: how far outside of it an equilibrium may be."""


@dataclass(frozen=True)
class Equilibrium:
    """A point at which the mean stays under a constant action: in coordinates, as a state, and how sure it is."""

    point: np.ndarray
    point_std: np.ndarray
    """To first order: the epistemic std of the next state there, carried over to the root."""
    state: np.ndarray
    action: np.ndarray
    linearisation: Linearisation


@dataclass(frozen=True)
class Sensitivity:
    """How small deviations at the start of a trajectory of T steps have grown after each: factors [T, d], the largest first."""

    growth: np.ndarray

    @property
    def rate(self) -> float:
        """Logarithm per step by which the worst deviation grew over the whole trajectory."""
        return float(np.log(self.growth[-1, 0]) / len(self.growth))


def _same(array: Array) -> Array:
    return array


def _identity(world: World) -> Coordinates:
    return Coordinates(world.state_names, _same, _same, (np.inf,) * world.state_dim)


def _difference(a: Array, b: Array, periods: tuple[float, ...]) -> Array:
    """a - b, the short way round."""
    period = jnp.asarray(periods)
    round_trips = jnp.where(jnp.isfinite(period), jnp.round((a - b) / period), 0.0)
    return a - b - jnp.where(jnp.isfinite(period), period, 0.0) * round_trips


def _in_coordinates(posterior: Posterior, system: Coordinates, q: Array, u: Array, jacobian: Array) -> tuple[Array, Array]:
    """A and B in coordinates, of Jacobians [..., dx, dz] at a point."""
    x = system.to_state(q)
    lift, project = jax.jacfwd(system.to_state)(q), jax.jacfwd(system.from_state)(posterior.predict(x, u).mean)
    return project @ jacobian[..., : x.shape[0]] @ lift, project @ jacobian[..., x.shape[0] :]


@eqx.filter_jit
def _search(posterior: Posterior, system: Coordinates, starts: Array, u: Array, spread: Array) -> tuple[Array, Array]:
    """Roots [N, d] of what a step changes, by damped Newton steps (Levenberg-Marquardt), and misses [N] (over the spread)."""

    def change(q: Array) -> Array:
        after = system.from_state(posterior.predict(system.to_state(q), u).mean)
        return _difference(after, q, system.periods) / spread

    def slope(q: Array) -> Array:
        A, _ = _in_coordinates(posterior, system, q, u, posterior.mean_jacobian(system.to_state(q), u))
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


@eqx.filter_jit
def _linearise(posterior: Posterior, plain: Posterior, system: Coordinates, q: Array, u: Array, key: Array, count: int):
    """A and B of the mean, their samples, and what is not known of a step: columns whose squares sum to its variance."""
    x = system.to_state(q)
    prediction = posterior.predict_jacobian(x, u, key, count)
    A, B = _in_coordinates(plain, system, q, u, prediction.mean)
    A_samples, B_samples = _in_coordinates(plain, system, q, u, prediction.samples)
    predicted = plain.predict(x, u)
    return A, B, A_samples, B_samples, jax.jacfwd(system.from_state)(predicted.mean) * predicted.epistemic_std


@eqx.filter_jit
def _along(posterior: Posterior, system: Coordinates, points: Array, actions: Array) -> Array:
    """Singular values [T, d] of the products of Jacobians."""

    def step(product, at):
        q, u = at
        A, _ = _in_coordinates(posterior, system, q, u, posterior.mean_jacobian(system.to_state(q), u))
        product = A @ product
        return product, jnp.linalg.svd(product, compute_uv=False)

    return jax.lax.scan(step, jnp.eye(points.shape[1]), (points, actions))[1]


class LearnedSystem:
    """What one run has learned, in coordinates that have no constraints between them."""

    def __init__(self, posterior: Posterior, world: World, visited: np.ndarray):
        """`visited` are states [N, dx] near which the model knows something: those of the measurements."""
        self.posterior, self.world = posterior, world
        self.plain, self.coordinates = posterior.differentiable(), world.coordinates() or _identity(world)
        self.visited = self._points(visited, "visited states")
        low, high = self.visited.min(axis=0), self.visited.max(axis=0)
        turns = np.isfinite(self.coordinates.periods)
        self.low, self.high = np.where(turns, -np.inf, low), np.where(turns, np.inf, high)
        self.spread = np.where(turns, np.minimum(high - low, self.coordinates.periods), high - low)
        self.spread = np.where(self.spread > 0, self.spread, 1.0)

    @double_precision
    def _points(self, states: np.ndarray, name: str) -> np.ndarray:
        """States [N, dx], checked, in coordinates [N, d]."""
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
        """Where the mean stays under a constant action (by default zero), found from many starts [N, dx] (by default visited).

        Left out are places that the model does not know: outside of what was visited, or less certain than a tenth of it.
        """
        u = self._action(action)
        points = self.visited if starts is None else self._points(starts, "starts")
        points = points[np.linspace(0, len(points) - 1, min(STARTS, len(points))).round().astype(int)]
        arguments = (jnp.asarray(array) for array in (points, u, self.spread))
        roots, misses = (np.asarray(array) for array in _search(self.plain, self.coordinates, *arguments))
        found: list[Equilibrium] = []
        for q in roots[np.argsort(misses)][: np.sum(misses < NO_CHANGE)]:
            inside = (q >= self.low - MARGIN * self.spread) & (q <= self.high + MARGIN * self.spread)
            if inside.all() and all(self._gap(q, other.point) >= SAME for other in found):
                found.append(self._equilibrium(q, u, samples))
        known = [rest for rest in found if (rest.point_std <= KNOWN * self.spread).all()]
        # by states: hanging may be told as pi or as -pi, and rows that are to be compared should not change places
        return sorted(known, key=lambda rest: rest.state.tolist())

    def _gap(self, a: np.ndarray, b: np.ndarray) -> float:
        """The distance of two points in units of the visited spread."""
        gap = np.asarray(_difference(jnp.asarray(a), jnp.asarray(b), self.coordinates.periods))
        return float(np.linalg.norm(gap / self.spread))

    def _equilibrium(self, q: np.ndarray, u: np.ndarray, samples: int) -> Equilibrium:
        state = np.asarray(self.coordinates.to_state(jnp.asarray(q)))
        linear, doubt = self._linearise(q, u, samples)
        carried = np.linalg.pinv(np.eye(len(q)) - linear.A) @ doubt
        # an angle is told in its usual range
        point = np.asarray(self.coordinates.from_state(jnp.asarray(state)))
        return Equilibrium(point, np.linalg.norm(carried, axis=1), state, u, linear)

    @double_precision
    def linearise(
        self, state: np.ndarray, action: Sequence[float] | np.ndarray | None = None, samples: int = SAMPLES
    ) -> Linearisation:
        """A and B at a state [dx] (by default under no action), in coordinates, with their uncertainty."""
        (q,) = self._points(np.asarray(state)[None], "state")
        return self._linearise(q, self._action(action), samples)[0]

    def _linearise(self, q: np.ndarray, u: np.ndarray, samples: int) -> tuple[Linearisation, np.ndarray]:
        whole("linearisation", samples=samples)
        arguments = (self.posterior, self.plain, self.coordinates, jnp.asarray(q), jnp.asarray(u), jax.random.key(0), samples)
        A, B, A_samples, B_samples, doubt = (np.asarray(array) for array in _linearise(*arguments))
        stds = (np.std(A_samples, axis=0), np.std(B_samples, axis=0))
        return Linearisation(A, B, *stds, A_samples, B_samples), doubt

    @double_precision
    def sensitivity(self, states: np.ndarray, actions: np.ndarray) -> Sensitivity:
        """How deviations grow along a trajectory of states [T, dx] and actions [T, du], by the Jacobians of the mean there."""
        points = self._points(states, "states")
        u = np.asarray(actions, dtype=np.float64)
        if u.shape != (len(points), self.world.action_dim) or not np.isfinite(u).all():
            raise SondeError(f"actions must be finite, of shape [{len(points)}, {self.world.action_dim}], got {list(u.shape)}")
        return Sensitivity(np.asarray(_along(self.plain, self.coordinates, jnp.asarray(points), jnp.asarray(u))))
