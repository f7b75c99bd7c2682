"""The adversary of a plan: what the model holds for plausible, chosen to hurt.

An answer is a sequence of eta in [-1, 1]. What it does to a plan is close to linear while the confidence region is narrow, and
a linear function is lowest in a corner: the one that the slope points away from. Where the plan is nearly optimal the slope
says little, and beyond the optimum there may be a cliff, so the opposite corner is tried as well. From both, a search may go on
to the corner that is lowest as seen from there, and so on, which never goes up if the return is concave in eta (costs are
convex). It finds a bad case, not provably the worst.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Rewards = Callable[[Float[Array, "H do"]], Float[Array, "K H"]]


def worst_case(
    adversarial: Rewards, nothing: Float[Array, "H do"], steps: int, perturbed: Rewards | None = None
) -> tuple[Float[Array, "H do"], Float[Array, "K H"]]:
    """The answer that leaves a plan the least return, among `nothing` and those of `steps`; and the rewards that it leaves.

    `perturbed`, where given, serves to look at `nothing`: it must agree with `opposed` there, and its slope in sign.
    """

    def look(rewards: Rewards, eta: Array) -> tuple[Array, Array, Array]:
        """The return, the answer and the rewards."""
        left = rewards(eta)
        return jnp.mean(jnp.sum(left, axis=-1)), eta, left

    def look_around(rewards: Rewards, eta: Array) -> tuple[tuple[Array, ...], Array]:
        """The same; and the corner that is lowest as seen from here."""

        def worth(eta: Array) -> tuple[Array, tuple[Array, ...]]:
            found = look(rewards, eta)
            return found[0], found

        slope, found = jax.grad(worth, has_aux=True)(eta)
        return found, jnp.where(slope > 0, -1.0, 1.0).astype(eta.dtype)

    def step(corners: Array, _: None) -> tuple[Array, tuple[Array, ...]]:
        tried, corners = jax.vmap(lambda eta: look_around(adversarial, eta))(corners)
        return corners, tried

    nominal, corner = look_around(adversarial if perturbed is None else perturbed, nothing)
    last, tried = jax.lax.scan(step, jnp.stack([corner, -corner]), length=steps - 1)
    tried_last = jax.vmap(lambda eta: look(adversarial, eta))(last)
    flat = lambda first, others, last: jnp.concatenate([first[None], others.reshape(-1, *first.shape), last])
    values, responses, left = jax.tree.map(flat, nominal, tried, tried_last)
    # not a number is worse than any: a plan that may lead there is the planner's to refuse
    worst = jnp.argmin(jnp.where(jnp.isnan(values), -jnp.inf, values))
    return responses[worst], left[worst]
