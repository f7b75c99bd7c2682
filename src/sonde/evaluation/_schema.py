"""The one schema of metrics: every number that a run writes to `metrics.jsonl`, with unit, meaning and how it is drawn.

Progress display, figures, stopping rules, statistics and `docs/metrics.md` read it. To add a number to a run, write a `Metric`
and list it in `RunConfig.metrics`; to add a built-in one, compute it and add its `MetricSpec` here.
"""

import abc
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from sonde._internal.errors import SondeError, did_you_mean
from sonde._internal.metric_spec import MetricSpec
from sonde.data import Trajectory
from sonde.explorer import Explorer
from sonde.models import Posterior
from sonde.worlds import World

MAX_EPISTEMIC = MetricSpec(
    "max_epistemic",
    "Largest epistemic uncertainty",
    "state units",
    "Largest norm of the epistemic std over the reachable set.",
    log=True,
    column="uncertainty",
    digits=4,
    sentence="the largest uncertainty, corrected for overconfidence, is {}",
)
MAX_EPISTEMIC_COMMON = MetricSpec(
    "max_epistemic_common",
    "Largest uncertainty, common kernel",
    "state units",
    "Largest epistemic std over the reachable set of a Gaussian process with one fixed kernel, the same for all methods and "
    "rounds: it compares where methods have measured.",
    log=True,
    column="common kernel",
    digits=4,
    sentence="twice the largest uncertainty under the common kernel is {}",
)
PREDICTION_ERROR = MetricSpec(
    "prediction_error",
    "Prediction error on new data",
    "state units",
    "Root mean square error of the model from before the round on its measurements, beyond three aleatoric stds.",
    drawn=False,
    sentence="the round's predictions were off by {} beyond noise",
)
OVERCONFIDENCE = MetricSpec(
    "overconfidence",
    "Overconfidence on new data",
    "promised stds",
    "Root mean square, over the round's measurements and state dimensions, of the error of the model from before the round "
    "divided by the std that it promised, epistemic and aleatoric together: above 1 it was too certain.",
    drawn=False,
)
INFORMATION_RANK = MetricSpec(
    "information_rank",
    "Rank correlation of error and information gain on new data",
    "",
    "Spearman's rank correlation, over the round's measurements, of the error of the model from before the round (root mean "
    "square over state dimensions, each in units of the spread of its changes) and the information gain that it promised: at 0 "
    "or below, the gain does not find where the model errs.",
    drawn=False,
)
DRIFT = MetricSpec(
    "drift",
    "Error on new data where the model was certain",
    "promised stds",
    "Median error of the model from before the round, in stds that it promised, over the round's measurements at which its "
    "epistemic std was at most twice the aleatoric one: above 2, the system seems to have changed. Missing where there are "
    "fewer than five.",
    drawn=False,
)
FORGOTTEN = MetricSpec(
    "forgotten",
    "Measurements forgotten at an alarm",
    "",
    "Number of the first measurements of the run that the model forgot when the alarm of a change rang; for runs that do "
    "(`--forget-at-alarm`).",
    drawn=False,
)
WHITENESS = MetricSpec(
    "whiteness",
    "Whiteness of the errors",
    "p-value",
    "p-value of the test that the errors of the model after the round, on the round's measurements, do not depend on actions "
    "and observations from before the state; an F-test of linear regressions, corrected for the number of outputs.",
    drawn=False,
)
PAST_EXPLAINS = MetricSpec(
    "past_explains",
    "Errors that the past explains",
    "stds of the changes",
    "Std of the part of these errors that the past explains in blocks unknown to the regression, in stds of the round's "
    "changes of the state, largest over outputs; with a small p-value, above 0.05 the state is incomplete (`--delay`, "
    "`--history`).",
    drawn=False,
)
PAST_DELAY = MetricSpec(
    "past_delay",
    "Delay that explains the errors",
    "steps",
    "The delay with which earlier actions alone explain nine tenths of that; missing where observations are needed.",
    drawn=False,
)
LATE_ACTIONS = MetricSpec(
    "late_actions",
    "Late actions",
    "share of the actions",
    "Share of the round's actions that came without a new plan in time; for an `Experiment` that asks with a rate or a budget.",
    drawn=False,
)
PLANNED_INFORMATION = MetricSpec(
    "planned_information_gain",
    "Planned information gain",
    "nats per round",
    "Information gain that the planner expected of the round; missing where no planner chooses each action.",
    drawn=False,
    sentence="the planner expected an information gain of {} nats",
)
REALISED_INFORMATION = MetricSpec(
    "realised_information_gain",
    "Realised information gain",
    "nats per round",
    "Information gain of the visited points under the model from before the round: the sum of what each alone would tell, an "
    "upper bound on what they tell together.",
    column="information",
    digits=0,
    sentence="the information gain of its measurements is at most {} nats",
)
VIOLATIONS = MetricSpec(
    "violations",
    "Violations",
    "share of the steps",
    "Share of the round's steps that violated any constraint.",
    column="violations",
    digits=3,
)
FALLBACK = MetricSpec(
    "fallback",
    "Steps on the fallback",
    "share of the steps",
    "Share of the round's steps in which no plan was admissible, so that the fallback acted.",
    column="fallback",
    digits=3,
)
PLANNED_MARGIN = MetricSpec(
    "planned_margin",
    "Predicted margin",
    "units of the constraints",
    "Smallest margin of the constraints that the round's admissible plans had in the worst case; missing where there was none.",
)
CONSTRAINT_METRICS: tuple[MetricSpec, ...] = (
    VIOLATIONS,
    FALLBACK,
    PLANNED_MARGIN,
    MetricSpec(
        "margin/*", "Margin met: {}", "units of the constraint", "Smallest margin of a constraint in the round's measurements."
    ),
    MetricSpec(
        "violations/*",
        "Violations: {}",
        "share of the steps",
        "Share of the round's steps that violated a constraint.",
        drawn=False,
    ),
    MetricSpec(
        "violation_depth/*",
        "Deepest violation: {}",
        "units of the constraint",
        "By how much a constraint was violated at worst in the round; 0 if it held.",
        drawn=False,
    ),
)
"""Metrics of runs with constraints."""

