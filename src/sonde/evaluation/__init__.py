"""Zero-shot tasks, the oracle, metrics with their one schema, stopping rules, and statistics over seeds."""

from sonde.evaluation._decay import Decay, fit_decay
from sonde.evaluation._evaluate import (
    Evaluation,
    Learned,
    ScoredPolicy,
    TaskSetup,
    evaluate,
    normalised_score,
    plan_robust_task,
    plan_task,
    run_task,
    score_on_model,
)
from sonde.evaluation._oracle import TrueDynamics
from sonde.evaluation._schema import SCHEMA, Metric, MetricSpec, RoundResult, Schema

__all__ = [
    "SCHEMA",
    "Decay",
    "Evaluation",
    "Learned",
    "Metric",
    "MetricSpec",
    "RoundResult",
    "Schema",
    "ScoredPolicy",
    "TaskSetup",
    "TrueDynamics",
    "evaluate",
    "fit_decay",
    "normalised_score",
    "plan_robust_task",
    "plan_task",
    "run_task",
    "score_on_model",
]
