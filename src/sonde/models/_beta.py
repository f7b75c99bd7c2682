"""beta: how many epistemic stds around the mean hold the truth, as a number per output that follows the data.

Three ways to have one. A constant is what the paper's experiments use. `rkhs_beta` is what its theory uses: if the truth lies
in the kernel's space with a norm of at most B, and kernel and noise are fixed beforehand, the region holds it everywhere and in
all episodes with probability 1 - delta. `held_out_beta` asks measurements that the model has not seen.
"""

import abc
import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from sonde._internal.errors import SondeError, positive
from sonde.data import Data
from sonde.models._base import Model, Posterior, Prediction
from sonde.models._calibration import ENOUGH
from sonde.models._gaussian_process import GaussianProcess
from sonde.models._gp_posterior import GPPosterior
from sonde.models._prior import Prior, information_of

LARGEST = 4000
"""Most measurements whose information gain is computed exactly; its price grows with their third power."""


def rkhs_beta(
    norm: Float[Array, "*dx"], information: Float[Array, "*dx"], delta: float, noise_ratio: float = 1.0
) -> Float[Array, "*dx"]:
    """beta_n(delta) = B + R/sigma sqrt(2 (I_n + 1 + ln(1/delta))), for posteriors with noise variance sigma^2.

    `norm` is B, `noise_ratio` R / sigma, where the true noise is R-sub-Gaussian (1: as noisy as the model thinks; 0: not at
    all). `information` is I_n = 1/2 log det(I + K_n / sigma^2) of the points that were measured: of those, not of the most
    informative ones, and no larger than gamma_n, which serves as well.

    Chowdhury and Gopalan (2017, Theorem 2) have B + R sqrt(2 (gamma_n + 1 + ln(1/delta))), with gamma_n only in the last step
    of their proof, to bound the log-determinant of the points at hand. Their posterior has 1 + 2/T in place of sigma^2, hence
    no sigma in the formula; dividing kernel and noise by sigma brings it here. With sigma^2 itself the bound holds without the
    1, too (Durand, Maillard and Pineau 2018, Theorem 1, after Abbasi-Yadkori 2012): we keep it, and are on the safe side.
    """
    return norm + noise_ratio * jnp.sqrt(2 * (information + 1 + math.log(1 / delta)))


def mean_norm(posterior: GPPosterior) -> Float[Array, " dx"]:
    """The norm of the posterior mean in the kernel's space, per output: an estimate of that of the truth, and no bound on it.

    Without noise in the data it cannot exceed the truth's norm, and grows towards it as data come in.
    """

    def one_output(points, weights, signal_std):
        squared = weights @ posterior.kernel.cross(points, points) @ weights
        return jnp.sqrt(jnp.maximum(squared, 0.0)) / signal_std

    centres = posterior.centres
    return jax.vmap(one_output)(centres.points, centres.weights, posterior.signal_std)


def held_out_beta(
    prediction: Prediction, truth: Float[Array, "n dx"], rows: Bool[Array, " n"], delta: float, otherwise: float
) -> Float[Array, " dx"]:
    """The smallest beta for which, of the rows that count, a share 1 - delta has |truth - mean| <= beta epistemic_std.

    `otherwise` serves where there are hardly any rows.

    Truths are measurements: where they are noisy, the region is wide enough for the noise as well, which is more than needed.
    """
    count = jnp.sum(rows)
    needed = jnp.abs(truth - prediction.mean) / jnp.maximum(prediction.epistemic_std, 1e-12)
    ordered = jnp.sort(jnp.where(rows[:, None], needed, jnp.inf), axis=0)
    # rounding must not ask for one more than the share
    place = jnp.ceil((1 - delta) * count - 1e-9).astype(int) - 1
    return jnp.where(count >= ENOUGH, ordered[jnp.clip(place, 0, rows.shape[0] - 1)], otherwise)


class BetaRule(abc.ABC):
    """How the width of the confidence region follows the data."""

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
    """Just wide enough that the region holds the share 1 - delta of the held-out measurements."""

    delta: float = 0.1
    """Share of the held-out measurements that the region may miss."""
    initial: float = 2.0
    """Beta while fewer than ten measurements are held out."""

    def __post_init__(self):
        """Reject values that mean nothing."""
        _check_delta(self.delta)
        positive("beta rule", initial=self.initial)

    def check(self, model: Model, capacity: int, holdout: float, recalibrate: bool) -> None:
        """It needs held-out measurements."""
        del model, capacity, recalibrate
        if holdout == 0:
            raise SondeError("the beta rule 'held-out' needs measurements that no fit sees: set holdout, for example to 0.2")

    def beta(self, posterior: Posterior, unseen: Posterior, data: Data, holdout: float) -> Float[Array, " dx"]:
        """See `held_out_beta`."""
        del posterior
        prediction = jax.vmap(unseen.predict)(data.states, data.actions)
        return held_out_beta(prediction, data.next_states, data.held_out(holdout), self.delta, self.initial)


@dataclass(frozen=True)
class RKHSBeta(BetaRule):
    """The theory's width for Gaussian processes: the region holds the truth everywhere with probability 1 - delta."""

    delta: float = 0.1
    """Probability that the region misses the truth anywhere, over all outputs."""
    norm_bound: float | None = None
    """Bound B on the truth's norm in the kernel's space; by default the norm of the posterior mean, an estimate that guarantees
    nothing."""

    def __post_init__(self):
        """Reject values that mean nothing."""
        _check_delta(self.delta)
        if self.norm_bound is not None:
            positive("beta rule", norm_bound=self.norm_bound)

    def check(self, model: Model, capacity: int, holdout: float, recalibrate: bool) -> None:
        """It holds for Gaussian processes as they are, and costs the third power of the measurements."""
        del holdout
        if not isinstance(model, GaussianProcess):
            raise SondeError(
                f"the beta rule 'rkhs' is for Gaussian processes, got {type(model).__name__}; "
                "use the model gp, or the beta rule 'held-out'"
            )
        if recalibrate:
            raise SondeError("the beta rule 'rkhs' is about the model's own stds: turn recalibrate off")
        if capacity > LARGEST:
            raise SondeError(f"the beta rule 'rkhs' takes up to {LARGEST} measurements, got a capacity of {capacity}")

    def beta(self, posterior: Posterior, unseen: Posterior, data: Data, holdout: float) -> Float[Array, " dx"]:
        """See `rkhs_beta`."""
        del unseen, holdout
        assert isinstance(posterior, GPPosterior)
        return self.by_theory(posterior, information_of(Prior.of(posterior), data.inputs(), data.mask()))

    def by_theory(self, posterior: GPPosterior, information: Float[Array, " dx"]) -> Float[Array, " dx"]:
        """`rkhs_beta` from a known information gain; each output may miss with an equal part of delta.

        Args:
            posterior: Posterior of one seed.
            information: Information gain of its data per output, in nats.

        """
        norm = mean_norm(posterior) if self.norm_bound is None else jnp.full_like(information, self.norm_bound)
        return rkhs_beta(norm, information, self.delta / norm.shape[0])


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise SondeError(f"beta rule: delta must lie between 0 and 1, got {delta}")


BETA_RULES: dict[str, BetaRule | None] = {"none": None, "rkhs": RKHSBeta(), "held-out": HeldOutBeta()}
"""Names of beta rules for the command line."""
