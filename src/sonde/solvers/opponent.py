"""The opponent of a plan: what the model holds for plausible, chosen to hurt.

An answer is a sequence of eta in [-1, 1]. What it does to a plan is close to linear while the confidence region is narrow, and a
linear function is lowest in a corner: the search goes towards one corner after the other (Frank-Wolfe), each the lowest as the
gradient has it. It finds a bad case, not provably the worst.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def worst_answer(
    rewards: Callable[[Float[Array, "H do"]], Float[Array, "K H"]], unopposed: Float[Array, "H do"], steps: int
) -> tuple[Float[Array, "H do"], Float[Array, "K H"]]:
    """The answer that leaves a plan the least return, among none and those of `steps`; and the rewards that it leaves."""

    def worth(eta):
        left = rewards(eta)
        return jnp.mean(jnp.sum(left, axis=-1)), left

    def look(eta):
        (value, left), slope = jax.value_and_grad(worth, has_aux=True)(eta)
        return (value, eta, left), jnp.where(jnp.isfinite(slope), -jnp.sign(slope), 0.0)

    def step(carry, turn):
        worst, eta, corner = carry
        eta = eta + 2 / (turn + 2) * (corner - eta)
        found, corner = look(eta)
        # not a number is worse than any: a plan that may lead there is the planner's to refuse
        worse = ~(found[0] >= worst[0])
        return (jax.tree.map(lambda new, old: jnp.where(worse, new, old), found, worst), eta, corner), None

    first, corner = look(unopposed)
    ((_, eta, left), _, _), _ = jax.lax.scan(step, (first, unopposed, corner), jnp.arange(steps))
    return eta, left
