"""A whole run: Algorithm 1 with metrics and checkpoints after every episode."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from sonde.calibration import LEVELS, Calibration, calibration_error
from sonde.config import RunConfig
from sonde.data import Trajectory
from sonde.evaluate import evaluate
from sonde.explorer import Explorer
from sonde.metrics import judge, realised_information_gain
from sonde.precision import double_precision
from sonde.rollout import rollout
from sonde.runs.store import RunStore

Progress = Callable[[str, int, list[dict[str, Any]] | None], None]
"""progress(phase, episode, rows): called when a phase of an episode begins, and with its metrics when it is done."""


def build_explorer(config: RunConfig) -> Explorer:
    """The explorer that a config describes."""
    return Explorer(
        config.method,
        config.model,
        config.solver,
        state_dim=config.world.state_dim,
        action_dim=config.world.action_dim,
        capacity=config.data_capacity,
        seeds=config.seed_list,
        beta=config.beta,
        particles=config.particles,
        imagine_noise=config.imagine_noise,
        holdout=config.holdout,
        calibrated=config.calibrated,
        reward=None if config.task is None else config.world.tasks[config.task],
    )


def restore_explorer(store: RunStore, episode: int) -> Explorer:
    """The explorer as it was after `episode`."""
    explorer = build_explorer(store.config)
    if episode > 0:
        params = store.load_checkpoint(episode, explorer.params)
        explorer.restore(store.load_data(episode), params)
    return explorer


def run(store: RunStore, progress: Progress, from_episode: int | None = None) -> Explorer:
    """Explore until all episodes are done, starting after the newest checkpoint (or after `from_episode`)."""
    with store.locked():
        checkpoints = store.checkpoints()
        start = (checkpoints[-1] if checkpoints else 0) if from_episode is None else from_episode
        explorer = restore_explorer(store, start)
        store.forget_after(start)
        while explorer.episode < store.config.episodes:
            one_episode(store, explorer, progress)
        return explorer


@double_precision
def one_episode(store: RunStore, explorer: Explorer, progress: Progress) -> None:
    """Ask, roll out, tell, judge, save."""
    config, seconds, number = store.config, {}, explorer.episode + 1

    def timed(phase: str, work: Callable[[], Any]) -> Any:
        progress(phase, number, None)
        began = time.perf_counter()
        result = work()
        seconds[phase] = seconds.get(phase, 0.0) + time.perf_counter() - began
        return result

    before = explorer.posterior
    trajectory: Trajectory = timed("plan", lambda: rollout(config.world, explorer.ask(), config.horizon))
    timed("fit", lambda: explorer.tell(trajectory))

    def judged() -> dict[str, np.ndarray]:
        metrics = judge(explorer.posterior, explorer.data, config.world)
        realised = realised_information_gain(before, trajectory.states, trajectory.actions)
        assert trajectory.planned_information is not None
        planned = trajectory.planned_information.sum(axis=1)
        held_out = {} if explorer.calibration is None else calibration_metrics(explorer.calibration)
        return {"planned_information_gain": planned, "realised_information_gain": realised, **metrics, **held_out}

    def returns() -> dict[str, np.ndarray]:
        every = config.evaluate_every
        due = every > 0 and (number % every == 0 or number == config.episodes)
        if not due:
            return {}
        keys = explorer.keys()
        played = {
            task: evaluate(config.world, explorer.posterior, task, config.solver, config.evaluation_horizon, keys)
            for task in config.world.tasks
        }
        return {f"return/{task}": evaluation.returns for task, evaluation in played.items()}

    metrics = {**timed("evaluate", judged), **timed("evaluate", returns)}
    # a world written in JAX steps inside the compiled episode: its time is part of the planning
    times = {f"seconds/{phase}": seconds.get(phase, 0.0) for phase in ("plan", "fit", "world", "evaluate")}
    rows = [
        {
            "seed": seed,
            "episode": number,
            "transitions": explorer.transitions,
            **{name: _number(values[i]) for name, values in metrics.items()},
            **times,
        }
        for i, seed in enumerate(explorer.seeds)
    ]
    store.save_data(number, trajectory)
    store.append_metrics(rows)
    store.save_checkpoint(number, explorer.params)
    progress("done", number, rows)


def calibration_metrics(calibration: Calibration) -> dict[str, np.ndarray]:
    """How the model did on held-out measurements, before and after calibration, per run [S]; NaN where none were held out."""
    metrics = {}
    for name, share in (("before", calibration.before), ("after", calibration.after)):
        metrics[f"calibration/error_{name}"] = np.asarray(calibration_error(share))
        metrics[f"calibration/coverage90_{name}"] = np.asarray(share)[:, np.isclose(LEVELS, 0.9)].mean(axis=(1, 2))
    return metrics


def _number(value: Any) -> float | None:
    """JSON knows no NaN: what a method does not have (a random one plans nothing) is null."""
    return float(value) if np.isfinite(value) else None
