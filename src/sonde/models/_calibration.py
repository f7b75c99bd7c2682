"""Recalibration on measurements that a model has not seen, so that its intervals hold what they promise (Kuleshov et al. 2018).

A model is calibrated if of its 90 % intervals nine in ten hold the truth, and so for every level. Two factors per output
dimension see to that: alpha on the epistemic std, gamma on the aleatoric one. Coverage alone could not tell them apart. Noise
that is overestimated, as any floor on it is on a system without noise, would then be blamed on the epistemic std and shrink it
to nothing; noise that is right would hide an epistemic std that is far too small. Hence two steps:

1. rho = gamma / alpha, by held-out likelihood: which of the two explains where the large errors are?
2. alpha, by coverage: how wide must the intervals be?

Errors have heavier tails than a Gaussian, so one width cannot suit all levels. The wide intervals count: they say what is still
plausible, which is what optimism and caution ask for. The narrow ones then hold more than they promise.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erf
from jaxtyping import Array, Bool, Float, Int, Key

from sonde.data import Data
from sonde.models._base import JacobianPrediction, Posterior, Prediction

LEVELS = np.linspace(0.1, 0.9, 9)
"""Confidence levels at which promised and actual coverage are compared."""
FITTED_LEVELS = np.asarray([0.8, 0.9, 0.95])
"""Those at which alpha makes them agree."""
RATIOS = np.geomspace(0.1, 10.0, 41)
"""Values of rho that are tried; a standard normal prior on its logarithm decides where the data do not."""
WIDTHS = np.geomspace(0.05, 20.0, 161)
"""Values of alpha that are tried."""
ENOUGH = 10
"""With fewer held-out measurements than this, nothing is changed."""


class Factors(eqx.Module):
    """What to multiply the stds of each output with."""

    epistemic: Float[Array, "*seeds dx"]
    aleatoric: Float[Array, "*seeds dx"]

    def __call__(self, prediction: Prediction) -> Prediction:
        """The prediction, recalibrated."""
        return prediction.rescaled(self.epistemic, self.aleatoric)


class RecalibratedPosterior(Posterior):
    """A posterior with recalibrated stds."""

    posterior: Posterior
    factors: Factors

    def predict(self, x: Float[Array, " dx"], u: Float[Array, " du"]) -> Prediction:
        """The prediction, recalibrated."""
        return self.factors(self.posterior.predict(x, u))

    def specialise(self) -> "RecalibratedPosterior":
        """The settled posterior, recalibrated."""
        return RecalibratedPosterior(self.posterior.specialise(), self.factors)

    def differentiable(self) -> "RecalibratedPosterior":
        """The posterior with slopes, recalibrated."""
        return RecalibratedPosterior(self.posterior.differentiable(), self.factors)

    @property
    def ensemble_size(self) -> int:
        """That of the recalibrated posterior."""
        return self.posterior.ensemble_size

    def predict_jacobian(
        self, x: Float[Array, " dx"], u: Float[Array, " du"], key: Key[Array, ""], count: int
    ) -> JacobianPrediction:
        """The Jacobian, with rows as uncertain as the recalibrated outputs."""
        return self.posterior.predict_jacobian(x, u, key, count).rescaled(self.factors.epistemic)

    def member(self, index: Int[Array, ""]) -> Posterior:
        """A member on its own, with recalibrated noise."""
        return RecalibratedPosterior(self.posterior.member(index), self.factors)


class PosteriorWithBeta(Posterior):
    """A posterior that also says how wide the region is that holds the truth: beta, in epistemic stds, per output."""

    posterior: Posterior
    beta: Float[Array, "*seeds dx"]

    def predict(self, x: Float[Array, " dx"], u: Float[Array, " du"]) -> Prediction:
        """The prediction, with its beta."""
        prediction = self.posterior.predict(x, u)
        return Prediction(prediction.mean, prediction.epistemic_std, prediction.aleatoric_std, prediction.members, self.beta)

    def specialise(self) -> "PosteriorWithBeta":
        """The settled posterior, with its beta."""
        return PosteriorWithBeta(self.posterior.specialise(), self.beta)

    def differentiable(self) -> "PosteriorWithBeta":
        """The posterior with slopes, with its beta."""
        return PosteriorWithBeta(self.posterior.differentiable(), self.beta)

    @property
    def ensemble_size(self) -> int:
        """That of the posterior inside."""
        return self.posterior.ensemble_size

    def predict_jacobian(
        self, x: Float[Array, " dx"], u: Float[Array, " du"], key: Key[Array, ""], count: int
    ) -> JacobianPrediction:
        """The Jacobian; beta does not concern it."""
        return self.posterior.predict_jacobian(x, u, key, count)

    def member(self, index: Int[Array, ""]) -> Posterior:
        """A member on its own, with the beta of all."""
        return PosteriorWithBeta(self.posterior.member(index), self.beta)


class Calibration(eqx.Module):
    """The factors, and reliability on held-out measurements: the share of truths inside the interval, per level L and output.

    `after` is cross-fitted: each half of the held-out measurements is judged with the factors that the other half gives.
    """

    factors: Factors
    before: Float[Array, "*seeds L dx"]
    after: Float[Array, "*seeds L dx"]


def coverage(prediction: Prediction, truth: Float[Array, "N dx"], rows: Bool[Array, " N"]) -> Float[Array, "L dx"]:
    """Share of the truths of these rows that lie inside the interval of each level; NaN without any rows."""
    std = jnp.sqrt(prediction.epistemic_std**2 + prediction.aleatoric_std**2)
    return _coverage(jnp.abs(truth - prediction.mean) / std, rows, LEVELS)


def calibration_error(coverage: Float[Array, "*seeds L dx"]) -> Float[Array, "*seeds"]:
    """Mean over levels and outputs of |share of truths inside - level|: 0 is perfect, 0.5 the worst."""
    return jnp.mean(jnp.abs(coverage - jnp.asarray(LEVELS)[:, None]), axis=(-2, -1))


def best_factors(prediction: Prediction, truth: Float[Array, "N dx"], rows: Bool[Array, " N"], enough: int = ENOUGH) -> Factors:
    """The factors of the two steps above; of equally good widths, that nearest to 1. All are 1 if the rows are not `enough`."""
    count, these = jnp.maximum(jnp.sum(rows), 1), rows[:, None]
    squared_error = (truth - prediction.mean) ** 2

    def variance(ratio):
        return prediction.epistemic_std**2 + (ratio * prediction.aleatoric_std) ** 2

    def log_likelihood(ratio):
        """At the common width that suits the ratio best."""
        width = jnp.sum(squared_error / variance(ratio), axis=0, where=these) / count
        fit = jnp.sum(jnp.log(variance(ratio)), axis=0, where=these) + count * jnp.log(width)
        return -0.5 * (fit + jnp.log(ratio) ** 2)

    ratios = jnp.asarray(RATIOS)
    # an output that is predicted without any error says nothing of the ratio
    exact = jnp.sum(squared_error, axis=0, where=these) == 0
    ratio = jnp.where(exact, 1.0, ratios[jnp.argmax(jax.lax.map(log_likelihood, ratios), axis=0)])
    error_in_stds = jnp.sqrt(squared_error / variance(ratio))

    def miss(width):
        gaps = jnp.abs(_coverage(error_in_stds / width, rows, FITTED_LEVELS) - jnp.asarray(FITTED_LEVELS)[:, None])
        return jnp.mean(gaps, axis=0) + 1e-6 * jnp.abs(jnp.log(width))

    widths = jnp.asarray(WIDTHS)
    width = widths[jnp.argmin(jax.lax.map(miss, widths), axis=0)]
    known = jnp.sum(rows) >= enough
    return Factors(jnp.where(known, width, 1.0), jnp.where(known, width * ratio, 1.0))


def calibrate(posterior: Posterior, data: Data, held_out: Bool[Array, " capacity"]) -> Calibration:
    """Factors for a model, from its posterior before it has seen the held-out rows."""
    prediction, truth = jax.vmap(posterior.predict)(data.states, data.actions), data.next_states
    rank = jnp.cumsum(held_out)  # neighbours in time go to different halves
    halves = [held_out & (rank % 2 == parity) for parity in (0, 1)]

    def judged_by_other(half, other):
        factors = best_factors(prediction, truth, other, ENOUGH // 2)
        return coverage(factors(prediction), truth, half) * jnp.sum(half) / jnp.sum(held_out)

    before, after = coverage(prediction, truth, held_out), judged_by_other(*halves) + judged_by_other(*halves[::-1])
    after = jnp.where(jnp.sum(held_out) >= ENOUGH, after, before)
    return Calibration(best_factors(prediction, truth, held_out), before, after)


def _coverage(error_in_stds: Float[Array, "N dx"], rows: Bool[Array, " N"], levels: np.ndarray) -> Float[Array, "L dx"]:
    confidence = erf(error_in_stds / jnp.sqrt(2.0))
    inside = confidence[None] <= jnp.asarray(levels)[:, None, None]
    return jnp.sum(inside, axis=1, where=rows[:, None]) / jnp.sum(rows)
