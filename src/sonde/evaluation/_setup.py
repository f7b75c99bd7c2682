"""A task with everything that solving it needs: the world, the solver, lengths, and what was learned."""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from jaxtyping import Array, Key

from sonde._internal.errors import SondeError, whole
from sonde._internal.past import NO_PAST, Past
from sonde._internal.randomness import for_purpose
from sonde._internal.user_code import task_label
from sonde.control import MAX_COPIES
from sonde.data import Data, SystemSpec
from sonde.evaluation._tasks import check_goal_support, task_named
from sonde.imagination import Imagination, Mean
from sonde.models import Posterior
from sonde.objectives import TaskReward
from sonde.solvers import ControlProblem, Safety, Solver
from sonde.worlds import GoalTask, Task, World
from sonde.worlds._base import Start


@dataclass(frozen=True)
class TaskSetup:
    """A task on a world, and how it is solved and evaluated."""

    world: World
    """The system on which the task is solved."""
    task: Task | GoalTask
    """The reward, and what counts as success."""
    name: str
    """Name of the task in tables, and of its random stream."""
    solver: Solver
    """What plans the task."""
    horizon: int
    """Steps of each rollout."""
    rollouts: int = 1
    """Rollouts per seed, each from its own start and for its own goal, if the task has goals; results are averaged."""
    max_copies: int = MAX_COPIES
    """Most copies of the world that run at the same time."""
    imagination: Imagination = field(default_factory=Mean)
    """How plans are imagined; `Mean()` plans on the model's mean, `MemberTrajectories()` on average over its members."""
    safety: Safety | None = None
    """Constraints that every step must keep, if there are any."""

    past: Past = NO_PAST
    """What of the past belongs to the state, as it did when the model was learned."""
    starts: tuple[Start, ...] = ()
    """Where the rollouts start, one for each, the same for all seeds: a state, or options of a Gymnasium environment's reset as
    a JSON object. By default the world draws them."""

    def __post_init__(self):
        """Reject what cannot be solved."""
        whole("evaluation", horizon=self.horizon, rollouts=self.rollouts, max_copies=self.max_copies)
        check_goal_support(self.task, self.solver, self.name)
        if self.safety is not None:
            self.solver.check_constraints()
        if len(self.starts) not in (0, self.rollouts):
            raise SondeError(f"evaluation: expected a start for each of {self.rollouts} rollout(s), got {len(self.starts)}")
        for start in self.starts:
            self.world.check_start(start)

    @classmethod
    def named(cls, world: World, task: str, solver: Solver, horizon: int) -> "TaskSetup":
        """Look up a task by its name.

        Args:
            world: The world.
            task: One of `world.tasks`, or FILE.py:NAME.
            solver: What plans the task.
            horizon: Steps of each rollout.

        Returns:
            The setup, with one rollout per seed, planned on the model's mean.
        """
        return cls(world.for_task(task), task_named(world, task), task_label(task), solver, horizon)

    @property
    def spec(self) -> SystemSpec:
        """Names of states and actions of the world, and its past."""
        return replace(self.world.spec, past=self.past)

    def keys(self, keys: Key[Array, " seeds"]) -> Key[Array, " seeds"]:
        """Keys of the task's own random stream.

        Args:
            keys: Keys of a round, one per seed.
        """
        return for_purpose(keys, f"evaluate/{self.name}")

    def problem(self, posterior: Posterior, imagination: Imagination) -> ControlProblem:
        """The control problem of the task on a posterior.

        Args:
            posterior: What was learned.
            imagination: How plans are imagined.
        """
        objective, world = TaskReward(self.task.reward), self.world
        sizes = world.state_dim, world.action_dim
        return ControlProblem(posterior, imagination, objective, *sizes, safety=self.safety, past=self.past)


class Learned(NamedTuple):
    """The posterior and the measurements of a run, as a planner needs them; arrays have a leading axis S of seeds."""

    posterior: Posterior
    """The model."""
    data: Data | None = None
    """The measurements. Solvers that train a policy start imagined trajectories there; planners do not need them."""
