"""Linearisations q' = A q + B u of a learned system, with their uncertainty.

All stds are over samples of A and B from the posterior, so they are epistemic: more data would reduce them.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.linalg import expm, logm
from scipy.optimize import linear_sum_assignment

from sonde._internal.errors import SondeError, positive

AGREEMENT = 0.95
"""Fraction of the sampled systems that must agree on stability."""
UNIT_TOLERANCE = 1e-9
"""Moduli this close to 1 count as 1, neither stable nor unstable."""


@dataclass(frozen=True)
class Linearisation:
    """Linearisation q' = A q + B u of the predicted mean, and N samples of it from the posterior."""

    A: np.ndarray
    """State matrix of the mean [d, d]."""
    B: np.ndarray
    """Action matrix of the mean [d, du]."""
    A_std: np.ndarray
    """Epistemic std of the entries of A [d, d]."""
    B_std: np.ndarray
    """Epistemic std of the entries of B [d, du]."""
    A_samples: np.ndarray
    """Samples of A [N, d, d]."""
    B_samples: np.ndarray
    """Samples of B [N, d, du], which belong to those of A."""

    @property
    def eigenvalues(self) -> np.ndarray:
        """Eigenvalues of A, complex [d], the largest modulus first."""
        return sorted_eigenvalues(self.A)

    @property
    def eigenvalue_samples(self) -> np.ndarray:
        """Eigenvalues of the samples of A [N, d], in the order of `eigenvalues`."""
        return np.stack([match_eigenvalues(self.eigenvalues, np.linalg.eigvals(A)) for A in self.A_samples])

    @property
    def eigenvalue_std(self) -> np.ndarray:
        """Root mean square distance of the sampled eigenvalues from `eigenvalues` in the complex plane [d].

        Both of a complex pair have the same: that of both together. Where a sample has two real eigenvalues in its place, which
        of them belongs to which is arbitrary.
        """
        squared = np.mean(np.abs(self.eigenvalue_samples - self.eigenvalues) ** 2, axis=0)
        return np.sqrt((squared + squared[conjugates(self.eigenvalues)]) / 2)

    @property
    def spectral_radius(self) -> float:
        """Largest modulus of the eigenvalues; below 1, small deviations decay."""
        return float(np.abs(self.eigenvalues).max())

    @property
    def spectral_radius_samples(self) -> np.ndarray:
        """Spectral radius of each sample of A [N]."""
        return np.abs(np.linalg.eigvals(self.A_samples)).max(axis=-1)

    @property
    def stability(self) -> Literal["stable", "unstable", "undecided"]:
        """Whether small deviations decay or grow; "undecided" unless a fraction `AGREEMENT` of the samples agree."""
        radii = self.spectral_radius_samples
        if np.mean(radii < 1 - UNIT_TOLERANCE) >= AGREEMENT:
            return "stable"
        return "unstable" if np.mean(radii > 1 + UNIT_TOLERANCE) >= AGREEMENT else "undecided"

    @property
    def controllability(self) -> "Controllability":
        """How well the actions reach all directions of the state."""
        singular = np.linalg.svd(controllability_matrix(self.A, self.B), compute_uv=False)
        samples = [controllability_matrix(A, B) for A, B in zip(self.A_samples, self.B_samples, strict=True)]
        smallest = np.linalg.svd(np.stack(samples), compute_uv=False)[:, -1]
        rank = int(np.sum(singular > singular[0] * len(self.A) * np.finfo(float).eps))
        return Controllability(rank, float(singular[-1]), float(np.std(smallest)))

    def continuous(self, dt: float) -> "Linearisation":
        """The system dq/dt = A q + B u that becomes this one when its actions are held for a step.

        Samples that no system in continuous time becomes (an eigenvalue of A is 0, or negative) are left out.

        Args:
            dt: Seconds per step.
        """
        positive("linearisation", dt=dt)
        A, B = _continuous(self.A, self.B, dt)
        if not np.isfinite(A).all():
            raise SondeError(
                "linearisation: no system in continuous time becomes this one, since an eigenvalue of A is 0 or negative "
                f"({_listed(self.eigenvalues)}); use the one in discrete time, or measure more often"
            )
        pairs = [_continuous(A, B, dt) for A, B in zip(self.A_samples, self.B_samples, strict=True)]
        pairs = [pair for pair in pairs if np.isfinite(pair[0]).all()] or [(A, B)]
        A_samples, B_samples = (np.stack(matrices) for matrices in zip(*pairs, strict=True))
        return Linearisation(A, B, A_samples.std(axis=0), B_samples.std(axis=0), A_samples, B_samples)

    def closed(self, gain: np.ndarray) -> "Linearisation":
        """The system under the feedback u = v - gain q, with the new action v.

        Args:
            gain: Gain K [du, d].
        """
        samples = self.A_samples - self.B_samples @ gain
        return Linearisation(self.A - self.B @ gain, self.B, samples.std(axis=0), self.B_std, samples, self.B_samples)


