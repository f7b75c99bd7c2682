"""How fast uncertainty must fall by the paper's theorems, and how fast it fell.

Theorem 1 bounds the information that an episode can still bring, Theorem 2 the largest 1/2 |sigma_N(z)|^2 in reach, both by a
constant times beta_N T^(3/2) sqrt(C / N) after N episodes of T steps, where C is the model complexity MC_N or the maximum
information gain gamma_N. The constant is not known, so only the course of the bound means something, not its height.
"""

import numpy as np

from sonde._internal.errors import one_of
from sonde.models._kernels import KERNELS

SMOOTHNESS = {"matern32": 1.5, "matern52": 2.5}
"""nu of the Matern kernels."""


def theorem_bound(beta: float, horizon: int, complexity: float, rounds: int) -> float:
    """beta_N T^(3/2) sqrt(complexity / N): the right-hand side of Theorem 1 (MC_N) or 2 (gamma_N), up to its constant."""
    return float(beta * horizon**1.5 * np.sqrt(complexity / rounds))


def information_growth(kernel: str, points: np.ndarray | float, dim: int) -> np.ndarray:
    """gamma_n of a kernel on `dim` inputs up to a constant, after the paper's table (Vakili et al. 2021)."""
    one_of("kernel", kernel, KERNELS)
    n = np.asarray(points, float)
    if kernel == "linear":
        return dim * np.log(n)
    if kernel == "rbf":
        return np.log(n) ** (dim + 1)
    power = information_exponent(kernel, dim)
    return n**power * np.log(n) ** (1 - power)


def information_exponent(kernel: str, dim: int) -> float:
    """The power of n with which gamma_n grows, logarithms aside: 0 but for the Matern kernels' dim / (2 nu + dim)."""
    one_of("kernel", kernel, KERNELS)
    return dim / (2 * SMOOTHNESS[kernel] + dim) if kernel in SMOOTHNESS else 0.0


def bound_exponent(kernel: str, dim: int, constant_beta: bool = False) -> float:
    """The power of N with which the bound on 1/2 |sigma_N|^2 falls, logarithms aside; 0 or above: nothing is promised.

    beta_N grows as sqrt(gamma_N), unless it is taken for constant. The std itself falls with half of this power.
    """
    growth = information_exponent(kernel, dim)
    return (growth / 2 if constant_beta else growth) - 0.5
