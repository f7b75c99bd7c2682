"""The posterior of independent Gaussian processes, in the form that a planner queries.

For one output with unit-signal kernel k, noise-to-signal ratio lambda, and centres c (all data, or a few of them):

    mean(z)     = k(z, c) w
    variance(z) = signal^2 (k(z, z) - |k(z, c) F|^2)

so a query is one kernel row and one matrix product, whatever stands behind w and F. F times any orthogonal matrix serves too;
one such product is upper triangular: half of the work falls away. `exact` takes all data as centres. `low_rank` takes a few,
chosen greedily by pivoted Cholesky until they explain the rest to a tolerance, and folds what the other data say about those
into w and F (the mean of the subset of regressors with the variance of the projected process). How many it takes depends on how
smooth the function is, hardly on how many data there are, and so does the price of a query.
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
from sonde.models._base import JacobianPrediction, Posterior, Prediction
from sonde.models._kernels import Kernel
from sonde.models._linalg import largest_of_all, pivoted_cholesky, safe_cholesky, triangular_inverse
from sonde.models._normaliser import Normaliser

SIZES = (64, 128, 192, 256, 320, 384, 480, 576, 704)
"""On a CPU a query looks at the first so many centres: the fewest that hold all in use. Compiled once, for all of these."""
CUTS = (64, 128, 256, 384, 512, 768)
"""On an accelerator too, but there an output's number is compiled in: few, so that it seldom changes, and divisible."""
FEWEST_COLUMNS, MOST_GROUPS = 64, 5
"""And it skips the zeros of F by groups of columns. Narrower ones would be slow products, more of them slow to compile."""
SMALLEST_VARIANCE = 1e-30  # of a prediction: positive, since the root of zero has no slope to follow
SMALLEST_SHARE = 1e-10  # of a direction's variance that data explain: positive, so that there is a Cholesky factor


class Centres(eqx.Module):
    """One output's posterior in the form above: centres c (divided by the length-scales), weights w, factor F."""

    points: Float[Array, "m d"]
    weights: Float[Array, " m"]
    factor: Float[Array, "m m"]
    """Upper triangular."""
    used: Int[Array, ""]
    """How many of the m centres count; the weights, rows and columns of the others are zero."""


def exact(
    kernel: Kernel, points: Float[Array, "n d"], y: Float[Array, " n"], mask: Bool[Array, " n"], ratio: Float[Array, ""]
) -> Centres:
    """All data as centres; `ratio` is the noise variance over the signal variance."""
    both = mask[:, None] & mask[None, :]
    identity = jnp.eye(points.shape[0], dtype=points.dtype)
    # an empty row becomes an independent unknown of variance 1: it touches nothing else
    _, factor = safe_cholesky(jnp.where(both, kernel.cross(points, points) + ratio * identity, identity))
    factor = jnp.where(both, factor, 0.0)
    weights = factor @ (jnp.where(mask, y, 0.0) @ factor)
    return Centres(points, weights, factor, jnp.asarray(points.shape[0]))


def low_rank(
    kernel: Kernel,
    points: Float[Array, "n d"],
    y: Float[Array, " n"],
    mask: Bool[Array, " n"],
    ratio: Float[Array, ""],
    rank: int,
    tolerance: float,
) -> Centres:
    """At most `rank` of the data as centres, fewer if what they leave to explain is `tolerance` times the noise std or less.

    The price is n * rank^2, so 20,000 points are no matter. What stands behind the centres in use is zero.
    """
    diagonal = kernel.diagonal(points)
    pivots, wide, used = pivoted_cholesky(
        lambda i: kernel.cross(points, points[i][None])[:, 0], diagonal, mask, rank, tolerance * jnp.sqrt(ratio)
    )
    real = jnp.arange(rank) < used
    among_real = lambda matrix: jnp.where(real[:, None] & real[None, :], matrix, jnp.eye(rank, dtype=points.dtype))
    # K at the centres is L L^T, and K(centres, data) = L wide: the whitened features of the data are the columns of `wide`
    unwhiten = jnp.where(real[:, None], triangular_inverse(among_real(wide[:, pivots].T)).T, 0.0)
    strength, basis = jnp.linalg.eigh(wide @ wide.T)
    strength = jnp.maximum(strength, 0.0)
    whitened_weights = basis @ ((basis.T @ (wide @ jnp.where(mask, y, 0.0))) / (strength + ratio))
    explained = among_real((basis * jnp.maximum(strength / (strength + ratio), SMALLEST_SHARE)) @ basis.T)
    # a Cholesky factor from the last centre to the first is upper triangular, as is what it is multiplied with
    root = jax.lax.linalg.cholesky(explained[::-1, ::-1], symmetrize_input=False)[::-1, ::-1]
    return Centres(points[pivots], unwhiten @ whitened_weights, unwhiten @ root, used)


