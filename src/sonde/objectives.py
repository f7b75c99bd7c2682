"""Objectives: the reward of each step of a plan.

An objective maps an `Imagined` plan (all particles, all steps) to a reward for each particle and step. The solver reduces them
to one value: over the steps of each particle first, then the mean over particles. To write your own, subclass `Objective` as a
frozen dataclass and pass it to `Method`.
"""

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from sonde._internal.errors import not_negative, positive
from sonde.models import MemberPredictions, Prediction


class Imagined(eqx.Module):
    """An imagined plan: K particles, H steps."""

    states: Float[Array, "K H dx"]
    """States before each step."""
    actions: Float[Array, "H du"]
    """Actions, the same for all particles."""
    next_states: Float[Array, "K H dx"]
    """States after each step."""
    predictions: Prediction
    """The model's predictions of the next states, with leading axes [K, H]."""
    goal: Float[Array, " dg"] | None = None
    """Goal of the task, if it has one."""
    bonus_weight: Float[Array, ""] | None = None
    """Weight of the bonus in this round, for objectives that add one to the reward of a task."""


def information_gain(prediction: Prediction) -> Float[Array, "*batch"]:
    """The information that a measurement would give about the system: 1/2 sum_j log(1 + epistemic_j^2 / aleatoric_j^2).

    Args:
        prediction: The model's prediction of the measurement, of any shape.

    Returns:
        The information gain in nats.
    """
    return 0.5 * jnp.sum(jnp.log1p((prediction.epistemic_std / prediction.aleatoric_std) ** 2), axis=-1)


@dataclass(frozen=True)
class Objective(abc.ABC):
    """A reward for each step of a plan, to be maximised."""

    needs_members: ClassVar[bool] = False
    """Whether it needs the predictions of an ensemble's members."""
    compares_particles: ClassVar[bool] = False
    """Whether it compares the particles of a plan with each other."""

    @abc.abstractmethod
    def rewards(self, imagined: Imagined) -> Float[Array, "K H"]:
        """The rewards of a plan.

        Args:
            imagined: The plan.

        Returns:
            Rewards of each particle and step; a single row for all particles if the objective compares them.
        """


@dataclass(frozen=True)
class InformationGain(Objective):
    """The paper's objective; summed along a trajectory it bounds the mutual information from above (Lemma 1)."""

    def rewards(self, imagined: Imagined) -> Float[Array, "K H"]:
        """The information gain of each step, in nats."""
        return information_gain(imagined.predictions)


@dataclass(frozen=True)
class UncertaintySum(Objective):
    """The sum of the epistemic variances, without the logarithm and ignoring the noise."""

    def rewards(self, imagined: Imagined) -> Float[Array, "K H"]:
        """Sum over dimensions of epistemic_j^2, in squared state units."""
        return jnp.sum(imagined.predictions.epistemic_std**2, axis=-1)


@dataclass(frozen=True)
class LogUncertainty(Objective):
    """The epistemic variances on a logarithmic scale, ignoring the noise: for deterministic systems."""

    epsilon: float = 1e-3
    """Epistemic std, in state units, below which less uncertainty hardly changes the reward."""

    def __post_init__(self):
        """Reject settings that cannot work."""
        positive("objective", epsilon=self.epsilon)

    def rewards(self, imagined: Imagined) -> Float[Array, "K H"]:
        """Sum over dimensions of log(epsilon^2 + epistemic_j^2)."""
        return jnp.sum(jnp.log(self.epsilon**2 + imagined.predictions.epistemic_std**2), axis=-1)


