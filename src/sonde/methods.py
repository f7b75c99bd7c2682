"""Exploration methods: how a planner imagines, and what it maximises."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxtyping import Array

from sonde._internal.errors import SondeError, one_of
from sonde.imagination import (
    Imagination,
    Mean,
    MemberChoice,
    MemberTrajectories,
    Optimistic,
    TrajectorySampling,
)
from sonde.models import Model
from sonde.objectives import (
    InformationGain,
    JensenRenyi,
    LogUncertainty,
    Objective,
    TaskObjective,
    TaskPlusInformation,
    TaskPlusUncertainty,
    TaskReward,
    TrajectoryDisagreement,
    UncertaintySum,
)


@dataclass(frozen=True)
class Method:
    """An exploration method; without imagination and objective it acts at random."""

    imagination: Imagination | None = None
    """How the planner treats what the model does not know."""
    objective: Objective | None = None
    """What the planner maximises."""
    label: str = ""
    """Name in tables and figures; by default the name in `METHODS` of the pair, or the names of its classes."""

    def __post_init__(self):
        """Reject an imagination without objective, and an objective without imagination."""
        if (self.imagination is None) != (self.objective is None):
            raise SondeError("method: give an imagination and an objective, or neither for uniformly random actions")

    @property
    def name(self) -> str:
        """Name in tables, figures and folders."""
        if self.label:
            return self.label
        for name, known in METHODS.items():
            if type(known.imagination) is type(self.imagination) and type(known.objective) is type(self.objective):
                return name
        return f"{type(self.imagination).__name__}-{type(self.objective).__name__}"

    @property
    def needs_task(self) -> bool:
        """Whether the task to explore for is still missing."""
        return isinstance(self.objective, TaskObjective) and self.objective.reward is None

    def for_task(self, reward: Callable[..., Array], sample_goal: Callable[..., Any] | None = None) -> "Method":
        """The same method for one task.

        Args:
            reward: reward(x, u, x_next) of one transition in JAX, or reward(x, u, x_next, goal) if the task has goals.
            sample_goal: Draws a goal [dg] from a numpy generator, if the task has goals.
        """
        if not isinstance(self.objective, TaskObjective):
            raise SondeError(
                f"method {self.name!r} explores without any task: use one of {', '.join(TASK_METHODS)}, "
                "or an objective such as TaskReward"
            )
        return dataclasses.replace(self, objective=dataclasses.replace(self.objective, reward=reward, sample_goal=sample_goal))

    def check(self, model: Model) -> None:
        """Reject a model that this method cannot work with.

        Args:
            model: The model that will be learned.
        """
        needs_members = any(part is not None and part.needs_members for part in (self.imagination, self.objective))
        if needs_members and model.ensemble_size == 0:
            raise SondeError(
                f"method {self.name!r} compares the members of an ensemble, and {type(model).__name__} has none; "
                "use the model pe"
            )


METHODS: dict[str, Method] = {
    "opax": Method(Optimistic(), InformationGain()),
    "opax-sum": Method(Optimistic(), UncertaintySum()),
    "opax-heuristic": Method(MemberChoice(), LogUncertainty()),
    "mean-ae": Method(Mean(), InformationGain()),
    "pets-ae": Method(TrajectorySampling(), InformationGain()),
    "h-ucrl": Method(Optimistic(), TaskReward()),
    "sombrl": Method(Mean(), TaskPlusUncertainty()),
    "opax-task": Method(Optimistic(), TaskPlusInformation()),
    "cee-us": Method(MemberTrajectories(), TrajectoryDisagreement()),
    "max": Method(TrajectorySampling(), JensenRenyi()),
    "plan2explore": Method(Mean(), UncertaintySum()),
    "random": Method(),
}
"""Names of methods for the command line."""
SUMMARIES = {
    "opax": "optimistic active exploration (OpAx)",
    "opax-sum": "optimistic, sum of epistemic variances",
    "opax-heuristic": "OpAx's variant: the planner chooses which ensemble member predicts",
    "mean-ae": "active exploration on the mean model",
    "pets-ae": "active exploration with trajectory sampling (TS-1)",
    "h-ucrl": "optimistic model-based RL on one task (needs --exploration-task)",
    "sombrl": "one task plus epistemic uncertainty, on the mean model (needs --exploration-task)",
    "opax-task": "one task plus information gain, optimistic (needs --exploration-task)",
    "cee-us": "disagreement of an ensemble's trajectories (CEE-US)",
    "max": "Jensen-Renyi divergence of an ensemble (MAX)",
    "plan2explore": "one-step disagreement on the mean model (Plan2Explore)",
    "random": "uniformly random actions",
}
"""Descriptions for `sonde list`."""


TASK_METHODS = tuple(name for name, method in METHODS.items() if isinstance(method.objective, TaskObjective))
"""Methods that explore for one task."""
OPAX_REWARD = ("mean-ae", "pets-ae")
"""Methods that maximise the intrinsic reward of OpAx and differ from it in what they imagine."""


def method_named(name: str, like: Method | None = None) -> Method:
    """Look up a method by name.

    Args:
        name: A name in `METHODS`.
        like: A method whose imagination settings (particles, noise, beta) are kept where the new one has them too. Where it
            has the intrinsic reward of `opax-heuristic`, methods that differ from OpAx in what they imagine keep that as well.
    """
    one_of("method", name, METHODS)
    method = METHODS[name]
    if like is None or like.imagination is None or method.imagination is None:
        return method
    shared = {field.name for field in dataclasses.fields(method.imagination)}
    kept = {f.name: getattr(like.imagination, f.name) for f in dataclasses.fields(like.imagination) if f.name in shared}
    method = dataclasses.replace(method, imagination=dataclasses.replace(method.imagination, **kept))
    if name in OPAX_REWARD and isinstance(like.objective, LogUncertainty):
        return dataclasses.replace(method, objective=like.objective, label=name)
    return method
