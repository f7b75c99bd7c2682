"""Everything that defines a run, as one value that goes to JSON and back unchanged.

World, model and solver are classes that their own tables name; in JSON each carries that name as `kind`.
"""

import dataclasses
import json
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sonde._internal.errors import SondeError, one_of, positive, whole
from sonde._internal.user_code import is_in_file, task_label, with_absolute_path
from sonde.control._rollout import SIDE_BY_SIDE
from sonde.evaluation._stopping import StoppingRule, stopping_rule
from sonde.evaluation._tasks import check_aim, reward_named, task_named
from sonde.fields import added_later, is_written, meant_by_older
from sonde.methods import check_solver, method_named
from sonde.models import MODELS
from sonde.models._base import Model
from sonde.models._beta import Confidence
from sonde.models._calibration import check_calibration
from sonde.models._gaussian_process import GaussianProcess
from sonde.runs._measurements import absolute_source
from sonde.solvers import SOLVERS
from sonde.solvers._base import Solver
from sonde.solvers._icem import ICEM
from sonde.worlds import WORLDS, GymWorld, OwnSystem, Pendulum, World
from sonde.worlds._base import has_simulator

EXPLORE = "explore"
"""What the policy that explores is called, beside those of the tasks."""
TABLES: dict[type, Mapping[str, type]] = {World: WORLDS, Model: MODELS, Solver: SOLVERS}


@dataclass(frozen=True)
class TaskSettings:
    """How one task is evaluated, where that is not as for the others."""

    task: str
    """Its name in tables and figures."""
    horizon: int
    """Steps of each evaluation."""
    solver: Solver
    """What plans it."""

    def __post_init__(self):
        """Refuse what cannot be run."""
        positive(f"settings of {self.task}", horizon=self.horizon)


