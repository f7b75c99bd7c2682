"""What is said when a system seems to have changed."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sonde.evaluation._schema import DRIFT
from sonde.models import Confidence
from sonde.models._drift import CHANGED


def has_changed(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the system seems to have changed in a round: most of the seeds that can tell say so.

    Args:
        rows: Metrics of all seeds after the round.
    """
    values = [row[DRIFT.key] for row in rows if row.get(DRIFT.key) is not None]
    return 2 * sum(value > CHANGED for value in values) > len(values)


def has_rung(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the system seems to have changed in a round for any seed.

    Args:
        rows: Metrics of all seeds after the round.
    """
    return any((row.get(DRIFT.key) or 0) > CHANGED for row in rows)


def drift_warning(rows: Sequence[Mapping[str, Any]], confidence: Confidence) -> str | None:
    """Say that the system seems to have changed, and when.

    Args:
        rows: Metrics of all seeds, of one round or of several.
        confidence: The settings of the run: its window, and whether it forgets at the alarm, which each seed does alone.

    Returns:
        One sentence with what to change; None if no round shows it.
    """
    rounds = {number: [row for row in rows if row["round"] == number] for number in sorted({row["round"] for row in rows})}
    rings = has_rung if confidence.forget_at_alarm else has_changed
    rang = [number for number, measured in rounds.items() if rings(measured)]
    if not rang:
        return None
    values = [row[DRIFT.key] for row in rounds[rang[0]] if (row.get(DRIFT.key) or 0) > CHANGED]
    seeds = f" in {len(values)} of {len(rounds[rang[0]])} seeds" if len(rounds[rang[0]]) > 1 else ""
    later = f", and in {len(rang) - 1} later round{'s' if len(rang) > 2 else ''}" if len(rang) > 1 else ""
    return (
        f"The system seems to have changed in round {rang[0]}{later}: where the model was certain, it erred "
        f"{np.mean(values):.1f} times as much as it promised{seeds}; {_remedy(confidence)}."
    )


def _remedy(confidence: Confidence) -> str:
    if confidence.forget_at_alarm:
        return "what was measured before is forgotten"
    if confidence.window is not None:
        return f"the model has forgotten what came before once {confidence.window} measurements were made after the change"
    return "let the model forget what came before (--forget-at-alarm, or --window N), or start over"
