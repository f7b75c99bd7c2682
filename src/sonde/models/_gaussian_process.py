"""Gaussian processes: one per output dimension, hyper-parameters by maximum a posteriori.

Here are the configuration, the hyper-parameters and their fit. Covariance functions are in `_kernels`, factorisations in
`_linalg`, and the posterior that planners query in `_gp_posterior`.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, Key

from sonde._internal.errors import SondeError, one_of, positive
from sonde.data import Data
from sonde.models._base import Model
from sonde.models._bfgs import minimise
from sonde.models._gp_posterior import (
    GPPosterior,
    exact,
    exact_bytes,
    kernel_points,
    low_rank,
    low_rank_bytes,
    prefix_sizes,
)
from sonde.models._kernels import RBF, Kernel, PlusAffine
from sonde.models._linalg import gaussian_log_density, plus_diagonal
from sonde.models._normaliser import Normaliser
from sonde.models._outputs import over_outputs

COMPETITION = 200  # points on which starting points of a fit compete
GRADIENT_TOLERANCE = 0.1  # nats per unit of a logarithm: a fit ends where no hyper-parameter promises more
SMALLEST_FIT = 128  # fits of fewer points cost too little to compile a smaller program for them


class GPParams(eqx.Module):
    """Logarithms of the hyper-parameters of one Gaussian process per output, in normalised units where they are learned."""

    log_lengthscales: Float[Array, "*dx dz"]
    log_signal: Float[Array, "*dx"]
    log_noise: Float[Array, "*dx"]


@dataclass(frozen=True)
class GaussianProcess(Model):
    """One Gaussian process per output dimension, on the change x' - x."""

    kernel: Kernel = field(default_factory=RBF)
    """Covariance function."""
    hyperparameters: Literal["learned", "fixed"] = "learned"
    """learned: refitted after each round, with inputs and targets normalised by the data so far. fixed: the three values below,
    in units of the scales (in state units if there are none) and without normalisation by data. The uncertainty of the exact
    posterior (rank 0) can then only shrink; this is the setting of the theory."""
    lengthscale: float = 1.0
    """Initial (or fixed) length-scale of every input."""
    signal_std: float = 1.0
    """Initial (or fixed) std of the functions."""
    noise_std: float = 0.02
    """Initial (or fixed) std of the measurement noise."""
    noise_floor: float = 1e-3
    """Smallest noise std that a fit can reach, in units of the targets' std. On a deterministic system the noise would
    otherwise go to 0, and the information gain, which divides by it, to infinity."""
    lengthscale_prior: tuple[float, float] = (10.0, 1.0)
    """Log-normal prior on each length-scale: its median, in units of the inputs' stds, and the std of the logarithm."""
    signal_prior: tuple[float, float] = (3.0, 0.6)
    """The same for the signal std, in units of the targets' stds. It is narrow: data of a small region, where the system seems
    affine, must not make the process certain about all others."""
    affine_std: float = 3.0
    """Prior std of the coefficients of an affine function of (x, u), which is part of each learned process: the process then
    learns what an affine fit leaves. In normalised units; 0 for no such part, as with fixed hyper-parameters."""
    optimiser: Literal["bfgs", "adam"] = "bfgs"
    """bfgs: fit the hyper-parameters until the gradient vanishes, from several starting points. adam: take `steps` gradient
    steps from the last fit."""
    steps: int = 200
    """Most evaluations of the marginal likelihood from each starting point of bfgs; gradient steps of adam."""
    learning_rate: float = 0.1
    """Learning rate of adam."""
    gradient_limit: float = 10.0
    """Largest norm of the gradient of adam, in nats; longer gradients are clipped to it. 0 for no limit. Measurements unlike
    all earlier ones give gradients a thousand times as long as usual, after which Adam, which averages their squares, would
    hardly move."""
    fit_points: int = 1000
    """Largest number of points in a fit of the hyper-parameters; with more data, a new random subset is drawn for each fit. The
    posterior always uses all data."""
    tolerance: float = 0.1
    """Accuracy of the low-rank posterior, at all points: its means are within this many stds of the exact ones, and its stds
    within about half of it, relative to the exact ones. Data points become inducing points, the most informative first, until a
    bound on both errors says so. An `Explorer` warns if `rank` inducing points are too few for it, or if rounding errors leave
    a bound of more than ten times it."""
    rank: int = 1024
    """Largest number of inducing points; 0 for the exact posterior, whose cost grows with the data."""
    input_scales: tuple[float, ...] = ()
    """Scale of each dimension of (x, u), the unit of its length-scales; by default the std of the data so far, or 1 if
    hyper-parameters are fixed."""
    target_scales: tuple[float, ...] = ()
    """Scale of each dimension of x' - x, the unit of its signal and noise stds; by default as for the inputs."""

    def __post_init__(self):
        """Reject settings that cannot work."""
        if not isinstance(self.kernel, Kernel):
            raise SondeError(f"model: kernel must be a Kernel, such as RBF(), got {self.kernel!r}")
        if type(self.kernel).__hash__ is None:
            raise SondeError(f"model: kernel must be hashable; declare {type(self.kernel).__name__} as @dataclass(frozen=True)")
        one_of("setting of the model's hyperparameters", self.hyperparameters, ("learned", "fixed"))
        one_of("optimiser of the model", self.optimiser, ("bfgs", "adam"))
        positive(
            "model",
            lengthscale=self.lengthscale,
            signal_std=self.signal_std,
            noise_std=self.noise_std,
            noise_floor=self.noise_floor,
            learning_rate=self.learning_rate,
            steps=self.steps,
            fit_points=self.fit_points,
            tolerance=self.tolerance,
        )
        for name in ("lengthscale_prior", "signal_prior"):
            prior = getattr(self, name)
            if len(prior) != 2:
                raise SondeError(f"model: {name} must be a median and a std, got {list(prior)}")
            positive("model", **{f"{name}[{i}]": value for i, value in enumerate(prior)})
        positive("model", **{f"input_scales[{i}]": scale for i, scale in enumerate(self.input_scales)})
        positive("model", **{f"target_scales[{i}]": scale for i, scale in enumerate(self.target_scales)})
        if self.rank < 0:
            raise SondeError(f"model: rank must be 0 (exact) or above, got {self.rank}")
        for name in ("gradient_limit", "affine_std"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise SondeError(f"model: {name} must be 0 (none) or above and finite, got {getattr(self, name)}")
        if self.noise_std <= self.noise_floor and self.hyperparameters == "learned":
            raise SondeError(f"model: noise_std must be above noise_floor, got {self.noise_std} and {self.noise_floor}")

    def init(self, state_dim: int, action_dim: int, key: Key[Array, ""]) -> GPParams:
        """Initial hyper-parameters, the same for every output."""
        del key  # they are not random
        wanted = {"input_scales": state_dim + action_dim, "target_scales": state_dim}
        for name, count in wanted.items():
            if len(getattr(self, name)) not in (0, count):
                raise SondeError(f"model: {name} must be {count} numbers (or none), got {list(getattr(self, name))}")
        full = lambda shape, value: jnp.full(shape, jnp.log(value), float)
        return GPParams(
            full((state_dim, state_dim + action_dim), self.lengthscale),
            full(state_dim, self.signal_std),
            full(state_dim, self._free_noise()),
        )

    def fit(self, params: GPParams, data: Data, filled: Int[Array, ""], key: Key[Array, ""]) -> GPParams:
        """Fit the hyper-parameters of all outputs: the maximum of their posterior density."""
        if self.hyperparameters == "fixed":
            return params
        z, y = self._normalisers(data)
        points, targets = z(data.inputs()), y(data.targets())
        largest = min(self.fit_points, data.capacity)
        sizes = prefix_sizes(largest, SMALLEST_FIT)

        def one_output(shared, own):
            (points, mask), (params, target) = shared, own
            ascend = self._ascend if self.optimiser == "adam" else self._maximise
            return ascend(params, points, target, mask)

        def fit_to(rows):
            shared, own = (points[rows], data.mask()[rows]), (params, targets[rows].T)
            return over_outputs(one_output, shared, own, self.fit_bytes(rows.shape[0]))

        def fit_to_first(count: int):
            return fit_to(jnp.arange(count))

        def fit_to_subset():
            order = jnp.where(data.mask(), jax.random.uniform(key, (data.capacity,)), 2.0)
            return fit_to(jnp.argsort(order)[:largest])

        # one compiled program for all amounts of data, with a branch for each size
        branches: list[Callable[[], GPParams]] = [functools.partial(fit_to_first, size) for size in sizes]
        if largest < data.capacity:
            branches.append(fit_to_subset)
        return jax.lax.switch(jnp.searchsorted(jnp.asarray(sizes), filled), branches)

    def condition(self, params: GPParams, data: Data) -> GPPosterior:
        """Posterior under these hyper-parameters; the factorisation is done here, once."""
        z, y = self._normalisers(data)
        points, targets, mask = z(data.inputs()), y(data.targets()), data.mask()
        lengthscales, signal_std, noise_std = self._values(params)
        kernel, rank, affine = self._whole_kernel, min(self.rank, data.capacity), self._affine

        def one_output(shared, own):
            (points, mask), (scales, signal, noise, target) = shared, own
            points, ratio = kernel_points(points, scales, signal, affine), (noise / signal) ** 2
            if rank == 0:
                return exact(kernel, points, target, mask, ratio)
            return low_rank(kernel, points, target, mask, ratio, rank, self.tolerance)

        own = (lengthscales, signal_std, noise_std, targets.T / signal_std[:, None])
        centres = over_outputs(one_output, (points, mask), own, self.condition_bytes(data.capacity))
        centres = eqx.tree_at(lambda each: each.weights, centres, signal_std[:, None] * centres.weights)
        return GPPosterior(z, y, lengthscales, signal_std, noise_std, centres, kernel, affine)

    @property
    def fits_by_linear_algebra(self) -> bool:
        """True: of covariances."""
        return True

    @property
    def _affine(self) -> float:
        return 0.0 if self.hyperparameters == "fixed" else self.affine_std

    @property
    def _whole_kernel(self) -> Kernel:
        return PlusAffine(self.kernel) if self._affine else self.kernel

    def fit_bytes(self, points: int) -> int:
        """Working memory of the fit of one output of one seed.

        Args:
            points: Number of points in the fit.
        """
        return 58 * points**2

    def condition_bytes(self, capacity: int) -> int:
        """Working memory of the posterior of one output of one seed, with the posterior itself.

        Args:
            capacity: Number of transitions that fit into the data.
        """
        return exact_bytes(capacity) if self.rank == 0 else low_rank_bytes(capacity, min(self.rank, capacity))

    def _free_noise(self) -> float:
        """The learned part of the initial noise std: noise^2 = floor^2 + free^2."""
        if self.hyperparameters == "fixed":
            return self.noise_std
        return (self.noise_std**2 - self.noise_floor**2) ** 0.5

    def _values(self, params: GPParams) -> tuple[Array, Array, Array]:
        """Length-scales, signal std and noise std."""
        floor = 0.0 if self.hyperparameters == "fixed" else self.noise_floor
        noise = jnp.sqrt(floor**2 + jnp.exp(2 * params.log_noise))
        return jnp.exp(params.log_lengthscales), jnp.exp(params.log_signal), noise

    def _normalisers(self, data: Data) -> tuple[Normaliser, Normaliser]:
        fixed = self.hyperparameters == "fixed"
        inputs, targets = (Normaliser.given(scales) if scales else None for scales in (self.input_scales, self.target_scales))
        if inputs is None:
            inputs = Normaliser.identity(data.inputs().shape[1]) if fixed else Normaliser.of_inputs(data)
        if self.kernel.stationary:  # predictions do not depend on the shift, but rounding errors do
            inputs = Normaliser(Normaliser.of_inputs(data).shift, inputs.scale)
        if targets is None:
            targets = Normaliser.identity(data.targets().shape[1]) if fixed else Normaliser.of_targets(data)
        return inputs, targets

    def log_marginal_likelihood(
        self, params: GPParams, points: Float[Array, "n d"], y: Float[Array, " n"], mask: Bool[Array, " n"]
    ) -> Float[Array, ""]:
        """Log marginal likelihood log p(y | points) of one output.

        Args:
            params: Hyper-parameters of the output.
            points: Normalised inputs.
            y: Normalised targets.
            mask: True for the rows that are used.
        """
        lengthscales, signal_std, noise_std = self._values(params)
        scaled = kernel_points(points, lengthscales, signal_std, self._affine)
        covariance = jnp.where(mask[:, None] & mask[None, :], signal_std**2 * self._whole_kernel.cross(scaled, scaled), 0.0)
        covariance = plus_diagonal(covariance, jnp.where(mask, noise_std**2, 1.0))
        # unused rows are independent standard normals observed at 0: take their density out again
        empty = jnp.sum(~mask) * 0.5 * jnp.log(2 * jnp.pi)
        return gaussian_log_density(covariance, jnp.where(mask, y, 0.0)) + empty

    def log_prior(self, params: GPParams) -> Float[Array, ""]:
        """Log prior density of one output's hyper-parameters, up to a constant.

        Args:
            params: Hyper-parameters of the output.
        """
        (lengthscale, spread), (signal, signal_spread) = self.lengthscale_prior, self.signal_prior
        off = jnp.sum(((params.log_lengthscales - jnp.log(lengthscale)) / spread) ** 2)
        off += ((params.log_signal - jnp.log(signal)) / signal_spread) ** 2
        return -0.5 * off

    def _loss(self, params: GPParams, points: Array, y: Array, mask: Array) -> Float[Array, ""]:
        return -self.log_prior(params) - self.log_marginal_likelihood(params, points, y, mask)

    def _maximise(self, params: GPParams, points: Array, y: Array, mask: Array) -> GPParams:
        """Fit one output until the gradient vanishes.

        With many points, the starting points compete on a part of them, and the winner goes on with all.
        """
        flat, unravel = ravel_pytree(params)
        starts = jnp.stack([flat, *(ravel_pytree(start)[0] for start in self._starts(params))])

        def fit(start: Array, rows: Array) -> tuple[Array, Array]:
            loss = lambda flat: self._loss(unravel(flat), points[rows], y[rows], mask[rows])
            return minimise(loss, start, self.steps, GRADIENT_TOLERANCE)

        count = points.shape[0]
        few = min(count, COMPETITION)
        found, losses = jax.lax.map(lambda start: fit(start, jnp.arange(few) * count // few), starts)
        best = found[jnp.argmin(losses)]
        found = unravel(best if few == count else fit(best, jnp.arange(count))[0])
        # far below the floor the learned noise has no gradient, and would take many steps to come back
        return replace(found, log_noise=jnp.maximum(found.log_noise, jnp.log(0.1 * self.noise_floor)))

    def _starts(self, params: GPParams) -> list[GPParams]:
        """Starting points beside the last fit: a smooth function with little noise, a rough one, and mostly noise."""
        (lengthscale, _), (signal, _) = self.lengthscale_prior, self.signal_prior
        like = lambda scale, noise: GPParams(
            jnp.full_like(params.log_lengthscales, jnp.log(scale * lengthscale)),
            jnp.full_like(params.log_signal, jnp.log(signal)),
            jnp.full_like(params.log_noise, jnp.log(noise)),
        )
        return [like(1.0, self._free_noise()), like(0.2, self._free_noise()), like(1.0, 0.5)]

    def _ascend(self, params: GPParams, points, y, mask) -> GPParams:
        """Fit one output by some steps of Adam."""
        loss = functools.partial(self._loss, points=points, y=y, mask=mask)
        limit = optax.clip_by_global_norm(self.gradient_limit) if self.gradient_limit else optax.identity()
        optimiser = optax.chain(limit, optax.adam(self.learning_rate))
        # optax types its pytrees as nested containers of arrays, which does not include equinox modules
        start: Any = params

        def step(carry, _):
            p, state = carry
            updates, state = optimiser.update(jax.grad(loss)(p), state)
            p = cast(GPParams, optax.apply_updates(p, updates))
            # far below the floor the learned noise has no gradient, and would take many steps to come back
            log_noise = jnp.maximum(p.log_noise, jnp.log(0.1 * self.noise_floor))
            return (GPParams(p.log_lengthscales, p.log_signal, log_noise), state), None

        (params, _), _ = jax.lax.scan(step, (start, optimiser.init(start)), length=self.steps)
        return params
