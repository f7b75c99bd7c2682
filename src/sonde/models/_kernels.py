"""Covariance functions with unit signal variance, on inputs that are already divided by their length-scales.

A kernel is a value: pass one to `GaussianProcess(kernel=...)`. To write your own, subclass `Kernel` as a frozen dataclass; its
fields are its parameters.
"""

import abc
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

Points = Float[Array, "n d"]
Others = Float[Array, "m d"]
SQUARED_ZERO = 1e-30  # below it two points are the same; keeps the square root differentiable


class Kernel(abc.ABC):
    """A covariance function k(a, b) with k(a, a) of order 1; hashable."""

    @abc.abstractmethod
    def cross(self, a: Points, b: Others) -> Float[Array, "n m"]:
        """Covariance matrix.

        Args:
            a: Points [n, d].
            b: Points [m, d].

        Returns:
            The matrix k(a_i, b_j) [n, m].
        """

    @abc.abstractmethod
    def diagonal(self, a: Points) -> Float[Array, " n"]:
        """Prior variances.

        Args:
            a: Points [n, d].

        Returns:
            The vector k(a_i, a_i) [n].
        """

    @property
    def stationary(self) -> bool:
        """Whether k(a, b) depends on a - b only; points may then be moved together, for the sake of rounding errors."""
        return False

    @property
    def slope_variance(self) -> float | None:
        """Prior variance of a partial derivative, d^2 k(a, b) / da_i db_i at a = b; None if samples have no derivative."""
        return None

    def information_exponent(self, dim: int) -> float | None:
        """Power of n with which the maximum information gain of n points grows, up to log factors.

        Args:
            dim: Number of input dimensions.

        Returns:
            The power, or None where it is not known: theorems then promise nothing.
        """
        del dim
        return None

    def information_growth(self, points: np.ndarray | float, dim: int) -> np.ndarray | None:
        """Maximum information gain of n points up to a constant.

        Args:
            points: Numbers of points n, of any shape.
            dim: Number of input dimensions.

        Returns:
            The growth with the shape of `points`, or None where it is not known.
        """
        del points, dim
        return None


@dataclass(frozen=True)
class RBF(Kernel):
    """Squared exponential: exp(-|a - b|^2 / 2)."""

    def cross(self, a: Points, b: Others) -> Float[Array, "n m"]:
        """k(a_i, b_j)."""
        return jnp.exp(_minus_half_squared_distance(a, b))

    @property
    def stationary(self) -> bool:
        """It is."""
        return True

    def diagonal(self, a: Points) -> Float[Array, " n"]:
        """Ones."""
        return _ones(a)

    @property
    def slope_variance(self) -> float:
        """Prior variance of a partial derivative."""
        return 1.0

    def information_exponent(self, dim: int) -> float:
        """0: the growth is logarithmic."""
        del dim
        return 0.0

    def information_growth(self, points: np.ndarray | float, dim: int) -> np.ndarray:
        """log(n)^(dim + 1) (Vakili et al. 2021)."""
        return np.log(np.asarray(points, float)) ** (dim + 1)


@dataclass(frozen=True)
class _Matern(Kernel):
    """What the Matern kernels share."""

    @property
    @abc.abstractmethod
    def smoothness(self) -> float:
        """The parameter nu."""

    @property
    def stationary(self) -> bool:
        """It is."""
        return True

    def diagonal(self, a: Points) -> Float[Array, " n"]:
        """Ones."""
        return _ones(a)

    def information_exponent(self, dim: int) -> float:
        """dim / (2 nu + dim) (Vakili et al. 2021)."""
        return dim / (2 * self.smoothness + dim)

    def information_growth(self, points: np.ndarray | float, dim: int) -> np.ndarray:
        """n^p log(n)^(1 - p) with p = `information_exponent`."""
        n, power = np.asarray(points, float), self.information_exponent(dim)
        return n**power * np.log(n) ** (1 - power)


@dataclass(frozen=True)
class Matern32(_Matern):
    """Matern with nu = 3/2: samples have one derivative."""

    @property
    def smoothness(self) -> float:
        """The parameter nu."""
        return 1.5

    @property
    def slope_variance(self) -> float:
        """Prior variance of a partial derivative."""
        return 3.0

    def cross(self, a: Points, b: Others) -> Float[Array, "n m"]:
        """k(a_i, b_j)."""
        r = jnp.sqrt(3.0) * _distance(a, b)
        return (1 + r) * jnp.exp(-r)


