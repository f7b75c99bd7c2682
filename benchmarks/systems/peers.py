"""Other ways to learn the same plants from the same measurements.

A peer has `fit(trajectory)`, which returns a function from states [N, dx] and actions [N, du] to the means of the next states
[N, dx]. All but the grey box learn the change x' - x from standardised inputs to standardised targets.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import least_squares, minimize

from benchmarks.systems.plant import Plant
from sonde._internal.errors import one_of
from sonde._internal.precision import double_precision
from sonde.data import Trajectory

Predictor = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""predictor(states [N, dx], actions [N, du]): means of the next states [N, dx]."""
HELD_OUT = 5
"""Every fifth block of measurements is held out to choose settings."""
BLOCK = 10
"""Most measurements per block: neighbours in time are alike, and must not be on both sides."""
THRESHOLDS = (0.0, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1)
"""Thresholds of sparse regression, for standardised inputs and targets; 0 is ridge regression."""
RIDGES = (1e-8, 1e-5, 1e-3, 1e-1, 10.0)
"""Weights of the squared coefficients."""
SUBSET = 150
"""Measurements on which a Gaussian process tries several starts of its hyper-parameters."""


class Peer(Protocol):
    """A way to learn a plant."""

    def fit(self, data: Trajectory) -> Predictor:
        """Learn from measurements.

        Args:
            data: Measurements [T, ...].

        Returns:
            The means of the next states, as a function of states and actions.
        """
        ...


