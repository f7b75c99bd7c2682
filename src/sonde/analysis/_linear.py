"""A system near a point: q' = A q + B u, with plausible A and B around the predicted ones; what they say, with error bars.

Error bars are spreads over the samples, so they are epistemic: more data would shrink them.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.optimize import linear_sum_assignment

SURE = 0.95
"""Share of the plausible systems that must agree for a verdict."""
EDGE = 1e-9
"""A modulus that is 1 but for rounding says nothing."""


@dataclass(frozen=True)
class Linearisation:
    """A [d, d] and B [d, du] of the mean, the stds of their entries, and N plausible pairs."""

    A: np.ndarray
    B: np.ndarray
    A_std: np.ndarray
    B_std: np.ndarray
    A_samples: np.ndarray
    B_samples: np.ndarray

    @property
    def eigenvalues(self) -> np.ndarray:
        """Of A, the largest first; complex [d]."""
        return sorted_eigenvalues(self.A)

    @property
    def eigenvalue_samples(self) -> np.ndarray:
        """Of the plausible A's [N, d], each next to the eigenvalue that it is a version of."""
        return np.stack([matched(self.eigenvalues, np.linalg.eigvals(A)) for A in self.A_samples])

    @property
    def eigenvalue_std(self) -> np.ndarray:
        """How far the plausible ones are away, root mean square, in the complex plane [d]."""
        return np.sqrt(np.mean(np.abs(self.eigenvalue_samples - self.eigenvalues) ** 2, axis=0))

    @property
    def spectral_radius(self) -> float:
        """The largest modulus: below 1, small deviations die out."""
        return float(np.abs(self.eigenvalues).max())

    @property
    def spectral_radius_samples(self) -> np.ndarray:
        """That of the plausible A's [N]."""
        return np.abs(np.linalg.eigvals(self.A_samples)).max(axis=-1)

    @property
    def stability(self) -> Literal["stable", "unstable", "undecided"]:
        """Whether deviations die out or grow, if nearly all plausible systems agree on one; on the edge they do neither."""
        radii = self.spectral_radius_samples
        if np.mean(radii < 1 - EDGE) >= SURE:
            return "stable"
        return "unstable" if np.mean(radii > 1 + EDGE) >= SURE else "undecided"

    @property
    def controllability(self) -> "Controllability":
        """How well the actions reach all directions."""
        singular = np.linalg.svd(controllability_matrix(self.A, self.B), compute_uv=False)
        samples = [controllability_matrix(A, B) for A, B in zip(self.A_samples, self.B_samples, strict=True)]
        smallest = np.linalg.svd(np.stack(samples), compute_uv=False)[:, -1]
        rank = int(np.sum(singular > singular[0] * len(self.A) * np.finfo(float).eps))
        return Controllability(rank, float(singular[-1]), float(np.std(smallest)))


@dataclass(frozen=True)
class Controllability:
    """Of the matrix [B, AB, ..., A^(d-1) B]: its rank, and its smallest singular value with the std over plausible systems.

    A learned matrix has full rank but for rounding; that its smallest singular value is many stds above 0 means more.
    """

    rank: int
    smallest: float
    std: float


def controllability_matrix(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """[B, AB, ..., A^(d-1) B]."""
    blocks = [B]
    for _ in range(len(A) - 1):
        blocks.append(A @ blocks[-1])
    return np.concatenate(blocks, axis=1)


def sorted_eigenvalues(A: np.ndarray) -> np.ndarray:
    """The largest modulus first; of a pair, the one above the real axis first."""
    values = np.linalg.eigvals(A).astype(complex)
    return values[np.lexsort((-values.imag, -np.abs(values).round(12)))]


def matched(reference: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The values in the order of the reference that they are nearest to, each used once."""
    _, order = linear_sum_assignment(np.abs(reference[:, None] - values[None]))
    return values[order]
