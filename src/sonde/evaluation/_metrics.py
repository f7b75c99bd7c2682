"""How good a model is: on the reachable set of its world, which planners never see, and on the round it has just predicted."""

import functools
import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sonde._internal.blocks import in_blocks
from sonde._internal.lockstep import in_chunks
from sonde._internal.past import NO_PAST, Past
from sonde._internal.precision import double_precision
from sonde.data import Data, Trajectory
from sonde.evaluation._windows import reachable_with_past
from sonde.models import RBF, Posterior
from sonde.models._base import predict_many
from sonde.models._calibration import calibration_error, coverage
from sonde.models._drift import median_known_error
from sonde.models._gp_posterior import low_rank, low_rank_bytes
from sonde.models._normaliser import Normaliser
from sonde.objectives import information_gain
from sonde.worlds import World

COMMON_LENGTHSCALE, COMMON_NOISE, COMMON_RANK = 1.5, 0.01, 256
"""The common kernel, the same for all methods: RBF with unit signal std and this noise std, on inputs and targets in units of
their spread over the reachable set. Its length-scale is this one times the root of the number of inputs, since distances grow
with that. Its posterior has at most `COMMON_RANK` inducing points."""

PREDICTION_BYTES = 2**27  # working memory of `predict_many`, about

NOISE_STDS = 3.0
"""Errors of a prediction up to this many aleatoric stds count as noise."""


class ReachableSet(eqx.Module):
    """Transitions that cover what a world can reach."""

    states: Float[Array, "N dx"]
    actions: Float[Array, "N du"]
    next_states: Float[Array, "N dx"]
    """True next states, with the world's noise."""
    box: tuple[Float[Array, "M dx"], Float[Array, "M du"]] | None
    """States and actions of the world's narrow box, if it has one."""
    tasks: tuple[Float[Array, "L dx"], Float[Array, "L du"], Float[Array, "L dx"]] | None = None
    """Transitions that good policies for the world's tasks visit, if they are recorded."""


@functools.cache
@double_precision
def reachable_set(world: World, past: Past = NO_PAST) -> ReachableSet | None:
    """The reachable set of a world, as arrays for compiled code.

    Args:
        world: The world.
        past: What of the past belongs to the state; if anything does, actions come after the past that led to each state.

    Returns:
        The set, or None where it is not known.
    """
    if past:
        found = reachable_with_past(world, past)
        return None if found is None else ReachableSet(*map(jnp.asarray, found), box=None)
    reachable, box, tasks = world.reachable(), world.narrow_box(), world.task_transitions()
    if reachable is None:
        return None
    return ReachableSet(
        *map(jnp.asarray, reachable),
        box=None if box is None else (jnp.asarray(box[0]), jnp.asarray(box[1])),
        tasks=None if tasks is None else (jnp.asarray(tasks[0]), jnp.asarray(tasks[1]), jnp.asarray(tasks[2])),
    )


def _common_uncertainty(data: Data, points: ReachableSet) -> Float[Array, ""]:
    """Largest epistemic std under the common kernel: it depends on where measurements were taken, not on a method's fit."""
    everything = jnp.ones(points.states.shape[0], bool)
    queries = jnp.concatenate([points.states, points.actions], axis=-1)
    normalise = Normaliser.of(queries, everything)
    change = Normaliser.of(points.next_states - points.states, everything)
    lengthscale = COMMON_LENGTHSCALE * queries.shape[1] ** 0.5
    kernel, rows = RBF(), normalise(data.inputs()) / lengthscale
    ratio = jnp.asarray(COMMON_NOISE**2)
    # a variance does not depend on the targets, and all outputs share the kernel: one pass over zeros serves
    centres = low_rank(kernel, rows, jnp.zeros(rows.shape[0]), data.mask(), ratio, min(COMMON_RANK, data.capacity), 0.1)
    explained = kernel.cross(normalise(queries) / lengthscale, centres.points) @ centres.factor
    variance = jnp.maximum(1.0 - jnp.sum(explained**2, axis=-1), 0.0)
    return jnp.sqrt(jnp.max(variance)) * jnp.linalg.norm(change.scale)


@eqx.filter_jit
def _model_metrics(posterior: Posterior, data: Data, points: ReachableSet) -> dict[str, Array]:
    def one_seed(posterior: Posterior, data: Data) -> dict[str, Array]:
        # one call for all sets, which compiles in the time of one
        sets = [(points.states, points.actions), points.box or (), (points.tasks or ())[:2]]
        states, actions = (jnp.concatenate(column) for column in zip(*filter(None, sets), strict=True))
        everything = predict_many(posterior, states, actions)
        count, before_tasks = points.states.shape[0], states.shape[0] - (points.tasks[0].shape[0] if points.tasks else 0)
        part = lambda start, end: jax.tree.map(lambda leaf: leaf[start:end], everything)
        prediction, others = part(0, count), dict[str, Array]()
        if points.box is not None:
            others["max_epistemic_box"] = jnp.max(jnp.linalg.norm(part(count, before_tasks).epistemic_std, axis=-1))
        if points.tasks is not None:
            others["model_rmse_tasks"] = _rmse(points.tasks[2] - part(before_tasks, None).mean)
        error = points.next_states - prediction.mean
        variance = prediction.epistemic_std**2 + prediction.aleatoric_std**2
        uncertainty = jnp.linalg.norm(prediction.epistemic_std, axis=-1)
        return {
            "max_epistemic": jnp.max(uncertainty),
            "mean_epistemic": jnp.mean(uncertainty),
            "max_epistemic_common": _common_uncertainty(data, points),
            **others,
            "model_rmse": _rmse(error),
            "model_nll": jnp.mean(0.5 * (error**2 / variance + jnp.log(2 * jnp.pi * variance))),
            "calibration_error": calibration_error(coverage(prediction, points.next_states, jnp.ones(count, bool))),
        }

    seeds, tree = data.count.shape[0], (posterior, data)
    bytes_each = low_rank_bytes(data.capacity, COMMON_RANK) + PREDICTION_BYTES
    return in_chunks(lambda seed: one_seed(*jax.tree.map(lambda leaf: leaf[seed], tree)), seeds, bytes_each)


