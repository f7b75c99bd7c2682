"""Minimisation of smooth functions of a few variables, such as the hyper-parameters of a Gaussian process.

BFGS with backtracking, written so that each iteration evaluates the function once: an evaluation may take a Cholesky
factorisation of a large matrix, and each further copy of it in a compiled program takes seconds to compile.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from sonde.models._linalg import any_of_all

LONGEST_STEP = 2.0  # of any variable; the variables are logarithms
SHORTEST_STEP = 1e-8  # as a fraction of the full step: a direction that does not even descend so far is given up
SUFFICIENT_DECREASE = 1e-4


class _State(NamedTuple):
    x: Float[Array, " d"]
    value: Float[Array, ""]
    gradient: Float[Array, " d"]
    inverse_hessian: Float[Array, "d d"]
    updates: Int[Array, ""]
    """Number of updates of the inverse Hessian since it was the identity."""
    direction: Float[Array, " d"]
    fraction: Float[Array, ""]
    """Fraction of the direction that is tried next."""
    done: Bool[Array, ""]


def minimise(
    function: Callable[[Float[Array, " d"]], Float[Array, ""]], start: Float[Array, " d"], budget: int, tolerance: float
) -> tuple[Float[Array, " d"], Float[Array, ""]]:
    """Minimise a function from a starting point.

    Args:
        function: The function; where it is not finite, it counts as larger than anywhere else.
        start: Starting point.
        budget: Most evaluations of the function with its gradient.
        tolerance: Stop when no entry of the gradient is larger than this.

    Returns:
        The best point found, and its value.
    """
    evaluate, dim = jax.value_and_grad(function), start.shape[0]

    def iterate(carry):
        count, state = carry
        tried = state.x + state.fraction * state.direction
        value, gradient = evaluate(tried)
        finite = jnp.isfinite(value) & jnp.all(jnp.isfinite(gradient))
        expected = state.fraction * (state.gradient @ state.direction)
        better = finite & (value <= state.value + SUFFICIENT_DECREASE * jnp.minimum(expected, 0.0))
        accepted = _accept(state, tried, value, gradient, tolerance)
        rejected = _reject(state, jnp.where(finite, value, jnp.inf), expected)
        new = jax.tree.map(lambda yes, no: jnp.where(better, yes, no), accepted, rejected)
        # under `vmap`, others may still be at work
        return count + 1, jax.tree.map(lambda old, new: jnp.where(state.done, old, new), state, new)

    zero = jnp.zeros_like(start)
    no = jnp.zeros((), bool)
    first = _State(start, jnp.asarray(jnp.inf, start.dtype), zero, jnp.eye(dim), jnp.zeros((), int), zero, jnp.ones(()), no)
    going_on = lambda carry: (carry[0] < budget) & any_of_all(~carry[1].done)
    _, end = jax.lax.while_loop(going_on, iterate, (jnp.zeros((), int), first))
    return end.x, end.value


def _accept(state: _State, x: Array, value: Array, gradient: Array, tolerance: float) -> _State:
    """The state at a point that is better."""
    step, change = x - state.x, gradient - state.gradient
    along, dim = step @ change, x.shape[0]
    curved = along > 1e-10 * jnp.linalg.norm(step) * jnp.linalg.norm(change)  # false at the first point
    safe = jnp.where(curved, along, 1.0)
    # before the first update, the identity has the wrong scale (Nocedal and Wright, 6.20)
    scale = jnp.where(curved & (state.updates == 0), safe / jnp.where(curved, change @ change, 1.0), 1.0)
    left = jnp.eye(dim) - jnp.outer(step, change) / safe
    updated = left @ (scale * state.inverse_hessian) @ left.T + jnp.outer(step, step) / safe
    inverse_hessian = jnp.where(curved, updated, state.inverse_hessian)
    updates = state.updates + curved
    direction = _limited(-inverse_hessian @ gradient)
    return _State(
        x, value, gradient, inverse_hessian, updates, direction, jnp.ones(()), jnp.max(jnp.abs(gradient)) <= tolerance
    )


def _reject(state: _State, value: Array, expected: Array) -> _State:
    """The state after a point that is not better: a shorter step, or steepest descent if the direction leads nowhere."""
    # the minimum of the parabola through both values and the slope
    ratio = -0.5 * expected / jnp.maximum(value - state.value - expected, 1e-300)
    fraction = state.fraction * jnp.clip(jnp.where(jnp.isfinite(value), ratio, 0.0), 0.1, 0.5)
    lost = fraction < SHORTEST_STEP
    return _State(
        state.x,
        state.value,
        state.gradient,
        jnp.where(lost, jnp.eye(state.x.shape[0]), state.inverse_hessian),
        jnp.where(lost, 0, state.updates),
        jnp.where(lost, _limited(-state.gradient), state.direction),
        jnp.where(lost, 1.0, fraction),
        # a start without a finite value, or steepest descent that does not descend
        ~jnp.isfinite(state.value) | (lost & (state.updates == 0)),
    )


def _limited(direction: Array) -> Array:
    return direction * jnp.minimum(1.0, LONGEST_STEP / jnp.maximum(jnp.max(jnp.abs(direction)), 1e-300))
