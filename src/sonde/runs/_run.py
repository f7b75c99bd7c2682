"""A whole run: Algorithm 1 with metrics and checkpoints after every round."""

import contextlib
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sonde._internal.consent import allow_code
from sonde._internal.errors import SondeError
from sonde._internal.precision import double_precision
from sonde._internal.user_code import task_label
from sonde.control import Ongoing, OnStep, RolloutSettings, SimulatorPool, run_rollouts
from sonde.data import Trajectory
from sonde.evaluation import Learned, RoundResult, evaluate
from sonde.evaluation._tasks import task_named
from sonde.explorer import Explorer
from sonde.runs._callbacks import Callback, Callbacks, Row, RunCallback
from sonde.runs._clock import RoundClock, Tell, tell_alone
from sonde.runs._codec import code_of
from sonde.runs._config import EXPLORE, RunConfig, check_same_config, with_absolute_paths
from sonde.runs._place import wait_until_in_place
from sonde.runs._round_metrics import exploration_metrics, per_seed, round_metrics
from sonde.runs._store import RunStore
from sonde.solvers import Policy
from sonde.worlds import GoalTask, has_simulator


def explore(config: RunConfig, folder: str | Path, callbacks: Sequence[Callback] = (), *, overwrite: bool = False) -> Explorer:
    """Explore a system to completion, with everything on disk after every round.

    A folder that exists must be a run with the same config. It is continued after its last finished round, and ends with the
    results that it would have had without the interruption. A new folder appears with its first finished round.

    Args:
        config: What to explore, how, and for how long.
        folder: Folder of the run.
        callbacks: Called in this order as the run proceeds.
        overwrite: Replace a run that exists, once the first round of the new one is finished.

    Returns:
        The explorer after the last round.
    """
    path = Path(folder)
    store = RunStore.start(path, config, overwrite=True) if overwrite else open_or_create(path, config)
    return run(store, callbacks)


def open_or_create(folder: Path, config: RunConfig) -> RunStore:
    """Open the run in a folder, or start a new one where there is none.

    Args:
        folder: Folder of the run; one that does not exist or is empty becomes a new run.
        config: The config of the run; a run with another one is rejected, unless nothing was measured in it yet.
    """
    wait_until_in_place(folder.absolute())
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return RunStore.start(folder, config)
    with allow_code(code_of(with_absolute_paths(config))):
        store = RunStore.open(folder)
    try:
        check_same_config(store.config, config, folder)
    except SondeError:
        if store.is_blank:
            return RunStore.start(folder, config, overwrite=True)
        raise
    store.config = with_absolute_paths(config)  # with the caller's own classes
    return store


def build_explorer(config: RunConfig, initial_data: Trajectory | None = None) -> Explorer:
    """Make the explorer that a config describes.

    Args:
        config: The config of the run.
        initial_data: Measurements [N, ...] that it will start from; they need room beside those of the rounds.
    """
    method = config.method
    if config.exploration_task is not None:
        task = task_named(config.world, config.exploration_task)
        method = method.for_task(task.reward, task.sample_goal if isinstance(task, GoalTask) else None)
    explorer = Explorer(
        method,
        config.model,
        config.solver,
        config.spec,
        capacity=config.data_capacity + (0 if initial_data is None else initial_data.states.shape[-2]),
        seeds=config.seed_list,
        confidence=config.confidence,
    )
    safety = config.resolved_safety
    return explorer if safety is None else explorer.constrain(safety)


def restore_explorer(store: RunStore, round_number: int | None = None) -> Explorer:
    """Make the explorer as it was after a round.

    Args:
        store: The run.
        round_number: A round with a checkpoint, 0 for the beginning; by default the newest, also while another process adds
            to the run.
    """
    if round_number is None:
        return store.steadily(lambda newest: restore_explorer(store, newest))
    initial_data = store.load_initial_data()
    explorer = build_explorer(store.config, initial_data)
    if round_number > 0 or 0 in store.checkpoints():
        kept = store.load_checkpoint(round_number, checkpoint_of(explorer))
        learned = kept if explorer.confidence.forget_at_alarm else {"params": kept}
        explorer.restore(store.load_data(round_number), initial_data=initial_data, **learned)
    elif initial_data is not None:
        explorer.start_from(initial_data)
    return explorer


