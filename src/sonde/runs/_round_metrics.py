"""The metrics of a round that are not returns of tasks."""

from collections.abc import Mapping

import numpy as np

from sonde._internal.errors import SondeError
from sonde._internal.precision import double_precision
from sonde.data import Trajectory
from sonde.evaluation import Metric, RoundResult
from sonde.evaluation._constraints import constraint_metrics
from sonde.evaluation._coverage import coverage_metrics
from sonde.evaluation._evaluate import rewards_of_steps
from sonde.evaluation._metrics import errors_after, model_metrics, prediction_errors, realised_information_gain
from sonde.evaluation._schema import FORGOTTEN
from sonde.evaluation._whiteness import whiteness_metrics
from sonde.explorer import Explorer
from sonde.models import Auto, Calibration, KnownPhysics
from sonde.models._calibration import LEVELS, calibration_error
from sonde.models._known_physics import learner_of
from sonde.objectives import TaskObjective
from sonde.runs._config import RunConfig
from sonde.runs._theory_metrics import theory_metrics
from sonde.worlds import World


@double_precision
def round_metrics(config: RunConfig, result: RoundResult, first: bool) -> dict[str, np.ndarray]:
    """All metrics of a round but those of tasks, per seed [S].

    Args:
        config: The config of the run.
        result: The round that was just told.
        first: Whether there was nothing to predict it with: no measurements, and no prior.
    """
    explorer, trajectory = result.explorer, result.trajectory
    inputs = explorer.inputs(trajectory)
    visited, unknown = (inputs.states, inputs.actions), np.full(explorer.num_seeds, np.nan)
    planned = trajectory.planned_information
    return {
        "planned_information_gain": unknown if planned is None else planned.sum(axis=1),
        "realised_information_gain": realised_information_gain(result.before, *visited),
        **(
            dict.fromkeys(("prediction_error", "overconfidence", "information_rank", "drift"), unknown)
            if first
            else prediction_errors(result.before, *visited, trajectory.next_states)
        ),
        **({} if first else coverage_metrics(result.before, inputs, config.past)),
        **({FORGOTTEN.key: explorer.forgotten} if config.confidence.forget_at_alarm else {}),
        **whiteness_metrics(trajectory, errors_after(explorer.posterior, inputs), config.past),
        **choice_metrics(explorer),
        **physics_metrics(explorer),
        **model_metrics(explorer.posterior, explorer.recent, config.world, config.past),
        **({} if explorer.calibration is None else calibration_metrics(explorer.calibration)),
        **theory_metrics(explorer, config),
        **episode_metrics(config.world, trajectory),
        **constraint_metrics(explorer.safety, trajectory),
        **{metric.spec.key: _computed(metric, result) for metric in config.metrics},
    }


@double_precision
def exploration_metrics(explorer: Explorer, trajectory: Trajectory, rollouts: int) -> dict[str, np.ndarray]:
    """What exploration for a task collected of its reward, and the weight of the bonus beside it, per seed [S].

    Args:
        explorer: The explorer before it is told the round.
        trajectory: Measurements of the round [S, T, ...].
        rollouts: Number of rollouts in it.
    """
    objective = explorer.method.objective
    if not isinstance(objective, TaskObjective):
        return {}
    problem = explorer.problem()
    assert problem is not None
    assert objective.reward is not None
    rewards = rewards_of_steps(objective.reward, trajectory, *(() if problem.goal is None else (np.asarray(problem.goal),)))
    collected = {"exploration_return": rewards.sum(axis=1) / rollouts}
    return collected | ({} if problem.bonus_weight is None else {"bonus_weight": np.asarray(problem.bonus_weight)})


def choice_metrics(explorer: Explorer) -> dict[str, np.ndarray]:
    """Which candidate of the model auto was chosen, and the errors that decided, per seed [S].

    Args:
        explorer: The explorer after the round.
    """
    model, params = learner_of(explorer.model), explorer.params
    if not isinstance(model, Auto):
        return {}
    params = params.learned if isinstance(explorer.model, KnownPhysics) else params
    errors = np.asarray(params.errors).T
    each = {f"simulation_error/{label}": error for label, error in zip(model.labels, errors, strict=True)}
    return {"model_choice": np.asarray(params.choice), **each}


def physics_metrics(explorer: Explorer) -> dict[str, np.ndarray]:
    """Estimates of unknown parameters of known physics, and their stds, per seed [S].

    Args:
        explorer: The explorer after the round.
    """
    if not isinstance(explorer.model, KnownPhysics):
        return {}
    found = explorer.model.estimates(explorer.params)
    return {
        **{f"physics/{name}": value for name, (value, _) in found.items()},
        **{f"physics_std/{name}": std for name, (_, std) in found.items()},
    }


def _computed(metric: Metric, result: RoundResult) -> np.ndarray:
    """The value of a metric of one's own, checked."""
    values = np.asarray(metric.compute(result), dtype=np.float64)
    if values.shape != (result.explorer.num_seeds,):
        raise SondeError(
            f"metric {metric.spec.key!r} must give one number per seed, shape [{result.explorer.num_seeds}], "
            f"got {list(values.shape)}"
        )
    return values


def episode_metrics(world: World, trajectory: Trajectory) -> dict[str, np.ndarray]:
    """Compute the metrics that a world defines for episodes, as means over the episodes of a round.

    Args:
        world: The system.
        trajectory: Measurements of the round [S, T, ...].

    Returns:
        Values per seed [S] by key.
    """
    ended = trajectory.ended
    ends = np.zeros(trajectory.states.shape[:2], bool) if ended is None else ended
    found: list[dict[str, float]] = []
    for states, next_states, ended in zip(trajectory.states, trajectory.next_states, ends, strict=True):
        cuts = np.flatnonzero(ended[:-1]) + 1
        parts = zip(np.split(states, cuts), np.split(next_states, cuts), strict=True)
        episodes = [world.episode_metrics(*part) for part in parts]
        found.append({name: float(np.mean([episode[name] for episode in episodes])) for name in episodes[0]})
    return {name: np.array([seed[name] for seed in found]) for name in found[0]}


def calibration_metrics(calibration: Calibration) -> dict[str, np.ndarray]:
    """Coverage on held-out measurements, before and after recalibration, per seed [S]; NaN where none were held out.

    Args:
        calibration: The calibration of all seeds.
    """
    metrics = {}
    for name, share in (("before", calibration.before), ("after", calibration.after)):
        metrics[f"calibration/error_{name}"] = np.asarray(calibration_error(share))
        metrics[f"calibration/coverage90_{name}"] = np.asarray(share)[:, np.isclose(LEVELS, 0.9)].mean(axis=(1, 2))
    return metrics


def per_seed(metrics: Mapping[str, np.ndarray]) -> list[dict[str, float | None]]:
    """Metrics as one dictionary per seed; JSON has no NaN, so what a method does not have is None.

    Args:
        metrics: Values [S] by key.
    """
    number = lambda value: float(value) if np.isfinite(value) else None
    return [dict(zip(metrics, map(number, values), strict=True)) for values in zip(*metrics.values(), strict=True)]
