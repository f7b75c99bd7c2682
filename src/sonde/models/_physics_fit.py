"""Unknown parameters of known physics, estimated from measurements.

The estimate is the maximum of the posterior density of parameters theta and noise, for

    x' = f(x, u; theta) + e,    e_j ~ N(0, s_j^2),    theta_i ~ N(middle of its range, variance of a uniform one),

where theta stays inside its ranges. What the physics lacks counts as noise, so the std s_j of each output is unknown too; the
density is maximised over it in closed form. It has a floor, as that of the models: on a deterministic system it would go to 0.
The covariance is Laplace's approximation, with the Hessian of Gauss and Newton.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sonde.data import Data
from sonde.models._bfgs import minimise
from sonde.models._normaliser import Normaliser

NOISE_FLOOR = 1e-3
"""Smallest std of what the physics lacks, in stds of the changes x' - x; that of a `GaussianProcess` is the same."""
CANDIDATES, STARTS = 32, 4
"""Points of the ranges that are compared, and the number of the best of them from which is searched."""
BUDGET = 100
"""Most evaluations from each start."""
GRADIENT_TOLERANCE = 0.01
"""In nats: a search ends where no parameter promises more."""


NextState = Callable[[Array, Array, Array], Array]
"""(state, action, values of the parameters) -> next state."""


def prior_of(limits: Float[np.ndarray, "p 2"]) -> tuple[Float[Array, " p"], Float[Array, "p p"]]:
    """Mean and covariance of the parameters before any data: those of a uniform distribution over the ranges.

    Args:
        limits: Smallest and largest value of each parameter.
    """
    return jnp.asarray(limits.mean(axis=1)), jnp.diag(jnp.asarray((limits[:, 1] - limits[:, 0]) ** 2 / 12))


def estimate(
    physics: NextState, limits: Float[np.ndarray, "p 2"], values: Float[Array, " p"], data: Data
) -> tuple[Float[Array, " p"], Float[Array, "p p"]]:
    """Estimate the parameters.

    Args:
        physics: The physics.
        limits: Smallest and largest value of each parameter.
        values: The last estimate, from which is searched too.
        data: Measurements of one seed.

    Returns:
        The estimate and its covariance.
    """
    mask = data.mask()
    low, width = jnp.asarray(limits[:, 0]), jnp.asarray(limits[:, 1] - limits[:, 0])
    scale = Normaliser.of_targets(data).scale
    filled = (jnp.arange(data.capacity) < data.count)[:, None]
    # the physics may not be defined for the zeros of empty rows
    states, actions = (jnp.where(filled, rows, rows[0]) for rows in (data.states, data.actions))
    count = jnp.sum(mask)

    def misfit(shares: Float[Array, " p"]) -> Float[Array, "n dx"]:
        predicted = jax.vmap(lambda x, u: physics(x, u, low + width * shares))(states, actions)
        return jnp.where(mask[:, None], (data.next_states - predicted) / scale, 0.0)

    def variances(shares: Array) -> Float[Array, " dx"]:
        return jnp.sum(misfit(shares) ** 2, axis=0) / jnp.maximum(count, 1) + NOISE_FLOOR**2

    def loss(free: Float[Array, " p"]) -> Float[Array, ""]:
        shares = jax.nn.sigmoid(free)
        return 0.5 * count * jnp.sum(jnp.log(variances(shares))) + 6 * jnp.sum((shares - 0.5) ** 2)

    points = jnp.concatenate([((values - low) / width)[None], _spread(len(limits))])
    points = jax.scipy.special.logit(jnp.clip(points, 1e-6, 1 - 1e-6))
    first = jax.lax.map(loss, points)
    order = jnp.argsort(jnp.where(jnp.isfinite(first), first, jnp.inf))
    found, losses = jax.lax.map(lambda start: minimise(loss, start, BUDGET, GRADIENT_TOLERANCE), points[order[:STARTS]])
    shares = jax.nn.sigmoid(found[jnp.argmin(losses)])
    slopes = jax.jacfwd(misfit)(shares)
    hessian = jnp.einsum("njp,njq,j->pq", slopes, slopes, 1 / variances(shares)) + 12 * jnp.eye(len(limits))
    return low + width * shares, jnp.linalg.inv(hessian) * width[:, None] * width


def _spread(dim: int) -> Float[np.ndarray, "n p"]:
    """The middle of the unit cube and points that fill it evenly: multiples of powers of a generalised golden ratio."""
    ratio = 2.0
    for _ in range(50):  # the root of ratio^(dim + 1) = ratio + 1
        ratio = (1 + ratio) ** (1 / (dim + 1))
    steps = ratio ** -np.arange(1.0, dim + 1)
    return (0.5 + np.arange(CANDIDATES)[:, None] * steps) % 1
