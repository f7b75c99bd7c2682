"""How fast uncertainty must fall by the theorems of the OpAx paper (Sukhija et al. 2023).

Theorem 1 bounds the information that a round can still bring, Theorem 2 the largest 1/2 |sigma_N(z)|^2 in reach, both by a
constant times beta_N T^(3/2) sqrt(C / N) after N rounds of T steps, where C is the model complexity MC_N or the maximum
information gain gamma_N. The constant is not known, so only the course of the bound is meaningful, not its height.
"""

import numpy as np

from sonde._internal.errors import SondeError
from sonde.models import Kernel


def theorem_bound(beta: float, horizon: int, complexity: float, rounds: int) -> float:
    """Right-hand side of Theorem 1 or 2, up to its constant: beta_N T^(3/2) sqrt(C / N).

    Args:
        beta: Width of the confidence region beta_N.
        horizon: Steps of each round T.
        complexity: The model complexity MC_N (Theorem 1) or the maximum information gain gamma_N (Theorem 2).
        rounds: Number of rounds N.
    """
    return float(beta * horizon**1.5 * np.sqrt(complexity / rounds))


def information_growth(kernel: Kernel, points: np.ndarray | float, dim: int) -> np.ndarray:
    """Maximum information gain gamma_n of a kernel, up to a constant, as in the OpAx paper's table (Vakili et al. 2021).

    Args:
        kernel: The kernel.
        points: Numbers of points n.
        dim: Number of input dimensions.
    """
    growth = kernel.information_growth(points, dim)
    if growth is None:
        raise _unknown(kernel)
    return growth


def information_exponent(kernel: Kernel, dim: int) -> float:
    """Power of n with which gamma_n grows, up to log factors.

    Args:
        kernel: The kernel.
        dim: Number of input dimensions.
    """
    exponent = kernel.information_exponent(dim)
    if exponent is None:
        raise _unknown(kernel)
    return exponent


def bound_exponent(kernel: Kernel, dim: int, constant_beta: bool = False) -> float:
    """Power of N with which the bound on 1/2 |sigma_N|^2 falls, up to log factors; the bound is vacuous if it is 0 or above.

    Args:
        kernel: The kernel.
        dim: Number of input dimensions.
        constant_beta: Treat beta_N as constant; otherwise it grows as sqrt(gamma_N).

    Returns:
        The power; the standard deviation itself falls with half of it.
    """
    growth = information_exponent(kernel, dim)
    return (growth / 2 if constant_beta else growth) - 0.5


def _unknown(kernel: Kernel) -> SondeError:
    return SondeError(
        f"the theorems' rates need to know how fast the information gain under {kernel!r} grows, which it does not say; "
        "implement its information_exponent and information_growth"
    )
