"""Every method is a line: how it imagines, and what it wants."""

from dataclasses import dataclass

from sonde.errors import SondeError, one_of
from sonde.imagination import Imagination, Mean, Optimistic, TrajectorySampling
from sonde.objectives import InformationGain, Objective, RewardFunction, TaskReward, UncertaintySum


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

    def build_objective(self, reward: RewardFunction | None) -> Objective:
        """The objective, for the task if the method has one."""
        assert self.objective is not None
        return self.objective(reward) if self.needs_task else self.objective()  # ty: ignore[too-many-positional-arguments]


METHODS = {
    "opax": Method(Optimistic, InformationGain, "optimistic active exploration (the paper's method)"),
    "opax-sum": Method(Optimistic, UncertaintySum, "optimistic, sum of epistemic variances"),
    "mean-ae": Method(Mean, InformationGain, "active exploration on the mean model"),
    "pets-ae": Method(TrajectorySampling, InformationGain, "active exploration with trajectory sampling (TS-1)"),
    "h-ucrl": Method(Optimistic, TaskReward, "optimistic model-based RL on one task (needs a task)"),
    "random": Method(None, None, "uniformly random actions"),
}


def method_named(name: str, task: str | None) -> Method:
    """The method, if it exists and the task fits it."""
    one_of("method", name, METHODS)
    method = METHODS[name]
    if method.needs_task and task is None:
        raise SondeError(f"method {name!r} explores for one task: name it with --task (in Python: reward=)")
    if task is not None and not method.needs_task:
        raise SondeError(f"method {name!r} explores without any task, but task {task!r} was given: leave it out")
    return method
