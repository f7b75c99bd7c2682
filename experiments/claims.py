"""The paper's claims as functions of the results: each answers "holds", "does not hold" or "undecided", with its numbers.

What is compared is one number per seed: the mean over rounds of the log of an uncertainty (so a difference is the log of a
ratio, averaged over rounds), the best return until the last round, or the success rate in that round. Methods are compared in
the rounds, and over the seeds, that both have. `experiments.evidence` says how parts make a whole and how many seeds it takes;
what was not run leaves its part undecided.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from experiments.comparisons import (
    blank_evidence,
    by_setting,
    compare_scores,
    compare_success,
    compare_uncertainty,
    counted,
    judged,
    latest,
    listed,
    log_of,
)
from experiments.evidence import Claim, Evidence, Rule, above, below, markdown, overall, print_claims, within
from experiments.paper import ACTIVE, FIGURES, Panel
from experiments.scores import Span, panel_span
from sonde._internal.errors import one_of
from sonde.evaluation._statistics import Curve, estimate, on_common_rounds, share_interval
from sonde.runs.sweep import Results

__all__ = ["CLAIMS", "Claim", "Evidence", "judge_claims", "markdown", "print_claims"]

AT_OR_BELOW = 1.05
"""An uncertainty of at most this factor times another's is "at or below" it."""
ALIKE = 1.25
"""Uncertainties within this factor of each other, either way, are alike."""
ON_PAR, WIDE_MARGIN, LEVEL = 0.10, 0.25, 0.01
"""Parts of a panel's span (random actions to oracle or best method): within the first is on par, beyond the second a wide
margin, and less than the last is no difference worth the name (all methods keep the pendulum down to the thousandth)."""
ALIKE_SUCCESS = 0.05
"""Success rates within this, on a scale from 0 to 1, are on par."""
SOLVED_SCORE, SOLVED_SHARE = 0.5, 0.5
"""A seed has solved MountainCar if its return is that part of the way from random actions to the oracle; a method, if more than
this share of its seeds has."""
OTHER_MEASURES = ("max_epistemic_common", "mean_epistemic", "max_epistemic_box")
"""Uncertainties that are reported next to the paper's without a vote."""
GP, PE = FIGURES["uncertainty"].panels
CAR = next(panel for panel in FIGURES["downstream"].panels if panel.setting == "mountain-car")
Judged = tuple[list[Evidence], str]

CLAIMS: dict[str, Callable[[Results], Claim]] = {}
"""By name: C1 to C9."""


def judge_claims(results: Results, ids: Sequence[str]) -> list[Claim]:
    """The claims of those names."""
    for name in ids:
        one_of("claim", name, CLAIMS)
    return [CLAIMS[name](results) for name in ids]


def _claim(name: str, statement: str, rule: str) -> Callable[[Callable[[Results], Judged]], Callable[[Results], Claim]]:
    """Enter a function that gathers evidence, and sums it up in a line, into the table."""

    def enter(gather: Callable[[Results], Judged]) -> Callable[[Results], Claim]:
        def judge(results: Results) -> Claim:
            evidence, summary = gather(results)
            verdict = overall([part.verdict for part in evidence if part.votes])
            return Claim(name, statement, rule, verdict, summary, tuple(evidence))

        # the rule is written once, with the numbers above: this is the function's documentation too
        judge.__doc__ = f"{statement}.\n\n{rule}"
        CLAIMS[name] = judge
        return judge

    return enter


@_claim(
    "C1",
    "Pendulum with GP: OpAx, Mean-AE and PETS-AE each reduce the largest epistemic uncertainty faster than Random",
    "Each holds if the interval of the paired difference of the mean log uncertainty over rounds lies below 0, and does not "
    "hold if it lies above 0.",
)
def _gp_beats_random(results: Results) -> Judged:
    evidence = _faster_than_random(results, GP, len(ACTIVE))
    return evidence, f"largest uncertainty, geometric mean over rounds: {listed(evidence)}"


@_claim(
    "C2",
    "Pendulum with PE: the same, and OpAx is at or below Mean-AE and PETS-AE",
    "Against Random as in C1; OpAx against the two holds if the interval lies below the log of "
    f"{AT_OR_BELOW:g}, and otherwise does not hold if it lies above 0.",
)
def _pe_beats_random(results: Results) -> Judged:
    others = [name for name in ACTIVE if name != "opax"]
    rule = below(math.log(AT_OR_BELOW), 0.0).of(len(ACTIVE) + len(others))
    lowest = [part for name in others for part in compare_uncertainty(results, PE, "opax", name, rule, OTHER_MEASURES)]
    evidence = _faster_than_random(results, PE, rule.parts) + lowest
    return evidence, f"largest uncertainty, geometric mean over rounds: {listed(evidence)}"


