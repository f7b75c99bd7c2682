"""Networks in single precision: what an ensemble's members may be, and the fully connected one."""

import abc
import itertools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Float32, Key

from sonde._internal.platforms import by_platform


def _product(a: Float32[Array, "n k"], b: Float32[Array, "k m"]) -> Float32[Array, "n m"]:
    # `double_precision` asks for the highest precision everywhere; networks may use the device's faster products
    return jax.lax.dot(a, b, precision=jax.lax.Precision.DEFAULT)


@jax.custom_vjp
def linear(h: Float32[Array, "batch k"], weight: Float32[Array, "k m"]) -> Float32[Array, "batch m"]:
    """Compute h @ weight, with a gradient that is fast on CPUs too.

    Args:
        h: Activations.
        weight: Weight matrix.
    """
    return _product(h, weight)


def _linear_forward(h, weight):
    return _product(h, weight), (h, weight)


def _linear_backward(saved, gradient):
    h, weight = saved
    # CPUs multiply twice as fast if the transpose is stored first; the barrier keeps the compiler from fusing the two
    transpose_first = lambda a, b: _product(jax.lax.optimization_barrier(a.T), b)
    for_weight = by_platform(h, gradient, cpu=transpose_first, default=lambda a, b: _product(a.T, b))
    return _product(gradient, weight.T), for_weight


linear.defvjp(_linear_forward, _linear_backward)


def over_members(function: Callable[..., Any], *trees: Any, elsewhere: Callable[..., Any] | None = None) -> Any:
    """Map a function over ensemble members.

    In parallel on an accelerator; one after the other on a CPU, so that a member's arrays stay in the cache.

    Args:
        function: Function of one member's slices.
        *trees: Pytrees whose arrays have a leading axis E.
        elsewhere: A form of the function for devices other than CPUs, if it has one.

    Returns:
        The results, stacked along a leading axis E.
    """
    one_by_one = lambda *trees: jax.lax.map(lambda slices: function(*slices), trees)
    return by_platform(*trees, cpu=one_by_one, default=jax.vmap(elsewhere or function))


Activation = Callable[[Array], Array]


class MemberNetwork(eqx.Module):
    """A function of one member of an ensemble."""

    @property
    def rows_per_input(self) -> int:
        """Rows of activations that one input becomes in the widest part of the network."""
        return 1

    @abc.abstractmethod
    def __call__(self, z: Float[Array, "batch inputs"], swish: Activation = jax.nn.swish) -> Float32[Array, "batch outputs"]:
        """Evaluate the network.

        Args:
            z: Inputs.
            swish: The activation; some devices have faster forms of it.
        """


class Network(MemberNetwork):
    """Fully connected layers with swish between them."""

    weights: tuple[Float32[Array, "..."], ...]
    """Weight matrix of each layer [inputs, outputs]."""
    biases: tuple[Float32[Array, "..."], ...]
    """Bias of each layer [outputs]."""

    @classmethod
    def init(cls, sizes: tuple[int, ...], key: Key[Array, ""], scale: float = 1.0) -> "Network":
        """Draw truncated normal weights; biases are zero.

        Args:
            sizes: Number of inputs, of units in each hidden layer, and of outputs.
            key: Randomness of the weights.
            scale: Std of a layer's outputs, before the activation, for inputs of unit std.
        """
        shapes = list(itertools.pairwise(sizes))
        ends = list(itertools.accumulate(n * m for n, m in shapes))
        # one draw for all layers, because every draw takes long to compile
        parts = jnp.split(jax.random.truncated_normal(key, -2, 2, (ends[-1],), jnp.float32), ends[:-1])
        # a normal distribution truncated at two stds has std 0.8796
        weights = tuple(scale / (0.8796 * n**0.5) * part.reshape(n, m) for part, (n, m) in zip(parts, shapes, strict=True))
        return cls(weights, tuple(jnp.zeros(m, jnp.float32) for m in sizes[1:]))

    def __call__(self, z: Float[Array, "batch inputs"], swish: Activation = jax.nn.swish) -> Float32[Array, "batch outputs"]:
        """Evaluate the network."""
        return self.after_first(linear(z.astype(jnp.float32), self.weights[0]) + self.biases[0], swish)

    def after_first(self, h: Float32[Array, "batch k"], swish: Activation = jax.nn.swish) -> Float32[Array, "batch outputs"]:
        """Evaluate all layers but the first.

        Args:
            h: Outputs of the first layer, before the activation.
            swish: The activation.
        """
        for weight, bias in zip(self.weights[1:], self.biases[1:], strict=True):
            h = linear(swish(h), weight) + bias
        return h
