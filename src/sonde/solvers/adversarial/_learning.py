"""How the adversary of soft actor-critic learns: a second actor that answers every action with the eta that leaves the least.

It sees the state and the action, for the worst case answers a choice: max over u of min over eta. Imagined steps are kept with
what was predicted, so that another answer to an old step, x' = mean + beta * std * eta, asks no model. The adversary follows the
slope of what the critics are about to learn of the step: its reward, and the value of x'. (Critics that saw eta would have to
find that slope themselves; where little is in doubt, it drowns in their errors.) They learn what its middle answer leaves.

Like the actor it is paid for being random, at a price of its own that holds its entropy. What hurts most is often a corner of
[-1, 1], and tanh is flat there: an adversary that was certain too early would not leave the wrong one. Slopes are taken in units
of their mean size, so that the price does not depend on how much is in doubt.
"""

from collections.abc import Callable
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Float32

from sonde.imagination import NoiseDraws
from sonde.models._normaliser import Normaliser
from sonde.solvers._actor import response, squashed
from sonde.solvers._learner import Adversary, Batch, PendingSteps, sound
from sonde.solvers._problem import ControlProblem


class AdversaryProblem(eqx.Module):
    """What follows from an answer, in the units of the networks."""

    problem: ControlProblem
    normaliser: Normaliser
    scale: Float32[Array, ""]
    low: Float32[Array, " dx"]
    high: Float32[Array, " dx"]
    """Between these are the states from which steps were imagined."""

    def outcome(self, steps: PendingSteps, eta: Float32[Array, "n do"]) -> tuple[Float32[Array, " n"], Float32[Array, "n dx"]]:
        """Rewards and next states.

        Where no step was imagined from, the critics are taken at the border: their guesses beyond may fall without end, and an
        adversary would lead there, farther in every round.
        """
        x_next, rewards = sound(steps.x, *respond(self.problem, steps, eta))
        next_states = jnp.clip(self.normaliser(x_next).astype(jnp.float32), self.low, self.high)
        return (rewards / self.scale).astype(jnp.float32), next_states


def pending(
    problem: ControlProblem, x: Float[Array, "n dx"], controls: Float32[Array, "n dc"], draws: NoiseDraws
) -> PendingSteps:
    """What is predicted of steps from `x`."""
    controls = controls.astype(x.dtype)
    predictions = jax.vmap(problem.posterior.predict)(x, controls[:, : problem.action_dim])
    return PendingSteps(x, controls, replace(predictions, members=None), draws)


def respond(
    problem: ControlProblem, steps: PendingSteps, eta: Float32[Array, "n do"]
) -> tuple[Float[Array, "n dx"], Float[Array, " n"]]:
    """The next states, and what the steps are worth."""

    def one(step: PendingSteps, eta: Float[Array, " do"]) -> tuple[Float[Array, " dx"], Float[Array, ""]]:
        u, extra = step.controls[: problem.action_dim], step.controls[problem.action_dim :]
        x_next = problem.imagination.next_state(step.predictions, jnp.concatenate([extra, eta]), step.draws)
        return x_next, problem.worth(step.x, u, x_next, step.predictions)

    return jax.vmap(one)(steps, eta.astype(steps.x.dtype))


def adversary_update(
    adversary: Adversary,
    adversary_problem: AdversaryProblem,
    batch: Batch,
    wanted: Callable[[Float32[Array, " n"], Float32[Array, "n dx"]], Float32[Array, " n"]],
    noise: Float32[Array, "n do"],
    target_entropy: float,
) -> tuple[Batch, Adversary]:
    """The same steps with the adversary's answers, and its gradient; `wanted` is what the critics are to learn of outcomes."""
    steps = batch.pending
    assert steps is not None
    drawn = lambda network: squashed(network(jnp.concatenate([batch.states, batch.controls], axis=-1)), noise)
    slope = jax.grad(lambda eta: jnp.sum(wanted(*adversary_problem.outcome(steps, eta))))(drawn(adversary.network)[0])
    slope = jnp.where(jnp.isfinite(slope), slope, 0.0)
    size = jnp.mean(jnp.abs(slope), axis=0)
    slope = slope / jnp.where(size > 0, size, 1.0)

    def loss(network):
        eta, density = drawn(network)
        return jnp.mean(jnp.sum(slope * eta, axis=-1) + jnp.exp(adversary.log_temperature) * density), jnp.mean(density)

    gradient, density = jax.grad(loss, has_aux=True)(adversary.network)
    rewards, next_states = adversary_problem.outcome(steps, response(adversary.network, batch.states, batch.controls))
    temperature_gradient = -(density + target_entropy * noise.shape[-1])
    return batch._replace(rewards=rewards, next_states=next_states), Adversary(gradient, temperature_gradient)