@dataclass(frozen=True)
class Scaling:
    """Inputs (x, u) and targets x' - x in units of their spread."""

    shift: np.ndarray
    scale: np.ndarray
    target_shift: np.ndarray
    target_scale: np.ndarray

    @classmethod
    def of(cls, data: Trajectory) -> "Scaling":
        """The scaling by mean and std of measurements.

        Args:
            data: Measurements [T, ...].
        """
        z, change = np.concatenate([data.states, data.actions], axis=-1), data.next_states - data.states
        return cls(z.mean(0), np.maximum(z.std(0), 1e-12), change.mean(0), np.maximum(change.std(0), 1e-12))

    def inputs(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Standardised inputs [N, dx + du]."""
        return (np.concatenate([states, actions], axis=-1) - self.shift) / self.scale

    def targets(self, data: Trajectory) -> np.ndarray:
        """Standardised targets [T, dx]."""
        return (data.next_states - data.states - self.target_shift) / self.target_scale

    def predictor(self, regression: Callable[[np.ndarray], np.ndarray]) -> Predictor:
        """Turn a function of standardised inputs to standardised targets into one of states and actions.

        Args:
            regression: Targets [N, dx] as a function of inputs [N, dx + du].
        """
        undo = lambda targets: targets * self.target_scale + self.target_shift
        return lambda states, actions: states + undo(regression(self.inputs(states, actions)))


@dataclass(frozen=True)
class Affine:
    """Least squares: x' = A x + B u + c."""

    def fit(self, data: Trajectory) -> Predictor:
        """Solve for A, B and c."""
        scaling = Scaling.of(data)
        inputs, targets = scaling.inputs(data.states, data.actions), scaling.targets(data)
        weights = np.linalg.lstsq(inputs, targets, rcond=None)[0]  # the means are already removed
        return scaling.predictor(lambda z: z @ weights)


@dataclass(frozen=True)
class SparseCubic:
    """Sparse regression on polynomials of degree 3 (PySINDy); held-out measurements choose the threshold and the ridge."""

    degree: int = 3

    def fit(self, data: Trajectory) -> Predictor:
        """Try all settings on four fifths of the measurements, then fit the best one to all."""
        scaling = Scaling.of(data)
        inputs, targets = scaling.inputs(data.states, data.actions), scaling.targets(data)
        block = max(1, min(BLOCK, len(inputs) // (2 * HELD_OUT)))
        held_out = np.arange(len(inputs)) // block % HELD_OUT == HELD_OUT - 1
        best, least = (THRESHOLDS[0], RIDGES[0]), np.inf
        for setting in ((threshold, ridge) for threshold in THRESHOLDS for ridge in RIDGES):
            predict = self._regression(inputs[~held_out], targets[~held_out], *setting)
            error = np.mean((predict(inputs[held_out]) - targets[held_out]) ** 2)
            if error < least:
                best, least = setting, error
        return scaling.predictor(self._regression(inputs, targets, *best))

    def _regression(self, inputs, targets, threshold: float, ridge: float) -> Callable[[np.ndarray], np.ndarray]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PySINDy warns where a threshold removes every term, and about its own imports
            pysindy = import_module("pysindy")

            dx = targets.shape[1]
            optimiser = pysindy.STLSQ(threshold=threshold, alpha=ridge, normalize_columns=False)
            library = pysindy.PolynomialLibrary(degree=self.degree)
            model = pysindy.DiscreteSINDy(optimizer=optimiser, feature_library=library)
            model.fit(inputs[:, :dx], t=1, x_next=targets, u=inputs[:, dx:])

        def regression(z: np.ndarray) -> np.ndarray:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return np.asarray(model.predict(z[:, :dx], u=z[:, dx:]))

        return regression


@dataclass(frozen=True)
class ScikitGP:
    """scikit-learn's Gaussian processes, one per output: a linear trend and a squared exponential per input."""

    seed: int = 0
    """Randomness of the starts of the hyper-parameters."""
    restarts: int = 2
    """Further starts of the hyper-parameters, tried on a subset of the measurements."""
    iterations: int = 40
    """Most iterations of L-BFGS from each start, and then on all measurements from the best one."""

    def fit(self, data: Trajectory) -> Predictor:
        """Maximise the marginal likelihood of each output."""
        scaling = Scaling.of(data)
        inputs, targets = scaling.inputs(data.states, data.actions), scaling.targets(data)
        outputs = [self._output(inputs, target) for target in targets.T]
        return scaling.predictor(lambda z: np.stack([output.predict(z) for output in outputs], axis=-1))

    def _output(self, inputs: np.ndarray, target: np.ndarray):
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, WhiteKernel

        smooth = ConstantKernel(1.0, (1e-4, 1e4)) * RBF(np.full(inputs.shape[1], 2.0), (1e-1, 1e3))
        linear = ConstantKernel(1.0, (1e-4, 1e2)) * DotProduct(1.0, "fixed")
        kernel = smooth + linear + WhiteKernel(1e-2, (1e-8, 1.0))
        some = np.random.default_rng(self.seed).permutation(len(inputs))[:SUBSET]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a length-scale at its bound means an input that does not matter
            start = GaussianProcessRegressor(
                kernel, optimizer=self._optimiser, n_restarts_optimizer=self.restarts, random_state=self.seed
            ).fit(inputs[some], target[some])
            return GaussianProcessRegressor(start.kernel_, optimizer=self._optimiser).fit(inputs, target)

    def _optimiser(self, objective, initial, bounds):
        found = minimize(objective, initial, jac=True, bounds=bounds, method="L-BFGS-B", options={"maxiter": self.iterations})
        return found.x, found.fun


@dataclass(frozen=True)
class GreyBox:
    """Least squares over the physical parameters of the true equations: the floor, not a competitor."""

    plant: Plant
    """The plant with its true parameters."""
    seed: int = 0
    """Randomness of the start, at which each parameter is 30 % too small or too large."""

    @double_precision
    def fit(self, data: Trajectory) -> Predictor:
        """Find factors of the parameters that predict the next states best."""
        truth = np.array(list(self.plant.parameters.values()))
        step = lambda factors, x, u: self.plant.with_parameters(list(truth * factors)).dynamics(x, u)
        steps = jax.vmap(step, (None, 0, 0))
        states, actions = jnp.asarray(data.states), jnp.asarray(data.actions)
        scale = np.maximum(Scaling.of(data).target_scale, 1e-12)
        residual = jax.jit(lambda factors: ((steps(factors, states, actions) - data.next_states) / scale).ravel())
        jacobian = jax.jit(jax.jacfwd(residual))
        start = np.random.default_rng(self.seed).choice([0.7, 1.3], len(truth))
        found = least_squares(
            lambda factors: np.asarray(residual(factors)),
            start,
            lambda factors: np.asarray(jacobian(factors)),
            bounds=(0.1, 10.0),
            max_nfev=200,
        )
        predict = jax.jit(steps)

        @double_precision
        def predictor(states: np.ndarray, actions: np.ndarray) -> np.ndarray:
            return np.asarray(predict(jnp.asarray(found.x), jnp.asarray(states), jnp.asarray(actions)))

        return predictor


PEERS = ("affine", "cubic", "sklearn-gp")
"""Names of the peers that models are compared with."""
FLOOR = "grey-box"
"""Name of the peer that knows the equations."""


def peer(name: str, plant: Plant, seed: int) -> Peer:
    """A peer by name.

    Args:
        name: One of `PEERS`, or `FLOOR`.
        plant: The plant; only the grey box looks at it.
        seed: Randomness of starts.
    """
    made: dict[str, Peer] = {
        "affine": Affine(),
        "cubic": SparseCubic(),
        "sklearn-gp": ScikitGP(seed),
        FLOOR: GreyBox(plant, seed),
    }
    one_of("peer", name, made)
    return made[name]


def fitted(name: str, plant: Plant, data: Trajectory, seed: int) -> Predictor:
    """Fit a peer on one core: on small matrices, the threads of BLAS take longer to agree than to compute.

    Args:
        name: One of `PEERS`, or `FLOOR`.
        plant: The plant; only the grey box looks at it.
        data: Measurements [T, ...].
        seed: Randomness of starts.
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        return peer(name, plant, seed).fit(data)