@_claim(
    "C3",
    "Pendulum with GP: OpAx's uncertainty goes towards 0 over rounds (finitely many cannot show that it arrives)",
    "Holds if the intervals of the slope of log uncertainty over log round, over all rounds and over the later half of them, "
    "lie below 0; does not hold if either lies above 0.",
)
def _gp_fades(results: Results) -> Judged:
    slope, later, fall = evidence = _fading(results.curve(GP.setting, "opax", GP.metric), "opax")
    summary = slope.note
    if fall.seeds:
        slopes = f"goes as round^{slope.numbers}, in the later half as round^{later.numbers}"
        summary = f"{slopes}; last over first of {fall.rounds} rounds: {fall.numbers}"
    for metric in OTHER_MEASURES:
        parts = _fading(results.curve(GP.setting, "opax", metric), f"{metric}, opax")
        evidence += [replace(part, votes=False) for part in parts if part.seeds]
    return evidence, summary


@_claim(
    "C4",
    "On every task OpAx, Mean-AE and PETS-AE have a higher return than Random",
    f"Each method on each task holds if the interval of its best return less Random's lies above {LEVEL:.0%} of the span from "
    f"random actions to the oracle (or the best method), and does not hold if it lies below -{LEVEL:.0%} of it.",
)
def _tasks_beat_random(results: Results) -> Judged:
    panels = FIGURES["downstream"].panels
    rule = above(LEVEL, -LEVEL).of(len(panels) * len(ACTIVE))
    evidence = [compare_scores(results, panel, name, "random", rule) for panel in panels for name in ACTIVE]
    return evidence, f"{counted(evidence)}; {by_setting(evidence)}{_level(evidence)}"


@_claim(
    "C5",
    "MountainCar: OpAx solves it, Random does not",
    f"A seed has solved it if its best return is {SOLVED_SCORE:.0%} of the way from random actions to the oracle; a method "
    f"solves it if the exact 95 % interval of the share of seeds lies above {SOLVED_SHARE:g}, and does not if it lies below.",
)
def _car_is_solved(results: Results) -> Judged:
    rules = {"opax": above(SOLVED_SHARE, SOLVED_SHARE).of(2), "random": below(SOLVED_SHARE, SOLVED_SHARE).of(2)}
    curves = {method: results.curve(CAR.setting, method, CAR.metric) for method in rules}
    found = {method: curve for method, curve in curves.items() if curve is not None}
    shared = dict(zip(found, on_common_rounds(list(found.values())) if found else [], strict=True))
    span = panel_span(results, CAR)
    evidence = [_solved(method, shared.get(method), span, rule) for method, rule in rules.items()]
    return evidence, f"share of seeds: {listed(evidence)}"


@_claim(
    "C6",
    "On the tasks that H-UCRL was trained on, OpAx is on par with it",
    f"Each task holds if the interval of OpAx's best return less H-UCRL's lies above -{ON_PAR:.0%} of the span from random "
    "actions to the oracle (or the best method), and does not hold if it lies below that.",
)
def _on_par_where_trained(results: Results) -> Judged:
    panels = [panel for panel in FIGURES["downstream"].panels if not panel.unseen]
    rule = above(-ON_PAR, -ON_PAR).of(len(panels))
    evidence = [compare_scores(results, panel, "opax", "h-ucrl", rule) for panel in panels]
    return evidence, counted(evidence)


@_claim(
    "C7",
    "On tasks that H-UCRL was not trained on, OpAx, Mean-AE and PETS-AE beat it by a wide margin",
    f"Each method on each task holds if the interval of its best return less H-UCRL's lies above {WIDE_MARGIN:.0%} of the span "
    "from random actions to the oracle (or the best method), and does not hold if it lies below that.",
)
def _ahead_where_unseen(results: Results) -> Judged:
    panels = [panel for panel in FIGURES["downstream"].panels if panel.unseen]
    rule = above(WIDE_MARGIN, WIDE_MARGIN).of(len(panels) * len(ACTIVE))
    evidence = [compare_scores(results, panel, method, "h-ucrl", rule) for panel in panels for method in ACTIVE]
    return evidence, counted(evidence)


