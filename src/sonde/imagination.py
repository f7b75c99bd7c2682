"""How a planner may treat what it does not know.

An imagination turns a `Belief` into an imagined next state. It says how many extra controls the planner must choose for that,
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
from sonde.models._base import Belief, Members, Posterior


class Chance(NamedTuple):
    """All that one particle needs of chance, per step. What an imagination does not use, the compiler leaves out."""

    noise: Float[Array, "*H dx"]
    """Standard normal: the system's noise."""
    belief: Float[Array, "*H dx"]
    """Standard normal: which of the plausible states is imagined."""
    member: Float[Array, "*H"]
    """Uniform in [0, 1): which member of an ensemble is believed."""


def draw_chance(key: Key[Array, ""], horizon: int, state_dim: int) -> Chance:
    """The chance of one particle for a whole plan; single precision is plenty for it."""
    noise, belief, member = jax.random.split(key, 3)
    normal = lambda k: jax.random.normal(k, (horizon, state_dim), jnp.float32)
    return Chance(normal(noise), normal(belief), jax.random.uniform(member, (horizon,), jnp.float32))


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

    def opposing_controls(self, state_dim: int) -> int:
        """How many numbers in [-1, 1] an opponent chooses per step, to make the plan as bad as it can be."""
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
    def settle(
        self, belief: Belief, extra: Float[Array, " extra"], chance: Chance
    ) -> tuple[Float[Array, " dx"], Float[Array, " dx"]]:
        """The imagined next state before the system's noise, and the std of that noise."""

    def next_state(self, belief: Belief, extra: Float[Array, " extra"], chance: Chance) -> Float[Array, " dx"]:
        """The imagined next state."""
        centre, std = self.settle(belief, extra, chance)
        return centre + std * chance.noise if self.noise else centre


@dataclass(frozen=True)
class Optimistic(Imagination):
    """x' = mean + beta * epistemic_std * eta: the planner also chooses eta in [-1, 1]^dx, and so may believe the plausible.

    Where the belief comes with a beta of its own, that one counts.
    """

    def extra_controls(self, state_dim: int) -> int:
        """One eta per state dimension."""
        return state_dim

    def settle(
        self, belief: Belief, extra: Float[Array, " extra"], chance: Chance
    ) -> tuple[Float[Array, " dx"], Float[Array, " dx"]]:
        """The luckiest plausible state, as the planner defines luck."""
        del chance
        return _plausible(belief, self.beta, extra), belief.aleatoric_std


@dataclass(frozen=True)
class Pessimistic(Imagination):
    """x' = mean + beta * epistemic_std * eta, where an opponent chooses eta in [-1, 1]^dx: the plan must survive the plausible.

    Where the belief comes with a beta of its own, that one counts.
    """

    opposing_steps: int = 1
    """Steps of the search for the eta that hurts a plan most; each follows one gradient of the plan's worth."""

    possible: Callable[[Array], Array] | None = None
    """Brings a state to one that the system can have, where more is known of that than the model knows (`World.possible`)."""

    def __post_init__(self):
        """Refuse an opponent that does nothing."""
        super().__post_init__()
        whole("imagination", opposing_steps=self.opposing_steps)

    def opposing_controls(self, state_dim: int) -> int:
        """One eta per state dimension."""
        return state_dim

    def settle(
        self, belief: Belief, extra: Float[Array, " extra"], chance: Chance
    ) -> tuple[Float[Array, " dx"], Float[Array, " dx"]]:
        """The plausible state that the opponent wants.

        Slopes leave out how the region's width varies along the plan: it is small where the region is, and they would cost
        more than all else.
        """
        del chance
        fixed_width = replace(belief, epistemic_std=jax.lax.stop_gradient(belief.epistemic_std))
        x_next = _plausible(fixed_width, self.beta, extra)
        return x_next if self.possible is None else self.possible(x_next), belief.aleatoric_std


@dataclass(frozen=True)
class Pushed(Imagination):
    """x' = mean + push: how a plan would fare if the model erred so. Where the push is 0, nobody asks for epistemic stds."""

    def opposing_controls(self, state_dim: int) -> int:
        """One push per state dimension."""
        return state_dim

    def settle(
        self, belief: Belief, extra: Float[Array, " extra"], chance: Chance
    ) -> tuple[Float[Array, " dx"], Float[Array, " dx"]]:
        """The mean, and the push."""
        del chance
        return belief.mean + extra, belief.aleatoric_std


def _plausible(belief: Belief, beta: float, eta: Float[Array, " dx"]) -> Float[Array, " dx"]:
    """The state at `eta` of the confidence region, whose corners are at -1 and 1."""
    return belief.mean + (beta if belief.beta is None else belief.beta) * belief.epistemic_std * eta


@dataclass(frozen=True)
class Mean(Imagination):
    """x' = mean: the model is taken at its word."""

    def settle(
        self, belief: Belief, extra: Float[Array, " extra"], chance: Chance
    ) -> tuple[Float[Array, " dx"], Float[Array, " dx"]]:
        """The mean."""
        del extra, chance
        return belief.mean, belief.aleatoric_std


def _of_member(members: Members, position: Float[Array, ""]) -> tuple[Float[Array, " dx"], Float[Array, " dx"]]:
    """Mean and noise std of the member at this position in [0, 1], which all members share evenly."""
    count = members.means.shape[0]
    index = jnp.clip(jnp.floor(position * count).astype(int), 0, count - 1)
    return members.means[index], members.stds[index]


@dataclass(frozen=True)
class TrajectorySampling(Imagination):
    """TS-1: each particle draws from the belief afresh at every step: a member of an ensemble, or x' ~ N(mean, epistemic^2)."""

    def particles(self, asked: int, ensemble_size: int) -> int:
        """As many as asked for."""
        del ensemble_size
        return asked

    def settle(
        self, belief: Belief, extra: Float[Array, " extra"], chance: Chance
    ) -> tuple[Float[Array, " dx"], Float[Array, " dx"]]:
        """A state that the belief considers likely."""
        del extra
        if belief.members is not None:
            return _of_member(belief.members, chance.member)
        return belief.mean + belief.epistemic_std * chance.belief, belief.aleatoric_std


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

    def settle(
        self, belief: Belief, extra: Float[Array, " extra"], chance: Chance
    ) -> tuple[Float[Array, " dx"], Float[Array, " dx"]]:
        """What the member predicts."""
        del extra, chance
        return belief.mean, belief.aleatoric_std


@dataclass(frozen=True)
class MemberChoice(Imagination):
    """The planner chooses the member that it believes at each step: optimism for ensembles, with a single extra control."""

    needs_members: ClassVar[bool] = True

    def extra_controls(self, state_dim: int) -> int:
        """The choice: equal parts of [-1, 1] stand for the members."""
        del state_dim
        return 1

    def settle(
        self, belief: Belief, extra: Float[Array, " extra"], chance: Chance
    ) -> tuple[Float[Array, " dx"], Float[Array, " dx"]]:
        """What the chosen member predicts."""
        del chance
        assert belief.members is not None
        return _of_member(belief.members, (extra[0] + 1) / 2)