def _plain_mean(query: tuple[Array, ...], kernel: Kernel) -> Float[Array, ""]:
    """The mean of one output, of unit scale; `query` is a point in its length-scales, centres and weights."""
    point, points, weights = query
    return kernel.cross(point, points)[0] @ weights


_mean = eqx.filter_custom_jvp(_plain_mean)
"""The same; its slope is found on the way, and is all that has to be kept to come back along a plan."""


@_mean.def_jvp
def _mean_and_move(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    (query, kernel), (moves, _) = primals, tangents
    mean, slopes = jax.value_and_grad(_plain_mean)(query, kernel)
    moved = [jnp.vdot(slope, move) for slope, move in zip(slopes, moves, strict=True) if move is not None]
    return mean, sum(moved, jnp.zeros_like(mean))


class GPPosterior(Posterior):
    """One Gaussian process per output of x' - x. Leading axis of the arrays: the output; before it, the run, if several."""

    inputs: Normaliser
    targets: Normaliser
    lengthscales: Float[Array, "*seeds dx dz"]
    signal_std: Float[Array, "*seeds dx"]
    noise_std: Float[Array, "*seeds dx"]
    centres: Centres
    kernel: Kernel = eqx.field(static=True)
    sizes: tuple[int, ...] = eqx.field(static=True, default=())
    """Of each output, how many centres a query looks at; if empty, a CPU chooses in every query, which serves no gradients."""

    def predict(self, x: Float[Array, " dx"], u: Float[Array, " du"]) -> Prediction:
        """Mean, epistemic std and noise of the next state."""
        z = self.inputs(jnp.concatenate([x, u]))
        mean, variance = self._query_cut(z) if self.sizes else self._query(z)
        return Prediction(
            mean=x + self.targets.shift + self.targets.scale * mean,
            epistemic_std=self.targets.scale * self.signal_std * jnp.sqrt(variance),
            aleatoric_std=self.targets.scale * self.noise_std,
        )

    def _query(self, z: Float[Array, " dz"]) -> tuple[Float[Array, " dx"], Float[Array, " dx"]]:
        """Mean and variance (of unit signal) of all outputs, in normalised units."""
        outputs, used = jnp.arange(self.signal_std.shape[0]), largest_of_all(self.centres.used)
        return jax.lax.platform_dependent(
            z,
            used,
            # one after the other: they share what is compiled, and plain products are faster than batches of them
            cpu=lambda z, used: jax.lax.map(lambda output: self._query_in_parts(z, output, used[output]), outputs),
            default=lambda z, _: jax.vmap(self._query_at_once, in_axes=(None, 0, 0))(z, self.lengthscales, self.centres),
        )

    def _query_cut(self, z: Float[Array, " dz"]) -> tuple[Float[Array, " dx"], Float[Array, " dx"]]:
        """The same with a fixed number of centres for each output."""

        def each(z: Array) -> tuple[Array, ...]:
            found = [self._from_first(size, MOST_GROUPS - 1, z, output) for output, size in enumerate(self.sizes)]
            return tuple(jnp.stack(values) for values in zip(*found, strict=True))

        def in_turn(z: Array) -> tuple[Array, ...]:
            """The same, where those of one size share what is compiled. A CPU asks for this only on the way to slopes."""
            sizes, one = np.asarray(self.sizes), functools.partial(self._from_first, slopes=True)
            alike = {int(size): np.flatnonzero(sizes == size) for size in np.unique(sizes)}
            found = [
                jax.lax.map(functools.partial(one, size, MOST_GROUPS - 1, z), jnp.asarray(outputs))
                for size, outputs in alike.items()
            ]
            order = np.argsort(np.concatenate(list(alike.values())))
            return tuple(jnp.concatenate(values)[order] for values in zip(*found, strict=True))

        return jax.lax.platform_dependent(z, cpu=in_turn, default=each)

    def specialise(self) -> "GPPosterior":
        """On an accelerator, `cut`: it multiplies faster than it branches."""
        if all(device.platform == "cpu" for device in self.centres.points.devices()):
            return self
        return self.cut()

    def differentiable(self) -> "GPPosterior":
        """Cut: a gradient would keep what every branch needs."""
        return self.cut(range(FEWEST_COLUMNS, self.centres.points.shape[-2], FEWEST_COLUMNS // 2))

    def cut(self, cuts: Sequence[int] = CUTS) -> "GPPosterior":
        """The same, with a fixed number of centres for each output: the fewest of `cuts` that hold all in use in any run.

        Programs are compiled again when one of these numbers changes.
        """
        most = self.centres.points.shape[-2]
        used = jnp.max(self.centres.used.reshape(-1, self.centres.used.shape[-1]), axis=0)
        sizes = tuple(min((size for size in cuts if int(number) <= size < most), default=most) for number in used)
        largest = max(sizes)
        large = lambda posterior: (posterior.centres.points, posterior.centres.weights, posterior.centres.factor)
        points, weights, factor = large(self)
        cut = eqx.tree_at(large, self, (points[..., :largest, :], weights[..., :largest], factor[..., :largest, :largest]))
        return replace(cut, sizes=sizes)

    def _query_at_once(
        self, z: Float[Array, " dz"], lengthscales: Float[Array, " dz"], centres: Centres
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Mean and variance (of unit signal) of one output, in normalised units; what is not in use is zero."""
        kernel, point = self.kernel, (z / lengthscales)[None]
        row = kernel.cross(point, centres.points)[0]
        explained = row @ centres.factor
        # rounding may leave a variance at zero or below where the data pin the function down
        return row @ centres.weights, jnp.maximum(kernel.diagonal(point)[0] - explained @ explained, SMALLEST_VARIANCE)

    def _query_in_parts(
        self, z: Float[Array, " dz"], output: Int[Array, ""], used: Int[Array, ""]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The same from no more centres than are in use, without the zeros of F."""
        most = self.centres.points.shape[1]
        # each size takes time to compile: none that saves little against the largest
        sizes = [size for size in SIZES if size < 0.8 * most] + [most]
        branches = [functools.partial(self._from_first, size, MOST_GROUPS, output=output) for size in sizes]
        return jax.lax.switch(jnp.searchsorted(jnp.asarray(sizes), used), branches, z)

    def _from_first(
        self, size: int, groups: int, z: Float[Array, " dz"], output: int | Int[Array, ""], slopes: bool = False
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Of one output, from the first `size` centres. Where `slopes` will be wanted, they are cheaper found on the way."""
        kernel, centres, point = self.kernel, self.centres, (z / self.lengthscales[output])[None]
        points, weights = centres.points[output, :size], centres.weights[output, :size]
        row, variance = kernel.cross(point, points)[0], kernel.diagonal(point)[0]
        width = max(FEWEST_COLUMNS, -(-size // groups))
        for start in range(0, size, width):
            stop = min(start + width, size)
            # rows behind the last column of a group are zero in it
            columns = jax.lax.dynamic_slice(centres.factor, (output, 0, start), (1, stop, stop - start))[0]
            explained = row[:stop] @ columns
            variance -= explained @ explained
        # two rows are computed for the former: they are not seen to be the same
        mean = _mean((point, points, weights), kernel) if slopes else row @ weights
        return mean, jnp.maximum(variance, SMALLEST_VARIANCE)

    def predict_jacobian(
        self, x: Float[Array, " dx"], u: Float[Array, " du"], key: Key[Array, ""], count: int
    ) -> JacobianPrediction:
        """Closed form, since the derivative of a Gaussian process is one.

        With slopes k'(z, c) of the kernel row and the kernel's prior slope variance v: mean(f') = k'(z, c) w and
        covariance(f') = signal^2 (v I - k'(z, c) F F^T k'(z, c)^T).
        """
        kernel = self.kernel
        if (slope_variance := kernel.slope_variance) is None:
            raise SondeError(f"functions under the kernel {kernel!r} have no derivative; use rbf, for example")
        z = self.inputs(jnp.concatenate([x, u]))

        def one_output(lengthscales: Array, centres: Centres, signal_std: Array, scale: Array, key: Array):
            row = lambda point: kernel.cross(point[None], centres.points)[0]
            slopes = jax.jacfwd(row)(z / lengthscales).T / (lengthscales * self.inputs.scale)[:, None]
            explained = slopes @ centres.factor
            prior = jnp.diag(slope_variance / (lengthscales * self.inputs.scale) ** 2)
            covariance = (scale * signal_std) ** 2 * (prior - explained @ explained.T)
            variances, directions = jnp.linalg.eigh(covariance)
            # rounding may leave a variance just below zero where the data pin the slope down
            root = directions * jnp.sqrt(jnp.maximum(variances, 0.0))
            mean, std = scale * (slopes @ centres.weights), jnp.sqrt(jnp.sum(root**2, axis=1))
            return mean, std, mean + jax.random.normal(key, (count, z.shape[0])) @ root.T

        outputs = x.shape[0]
        keys = jax.random.split(key, outputs)
        mean, std, samples = jax.vmap(one_output)(self.lengthscales, self.centres, self.signal_std, self.targets.scale, keys)
        # the process is that of the change: x itself comes on top
        unchanged = jnp.eye(outputs, z.shape[0])
        return JacobianPrediction(unchanged + mean, std, unchanged + jnp.swapaxes(samples, 0, 1))