@dataclass(frozen=True)
class Controllability:
    """Rank and smallest singular value of the controllability matrix [B, AB, ..., A^(d-1) B].

    A learned matrix nearly always has full rank. A smallest singular value many stds above 0 is better evidence.
    """

    rank: int
    """Rank of the matrix."""
    smallest: float
    """Smallest singular value."""
    std: float
    """Epistemic std of the smallest singular value."""


def controllability_matrix(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Controllability matrix [B, AB, ..., A^(d-1) B].

    Args:
        A: State matrix [d, d].
        B: Action matrix [d, du].
    """
    blocks = [B]
    for _ in range(len(A) - 1):
        blocks.append(A @ blocks[-1])
    return np.concatenate(blocks, axis=1)


def sorted_eigenvalues(A: np.ndarray) -> np.ndarray:
    """Eigenvalues, the largest modulus first; of a complex pair, the one above the real axis first.

    Args:
        A: Matrix [d, d].
    """
    values = np.linalg.eigvals(A).astype(complex)
    return values[np.lexsort((-values.imag, -np.abs(values).round(12)))]


def conjugates(values: np.ndarray) -> np.ndarray:
    """Index of the complex conjugate of each eigenvalue of a real matrix; of a real one, its own.

    Args:
        values: Eigenvalues [d].
    """
    _, order = linear_sum_assignment(np.abs(values[:, None].conj() - values[None]))
    return np.where(values.imag == 0, np.arange(len(values)), order)


def match_eigenvalues(reference: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Order eigenvalues like the reference values that they are nearest to, one to one.

    Args:
        reference: Eigenvalues in the wanted order [d].
        values: Eigenvalues of another matrix [d].
    """
    _, order = linear_sum_assignment(np.abs(reference[:, None] - values[None]))
    return values[order]


def _continuous(A: np.ndarray, B: np.ndarray, dt: float) -> tuple[np.ndarray, np.ndarray]:
    """A and B in continuous time; NaN if there is no real logarithm of A."""
    d, du = B.shape
    values = np.linalg.eigvals(A)
    negative = (values.real <= 0) & (np.abs(values.imag) <= UNIT_TOLERANCE)
    if negative.any():
        return np.full_like(A, np.nan), np.full_like(B, np.nan)
    both = np.block([[A, B], [np.zeros((du, d)), np.eye(du)]])
    rates = np.real(logm(both)) / dt
    if not np.allclose(expm(rates * dt), both, rtol=1e-6, atol=1e-9):
        return np.full_like(A, np.nan), np.full_like(B, np.nan)
    return rates[:d, :d], rates[:d, d:]


def _listed(values: np.ndarray) -> str:
    """Complex numbers in an error message."""
    return ", ".join(f"{value.real:.3g}" + (f"{value.imag:+.3g}i" if value.imag else "") for value in values)
