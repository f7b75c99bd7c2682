"""Recalibration on held-out measurements, so that a model's intervals have the stated coverage (Kuleshov et al. 2018).

A model is calibrated if its 90 % intervals contain 90 % of the measurements, and likewise at every level. Two factors per
output achieve that: alpha on the epistemic std and gamma on the aleatoric std. Coverage alone does not identify both. Where the
noise is overestimated, as with a noise floor on a deterministic system, it would shrink the epistemic std to nothing; where the
noise is right, it would not notice an epistemic std that is far too small. Hence two steps:

1. rho = gamma / alpha by held-out likelihood: which of the two stds explains where the large errors are. Where the measurements
   do not tell, the predicted noise is kept and alpha takes most of the correction: with the same factor on both stds nothing
   would change in the information gain, which is a function of their ratio.
2. alpha by coverage: how wide the intervals must be.
3. Both towards 1 by their sampling error. Two free factors gain about a nat of likelihood from chance alone, and on twenty
   measurements of a model that is right they would be off by 30 %. So their logarithms are multiplied by 1 - `CHANCE` /
   evidence (0 if that is negative), as in James and Stein's estimator; the evidence grows with the number of measurements.

Errors have heavier tails than a Gaussian, so no single width is right at all levels. alpha is fitted to the wide intervals,
which optimistic and pessimistic planners use; the narrow ones then contain more than stated.
"""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erf
from jaxtyping import Array, Bool, Float, Int, Key

from sonde.data import HELD_OUT_BLOCK, Data
from sonde.models._base import JacobianPrediction, Posterior, Prediction, predict_many

LEVELS = np.linspace(0.1, 0.9, 9)
"""Confidence levels at which stated and actual coverage are compared."""
FITTED_LEVELS = np.asarray([0.8, 0.9, 0.95])
"""Confidence levels that alpha is fitted to."""
RATIOS = np.geomspace(0.1, 10.0, 41)
"""Grid of values of rho."""
EPISTEMIC_PRIOR, ALEATORIC_PRIOR = 1.0, 0.3
"""Stds of the normal priors on log alpha and log gamma. All measurements inform one noise std per output, while nothing was
measured of the disagreement away from them, hence the narrower prior on gamma."""
WIDTHS = np.geomspace(0.05, 20.0, 161)
"""Grid of values of alpha."""
CHANCE = 2.0
"""Evidence against a model's own stds, in nats, up to which nothing is rescaled."""
MIN_HELD_OUT = 10
"""With fewer held-out measurements than this, nothing is recalibrated."""


class Factors(eqx.Module):
    """Factors on the stds of each output."""

    epistemic: Float[Array, "*seeds dx"]
    """Factor alpha on the epistemic std."""
    aleatoric: Float[Array, "*seeds dx"]
    """Factor gamma on the aleatoric std."""

    def __call__(self, prediction: Prediction) -> Prediction:
        """Rescale a prediction.

        Args:
            prediction: The model's own prediction.
        """
        return prediction.rescaled(self.epistemic, self.aleatoric)


class PosteriorWrapper(Posterior):
    """A posterior around another one, which it changes the predictions of; forms and members are those of the one inside."""

    posterior: Posterior

    @property
    def ensemble_size(self) -> int:
        """Number of members of the posterior inside."""
        return self.posterior.ensemble_size

    @property
    def unroll(self) -> int:
        """That of the posterior inside."""
        return self.posterior.unroll

    def warning(self) -> str | None:
        """The warning of the posterior inside."""
        return self.posterior.warning()

    def specialise(self) -> "PosteriorWrapper":
        """Specialise the posterior inside."""
        return replace(self, posterior=self.posterior.specialise())

    def differentiable(self) -> "PosteriorWrapper":
        """Make the posterior inside differentiable."""
        return replace(self, posterior=self.posterior.differentiable())

    def member(self, index: Int[Array, ""]) -> "PosteriorWrapper":
        """One member as a posterior of its own, changed in the same way."""
        return replace(self, posterior=self.posterior.member(index))

    def predict_jacobian(
        self, x: Float[Array, " dx"], u: Float[Array, " du"], key: Key[Array, ""], count: int
    ) -> JacobianPrediction:
        """Predict the Jacobian as the posterior inside does."""
        return self.posterior.predict_jacobian(x, u, key, count)


