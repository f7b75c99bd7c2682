"""Sonde's models on measurements of a plant, through their public interface, and measurements that Sonde chose itself."""

from dataclasses import replace

import numpy as np

from benchmarks.systems.plant import Plant
from sonde import Explorer
from sonde._internal.errors import one_of
from sonde.control import RolloutSettings, run_rollouts
from sonde.data import Trajectory
from sonde.methods import METHODS, method_named
from sonde.models import MODELS, Confidence, Model, Posterior
from sonde.runs import RunConfig, default_config

DEFAULT = "default"
"""Name of the model, with its calibration, that Sonde takes for a system without a preset."""


def settings(name: str, plant: Plant) -> tuple[Model, Confidence]:
    """A model by name, and how its uncertainty is calibrated.

    Args:
        name: `DEFAULT`, or a name in `MODELS` for that model's own defaults without calibration.
        plant: The system.
    """
    one_of("model", name, (DEFAULT, *MODELS))
    config = default_config(plant)
    return (config.model, config.confidence) if name == DEFAULT else (MODELS[name](), Confidence())


def learned(name: str, plant: Plant, data: Trajectory, seed: int) -> Posterior:
    """What a model learns from measurements.

    Args:
        name: Name of the model; see `settings`.
        plant: The system.
        data: Measurements [T, ...].
        seed: Randomness of the fit.

    Returns:
        The posterior, with a leading axis of one seed.
    """
    model, confidence = settings(name, plant)
    solver, spec = default_config(plant).solver, plant.spec
    capacity = data.states.shape[0]
    explorer = Explorer(METHODS["random"], model, solver, spec, capacity=capacity, seeds=(seed,), confidence=confidence)
    explorer.start_from(data)
    return explorer.posterior


def explored(plant: Plant, measurements: int, seed: int, config: RunConfig | None = None) -> Trajectory:
    """Measurements that OpAx chooses, in rounds of whole experiments.

    Args:
        plant: The system.
        measurements: Number of measurements; the last round may be shorter.
        seed: Randomness.
        config: Model, confidence and planner; by default those for a system without a preset.

    Returns:
        Measurements [measurements, ...].
    """
    config = config or default_config(plant)
    explorer = Explorer(
        method_named("opax", like=config.method),
        config.model,
        config.solver,
        plant.spec,
        capacity=measurements,
        seeds=(seed,),
        confidence=config.confidence,
    )
    per_round = max(1, round(50 / plant.episode))  # short experiments are planned several at a time
    parts: list[Trajectory] = []
    while (left := measurements - explorer.transitions) > 0:
        first, *others = run_rollouts(plant, explorer.ask(), RolloutSettings(plant.episode, per_round))
        taken = _cut(first.joined(*others), left)
        explorer.tell(taken)
        parts.append(taken)
    whole = parts[0].joined(*parts[1:])
    return Trajectory(whole.states[0], whole.actions[0], whole.next_states[0], truncated=_ends(whole))


def _cut(trajectory: Trajectory, steps: int) -> Trajectory:
    """The first steps of a round."""
    flags = {name: getattr(trajectory, name) for name in ("terminated", "truncated")}
    cut = {name: flag[:, :steps] for name, flag in flags.items() if flag is not None}
    arrays = (trajectory.states, trajectory.actions, trajectory.next_states)
    return replace(Trajectory(*(array[:, :steps] for array in arrays)), **cut)


def _ends(whole: Trajectory) -> np.ndarray:
    ended = np.zeros(whole.states.shape[1], bool) if whole.ended is None else np.array(whole.ended[0])
    ended[-1] = True
    return ended
