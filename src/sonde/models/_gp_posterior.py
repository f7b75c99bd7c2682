"""The posterior of independent Gaussian processes, in the form that a planner queries.

For one output with unit-signal kernel k and centres c (all data points, or a few inducing points among them):

    mean(z)     = k(z, c) w
    variance(z) = signal^2 (k(z, z) - |k(z, c) F|^2)

so a query is one kernel row and one matrix product. F is determined up to an orthogonal matrix; the upper triangular one halves
the work. `exact` takes all data points as centres. `low_rank` takes a few, chosen by `_low_rank` until they explain the others
to a tolerance, and puts the information of all data into w and F (the mean of the subset of regressors with the variance of the
projected process). Their number, and so the cost of a query, depends on how smooth the function is and hardly on the number of
data points.
"""

import functools
from collections.abc import Sequence
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from sonde._internal.errors import SondeError
from sonde._internal.platforms import by_platform
from sonde._internal.precision import double_precision
from sonde.models._base import UNROLL, JacobianPrediction, Posterior, Prediction
from sonde.models._kernels import Kernel, affine_features
from sonde.models._linalg import largest_of_all, plus_diagonal, safe_cholesky, safe_lower_cholesky, triangular_inverse
from sonde.models._low_rank import BLOCK, choose
from sonde.models._normaliser import Normaliser

SIZES = (64, 128, 192, 256, 320, 384, 480, 576, 704)
"""Numbers of centres for which a query is compiled on a CPU; it uses the smallest that includes all centres in use."""
TRUNCATED_SIZES = (64, 128, 256, 384, 512, 640, 768)
"""Numbers of centres on an accelerator, where one is compiled in per output: few, so that it seldom changes."""
FEWEST_COLUMNS, MOST_GROUPS = 64, 5
"""A query skips the zeros of F by groups of columns; narrower groups multiply slowly, more groups compile slowly."""
FEWEST_ROWS = 256  # factorisations of fewer rows cost too little to compile a smaller program for them
SMALLEST_VARIANCE = 1e-30  # of a prediction; positive, because the square root has no gradient at 0
SMALLEST_FRACTION = 1e-10  # of a direction's posterior variance, taken as explained too, so that a Cholesky factor exists


class Centres(eqx.Module):
    """One output's posterior in the form above."""

    points: Float[Array, "m d"]
    """Centres c, as points of the kernel (`kernel_points`)."""
    weights: Float[Array, " m"]
    """Weights w."""
    factor: Float[Array, "m m"]
    """Factor F, upper triangular."""
    used: Int[Array, ""]
    """Number of centres in use, which come first; the weights, rows and columns of the others are zero."""
    kept: Bool[Array, ""]
    """Whether mean and std are known to be within the tolerance of the exact ones."""


