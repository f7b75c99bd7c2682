"""When to stop: once the largest uncertainty, or what a plan could still tell, is below a tolerance.

    uncertainty<0.05   the largest epistemic std in reach, in state units: `max_epistemic`
    information<2      what the planner expected of the episode, in nats: `planned_information_gain`

Policies that do not plan at each step, or have no time to say what they expect (systems that their owner runs), are judged by
what the visited points could tell: `realised_information_gain`. Runs in lockstep stop together, after the first episode at
which all of them are below. The decision follows from that episode's metrics alone, so interruptions do not change it.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sonde.errors import SondeError
from sonde.methods import Method
from sonde.metrics import reachable_set
from sonde.solvers.base import Planner, Solver
from sonde.theory.rates import fit_decay
from sonde.worlds.base import World, has_simulator

FITTED = 5
"""Episodes, the last ones, from which it is estimated how many more it takes."""


@dataclass(frozen=True)
class Quantity:
    """What may fall below a tolerance."""

    metric: str
    """Its key in metrics.jsonl."""
    label: str
    """Its name in tables."""
    sentence: str
    """How its value is told."""


UNCERTAINTY = Quantity("max_epistemic", "largest uncertainty", "the largest uncertainty is {}")
PLANNED = Quantity("planned_information_gain", "expected information", "the planner expected {} nats of it")
REALISED = Quantity("realised_information_gain", "information at most", "its measurements could tell at most {} nats")


@dataclass(frozen=True)
class StoppingRule:
    """Stop once a quantity is below the tolerance in all runs."""

    text: str
    quantity: Quantity
    tolerance: float

    def check_world(self, world: World) -> None:
        """Refuse a world of which it is not known what it can reach, if that is asked for."""
        if self.quantity is UNCERTAINTY and reachable_set(world) is None:
            raise SondeError(
                f"until {self.text}: expected a world of which it is known what it can reach, got {type(world).__name__}, "
                "of which it is not; take 'information<NUMBER'"
            )

    def worst(self, values: Iterable[float | None]) -> float | None:
        """The largest over all runs; None if it is not known of one of them."""
        known = [math.nan if value is None else float(value) for value in values]
        return max(known) if known and all(map(math.isfinite, known)) else None

    def why_stop(self, values: Sequence[float | None], episode: int, limit: int) -> str | None:
        """Why to stop after this episode, in words; None: go on."""
        worst = self.worst(values)
        if worst is None or worst >= self.tolerance:
            return None
        below = f"below {self.tolerance:g}"
        return f"Stopped after episode {episode} of at most {limit}: {self._told(worst, len(values))}, {below}."

    def why_not(self, values: Sequence[float | None], limit: int) -> str:
        """What to say after the last episode, if it did not suffice."""
        worst = self.worst(values)
        told = "" if worst is None else f": {self._told(worst, len(values))}"
        return f"All {limit} episodes are done, and {self.text} was not reached{told}."

    def _told(self, worst: float, runs: int) -> str:
        # as short as possible, yet on the right side of the tolerance
        texts = (f"{worst:.{digits}g}" for digits in range(3, 18))
        value = next(text for text in texts if (float(text) < self.tolerance) == (worst < self.tolerance))
        return self.quantity.sentence.format(value) + (f" in the worst of {runs} runs" if runs > 1 else "")

    def episodes_left(self, worst: Sequence[tuple[int, float]]) -> float | None:
        """How many more episodes it takes, if the quantity goes on falling as a power of the episode.

        `worst` are finished episodes and their values; infinite: it is not falling; None: too few to say.
        """
        if len(worst) < 3:
            return None
        episodes, values = zip(*worst[-FITTED:], strict=True)
        decay = fit_decay(episodes, values)
        if decay.exponent >= 0:
            return math.inf
        # in logarithms, where nothing overflows
        crossing = (math.log(self.tolerance) - math.log(decay.constant)) / decay.exponent
        return math.inf if crossing > 50 else float(max(1, math.floor(math.exp(crossing)) + 1 - episodes[-1]))

    def outlook(self, worst: Sequence[tuple[int, float]], limit: int) -> str:
        """The same in words, where there are at most `limit` episodes."""
        left, possible = self.episodes_left(worst), limit - (worst[-1][0] if worst else 0)
        if left is None:
            return f"too early to say when {self.text}"
        if math.isinf(left):
            return f"not falling yet towards {self.text}"
        if left > possible:
            return f"{self.text} is not expected within the {possible} more that there can be"
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
        return StoppingRule(text, UNCERTAINTY, tolerance)
    if method.imagination is None:
        raise SondeError(f"config: until {text}: a method that acts at random expects nothing; take 'uncertainty<NUMBER'")
    says = has_simulator(world) and isinstance(solver, Planner)
    return StoppingRule(text, PLANNED if says else REALISED, tolerance)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