def checkpoint_of(explorer: Explorer) -> Any:
    """What a checkpoint must keep of an explorer beside its measurements.

    Args:
        explorer: The explorer.
    """
    if explorer.confidence.forget_at_alarm:
        return {"params": explorer.params, "forgotten": explorer.forgotten}
    return explorer.params


def run(
    store: RunStore, callbacks: Sequence[Callback] = (), from_round: int | None = None, tell: Tell = tell_alone
) -> Explorer:
    """Explore until all rounds are done or the stopping rule of the config applies.

    Args:
        store: The run.
        callbacks: Called in this order as the run proceeds.
        from_round: Start after this round; by default after the newest checkpoint.
        tell: How measurements are learned from; by default by this run alone.

    Returns:
        The explorer after the last round.
    """
    listeners = Callbacks(callbacks)
    with store.locked(), SimulatorPool() as pool:
        if not has_simulator(store.config.world):
            name = type(store.config.world).__name__
            raise SondeError(f"{store.folder}: Sonde cannot run {name} itself; continue with sonde.Experiment (ask and tell)")
        checkpoints = store.checkpoints()
        start = (checkpoints[-1] if checkpoints else 0) if from_round is None else from_round
        explorer = restore_explorer(store, start)
        store.forget_after(start)
        with _listening(listeners, store, explorer), _ongoing(store, explorer) as ongoing:
            while explorer.round < store.config.rounds and store.why_stopped() is None:
                one_round(store, explorer, listeners, pool, tell, ongoing)
        return explorer


@double_precision
def _ongoing(store: RunStore, explorer: Explorer) -> contextlib.AbstractContextManager[Ongoing | None]:
    """The system of a run without resets, where its measurements left it."""
    if store.config.reset:
        return contextlib.nullcontext()
    return Ongoing(store.config.world, explorer.evaluation_keys(), store.load_data(explorer.round))


@contextlib.contextmanager
def _listening(listeners: RunCallback, store: RunStore, explorer: Explorer) -> Generator[None]:
    listeners.on_run_opened(store, explorer)
    try:
        listeners.on_run_start(store.config, store.load_metrics())
        yield
    finally:
        listeners.on_run_end()


@double_precision
def collect(
    config: RunConfig,
    explorer: Explorer,
    pool: SimulatorPool | None = None,
    on_step: OnStep | None = None,
    compile_fit: bool = True,
    ongoing: Ongoing | None = None,
) -> tuple[Policy, Trajectory]:
    """Ask for a policy and run it on the true system, as often as the config says.

    Args:
        config: The config of the run.
        explorer: The explorer to ask.
        pool: Open simulators to reuse.
        on_step: Called after each step of a host world.
        compile_fit: Compile the explorer's fit meanwhile; of no use where several runs are fitted by one program.
        ongoing: The system, if it is not put back between rounds.

    Returns:
        The policy, and the measurements of the round.
    """
    controller = explorer.ask()
    rollouts = RolloutSettings(config.horizon, config.rollouts, config.max_copies)
    with explorer.compiling_fit() if compile_fit else contextlib.nullcontext():
        if ongoing is not None:
            return controller.policy, ongoing.rollout(controller, config.horizon, on_step=on_step)
        first, *others = run_rollouts(config.world, controller, rollouts, pool=pool, on_step=on_step)
    return controller.policy, first.joined(*others)


@double_precision
def one_round(
    store: RunStore,
    explorer: Explorer,
    listeners: Callback,
    pool: SimulatorPool,
    tell: Tell = tell_alone,
    ongoing: Ongoing | None = None,
) -> None:
    """Run one round: ask, roll out, learn.

    Args:
        store: The run.
        explorer: The explorer, which is changed.
        listeners: Called as the round proceeds.
        pool: Open simulators to reuse.
        tell: How measurements are learned from; by default by this run alone.
        ongoing: The system, if it is not put back between rounds.
    """
    simulators = pool if ongoing is None else ongoing.pool
    clock, simulated = RoundClock(listeners, explorer.round + 1), simulators.seconds
    alone, on_step = tell is tell_alone, clock.on_step("plan")
    policy, trajectory = clock("plan", lambda: collect(store.config, explorer, pool, on_step, alone, ongoing))
    # a world written in JAX steps inside the compiled rollout: its time is part of the planning
    clock.seconds["world"] = simulators.seconds - simulated
    clock.seconds["plan"] -= clock.seconds["world"]
    learn(store, explorer, trajectory, {EXPLORE: policy}, clock, pool, tell)


