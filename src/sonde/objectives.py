"""What a plan is worth.

An objective reads an `Imagined` plan (all particles, all steps) and gives each particle a reward per step. The solver makes one
number of them: first over the steps of a particle, then the mean over particles.
"""

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sonde.models import MemberPredictions, Prediction


class Imagined(eqx.Module):
    """A plan as the planner imagines it: K particles, H steps. The predictions are those about the next states."""

    states: Float[Array, "K H dx"]
    actions: Float[Array, "H du"]
    next_states: Float[Array, "K H dx"]
    predictions: Prediction
    goal: Float[Array, " dg"] | None = None
    """What the plan is for, where the task has a goal."""


def information_gain(prediction: Prediction) -> Float[Array, "*batch"]:
    """1/2 sum_j log(1 + epistemic_j^2 / aleatoric_j^2): what measuring there would tell about the system, in nats."""
    return 0.5 * jnp.sum(jnp.log1p((prediction.epistemic_std / prediction.aleatoric_std) ** 2), axis=-1)


class Objective(abc.ABC):
    """A plan's reward per step, to be maximised."""

    needs_members: ClassVar[bool] = False
    """Whether it asks what the members of an ensemble predict."""
    compares_particles: ClassVar[bool] = False
    """Whether it asks how the particles of a plan have drifted apart."""

    @abc.abstractmethod
    def rewards(self, imagined: Imagined) -> Float[Array, "K H"]:
        """Each particle's; a single row where particles are compared, so that there is one reward for all."""


@dataclass(frozen=True)
class InformationGain(Objective):
    """The paper's objective; summed along a trajectory it bounds the mutual information from above (Lemma 1)."""

    def rewards(self, imagined: Imagined) -> Float[Array, "K H"]:
        """Information gained at each step."""
        return information_gain(imagined.predictions)


@dataclass(frozen=True)
class UncertaintySum(Objective):
    """The epistemic variances without the logarithm and regardless of the noise: another geometry of the same idea."""

    def rewards(self, imagined: Imagined) -> Float[Array, "K H"]:
        """Sum over dimensions of epistemic_j^2, in state units."""
        return jnp.sum(imagined.predictions.epistemic_std**2, axis=-1)


@dataclass(frozen=True)
class LogUncertainty(Objective):
    """The epistemic variances on a logarithmic scale, regardless of the noise: for systems that have none."""

    epsilon: float = 1e-3
    """The epistemic std, in state units, below which nothing is worth knowing."""

    def rewards(self, imagined: Imagined) -> Float[Array, "K H"]:
        """Sum over dimensions of log(epsilon^2 + epistemic_j^2)."""
        return jnp.sum(jnp.log(self.epsilon**2 + imagined.predictions.epistemic_std**2), axis=-1)


@dataclass(frozen=True)
class TrajectoryDisagreement(Objective):
    """How far the members' own trajectories have drifted apart under the same actions (CEE-US)."""

    needs_members: ClassVar[bool] = True
    compares_particles: ClassVar[bool] = True

    def rewards(self, imagined: Imagined) -> Float[Array, "K H"]:
        """Sum over dimensions of the std (unbiased) over members of the next state, in state units.

        Particles follow the members in turn; with imagined noise there may be several for each, whose mean counts. A remainder
        of the noise stays: the method is meant for systems without noise.
        """
        assert imagined.predictions.members is not None
        particles, horizon, state_dim = imagined.next_states.shape
        members = imagined.predictions.members.means.shape[-2]
        by_member = jnp.reshape(imagined.next_states, (particles // members, members, horizon, state_dim))
        return jnp.sum(jnp.std(jnp.mean(by_member, axis=0), axis=0, ddof=1), axis=-1)[None]


def jensen_renyi(members: MemberPredictions) -> Float[Array, ""]:
    """The Jensen-Renyi divergence (of order 2) of Gaussians with means and stds [E, dx], in nats; 0 where all agree.

    It is the entropy of their mixture less their mean entropy, with Renyi's quadratic entropy -log of the integral of p^2. For
    Gaussians that integral is a sum over pairs of a Gaussian density of the difference of means.
    """
    means, variances = members.means, members.stds**2

    def log_overlap(mean_a, variance_a, mean_b, variance_b):
        """log of the integral of the product of two Gaussians."""
        total = variance_a + variance_b
        return -0.5 * jnp.sum(jnp.log(2 * jnp.pi * total) + (mean_a - mean_b) ** 2 / total)

    one_to_all = jax.vmap(log_overlap, in_axes=(None, None, 0, 0))
    overlaps = jax.vmap(one_to_all, in_axes=(0, 0, None, None))(means, variances, means, variances)
    mixture = 2 * jnp.log(means.shape[0]) - jax.scipy.special.logsumexp(overlaps)
    return mixture + jnp.mean(jnp.diagonal(overlaps))


@dataclass(frozen=True)
class JensenRenyi(Objective):
    """How different the members' predictive distributions are, noise included (MAX)."""

    needs_members: ClassVar[bool] = True

    def rewards(self, imagined: Imagined) -> Float[Array, "K H"]:
        """The divergence at each step."""
        members = imagined.predictions.members
        assert members is not None
        return jax.vmap(jax.vmap(jensen_renyi))(members)


@dataclass(frozen=True)
class TaskReward(Objective):
    """A task that a person asks for; its reward may depend on a goal."""

    reward: Callable[..., Array] | None = None
    """reward(x, u, x_next), or reward(x, u, x_next, goal) where the plan has a goal, of one transition in JAX. None: to be set
    by `Method.for_task` before planning."""

    def rewards(self, imagined: Imagined) -> Float[Array, "K H"]:
        """The task's reward of each imagined transition."""
        reward = self.reward
        assert reward is not None
        goal = () if imagined.goal is None else (imagined.goal,)
        over_steps = jax.vmap(lambda x, u, x_next: reward(x, u, x_next, *goal))
        over_particles = jax.vmap(over_steps, in_axes=(0, None, 0))
        return over_particles(imagined.states, imagined.actions, imagined.next_states)


OBJECTIVES: dict[str, Objective] = {
    "information-gain": InformationGain(),
    "uncertainty-sum": UncertaintySum(),
    "log-uncertainty": LogUncertainty(),
    "trajectory-disagreement": TrajectoryDisagreement(),
    "jensen-renyi": JensenRenyi(),
    "task-reward": TaskReward(),
}
"""Names of objectives for the command line."""
