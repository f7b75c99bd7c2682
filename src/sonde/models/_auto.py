"""A model that is chosen by how well it simulates measurements that it has not seen."""

from dataclasses import dataclass, field, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from sonde._internal.errors import SondeError
from sonde.data import HELD_OUT_BLOCK, Data, SystemSpec
from sonde.models._base import JacobianPrediction, Model, Posterior, Prediction
from sonde.models._gaussian_process import GaussianProcess
from sonde.models._kernels import Matern52
from sonde.models._normaliser import Normaliser
from sonde.models._probabilistic import ProbabilisticEnsemble
from sonde.models._simulate import simulate_mean

JUDGED = 0.2
"""Fraction of the measurements that candidates are compared on, and do not see for it."""
LARGEST_ERROR = 10.0
"""In stds of the states: a simulation that leaves the data altogether counts as this far off."""
ADVANTAGE = 0.95
"""Another candidate is chosen once its error is below this fraction of the present one's, so chance changes nothing."""


class AutoParams(eqx.Module):
    """Params of all candidates, and the choice among them."""

    candidates: tuple[Any, ...]
    """Params of each candidate."""
    errors: Float[Array, "*seeds candidates"]
    """Error of each candidate at the last fit; NaN before there are measurements to compare on."""
    choice: Int[Array, "*seeds"]
    """Number of the chosen candidate."""


@dataclass(frozen=True)
class Auto(Model):
    """The candidate that best simulates blocks of 20 measurements that it has not seen; compared again after each round."""

    candidates: tuple[Model, ...] = field(
        default_factory=lambda: (
            GaussianProcess(),
            GaussianProcess(kernel=Matern52()),
            ProbabilisticEnsemble(width=128),
        )
    )
    """The models to choose from, in order of preference."""

    def __post_init__(self):
        """Reject what cannot be chosen from."""
        if len(self.candidates) < 2 or not all(isinstance(model, Model) for model in self.candidates):
            raise SondeError(f"model: candidates must be two or more models, got {self.candidates!r}")

    @property
    def labels(self) -> tuple[str, ...]:
        """A short name for each candidate."""
        names = [_label(model) for model in self.candidates]
        return tuple(f"{name}-{number}" if names.count(name) > 1 else name for number, name in enumerate(names))

    def check_system(self, spec: SystemSpec) -> None:
        """Reject systems that one of the candidates cannot learn."""
        for model in self.candidates:
            model.check_system(spec)

    def for_system(self, spec: SystemSpec) -> "Auto":
        """The same with all candidates for the system."""
        return replace(self, candidates=tuple(model.for_system(spec) for model in self.candidates))

    def init(self, state_dim: int, action_dim: int, key: Key[Array, ""]) -> AutoParams:
        """Initial params of all candidates; the first one is chosen."""
        keys = jax.random.split(key, len(self.candidates))
        each = tuple(model.init(state_dim, action_dim, key) for model, key in zip(self.candidates, keys, strict=True))
        return AutoParams(each, jnp.full(len(each), jnp.nan), jnp.zeros((), int))

    def fit(self, params: AutoParams, data: Data, filled: Int[Array, ""], key: Key[Array, ""]) -> AutoParams:
        """Fit the candidates to a part of the data, compare them on the rest, and fit them to all data."""
        part = data.without(data.hidden + JUDGED)
        errors, fitted = [], []
        for number, (model, old) in enumerate(zip(self.candidates, params.candidates, strict=True)):
            init_key, part_key, whole_key = jax.random.split(jax.random.fold_in(key, number), 3)
            # from new params: the last ones have seen what is compared on
            new = model.init(data.states.shape[-1], data.actions.shape[-1], init_key)
            errors.append(simulation_error(model.condition(model.fit(new, part, filled, part_key), part), data))
            fitted.append(model.fit(old, data, filled, whole_key))
        found = jnp.stack(errors)
        best, current = jnp.argmin(found), found[params.choice]
        compared_before = jnp.isfinite(params.errors[params.choice])
        better = found[best] < jnp.where(compared_before, ADVANTAGE, 1.0) * current
        return AutoParams(tuple(fitted), found, jnp.where(better, best, params.choice))

    def condition(self, params: AutoParams, data: Data) -> "AutoPosterior":
        """Posteriors of all candidates."""
        each = (model.condition(own, data) for model, own in zip(self.candidates, params.candidates, strict=True))
        return AutoPosterior(tuple(each), params.choice)


