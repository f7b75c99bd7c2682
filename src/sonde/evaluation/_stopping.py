"""Stopping rules: end a run once what it does not know, or the information that is left to gain, is below a tolerance.

    uncertainty<0.3    what is not known over the reachable set, in state units
    information<300    the information gain that the planner expected of the round, in nats: `planned_information_gain`

A model that has seen little of what can be reached may be very certain of it: hyper-parameters are fitted to where it has
been. So `uncertainty` does not take the model's word alone. Each of these must be below the tolerance:

- the largest epistemic std over the reachable set (`max_epistemic`), multiplied by the factor by which the round showed the
  model to be too certain (`overconfidence`, at least 1);
- twice the largest std under the common kernel (`max_epistemic_common`), which depends on where measurements were taken and
  not on a fit: it stays large while a part of what can be reached has not been visited;
- the error with which the model from before the round predicted it (`prediction_error`).

Where no information gain is planned at each step (trained policies, systems that their owner runs), `information` looks at
that of the visited points: `realised_information_gain`. All seeds stop together, after the first round at which all of them are
below the tolerance. The decision depends on the metrics of that round alone, so interruptions do not change it.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sonde._internal.errors import SondeError, nearest
from sonde._internal.metric_spec import MetricSpec
from sonde.evaluation._decay import fit_power_law
from sonde.evaluation._metrics import reachable_set
from sonde.evaluation._schema import (
    MAX_EPISTEMIC,
    MAX_EPISTEMIC_COMMON,
    OVERCONFIDENCE,
    PLANNED_INFORMATION,
    PREDICTION_ERROR,
    REALISED_INFORMATION,
)
from sonde.methods import Method
from sonde.solvers import Planner, Solver
from sonde.worlds import World, has_simulator

SUBJECTS = ("uncertainty", "information")
"""What rules are about."""
MIN_ROUNDS = 3
"""Rounds that an estimate of the remaining rounds needs."""

COMMON_STDS = 2.0
"""Stds under the common kernel that must be below the tolerance. Chosen on development seeds of
`experiments/scripts/stopping.py`: with 1, the true error was below the tolerance at 78 % of the stops; with 2, at 98 %."""

Row = Mapping[str, Any]
"""Metrics of one seed and round."""


class Term(NamedTuple):
    """A number that must be below the tolerance."""

    title: str
    """Title in the progress display."""
    metric: MetricSpec
    """The metric whose `sentence` says the number."""
    value: Callable[[Row], float | None]
    """The number from the metrics of one seed and round; None where it is not known."""


def _corrected(row: Row) -> float | None:
    largest, factor = row.get(MAX_EPISTEMIC.key), row.get(OVERCONFIDENCE.key)
    return None if largest is None or factor is None else largest * max(1.0, factor)


def _common(row: Row) -> float | None:
    largest = row.get(MAX_EPISTEMIC_COMMON.key)
    return None if largest is None else COMMON_STDS * largest


def _metric(spec: MetricSpec) -> Term:
    return Term(spec.title.lower(), spec, lambda row: row.get(spec.key))


UNCERTAINTY = (
    Term("corrected uncertainty", MAX_EPISTEMIC, _corrected),
    Term("twice the common kernel's", MAX_EPISTEMIC_COMMON, _common),
    _metric(PREDICTION_ERROR),
)
"""What must be below the tolerance of `uncertainty`."""


@dataclass(frozen=True)
class StoppingRule:
    """Stop once all of a rule's numbers are below a tolerance for all seeds."""

    text: str
    """The rule as written, such as 'uncertainty<0.3'."""
    quantity: MetricSpec
    """The metric that the rule is about."""
    tolerance: float
    """Value below which its numbers must be."""

    @property
    def subject(self) -> str:
        """The word to the left of '<': 'uncertainty' or 'information'."""
        return self.text.partition("<")[0]

    @property
    def terms(self) -> tuple[Term, ...]:
        """The numbers that must be below the tolerance."""
        return UNCERTAINTY if self.quantity is MAX_EPISTEMIC else (_metric(self.quantity),)

    def check_world(self, world: World) -> None:
        """Reject a world without a reachable set, if the rule needs one.

        Args:
            world: The world that will be explored.
        """
        if self.quantity is MAX_EPISTEMIC and reachable_set(world) is None:
            raise SondeError(
                f"until {self.text}: expected a world whose reachable set is known, got {type(world).__name__}, whose set is "
                "not; use 'information<NUMBER'"
            )

    def worst(self, rows: Sequence[Row]) -> list[float | None]:
        """The largest value of each number over seeds.

        Args:
            rows: Metrics of a round, one row per seed.

        Returns:
            One value for each of `terms`; None where a seed has no finite value.
        """
        return [_largest([term.value(row) for row in rows]) for term in self.terms]

    def why_stop(self, rows: Sequence[Row], round_number: int, limit: int) -> str | None:
        """Why to stop after a round.

        Args:
            rows: Metrics of the round, one row per seed.
            round_number: The round, from 1.
            limit: Most rounds of the run.

        Returns:
            The reason as a sentence; None to go on.
        """
        worst = self.worst(rows)
        if any(value is None or value >= self.tolerance for value in worst):
            return None
        below = f"{'all ' if len(worst) > 1 else ''}below {self.tolerance:g}"
        return f"Stopped after round {round_number} of at most {limit}: {self._values(rows)}, {below}."

    def why_not(self, rows: Sequence[Row], limit: int) -> str:
        """What to report after the last round, if the tolerance was not reached.

        Args:
            rows: Metrics of the last round, one row per seed.
            limit: Rounds of the run.
        """
        values = self._values(rows)
        return f"All {limit} rounds are done, and {self.text} was not reached{f': {values}' if values else ''}."

    def _values(self, rows: Sequence[Row]) -> str:
        """The largest values as part of a sentence."""
        worst = zip(self.terms, self.worst(rows), strict=True)
        known = [term.metric.sentence.format(self._number(value)) for term, value in worst if value is not None]
        listed = " and ".join([", ".join(known[:-1]), known[-1]] if len(known) > 1 else known)
        return listed + (f" in the worst of {len(rows)} seeds" if known and len(rows) > 1 else "")

    def _number(self, value: float) -> str:
        # as few digits as possible, but on the right side of the tolerance
        texts = (f"{value:.{digits}g}" for digits in range(3, 18))
        return next(text for text in texts if (float(text) < self.tolerance) == (value < self.tolerance))

    def rounds_left(self, worst: Sequence[tuple[int, float]]) -> float | None:
        """Estimate how many more rounds are needed, by the power law that the largest number has followed since its peak.

        Args:
            worst: Finished rounds, and the largest number over seeds and terms after each.

        Returns:
            The number of rounds; infinite if that number is not falling, None if there are too few rounds to tell.
        """
        if len(worst) < MIN_ROUNDS:
            return None
        highest = max(range(len(worst)), key=lambda i: worst[i][1])
        falling = [(round_number, value) for round_number, value in worst[highest:] if value > 0]
        if 1 < len(falling) < MIN_ROUNDS:
            return None
        exponent = fit_power_law(*zip(*falling, strict=True)).exponent if len(falling) > 1 else 0.0
        if exponent >= 0:
            return math.inf
        round_number, value = falling[-1]
        # in logarithms, so that nothing overflows
        growth = (math.log(self.tolerance) - math.log(value)) / exponent
        return math.inf if growth > 50 else float(max(1, math.floor(round_number * math.exp(growth)) + 1 - round_number))

    def outlook(self, worst: Sequence[tuple[int, float]], limit: int) -> str:
        """The estimate of `rounds_left` in words.

        Args:
            worst: Finished rounds, and the largest number over seeds and terms after each.
            limit: Most rounds of the run.
        """
        left = self.rounds_left(worst)
        if left is None:
            return f"too early to say when {self.text}"
        if math.isinf(left):
            return f"not falling yet towards {self.text}"
        if worst[-1][0] + left > limit:
            return f"at this rate {self.text} is not reached by round {limit}"
        return f"about {left:.0f} more round{'s' if left > 1 else ''} until {self.text}"


