"""What a claim rests on: comparisons with their numbers, rules that turn intervals into verdicts, and how they are printed."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from sonde.evaluation._statistics import Interval

Verdict = Literal["holds", "does not hold", "undecided"]
Unit = Literal["log ratio", "return", "score", "share", "exponent", "success"]
"""score: a difference of returns in parts of the panel's span; share: of seeds; success: a difference of success rates."""

MINIMUM_SEEDS = 5
"""With fewer it cannot be told whether their mean is anywhere near normal."""
GENERAL_RULE = (
    "Intervals are Student's, of the mean over seeds, with 95 % confidence; fewer than "
    f"{MINIMUM_SEEDS} seeds decide nothing that rests on them. With several parts a claim holds if all of them hold, does not "
    "hold if one of them does not, and is undecided otherwise. One of many parts may fail although the claim is true, so a "
    "part does not hold only if that shows with a confidence of 1 - 5 % / number of parts."
)
MARKS: dict[Verdict, str] = {"holds": "+", "does not hold": "-", "undecided": "?"}
FORMATS: dict[Unit, Callable[[float], str]] = {
    "log ratio": lambda value: f"{math.exp(min(value, 700)):.3g}",
    "return": lambda value: f"{value:+,.0f}" if abs(value) >= 100 else f"{value:+.3g}",
    "score": lambda value: f"{value:+.2f}",
    "share": lambda value: f"{value:.2f}",
    "exponent": lambda value: f"{value:+.2f}",
    "success": lambda value: f"{value:+.2f}",
}
"""How numbers are printed: a log ratio as a factor."""
COLOURS: dict[Verdict, str] = {"holds": "green", "does not hold": "red", "undecided": "yellow"}


@dataclass(frozen=True)
class Rule:
    """When a part of a claim holds, and when it does not, given an interval; otherwise it is undecided."""

    holds: Callable[[Interval], bool]
    fails: Callable[[Interval], bool]
    parts: int = 1
    """How many parts the claim has: one of many fails more easily."""

    def of(self, parts: int) -> "Rule":
        """The same rule for one of several parts."""
        return replace(self, parts=parts)

    @property
    def confidence(self) -> float:
        """Confidence of the interval by which it may fail."""
        return 1 - 0.05 / self.parts

    def verdict(self, ends: Interval, wide: Interval) -> Verdict:
        """By the 95 % interval, and by that of its own `confidence`."""
        return "holds" if self.holds(ends) else "does not hold" if self.fails(wide) else "undecided"


UNDECIDABLE = Rule(lambda _: False, lambda _: False)


@dataclass(frozen=True)
class Evidence:
    """One comparison. Numbers are NaN where they cannot be known, and `note` then says why."""

    setting: str
    panel: str
    what: str
    verdict: Verdict
    unit: Unit
    estimate: float = math.nan
    interval: Interval = (math.nan, math.nan)
    bootstrap: Interval = (math.nan, math.nan)
    """For comparison; few seeds make it too narrow."""
    p_t: float = math.nan
    p_wilcoxon: float = math.nan
    seeds: int = 0
    rounds: int = 0
    """The last round that was compared."""
    votes: bool = True
    """Whether the claim's verdict depends on it."""
    note: str = ""

    @property
    def numbers(self) -> str:
        """Estimate and interval as text."""
        if math.isnan(self.estimate):
            return "no numbers"
        show = FORMATS[self.unit]
        interval = "" if math.isnan(self.interval[0]) else f" [{show(self.interval[0])}, {show(self.interval[1])}]"
        before, after = "x" if self.unit == "log ratio" else "", " spans" if self.unit == "score" else ""
        return f"{before}{show(self.estimate)}{interval}{after}"

    @property
    def line(self) -> str:
        """The whole comparison in a line."""
        tests = [f"{p:.2g} ({name})" for name, p in (("t", self.p_t), ("Wilcoxon", self.p_wilcoxon)) if not math.isnan(p)]
        counts = f"{self.seeds} seeds, {self.rounds} rounds" if self.seeds else ""
        parts = (f"{self.what}: {self.numbers}", f"p {', '.join(tests)}" if tests else "", counts, self.note)
        return "; ".join(part for part in parts if part)


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, and what the results say about it."""

    id: str
    statement: str
    rule: str
    """How the verdict is reached, in one sentence."""
    verdict: Verdict
    summary: str
    evidence: tuple[Evidence, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values; null for what is not known."""
        return _plain(asdict(self))