def _rmse(error: Float[Array, "N dx"]) -> Float[Array, ""]:
    return jnp.sqrt(jnp.mean(jnp.sum(error**2, axis=-1)))


@double_precision
def model_metrics(
    posterior: Posterior,
    data: Data,
    world: World,
    past: Past = NO_PAST,
) -> dict[str, np.ndarray]:
    """Evaluate a model on the reachable set of its world.

    Uncertainty is the Euclidean norm over state dimensions of the epistemic std, in state units; rmse is the root mean square
    of the norm of the error of the mean; nll is per dimension, under epistemic and aleatoric variance together.

    Args:
        posterior: What was learned, with a leading axis S.
        data: All measurements, with a leading axis S.
        world: The true system.
        past: What of the past belongs to the state.

    Returns:
        Values [S] by key of the schema; empty where the reachable set is not known.
    """
    points = reachable_set(world, past)
    return (
        {} if points is None else {name: np.asarray(value) for name, value in _model_metrics(posterior, data, points).items()}
    )


class _Predicted(NamedTuple):
    """What a posterior says about visited points [S, T, ...]."""

    mean: Array
    epistemic_std: Array
    aleatoric_std: Array
    information: Array
    """Information gain of each point alone, in nats."""


@eqx.filter_jit
def _predict_rounds(posterior: Posterior, states: Array, actions: Array) -> _Predicted:
    prediction = jax.vmap(predict_many)(posterior, states, actions)
    return _Predicted(prediction.mean, prediction.epistemic_std, prediction.aleatoric_std, information_gain(prediction))


@double_precision
def realised_information_gain(posterior: Posterior, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """Information gain of the visited points of a round.

    Args:
        posterior: The posterior from before the round, with a leading axis S.
        states: Visited states [S, T, dx].
        actions: Actions [S, T, du].

    Returns:
        The sum of what each point alone would tell, in nats [S].
    """
    return in_blocks(functools.partial(_predict_rounds, posterior), states, actions).information.sum(axis=-1)


@double_precision
def prediction_errors(
    posterior: Posterior, states: np.ndarray, actions: np.ndarray, next_states: np.ndarray
) -> dict[str, np.ndarray]:
    """How well a posterior predicted a round that it had not learned from.

    Args:
        posterior: The posterior from before the round, with a leading axis S.
        states: Visited states [S, T, dx].
        actions: Actions [S, T, du].
        next_states: Measured next states [S, T, dx].

    Returns:
        `prediction_error`: root mean square norm of the errors of the mean, each reduced by `NOISE_STDS` aleatoric stds, in
        state units [S]. `overconfidence`: root mean square of the errors over the promised stds, epistemic and aleatoric
        together [S]. `information_rank`: rank correlation of errors and information gains over the points [S]; NaN where either
        is constant. `drift`: median error in promised stds where the model was certain [S]; NaN where there are too few points.
    """
    prediction = in_blocks(functools.partial(_predict_rounds, posterior), states, actions)
    errors = np.abs(next_states - prediction.mean)
    beyond = np.maximum(errors - NOISE_STDS * prediction.aleatoric_std, 0.0)
    promised = np.hypot(prediction.epistemic_std, prediction.aleatoric_std)
    with np.errstate(divide="ignore"):
        in_stds = np.divide(errors, promised, out=np.zeros_like(errors), where=errors > 0)  # no error is no overconfidence
    spread = np.std(next_states - states, axis=1, keepdims=True)
    relative = np.divide(errors, spread, out=np.zeros_like(errors), where=spread > 0)
    points = zip(np.sqrt(np.mean(relative**2, axis=-1)), prediction.information, strict=True)
    return {
        "prediction_error": np.sqrt(np.mean(np.sum(beyond**2, axis=-1), axis=-1)),
        "overconfidence": np.sqrt(np.mean(in_stds**2, axis=(-2, -1))),
        "information_rank": np.array([rank_correlation(*seed) for seed in points]),
        "drift": median_known_error(errors, prediction.epistemic_std, prediction.aleatoric_std),
    }


@double_precision
def errors_after(posterior: Posterior, inputs: Trajectory) -> np.ndarray:
    """Errors of the mean of a posterior.

    Args:
        posterior: The posterior, with a leading axis S.
        inputs: Measurements [S, T, ...], with the past before their actions if it belongs to the state.

    Returns:
        Measured minus predicted next states [S, T, dx].
    """
    predict = functools.partial(_predict_rounds, posterior)
    return inputs.next_states - in_blocks(predict, inputs.states, inputs.actions).mean


def rank_correlation(one: Float[np.ndarray, " N"], other: Float[np.ndarray, " N"]) -> float:
    """Spearman's rank correlation; equal numbers share their mean rank.

    Args:
        one: Numbers.
        other: As many numbers.

    Returns:
        The correlation of their ranks; NaN where one of them is constant.
    """
    ranks = []
    for numbers in (one, other):
        _, place, counts = np.unique(numbers, return_inverse=True, return_counts=True)
        ranks.append((np.cumsum(counts) - (counts - 1) / 2)[place])
    first, second = (rank - rank.mean() for rank in ranks)
    size = np.sqrt(np.sum(first**2) * np.sum(second**2))
    return float(np.sum(first * second) / size) if size > 0 else math.nan
