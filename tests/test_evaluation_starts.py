"""Evaluations start in the same states and have the same goals in all rounds, for all methods and for the references."""

from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from experiments.references import reference_rows
from sonde.control import run_rollouts
from sonde.evaluation import _evaluate
from sonde.runs import PRESETS, preset
from sonde.runs._progress import ProgressDisplay
from sonde.runs._run import run
from sonde.runs._store import RunStore
from sonde.worlds import MountainCar
from test_goals import InJax
from tiny import TINY

RANDOM = replace(TINY, seeds=2, rounds=2, horizon=12, evaluation_rollouts=3)


@pytest.fixture
def played(monkeypatch):
    """Start states [S, R, dx] and goals [S, R, dg] of each evaluation."""
    found = []

    def watched(world, controller, rollouts, *, goals=None, **options):
        trajectories = run_rollouts(world, controller, rollouts, goals=goals, **options)
        found.append((np.stack([part.states[:, 0] for part in trajectories], axis=1), goals))
        return trajectories

    monkeypatch.setattr(_evaluate, "run_rollouts", watched)
    return found


@pytest.mark.slow
def test_starts_depend_on_the_seed_only(played, tmp_path):
    config = replace(RANDOM, world=MountainCar())
    run(RunStore.create(tmp_path / "random", config.with_method("random")))
    run(RunStore.create(tmp_path / "mean", config.with_method("mean-ae")))
    run(RunStore.create(tmp_path / "alone", replace(config.with_method("random"), seeds=1, first_seed=1, rounds=1)))
    reference_rows(config.with_method("random"))
    first, *others = [starts for starts, _ in played]
    assert len(others) == 2 * 2 - 1 + 1 + 2 and first.shape == (2, 3, 2)
    for starts in others:
        np.testing.assert_array_equal(starts, first[-len(starts) :])  # the run of one seed has the second one
    assert len(np.unique(first[..., 0])) == 6, "all rollouts of all seeds start elsewhere"


@pytest.mark.slow
def test_goals_depend_on_the_seed_and_the_task_only(played, tmp_path):
    run(RunStore.create(tmp_path / "run", replace(RANDOM, world=InJax(), evaluation_tasks=("go",)).with_method("random")))
    (_, first), (_, second) = played
    np.testing.assert_array_equal(first, second)
    assert first.shape[:2] == (2, 3) and len(np.unique(first)) == first.size


@pytest.mark.parametrize("name", [name for name in PRESETS if name.startswith(("reacher", "swimmer", "cheetah"))])
def test_mujoco_presets_evaluate_several_starts_every_fifth_round(name):
    assert preset(name).evaluation_rollouts >= 5 and preset(name).evaluate_every == 5


def test_progress_shows_current_and_best_return():
    """Means over seeds of each seed's return, and of each seed's best; the second round is not evaluated."""
    config = replace(TINY, evaluation_tasks=("swing-up",), seeds=2)
    row = lambda number, seed, value: {"round": number, "seed": seed, "return/swing-up": value}
    rounds = [[row(1, 0, -30.0), row(1, 1, -10.0)], [row(2, 0, None), row(2, 1, None)], [row(3, 0, -20.0), row(3, 1, -40.0)]]
    console = Console(record=True, width=1000, force_terminal=False)
    display = ProgressDisplay(console)
    display.on_run_start(config, [])
    for number, rows in enumerate(rounds, 1):
        display.on_phase(number, "plan", "")
        display.on_round_end(number, rows)
    lines = [line for line in console.export_text().splitlines() if line.startswith("round ")]
    shown = [line.split("swing-up ")[1].split(", plan s")[0] for line in lines]
    assert shown == ["-20.0", "-", "-30.0 (best -15.0)"]
