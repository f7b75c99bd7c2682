"""Imaginations: how a planner treats what the model does not know.

An imagination turns a `Prediction` into an imagined next state. It says how many extra controls the planner chooses for that,
and how many particles of one plan can differ; no more are simulated. To write your own, subclass `Imagination` as a frozen
dataclass and pass it to `Method`.
"""

import abc
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from sonde._internal.errors import SondeError, whole
from sonde.models import MemberPredictions, Posterior, Prediction


class NoiseDraws(NamedTuple):
    """Random numbers of one particle, per step; the compiler drops what an imagination does not use."""

    aleatoric: Float[Array, "*H dx"]
    """Standard normal: the system's noise."""
    epistemic: Float[Array, "*H dx"]
    """Standard normal: which of the plausible next states is imagined."""
    member: Float[Array, "*H"]
    """Uniform in [0, 1): which member of an ensemble predicts."""


def draw_noise(key: Key[Array, ""], horizon: int, state_dim: int) -> NoiseDraws:
    """Draw the random numbers of one particle for a whole plan.

    Args:
        key: Randomness.
        horizon: Number of steps H.
        state_dim: Number of state dimensions dx.

    Returns:
        Draws with leading axis H, in single precision.
    """
    aleatoric, epistemic, member = jax.random.split(key, 3)
    normal = lambda k: jax.random.normal(k, (horizon, state_dim), jnp.float32)
    return NoiseDraws(normal(aleatoric), normal(epistemic), jax.random.uniform(member, (horizon,), jnp.float32))


@dataclass(frozen=True)
class Imagination(abc.ABC):
    """How uncertainty is propagated when a plan is imagined; the base class has the settings that all imaginations share."""

    noise: bool = False
    """Also imagine the system's noise w ~ N(0, aleatoric_std^2); off for deterministic systems."""
    particles: int = 10
    """Particles per imagined plan; only one is simulated where all would be equal."""

    needs_members: ClassVar[bool] = False
    """Whether the model must be an ensemble."""

    def __post_init__(self):
        """Reject settings that cannot work."""
        whole("imagination", particles=self.particles)

    def extra_controls(self, state_dim: int) -> int:
        """Number of extra controls in [-1, 1] that the planner chooses per step, besides the action.

        Args:
            state_dim: Number of state dimensions.
        """
        del state_dim
        return 0

    def adversary_controls(self, state_dim: int) -> int:
        """Number of controls in [-1, 1] that an adversary chooses per step to minimise the plan's return.

        Args:
            state_dim: Number of state dimensions.
        """
        del state_dim
        return 0

    def simulated_particles(self, ensemble_size: int) -> int:
        """Number of particles to simulate.

        Args:
            ensemble_size: Number of ensemble members; 0 if the model has none.
        """
        del ensemble_size
        return self.particles if self.noise else 1

    def adopt(self, posterior: Posterior, particle: Int[Array, ""]) -> Posterior:
        """The posterior that one particle uses throughout a plan.

        Args:
            posterior: The model's posterior.
            particle: Number of the particle.
        """
        del particle
        return posterior

    @abc.abstractmethod
    def resolve(
        self, prediction: Prediction, extra: Float[Array, " extra"], draws: NoiseDraws
    ) -> tuple[Float[Array, " dx"], Float[Array, " dx"]]:
        """Choose one of the plausible next states.

        Args:
            prediction: The model's prediction.
            extra: The extra controls, then the adversary's.
            draws: Random numbers of this step.

        Returns:
            The imagined next state before the system's noise, and the std of that noise.
        """

    def next_state(self, prediction: Prediction, extra: Float[Array, " extra"], draws: NoiseDraws) -> Float[Array, " dx"]:
        """Imagine the next state, with the system's noise if `noise` is set.

        Args:
            prediction: The model's prediction.
            extra: The extra controls, then the adversary's.
            draws: Random numbers of this step.
        """
        centre, std = self.resolve(prediction, extra, draws)
        return centre + std * draws.aleatoric if self.noise else centre


@dataclass(frozen=True)
class Optimistic(Imagination):
    """x' = mean + beta * epistemic_std * eta, where the planner also chooses eta in [-1, 1]^dx (hallucinated control).

    If the prediction comes with a beta of its own (`BetaRule`), that one is used.
    """

    beta: float = 2.0
    """Width of the confidence region, in epistemic stds."""

    def __post_init__(self):
        """Reject settings that cannot work."""
        super().__post_init__()
        _check_beta(self.beta)

    def extra_controls(self, state_dim: int) -> int:
        """One eta per state dimension."""
        return state_dim

    def resolve(
        self, prediction: Prediction, extra: Float[Array, " extra"], draws: NoiseDraws
    ) -> tuple[Float[Array, " dx"], Float[Array, " dx"]]:
        """The plausible state that the planner chooses."""
        del draws
        return _plausible(prediction, self.beta, extra), prediction.aleatoric_std