def stopping_rule(text: str, method: Method, solver: Solver, world: World) -> StoppingRule:
    """Parse a stopping rule.

    Args:
        text: 'uncertainty<NUMBER' or 'information<NUMBER'.
        method: The method of the run.
        solver: The solver of the run.
        world: The world of the run.

    Returns:
        The rule; one that the other parts of the run cannot follow is rejected.
    """
    found = re.fullmatch(rf"\s*({'|'.join(SUBJECTS)})\s*<\s*(\S+)\s*", text)
    tolerance = _number(found[2]) if found else math.nan
    if found is None or not 0 < tolerance < math.inf:
        subject, *rest = re.split(r"(?=[<>=\s])", text.strip(), maxsplit=1)
        near = None if subject in SUBJECTS else nearest(subject, SUBJECTS)
        raise SondeError(
            f"config: until: expected 'uncertainty<NUMBER' or 'information<NUMBER', with a number above 0 (quote it, "
            f"since < is special in shells), got {text!r}" + (f"; did you mean {near + ''.join(rest)!r}?" if near else "")
        )
    text = f"{found[1]}<{found[2]}"
    if found[1] == "uncertainty":
        if not has_simulator(world):
            raise SondeError(
                f"config: until {text}: the reachable set of a system of your own is not known; use 'information<NUMBER'"
            )
        return StoppingRule(text, MAX_EPISTEMIC, tolerance)
    if method.imagination is None:
        raise SondeError(f"config: until {text}: random actions have no planned information gain; use 'uncertainty<NUMBER'")
    planned = has_simulator(world) and isinstance(solver, Planner)
    return StoppingRule(text, PLANNED_INFORMATION if planned else REALISED_INFORMATION, tolerance)


def _largest(values: Sequence[float | None]) -> float | None:
    known = [math.nan if value is None else value for value in values]
    return max(known) if known and all(map(math.isfinite, known)) else None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