MODEL_METRICS: tuple[MetricSpec, ...] = (
    MetricSpec("seed", "Seed", "", "Seed of the row.", drawn=False),
    MetricSpec("round", "Round", "", "Number of the round, from 1.", drawn=False),
    MetricSpec("transitions", "Transitions", "", "Measurements collected so far.", drawn=False),
    MAX_EPISTEMIC,
    MAX_EPISTEMIC_COMMON,
    MetricSpec(
        "max_epistemic_box",
        "Largest epistemic uncertainty, narrow box",
        "state units",
        "Largest norm of the epistemic std over the box that earlier public results sampled.",
        drawn=False,
    ),
    MetricSpec(
        "mean_epistemic",
        "Mean epistemic uncertainty",
        "state units",
        "Mean norm of the epistemic std over the reachable set.",
        log=True,
    ),
    PLANNED_INFORMATION,
    REALISED_INFORMATION,
    PREDICTION_ERROR,
    OVERCONFIDENCE,
    INFORMATION_RANK,
    DRIFT,
    FORGOTTEN,
    WHITENESS,
    PAST_EXPLAINS,
    PAST_DELAY,
    MetricSpec(
        "model_rmse",
        "Error of the mean model (RMSE)",
        "state units",
        "Root mean square error of the predicted next state over the reachable set.",
        log=True,
        column="model error",
        digits=4,
    ),
    MetricSpec(
        "model_rmse_tasks",
        "Error of the mean model where tasks happen (RMSE)",
        "state units",
        "Root mean square error of the predicted next state over recorded states and actions of good policies for the tasks; "
        "for worlds of the control suite.",
        log=True,
    ),
    MetricSpec(
        "model_nll",
        "Negative log-likelihood",
        "nats per dimension",
        "Mean negative log-likelihood of the reachable set under epistemic and aleatoric variance together.",
        drawn=False,
    ),
    MetricSpec(
        "calibration_error",
        "Calibration error",
        "share",
        "Mean absolute difference of stated and actual coverage of the model's intervals over the reachable set; 0 is perfect, "
        "0.5 the worst.",
        drawn=False,
    ),
    MetricSpec(
        "coverage90",
        "Coverage of 90 % intervals on new data",
        "share",
        "Share of the round's measurements inside the one-step 90 % intervals of the model from before the round.",
        drawn=False,
    ),
    MetricSpec(
        "coverage90_simulated",
        "Coverage of 90 % intervals on new data, 20 steps ahead",
        "share",
        "The same for the states after 20 steps, simulated from the measured start with the actions that were taken; missing "
        "where no episode is as long.",
        drawn=False,
    ),
    MetricSpec(
        "physics/*",
        "Estimate of {}",
        "units of the parameter",
        "Estimate of an unknown parameter of the known physics (`--prior-range`).",
    ),
    MetricSpec(
        "physics_std/*",
        "Uncertainty of {}",
        "units of the parameter",
        "Std of that estimate.",
        drawn=False,
    ),
    MetricSpec(
        "model_choice",
        "Chosen model",
        "",
        "Number of the chosen candidate of the model auto, from 0.",
        drawn=False,
    ),
    MetricSpec(
        "simulation_error/*",
        "Error of simulations: {}",
        "stds of the states",
        "Root mean square error of a candidate of the model auto, simulated over blocks of 20 measurements unknown to it.",
        drawn=False,
    ),
    MetricSpec(
        "calibration/error_before",
        "Calibration error before recalibration",
        "share",
        "Calibration error on the held-out measurements with the model's own stds.",
        drawn=False,
    ),
    MetricSpec(
        "calibration/error_after",
        "Calibration error after recalibration",
        "share",
        "Calibration error on the held-out measurements with recalibrated stds (cross-fitted).",
        drawn=False,
    ),
    MetricSpec(
        "calibration/coverage90_before",
        "Coverage of 90 % intervals before recalibration",
        "share",
        "Share of the held-out measurements inside the model's 90 % intervals.",
        drawn=False,
    ),
    MetricSpec(
        "calibration/coverage90_after",
        "Coverage of 90 % intervals after recalibration",
        "share",
        "Share of the held-out measurements inside the recalibrated 90 % intervals (cross-fitted).",
        drawn=False,
    ),
    MetricSpec(
        "theory/information_gain",
        "Information gain of all data",
        "nats",
        "Exact information gain of the measurements so far, summed over outputs; this and the following for Gaussian processes "
        "with fixed hyper-parameters.",
        drawn=False,
    ),
    MetricSpec(
        "theory/gamma",
        "Maximum information gain",
        "nats",
        "Greedy maximum of the information gain of the same number of measurements, summed over outputs.",
        drawn=False,
    ),
    MetricSpec("theory/beta", "Beta by theory", "epistemic stds", "Largest beta over outputs by the RKHS bound.", drawn=False),
    MetricSpec(
        "theory/uncertainty",
        "Left-hand side of Theorem 2",
        "squared state units",
        "Largest half squared norm of the exact posterior std over the reachable set.",
        drawn=False,
    ),
    MetricSpec(
        "theory/bound",
        "Right-hand side of Theorem 2",
        "up to a constant",
        "Bound of Theorem 2 up to its unknown constant.",
        drawn=False,
    ),
)
"""Built-in metrics of the model and of a round, in the order in which figures draw them."""