@dataclass(frozen=True)
class RunConfig:
    """What to explore, how, and for how long."""

    method: str = "opax"
    """How to explore; `sonde list` shows all."""
    task: str | None = None
    """The task that h-ucrl explores for; other methods take none."""
    rounds: int = 10
    """Experiments on the true system; with `until`, the most that there may be."""
    horizon: int = 100
    """Steps of each run of the policy; where a system ends its own episode earlier, it is restarted and the steps go on."""
    rollouts: int = 1
    """Times that the policy of each experiment is run, from a new start each time."""
    tasks: tuple[str, ...] = ()
    """Tasks to evaluate, by name or as FILE.py:FUNCTION, a reward of your own; by default all that the world has."""
    evaluation_horizon: int = 200
    """Steps of each zero-shot evaluation of a task."""
    evaluation_rollouts: int = 1
    """Times that the policy for a task is run in an evaluation, from a new start and for a new goal, if it has goals, each
    time; returns and success are averaged."""
    evaluate_every: int = 1
    """Evaluate all tasks after every so many episodes, and after the last one; 0 for never."""
    seeds: int = 1
    """Independent runs, advanced in lockstep."""
    first_seed: int = 0
    """Seed of the first run; the others follow."""
    beta: float = 2.0
    """Width of the confidence region that optimism may use, in epistemic stds."""
    confidence: Literal["constant", "rkhs", "calibrated"] = added_later("constant")
    """Where that width comes from. constant: from beta. rkhs: as theory has it for Gaussian processes. calibrated: just so wide
    that the region holds the share 1 - delta of the held-out measurements (beta while there are hardly any). The last two are
    found for each output after each episode."""
    delta: float = added_later(0.1)
    """Share of the truth that a confidence region may miss (calibrated), or the probability that it misses any (rkhs)."""
    norm_bound: float | None = added_later(None)
    """Bound on the truth's norm in the space of the Gaussian process's kernel (rkhs); by default the norm of the posterior
    mean, an estimate that guarantees nothing."""
    particles: int = 10
    """Particles per imagined plan; only one is simulated where all would agree, and one or more per member by cee-us."""
    imagine_noise: bool = False
    """Let the planner imagine the noise that the model has learned; of little use on a deterministic system."""
    holdout: float = 0.0
    """Fraction of the measurements that fits do not see, by which the model is judged and calibrated; 0 for none."""
    recalibrate: bool = False
    """Rescale the model's stds so that its intervals hold what they promise on the held-out measurements."""
    data: str | None = None
    """Measurements to start from: FILE.npz, FILE.csv or minari:DATASET; they are copied into the run's folder."""
    capacity: int | None = None
    """Transitions that a run can collect; by default just what the episodes bring."""
    world: World = field(default_factory=Pendulum)
    """The true system."""
    model: Model = field(default_factory=GaussianProcess)
    """What learns it."""
    solver: Solver = field(default_factory=ICEM)
    """What plans on it."""
    side_by_side: int = added_later(SIDE_BY_SIDE)
    """Most copies of the system, over all runs, whose rollouts are run and planned for at the same time; fewer need less
    memory, and bring the same."""
    evaluation_imagination: Literal["mean", "members"] = added_later("mean")
    """What tasks are planned on: the mean of the model, or each member of an ensemble on its own, for the plan that is best on
    average over them."""
    task_settings: tuple[TaskSettings, ...] = added_later(())
    """Tasks that are evaluated for another number of steps, or by another solver, than evaluation_horizon and solver say."""
    until: str | None = added_later(None)
    """Stop before the last episode once all runs are below a tolerance: 'uncertainty<0.3', the largest epistemic std in reach
    and the error of predicting the episode, in state units; or 'information<300', what the planner expected of it, in nats."""

    def __post_init__(self):
        """Refuse what cannot be run."""
        positive(
            "config",
            rounds=self.rounds,
            horizon=self.horizon,
            rollouts=self.rollouts,
            evaluation_horizon=self.evaluation_horizon,
            evaluation_rollouts=self.evaluation_rollouts,
            seeds=self.seeds,
            particles=self.particles,
        )
        whole("config", side_by_side=self.side_by_side)
        if not 0 <= self.first_seed < 2**31:
            raise SondeError(f"config: first_seed must lie in [0, 2^31), got {self.first_seed}")
        if self.evaluate_every < 0:
            raise SondeError(f"config: evaluate_every must be 0 (never) or above, got {self.evaluate_every}")
        if not 0 <= self.beta < float("inf"):
            raise SondeError(f"config: beta must be 0 or above and finite, got {self.beta}")
        confidence = Confidence(self.confidence, self.beta, self.delta, self.norm_bound)
        confidence.check("config", self.model, self.holdout, self.recalibrate, self.data_capacity)
        check_calibration("config", self.holdout, self.recalibrate)
        check_solver(method_named(self.method, self.task, self.model), self.solver)
        _ = self.stopping_rule
        # a person's file is read when a run is made or asked for the task, not by all who look
        for name in self.tasks:
            if not is_in_file(name):
                task_named(self.world, name)
        if self.task is not None and not is_in_file(self.task):
            reward_named(self.world, self.task)
        for name in self.task_names if self.evaluate_every else ():
            if not is_in_file(name):
                check_aim(task_named(self.world, name), self.settings_for(name).solver, name)
        one_of("evaluation_imagination", self.evaluation_imagination, ("mean", "members"))
        if self.evaluation_imagination == "members" and self.model.ensemble_size == 0:
            raise SondeError(f"config: tasks cannot be planned on members, since {type(self.model).__name__} has none")
        named = [settings.task for settings in self.task_settings]
        if len(set(named)) != len(named):
            raise SondeError(f"config: task_settings must name each task once, got {', '.join(named)}")
        known = {*map(task_label, self.tasks), *self.world.tasks}
        if has_simulator(self.world) and not known.issuperset(named):
            raise SondeError(f"config: task_settings name {', '.join(named)}, and the tasks are {', '.join(sorted(known))}")
        labels = [task_label(name) for name in self.tasks]
        if len(set(labels)) != len(labels) or EXPLORE in labels:
            raise SondeError(f"config: tasks need different names, and none {EXPLORE!r}; got {', '.join(labels)}: rename one")
        needed = self.rounds * self.steps
        if self.capacity is not None and self.capacity < needed:
            raise SondeError(
                f"config: capacity {self.capacity} is too small: {self.rounds} episodes of {self.steps} steps need {needed}"
            )

    @property
    def seed_list(self) -> tuple[int, ...]:
        """The seeds of all runs."""
        return tuple(range(self.first_seed, self.first_seed + self.seeds))

    @property
    def steps(self) -> int:
        """Steps of each experiment, over all its rollouts."""
        return self.rollouts * self.horizon

    @property
    def data_capacity(self) -> int:
        """Transitions that a run can collect."""
        return self.rounds * self.steps if self.capacity is None else self.capacity

    @property
    def task_names(self) -> tuple[str, ...]:
        """The tasks that are evaluated."""
        return self.tasks or tuple(self.world.tasks)

    @property
    def stopping_rule(self) -> StoppingRule | None:
        """When to stop before the last episode; None: never."""
        method = method_named(self.method, self.task, self.model)
        return None if self.until is None else stopping_rule(self.until, method, self.solver, self.world)

    @property
    def evaluation_members(self) -> int:
        """Members of the model that tasks are planned on one by one; 0 if they are planned on its mean."""
        return self.model.ensemble_size if self.evaluation_imagination == "members" else 0

    def settings_for(self, task: str) -> TaskSettings:
        """How a task is evaluated: its own settings, or those of all others."""
        label = task_label(task)
        own = (settings for settings in self.task_settings if settings.task == label)
        return next(own, TaskSettings(label, self.evaluation_horizon, self.solver))


