"""beta: how many epistemic stds around the mean hold the truth, as a number per output that follows the data.

Three ways to have one. A constant is what the paper's experiments use. `rkhs_beta` is what its theory uses: if the truth lies
in the kernel's space with a norm of at most B, and kernel and noise are fixed beforehand, the region holds it everywhere and in
all episodes with probability 1 - delta. `held_out_beta` asks measurements that the model has not seen.
"""

import math
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from sonde._internal.errors import SondeError, one_of, positive
from sonde.data import Data
from sonde.models._base import Prediction, Model, Posterior
from sonde.models._calibration import ENOUGH
from sonde.models._gaussian_process import GaussianProcess
from sonde.models._gp_posterior import GPPosterior
from sonde.models._kernels import KERNELS
from sonde.models._prior import Prior, information_of

KINDS = ("constant", "rkhs", "calibrated")
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
        squared = weights @ KERNELS[posterior.kernel_name].cross(points, points) @ weights
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


@dataclass(frozen=True)
class Confidence:
    """How beta follows the data, if it does."""

    kind: Literal["constant", "rkhs", "calibrated"] = "constant"
    """Not at all, by theory, or by held-out measurements."""
    constant: float = 2.0
    """The beta that does not, and the calibrated one while hardly anything is held out."""
    delta: float = 0.1
    """Probability with which the region may miss the truth, of all outputs together (rkhs); share that it may miss
    (calibrated)."""
    norm_bound: float | None = None
    """B; None: `mean_norm`."""

    def check(self, owner: str, model: Model, holdout: float, recalibrate: bool, capacity: int) -> None:
        """Refuse a rule that means nothing, or that the model cannot follow."""
        one_of("confidence", self.kind, KINDS)
        if not 0 < self.delta < 1:
            raise SondeError(f"{owner}: delta must lie between 0 and 1, got {self.delta}")
        if self.norm_bound is not None:
            positive(owner, norm_bound=self.norm_bound)
        if self.kind == "calibrated" and holdout == 0:
            raise SondeError(f"{owner}: confidence 'calibrated' needs measurements that no fit sees: set holdout to 0.2, say")
        if self.kind == "rkhs" and not isinstance(model, GaussianProcess):
            raise SondeError(
                f"{owner}: confidence 'rkhs' is for Gaussian processes, got {type(model).__name__}; "
                "take the model gp, or confidence 'calibrated'"
            )
        if self.kind == "rkhs" and recalibrate:
            raise SondeError(f"{owner}: confidence 'rkhs' is about the model's own stds: turn calibrated off")
        if self.kind == "rkhs" and capacity > LARGEST:
            raise SondeError(f"{owner}: confidence 'rkhs' takes up to {LARGEST} measurements, got a capacity of {capacity}")

    def beta(self, posterior: Posterior, unseen: Posterior, data: Data, holdout: float) -> Float[Array, " dx"]:
        """beta per output, for one run; `unseen` is the posterior without the held-out rows of `data`."""
        if self.kind == "calibrated":
            prediction = jax.vmap(unseen.predict)(data.states, data.actions)
            return held_out_beta(prediction, data.next_states, data.held_out(holdout), self.delta, self.constant)
        assert isinstance(posterior, GPPosterior)
        return self.by_theory(posterior, information_of(Prior.of(posterior), data.inputs(), data.mask()))

    def by_theory(self, posterior: GPPosterior, information: Float[Array, " dx"]) -> Float[Array, " dx"]:
        """`rkhs_beta` after data that told so much; each output may miss with an equal part of delta."""
        norm = mean_norm(posterior) if self.norm_bound is None else jnp.full_like(information, self.norm_bound)
        return rkhs_beta(norm, information, self.delta / norm.shape[0])
