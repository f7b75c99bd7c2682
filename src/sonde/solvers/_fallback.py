"""What a planning policy does where no plan is admissible.

The policy's own state remembers the rest of the last admissible plan. When that plan was made, all of it was admissible for
everything plausible, so its rest still is after any plausible step; only its end is open. It is therefore the default fallback.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from sonde.solvers._problem import ControlProblem


class Checked(NamedTuple):
    """What the check of constraints said about the action of a step."""

    margin: Float[Array, "*batch"]
    """The smallest margin that was predicted for the plan, in the worst case."""
    fallback: Bool[Array, "*batch"]
    """Whether the plan was not admissible, and the fallback acted."""


class SafeState(eqx.Module):
    """What one step of a policy with constraints passes to the next."""

    planner: Any
    """The planner's own state."""
    rest: Float[Array, "H du"]
    """Actions of the last admissible plan that are still to come."""
    left: Int[Array, ""]
    """How many of them were checked."""
    last: Float[Array, " du"]
    """The last action."""
    checked: Checked


class SafeSearch(eqx.Module):
    """What one iteration of an interrupted search passes to the next."""

    planner: Any
    """The planner's search."""
    before: SafeState
    x: Float[Array, " dx"]
    """State of the system that is planned for."""
    searched: Bool[Array, ""]
    """Whether there was any iteration."""


def initial_safe_state(problem: ControlProblem, planner_state: Any, horizon: int) -> SafeState:
    """The state at the start of an episode: no admissible plan, and no action.

    Args:
        problem: The control problem.
        planner_state: The planner's own state.
        horizon: Steps of a plan.
    """
    none = Checked(jnp.asarray(-jnp.inf, float), jnp.asarray(True))
    rest = jnp.zeros((horizon, problem.action_dim))
    return SafeState(planner_state, rest, jnp.zeros((), jnp.int32), rest[0], none)


def begin_safe_search(problem: ControlProblem, search: Any, before: SafeState) -> SafeSearch:
    """A search before its first iteration.

    Args:
        problem: The control problem.
        search: The planner's search.
        before: The policy's state.
    """
    return SafeSearch(search, before, jnp.zeros(problem.full_dim, before.rest.dtype), jnp.asarray(False))


def admissible_or_fallback(
    problem: ControlProblem,
    before: SafeState,
    planner_state: Any,
    x: Float[Array, " dx"],
    plan: Float[Array, "H dc"],
    searched: Bool[Array, ""] | bool = True,
) -> tuple[Float[Array, "H du"], SafeState]:
    """Check a plan, and replace it where it is not admissible.

    Args:
        problem: The control problem.
        before: The policy's state before this step.
        planner_state: The planner's state after it.
        x: State of the system.
        plan: The best plan.
        searched: Whether it was made for `x`; otherwise the rest of the last admissible plan goes on.

    Returns:
        Actions for this step and the following ones, and the policy's next state.
    """
    safety = problem.safety
    assert safety is not None
    margin = jnp.where(searched, problem.worst_margin(x, plan), -jnp.inf).astype(before.rest.dtype)
    admissible = margin >= safety.margin
    actions = jnp.clip(plan[:, : problem.action_dim], -1.0, 1.0)
    otherwise = _fallback(problem, before, x, actions)
    finite = jnp.all(jnp.isfinite(otherwise), axis=-1, keepdims=True)
    chosen = jnp.where(admissible, actions, jnp.where(finite, otherwise, 0.0))
    rest, left = jnp.where(admissible, actions, before.rest), before.left
    after = SafeState(
        planner=planner_state,
        rest=jnp.concatenate([rest[1:], rest[-1:]]),
        left=jnp.where(admissible, safety.checked_steps(len(actions)), jnp.maximum(left, 1)).astype(left.dtype) - 1,
        last=chosen[0],
        checked=Checked(margin, ~admissible),
    )
    return chosen, after


def _fallback(
    problem: ControlProblem, before: SafeState, x: Float[Array, " dx"], actions: Float[Array, "H du"]
) -> Float[Array, "H du"]:
    """What is done in place of a plan that is not admissible; what depends on the state alone is repeated until it is known."""
    safety = problem.safety
    assert safety is not None
    if safety.fallback == "last-plan":
        return jnp.where(before.left > 0, before.rest, actions)
    if safety.fallback == "hold":
        return jnp.broadcast_to(before.last, actions.shape)
    if safety.fallback == "zero":
        return jnp.zeros_like(actions)
    assert safety.fallback_feedback is not None
    feedback = jnp.clip(jnp.asarray(safety.fallback_feedback(problem.observed(x)), actions.dtype), -1.0, 1.0)
    return jnp.broadcast_to(feedback, actions.shape)
