"""How a planner may treat what it does not know.

An imagination turns a `Prediction` into an imagined next state. It says how many extra controls the planner must choose for that,
and how many particles of one plan can differ; no more than those are simulated.
"""

import abc
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from sonde._internal.errors import SondeError, whole
from sonde.models._base import Prediction, Members, Posterior


class NoiseDraws(NamedTuple):
    """All that one particle needs of draws, per step. What an imagination does not use, the compiler leaves out."""

    noise: Float[Array, "*H dx"]
    """Standard normal: the system's noise."""
    prediction: Float[Array, "*H dx"]
    """Standard normal: which of the plausible states is imagined."""
    member: Float[Array, "*H"]
    """Uniform in [0, 1): which member of an ensemble is predicted."""


def draw_noise(key: Key[Array, ""], horizon: int, state_dim: int) -> NoiseDraws:
    """The draws of one particle for a whole plan; single precision is plenty for it."""
    noise, prediction, member = jax.random.split(key, 3)
    normal = lambda k: jax.random.normal(k, (horizon, state_dim), jnp.float32)
    return NoiseDraws(normal(noise), normal(prediction), jax.random.uniform(member, (horizon,), jnp.float32))


@dataclass(frozen=True)
class Imagination(abc.ABC):
    """The settings that all imaginations share; each uses what concerns it."""

    beta: float = 1.0
    """Width of the confidence region, in epistemic stds."""
    noise: bool = False
    """Also imagine the system's noise w ~ N(0, aleatoric^2). Off for deterministic systems, where all particles then agree."""

    needs_members: ClassVar[bool] = False
    """Whether only an ensemble can be imagined so."""

    def __post_init__(self):
        """Refuse a width that means nothing."""
        if not self.beta >= 0:
            raise SondeError(f"beta must be 0 or above, got {self.beta}")

    def extra_controls(self, state_dim: int) -> int:
        """How many numbers in [-1, 1] the planner chooses per step, beside the action."""
        del state_dim
        return 0

    def adversary_controls(self, state_dim: int) -> int:
        """How many numbers in [-1, 1] an adversary chooses per step, to make the plan as bad as it can be."""
        del state_dim
        return 0

    def particles(self, asked: int, ensemble_size: int) -> int:
        """How many particles to simulate: as many as asked for, but only one where all would agree."""
        del ensemble_size
        return asked if self.noise else 1

    def adopt(self, posterior: Posterior, particle: Int[Array, ""]) -> Posterior:
        """What this particle takes for the posterior throughout a plan."""
        del particle
        return posterior

    @abc.abstractmethod
    def resolve(
        self, prediction: Prediction, extra: Float[Array, " extra"], draws: NoiseDraws
    ) -> tuple[Float[Array, " dx"], Float[Array, " dx"]]:
        """The imagined next state before the system's noise, and the std of that noise."""

    def next_state(self, prediction: Prediction, extra: Float[Array, " extra"], draws: NoiseDraws) -> Float[Array, " dx"]:
        """The imagined next state."""
        centre, std = self.resolve(prediction, extra, draws)
        return centre + std * draws.aleatoric if self.noise else centre


@dataclass(frozen=True)
class Optimistic(Imagination):
    """x' = mean + beta * epistemic_std * eta: the planner also chooses eta in [-1, 1]^dx, and so may predict the plausible.

    Where the prediction comes with a beta of its own, that one counts.
    """

    def extra_controls(self, state_dim: int) -> int:
        """One eta per state dimension."""
        return state_dim

    def resolve(
        self, prediction: Prediction, extra: Float[Array, " extra"], draws: NoiseDraws
    ) -> tuple[Float[Array, " dx"], Float[Array, " dx"]]:
        """The luckiest plausible state, as the planner defines luck."""
        del draws
        return _plausible(prediction, self.beta, extra), prediction.aleatoric_std


@dataclass(frozen=True)
class Pessimistic(Imagination):
    """x' = mean + beta * epistemic_std * eta, where an adversary chooses eta in [-1, 1]^dx: the plan must survive the plausible.

    Where the prediction comes with a beta of its own, that one counts.
    """

    adversary_steps: int = 1
    """Steps of the search for the eta that hurts a plan most; each follows one gradient of the plan's worth."""

    project: Callable[[Array], Array] | None = None
    """Brings a state to one that the system can have, where more is known of that than the model knows (`World.project`)."""

    def __post_init__(self):
        """Refuse an adversary that does nothing."""
        super().__post_init__()
        whole("imagination", adversary_steps=self.adversary_steps)

    def adversary_controls(self, state_dim: int) -> int:
        """One eta per state dimension."""
        return state_dim

    def resolve(
        self, prediction: Prediction, extra: Float[Array, " extra"], draws: NoiseDraws
    ) -> tuple[Float[Array, " dx"], Float[Array, " dx"]]:
        """The plausible state that the adversary wants.

        Slopes leave out how the region's width varies along the plan: it is small where the region is, and they would cost
        more than all else.
        """
        del draws
        fixed_width = replace(prediction, epistemic_std=jax.lax.stop_gradient(prediction.epistemic_std))
        x_next = _plausible(fixed_width, self.beta, extra)
        return x_next if self.project is None else self.project(x_next), prediction.aleatoric_std


