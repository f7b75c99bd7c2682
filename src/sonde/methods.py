"""Every method is a line: how it imagines, and what it wants."""

from dataclasses import dataclass

from sonde._internal.errors import SondeError, one_of
from sonde.imagination import Imagination, Mean, MemberChoice, MemberTrajectories, Optimistic, TrajectorySampling
from sonde.models._base import Model
from sonde.objectives import (
    InformationGain,
    JensenRenyi,
    LogUncertainty,
    Objective,
    TaskReward,
    TrajectoryDisagreement,
    UncertaintySum,
)
from sonde.solvers._base import Solver
from sonde.worlds._task import RewardFunction


@dataclass(frozen=True)
class Method:
    """An exploration strategy. Without imagination and objective it acts at random."""

    imagination: type[Imagination] | None
    objective: type[Objective] | None
    summary: str

    @property
    def needs_task(self) -> bool:
        """Whether it explores for the sake of one task."""
        return self.objective is TaskReward

    @property
    def needs_members(self) -> bool:
        """Whether it works with ensembles only."""
        return any(part is not None and part.needs_members for part in (self.imagination, self.objective))

    def build_objective(self, reward: RewardFunction | None) -> Objective:
        """The objective, for the task if the method has one."""
        assert self.objective is not None
        return self.objective(reward) if self.needs_task else self.objective()  # ty: ignore[too-many-positional-arguments]


METHODS = {
    "opax": Method(Optimistic, InformationGain, "optimistic active exploration (the paper's method)"),
    "opax-sum": Method(Optimistic, UncertaintySum, "optimistic, sum of epistemic variances"),
    "opax-heuristic": Method(MemberChoice, LogUncertainty, "OpAx's variant: the planner chooses which member to predict"),
    "mean-ae": Method(Mean, InformationGain, "active exploration on the mean model"),
    "pets-ae": Method(TrajectorySampling, InformationGain, "active exploration with trajectory sampling (TS-1)"),
    "h-ucrl": Method(Optimistic, TaskReward, "optimistic model-based RL on one task (needs a task)"),
    "cee-us": Method(MemberTrajectories, TrajectoryDisagreement, "disagreement of an ensemble's trajectories (CEE-US)"),
    "max": Method(TrajectorySampling, JensenRenyi, "Jensen-Renyi divergence of an ensemble (MAX)"),
    "plan2explore": Method(Mean, UncertaintySum, "one-step disagreement on the mean model (Plan2Explore)"),
    "random": Method(None, None, "uniformly random actions"),
}


def check_solver(method: Method, solver: Solver) -> None:
    """Refuse a solver that cannot do what the method wants."""
    if solver.one_particle and method.objective is not None and method.objective.compares_particles:
        raise SondeError(
            f"{type(solver).__name__} imagines one particle at a time and cannot maximise {method.objective.__name__}, "
            "which compares several; take the solver icem"
        )


def method_named(name: str, task: str | None, model: Model) -> Method:
    """The method, if it exists, and task and model fit it."""
    one_of("method", name, METHODS)
    method = METHODS[name]
    if method.needs_task and task is None:
        raise SondeError(f"method {name!r} explores for one task: name it with --task (in Python: reward=)")
    if task is not None and not method.needs_task:
        raise SondeError(f"method {name!r} explores without any task, but task {task!r} was given: leave it out")
    if method.needs_members and model.ensemble_size == 0:
        raise SondeError(f"method {name!r} asks what the members of an ensemble predict, and {type(model).__name__} has none")
    return method
