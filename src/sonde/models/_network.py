"""A small fully connected network in single precision."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Float32, Key


def _product(a: Float32[Array, "n k"], b: Float32[Array, "k m"]) -> Float32[Array, "n m"]:
    # the engine asks for full precision everywhere; a network's products may use the device's fast one
    return jax.lax.dot(a, b, precision=jax.lax.Precision.DEFAULT)


@jax.custom_vjp
def linear(h: Float32[Array, "batch k"], weight: Float32[Array, "k m"]) -> Float32[Array, "batch m"]:
    """h @ weight, with a gradient that is quick on CPUs too."""
    return _product(h, weight)


def _linear_forward(h, weight):
    return _product(h, weight), (h, weight)


def _linear_backward(saved, gradient):
    h, weight = saved
    # CPUs multiply twice as fast if the transpose is laid out first; the barrier keeps the compiler from merging the two again
    transpose_first = lambda a, b: _product(jax.lax.optimization_barrier(a.T), b)
    for_weight = jax.lax.platform_dependent(h, gradient, cpu=transpose_first, default=lambda a, b: _product(a.T, b))
    return _product(gradient, weight.T), for_weight


linear.defvjp(_linear_forward, _linear_backward)


def over_members(function: Callable[..., Any], *trees: Any) -> Any:
    """`function` of each member's slice (axis 0) of the trees.

    Side by side on an accelerator; one after the other on a CPU, where one member's numbers then stay in the cache.
    """
    one_by_one = lambda *trees: jax.lax.map(lambda slices: function(*slices), trees)
    return jax.lax.platform_dependent(*trees, cpu=one_by_one, default=lambda *trees: jax.vmap(function)(*trees))


class Network(eqx.Module):
    """Layers with swish between them."""

    weights: tuple[Float32[Array, "..."], ...]
    biases: tuple[Float32[Array, "..."], ...]

    @classmethod
    def init(cls, sizes: tuple[int, ...], key: Key[Array, ""], scale: float = 1.0) -> "Network":
        """Truncated normal weights, biases zero; `sizes` lists inputs, hidden, outputs.

        Before the activation a layer makes of a unit input one of spread `scale`.
        """
        keys = jax.random.split(key, len(sizes) - 1)
        # a normal cut at two stds has std 0.8796
        draw = lambda k, n, m: scale * jax.random.truncated_normal(k, -2, 2, (n, m), jnp.float32) / (0.8796 * n**0.5)
        weights = tuple(draw(k, n, m) for k, n, m in zip(keys, sizes[:-1], sizes[1:], strict=True))
        return cls(weights, tuple(jnp.zeros(m, jnp.float32) for m in sizes[1:]))

    def __call__(self, z: Float[Array, "batch inputs"]) -> Float32[Array, "batch outputs"]:
        """The outputs."""
        h = z.astype(jnp.float32)
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            h = linear(h, weight) + bias
            if i + 1 < len(self.weights):
                h = jax.nn.swish(h)
        return h
