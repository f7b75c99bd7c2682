"""The adversary of soft actor-critic: a second actor that learns to choose the eta that leaves the first the smallest return.

It sees the state and the action, because the worst case is max over u of min over eta. Imagined steps are kept together with
the model's prediction, so that another eta for an old step, x' = mean + beta * std * eta, needs no query of the model. The
adversary follows the gradient of the critics' target for the step: its reward, and the value of x'. (Critics with eta as an
input would have to learn that gradient, and where the model is certain it is smaller than their errors.) The critics learn the
target under the adversary's choice without noise.

Like the actor, the adversary is rewarded for entropy, with a temperature of its own. The worst eta is often a corner of
[-1, 1], where tanh is flat: an adversary that became deterministic too early would not leave the wrong corner. Gradients are
divided by their mean size, so that the temperature does not depend on how uncertain the model is.
"""

import functools
from collections.abc import Callable
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Float32

from sonde.imagination import NoiseDraws
from sonde.models._normaliser import Normaliser
from sonde.solvers._actor import adversary_controls, squashed_gaussian
from sonde.solvers._learner import Adversary, Batch, PendingSteps, replace_nonfinite
from sonde.solvers._problem import ControlProblem

CriticTarget = Callable[[Float32[Array, " n"], Float32[Array, "n dx"]], Float32[Array, " n"]]
"""critic_target(rewards, next_states): what the critics are trained to predict."""


class AdversaryProblem(eqx.Module):
    """What follows from the adversary's choice, in the units of the networks."""

    problem: ControlProblem
    normaliser: Normaliser
    scale: Float32[Array, ""]
    """Unit of rewards and returns."""
    low: Float32[Array, " dx"]
    high: Float32[Array, " dx"]
    """Smallest and largest normalised states from which steps were imagined."""

    def outcome(self, steps: PendingSteps, eta: Float32[Array, "n da"]) -> tuple[Float32[Array, " n"], Float32[Array, "n dx"]]:
        """Rewards and next states under the adversary's choice.

        Next states are clipped to the region from which steps were imagined: outside of it the critics extrapolate, and an
        adversary that exploits this would move farther away in every training step.

        Args:
            steps: The steps before the choice.
            eta: The adversary's controls.
        """
        x_next, rewards = replace_nonfinite(steps.x, *complete_steps(self.problem, steps, eta))
        next_states = jnp.clip(self.normaliser(x_next).astype(jnp.float32), self.low, self.high)
        return (rewards / self.scale).astype(jnp.float32), next_states


def pending_steps(
    problem: ControlProblem, x: Float[Array, "n dx"], controls: Float32[Array, "n dc"], draws: NoiseDraws
) -> PendingSteps:
    """Predict steps, without the adversary's choice.

    Args:
        problem: The control problem.
        x: States.
        controls: Controls of the actor.
        draws: Random numbers of each step.
    """
    controls = controls.astype(x.dtype)
    predictions = jax.vmap(functools.partial(problem.predict, problem.posterior))(x, controls[:, : problem.action_dim])
    return PendingSteps(x, controls, replace(predictions, members=None), draws)


def complete_steps(
    problem: ControlProblem, steps: PendingSteps, eta: Float32[Array, "n da"]
) -> tuple[Float[Array, "n dx"], Float[Array, " n"]]:
    """Next states and rewards under the adversary's choice.

    Args:
        problem: The control problem.
        steps: The steps before the choice.
        eta: The adversary's controls.
    """

    def one(step: PendingSteps, eta: Float[Array, " da"]) -> tuple[Float[Array, " dx"], Float[Array, ""]]:
        u, extra = step.controls[: problem.action_dim], step.controls[problem.action_dim :]
        imagined = problem.imagination.next_state(step.predictions, jnp.concatenate([extra, eta]), step.draws)
        x_next = problem.moved(step.x, u, imagined)
        return x_next, problem.step_reward(step.x, u, x_next, step.predictions)

    return jax.vmap(one)(steps, eta.astype(steps.x.dtype))


def adversary_update(
    adversary: Adversary,
    adversary_problem: AdversaryProblem,
    batch: Batch,
    critic_target: CriticTarget,
    noise: Float32[Array, "n da"],
    target_entropy: float,
) -> tuple[Batch, Adversary]:
    """Let the adversary choose again in a batch of steps, and compute its gradient.

    Args:
        adversary: The adversary.
        adversary_problem: What follows from its choices.
        batch: Imagined transitions, with their pending steps.
        critic_target: What the critics are trained to predict.
        noise: Standard normal noise for the adversary's controls.
        target_entropy: Entropy to maintain, per control.

    Returns:
        The batch under the adversary's present choices, and the gradient of the adversary.
    """
    steps = batch.pending
    assert steps is not None
    sample = lambda network: squashed_gaussian(network(jnp.concatenate([batch.states, batch.controls], axis=-1)), noise)
    target_sum = lambda eta: jnp.sum(critic_target(*adversary_problem.outcome(steps, eta)))
    slope = jax.grad(target_sum)(sample(adversary.network)[0])
    slope = jnp.where(jnp.isfinite(slope), slope, 0.0)
    size = jnp.mean(jnp.abs(slope), axis=0)
    slope = slope / jnp.where(size > 0, size, 1.0)

    def loss(network):
        eta, log_density = sample(network)
        losses = jnp.sum(slope * eta, axis=-1) + jnp.exp(adversary.log_temperature) * log_density
        return jnp.mean(losses), jnp.mean(log_density)

    gradient, log_density = jax.grad(loss, has_aux=True)(adversary.network)
    eta = adversary_controls(adversary.network, batch.states, batch.controls)
    rewards, next_states = adversary_problem.outcome(steps, eta)
    temperature_gradient = -(log_density + target_entropy * noise.shape[-1])
    return batch._replace(rewards=rewards, next_states=next_states), Adversary(gradient, temperature_gradient)