def prefix_sizes(largest: int, smallest: int, factor: int = 2) -> list[int]:
    """Numbers of rows for which a program is compiled: the largest, and fractions of it that are not below the smallest.

    Args:
        largest: The largest number.
        smallest: No number but the largest is below this one.
        factor: Ratio of each number to the next smaller one.

    Returns:
        The numbers, the smallest first.
    """
    sizes = [largest]
    while sizes[0] // factor >= smallest:
        sizes.insert(0, sizes[0] // factor)
    return sizes


def kernel_points(
    points: Float[Array, "n dz"], lengthscales: Float[Array, " dz"], signal_std: Float[Array, ""], affine_std: float
) -> Float[Array, "n d"]:
    """The points at which the kernel of one output is evaluated.

    Args:
        points: Normalised inputs.
        lengthscales: Length-scales.
        signal_std: Std of the functions.
        affine_std: Std of the coefficients of an affine part; 0 for no such part.
    """
    return affine_features(points, lengthscales, affine_std / signal_std) if affine_std else points / lengthscales


def exact(
    kernel: Kernel, points: Float[Array, "n d"], y: Float[Array, " n"], mask: Bool[Array, " n"], ratio: Float[Array, ""]
) -> Centres:
    """Exact posterior of one output: all data points are centres.

    Args:
        kernel: Covariance function.
        points: Inputs, divided by the length-scales.
        y: Targets, in units of the signal std, as is the mean.
        mask: True for the rows that are used.
        ratio: Noise variance over signal variance.
    """
    both = mask[:, None] & mask[None, :]
    # an unused row becomes an independent variable of variance 1, without effect on the others
    covariance = jnp.where(both, kernel.cross(points, points), 0.0)
    _, factor = safe_cholesky(plus_diagonal(covariance, jnp.where(mask, ratio, 1.0)))
    factor = jnp.where(both, factor, 0.0)
    weights = factor @ (jnp.where(mask, y, 0.0) @ factor)
    return Centres(points, weights, factor, jnp.asarray(points.shape[0]), jnp.asarray(True))


def low_rank(
    kernel: Kernel,
    points: Float[Array, "n d"],
    y: Float[Array, " n"],
    mask: Bool[Array, " n"],
    ratio: Float[Array, ""],
    rank: int,
    tolerance: float,
) -> Centres:
    """Low-rank posterior of one output: at most `rank` data points are centres. The cost is of order n rank^2.

    Args:
        kernel: Covariance function.
        points: Inputs, divided by the length-scales.
        y: Targets, in units of the signal std, as is the mean.
        mask: True for the rows that are used.
        ratio: Noise variance over signal variance.
        rank: Largest number of centres.
        tolerance: How far from the exact posterior it may be: see `choose`.
    """
    # one compiled program for all amounts of data, with a branch for each size
    sizes = prefix_sizes(points.shape[0], FEWEST_ROWS, 4)  # each takes a second to compile
    filled = largest_of_all(jnp.max(jnp.where(mask, jnp.arange(1, mask.shape[0] + 1), 0)))
    of_first = lambda rows: choose(kernel, points[:rows], y[:rows], mask[:rows], ratio, rank, tolerance)
    branches = [functools.partial(of_first, size) for size in sizes]
    chosen = jax.lax.switch(jnp.searchsorted(jnp.asarray(sizes), filled), branches)
    real = jnp.arange(rank) < chosen.used
    among_real = lambda matrix: jnp.where(real[:, None] & real[None, :], matrix, jnp.eye(rank, dtype=points.dtype))
    # K at the centres is L L^T, and K(centres, data) = L G: the whitened features of the data are the columns of G. One after
    # the other, both inverses share compiled code
    unwhiten, upper = jax.lax.map(
        lambda lower: triangular_inverse(lower).T, jnp.stack([among_real(chosen.corner.T), chosen.precision])
    )
    unwhiten = jnp.where(real[:, None], unwhiten, 0.0)
    explained = among_real(plus_diagonal((SMALLEST_FRACTION - 1) * (upper @ upper.T), 1.0))
    # a Cholesky factor from the last centre to the first is upper triangular, as is `unwhiten`
    root = safe_lower_cholesky(explained[::-1, ::-1])[::-1, ::-1]
    return Centres(points[chosen.pivots], unwhiten @ chosen.weights, unwhiten @ root, chosen.used, chosen.kept)


def exact_bytes(rows: int) -> int:
    """Working memory of `exact`, with its result.

    Args:
        rows: Number of data points n.
    """
    return 40 * rows**2


def low_rank_bytes(rows: int, rank: int) -> int:
    """Working memory of `low_rank`, with its result.

    Args:
        rows: Number of data points n.
        rank: Largest number of centres.
    """
    block = min(rows, BLOCK)
    return 8 * ((rank + 36) * rows + 6 * rank**2 + block**2)  # 36: scaled inputs, residuals, columns of the kernel


def _plain_mean(query: tuple[Array, ...], kernel: Kernel) -> Float[Array, ""]:
    """Mean of one output in normalised units; `query` is a scaled point, centres and weights."""
    point, points, weights = query
    return kernel.cross(point, points)[0] @ weights


_mean = eqx.filter_custom_jvp(_plain_mean)
"""The same; its gradient is computed in the forward pass, and is all that the backward pass along a plan has to store."""


@_mean.def_jvp
def _mean_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    (query, kernel), (moves, _) = primals, tangents
    mean, gradients = jax.value_and_grad(_plain_mean)(query, kernel)
    terms = [jnp.vdot(gradient, move) for gradient, move in zip(gradients, moves, strict=True) if move is not None]
    return mean, sum(terms, jnp.zeros_like(mean))


class GPPosterior(Posterior):
    """One Gaussian process per output of x' - x."""

    inputs: Normaliser
    targets: Normaliser
    lengthscales: Float[Array, "*seeds dx dz"]
    """Length-scales of the normalised inputs."""
    signal_std: Float[Array, "*seeds dx"]
    """Std of the functions, in units of the normalised targets."""
    noise_std: Float[Array, "*seeds dx"]
    """Std of the measurement noise, in the same units."""
    centres: Centres
    """Centres of each output: a leading axis dx, and before it one of seeds if there are several."""
    kernel: Kernel = eqx.field(static=True)
    affine_std: float = eqx.field(static=True, default=0.0)
    """Prior std of the coefficients of the affine part, in normalised units; 0 for no such part."""
    sizes: tuple[int, ...] = eqx.field(static=True, default=())
    """Number of centres that a query uses for each output; if empty, a CPU chooses in each query, which has no gradient."""
    unroll: int = eqx.field(static=True, default=1)
    """Steps of a plan that are compiled in a row."""

    def predict(self, x: Float[Array, " dx"], u: Float[Array, " du"]) -> Prediction:
        """Predict the next state from the posterior of its change."""
        z = self.inputs(jnp.concatenate([x, u]))
        mean, variance = self._query_truncated(z) if self.sizes else self._query(z)
        return Prediction(
            mean=x + self.targets.shift + self.targets.scale * mean,
            epistemic_std=self.targets.scale * self.signal_std * jnp.sqrt(variance),
            aleatoric_std=self.targets.scale * self.noise_std,
        )

    def features(self, z: Float[Array, " dz"], output: int | Int[Array, ""]) -> Float[Array, "1 d"]:
        """The point at which the kernel of an output is evaluated.

        Args:
            z: Normalised input.
            output: Number of the state dimension.
        """
        return kernel_points(z[None], self.lengthscales[output], self.signal_std[output], self.affine_std)

    def _query(self, z: Float[Array, " dz"]) -> tuple[Float[Array, " dx"], Float[Array, " dx"]]:
        """Mean and variance (for unit signal) of all outputs, in normalised units."""
        outputs, used = jnp.arange(self.signal_std.shape[0]), largest_of_all(self.centres.used)
        return by_platform(
            z,
            used,
            # one output after the other: they share compiled code, and plain products are faster than batched ones
            cpu=lambda z, used: jax.lax.map(lambda output: self._query_by_size(z, output, used[output]), outputs),
            default=lambda z, _: jax.vmap(lambda output, centres: self._query_all(self.features(z, output), centres))(
                outputs, self.centres
            ),
        )

    def _query_truncated(self, z: Float[Array, " dz"]) -> tuple[Float[Array, " dx"], Float[Array, " dx"]]:
        """The same with a fixed number of centres for each output."""

        def each(z: Array) -> tuple[Array, ...]:
            # in one group: here a product with the zeros takes no longer than several smaller ones
            found = [self._query_first(size, 1, z, output) for output, size in enumerate(self.sizes)]
            return tuple(jnp.stack(values) for values in zip(*found, strict=True))

        def in_turn(z: Array) -> tuple[Array, ...]:
            """The same, where outputs of one size share compiled code; a CPU comes here only for gradients."""
            sizes, one = np.asarray(self.sizes), functools.partial(self._query_first, with_gradient=True)
            alike = {int(size): np.flatnonzero(sizes == size) for size in np.unique(sizes)}
            found = [
                jax.lax.map(functools.partial(one, size, MOST_GROUPS - 1, z), jnp.asarray(outputs))
                for size, outputs in alike.items()
            ]
            order = np.argsort(np.concatenate(list(alike.values())))
            return tuple(jnp.concatenate(values)[order] for values in zip(*found, strict=True))

        return by_platform(z, cpu=in_turn, default=each)

    def warning(self) -> str | None:
        """Whether the low-rank posterior of some output may be further from the exact one than the tolerance."""
        kept, full = np.asarray(self.centres.kept), np.asarray(self.centres.used) >= self.centres.points.shape[-2]
        if kept.all():
            return None
        if np.any(full & ~kept):
            most = self.centres.points.shape[-2]
            why = f"{most} inducing points are too few for these data; raise rank, or set it to 0 for the exact posterior"
        else:
            why = "the noise std is too small for double precision; raise noise_std or noise_floor"
        return f"model: the low-rank posterior is not within its tolerance of the exact one: {why}"

    def specialise(self) -> "GPPosterior":
        """On an accelerator, `truncate`: there a larger product is faster than a branch."""
        if all(device.platform == "cpu" for device in self.centres.points.devices()):
            return self
        return replace(self.truncate(), unroll=UNROLL)

    def differentiable(self) -> "GPPosterior":
        """`truncate`: the gradient of a branch would store what every branch needs."""
        return self.truncate(range(FEWEST_COLUMNS, self.centres.points.shape[-2], FEWEST_COLUMNS // 2))

    @double_precision
    def truncate(self, allowed: Sequence[int] = TRUNCATED_SIZES) -> "GPPosterior":
        """Fix the number of centres of each output, and drop the unused ones beyond it.

        Programs are compiled again when one of these numbers changes.

        Args:
            allowed: Numbers to choose from: the smallest that includes all centres in use for any seed.
        """
        most = self.centres.points.shape[-2]
        used = jnp.max(self.centres.used.reshape(-1, self.centres.used.shape[-1]), axis=0)
        sizes = tuple(min((size for size in allowed if int(number) <= size < most), default=most) for number in used)
        largest = max(sizes)
        large = lambda posterior: (posterior.centres.points, posterior.centres.weights, posterior.centres.factor)
        points, weights, factor = large(self)
        shorter = points[..., :largest, :], weights[..., :largest], factor[..., :largest, :largest]
        return replace(eqx.tree_at(large, self, shorter), sizes=sizes)

    def _query_all(self, point: Float[Array, "1 d"], centres: Centres) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Mean and variance (for unit signal) of one output from all centres; unused ones are zero."""
        kernel = self.kernel
        row = kernel.cross(point, centres.points)[0]
        explained = row @ centres.factor
        # close to data, rounding may make the variance zero or negative
        return row @ centres.weights, jnp.maximum(kernel.diagonal(point)[0] - explained @ explained, SMALLEST_VARIANCE)

    def _query_by_size(
        self, z: Float[Array, " dz"], output: Int[Array, ""], used: Int[Array, ""]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The same from about as many centres as are in use, skipping the zeros of F."""
        most = self.centres.points.shape[1]
        # each size takes time to compile: leave out those that save little against the largest
        sizes = [size for size in SIZES if size < 0.8 * most] + [most]
        branches = [functools.partial(self._query_first, size, MOST_GROUPS, output=output) for size in sizes]
        return jax.lax.switch(jnp.searchsorted(jnp.asarray(sizes), used), branches, z)

    def _query_first(
        self, size: int, groups: int, z: Float[Array, " dz"], output: int | Int[Array, ""], with_gradient: bool = False
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The same from the first `size` centres; `with_gradient` makes the gradient of the mean cheaper."""
        kernel, centres, point = self.kernel, self.centres, self.features(z, output)
        points, weights = centres.points[output, :size], centres.weights[output, :size]
        row, variance = kernel.cross(point, points)[0], kernel.diagonal(point)[0]
        width = max(FEWEST_COLUMNS, -(-size // groups))
        for start in range(0, size, width):
            stop = min(start + width, size)
            # rows beyond a group's last column are zero in it
            columns = jax.lax.dynamic_slice(centres.factor, (output, 0, start), (1, stop, stop - start))[0]
            explained = row[:stop] @ columns
            variance -= explained @ explained
        # `_mean` computes the kernel row a second time: the compiler does not see that it is the same
        mean = _mean((point, points, weights), kernel) if with_gradient else row @ weights
        return mean, jnp.maximum(variance, SMALLEST_VARIANCE)

    def predict_jacobian(
        self, x: Float[Array, " dx"], u: Float[Array, " du"], key: Key[Array, ""], count: int
    ) -> JacobianPrediction:
        """Predict the Jacobian in closed form: the derivative of a Gaussian process is a Gaussian process.

        With the derivative k'(z, c) of the kernel row and the prior variance v of a slope (`slope_variance`, and that of an
        affine part): mean(f') = k'(z, c) w and covariance(f') = signal^2 (v I - k'(z, c) F F^T k'(z, c)^T).
        """
        kernel = self.kernel
        if (slope_variance := kernel.slope_variance) is None:
            raise SondeError(
                f"the kernel {kernel!r} does not say how its samples' derivatives vary; "
                "implement its slope_variance, or use another kernel, for example rbf"
            )
        z = self.inputs(jnp.concatenate([x, u]))

        def one_output(output: Array, centres: Centres, key: Array):
            row = lambda z: kernel.cross(self.features(z, output), centres.points)[0]
            slopes = jax.jacfwd(row)(z).T / self.inputs.scale[:, None]
            explained = slopes @ centres.factor
            scale, signal_std = self.targets.scale[output], self.signal_std[output]
            slope = slope_variance / self.lengthscales[output] ** 2 + (self.affine_std / signal_std) ** 2
            covariance = (scale * signal_std) ** 2 * (jnp.diag(slope / self.inputs.scale**2) - explained @ explained.T)
            variances, directions = jnp.linalg.eigh(covariance)
            # close to data, rounding may make a variance slightly negative
            root = directions * jnp.sqrt(jnp.maximum(variances, 0.0))
            mean, std = scale * (slopes @ centres.weights), jnp.sqrt(jnp.sum(root**2, axis=1))
            return mean, std, mean + jax.random.normal(key, (count, z.shape[0])) @ root.T

        outputs = x.shape[0]
        keys = jax.random.split(key, outputs)
        mean, std, samples = jax.vmap(one_output)(jnp.arange(outputs), self.centres, keys)
        # the process models the change x' - x: add the derivative of x
        unchanged = jnp.eye(outputs, z.shape[0])
        return JacobianPrediction(unchanged + mean, std, unchanged + jnp.swapaxes(samples, 0, 1))