def below(limit: float, fails_above: float) -> Rule:
    """Holds if the whole interval is below `limit`; otherwise does not hold if it is above `fails_above`."""
    return Rule(lambda ends: ends[1] < limit, lambda ends: ends[0] > fails_above)


def above(limit: float, fails_below: float) -> Rule:
    """Holds if the whole interval is above `limit`; otherwise does not hold if it is below `fails_below`."""
    return Rule(lambda ends: ends[0] > limit, lambda ends: ends[1] < fails_below)


def within(margin: float) -> Rule:
    """Holds if the interval lies within the margin around 0, does not hold if it lies outside of it."""
    return Rule(lambda ends: -margin < ends[0] and ends[1] < margin, lambda ends: ends[0] > margin or ends[1] < -margin)


def overall(verdicts: Sequence[Verdict]) -> Verdict:
    """Holds if all parts hold, does not hold if one of them does not."""
    if "does not hold" in verdicts:
        return "does not hold"
    return "holds" if verdicts and set(verdicts) == {"holds"} else "undecided"


def markdown(claims: Sequence[Claim]) -> str:
    """A table of the verdicts, and the rule of each below it."""
    cell = lambda text: text.replace("|", "\\|")
    lines = ["| claim | what the paper says | here it | numbers |", "|---|---|---|---|"]
    lines += [f"| {c.id} | {cell(c.statement)} | **{_words(c.verdict)}** | {cell(c.summary)} |" for c in claims]
    return "\n".join([*lines, "", GENERAL_RULE, "", *(f"- {c.id}: {c.rule}" for c in claims), ""])


def print_claims(claims: Sequence[Claim], console: Console) -> None:
    """Each claim with its verdict, numbers and rule; where panels differ, the verdict in each. The rest is in `to_json`."""
    # intervals in brackets would be taken for markup
    show = lambda text, style="", indent=4: console.print(Padding(Text(text, style), (0, 0, 0, indent), expand=False))
    for claim in claims:
        console.print(Text.assemble((claim.id, "bold"), " ", (_words(claim.verdict), f"bold {COLOURS[claim.verdict]}")))
        show(claim.statement)
        show(claim.summary, "bold")
        show(claim.rule, "dim italic")
        voting = [evidence for evidence in claim.evidence if evidence.votes]
        panels = dict.fromkeys(evidence.panel for evidence in voting)
        for panel in panels if len(panels) > 1 else ():
            marks = [f"{MARKS[e.verdict]} {e.what} {e.numbers if e.seeds else ''}".strip() for e in voting if e.panel == panel]
            show(f"{panel}: {'; '.join(marks)}")
        for measure, parts in _without_vote(claim).items():
            marks = [f"{MARKS[e.verdict]} {e.what.removeprefix(f'{measure}, ')} {e.numbers}" for e in parts]
            show(f"not used for the verdict, {measure}: {'; '.join(marks)}", "dim")
        console.print()
    console.print(Text(f"Marks: + holds, - does not hold, ? undecided. {GENERAL_RULE}", "dim italic"))


def _without_vote(claim: Claim) -> dict[str, list[Evidence]]:
    """Evidence that is reported only, by the measure whose name it begins with."""
    found: dict[str, list[Evidence]] = {}
    for evidence in claim.evidence:
        if not evidence.votes:
            found.setdefault(evidence.what.split(", ")[0], []).append(evidence)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _words(verdict: Verdict) -> str:
    return "is undecided" if verdict == "undecided" else verdict
