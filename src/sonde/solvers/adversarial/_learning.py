"""How the opponent of soft actor-critic learns: a second actor that answers every action with the eta that leaves the least.

It sees the state and the action, for the worst case answers a choice: max over u of min over eta. Imagined steps are kept with
what was believed, so that another answer to an old step, x' = mean + beta * std * eta, asks no model. The opponent follows the
slope of what the critics are about to learn of the step: its reward, and the value of x'. (Critics that saw eta would have to
find that slope themselves; where little is in doubt, it drowns in their errors.) They learn what its middle answer leaves.

Like the actor it is paid for being random, at a price of its own that holds its entropy. What hurts most is often a corner of
[-1, 1], and tanh is flat there: an opponent that was certain too early would not leave the wrong one. Slopes are taken in units
of their mean size, so that the price does not depend on how much is in doubt.
"""

from collections.abc import Callable
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Float32

from sonde.imagination import Chance
from sonde.models._normaliser import Normaliser
from sonde.solvers._actor import answer, squashed
from sonde.solvers._base import ControlProblem
from sonde.solvers._learner import Batch, Opponent, Unanswered, sound


class Game(eqx.Module):
    """What follows from an answer, in the units of the networks."""

    problem: ControlProblem
    normaliser: Normaliser
    scale: Float32[Array, ""]
    low: Float32[Array, " dx"]
    high: Float32[Array, " dx"]
    """Between these are the states from which steps were imagined."""

    def outcome(self, steps: Unanswered, eta: Float32[Array, "n do"]) -> tuple[Float32[Array, " n"], Float32[Array, "n dx"]]:
        """Rewards and next states.

        Where no step was imagined from, the critics are taken at the border: their guesses beyond may fall without end, and an
        opponent would lead there, farther in every round.
        """
        x_next, rewards = sound(steps.x, *answered(self.problem, steps, eta))
        next_states = jnp.clip(self.normaliser(x_next).astype(jnp.float32), self.low, self.high)
        return (rewards / self.scale).astype(jnp.float32), next_states


def unanswered(
    problem: ControlProblem, x: Float[Array, "n dx"], controls: Float32[Array, "n dc"], chance: Chance
) -> Unanswered:
    """What is believed of steps from `x`."""
    controls = controls.astype(x.dtype)
    beliefs = jax.vmap(problem.posterior.believe)(x, controls[:, : problem.action_dim])
    return Unanswered(x, controls, replace(beliefs, members=None), chance)


def answered(
    problem: ControlProblem, steps: Unanswered, eta: Float32[Array, "n do"]
) -> tuple[Float[Array, "n dx"], Float[Array, " n"]]:
    """The next states, and what the steps are worth."""

    def one(step: Unanswered, eta: Float[Array, " do"]) -> tuple[Float[Array, " dx"], Float[Array, ""]]:
        u, extra = step.controls[: problem.action_dim], step.controls[problem.action_dim :]
        x_next = problem.imagination.next_state(step.beliefs, jnp.concatenate([extra, eta]), step.chance)
        return x_next, problem.worth(step.x, u, x_next, step.beliefs)

    return jax.vmap(one)(steps, eta.astype(steps.x.dtype))


def opposed(
    opponent: Opponent,
    game: Game,
    batch: Batch,
    wanted: Callable[[Float32[Array, " n"], Float32[Array, "n dx"]], Float32[Array, " n"]],
    noise: Float32[Array, "n do"],
    target_entropy: float,
) -> tuple[Batch, Opponent]:
    """The same steps with the opponent's answers, and its gradient; `wanted` is what the critics are to learn of outcomes."""
    steps = batch.unanswered
    assert steps is not None
    drawn = lambda network: squashed(network(jnp.concatenate([batch.states, batch.controls], axis=-1)), noise)
    slope = jax.grad(lambda eta: jnp.sum(wanted(*game.outcome(steps, eta))))(drawn(opponent.network)[0])
    slope = jnp.where(jnp.isfinite(slope), slope, 0.0)
    size = jnp.mean(jnp.abs(slope), axis=0)
    slope = slope / jnp.where(size > 0, size, 1.0)

    def loss(network):
        eta, density = drawn(network)
        return jnp.mean(jnp.sum(slope * eta, axis=-1) + jnp.exp(opponent.log_temperature) * density), jnp.mean(density)

    gradient, density = jax.grad(loss, has_aux=True)(opponent.network)
    rewards, next_states = game.outcome(steps, answer(opponent.network, batch.states, batch.controls))
    temperature_gradient = -(density + target_entropy * noise.shape[-1])
    return batch._replace(rewards=rewards, next_states=next_states), Opponent(gradient, temperature_gradient)
