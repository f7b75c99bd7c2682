"""When to stop: once the largest uncertainty, or what a plan could still tell, is below a tolerance.

    uncertainty<0.3    the largest epistemic std in reach, in state units: `max_epistemic`
    information<300    what the planner expected of the episode, in nats: `planned_information_gain`

A model may be far too sure, above all after its first episode. So `uncertainty` predicts none that was just proved wrong: the
errors with which the model from before the episode predicted it must be below the tolerance, too (`prediction_error`).

Policies that do not plan at each step, or have no time to say what they expect (systems that their owner runs), are judged by
what the visited points could tell: `realised_information_gain`. Runs in lockstep stop together, after the first episode at
which all of them are below. The decision follows from that episode's metrics alone, so interruptions do not change it.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sonde._internal.errors import SondeError
from sonde._internal.metric_spec import MetricSpec
from sonde.evaluation._decay import fit_decay
from sonde.evaluation._metrics import reachable_set
from sonde.evaluation._schema import MAX_EPISTEMIC, PLANNED_INFORMATION, PREDICTION_ERROR, REALISED_INFORMATION
from sonde.methods import Method
from sonde.solvers import Planner, Solver
from sonde.worlds import World, has_simulator

FEWEST = 3
"""Episodes from which it may be estimated how many more it takes."""

Row = Mapping[str, Any]
"""The metrics of one run after an episode."""


@dataclass(frozen=True)
class StoppingRule:
    """Stop once a quantity, and what must confirm it, are below the tolerance in all runs."""

    text: str
    quantity: MetricSpec
    tolerance: float

    @property
    def subject(self) -> str:
        """What it is about, as it was written: 'uncertainty' or 'information'."""
        return self.text.partition("<")[0]

    @property
    def quantities(self) -> tuple[MetricSpec, ...]:
        """All that must be below the tolerance, the one that the rule is about first."""
        return (self.quantity, PREDICTION_ERROR) if self.quantity is MAX_EPISTEMIC else (self.quantity,)

    def check_world(self, world: World) -> None:
        """Refuse a world of which it is not known what it can reach, if that is asked for."""
        if self.quantity is MAX_EPISTEMIC and reachable_set(world) is None:
            raise SondeError(
                f"until {self.text}: expected a world of which it is known what it can reach, got {type(world).__name__}, "
                "of which it is not; take 'information<NUMBER'"
            )

    def worst(self, rows: Sequence[Row]) -> list[float | None]:
        """The largest of each quantity over the rows of an episode, one per run; None if it is not known of one of them."""
        return [_largest([row.get(quantity.key) for row in rows]) for quantity in self.quantities]

    def why_stop(self, rows: Sequence[Row], round_number: int, limit: int) -> str | None:
        """Why to stop after this episode, in words; None: go on."""
        worst = self.worst(rows)
        if any(value is None or value >= self.tolerance for value in worst):
            return None
        below = f"{'both ' if len(worst) > 1 else ''}below {self.tolerance:g}"
        return f"Stopped after episode {round_number} of at most {limit}: {self._told(rows)}, {below}."

    def why_not(self, rows: Sequence[Row], limit: int) -> str:
        """What to say after the last episode, if it did not suffice."""
        told = self._told(rows)
        return f"All {limit} episodes are done, and {self.text} was not reached{f': {told}' if told else ''}."

    def _told(self, rows: Sequence[Row]) -> str:
        worst = zip(self.quantities, self.worst(rows), strict=True)
        known = [quantity.sentence.format(self._number(value)) for quantity, value in worst if value is not None]
        return " and ".join(known) + (f" in the worst of {len(rows)} runs" if known and len(rows) > 1 else "")

    def _number(self, value: float) -> str:
        # as short as possible, yet on the right side of the tolerance
        texts = (f"{value:.{digits}g}" for digits in range(3, 18))
        return next(text for text in texts if (float(text) < self.tolerance) == (value < self.tolerance))

    def rounds_left(self, worst: Sequence[tuple[int, float]]) -> float | None:
        """How many more episodes it takes, if it goes on falling as a power of the episode, as it has since its highest value.

        `worst` are finished episodes and their values; infinite: it is not falling; None: too few to say.
        """
        if len(worst) < FEWEST:
            return None
        highest = max(range(len(worst)), key=lambda i: worst[i][1])
        falling = [(round_number, value) for round_number, value in worst[highest:] if value > 0]
        if 1 < len(falling) < FEWEST:
            return None
        exponent = fit_decay(*zip(*falling, strict=True)).exponent if len(falling) > 1 else 0.0
        if exponent >= 0:
            return math.inf
        round_number, value = falling[-1]
        # in logarithms, where nothing overflows
        growth = (math.log(self.tolerance) - math.log(value)) / exponent
        return math.inf if growth > 50 else float(max(1, math.floor(round_number * math.exp(growth)) + 1 - round_number))

    def outlook(self, worst: Sequence[tuple[int, float]], limit: int) -> str:
        """The same in words, where there are at most `limit` episodes."""
        if worst and worst[-1][1] < self.tolerance:
            return f"{self.text} is reached, but not confirmed by an episode's predictions yet"
        left = self.rounds_left(worst)
        if left is None:
            return f"too early to say when {self.text}"
        if math.isinf(left):
            return f"not falling yet towards {self.text}"
        if worst[-1][0] + left > limit:
            return f"at this rate {self.text} is not reached by episode {limit}"
        return f"about {left:.0f} more episode{'s' if left > 1 else ''} until {self.text}"


def stopping_rule(text: str, method: Method, solver: Solver, world: World) -> StoppingRule:
    """The rule that a text stands for; refused if it is none, or if these parts cannot follow it."""
    found = re.fullmatch(r"\s*(uncertainty|information)\s*<\s*(\S+)\s*", text)
    tolerance = _number(found[2]) if found else math.nan
    if found is None or not 0 < tolerance < math.inf:
        raise SondeError(
            f"config: until: expected 'uncertainty<NUMBER' or 'information<NUMBER', with a number above 0 (and in "
            f"quotes, since shells have a use for <), got {text!r}"
        )
    text = f"{found[1]}<{found[2]}"
    if found[1] == "uncertainty":
        if not has_simulator(world):
            raise SondeError(
                f"config: until {text}: nobody knows what a system of your own can reach; take 'information<NUMBER'"
            )
        return StoppingRule(text, MAX_EPISTEMIC, tolerance)
    if method.imagination is None:
        raise SondeError(f"config: until {text}: a method that acts at random expects nothing; take 'uncertainty<NUMBER'")
    says = has_simulator(world) and isinstance(solver, Planner)
    return StoppingRule(text, PLANNED_INFORMATION if says else REALISED_INFORMATION, tolerance)


def _largest(values: Sequence[float | None]) -> float | None:
    known = [math.nan if value is None else value for value in values]
    return max(known) if known and all(map(math.isfinite, known)) else None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
