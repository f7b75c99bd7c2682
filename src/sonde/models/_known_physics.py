"""Known physics with any model that learns what it lacks.

The model inside sees next states x + (x' - f(x, u)): the change that it learns is the error of the physics f. Its posterior is
wrapped by one that adds f(x, u) - x again. Parameters of f may be unknown: `fit` estimates them first, from the same
measurements (`_physics_fit`), and the model inside learns what is left.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jaxtyping import Array, Float, Int, Key

from sonde._internal.errors import SondeError
from sonde._internal.user_code import with_absolute_path
from sonde.data import Data, SystemSpec
from sonde.models._base import Model
from sonde.models._normaliser import Normaliser
from sonde.models._physics import (
    Dynamics,
    Ranges,
    check_parameters,
    check_physics,
    check_shapes,
    checked_ranges,
    equations,
)
from sonde.models._physics_fit import estimate, prior_of
from sonde.models._physics_posterior import Estimate, KnownPhysicsPosterior, standard_draws

SMALLEST_ERROR = 0.1
"""Least unit of the errors of the physics, in stds of the changes x' - x. Models normalise by what they see; where the physics
is right so far, they must not become certain that it is right everywhere."""


class KnownPhysicsParams(eqx.Module):
    """Params of the model inside, and the unknown parameters of the physics."""

    learned: Any
    """Params of the model inside."""
    values: Float[Array, "*seeds p"] | None
    """Estimates of the unknown parameters; None if there are none."""
    covariance: Float[Array, "*seeds p p"] | None
    """Their covariance."""


@dataclass(frozen=True)
class KnownPhysics(Model):
    """Known physics x' = f(x, u), and a model that learns only what the physics lacks."""

    model: Annotated[Model, tyro.conf.arg(name="")]
    """What learns the errors of the physics."""
    prior: tyro.conf.SuppressFixed[Dynamics | str | Any]
    """The physics: an object with `dynamics(x, u)` in JAX, such as a world with other parameters, a function f(x, u), or
    FILE.py:NAME of either. A function must be named as FILE.py:NAME to be saved with a run."""
    ranges: Annotated[Mapping[str, tuple[float, float]] | Ranges, tyro.conf.Suppress] = ()
    """Unknown parameters with their ranges, as {"mass": (0.5, 2.0)}: fields of the object, or keyword arguments of the
    function. They are estimated from the data, and replace the values that the prior itself has."""

    def __post_init__(self):
        """Reject what cannot be used, and bring paths and ranges into one form."""
        if not isinstance(self.model, Model) or isinstance(self.model, KnownPhysics):
            raise SondeError(f"KnownPhysics: model must be a Model without a prior of its own, got {self.model!r}")
        check_physics(self.prior)
        if isinstance(self.prior, str):
            object.__setattr__(self, "prior", with_absolute_path(self.prior))
        object.__setattr__(self, "ranges", checked_ranges(self.ranges))

    def check_system(self, spec: SystemSpec) -> None:
        """Reject systems whose state has a past: the physics is a function of the present state and action."""
        if spec.past:
            raise SondeError(
                "known physics predicts from the present state and action, and with --delay or --history the past counts too: "
                "leave out the prior, or these"
            )
        self.model.check_system(spec)

    def for_system(self, spec: SystemSpec) -> "KnownPhysics":
        """The same with the model inside for the system; its angles have no range, because the physics has added its part."""
        inner = spec if spec.layout is None else replace(spec, layout=spec.layout.unbounded())
        return replace(self, model=self.model.for_system(inner))

    @property
    def informed(self) -> bool:
        """True: the physics predicts before there are data."""
        return True

    @property
    def fits_by_linear_algebra(self) -> bool:
        """Whether the model inside does."""
        return self.model.fits_by_linear_algebra

    @property
    def ensemble_size(self) -> int:
        """Number of members of the model inside."""
        return self.model.ensemble_size

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the unknown parameters."""
        return tuple(name for name, *_ in self.ranges)

    @property
    def limits(self) -> Float[np.ndarray, "p 2"]:
        """Smallest and largest value of each unknown parameter."""
        return np.asarray([limits for _, *limits in self.ranges]).reshape(-1, 2)

    def check(self, state_dim: int, action_dim: int) -> None:
        """Reject physics that does not fit a system; the user's file is read here.

        Args:
            state_dim: Number of state dimensions dx.
            action_dim: Number of action dimensions du.
        """
        check_parameters(self.prior, self.names)
        check_shapes(self.prior, self.names, state_dim, action_dim)

    def next_state(
        self, x: Float[Array, " dx"], u: Float[Array, " du"], values: Float[Array, " p"] | None = None
    ) -> Float[Array, " dx"]:
        """The next state by the physics alone.

        Args:
            x: State.
            u: Action.
            values: Values of the unknown parameters; None for those that the prior itself has.
        """
        own = {} if values is None else dict(zip(self.names, values, strict=True))
        return equations(self.prior, own)(x, u)

    def residual(self, data: Data, values: Float[Array, " p"] | None) -> Data:
        """The measurements as the model inside sees them: their targets are the errors of the physics.

        Args:
            data: Measurements of one seed.
            values: Values of the unknown parameters; None if there are none.
        """
        filled = (jnp.arange(data.capacity) < data.count)[:, None]
        predicted = jax.vmap(lambda x, u: self.next_state(x, u, values))(data.states, data.actions)
        left = jnp.where(filled, data.states + (data.next_states - predicted), data.next_states)
        return replace(data, next_states=left, smallest_change=SMALLEST_ERROR * Normaliser.of_targets(data).scale)

    def init(self, state_dim: int, action_dim: int, key: Key[Array, ""]) -> KnownPhysicsParams:
        """Initial params of the model inside, and the middles of the ranges."""
        self.check(state_dim, action_dim)
        values, covariance = prior_of(self.limits) if self.ranges else (None, None)
        return KnownPhysicsParams(self.model.init(state_dim, action_dim, key), values, covariance)

    def fit(self, params: KnownPhysicsParams, data: Data, filled: Int[Array, ""], key: Key[Array, ""]) -> KnownPhysicsParams:
        """Estimate the unknown parameters, then fit the model inside to what is left."""
        values, covariance = params.values, params.covariance
        if values is not None:
            values, covariance = estimate(self.next_state, self.limits, values, data)
        return KnownPhysicsParams(self.model.fit(params.learned, self.residual(data, values), filled, key), values, covariance)

    def condition(self, params: KnownPhysicsParams, data: Data) -> KnownPhysicsPosterior:
        """The posterior of the model inside, with the physics around it."""
        inner = self.model.condition(params.learned, self.residual(data, params.values))
        return KnownPhysicsPosterior(inner, self._estimate(params), self)

    def _estimate(self, params: KnownPhysicsParams) -> Estimate | None:
        if params.values is None or params.covariance is None:
            return None
        low, high = jnp.asarray(self.limits).T
        width = high - low
        root = width[:, None] * jnp.linalg.cholesky(params.covariance / (width[:, None] * width))
        if self.ensemble_size == 0:
            return Estimate(params.values, root, None)
        draws = params.values + jnp.asarray(standard_draws(self.ensemble_size, len(width))) @ root.T
        return Estimate(params.values, root, jnp.clip(draws, low, high))

    def estimates(self, params: KnownPhysicsParams) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Estimates of the unknown parameters and their stds.

        Args:
            params: Fitted params, such as `Explorer.params` of S seeds.

        Returns:
            Estimate and std by name, each with the leading axis of the params.
        """
        if params.values is None or params.covariance is None:
            return {}
        stds = np.sqrt(np.diagonal(np.asarray(params.covariance), axis1=-2, axis2=-1))
        return {name: (np.asarray(params.values)[..., i], stds[..., i]) for i, name in enumerate(self.names)}


def learner_of(model: Model) -> Model:
    """The model that learns: the one inside, where there is known physics around it.

    Args:
        model: Any model.
    """
    return model.model if isinstance(model, KnownPhysics) else model