@dataclass(frozen=True)
class Matern52(_Matern):
    """Matern with nu = 5/2: samples have two derivatives."""

    @property
    def smoothness(self) -> float:
        """The parameter nu."""
        return 2.5

    @property
    def slope_variance(self) -> float:
        """Prior variance of a partial derivative."""
        return 5.0 / 3.0

    def cross(self, a: Points, b: Others) -> Float[Array, "n m"]:
        """k(a_i, b_j)."""
        r = jnp.sqrt(5.0) * _distance(a, b)
        return (1 + r + r * r / 3) * jnp.exp(-r)


@dataclass(frozen=True)
class Linear(Kernel):
    """1 + a.b: affine functions."""

    def cross(self, a: Points, b: Others) -> Float[Array, "n m"]:
        """k(a_i, b_j)."""
        return 1 + a @ b.T

    def diagonal(self, a: Points) -> Float[Array, " n"]:
        """1 + |a_i|^2."""
        return 1 + jnp.sum(a * a, axis=-1)

    @property
    def slope_variance(self) -> float:
        """Prior variance of a partial derivative."""
        return 1.0

    def information_exponent(self, dim: int) -> float:
        """0: the growth is logarithmic."""
        del dim
        return 0.0

    def information_growth(self, points: np.ndarray | float, dim: int) -> np.ndarray:
        """dim log(n)."""
        return dim * np.log(np.asarray(points, float))


@dataclass(frozen=True)
class PlusAffine(Kernel):
    """Sum of a kernel and of affine functions, on the points of `affine_features`."""

    base: Kernel
    """The kernel of what is not affine."""

    def cross(self, a: Points, b: Others) -> Float[Array, "n m"]:
        """k(a_i, b_j)."""
        (a, affine_a), (b, affine_b) = _parts(a), _parts(b)
        return self.base.cross(a, b) + affine_a @ affine_b.T

    def diagonal(self, a: Points) -> Float[Array, " n"]:
        """k(a_i, a_i)."""
        a, affine = _parts(a)
        return self.base.diagonal(a) + jnp.sum(affine * affine, axis=-1)

    @property
    def slope_variance(self) -> float | None:
        """Prior variance of a partial derivative of what is not affine."""
        return self.base.slope_variance

    def information_exponent(self, dim: int) -> float | None:
        """That of the base: affine functions add a logarithm."""
        return self.base.information_exponent(dim)

    def information_growth(self, points: np.ndarray | float, dim: int) -> np.ndarray | None:
        """That of the base."""
        return self.base.information_growth(points, dim)


def affine_features(
    points: Float[Array, "*n d"], lengthscales: Float[Array, " d"], weight: Float[Array, ""]
) -> Float[Array, "*n 2*d+1"]:
    """Points of the kernel `PlusAffine`.

    Args:
        points: Normalised inputs.
        lengthscales: Length-scales of the base kernel.
        weight: Std of the coefficients of the affine functions, in signal stds.

    Returns:
        The inputs in length-scales, and the terms of an affine function (the inputs and 1) times the weight.
    """
    return jnp.concatenate([points / lengthscales, weight * points, weight * jnp.ones_like(points[..., :1])], axis=-1)


def _parts(points: Float[Array, "n e"]) -> tuple[Float[Array, "n d"], Float[Array, "n d+1"]]:
    """What the base kernel sees of `affine_features`, and the affine terms."""
    dim = points.shape[-1] // 2
    return points[..., :dim], points[..., dim:]


def _minus_half_squared_distance(a: Points, b: Others) -> Float[Array, "n m"]:
    """-|a_i - b_j|^2 / 2 as one matrix product, which is several times faster than differences.

    Its rounding error is relative to |a|^2 and |b|^2, so points should lie around the origin: see `Kernel.stationary`.
    """
    a_half = -0.5 * jnp.sum(a * a, axis=-1, keepdims=True)
    b_half = -0.5 * jnp.sum(b * b, axis=-1, keepdims=True)
    left = jnp.concatenate([a, a_half, jnp.ones_like(a_half)], axis=-1)
    right = jnp.concatenate([b, jnp.ones_like(b_half), b_half], axis=-1)
    return jnp.minimum(left @ right.T, 0.0)


def _distance(a: Points, b: Others) -> Float[Array, "n m"]:
    return jnp.sqrt(jnp.maximum(-2.0 * _minus_half_squared_distance(a, b), SQUARED_ZERO))


def _ones(a: Points) -> Float[Array, " n"]:
    return jnp.ones(a.shape[:-1], a.dtype)


KERNELS: dict[str, Kernel] = {"rbf": RBF(), "matern32": Matern32(), "matern52": Matern52(), "linear": Linear()}
"""Names of kernels for the command line."""
