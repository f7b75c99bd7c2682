"""Scores that tasks share: returns on a scale from random actions to the oracle, or to the best method."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from experiments.paper import Panel
from experiments.references import ORACLE, RANDOM_ACTIONS
from sonde.evaluation._statistics import Curve, Interval, iqm, on_common_rounds, pool, stratified_interval
from sonde.runs.sweep import Results

SOLVED = 0.99
"""Score from which a task counts as solved: it is within a hundredth of the span of its upper end."""


@dataclass(frozen=True)
class Span:
    """What a panel's returns are measured by: 0 is random actions, 1 is what `top` says."""

    zero: float
    one: float
    top: str
    """The oracle, or the best method where there is no oracle."""

    @property
    def width(self) -> float:
        """The return between 0 and 1."""
        return self.one - self.zero

    def score(self, returns: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
        """Returns as scores."""
        return (returns - self.zero) / self.width


@dataclass(frozen=True)
class Aggregate:
    """A method's interquartile mean score over all seeds of several panels, which count the same."""

    score: float
    interval: Interval
    panels: tuple[Panel, ...]


def panel_span(results: Results, panel: Panel) -> Span | None:
    """The span of a panel of returns, from means over seeds.

    1 is the oracle or, where there is none, the highest mean of "best so far" in the last round of any method. None without
    random actions, or if nothing is better than they are.
    """
    curves = {method: results.curve(panel.setting, method, panel.metric) for method in results.methods(panel.setting)}
    found = {method: curve for method, curve in curves.items() if curve is not None}
    zero, oracle = found.pop(RANDOM_ACTIONS, None), found.pop(ORACLE, None)
    if zero is None or (oracle is None and not found):
        return None
    if oracle is None:
        finals = {method: float(curve.values.max(axis=1).mean()) for method, curve in found.items()}
        best = max(finals, key=lambda method: finals[method])
        one, top = finals[best], f"the best method, {best}"
    else:
        one, top = float(oracle.values.mean()), "the oracle"
    span = Span(float(zero.values.mean()), one, top)
    return span if 0 < span.width < np.inf else None


def aggregate_scores(results: Results, panels: Sequence[Panel], methods: Sequence[str]) -> dict[str, Aggregate]:
    """Each method's score ("best so far", in the last round that all have) over the panels that all have.

    Methods without any round are left out; panels count where all others, and a span, are there.
    """
    ran, scores = _scores(results, panels, methods)
    if not scores:
        return {}
    aggregates = {}
    for place, method in enumerate(ran):
        groups = [found[place] for found in scores.values()]
        aggregates[method] = Aggregate(float(iqm(pool(groups))), stratified_interval(groups), tuple(scores))
    return aggregates


def saturated_panels(results: Results, panels: Sequence[Panel], methods: Sequence[str]) -> tuple[Panel, ...]:
    """The panels that cannot tell methods apart: every seed of every method has solved the task.

    In an aggregate over several panels they bring all methods closer together.
    """
    _, scores = _scores(results, panels, methods)
    return tuple(panel for panel, found in scores.items() if min(float(each.min()) for each in found) >= SOLVED)


def _scores(
    results: Results, panels: Sequence[Panel], methods: Sequence[str]
) -> tuple[list[str], dict[Panel, list[Float[np.ndarray, " S"]]]]:
    """The methods that have any round, and their scores in each panel that counts."""
    returns = [panel for panel in panels if panel.is_return]
    ran = [m for m in methods if any(results.curve(panel.setting, m, panel.metric) is not None for panel in returns)]
    return ran, {panel: found for panel in returns if (found := _panel_scores(results, panel, ran)) is not None}


def _panel_scores(results: Results, panel: Panel, methods: Sequence[str]) -> list[Float[np.ndarray, " S"]] | None:
    """The score of each method and seed; None if a method, a common round or a span is missing."""
    span = panel_span(results, panel)
    curves: list[Curve] = []
    for method in methods:
        curve = results.curve(panel.setting, method, panel.metric)
        if curve is None:
            return None
        curves.append(curve)
    if span is None or not curves:
        return None
    shared = on_common_rounds(curves)
    return [span.score(curve.values.max(axis=1)) for curve in shared] if len(shared[0].rounds) else None