@dataclass(frozen=True)
class Perturbed(Imagination):
    """x' = mean + perturbation: how a plan would fare if the model erred so. Where the perturbation is 0, nobody asks for epistemic stds."""

    def adversary_controls(self, state_dim: int) -> int:
        """One perturbation per state dimension."""
        return state_dim

    def resolve(
        self, prediction: Prediction, extra: Float[Array, " extra"], draws: NoiseDraws
    ) -> tuple[Float[Array, " dx"], Float[Array, " dx"]]:
        """The mean, and the perturbation."""
        del draws
        return prediction.mean + extra, prediction.aleatoric_std


def _plausible(prediction: Prediction, beta: float, eta: Float[Array, " dx"]) -> Float[Array, " dx"]:
    """The state at `eta` of the confidence region, whose corners are at -1 and 1."""
    return prediction.mean + (beta if prediction.beta is None else prediction.beta) * prediction.epistemic_std * eta


@dataclass(frozen=True)
class Mean(Imagination):
    """x' = mean: the model is taken at its word."""

    def resolve(
        self, prediction: Prediction, extra: Float[Array, " extra"], draws: NoiseDraws
    ) -> tuple[Float[Array, " dx"], Float[Array, " dx"]]:
        """The mean."""
        del extra, draws
        return prediction.mean, prediction.aleatoric_std


def _of_member(members: Members, position: Float[Array, ""]) -> tuple[Float[Array, " dx"], Float[Array, " dx"]]:
    """Mean and noise std of the member at this position in [0, 1], which all members share evenly."""
    count = members.means.shape[0]
    index = jnp.clip(jnp.floor(position * count).astype(int), 0, count - 1)
    return members.means[index], members.stds[index]


@dataclass(frozen=True)
class TrajectorySampling(Imagination):
    """TS-1: each particle draws from the prediction afresh at every step: a member of an ensemble, or x' ~ N(mean, epistemic^2)."""

    def particles(self, asked: int, ensemble_size: int) -> int:
        """As many as asked for."""
        del ensemble_size
        return asked

    def resolve(
        self, prediction: Prediction, extra: Float[Array, " extra"], draws: NoiseDraws
    ) -> tuple[Float[Array, " dx"], Float[Array, " dx"]]:
        """A state that the prediction considers likely."""
        del extra
        if prediction.members is not None:
            return _of_member(prediction.members, draws.member)
        return prediction.mean + prediction.epistemic_std * draws.epistemic, prediction.aleatoric_std


@dataclass(frozen=True)
class MemberTrajectories(Imagination):
    """TS-inf: each particle follows one member of the ensemble throughout the plan; all members are followed equally often."""

    needs_members: ClassVar[bool] = True

    def particles(self, asked: int, ensemble_size: int) -> int:
        """One per member; with noise, as many of each member as bring at least the number asked for."""
        return ensemble_size * -(-asked // ensemble_size) if self.noise else ensemble_size

    def adopt(self, posterior: Posterior, particle: Int[Array, ""]) -> Posterior:
        """Members in turn. The others are not even evaluated, unless the objective wants to know their opinion."""
        return posterior.member(particle)

    def resolve(
        self, prediction: Prediction, extra: Float[Array, " extra"], draws: NoiseDraws
    ) -> tuple[Float[Array, " dx"], Float[Array, " dx"]]:
        """What the member predicts."""
        del extra, draws
        return prediction.mean, prediction.aleatoric_std


@dataclass(frozen=True)
class MemberChoice(Imagination):
    """The planner chooses the member that it predicts at each step: optimism for ensembles, with a single extra control."""

    needs_members: ClassVar[bool] = True

    def extra_controls(self, state_dim: int) -> int:
        """The choice: equal parts of [-1, 1] stand for the members."""
        del state_dim
        return 1

    def resolve(
        self, prediction: Prediction, extra: Float[Array, " extra"], draws: NoiseDraws
    ) -> tuple[Float[Array, " dx"], Float[Array, " dx"]]:
        """What the chosen member predicts."""
        del draws
        assert prediction.members is not None
        return _of_member(prediction.members, (extra[0] + 1) / 2)
