"""Zero-shot tasks, the oracle, metrics and their schema, stopping rules, and statistics over seeds."""

from sonde.evaluation._decay import PowerLaw, fit_power_law
from sonde.evaluation._distil import Distillation, Distilled, distil
from sonde.evaluation._evaluate import Evaluation, evaluate, normalised_score, plan_task, run_task
from sonde.evaluation._oracle import TrueDynamics
from sonde.evaluation._robust import ScoredPolicy, plan_robust_task, score_on_model
from sonde.evaluation._schema import SCHEMA, Metric, MetricSpec, RoundResult, Schema
from sonde.evaluation._setup import Learned, TaskSetup

__all__ = [
    "SCHEMA",
    "Distillation",
    "Distilled",
    "Evaluation",
    "Learned",
    "Metric",
    "MetricSpec",
    "PowerLaw",
    "RoundResult",
    "Schema",
    "ScoredPolicy",
    "TaskSetup",
    "TrueDynamics",
    "distil",
    "evaluate",
    "fit_power_law",
    "normalised_score",
    "plan_robust_task",
    "plan_task",
    "run_task",
    "score_on_model",
]