@_claim(
    "C8",
    "OpAx and OpAx-sum perform alike",
    f"Each panel holds if the interval of their difference lies within {ON_PAR:.0%} of the span (best return), or within the "
    f"log of {ALIKE:g} (mean log uncertainty over rounds), either way, and does not hold if it lies outside.",
)
def _rewards_are_alike(results: Results) -> Judged:
    evidence: list[Evidence] = []
    panels = FIGURES["rewards"].panels
    for panel in panels:
        if panel.is_return:
            evidence.append(compare_scores(results, panel, "opax", "opax-sum", within(ON_PAR).of(len(panels))))
        else:
            evidence += compare_uncertainty(results, panel, "opax", "opax-sum", within(math.log(ALIKE)).of(len(panels)))
    return evidence, counted(evidence)


@_claim(
    "C9",
    "FetchConstruction: OpAx (heuristic) is at least on par with PETS-AE, Mean-AE and CEE-US, and above Random, on pick & "
    "place, throw and flip",
    "Each comparison on each task holds if the interval of the difference of success rates, in the last round in which "
    f"both evaluated it, lies above -{ALIKE_SUCCESS:g} (above 0 against Random), and does not hold if it lies below that.",
)
def _manipulation(results: Results) -> Judged:
    figure = FIGURES["manipulation"]
    panels, (opax, *others) = [panel for panel in figure.panels if panel.kind == "success"], figure.methods
    limits = {name: 0.0 if name == "random" else -ALIKE_SUCCESS for name in others}
    parts = len(panels) * len(others)
    evidence = [
        compare_success(results, panel, opax, name, above(limit, limit).of(parts))
        for panel in panels
        for name, limit in limits.items()
    ]
    rates = latest(results, panels, figure.methods)
    return evidence, f"{counted(evidence)}; success rates: {rates}; differences: {listed(evidence)}"


def _faster_than_random(results: Results, panel: Panel, parts: int) -> list[Evidence]:
    rule = below(0.0, 0.0).of(parts)
    return [part for name in ACTIVE for part in compare_uncertainty(results, panel, name, "random", rule, OTHER_MEASURES)]


def _fading(curve: Curve | None, what: str) -> list[Evidence]:
    """How an uncertainty falls: slopes of its log over the log of the round; and, without a vote, the last over the first."""
    slope = blank_evidence(GP, f"{what}, slope of log over log", "exponent")
    later = blank_evidence(GP, f"{what}, slope in the later half", "exponent")
    fall = replace(blank_evidence(GP, f"{what}, last over first", "log ratio"), votes=False)
    if curve is None or len(curve.rounds) < 3:
        note = f"less than three rounds of opax in {GP.setting}"
        return [replace(part, note=note) for part in (slope, later, fall)]
    logs, rounds, rule = log_of(curve.values), np.log(curve.rounds), below(0.0, 0.0)
    half = len(rounds) // 2
    return [
        judged(slope, estimate(_slopes(logs, rounds)), rule.of(2), curve),
        judged(later, estimate(_slopes(logs[:, half:], rounds[half:])), rule.of(2), curve),
        judged(fall, estimate(logs[:, -1] - logs[:, 0]), rule, curve),
    ]


def _slopes(values: Float[np.ndarray, "S T"], places: Float[np.ndarray, " T"]) -> Float[np.ndarray, " S"]:
    """Least squares, for each seed."""
    centred = places - places.mean()
    return values @ centred / (centred @ centred)


def _level(evidence: Sequence[Evidence]) -> str:
    """The panels where nothing differs, which no claim of a difference can hold on."""
    panels = dict.fromkeys(part.panel for part in evidence)
    flat = lambda part: part.unit == "score" and part.interval[0] > -LEVEL and part.interval[1] < LEVEL
    level = [name for name in panels if all(flat(part) for part in evidence if part.panel == name)]
    return f"; level, to {LEVEL:.0%} of the span: {', '.join(level)}" if level else ""


def _solved(method: str, curve: Curve | None, span: Span | None, rule: Rule) -> Evidence:
    """In how many seeds MountainCar was solved. The interval is exact, so no number of seeds is too few."""
    blank = blank_evidence(CAR, method, "share")
    if curve is None or not len(curve.rounds):
        return replace(blank, note=f"{CAR.metric} of {method} is missing in {CAR.setting}, or not in the other's rounds")
    if span is None:
        return replace(
            blank, note=f"{CAR.metric} has no span in {CAR.setting}, which takes random actions and something better"
        )
    solved, seeds = int((span.score(curve.values.max(axis=1)) >= SOLVED_SCORE).sum()), len(curve.seeds)
    ends = share_interval(solved, seeds)
    verdict = rule.verdict(ends, share_interval(solved, seeds, rule.confidence))
    return replace(blank, verdict=verdict, estimate=solved / seeds, interval=ends, seeds=seeds, rounds=int(curve.rounds[-1]))
