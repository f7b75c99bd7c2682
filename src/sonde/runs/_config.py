"""Everything that defines a run, as one value that goes to JSON and back unchanged."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from sonde._internal.errors import LARGEST, SondeError, did_you_mean, positive, whole
from sonde._internal.past import Past
from sonde._internal.user_code import is_in_file, task_label, with_absolute_path
from sonde.control import MAX_COPIES
from sonde.data import SystemSpec
from sonde.evaluation import Metric, Schema, TaskSetup
from sonde.evaluation._constraints import constraint_named, safety_named
from sonde.evaluation._stopping import StoppingRule, stopping_rule
from sonde.evaluation._tasks import check_goal_support, task_named
from sonde.explorer import NOTHING_KNOWN
from sonde.imagination import Imagination, Mean
from sonde.methods import METHODS, Method, method_named
from sonde.models import Confidence, GaussianProcess, Model
from sonde.runs._codec import class_reference
from sonde.runs._measurements import absolute_source
from sonde.solvers import ICEM, Safety, SafetySettings, Solver
from sonde.worlds import WORLDS, Delayed, FmuWorld, GymWorld, Observed, OwnSystem, Pendulum, World, has_simulator

MAX_SEEDS = 10_000
"""Most seeds of a run, which are all held in memory."""
EXPLORE = "explore"
"""Name of the policy that explores, beside those of the tasks."""


@dataclass(frozen=True)
class TaskSettings:
    """How one task is evaluated, where that differs from the others."""

    task: str
    """Name of the task in tables and figures."""
    horizon: int
    """Steps of each evaluation."""
    solver: Solver
    """What plans the task."""

    def __post_init__(self):
        """Reject what cannot be run."""
        positive(f"settings of {self.task}", horizon=self.horizon)


@dataclass(frozen=True)
class RunConfig:
    """What to explore, how, and for how long; every field can be set on the command line."""

    world: World = field(default_factory=Pendulum)
    """The true system."""
    model: Model = field(default_factory=GaussianProcess)
    """What learns it."""
    method: Method = METHODS["opax"]
    """How to explore; `sonde list` shows all."""
    solver: Solver = field(default_factory=ICEM)
    """What plans on the model."""
    confidence: Annotated[Confidence, tyro.conf.arg(name="")] = field(default_factory=Confidence)
    """How far the model's uncertainty is trusted."""
    exploration_task: str | None = None
    """The task that h-ucrl, sombrl and opax-task explore for, by name or as FILE.py:NAME; other methods take none."""
    delay: int = 0
    """Steps by which actions act late, at most; the actions that are on their way then belong to the state."""
    history: int = 1
    """Observations that determine the state together: 1 for the present one alone, 2 with the one before and the action between
    them, and so on. More than 1 is for systems whose measurements leave something out, such as velocities."""
    rounds: int = 10
    """Rounds of planning, measuring and learning; with `until`, the most that there may be."""
    horizon: int = 100
    """Steps of each rollout; where a system ends its own episode earlier, it is restarted for the remaining steps."""
    rollouts: int = 1
    """Rollouts of the policy in each round, each from a new start."""
    reset: bool = True
    """Start every rollout from a new start. Without resets, exploration is one long trajectory per seed: each round starts
    where the last one ended. Evaluations have simulators of their own and always start afresh."""
    evaluation_tasks: tuple[str, ...] = ()
    """Tasks to evaluate, by name or as FILE.py:NAME, a reward of your own; by default all that the world has."""
    evaluation_horizon: int = 200
    """Steps of each zero-shot evaluation of a task."""
    evaluation_rollouts: int = 1
    """Rollouts of each evaluation; results are averaged. Their starts and, if the task has goals, their goals are drawn once
    for each seed and task: they are the same in all rounds and for all methods."""
    evaluation_imagination: Imagination = field(default_factory=Mean)
    """How the plans of tasks are imagined: on the model's mean, or on average over an ensemble's members."""
    evaluate_every: int = 1
    """Rounds from one evaluation of all tasks to the next; the last round is always evaluated. 0 for never."""
    task_settings: tuple[TaskSettings, ...] = ()
    """Tasks that are evaluated with another horizon or solver than the others."""
    metrics: tuple[Metric, ...] = ()
    """Metrics of your own, computed after each round."""
    until: str | None = None
    """Stop before the last round once all seeds are below a tolerance: 'uncertainty<0.3', what is not known in reach by the
    model, the common kernel and the round's predictions, in state units; or 'information<300', what the planner expected of
    the round, in nats."""
    seeds: int = 1
    """Independent repetitions, advanced in lockstep."""
    first_seed: int = 0
    """The first seed; the others follow."""
    data: str | None = None
    """Initial data: FILE.npz, FILE.csv or minari:DATASET; they are copied into the run's folder."""
    constraints: tuple[str, ...] = ()
    """What must hold at every step of exploration and of tasks: a constraint of the world by name (pendulum: speed), limits on
    a state as STATE=LOW:HIGH, or g(x, u, x_next) >= 0 as FILE.py:FUNCTION."""
    safety: SafetySettings = field(default_factory=SafetySettings)
    """How constraints are kept."""
    capacity: int | None = None
    """Transitions that a seed can collect; by default exactly what the rounds bring."""
    max_copies: int = MAX_COPIES
    """Most copies of the system, over all seeds, that are simulated and planned for at the same time. Fewer need less memory
    and give the same results."""

    def __post_init__(self):
        """Reject what cannot be run."""
        self._check_numbers()
        self._check_parts()
        self._check_tasks()
        needed = self.rounds * self.steps
        whole("config", transitions=needed, capacity=self.data_capacity)
        if self.capacity is not None and self.capacity < needed:
            raise SondeError(
                f"config: capacity {self.capacity} is too small: {self.rounds} rounds of {self.steps} steps need {needed}"
            )

    def _check_numbers(self) -> None:
        names = ("rounds", "horizon", "rollouts", "evaluation_horizon", "evaluation_rollouts", "seeds")
        positive("config", **{name: getattr(self, name) for name in names})
        whole("config", max_copies=self.max_copies)
        if self.seeds > MAX_SEEDS:
            raise SondeError(f"config: seeds must be at most {MAX_SEEDS:,}, got {self.seeds:,}; use several runs, or a sweep")
        if not 0 <= self.first_seed <= 2**31 - self.seeds:
            raise SondeError(f"config: first_seed must lie in [0, 2^31), and all seeds with it, got {self.first_seed}")
        if not self.reset and self.rollouts > 1:
            raise SondeError(
                f"config: without resets a round is one rollout, got rollouts {self.rollouts}: set it to 1, and raise the "
                "horizon instead"
            )
        if not self.reset and self.past:
            raise SondeError(
                "config: without resets a round begins while earlier actions and observations still count, and with --delay or "
                "--history it begins without a past: use resets, or leave these out"
            )
        if self.evaluate_every < 0:
            raise SondeError(f"config: evaluate_every must be 0 (never) or above, got {self.evaluate_every}")
        _check_magnitudes("config", self)

    def _check_parts(self) -> None:
        """Whether model, method, solver, confidence and stopping rule fit each other."""
        if self.method.needs_task and self.exploration_task is None:
            raise SondeError(f"method {self.method.name!r} explores for one task: name it with --exploration-task")
        if self.exploration_task is not None and not self.method.needs_task:
            raise SondeError(
                f"method {self.method.name!r} explores without any task, but exploration_task {self.exploration_task!r} was "
                "given: leave it out"
            )
        self.confidence.check(self.model, self.data_capacity)
        self.model.check_system(self.spec)
        self.method.check(self.model)
        self.solver.check(self.method.objective)
        if self.evaluation_imagination.needs_members and self.model.ensemble_size == 0:
            raise SondeError(
                f"config: evaluation_imagination {type(self.evaluation_imagination).__name__} needs an ensemble, and "
                f"{type(self.model).__name__} has no members; use the model pe, or the imagination mean"
            )
        _ = self.stopping_rule, self.past, Schema(self.world, self.metrics)
        self._check_constraints()

    def _check_constraints(self) -> None:
        """Whether the constraints exist and can be kept; a user's file is read when a run is created."""
        if not self.constraints:
            if self.safety != SafetySettings():
                raise SondeError("config: there are settings of safety, and no constraints: name some with --constraints")
            return
        if self.method.objective is None:
            raise SondeError(f"method {self.method.name!r} does not plan, so it cannot keep constraints; use another method")
        self.solver.check_constraints()
        if self.data is None and self.safety.start is None and not self.model.informed:
            raise SondeError(NOTHING_KNOWN)
        named = [name for name in self.constraints if not is_in_file(name)]
        labels = [constraint_named(self.world, name).name for name in named]
        labels += [task_label(name) for name in self.constraints if is_in_file(name)]
        if len(set(labels)) != len(labels):
            raise SondeError(f"config: constraints need different names, got {', '.join(labels)}: rename one")

    def _check_tasks(self) -> None:
        """Whether the tasks exist and can be solved; a user's file is read when a run is created or asked for the task."""
        for name in self.evaluation_tasks:
            if not is_in_file(name):
                task_named(self.world, name)
        if self.exploration_task is not None and not is_in_file(self.exploration_task):
            task_named(self.world, self.exploration_task)
        for name in self.task_names if self.evaluate_every else ():
            if not is_in_file(name):
                check_goal_support(task_named(self.world, name), self.settings_for(name).solver, name)
        named = [settings.task for settings in self.task_settings]
        if len(set(named)) != len(named):
            raise SondeError(f"config: task_settings must name each task once, got {', '.join(named)}")
        known = {*map(task_label, self.evaluation_tasks), *self.world.tasks}
        if has_simulator(self.world) and not known.issuperset(named):
            meant = did_you_mean(next(name for name in named if name not in known), known)
            tasks = ", ".join(sorted(known)) + (f";{meant}" if meant else "")
            raise SondeError(f"config: task_settings name {', '.join(named)}, and the tasks are {tasks}")
        labels = [task_label(name) for name in self.evaluation_tasks]
        if len(set(labels)) != len(labels) or EXPLORE in labels:
            raise SondeError(f"config: tasks need different names, and none {EXPLORE!r}; got {', '.join(labels)}: rename one")

    @property
    def seed_list(self) -> tuple[int, ...]:
        """All seeds."""
        return tuple(range(self.first_seed, self.first_seed + self.seeds))

    @property
    def past(self) -> Past:
        """What of the past belongs to the state."""
        return Past(self.delay, self.history)

    @property
    def spec(self) -> SystemSpec:
        """The system as an `Explorer` needs to know it."""
        return dataclasses.replace(self.world.spec, past=self.past)

    @property
    def steps(self) -> int:
        """Steps of each round, over all its rollouts."""
        return self.rollouts * self.horizon

    @property
    def data_capacity(self) -> int:
        """Transitions that a seed can collect."""
        return self.rounds * self.steps if self.capacity is None else self.capacity

    @property
    def task_names(self) -> tuple[str, ...]:
        """The tasks that are evaluated."""
        return self.evaluation_tasks or tuple(self.world.tasks)

    @property
    def schema(self) -> Schema:
        """The metrics of the run."""
        return Schema(self.world, self.metrics)

    @property
    def resolved_safety(self) -> Safety | None:
        """The constraints with all functions that they name; None without constraints."""
        return safety_named(self.world, self.constraints, self.safety)

    @property
    def stopping_rule(self) -> StoppingRule | None:
        """When to stop before the last round; None: never."""
        return None if self.until is None else stopping_rule(self.until, self.method, self.solver, self.world)

    def with_method(self, name: str, task: str | None = None) -> "RunConfig":
        """The same run with another method.

        Args:
            name: A name in `METHODS`; particles, noise and beta stay as they are where the method has them, and so does the
                intrinsic reward of `opax-heuristic` for `mean-ae` and `pets-ae`.
            task: The task to explore for, where the method needs one.
        """
        return dataclasses.replace(self, method=method_named(name, self.method), exploration_task=task)

    def settings_for(self, task: str) -> TaskSettings:
        """Settings of one task: its own, or those that all others share.

        Args:
            task: Name of the task.
        """
        label = task_label(task)
        own = (settings for settings in self.task_settings if settings.task == label)
        return next(own, TaskSettings(label, self.evaluation_horizon, self.solver))

    def task_setup(self, task: str) -> TaskSetup:
        """Collect what the evaluation of a task needs.

        Args:
            task: Name of the task, or FILE.py:NAME.
        """
        settings = self.settings_for(task)
        return dataclasses.replace(
            TaskSetup.named(self.world, task, settings.solver, settings.horizon),
            rollouts=self.evaluation_rollouts,
            max_copies=self.max_copies,
            imagination=self.evaluation_imagination,
            safety=self.resolved_safety,
            past=self.past,
        )


