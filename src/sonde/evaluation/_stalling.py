"""Whether exploration stalls because the model is too certain.

A planner that maximises information goes where the model says that it does not know. If the model errs by far more than it
says, and errs least where it promises most, then what is left to learn lies where the planner does not go. Both are measured on
each round's new data, before learning from them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from sonde.evaluation._schema import INFORMATION_RANK, OVERCONFIDENCE
from sonde.methods import Method
from sonde.models import Model
from sonde.models._ensemble import Ensemble
from sonde.models._known_physics import learner_of
from sonde.objectives import TaskObjective

TOO_CERTAIN = 2.0
"""Overconfidence from which the model hides errors: the root mean square of a round's errors in promised stds is 1 for a model
that is right. Alone it does not tell: a run that went on exploring had 1.4 to 2.6, models with learned noise whose gain avoided
their errors 2.6 and 3.9 (experiments/NOTES.md, "Overconfidence that stalls exploration")."""
UNRELATED = -0.2
"""Rank correlation of error and information gain below which the gain prefers points that are known better than others. It was
0.1 to 0.9 in the first case and -0.3 to -0.4 in the second. Without any relation, that of 100 points has a std of 0.1, so that
chance alone hardly comes below."""


def stall_warning(rows: Sequence[Mapping[str, Any]], method: Method, model: Model) -> str | None:
    """Say that exploration stalls, if most seeds of a round show it.

    Args:
        rows: Metrics of all seeds after one round.
        method: How the run explores.
        model: What learns.

    Returns:
        One sentence with what to change; None if nothing is wrong, it is not known, or the method has a task.
    """
    if method.objective is None or isinstance(method.objective, TaskObjective):
        return None
    pairs = [(row.get(OVERCONFIDENCE.key), row.get(INFORMATION_RANK.key)) for row in rows]
    stalled = [(c, r) for c, r in pairs if c is not None and r is not None and c > TOO_CERTAIN and r < UNRELATED]
    if 2 * len(stalled) <= len(rows):
        return None
    certain, rank = (sum(values) / len(stalled) for values in zip(*stalled, strict=True))
    seeds = f" in {len(stalled)} of {len(rows)} seeds" if len(rows) > 1 else ""
    return (
        f"Exploration stalls after round {rows[0]['round']}: on its new data the model erred {certain:.1f} times as much as it "
        f"promised, and less where it promised more information (rank correlation {rank:.2f}){seeds}; {advice(model)}."
    )


def advice(model: Model) -> str:
    """What to change where a model is too certain, as part of a sentence.

    Args:
        model: What learns.
    """
    model = learner_of(model)
    if not isinstance(model, Ensemble):
        return "recalibrate the model on held-out data (--holdout 0.2 --recalibrate), or use another one"
    if model.noise == "learned":
        return (
            "if the system has no noise, give the model a small one instead of learning it (--model.noise fixed "
            "--model.noise-std 0.01 --holdout 0 --no-recalibrate); otherwise train it longer (--model.max-steps)"
        )
    return (
        "train the model longer (--model.epochs, --model.max-steps), give it more members (--model.members), or recalibrate it "
        "on held-out data (--holdout 0.2 --recalibrate)"
    )