TASK_METRICS: tuple[MetricSpec, ...] = (
    MetricSpec("return/*", "Return on {}", "sum of rewards", "Return on a task, planned on the model and run on the system."),
    MetricSpec("success/*", "Success on {}", "share solved", "Success on a task, from 0 to 1, mean over rollouts.", digits=2),
    MetricSpec(
        "exploration_return",
        "Return while exploring",
        "sum of rewards",
        "Reward of the task that a method explores for, summed over the steps of a round's rollout, mean over rollouts.",
    ),
    MetricSpec(
        "bonus_weight",
        "Weight of the bonus",
        "rewards per bonus",
        "The lambda by which the bonus of sombrl and opax-task was multiplied in the round.",
        drawn=False,
    ),
    MetricSpec(
        "seconds/*",
        "Seconds: {}",
        "s",
        "Wall time of a phase: plan, fit, world (host simulators), evaluate, or wait (for other runs, in lockstep).",
        drawn=False,
    ),
    *CONSTRAINT_METRICS,
    MetricSpec(
        "task_violations/*",
        "Violations on {}",
        "share of the steps",
        "Share of the steps of a task's evaluation that violated any constraint, mean over rollouts.",
    ),
    LATE_ACTIONS,
    MetricSpec("stopped", "Stopped", "", "Why the run was ended by its stopping rule, as a sentence.", drawn=False),
)
"""Built-in metrics of tasks and of the run itself; `Schema` puts those of worlds and users before them."""
SCHEMA = (*MODEL_METRICS, *TASK_METRICS)
"""All built-in metrics."""


class RoundResult(NamedTuple):
    """A finished round, as a `Metric` sees it."""

    explorer: Explorer
    """The explorer after the round."""
    trajectory: Trajectory
    """Measurements of the round [S, T, ...]."""
    before: Posterior
    """The posterior from before the round, with a leading axis S."""
    world: World
    """The system that is explored."""


class Metric(abc.ABC):
    """A number per seed that a run computes after each round; subclass it as a frozen dataclass."""

    @property
    @abc.abstractmethod
    def spec(self) -> MetricSpec:
        """Its entry in the schema."""

    @abc.abstractmethod
    def compute(self, result: RoundResult) -> np.ndarray:
        """Compute the metric after a round.

        Args:
            result: The finished round.

        Returns:
            One value per seed [S]; NaN where it is not defined.
        """


class Schema:
    """The metrics of one run: the built-in ones, those of its world, and the user's own."""

    def __init__(self, world: World, metrics: Sequence[Metric] = ()):
        """Collect the entries.

        Args:
            world: The world that is explored.
            metrics: The user's own metrics.
        """
        self.specs = (*MODEL_METRICS, *world.metric_specs, *(metric.spec for metric in metrics), *TASK_METRICS)
        keys = [spec.key for spec in self.specs]
        twice = sorted({key for key in keys if keys.count(key) > 1})
        if twice:
            raise SondeError(f"metrics need different keys, got {', '.join(twice)} more than once: rename one")

    def spec(self, key: str) -> MetricSpec:
        """Look up the entry of a key.

        Args:
            key: Key of a metric.
        """
        found = next((spec for spec in self.specs if spec.matches(key)), None)
        if found is None:
            meant = did_you_mean(key, [spec.key for spec in self.specs])
            raise SondeError(f"metric {key!r} is not in the schema;{meant} describe it with a MetricSpec")
        return found

    def drawn(self, keys: Iterable[str]) -> list[str]:
        """Choose the metrics that figures draw.

        Args:
            keys: Keys of metrics; those that are not in the schema are left out.

        Returns:
            The keys that are drawn, in the order of the schema.
        """
        keys = list(dict.fromkeys(keys))
        return [key for spec in self.specs if spec.drawn for key in keys if spec.matches(key)]