def _check_magnitudes(where: str, part: Any) -> None:
    """Reject whole numbers, in any part of a config, that arrays cannot be made or indexed with."""
    if dataclasses.is_dataclass(part):
        for field in dataclasses.fields(part):
            _check_magnitudes(f"{where}.{field.name}", getattr(part, field.name))
    elif isinstance(part, tuple):
        for entry in part:
            _check_magnitudes(where, entry)
    elif isinstance(part, int) and abs(part) > LARGEST:
        raise SondeError(f"{where} must lie within ±{LARGEST:,}, got {part:,}")


def with_absolute_paths(config: RunConfig) -> RunConfig:
    """Make the paths in a config absolute, so that it means the same in any working directory.

    Args:
        config: The config; tasks, environment and initial data may be files.
    """
    task = None if config.exploration_task is None else with_absolute_path(config.exploration_task)
    data = None if config.data is None else absolute_source(config.data)
    world = _with_absolute_path(config.world)
    tasks = tuple(with_absolute_path(name) for name in config.evaluation_tasks)
    constraints, safety = tuple(with_absolute_path(name) for name in config.constraints), config.safety
    start = None if safety.start is None else with_absolute_path(safety.start)
    safety = dataclasses.replace(safety, fallback=with_absolute_path(safety.fallback), start=start)
    changed = {"constraints": constraints, "safety": safety}
    return dataclasses.replace(config, world=world, exploration_task=task, evaluation_tasks=tasks, data=data, **changed)


