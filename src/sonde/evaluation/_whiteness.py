"""Whether the state is complete: errors of a model that depend on what happened before the present.

If the next state follows from the present state and action, what a model cannot explain is noise: it does not depend on earlier
actions or observations. If actions act late, or something is not measured, it does. After each round the model that has
learned from the round is asked about the round's own measurements. A model that is still ignorant elsewhere does well on these,
so that what it gets wrong is noise, or not in its state.

Errors are regressed on the state and action, and on these with the past. The F-test of the second against the first is the test
of whiteness. With many measurements it sees dependence that is too small to matter, and errors that follow each other smoothly
look more certain to it than they are; so what counts is how much of the errors the past explains in blocks of measurements that
the regression has not seen.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from sonde._internal.past import Past
from sonde.data import Trajectory
from sonde.evaluation._schema import PAST_DELAY, PAST_EXPLAINS, WHITENESS

ACTIONS, CHANGES = 4, 2
"""Earlier actions, and earlier changes of the observation, that errors are regressed on."""
FOLDS = 5
"""Blocks of measurements, each of which is predicted from the others."""
ENOUGH = 2.0
"""Rows that the regression needs, at least, for each of its columns."""
MOST = 0.9
"""Share of what the whole past explains from which a part of it is enough."""
SIGNIFICANT = 1e-3
"""p-value of the F-test below which errors are not white."""
MATTERS = 0.05
"""Std of what the past explains, in stds of the changes, from which the state is called incomplete."""


class Whiteness(NamedTuple):
    """What the test says about the errors of one seed."""

    p: float
    """Smallest p-value over the outputs, times their number."""
    explains: float
    """Largest std over the outputs of what the past explains, in stds of the changes."""
    delay: float
    """The delay with which past actions explain it; NaN if past observations are needed, or nothing is explained."""


UNKNOWN = Whiteness(np.nan, np.nan, np.nan)


def whiteness_metrics(trajectory: Trajectory, errors: np.ndarray, past: Past) -> dict[str, np.ndarray]:
    """Test whether the past explains the errors of a round.

    Args:
        trajectory: Measurements of the round [S, T, ...], without the past.
        errors: Measured minus predicted next states, of the model that has learned from the round [S, T, dx].
        past: What of the past belongs to the state already.

    Returns:
        Values [S] by key of the schema; NaN where the round is too short.
    """
    begins = np.zeros(errors.shape[:2], bool)
    begins[:, 0] = True
    if trajectory.ended is not None:
        begins[:, 1:] = trajectory.ended[:, :-1]
    wide = Past(past.delay + ACTIONS - CHANGES, past.history + CHANGES)
    before = wide.along(trajectory.states, trajectory.actions, begins)
    place = np.arange(errors.shape[1])
    since = place - np.maximum.accumulate(np.where(begins, place, 0), axis=1)
    found = []
    for seed, known in enumerate(since >= wide.actions):
        x, u, step = trajectory.states[seed], trajectory.actions[seed], trajectory.next_states[seed] - trajectory.states[seed]
        spread = np.std(step, axis=0)
        in_stds = np.divide(errors[seed], spread, out=np.zeros_like(step), where=spread > 0)
        columns = _columns(x[known], u[known], before[seed][known], past)
        found.append(_tested(columns, in_stds[known], past))
    keys = WHITENESS.key, PAST_EXPLAINS.key, PAST_DELAY.key
    return dict(zip(keys, np.array(found).T, strict=True))


class _Columns(NamedTuple):
    """What errors are regressed on."""

    state: np.ndarray
    """A constant, the state with its past, and the action [n, c]."""
    actions: list[np.ndarray]
    """Earlier actions, the latest first, each [n, du]."""
    changes: np.ndarray
    """Earlier changes of the observation [n, m]."""


def _columns(x: np.ndarray, u: np.ndarray, before: np.ndarray, past: Past) -> _Columns:
    dx, du = x.shape[1], u.shape[1]
    changes, actions = np.split(before, [(past.changes + CHANGES) * dx], axis=1)
    own, earlier = np.split(changes, [past.changes * dx], axis=1)
    taken, others = np.split(actions, [past.actions * du], axis=1)
    state = np.column_stack([np.ones(len(x)), x, u, own, taken])
    return _Columns(state, np.split(others, ACTIONS, axis=1), earlier)


def _tested(columns: _Columns, errors: np.ndarray, past: Past) -> Whiteness:
    """Test the errors of one seed [n, dx], in stds of the changes."""
    state, everything = columns.state, np.column_stack([columns.state, *columns.actions, columns.changes])
    if len(errors) < ENOUGH * everything.shape[1]:
        return UNKNOWN
    p = _p_value(state, everything, errors)
    alone = _unseen_variance(state, errors)
    gain = lambda given: np.maximum(alone - _unseen_variance(given, errors), 0.0)
    explained = gain(everything)
    by_actions = [gain(np.column_stack([state, *columns.actions[:count]])).sum() for count in range(1, ACTIONS + 1)]
    # where the past is no help, the smallest regression does best: nothing is explained
    most = max(explained.sum(), *by_actions)
    enough = [count for count, found in enumerate(by_actions, 1) if most > 0 and found >= MOST * most]
    return Whiteness(p, float(np.sqrt(explained.max())), past.delay + enough[0] if enough else np.nan)


def _p_value(state: np.ndarray, everything: np.ndarray, errors: np.ndarray) -> float:
    """F-test of all columns against those of the state, with Bonferroni's correction over the outputs."""
    from scipy.stats import f

    few, many = (errors - matrix @ np.linalg.lstsq(matrix, errors, rcond=None)[0] for matrix in (state, everything))
    less, more = np.sum(few**2, axis=0), np.sum(many**2, axis=0)
    added = np.linalg.matrix_rank(everything) - np.linalg.matrix_rank(state)
    left = len(errors) - np.linalg.matrix_rank(everything)
    if added <= 0 or left <= 0:
        return 1.0
    ratio = np.divide((less - more) / added, more / left, out=np.zeros_like(more), where=more > 0)
    return float(min(1.0, f.sf(ratio, added, left).min() * errors.shape[1]))