class RecalibratedPosterior(PosteriorWrapper):
    """A posterior with recalibrated stds."""

    factors: Factors

    def predict(self, x: Float[Array, " dx"], u: Float[Array, " du"]) -> Prediction:
        """Predict with recalibrated stds."""
        return self.factors(self.posterior.predict(x, u))

    def predict_jacobian(
        self, x: Float[Array, " dx"], u: Float[Array, " du"], key: Key[Array, ""], count: int
    ) -> JacobianPrediction:
        """Predict the Jacobian; the uncertainty of each row is rescaled like that of its output."""
        return super().predict_jacobian(x, u, key, count).rescaled(self.factors.epistemic)


class PosteriorWithBeta(PosteriorWrapper):
    """A posterior whose predictions carry the width of the confidence region."""

    beta: Float[Array, "*seeds dx"]
    """Half-width of the confidence region of each output, in epistemic stds."""

    def predict(self, x: Float[Array, " dx"], u: Float[Array, " du"]) -> Prediction:
        """Predict, with beta."""
        prediction = self.posterior.predict(x, u)
        return Prediction(prediction.mean, prediction.epistemic_std, prediction.aleatoric_std, prediction.members, self.beta)


class Calibration(eqx.Module):
    """Recalibration factors, and the coverage of intervals on held-out measurements."""

    factors: Factors
    before: Float[Array, "*seeds L dx"]
    """Coverage of the model's own intervals, per level L (`LEVELS`) and output."""
    after: Float[Array, "*seeds L dx"]
    """Coverage of the recalibrated intervals, cross-fitted: each half of the held-out measurements is covered by intervals that
    were recalibrated on the other half."""


def coverage(prediction: Prediction, truth: Float[Array, "N dx"], rows: Bool[Array, " N"]) -> Float[Array, "L dx"]:
    """Fraction of measurements inside the predicted intervals.

    Args:
        prediction: Predictions of N next states.
        truth: The measured next states.
        rows: True for the rows that are used.

    Returns:
        The fraction per level L (`LEVELS`) and output; NaN if no row is used.
    """
    std = jnp.sqrt(prediction.epistemic_std**2 + prediction.aleatoric_std**2)
    return _coverage(jnp.abs(truth - prediction.mean) / std, rows, LEVELS)


def calibration_error(coverage: Float[Array, "*seeds L dx"]) -> Float[Array, "*seeds"]:
    """Mean over levels and outputs of |coverage - level|: 0 is perfect, 0.5 the worst.

    Args:
        coverage: Coverage per level and output.
    """
    return jnp.mean(jnp.abs(coverage - jnp.asarray(LEVELS)[:, None]), axis=(-2, -1))


