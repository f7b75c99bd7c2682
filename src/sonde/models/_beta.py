"""Rules for beta: the half-width of the confidence region around the mean, in epistemic stds, per output.

Without a rule, beta is a constant of the imagination, as in the OpAx paper's experiments. `RKHSBeta` is its theory: if the
true dynamics lie in the RKHS of the kernel with a norm of at most B, and kernel and noise are fixed beforehand, the region
contains them everywhere and in all rounds with probability 1 - delta. `HeldOutBeta` is an empirical quantile on held-out
measurements.
"""

import abc
import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from sonde._internal.errors import SondeError, positive
from sonde.data import Data
from sonde.models._base import Model, Posterior, Prediction, predict_many
from sonde.models._calibration import MIN_HELD_OUT
from sonde.models._gaussian_process import GaussianProcess
from sonde.models._gp_posterior import GPPosterior
from sonde.models._known_physics import KnownPhysics, learner_of
from sonde.models._physics_posterior import KnownPhysicsPosterior
from sonde.models._prior import Prior, exact_mean_norm, information_gain

MAX_MEASUREMENTS = 4000
"""Largest number of measurements whose information gain is computed exactly; the cost grows with its third power."""


def rkhs_beta(
    norm: Float[Array, "*dx"], information: Float[Array, "*dx"], delta: float, noise_ratio: float = 1.0
) -> Float[Array, "*dx"]:
    """Beta of the theory, beta_n(delta) = B + R/sigma sqrt(2 (I_n + 1 + ln(1/delta))), for noise variance sigma^2.

    Chowdhury and Gopalan (2017, Theorem 2) have B + R sqrt(2 (gamma_n + 1 + ln(1/delta))); gamma_n enters only in the last step
    of their proof, as a bound on the log-determinant of the measured points. Their posterior has 1 + 2/T in place of sigma^2,
    hence no sigma in their formula; dividing kernel and noise by sigma gives the one here. With sigma^2 itself the bound also
    holds without the 1 (Durand, Maillard and Pineau 2018, Theorem 1, after Abbasi-Yadkori 2012); it is kept as a margin.

    Args:
        norm: Bound B on the RKHS norm of the truth, per output.
        information: Information gain I_n = 1/2 log det(I + K_n / sigma^2) of the measured points, per output, in nats; the
            maximum information gain gamma_n is valid too, and larger.
        delta: Probability that the region misses the truth.
        noise_ratio: R / sigma, where the true noise is R-sub-Gaussian; 1 if it is as large as the model's, 0 if there is none.
    """
    return norm + noise_ratio * jnp.sqrt(2 * (information + 1 + math.log(1 / delta)))


def mean_norm(posterior: GPPosterior) -> Float[Array, " dx"]:
    """RKHS norm of the posterior mean, per output: an estimate of the norm of the truth, not a bound.

    If the data have no noise, it is at most the norm of the truth, and approaches it as data are added. The mean of a low-rank
    posterior may have another norm than the exact one, which `RKHSBeta` takes.

    Args:
        posterior: Posterior of one seed.
    """

    def one_output(points, weights, signal_std):
        squared = weights @ posterior.kernel.cross(points, points) @ weights
        return jnp.sqrt(jnp.maximum(squared, 0.0)) / signal_std

    centres = posterior.centres
    return jax.vmap(one_output)(centres.points, centres.weights, posterior.signal_std)


def held_out_beta(
    prediction: Prediction, truth: Float[Array, "n dx"], rows: Bool[Array, " n"], delta: float, initial: float
) -> Float[Array, " dx"]:
    """Smallest beta with |truth - mean| <= beta epistemic_std for a fraction 1 - delta of held-out measurements.

    Where measurements are noisy, the region is wide enough for the noise too, which is wider than needed.

    Args:
        prediction: Predictions of n next states.
        truth: The measured next states.
        rows: True for the rows that are used.
        delta: Fraction of the measurements that may lie outside.
        initial: Beta if fewer than `MIN_HELD_OUT` rows are used.
    """
    count = jnp.sum(rows)
    needed = jnp.abs(truth - prediction.mean) / jnp.maximum(prediction.epistemic_std, 1e-12)
    ordered = jnp.sort(jnp.where(rows[:, None], needed, jnp.inf), axis=0)
    # rounding must not require one measurement more than the fraction
    place = jnp.ceil((1 - delta) * count - 1e-9).astype(int) - 1
    return jnp.where(count >= MIN_HELD_OUT, ordered[jnp.clip(place, 0, rows.shape[0] - 1)], initial)


