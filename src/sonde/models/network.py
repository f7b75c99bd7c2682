"""A small fully connected network in single precision."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Float32, Key


class Network(eqx.Module):
    """Layers with swish between them. One point in, one point out; `vmap` it for many."""

    weights: tuple[Float32[Array, "..."], ...]
    biases: tuple[Float32[Array, "..."], ...]

    @classmethod
    def init(cls, sizes: tuple[int, ...], key: Key[Array, ""]) -> "Network":
        """Truncated normal weights that keep the spread of a unit input, biases zero; `sizes` lists inputs, hidden, outputs."""
        keys = jax.random.split(key, len(sizes) - 1)
        # a normal cut at two stds has std 0.8796
        draw = lambda k, n, m: jax.random.truncated_normal(k, -2, 2, (n, m), jnp.float32) / (0.8796 * n**0.5)
        weights = tuple(draw(k, n, m) for k, n, m in zip(keys, sizes[:-1], sizes[1:], strict=True))
        return cls(weights, tuple(jnp.zeros(m, jnp.float32) for m in sizes[1:]))

    def __call__(self, z: Float[Array, " inputs"]) -> Float32[Array, " outputs"]:
        """The output."""
        h = z.astype(jnp.float32)
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            # the engine asks for full precision everywhere; a network's products may use the device's fast one
            h = jax.lax.dot(h, weight, precision=jax.lax.Precision.DEFAULT) + bias
            if i + 1 < len(self.weights):
                h = jax.nn.swish(h)
        return h
