"""Scores that tasks share: spans from random actions to the oracle, and aggregates over tasks."""

import numpy as np
import pytest
from scipy import stats

from experiments.paper import Panel
from experiments.scores import aggregate_scores, panel_span, saturated_panels
from sonde.evaluation._statistics import iqm, stratified_interval
from sonde.runs.sweep import Results

SWING = Panel("pendulum-pe", "return/swing-up", "swing-up")
DOWN = Panel("pendulum-pe", "return/keep-down", "keep-down")


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def rows(panel: Panel, method: str, values, first_round: int = 1) -> list[dict]:
    """Values [S, T] as rows."""
    return [
        {"setting": panel.setting, "method": method, "seed": seed, "round": first_round + t, panel.metric: float(value)}
        for seed, curve in enumerate(values)
        for t, value in enumerate(curve)
    ]


def test_span_runs_from_random_actions_to_the_oracle():
    references = rows(SWING, "random-actions", [[-100], [-120]], 0) + rows(SWING, "oracle", [[-5], [-15]], 0)
    span = panel_span(Results(references + rows(SWING, "opax", [[3, 2]])), SWING)
    assert span is not None and (span.zero, span.one, span.top) == (-110, -10, "the oracle")
    np.testing.assert_allclose(span.score(np.array([-110.0, -60, -10, 90])), [0, 0.5, 1, 2])


def test_span_without_oracle_ends_at_the_best_method():
    explored = rows(SWING, "opax", [[-80, -90], [-60, -70]]) + rows(SWING, "random", [[-95], [-95]])
    span = panel_span(Results(explored + rows(SWING, "random-actions", [[-100]], 0)), SWING)
    # best so far of opax: -80 and -60
    assert span is not None and (span.zero, span.one, span.top) == (-100, -70, "the best method, opax")


@pytest.mark.parametrize("zero", [[], [[-50]]])
def test_there_is_no_span_without_random_actions_or_if_they_are_best(zero):
    assert panel_span(Results(rows(SWING, "opax", [[-80]]) + rows(SWING, "random-actions", zero, 0)), SWING) is None


def test_aggregate_is_over_what_all_methods_have():
    references = [
        row for panel in (SWING, DOWN) for row in rows(panel, "oracle", [[1]], 0) + rows(panel, "random-actions", [[0]], 0)
    ]
    swing, down = normal(8, 3), normal(8, 2, seed=1)
    explored = rows(SWING, "opax", swing) + rows(DOWN, "opax", down) + rows(SWING, "random", swing[:, :2] - 1)
    alone = aggregate_scores(Results(merged(references + explored)), [SWING, DOWN], ["opax"])["opax"]
    assert alone.panels == (SWING, DOWN)
    finals = [swing.max(1), down.max(1)]
    assert alone.score == pytest.approx(stats.trim_mean(np.concatenate(finals), 0.25))
    assert alone.interval == stratified_interval(finals) and alone.interval[0] < alone.score < alone.interval[1]

    both = aggregate_scores(Results(merged(references + explored)), [SWING, DOWN], ["opax", "random", "h-ucrl"])
    # random has the swing-up only, and two rounds of it; h-ucrl has nothing
    assert list(both) == ["opax", "random"] and both["opax"].panels == (SWING,)
    assert both["opax"].score == pytest.approx(float(iqm(swing[:, :2].max(1))))
    assert both["opax"].score - both["random"].score == pytest.approx(1)


def test_panel_is_saturated_if_every_seed_of_every_method_solves_it():
    references = [
        row for panel in (SWING, DOWN) for row in rows(panel, "oracle", [[1]], 0) + rows(panel, "random-actions", [[0]], 0)
    ]
    explored = rows(SWING, "opax", [[1.0], [1.0]]) + rows(SWING, "random", [[1.0], [0.98]])
    explored += rows(DOWN, "opax", [[0.0, 0.995], [1.0, 1.0]]) + rows(DOWN, "random", [[1.2, 1.0], [0.991, 0.5]])
    table = Results(merged(references + explored))
    assert saturated_panels(table, [SWING, DOWN], ["opax", "random"]) == (DOWN,)
    assert saturated_panels(table, [SWING, DOWN], ["opax"]) == (SWING, DOWN)
    assert saturated_panels(table, [SWING], ["opax", "random"]) == saturated_panels(Results([]), [SWING], ["opax"]) == ()


def test_panels_with_fewer_seeds_weigh_the_same_in_an_aggregate():
    references = [
        row for panel in (SWING, DOWN) for row in rows(panel, "oracle", [[1]], 0) + rows(panel, "random-actions", [[0]], 0)
    ]
    swing, down = np.linspace(0, 1, 12)[:, None], np.array([[0.2], [0.9], [0.5], [0.7]])
    explored = rows(SWING, "opax", swing) + rows(DOWN, "opax", down)
    aggregate = aggregate_scores(Results(merged(references + explored)), [SWING, DOWN], ["opax"])["opax"]
    # each of the four counts for three of the twelve
    values = np.sort([*swing[:, 0], *down[:, 0], *down[:, 0], *down[:, 0]])
    assert aggregate.score == pytest.approx(values[6:18].mean())
    assert aggregate.interval[0] < aggregate.score < aggregate.interval[1]


def test_there_is_no_aggregate_without_results():
    assert aggregate_scores(Results([]), [SWING], ["opax"]) == {}
    assert aggregate_scores(Results(rows(SWING, "opax", [[1.0]])), [SWING], ["opax"]) == {}


def merged(parts: list[dict]) -> list[dict]:
    """Metrics of the same round in one row, as runs write them."""
    together: dict[tuple, dict] = {}
    for row in parts:
        together.setdefault(tuple(row[name] for name in ("setting", "method", "seed", "round")), {}).update(row)
    return list(together.values())