@dataclass(frozen=True)
class BetaRule(abc.ABC):
    """A rule that sets the width of the confidence region from data after each round; subclass it as a frozen dataclass."""

    def check(self, model: Model, capacity: int, holdout: float, recalibrate: bool) -> None:
        """Reject settings that this rule cannot work with.

        Args:
            model: The model whose predictions get a beta.
            capacity: Number of transitions that a seed can collect.
            holdout: Fraction of the measurements that fits do not see.
            recalibrate: Whether the model's stds are recalibrated.
        """
        return

    @abc.abstractmethod
    def beta(self, posterior: Posterior, unseen: Posterior, data: Data, holdout: float) -> Float[Array, " dx"]:
        """Beta per output, for one seed.

        Args:
            posterior: The model's own posterior after all measurements.
            unseen: The posterior, recalibrated if that is on, after the measurements that are not held out.
            data: All measurements.
            holdout: Fraction of them that is held out.
        """


@dataclass(frozen=True)
class HeldOutBeta(BetaRule):
    """The smallest region that contains a fraction 1 - delta of the held-out measurements."""

    delta: float = 0.1
    """Fraction of the held-out measurements that may lie outside the region."""
    initial: float = 2.0
    """Beta while fewer than ten measurements are held out."""

    def __post_init__(self):
        """Reject values that mean nothing."""
        _check_delta(self.delta)
        positive("beta rule", initial=self.initial)

    def check(self, model: Model, capacity: int, holdout: float, recalibrate: bool) -> None:
        """Reject settings without held-out measurements."""
        del model, capacity, recalibrate
        if holdout == 0:
            raise SondeError("the beta rule 'held-out' needs measurements that no fit sees: set holdout, for example to 0.2")

    def beta(self, posterior: Posterior, unseen: Posterior, data: Data, holdout: float) -> Float[Array, " dx"]:
        """Beta per output by `held_out_beta`."""
        del posterior
        prediction = predict_many(unseen, data.states, data.actions)
        return held_out_beta(prediction, data.next_states, data.held_out(holdout), self.delta, self.initial)


@dataclass(frozen=True)
class RKHSBeta(BetaRule):
    """The theoretical width for Gaussian processes: the region contains the truth everywhere with probability 1 - delta.

    That holds if the truth's norm in the kernel's space is at most `norm_bound`, and kernel and noise are right.
    """

    delta: float = 0.1
    """Probability that the region misses the truth anywhere, over all outputs."""
    norm_bound: float | None = None
    """Bound B on the RKHS norm of the truth; by default the norm of the exact posterior mean, an estimate without a
    guarantee."""

    def __post_init__(self):
        """Reject values that mean nothing."""
        _check_delta(self.delta)
        if self.norm_bound is not None:
            positive("beta rule", norm_bound=self.norm_bound)

    def check(self, model: Model, capacity: int, holdout: float, recalibrate: bool) -> None:
        """Reject other models, recalibration, and more measurements than can be computed with."""
        del holdout
        if isinstance(model, KnownPhysics) and model.ranges:
            raise SondeError(
                "the beta rule 'rkhs' needs a prior that is fixed beforehand, and parameters of the known physics are "
                "estimated: leave out --prior-range (in Python: ranges), or use the beta rule 'held-out'"
            )
        model = learner_of(model)
        if not isinstance(model, GaussianProcess):
            raise SondeError(
                f"the beta rule 'rkhs' is for Gaussian processes, got {type(model).__name__}; "
                "use the model gp, or the beta rule 'held-out'"
            )
        if recalibrate:
            raise SondeError("the beta rule 'rkhs' applies to the model's own stds: turn recalibrate off")
        if capacity > MAX_MEASUREMENTS:
            raise SondeError(
                f"the beta rule 'rkhs' takes up to {MAX_MEASUREMENTS} measurements, got a capacity of {capacity}; "
                "use fewer rounds or steps, or the beta rule 'held-out'"
            )

    def beta(self, posterior: Posterior, unseen: Posterior, data: Data, holdout: float) -> Float[Array, " dx"]:
        """Beta per output by `rkhs_beta`."""
        del unseen, holdout
        if isinstance(posterior, KnownPhysicsPosterior):  # the norm is that of what the physics lacks
            posterior, data = posterior.residual(data)
        assert isinstance(posterior, GPPosterior)
        information = information_gain(Prior.of(posterior), data.inputs(), data.mask())
        return self.from_information(information, exact_mean_norm(posterior, data))

    def from_information(self, information: Float[Array, " dx"], norm: Float[Array, " dx"]) -> Float[Array, " dx"]:
        """Beta per output from a known information gain; delta is divided equally among the outputs.

        Args:
            information: Information gain of the data per output, in nats.
            norm: RKHS norm of the exact posterior mean per output; not used if there is a `norm_bound`.
        """
        if self.norm_bound is not None:
            norm = jnp.full_like(information, self.norm_bound)
        return rkhs_beta(norm, information, self.delta / norm.shape[0])


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise SondeError(f"beta rule: delta must lie between 0 and 1, got {delta}")


BETA_RULES: dict[str, BetaRule | None] = {"none": None, "rkhs": RKHSBeta(), "held-out": HeldOutBeta()}
"""Names of beta rules for the command line."""
