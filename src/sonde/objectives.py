"""What a plan is worth.

An objective reads an `Imagined` plan (all particles, all steps) and gives one reward per step; the solver adds them up.
"""

import abc
from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sonde.models.base import Belief

RewardFunction = Callable[[Array, Array, Array], Array]
"""reward(x, u, x_next) -> scalar, written for one transition in JAX."""


class Imagined(eqx.Module):
    """A plan as the planner imagines it: K particles, H steps. The beliefs are those about the next states."""

    states: Float[Array, "K H dx"]
    actions: Float[Array, "H du"]
    next_states: Float[Array, "K H dx"]
    beliefs: Belief


def information_gain(belief: Belief) -> Float[Array, "*batch"]:
    """1/2 sum_j log(1 + epistemic_j^2 / aleatoric_j^2): what measuring there would tell about the system, in nats."""
    return 0.5 * jnp.sum(jnp.log1p((belief.epistemic_std / belief.aleatoric_std) ** 2), axis=-1)


class Objective(abc.ABC):
    """A plan's reward per step, to be maximised."""

    @abc.abstractmethod
    def rewards(self, imagined: Imagined) -> Float[Array, " H"]:
        """The mean over particles."""


@dataclass(frozen=True)
class InformationGain(Objective):
    """The paper's objective; summed along a trajectory it bounds the mutual information from above (Lemma 1)."""

    def rewards(self, imagined: Imagined) -> Float[Array, " H"]:
        """Information gained at each step."""
        return jnp.mean(information_gain(imagined.beliefs), axis=0)


@dataclass(frozen=True)
class UncertaintySum(Objective):
    """The epistemic variances without the logarithm and regardless of the noise: another geometry of the same idea."""

    def rewards(self, imagined: Imagined) -> Float[Array, " H"]:
        """Sum over dimensions of epistemic_j^2, in state units."""
        return jnp.mean(jnp.sum(imagined.beliefs.epistemic_std**2, axis=-1), axis=0)


@dataclass(frozen=True)
class TaskReward(Objective):
    """A task that a person asks for."""

    reward: RewardFunction

    def rewards(self, imagined: Imagined) -> Float[Array, " H"]:
        """The task's reward of each imagined transition."""
        over_steps = jax.vmap(self.reward)
        over_particles = jax.vmap(over_steps, in_axes=(0, None, 0))
        return jnp.mean(over_particles(imagined.states, imagined.actions, imagined.next_states), axis=0)
