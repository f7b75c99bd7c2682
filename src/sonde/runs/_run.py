"""A whole run: Algorithm 1 with metrics and checkpoints after every episode."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Array, Key

from sonde._internal.errors import SondeError
from sonde._internal.precision import double_precision
from sonde._internal.user_code import task_label
from sonde.control._rollout import OnStep, repeated_rollouts
from sonde.data import Data, Trajectory
from sonde.evaluation._evaluate import Evaluation, evaluate
from sonde.evaluation._metrics import judge, prediction_error, realised_information_gain
from sonde.evaluation._tasks import reward_named
from sonde.explorer import Explorer
from sonde.imagination import Pessimistic
from sonde.models._base import Posterior
from sonde.models._calibration import LEVELS, Calibration, calibration_error
from sonde.runs._config import EXPLORE, RunConfig
from sonde.runs._store import RunStore
from sonde.runs._theory_metrics import theory_metrics
from sonde.solvers._policy import Policy
from sonde.worlds._base import World, has_simulator

Progress = Callable[[str, int, list[dict[str, Any]] | None], None]
"""progress(phase, episode, rows): called when a phase of an episode begins, and with its metrics when it is done.

Within a phase that is stepped outside of JAX it is called after each step, with what was done behind a slash ("plan/17").
"""


def build_explorer(config: RunConfig, existing: Trajectory | None = None) -> Explorer:
    """The explorer that a config describes; `existing` are the measurements that it starts from."""
    return Explorer(
        config.method,
        config.model,
        config.solver,
        state_dim=config.world.state_dim,
        action_dim=config.world.action_dim,
        capacity=config.data_capacity + (0 if existing is None else existing.states.shape[-2]),
        seeds=config.seed_list,
        beta=config.beta,
        confidence=config.confidence,
        delta=config.delta,
        norm_bound=config.norm_bound,
        particles=config.particles,
        imagine_noise=config.imagine_noise,
        holdout=config.holdout,
        recalibrate=config.recalibrate,
        reward=None if config.task is None else reward_named(config.world, config.task),
    )


def restore_explorer(store: RunStore, round_number: int) -> Explorer:
    """The explorer as it was after `episode`."""
    existing = store.load_initial_data()
    explorer = build_explorer(store.config, existing)
    if round_number > 0:
        params = store.load_checkpoint(round_number, explorer.params)
        explorer.restore(store.load_data(round_number), params, existing)
    elif existing is not None:
        explorer.start_from(existing)
    return explorer


def run(store: RunStore, progress: Progress, from_round: int | None = None) -> Explorer:
    """Explore until all episodes are done, or those that are suffice (`until` of the config).

    It starts after the newest checkpoint, or after `from_episode`.
    """
    if not has_simulator(store.config.world):
        raise SondeError(f"{store.folder}: this system is run by its owner; go on with sonde.Experiment (ask and tell)")
    with store.locked():
        checkpoints = store.checkpoints()
        start = (checkpoints[-1] if checkpoints else 0) if from_round is None else from_round
        explorer = restore_explorer(store, start)
        store.forget_after(start)
        while explorer.round < store.config.rounds and store.why_stopped() is None:
            one_round(store, explorer, progress)
        return explorer


@double_precision
def experiment(config: RunConfig, explorer: Explorer, on_step: OnStep | None = None) -> tuple[Policy, Trajectory]:
    """Ask for a policy and run it on the true system, as often as the config wants."""
    controller = explorer.ask()
    asked = (config.horizon, config.rollouts, config.side_by_side)
    first, *others = repeated_rollouts(config.world, controller, *asked, on_step)
    return controller.policy, first.joined(*others)


class Phases:
    """Runs the phases of an episode: says when each begins, and adds up how long it took."""

    def __init__(self, progress: Progress, round_number: int):
        """`episode` counts from 1."""
        self.progress, self.round = progress, round_number
        self.seconds: dict[str, float] = {}

    def __call__(self, phase: str, work: Callable[[], Any]) -> Any:
        """What the work returns."""
        self.progress(phase, self.round, None)
        began = time.perf_counter()
        result = work()
        self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - began
        return result


@double_precision
def one_round(store: RunStore, explorer: Explorer, progress: Progress) -> None:
    """Ask, roll out, learn."""
    number = explorer.round + 1
    timed = Phases(progress, number)
    on_step = lambda taken, _: progress(f"plan/{taken}", number, None)
    policy, trajectory = timed("plan", lambda: experiment(store.config, explorer, on_step))
    timed.seconds["plan"] -= trajectory.world_seconds
    learn(store, explorer, trajectory, {EXPLORE: policy}, timed)


@double_precision
def learn(
    store: RunStore, explorer: Explorer, trajectory: Trajectory, policies: Mapping[str, Policy], timed: Phases
) -> list[dict[str, Any]]:
    """Tell, judge, save: the end of every episode, whoever ran it. Returns its metrics, one row per run.

    The measurements [S, T, ...] come to disk first: they cost more than what is learned from them.
    """
    config, number, before, policies = store.config, timed.round, explorer.posterior, dict(policies)
    knows_nothing = explorer.transitions == 0
    timed.seconds["world"] = trajectory.world_seconds
    store.save_data(number, trajectory)
    timed("fit", lambda: explorer.tell(trajectory))

    def judged() -> dict[str, np.ndarray]:
        metrics = judge(explorer.posterior, explorer.data, config.world)
        visited, unknown = (trajectory.states, trajectory.actions), np.full(explorer.num_seeds, np.nan)
        realised = realised_information_gain(before, *visited)
        error = unknown if knows_nothing else prediction_error(before, *visited, trajectory.next_states)
        planned = trajectory.planned_information
        expected = unknown if planned is None else planned.sum(axis=1)
        held_out = {} if explorer.calibration is None else calibration_metrics(explorer.calibration)
        gains = {"planned_information_gain": expected, "realised_information_gain": realised}
        of_world = episode_metrics(config.world, trajectory)
        return {**gains, "prediction_error": error, **metrics, **held_out, **theory_metrics(explorer, config), **of_world}

    def tried(last: bool) -> dict[str, np.ndarray]:
        every = config.evaluate_every
        due = every > 0 and (number % every == 0 or last)
        if not due or not has_simulator(config.world):
            return {}
        found = {}
        for task in config.task_names:
            on_step = lambda taken, _, task=task: timed.progress(f"evaluate/{task_label(task)} {taken}", number, None)
            played = evaluate_task(config, explorer, task, explorer.posterior, on_step)
            found[f"return/{task_label(task)}"], policies[task_label(task)] = played.returns, played.policy
            if played.success is not None:
                found[f"success/{task_label(task)}"] = played.success
        return found

    metrics, rule = timed("evaluate", judged), config.stopping_rule
    stopped = None if rule is None else rule.why_stop(_per_seed(metrics), number, config.rounds)
    last = stopped is not None or number == config.rounds
    metrics |= timed("evaluate", lambda: tried(last))
    # a world written in JAX steps inside the compiled episode: its time is part of the planning
    times = {f"seconds/{phase}": timed.seconds.get(phase, 0.0) for phase in ("plan", "fit", "world", "evaluate")}
    rows = [
        {
            "seed": seed,
            "round": number,
            "transitions": explorer.transitions,
            **measured,
            **times,
            **({} if stopped is None else {"stopped": stopped}),
        }
        for seed, measured in zip(explorer.seeds, _per_seed(metrics), strict=True)
    ]
    store.save_policies(policies)
    store.append_metrics(rows)
    store.save_checkpoint(number, explorer.params)
    timed.progress("done", number, rows)
    return rows


def evaluate_task(
    config: RunConfig, explorer: Explorer, task: str, posterior: Posterior | None, on_step: OnStep | None = None
) -> Evaluation:
    """Solve a task as the config says, on a posterior (random actions without one), where the explorer stands."""
    return evaluate_as_configured(config, task, posterior, explorer.keys(), explorer.data, on_step)


def evaluate_as_configured(
    config: RunConfig,
    task: str,
    posterior: Posterior | None,
    keys: Key[Array, " seeds"],
    data: Data | None,
    on_step: OnStep | None = None,
    adversary: Pessimistic | None = None,
    robust: bool = False,
    plain: Evaluation | None = None,
) -> Evaluation:
    """Solve a task as the config says; see `evaluate`."""
    settings = config.settings_for(task)
    return evaluate(
        config.world,
        posterior,
        task,
        settings.solver,
        settings.horizon,
        keys,
        data,
        config.evaluation_rollouts,
        on_step,
        config.side_by_side,
        config.evaluation_members,
        adversary,
        robust,
        plain,
    )


def episode_metrics(world: World, trajectory: Trajectory) -> dict[str, np.ndarray]:
    """What the world says of the episodes of an experiment, per run [S]: the mean over them."""
    found: list[dict[str, float]] = []
    for states, next_states, over in zip(trajectory.states, trajectory.next_states, _ends(trajectory), strict=True):
        cuts = np.flatnonzero(over[:-1]) + 1
        parts = zip(np.split(states, cuts), np.split(next_states, cuts), strict=True)
        rounds = [world.episode_metrics(*part) for part in parts]
        found.append({name: float(np.mean([round_number[name] for round_number in rounds])) for name in rounds[0]})
    return {name: np.array([run[name] for run in found]) for name in found[0]}


def _ends(trajectory: Trajectory) -> np.ndarray:
    """Where episodes end [S, T]."""
    return np.zeros(trajectory.states.shape[:2], bool) if trajectory.over is None else trajectory.over


def calibration_metrics(calibration: Calibration) -> dict[str, np.ndarray]:
    """How the model did on held-out measurements, before and after calibration, per run [S]; NaN where none were held out."""
    metrics = {}
    for name, share in (("before", calibration.before), ("after", calibration.after)):
        metrics[f"calibration/error_{name}"] = np.asarray(calibration_error(share))
        metrics[f"calibration/coverage90_{name}"] = np.asarray(share)[:, np.isclose(LEVELS, 0.9)].mean(axis=(1, 2))
    return metrics


def _per_seed(metrics: Mapping[str, np.ndarray]) -> list[dict[str, float | None]]:
    """JSON knows no NaN: what a method does not have (a random one plans nothing) is null."""
    number = lambda value: float(value) if np.isfinite(value) else None
    return [dict(zip(metrics, map(number, values), strict=True)) for values in zip(*metrics.values(), strict=True)]