def learn(
    store: RunStore,
    explorer: Explorer,
    trajectory: Trajectory,
    policies: Mapping[str, Policy],
    clock: RoundClock,
    pool: SimulatorPool | None = None,
    tell: Tell = tell_alone,
) -> list[Row]:
    """Tell, evaluate and save: the part of a round that does not depend on who runs the system.

    The measurements come to disk first: they cost more than what is learned from them. The round is finished when its
    checkpoint is on disk. Whatever is raised before that, the explorer is as it was, and the round can be learned again.

    Args:
        store: The run.
        explorer: The explorer, which is changed.
        trajectory: Measurements of the round [S, T, ...].
        policies: Policies of the round, by name.
        clock: The clock of the round.
        pool: Open simulators to reuse.
        tell: How measurements are learned from; by default by this run alone.

    Returns:
        Metrics of the round, one row per seed.
    """
    with _finished_or_undone(store, explorer, clock.round):
        store.save_data(clock.round, trajectory, clock.shared)
        rows, solved = _learned(store.config, explorer, trajectory, clock, pool, tell)
        store.save_policies({**policies, **solved})
        store.append_metrics(rows)
        store.save_checkpoint(clock.round, checkpoint_of(explorer))
    clock.listeners.on_round_end(clock.round, rows)
    return rows


@contextlib.contextmanager
def _finished_or_undone(store: RunStore, explorer: Explorer, round_number: int) -> Generator[None]:
    """Reset the explorer if anything is raised before the checkpoint of the round is on disk."""
    before = dict(vars(explorer))
    try:
        yield
    except BaseException:
        after = dict(vars(explorer))
        vars(explorer).update(
            before
        )  # first: looking at the disk may fail too, and a round may be learned twice with one result
        if round_number in store.checkpoints():
            vars(explorer).update(after)
        raise


@double_precision
def _learned(
    config: RunConfig, explorer: Explorer, trajectory: Trajectory, clock: RoundClock, pool: SimulatorPool | None, tell: Tell
) -> tuple[list[Row], dict[str, Policy]]:
    """Learn from a round and evaluate what was learned; its metrics per seed, and the policies that solved tasks."""
    number, before, first = clock.round, explorer.posterior, explorer.transitions == 0 and not config.model.informed
    task = exploration_metrics(explorer, trajectory, config.rollouts)
    tell(explorer, trajectory, clock)
    result = RoundResult(explorer, trajectory, before, config.world)
    metrics, rule = clock("evaluate", lambda: round_metrics(config, result, first)), config.stopping_rule
    stopped = None if rule is None else rule.why_stop(per_seed(metrics), number, config.rounds)
    last = stopped is not None or number == config.rounds
    returns, solved = clock("evaluate", lambda: _evaluate_tasks(config, explorer, clock, last, pool))
    metrics |= task | returns
    shared = {
        **{f"seconds/{phase}": seconds for phase, seconds in clock.seconds.items()},
        **clock.shared,
        **({} if stopped is None else {"stopped": stopped}),
    }
    rows = [
        {"seed": seed, "round": number, "transitions": explorer.transitions, **measured, **shared}
        for seed, measured in zip(explorer.seeds, per_seed(metrics), strict=True)
    ]
    return rows, solved


def _evaluate_tasks(
    config: RunConfig, explorer: Explorer, clock: RoundClock, last: bool, pool: SimulatorPool | None
) -> tuple[dict[str, np.ndarray], dict[str, Policy]]:
    """Returns and success of all tasks per seed, and the policies that achieved them, if an evaluation is due."""
    metrics, policies = dict[str, np.ndarray](), dict[str, Policy]()
    every = config.evaluate_every
    due = every > 0 and (clock.round % every == 0 or last)
    for task in config.task_names if due and has_simulator(config.world) else ():
        label = task_label(task)
        on_step = clock.on_step("evaluate", label)
        learned = Learned(explorer.posterior, explorer.recent)
        keys, starts = explorer.keys(), explorer.evaluation_keys()
        played = evaluate(config.task_setup(task), learned, keys, starts=starts, pool=pool, on_step=on_step)
        metrics[f"return/{label}"], policies[label] = played.returns, played.policy
        if played.success is not None:
            metrics[f"success/{label}"] = played.success
        if played.violations is not None:
            metrics[f"task_violations/{label}"] = played.violations
    return metrics, policies