def _label(model: Model) -> str:
    if isinstance(model, GaussianProcess):
        return f"gp-{type(model.kernel).__name__.lower()}"
    return "pe" if isinstance(model, ProbabilisticEnsemble) else type(model).__name__.lower()


class AutoPosterior(Posterior):
    """The posterior of the chosen candidate."""

    candidates: tuple[Posterior, ...]
    choice: Int[Array, "*seeds"]

    def predict(self, x: Float[Array, " dx"], u: Float[Array, " du"]) -> Prediction:
        """Predict with the chosen candidate."""
        branches = [lambda each=each: replace(each.predict(x, u), members=None) for each in self.candidates]
        return jax.lax.switch(self.choice, branches)

    def predict_jacobian(
        self, x: Float[Array, " dx"], u: Float[Array, " du"], key: Key[Array, ""], count: int
    ) -> JacobianPrediction:
        """Predict the Jacobian with the chosen candidate."""
        draw = lambda each: each.predict_jacobian(x, u, key, count)
        # ensembles have as many samples as members: repeat them
        alike = lambda found: replace(found, samples=found.samples[jnp.arange(count) % found.samples.shape[0]])
        return jax.lax.switch(self.choice, [lambda each=each: alike(draw(each)) for each in self.candidates])

    def warning(self) -> str | None:
        """That of the chosen candidates."""
        messages = (self.candidates[number].warning() for number in np.unique(np.asarray(self.choice)))
        return next((message for message in messages if message is not None), None)

    def specialise(self) -> Posterior:
        """The chosen candidate itself, if it is the same for all seeds."""
        chosen = np.unique(np.asarray(self.choice))
        if len(chosen) == 1:
            return self.candidates[int(chosen[0])].specialise()
        return replace(self, candidates=tuple(each.specialise() for each in self.candidates))

    def differentiable(self) -> Posterior:
        """The same in a form that has gradients."""
        return replace(self, candidates=tuple(each.differentiable() for each in self.candidates))


def simulation_error(posterior: Posterior, data: Data) -> Float[Array, ""]:
    """Error of simulations over blocks of measurements that the posterior has not seen.

    Args:
        posterior: Posterior after `data.without(data.hidden + JUDGED)`.
        data: The measurements.

    Returns:
        Root mean square over steps and state dimensions, in stds of the states; infinite if there are no such measurements.
    """
    mask = data.mask()
    judged = mask & ~data.without(data.hidden + JUDGED).mask()
    count = data.capacity // HELD_OUT_BLOCK
    whole = lambda array: array[: count * HELD_OUT_BLOCK].reshape(count, HELD_OUT_BLOCK, *array.shape[1:])
    states, actions, next_states, rows = map(whole, (data.states, data.actions, data.next_states, judged))
    # where an episode ends, the next state is not where the next row starts
    follows = jnp.all(next_states[:, :-1] == states[:, 1:], axis=-1)
    if data.forgotten is not None:  # blocks of rows may lie across two blocks that are held out or not
        follows &= whole(data.numbers())[:, 1:] % HELD_OUT_BLOCK != 0
    joined = jnp.concatenate([jnp.zeros((count, 1), bool), follows], axis=1)
    error = simulate_mean(posterior, states, actions, joined) - next_states
    relative = error / Normaliser.of(data.states, mask).scale
    squared = jnp.minimum(jnp.where(jnp.isfinite(relative), relative**2, jnp.inf), LARGEST_ERROR**2)
    total = jnp.sum(jnp.mean(squared, axis=-1), where=rows)
    return jnp.where(jnp.any(rows), jnp.sqrt(total / jnp.maximum(jnp.sum(rows), 1)), jnp.inf)