@dataclass(frozen=True)
class Pessimistic(Imagination):
    """x' = mean + beta * epistemic_std * eta, where an adversary chooses eta in [-1, 1]^dx to hurt the plan.

    If the prediction comes with a beta of its own (`BetaRule`), that one is used.
    """

    beta: float = 2.0
    """Width of the confidence region, in epistemic stds."""
    adversary_steps: int = 1
    """Steps of the search for the worst eta; each follows one gradient of the plan's return."""
    project: Callable[[Array], Array] | None = None
    """Maps a state to one that the system can have, where more is known than the model knows (`World.project`)."""

    def __post_init__(self):
        """Reject settings that cannot work."""
        super().__post_init__()
        _check_beta(self.beta)
        whole("imagination", adversary_steps=self.adversary_steps)

    def adversary_controls(self, state_dim: int) -> int:
        """One eta per state dimension."""
        return state_dim

    def resolve(
        self, prediction: Prediction, extra: Float[Array, " extra"], draws: NoiseDraws
    ) -> tuple[Float[Array, " dx"], Float[Array, " dx"]]:
        """The plausible state that the adversary chooses.

        Gradients treat the width of the region as constant: where the region is narrow its own gradient is small, and it would
        cost more than everything else.
        """
        del draws
        fixed_width = replace(prediction, epistemic_std=jax.lax.stop_gradient(prediction.epistemic_std))
        x_next = _plausible(fixed_width, self.beta, extra)
        return x_next if self.project is None else self.project(x_next), prediction.aleatoric_std


@dataclass(frozen=True)
class Perturbed(Imagination):
    """x' = mean + perturbation, chosen by an adversary; a cheap proxy of `Pessimistic` near a perturbation of 0."""

    def adversary_controls(self, state_dim: int) -> int:
        """One perturbation per state dimension."""
        return state_dim

    def resolve(
        self, prediction: Prediction, extra: Float[Array, " extra"], draws: NoiseDraws
    ) -> tuple[Float[Array, " dx"], Float[Array, " dx"]]:
        """The perturbed mean."""
        del draws
        return prediction.mean + extra, prediction.aleatoric_std


@dataclass(frozen=True)
class Mean(Imagination):
    """x' = mean: epistemic uncertainty is ignored."""

    def resolve(
        self, prediction: Prediction, extra: Float[Array, " extra"], draws: NoiseDraws
    ) -> tuple[Float[Array, " dx"], Float[Array, " dx"]]:
        """The mean."""
        del extra, draws
        return prediction.mean, prediction.aleatoric_std


@dataclass(frozen=True)
class TrajectorySampling(Imagination):
    """TS-1 (PETS): each particle draws at every step a member of the ensemble, or x' ~ N(mean, epistemic_std^2)."""

    def simulated_particles(self, ensemble_size: int) -> int:
        """All of them."""
        del ensemble_size
        return self.particles

    def resolve(
        self, prediction: Prediction, extra: Float[Array, " extra"], draws: NoiseDraws
    ) -> tuple[Float[Array, " dx"], Float[Array, " dx"]]:
        """A state drawn from the prediction."""
        del extra
        if prediction.members is not None:
            return _of_member(prediction.members, draws.member)
        return prediction.mean + prediction.epistemic_std * draws.epistemic, prediction.aleatoric_std


@dataclass(frozen=True)
class MemberTrajectories(Imagination):
    """TS-infinity (PETS): each particle follows one member of the ensemble throughout the plan, all members equally often."""

    needs_members: ClassVar[bool] = True

    def simulated_particles(self, ensemble_size: int) -> int:
        """One per member; with noise, the smallest multiple of that which is at least `particles`."""
        return ensemble_size * -(-self.particles // ensemble_size) if self.noise else ensemble_size

    def adopt(self, posterior: Posterior, particle: Int[Array, ""]) -> Posterior:
        """Members in turn; the others are not evaluated unless the objective needs them."""
        return posterior.member(particle)

    def resolve(
        self, prediction: Prediction, extra: Float[Array, " extra"], draws: NoiseDraws
    ) -> tuple[Float[Array, " dx"], Float[Array, " dx"]]:
        """The member's prediction."""
        del extra, draws
        return prediction.mean, prediction.aleatoric_std


@dataclass(frozen=True)
class MemberChoice(Imagination):
    """The planner chooses the member that predicts each step: optimism for ensembles with a single extra control."""

    needs_members: ClassVar[bool] = True

    def extra_controls(self, state_dim: int) -> int:
        """One: equal parts of [-1, 1] stand for the members."""
        del state_dim
        return 1

    def resolve(
        self, prediction: Prediction, extra: Float[Array, " extra"], draws: NoiseDraws
    ) -> tuple[Float[Array, " dx"], Float[Array, " dx"]]:
        """The prediction of the chosen member."""
        del draws
        assert prediction.members is not None
        return _of_member(prediction.members, (extra[0] + 1) / 2)


def _plausible(prediction: Prediction, beta: float, eta: Float[Array, " dx"]) -> Float[Array, " dx"]:
    """The state at `eta` of the confidence region, whose corners are at -1 and 1."""
    return prediction.mean + (beta if prediction.beta is None else prediction.beta) * prediction.epistemic_std * eta


def _of_member(members: MemberPredictions, position: Float[Array, ""]) -> tuple[Float[Array, " dx"], Float[Array, " dx"]]:
    """Mean and noise std of the member at this position in [0, 1], which all members share evenly."""
    count = members.means.shape[0]
    index = jnp.clip(jnp.floor(position * count).astype(int), 0, count - 1)
    return members.means[index], members.stds[index]


def _check_beta(beta: float) -> None:
    if not 0 <= beta < float("inf"):
        raise SondeError(f"imagination: beta must be 0 or above and finite, got {beta}")


IMAGINATIONS: dict[str, Imagination] = {
    "mean": Mean(),
    "optimistic": Optimistic(),
    "trajectory-sampling": TrajectorySampling(),
    "member-trajectories": MemberTrajectories(),
    "member-choice": MemberChoice(),
}
"""Names of imaginations for the command line."""