def fit_factors(
    prediction: Prediction, truth: Float[Array, "N dx"], rows: Bool[Array, " N"], min_rows: int = MIN_HELD_OUT
) -> Factors:
    """Find the factors in three steps (see the module); of equally good widths, the one nearest to 1.

    Args:
        prediction: Predictions of N next states.
        truth: The measured next states.
        rows: True for the rows that are used.
        min_rows: With fewer rows than this, all factors are 1.
    """
    count, these = jnp.maximum(jnp.sum(rows), 1), rows[:, None]
    squared_error = (truth - prediction.mean) ** 2

    def variance(ratio):
        return prediction.epistemic_std**2 + (ratio * prediction.aleatoric_std) ** 2

    def log_likelihood(ratio):
        # at the width that is best for the ratio
        squared_width = jnp.sum(squared_error / variance(ratio), axis=0, where=these) / count
        fit = jnp.sum(jnp.log(variance(ratio)), axis=0, where=these) + count * jnp.log(squared_width)
        log_alpha = 0.5 * jnp.log(squared_width)
        prior = (log_alpha / EPISTEMIC_PRIOR) ** 2 + ((log_alpha + jnp.log(ratio)) / ALEATORIC_PRIOR) ** 2
        return -0.5 * (fit + prior)

    ratios = jnp.asarray(RATIOS)
    # without any error, the likelihood does not determine the ratio
    exact = jnp.sum(squared_error, axis=0, where=these) == 0
    ratio = jnp.where(exact, 1.0, ratios[jnp.argmax(jax.lax.map(log_likelihood, ratios), axis=0)])
    error_in_stds = jnp.sqrt(squared_error / variance(ratio))

    def miss(width):
        gaps = jnp.abs(_coverage(error_in_stds / width, rows, FITTED_LEVELS) - jnp.asarray(FITTED_LEVELS)[:, None])
        return jnp.mean(gaps, axis=0) + 1e-6 * jnp.abs(jnp.log(width))

    widths = jnp.asarray(WIDTHS)
    width = widths[jnp.argmin(jax.lax.map(miss, widths), axis=0)]
    fitted = variance(ratio) * jnp.sum(squared_error / variance(ratio), axis=0, where=these) / count
    evidence = _evidence(prediction, squared_error, jnp.where(exact, 1.0, fitted), rows)
    enough = jnp.sum(rows) >= min_rows
    trust = jnp.where(enough, jnp.maximum(1 - CHANCE / jnp.maximum(evidence, CHANCE), 0.0), 0.0)
    return Factors(width**trust, (width * ratio) ** trust)


def _evidence(
    prediction: Prediction, squared_error: Float[Array, "N dx"], fitted: Float[Array, "N dx"], rows: Bool[Array, " N"]
) -> Float[Array, " dx"]:
    """Evidence in nats against a model's own stds: by likelihood against `fitted` variances, or by coverage if that is more."""
    own = prediction.epistemic_std**2 + prediction.aleatoric_std**2
    gain = jnp.log(own / fitted) + squared_error / own - squared_error / fitted
    levels = jnp.asarray(FITTED_LEVELS)[:, None]
    off = _coverage(jnp.sqrt(squared_error / own), rows, FITTED_LEVELS) - levels
    by_coverage = 0.5 * jnp.sum(rows) * jnp.max(off**2 / (levels * (1 - levels)), axis=0)
    return jnp.maximum(0.5 * jnp.sum(gain, axis=0, where=rows[:, None]), by_coverage)


def calibrate(posterior: Posterior, data: Data, held_out: Bool[Array, " capacity"]) -> Calibration:
    """Recalibrate a model on held-out measurements.

    Args:
        posterior: Posterior of one seed after the measurements that are not held out.
        data: All measurements.
        held_out: True for the held-out rows.
    """
    prediction, truth = predict_many(posterior, data.states, data.actions), data.next_states
    # whole blocks go to either half: rows of one block are too much alike
    begins = held_out & (data.numbers() % HELD_OUT_BLOCK == 0)
    halves = [held_out & (jnp.cumsum(begins) % 2 == parity) for parity in (0, 1)]

    def cross_fitted(half, other):
        factors = fit_factors(prediction, truth, other, MIN_HELD_OUT // 2)
        share = coverage(factors(prediction), truth, half) * jnp.sum(half) / jnp.sum(held_out)
        return jnp.where(jnp.any(half), share, 0.0)

    before, after = coverage(prediction, truth, held_out), cross_fitted(*halves) + cross_fitted(*halves[::-1])
    after = jnp.where(jnp.sum(held_out) >= MIN_HELD_OUT, after, before)
    return Calibration(fit_factors(prediction, truth, held_out), before, after)


def calibration_bytes(rows: int, state_dim: int) -> int:
    """Working memory of `calibrate`, without that of a prediction; most of it is for comparisons with all levels.

    Args:
        rows: Number of rows of the data.
        state_dim: Number of state dimensions.
    """
    return 8 * 20 * rows * state_dim


def _coverage(error_in_stds: Float[Array, "N dx"], rows: Bool[Array, " N"], levels: np.ndarray) -> Float[Array, "L dx"]:
    confidence = erf(error_in_stds / jnp.sqrt(2.0))
    inside = confidence[None] <= jnp.asarray(levels)[:, None, None]
    return jnp.sum(inside, axis=1, where=rows[:, None]) / jnp.sum(rows)
