"""Whether a system has changed: errors where the model was certain.

An explorer visits what it does not know, where its model may err by much more than it promised. So the errors of a round say
nothing about the system by themselves. They do at the points that were known: where the model from before the round was about
as sure of the mean as noise allows. There a measurement can hardly be off by more than noise, unless the system is another one.
The median over these points leaves room for kinks and contacts, about which a smooth model may be wrong in places.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sonde.evaluation._schema import DRIFT
from sonde.models import Confidence

KNOWN = 2.0
"""Epistemic stds per aleatoric std (root mean square over state dimensions) up to which a point counts as known.
At the points that it was trained on, a Gaussian process has 0.5 to 1, an ensemble 1 to 3."""
FEWEST = 5
"""Known points that a round must have."""
CHANGED = 2.0
"""Median error at the known points, in promised stds (root mean square over state dimensions), above which the system counts as
changed. Errors that are as promised have 0.7 to 0.9; the median of only five of them is above 2 once in a thousand times in one
dimension, and once in 200,000 times in three. Chosen on development seeds (experiments/NOTES.md, "A system that changes")."""


def median_known_error(errors: np.ndarray, epistemic_std: np.ndarray, aleatoric_std: np.ndarray) -> np.ndarray:
    """The median error of a round where the model was certain.

    Args:
        errors: Absolute errors of the mean [S, T, dx].
        epistemic_std: Promised epistemic stds [S, T, dx].
        aleatoric_std: Promised aleatoric stds [S, T, dx].

    Returns:
        Root mean square over state dimensions of the errors in promised stds, median over the known points [S]; NaN where there
        are fewer than `FEWEST`.
    """
    promised = np.hypot(epistemic_std, aleatoric_std)
    with np.errstate(divide="ignore"):
        in_stds = np.divide(errors, promised, out=np.zeros_like(errors), where=errors > 0)
        ratio = np.divide(epistemic_std, aleatoric_std, out=np.zeros_like(errors), where=epistemic_std > 0)
    size = np.sqrt(np.mean(in_stds**2, axis=-1))
    known = np.sqrt(np.mean(ratio**2, axis=-1)) <= KNOWN
    return np.array([np.median(z[k]) if k.sum() >= FEWEST else np.nan for z, k in zip(size, known, strict=True)])


def has_changed(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the system seems to have changed in a round: most of the seeds that can tell say so.

    Args:
        rows: Metrics of all seeds after the round.
    """
    values = [row[DRIFT.key] for row in rows if row.get(DRIFT.key) is not None]
    return 2 * sum(value > CHANGED for value in values) > len(values)


def drift_warning(rows: Sequence[Mapping[str, Any]], confidence: Confidence) -> str | None:
    """Say that the system seems to have changed, and when.

    Args:
        rows: Metrics of all seeds, of one round or of several.
        confidence: The settings of the run, with its window.

    Returns:
        One sentence with what to change; None if no round shows it.
    """
    rounds = {number: [row for row in rows if row["round"] == number] for number in sorted({row["round"] for row in rows})}
    rang = [number for number, measured in rounds.items() if has_changed(measured)]
    if not rang:
        return None
    values = [row[DRIFT.key] for row in rounds[rang[0]] if (row.get(DRIFT.key) or 0) > CHANGED]
    seeds = f" in {len(values)} of {len(rounds[rang[0]])} seeds" if len(rounds[rang[0]]) > 1 else ""
    later = f", and in {len(rang) - 1} later round{'s' if len(rang) > 2 else ''}" if len(rang) > 1 else ""
    remedy = "let the model forget what came before (--window N), or start over"
    if confidence.window is not None:
        remedy = f"the model has forgotten what came before once {confidence.window} measurements were made after the change"
    return (
        f"The system seems to have changed in round {rang[0]}{later}: where the model was certain, it erred "
        f"{np.mean(values):.1f} times as much as it promised{seeds}; {remedy}."
    )
