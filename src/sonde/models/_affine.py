"""The affine part of an ensemble: what least squares says about a system before any network is trained."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from sonde.models._linalg import plus_diagonal, triangular_inverse

RIDGE = 1e-2  # in measurements: directions that the data do not excite get small coefficients


def affine_members(
    z: Float[Array, "n dz"], changes: Float[Array, "n dx"], mask: Bool[Array, " n"], members: int, key: Key[Array, ""]
) -> tuple[Float[Array, "E dx dz"], Float[Array, " dx"]]:
    """Coefficients of affine functions by Bayesian least squares, one plausible set for each member.

    Args:
        z: Normalised inputs.
        changes: Targets.
        mask: True for the rows that are used.
        members: Number of members.
        key: Randomness of the coefficients.

    Returns:
        The coefficients, and the std of what the most plausible ones leave of the targets.
    """
    count = jnp.maximum(jnp.sum(mask), 1)
    inputs = jnp.where(mask[:, None], z, 0.0)
    centred = jnp.where(mask[:, None], changes - jnp.sum(changes, axis=0, where=mask[:, None]) / count, 0.0)
    # no more than a few inputs: the normal equations are accurate enough in double precision
    lower = jax.lax.linalg.cholesky(plus_diagonal(inputs.T @ inputs, jnp.asarray(RIDGE)), symmetrize_input=False)
    root = triangular_inverse(lower).T  # root @ root.T is the inverse of the matrix
    coefficients = root @ (root.T @ (inputs.T @ centred))
    squares = jnp.sum((centred - inputs @ coefficients) ** 2, axis=0)
    free = count - z.shape[1] - 1
    # measurements that are all needed for the coefficients say nothing about their errors
    spread = jnp.sqrt(jnp.where(free > 0, squares / jnp.maximum(free, 1), jnp.sum(centred**2, axis=0) / count))
    draws = jax.random.normal(key, (members, z.shape[1], changes.shape[1]), z.dtype)
    each = coefficients + (root @ draws) * spread
    return jnp.swapaxes(each, -1, -2), jnp.sqrt(squares / count)