@dataclass(frozen=True)
class TrajectoryDisagreement(Objective):
    """How far the trajectories of an ensemble's members diverge under the same actions (CEE-US)."""

    needs_members: ClassVar[bool] = True
    compares_particles: ClassVar[bool] = True

    def rewards(self, imagined: Imagined) -> Float[Array, "K H"]:
        """Sum over dimensions of the unbiased std over members of the next state, in state units.

        Particles follow the members in turn. With imagined noise there may be several per member, whose mean is used; some of
        the noise remains in it, so the objective is meant for deterministic systems.
        """
        assert imagined.predictions.members is not None
        particles, horizon, state_dim = imagined.next_states.shape
        members = imagined.predictions.members.means.shape[-2]
        by_member = jnp.reshape(imagined.next_states, (particles // members, members, horizon, state_dim))
        return jnp.sum(jnp.std(jnp.mean(by_member, axis=0), axis=0, ddof=1), axis=-1)[None]


def jensen_renyi(members: MemberPredictions) -> Float[Array, ""]:
    """The Jensen-Renyi divergence (of order 2) of the members' Gaussians, in nats; 0 if all are equal.

    It is the entropy of their mixture minus their mean entropy, with Renyi's quadratic entropy, -log of the integral of p^2.
    For Gaussians that integral is a sum over pairs of a Gaussian density of the difference of means.

    Args:
        members: Predictions [E, dx] at one point.
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
    """How different the predictive distributions of an ensemble's members are, noise included (MAX)."""

    needs_members: ClassVar[bool] = True

    def rewards(self, imagined: Imagined) -> Float[Array, "K H"]:
        """The Jensen-Renyi divergence at each step, in nats."""
        members = imagined.predictions.members
        assert members is not None
        return jax.vmap(jax.vmap(jensen_renyi))(members)


@dataclass(frozen=True)
class TaskObjective(Objective):
    """An objective that knows a task, whose reward may depend on a goal."""

    reward: Callable[..., Array] | None = None
    """reward(x, u, x_next), or reward(x, u, x_next, goal) if the task has goals, of one transition in JAX; None: it must be set
    with `Method.for_task` before planning."""
    sample_goal: Callable[..., Any] | None = None
    """Draws a goal [dg] from a numpy generator, if the task has goals; exploration has one per round and seed."""

    def task_rewards(self, imagined: Imagined) -> Float[Array, "K H"]:
        """The task's reward of each imagined transition.

        Args:
            imagined: The plan.
        """
        reward = self.reward
        assert reward is not None
        goal = () if imagined.goal is None else (imagined.goal,)
        over_steps = jax.vmap(lambda x, u, x_next: reward(x, u, x_next, *goal))
        over_particles = jax.vmap(over_steps, in_axes=(0, None, 0))
        return over_particles(imagined.states, imagined.actions, imagined.next_states)


@dataclass(frozen=True)
class TaskReward(TaskObjective):
    """The reward of a task."""

    def rewards(self, imagined: Imagined) -> Float[Array, "K H"]:
        """The task's reward of each imagined transition."""
        return self.task_rewards(imagined)


@dataclass(frozen=True)
class TaskPlusBonus(TaskObjective):
    """The reward of a task plus lambda times a bonus for what is not known; subclass it with a `bonus` of your own.

    Rewards and bonuses have any units, so lambda is not a number that a user can choose. After n rounds it is

        lambda_n = weight / (1 + n / half_life) * spread(reward) / spread(bonus)

    with spreads over single steps from visited states with uniformly random actions, as the model predicts them. So `weight`
    says how much the bonus counts beside the task, whatever the units. The explorer passes lambda_n on as
    `Imagined.bonus_weight`; without it, lambda is `weight`.
    """

    weight: float = 1.0
    """How much the bonus counts beside the task in the first round, in spreads; 0: not at all."""
    half_life: float | None = 10.0
    """Rounds after which the bonus counts half as much; None: it always counts the same."""

    def __post_init__(self):
        """Reject settings that cannot work."""
        not_negative("objective", weight=self.weight)
        if self.half_life is not None:
            positive("objective", half_life=self.half_life)

    @abc.abstractmethod
    def bonus(self, imagined: Imagined) -> Float[Array, "K H"]:
        """What a step is worth for what it teaches.

        Args:
            imagined: The plan.

        Returns:
            The bonus of each particle and step, in any units.
        """

    def share(self, round_number: Int[Array, ""] | int) -> Float[Array, ""] | float:
        """How much the bonus counts beside the task, in spreads.

        Args:
            round_number: Number of finished rounds.
        """
        return self.weight / (1 + round_number / (self.half_life or float("inf")))

    def rewards(self, imagined: Imagined) -> Float[Array, "K H"]:
        """The task's reward plus the weighted bonus of each step."""
        rewards = self.task_rewards(imagined)
        if self.weight == 0:  # exactly the task
            return rewards
        weight = self.weight if imagined.bonus_weight is None else imagined.bonus_weight
        return rewards + weight * self.bonus(imagined)


@dataclass(frozen=True)
class TaskPlusUncertainty(TaskPlusBonus):
    """The reward of a task plus lambda times the epistemic std (SOMBRL)."""

    def bonus(self, imagined: Imagined) -> Float[Array, "K H"]:
        """The norm of the epistemic stds, each in units of its noise, so that state dimensions of any scale count alike."""
        prediction = imagined.predictions
        return jnp.linalg.norm(prediction.epistemic_std / prediction.aleatoric_std, axis=-1)


@dataclass(frozen=True)
class TaskPlusInformation(TaskPlusBonus):
    """The reward of a task plus lambda times the information gain."""

    def bonus(self, imagined: Imagined) -> Float[Array, "K H"]:
        """The information gain of each step, in nats."""
        return information_gain(imagined.predictions)


OBJECTIVES: dict[str, Objective] = {
    "information-gain": InformationGain(),
    "uncertainty-sum": UncertaintySum(),
    "log-uncertainty": LogUncertainty(),
    "trajectory-disagreement": TrajectoryDisagreement(),
    "jensen-renyi": JensenRenyi(),
    "task-reward": TaskReward(),
    "task-plus-uncertainty": TaskPlusUncertainty(),
    "task-plus-information": TaskPlusInformation(),
}
"""Names of objectives for the command line."""