def _unseen_variance(columns: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """Mean square of what a regression leaves of the errors in blocks that it has not seen, per output [dx]."""
    left = np.empty_like(errors)
    for block in np.array_split(np.arange(len(errors)), FOLDS):
        seen = np.setdiff1d(np.arange(len(errors)), block)
        left[block] = errors[block] - columns[block] @ np.linalg.lstsq(columns[seen], errors[seen], rcond=None)[0]
    return np.mean(left**2, axis=0)


def incomplete_warning(rows: Sequence[Mapping[str, Any]], past: Past) -> str | None:
    """Say that the state is incomplete, if most seeds of a round show it.

    Args:
        rows: Metrics of all seeds after one round.
        past: What of the past belongs to the state already.

    Returns:
        One sentence with what to change; None if nothing is wrong, or it is not known.
    """
    tests = [[row.get(spec.key) for spec in (WHITENESS, PAST_EXPLAINS, PAST_DELAY)] for row in rows]
    shown = [(e, d) for p, e, d in tests if p is not None and e is not None and p < SIGNIFICANT and e > MATTERS]
    if 2 * len(shown) <= len(rows):
        return None
    share = sum(explained for explained, _ in shown) / len(shown)
    delays = [delay for _, delay in shown if delay is not None]
    if 2 * len(delays) > len(shown):
        remedy = f"actions seem to act late: try --delay {round(float(np.median(delays)))}"
    else:
        remedy = f"try --history {past.history + 1}"
    seeds = f" in {len(shown)} of {len(rows)} seeds" if len(rows) > 1 else ""
    return (
        f"The state is incomplete after round {rows[0]['round']}: the model's errors depend on what happened before "
        f"({100 * share:.0f} % of the size of a step){seeds}; {remedy}."
    )
