"""Plausible systems (A, B), and what a gain promises for them.

A Gaussian process gives as many samples of A and B as are asked for. An ensemble has only its members, too few for a statement
about a share: more systems are then drawn that have the members' moments. They lie around the members' mean in the directions
in which the members differ, with the heavy tails of Student's t distribution, because so few members say little about how far
the next one would be.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.stats import beta

from sonde._internal.errors import SondeError
from sonde.analysis._linear import UNIT_TOLERANCE, Linearisation

ENOUGH = 100
"""Number of samples from which on a share is counted among them."""
DRAWS = 1000
"""Number of systems that are drawn where there are fewer samples."""


class Plausible(NamedTuple):
    """N plausible systems."""

    A: np.ndarray
    """State matrices [N, d, d]."""
    B: np.ndarray
    """Action matrices [N, d, du]."""
    source: str
    """Where they come from, in words."""

    def part(self, rows: slice | np.ndarray) -> "Plausible":
        """Some of the systems.

        Args:
            rows: Which.
        """
        return Plausible(self.A[rows], self.B[rows], self.source)


def plausible(linear: Linearisation) -> Plausible:
    """Systems that are drawn from the posterior, independent of each other.

    Args:
        linear: A linearisation with its samples.
    """
    A, B = linear.A_samples, linear.B_samples
    members = len(A)
    if members >= ENOUGH:
        return Plausible(A, B, "drawn from the posterior")
    if not (linear.A_std.any() or linear.B_std.any()):
        return Plausible(A[:1], B[:1], "exact")
    d = len(linear.A)
    joint = np.concatenate([A, B], axis=2)
    centre = joint.mean(axis=0)
    rng, freedom = np.random.default_rng(0), members - 1
    weights = rng.normal(size=(DRAWS, members)) / np.sqrt(freedom)  # the directions sum to 0: their covariance is unbiased
    tails = np.sqrt(freedom / rng.chisquare(freedom, DRAWS)) * np.sqrt(1 + 1 / members)
    drawn = centre + np.einsum("nm,mij->nij", weights * tails[:, None], joint - centre)
    return Plausible(drawn[..., :d], drawn[..., d:], f"drawn with the moments of {members} others")


def stabilised(systems: Plausible, gain: np.ndarray) -> np.ndarray:
    """Which systems a gain stabilises, bool [N].

    Args:
        systems: The systems.
        gain: Gain K [du, d].
    """
    return np.abs(np.linalg.eigvals(systems.A - systems.B @ gain)).max(axis=-1) < 1 - UNIT_TOLERANCE


def at_least(successes: int, trials: int, confidence: float) -> float:
    """Lower bound of a probability by Clopper and Pearson, exact for any number of trials.

    Args:
        successes: Number of successes.
        trials: Number of trials.
        confidence: Probability, before the trials, that the bound holds.
    """
    return 0.0 if successes == 0 else float(beta.ppf(1 - confidence, successes, trials - successes + 1))


@dataclass(frozen=True)
class Promise:
    """The share of all plausible systems that a gain stabilises, counted on systems that it was not designed on."""

    stabilised: int
    """Number of systems that it stabilises."""
    systems: int
    """Number of systems that it was tried on; 0 if the system is known exactly."""
    source: str
    """Where these come from, in words."""
    confidence: float
    """Confidence of `bound`."""
    wanted: float | None = None
    """The share that was asked for, if any."""
    members: tuple[int, int] | None = None
    """How many of an ensemble's members it stabilises, and how many there are."""

    @classmethod
    def of(
        cls, gain: np.ndarray, systems: Plausible, linear: Linearisation, confidence: float, wanted: float | None = None
    ) -> "Promise":
        """Try a gain.

        Args:
            gain: Gain K [du, d].
            systems: Plausible systems that the gain was not designed on.
            linear: The linearisation that they belong to.
            confidence: Confidence of the bound.
            wanted: The share that was asked for, if any.
        """
        for name, value in {"confidence": confidence, "share": 0.5 if wanted is None else wanted}.items():
            if not 0 < value < 1:
                raise SondeError(f"lqr: {name} must lie between 0 and 1, got {value}")
        members = None
        if len(linear.A_samples) < ENOUGH and systems.source != "exact":
            own = stabilised(Plausible(linear.A_samples, linear.B_samples, ""), gain)
            members = int(own.sum()), len(own)
        good = stabilised(systems, gain)
        if systems.source == "exact":
            return cls(int(good.sum()), 0, systems.source, confidence, wanted)
        return cls(int(good.sum()), len(good), systems.source, confidence, wanted, members)

    @property
    def share(self) -> float:
        """Fraction of the systems that are stabilised."""
        return float(self.stabilised) if not self.systems else self.stabilised / self.systems

    @property
    def bound(self) -> float:
        """Lower bound of the share of all plausible systems."""
        return self.share if not self.systems else at_least(self.stabilised, self.systems, self.confidence)

    @property
    def kept(self) -> bool:
        """Whether the share that was asked for is promised."""
        return self.wanted is None or self.bound >= self.wanted

    def __str__(self) -> str:
        """One sentence."""
        if not self.systems:
            return f"The system is taken as known exactly, and is {'' if self.stabilised else 'not '}stabilised."
        tried = f"{self.stabilised} of {self.systems} systems {self.source}; {self.confidence:.0%} confidence"
        own = "" if self.members is None else f" Of those {self.members[1]} themselves, {self.members[0]} are stabilised."
        if self.kept:
            opening = "Stabilises" if self.wanted is None else "Promised: stabilises"
            return f"{opening} at least {_percent(self.bound)} of all plausible systems ({tried}).{own}"
        asked = f"{self.wanted:.4g} was asked for, and only {self.bound:.4g} can be vouched for"
        return f"No promise: {asked} ({tried}).{own} Measure more here, or ask for less."


def _percent(share: float) -> str:
    """A share in percent, rounded down."""
    return f"{np.floor(share * 1000) / 10:g} %"
