"""The adversary of a plan: a search for the plausible dynamics that hurt it most.

The adversary chooses a sequence of eta in [-1, 1]. While the confidence region is narrow, the return is nearly linear in eta,
and a linear function is lowest in a corner: the one that its gradient points away from. Near an optimal plan the gradient says
little, and the return may fall steeply on the other side, so the opposite corner is tried too. From both corners the search
may continue to the corner that is lowest by the gradient there, and so on; this never increases the return if it is concave in
eta (costs are convex). The search finds a bad case, not provably the worst.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Rewards = Callable[[Float[Array, "H da"]], Float[Array, "K H"]]
"""rewards(eta): the rewards of a plan under the adversary's controls, per particle and step."""


def worst_case(
    rewards: Rewards, zero: Float[Array, "H da"], steps: int, near_zero: Rewards | None = None
) -> tuple[Float[Array, "H da"], Float[Array, "K H"]]:
    """Search the adversary's controls that leave a plan the smallest return.

    Args:
        rewards: The rewards of the plan.
        zero: Controls of zero, where the search starts; they are a candidate too.
        steps: Steps of the search.
        near_zero: A cheaper function to use at `zero`; it must equal `rewards` there, and its gradient must have equal signs.

    Returns:
        The worst controls found, and the rewards under them.
    """

    def evaluate(rewards: Rewards, eta: Array) -> tuple[Array, Array, Array]:
        """The return, the controls and the rewards."""
        found = rewards(eta)
        return jnp.mean(jnp.sum(found, axis=-1)), eta, found

    def evaluate_with_corner(rewards: Rewards, eta: Array) -> tuple[tuple[Array, ...], Array]:
        """The same, and the corner that is lowest by the gradient at `eta`."""

        def plan_return(eta: Array) -> tuple[Array, tuple[Array, ...]]:
            found = evaluate(rewards, eta)
            return found[0], found

        gradient, found = jax.grad(plan_return, has_aux=True)(eta)
        return found, jnp.where(gradient > 0, -1.0, 1.0).astype(eta.dtype)

    def step(corners: Array, _: None) -> tuple[Array, tuple[Array, ...]]:
        tried, corners = jax.vmap(lambda eta: evaluate_with_corner(rewards, eta))(corners)
        return corners, tried

    nominal, corner = evaluate_with_corner(rewards if near_zero is None else near_zero, zero)
    last, tried = jax.lax.scan(step, jnp.stack([corner, -corner]), length=steps - 1)
    tried_last = jax.vmap(lambda eta: evaluate(rewards, eta))(last)
    flat = lambda first, others, last: jnp.concatenate([first[None], others.reshape(-1, *first.shape), last])
    returns, etas, all_rewards = jax.tree.map(flat, nominal, tried, tried_last)
    # NaN counts as the worst, so that the planner avoids plans that may lead to it
    worst = jnp.argmin(jnp.where(jnp.isnan(returns), -jnp.inf, returns))
    return etas[worst], all_rewards[worst]
