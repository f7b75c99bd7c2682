"""Covariance functions with unit signal variance, on inputs that are already divided by their length-scales.

Each kernel is two functions: `cross(a, b)`, the matrix k(a_i, b_j), and `diagonal(a)`, the vector k(a_i, a_i). To add one,
write them and add a line to `KERNELS`. A third number says how uncertain the slope of a function is before any data.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

Points = Float[Array, "n d"]
Others = Float[Array, "m d"]
SQUARED_ZERO = 1e-30  # below it two points are the same; keeps the square root differentiable


class Kernel(NamedTuple):
    """A covariance function."""

    cross: Callable[[Points, Others], Array]
    diagonal: Callable[[Points], Array]
    slope_variance: float | None = None
    """Prior variance of a partial derivative, d^2 k(a, b) / da_i db_i at a = b; None where functions have no derivative."""


def _minus_half_squared_distance(a: Points, b: Others) -> Float[Array, "n m"]:
    """-|a_i - b_j|^2 / 2 as one matrix product, which is several times faster than differences."""
    a_half = -0.5 * jnp.sum(a * a, axis=-1, keepdims=True)
    b_half = -0.5 * jnp.sum(b * b, axis=-1, keepdims=True)
    left = jnp.concatenate([a, a_half, jnp.ones_like(a_half)], axis=-1)
    right = jnp.concatenate([b, jnp.ones_like(b_half), b_half], axis=-1)
    return jnp.minimum(left @ right.T, 0.0)


def _distance(a: Points, b: Others) -> Float[Array, "n m"]:
    return jnp.sqrt(jnp.maximum(-2.0 * _minus_half_squared_distance(a, b), SQUARED_ZERO))


def _rbf(a: Points, b: Others) -> Float[Array, "n m"]:
    return jnp.exp(_minus_half_squared_distance(a, b))


def _matern32(a: Points, b: Others) -> Float[Array, "n m"]:
    r = jnp.sqrt(3.0) * _distance(a, b)
    return (1 + r) * jnp.exp(-r)


def _matern52(a: Points, b: Others) -> Float[Array, "n m"]:
    r = jnp.sqrt(5.0) * _distance(a, b)
    return (1 + r + r * r / 3) * jnp.exp(-r)


def _linear(a: Points, b: Others) -> Float[Array, "n m"]:
    return 1 + a @ b.T


def _ones(a: Points) -> Float[Array, " n"]:
    return jnp.ones(a.shape[:-1], a.dtype)


KERNELS = {
    "rbf": Kernel(_rbf, _ones, 1.0),
    "matern32": Kernel(_matern32, _ones, 3.0),
    "matern52": Kernel(_matern52, _ones, 5.0 / 3.0),
    "linear": Kernel(_linear, lambda a: 1 + jnp.sum(a * a, axis=-1), 1.0),
}
