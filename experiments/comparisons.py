"""Comparisons of methods, as evidence: one number per seed, in the rounds and over the seeds that both methods have."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from experiments.evidence import MINIMUM_SEEDS, UNDECIDABLE, Evidence, Rule, Unit, overall
from experiments.paper import Panel
from experiments.scores import panel_span
from sonde.evaluation._statistics import Curve, Estimate, Sample, on_common_rounds, paired
from sonde.runs.sweep import Results

TINY = 1e-12  # below any uncertainty that matters; keeps the log finite
NO_SPAN = "{0.metric} has no span in {0.setting}, which takes random actions and something better"
PerSeed = Callable[[np.ndarray], np.ndarray]


def compare_uncertainty(
    results: Results, panel: Panel, first: str, second: str, rule: Rule, others: Sequence[str] = ()
) -> list[Evidence]:
    """One method's uncertainty in comparison with another's; other measures of it, where there are any, do not vote."""
    blank = blank_evidence(panel, f"{first} over {second}", "log ratio")
    area = lambda values: log_of(values).mean(axis=1)
    found = [compare(results, panel, first, second, area, rule, blank)]
    for metric in others:
        other = replace(blank, what=f"{metric}, {blank.what}", votes=False)
        part = compare(results, replace(panel, metric=metric), first, second, area, rule, other)
        found += [part] if part.seeds else []
    return found


def compare_scores(results: Results, panel: Panel, first: str, second: str, rule: Rule) -> Evidence:
    """The difference of best returns in parts of the panel's span, whose ends are taken as known."""
    blank, span = blank_evidence(panel, f"{first} less {second}", "score"), panel_span(results, panel)
    best = lambda values: values.max(axis=1)
    if span is None:
        part = compare(results, panel, first, second, best, UNDECIDABLE, replace(blank, unit="return"))
        return replace(part, note=NO_SPAN.format(panel) if part.seeds else part.note)
    blank = replace(blank, note=f"span {span.width:.3g}, to {span.top}")
    return compare(results, panel, first, second, lambda values: span.score(best(values)), rule, blank)


def compare_success(results: Results, panel: Panel, first: str, second: str, rule: Rule) -> Evidence:
    """The difference of success rates in the last round in which both evaluated the task."""
    blank = blank_evidence(panel, f"{first} less {second}", "success")
    return compare(results, panel, first, second, lambda values: values[:, -1], rule, blank)


def compare(
    results: Results, panel: Panel, first: str, second: str, per_seed: PerSeed, rule: Rule, blank: Evidence
) -> Evidence:
    """The paired difference of one number per seed, made from the rounds that both methods have."""
    curves = {name: results.curve(panel.setting, name, panel.metric) for name in (first, second)}
    found = [curve for curve in curves.values() if curve is not None]
    if len(found) < 2:
        absent = " and ".join(name for name, curve in curves.items() if curve is None)
        return replace(blank, note=f"{panel.metric} of {absent} is missing in {panel.setting}")
    mine, theirs = on_common_rounds(found)
    if not len(mine.rounds):
        return replace(blank, note=f"{first} and {second} have no round of {panel.metric} in common in {panel.setting}")
    difference = paired(Sample(mine.seeds, per_seed(mine.values)), Sample(theirs.seeds, per_seed(theirs.values)))
    if not difference.seeds:
        return replace(blank, note=f"{first} and {second} have no seed in common in {panel.setting}")
    return judged(blank, difference, rule, mine)


def judged(blank: Evidence, answer: Estimate, rule: Rule, curve: Curve) -> Evidence:
    """The evidence with its numbers, and the verdict if there are enough seeds."""
    few = answer.seeds < MINIMUM_SEEDS
    strange = "" if math.isfinite(answer.mean) else "some values are not finite"
    notes = (blank.note, f"fewer than {MINIMUM_SEEDS} seeds decide nothing" if few else "", strange)
    return replace(
        blank,
        verdict="undecided" if few else rule.verdict(answer.interval(), answer.interval(rule.confidence)),
        estimate=answer.mean,
        interval=answer.interval(),
        bootstrap=answer.bootstrap,
        p_t=answer.p_t,
        p_wilcoxon=answer.p_wilcoxon,
        seeds=answer.seeds,
        rounds=int(curve.rounds[-1]),
        note="; ".join(note for note in notes if note),
    )


def blank_evidence(panel: Panel, what: str, unit: Unit) -> Evidence:
    """Evidence that has not been gathered yet."""
    return Evidence(panel.setting, panel.title, what, "undecided", unit)


def log_of(values: Float[np.ndarray, "S T"]) -> Float[np.ndarray, "S T"]:
    """The log of an uncertainty; NaN, which nothing can be concluded from, where it is not finite."""
    return np.log(np.where(np.isfinite(values), np.maximum(values, TINY), np.nan))


def counted(evidence: Sequence[Evidence]) -> str:
    """How many hold, and how many do not."""
    verdicts = [part.verdict for part in evidence if part.votes]
    return f"of {len(verdicts)} comparisons {verdicts.count('holds')} hold, {verdicts.count('does not hold')} do not"


def listed(evidence: Sequence[Evidence]) -> str:
    """The numbers of all parts that vote, panel by panel where there are several; how many parts have none."""
    known = [part for part in evidence if part.votes and not math.isnan(part.estimate)]
    unknown = sum(part.votes for part in evidence) - len(known)
    panels = list(dict.fromkeys(part.panel for part in known))
    numbers = {name: ", ".join(f"{p.what} {p.numbers}" for p in known if p.panel == name) for name in panels}
    lines = [f"{name}: {text}" if len(panels) > 1 else text for name, text in numbers.items()]
    return "; ".join(lines + ([f"{unknown} without numbers"] if unknown else []))


def by_setting(evidence: Sequence[Evidence]) -> str:
    """The verdict in each setting, and the panels in which all hold."""
    joined = lambda parts: overall([part.verdict for part in parts])
    settings = {name: joined([p for p in evidence if p.setting == name]) for name in dict.fromkeys(p.setting for p in evidence)}
    panels = {name: joined([p for p in evidence if p.panel == name]) for name in dict.fromkeys(p.panel for p in evidence)}
    held = ", ".join(name for name, verdict in panels.items() if verdict == "holds")
    return f"{', '.join(f'{name} {verdict}' for name, verdict in settings.items())}; all hold on: {held or 'no task'}"


def latest(results: Results, panels: Sequence[Panel], methods: Sequence[str]) -> str:
    """Each method's mean over seeds in the last round that it has, panel by panel."""
    found = []
    for panel in panels:
        by_round: dict[int, list[str]] = {}
        for method in methods:
            if (curve := results.curve(panel.setting, method, panel.metric)) is not None:
                mean = f"{method} {curve.values[:, -1].mean():.2f}"
                by_round.setdefault(int(curve.rounds[-1]), []).append(mean)
        found += [f"{panel.title}, round {number}: {', '.join(means)}" for number, means in sorted(by_round.items())]
    return "; ".join(found) or "none"