def with_absolute_paths(config: RunConfig) -> RunConfig:
    """The same config, to be read from whatever folder: tasks, environment and data of one's own may be files."""
    task = None if config.task is None else with_absolute_path(config.task)
    data = None if config.data is None else absolute_source(config.data)
    world = config.world
    if isinstance(world, GymWorld):
        world = dataclasses.replace(world, env=with_absolute_path(world.env))
    tasks = tuple(with_absolute_path(name) for name in config.tasks)
    return dataclasses.replace(config, world=world, task=task, tasks=tasks, data=data)


def name_in_table(part: Any) -> str:
    """What the table calls a world, model or solver."""
    for table in TABLES.values():
        for name, kind in table.items():
            if type(part) is kind:
                return name
    raise SondeError(f"{type(part).__name__} is in no table of worlds, models or solvers, so it cannot be saved by name")


def world_label(world: World) -> str:
    """What a figure calls a system: environments and systems of one's own by their own names."""
    if isinstance(world, GymWorld):
        return task_label(world.env)
    return f"system of {', '.join(world.states)}" if isinstance(world, OwnSystem) else name_in_table(world)


def differences(saved: Any, given: Any, name: str = "") -> Iterator[str]:
    """What differs between two configs, in words, field by field."""
    if dataclasses.is_dataclass(saved) and type(saved) is type(given):
        for field in dataclasses.fields(saved):
            path = f"{name}.{field.name}" if name else field.name
            yield from differences(getattr(saved, field.name), getattr(given, field.name), path)
    elif saved != given:
        yield f"{name} is {saved!r} there and {given!r} here"


def to_json(config: RunConfig) -> str:
    """Readable JSON with every field; see `added_later` for those that may be left out."""

    def plain(value: Any) -> Any:
        if isinstance(value, tuple):
            return [plain(entry) for entry in value]
        if not dataclasses.is_dataclass(value):
            return value
        fields = [(f, getattr(value, f.name)) for f in dataclasses.fields(value)]
        entries = {f.name: plain(content) for f, content in fields if is_written(f, content)}
        return entries if isinstance(value, RunConfig | TaskSettings) else {"kind": name_in_table(value), **entries}

    return json.dumps(plain(config), indent=2) + "\n"


def from_json(text: str, source: str) -> RunConfig:
    """The config of a text that `to_json` wrote; anything else is refused, naming the `source` and the field."""
    try:
        entries = json.loads(text)
    except json.JSONDecodeError as error:
        raise SondeError(f"{source} is not valid JSON ({error}); restore it from a copy") from None
    return _build(RunConfig, entries, source)


def _build(kind: Any, entries: Any, where: str) -> Any:
    if not isinstance(entries, dict):
        raise SondeError(f"{where}: expected an object with the fields of {kind.__name__}, got {entries!r}")
    hints = typing.get_type_hints(kind)
    names = {f.name for f in dataclasses.fields(kind)}
    older = meant_by_older(kind)
    needed = names - older.keys()
    for problem, found in (("unknown", entries.keys() - names), ("missing", needed - entries.keys())):
        if found:
            raise SondeError(f"{where}: {problem} field(s) {', '.join(sorted(found))}; expected {', '.join(sorted(names))}")
    values = {name: _value(hints[name], value, f"{where}: {name}") for name, value in entries.items()}
    try:
        return kind(**(older | values))
    except SondeError as error:
        raise SondeError(f"{where}: {error}") from None


def _value(hint: Any, value: Any, where: str) -> Any:
    if hint in TABLES:
        if not isinstance(value, dict) or "kind" not in value:
            raise SondeError(f"{where}: expected an object with a 'kind', got {value!r}")
        one_of(f"kind of {where}", str(value["kind"]), TABLES[hint])
        return _build(TABLES[hint][value["kind"]], {k: v for k, v in value.items() if k != "kind"}, where)
    if hint is TaskSettings:
        return _build(TaskSettings, value, where)
    options = typing.get_args(hint)
    if typing.get_origin(hint) is tuple:
        if not isinstance(value, list):
            raise SondeError(f"{where}: expected a list of {options[0].__name__}, got {value!r}")
        return tuple(_value(options[0], entry, where) for entry in value)
    choices = [choice for option in options or (hint,) for choice in (typing.get_args(option) or (option,))]
    for choice in choices:
        if choice is float and type(value) is int:
            return float(value)
        if type(value) is choice or (isinstance(choice, str) and value == choice):
            return value
    names = (repr(choice) if isinstance(choice, str) else choice.__name__ for choice in choices)
    raise SondeError(f"{where}: expected {' or '.join(names)}, got {value!r}")