def _with_absolute_path(world: World) -> World:
    """The same world, if its environment is a file, or that of the world inside it; FMUs with the checksum of the file."""
    if isinstance(world, FmuWorld):
        return world.located()
    if isinstance(world, GymWorld):
        return dataclasses.replace(world, env=with_absolute_path(world.env))
    if isinstance(world, Delayed | Observed):
        return dataclasses.replace(world, world=_with_absolute_path(world.world))
    return world


def world_label(world: World) -> str:
    """Name of a system in tables and figures.

    Args:
        world: The system.
    """
    if isinstance(world, GymWorld):
        return task_label(world.env)
    if isinstance(world, FmuWorld):
        return Path(world.file).stem
    if isinstance(world, Delayed | Observed):
        return f"{world_label(world.world)}, {'delayed' if isinstance(world, Delayed) else 'observed in part'}"
    if isinstance(world, OwnSystem):
        return f"system of {', '.join(world.states)}"
    known = next((name for name, kind in WORLDS.items() if type(world) is kind), None)
    return known or class_reference(type(world)).rsplit(":", 1)[1]


def differences(saved: Any, given: Any, name: str = "") -> Iterator[str]:
    """List in words what differs between two configs, field by field.

    Args:
        saved: The config in a folder, or a part of it.
        given: The config that was given now, or the same part of it.
        name: Where the part is in the config.
    """
    alike = dataclasses.is_dataclass(saved) and dataclasses.is_dataclass(given)
    if alike and class_reference(type(saved)) == class_reference(type(given)):
        for field in dataclasses.fields(saved):
            path = f"{name}.{field.name}" if name else field.name
            yield from differences(getattr(saved, field.name), getattr(given, field.name), path)
    elif isinstance(saved, tuple) and isinstance(given, tuple) and len(saved) == len(given):
        for number, (one, other) in enumerate(zip(saved, given, strict=True)):
            yield from differences(one, other, f"{name}[{number}]")
    elif saved != given:
        yield f"{name} is {saved!r} there and {given!r} here"


def check_same_config(saved: RunConfig, given: RunConfig, folder: Path) -> None:
    """Reject a config that differs from the one that a run began with.

    Args:
        saved: The config in the folder.
        given: The config that was given now.
        folder: The run.
    """
    differing = list(differences(saved, with_absolute_paths(given)))
    if differing:
        raise SondeError(
            f"{folder} was begun with another config: {'; '.join(differing)}; "
            "give the same config to continue it, or another folder to start over "
            "('sonde export' and data=FILE take the measurements there)"
        )
