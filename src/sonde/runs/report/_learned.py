"""What a model is worth, by state dimension: its errors and the coverage of its intervals, where the world lets one know."""

import functools
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sonde._internal.blocks import in_blocks
from sonde._internal.errors import SondeError
from sonde._internal.lockstep import in_chunks
from sonde._internal.precision import double_precision
from sonde.data import Trajectory
from sonde.evaluation._metrics import PREDICTION_BYTES, reachable_set
from sonde.explorer import Explorer
from sonde.models import Posterior
from sonde.models._base import predict_many
from sonde.models._calibration import LEVELS
from sonde.models._calibration import coverage as coverage_of
from sonde.runs._run import restore_explorer
from sonde.runs._store import RunStore


@dataclass(frozen=True)
class ModelErrors:
    """Errors of the predicted next state."""

    rmse: np.ndarray
    """Root mean square error per seed and dimension [S, dx], in state units."""
    spread: np.ndarray
    """Standard deviation of the changes from one step to the next [S, dx]."""
    where: str
    """On what the errors were measured, in words."""
    coverage: np.ndarray
    """Share of measurements inside the interval of each level [S, L, dx] (`LEVELS`)."""

    @property
    def relative(self) -> np.ndarray:
        """Errors relative to the spread of the changes [S, dx]; NaN where nothing ever changes."""
        return np.divide(self.rmse, self.spread, out=np.full_like(self.rmse, np.nan), where=self.spread > 0)


@eqx.filter_jit
def _on_points(posterior: Posterior, states: Array, actions: Array, next_states: Array) -> tuple[Array, Array]:
    """Errors [S, dx] and coverage [S, L, dx] at points that all seeds share."""

    def one_seed(posterior: Posterior) -> tuple[Array, Array]:
        prediction = predict_many(posterior, states, actions)
        rmse = jnp.sqrt(jnp.mean((next_states - prediction.mean) ** 2, axis=0))
        return rmse, coverage_of(prediction, next_states, jnp.ones(len(states), bool))

    seeds = jax.tree.leaves(posterior)[0].shape[0]
    return in_chunks(lambda seed: one_seed(jax.tree.map(lambda leaf: leaf[seed], posterior)), seeds, PREDICTION_BYTES)


@eqx.filter_jit
def _on_round(posterior: Posterior, states: Array, actions: Array) -> tuple[Array, Array]:
    """Means and stds [S, T, dx] at points of each seed's own."""
    prediction = jax.vmap(predict_many)(posterior, states, actions)
    return prediction.mean, jnp.hypot(prediction.epistemic_std, prediction.aleatoric_std)


@double_precision
def model_errors(store: RunStore, explorer: Explorer) -> ModelErrors | str:
    """Errors per state dimension: over the reachable set, or on the last round with the model from before it.

    Args:
        store: The run.
        explorer: The explorer after its last finished round.

    Returns:
        The errors; or why there are none, in a sentence.
    """
    points = reachable_set(store.config.world, store.config.past)
    if points is not None:
        given = points.states, points.actions, points.next_states
        rmse, inside = (np.asarray(part) for part in _on_points(explorer.posterior, *given))
        spread = np.std(np.asarray(points.next_states - points.states), axis=0)
        spread = np.broadcast_to(spread, rmse.shape)
        where = f"{len(points.states):,} fixed transitions that cover what the system can reach; no planner ever sees them"
        return ModelErrors(rmse, spread, where, inside)
    before = explorer.round - 1
    if before < 1 and not explorer.initial:
        return "There are no errors to show yet: the first round was measured before there was a model to predict it."
    try:
        earlier = restore_explorer(store, before)
    except SondeError:
        if before in (0, *store.checkpoints()):
            raise
        # also if it was deleted just now, by a process that adds to the run
        return f"The model from before round {explorer.round} is not on disk, so its errors on that round are not known."
    return _before_the_round(earlier, explorer.inputs(store.load_data(explorer.round)[-1]), explorer.round)


def _before_the_round(earlier: Explorer, measured: Trajectory, round_number: int) -> ModelErrors:
    predict = functools.partial(_on_round, earlier.posterior)
    mean, std = in_blocks(lambda x, u: predict(x, u), measured.states, measured.actions)
    errors = np.abs(measured.next_states - mean)
    inside = np.stack([np.mean(errors <= _width(level) * std, axis=1) for level in LEVELS], axis=1)
    where = f"the measurements of round {round_number}, predicted by the model from before that round"
    spread = np.std(measured.next_states - measured.states, axis=1)
    return ModelErrors(np.sqrt(np.mean(errors**2, axis=1)), spread, where, inside)


def _width(level: float) -> float:
    """Half the width of an interval of a level, in stds of a normal distribution."""
    from scipy.stats import norm

    return float(norm.ppf((1 + level) / 2))


@dataclass(frozen=True)
class HeldOut:
    """Coverage of intervals on held-out measurements."""

    before: np.ndarray
    """With the model's own stds [S, L, dx]."""
    after: np.ndarray
    """With recalibrated stds, cross-fitted [S, L, dx]."""


def held_out(explorer: Explorer) -> HeldOut | None:
    """Coverage on held-out measurements; None where none were held out.

    Args:
        explorer: The explorer.
    """
    if explorer.calibration is None or not np.isfinite(explorer.calibration.after).any():
        return None
    return HeldOut(np.asarray(explorer.calibration.before), np.asarray(explorer.calibration.after))
