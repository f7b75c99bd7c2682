"""Which batches a figure needs, and which of them exist."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from experiments import grid
from experiments.grid import Grid
from experiments.paper import FIGURES, TASKS, TRAINED_ON, run_config
from sonde._internal.errors import SondeError
from sonde.runs.sweep import Batch
from tiny import TINY


def tiny_config(setting, method, rounds, seeds, *, lite=False):
    return replace(TINY.with_method(method), horizon=6, rounds=rounds, seeds=seeds)


@pytest.fixture
def tiny_runs(monkeypatch):
    monkeypatch.setattr(grid, "run_config", tiny_config)


def wanted(out: Path, seeds: int, **changes) -> Grid:
    return replace(Grid(("pendulum-gp",), ("opax", "random"), {"pendulum-gp": 4}, seeds, False, out), **changes)


def folders(batches: list[Batch], out: Path) -> list[str]:
    return [str(batch.folder.relative_to(out / "runs" / "pendulum-gp")) for batch in batches]


def test_more_seeds_become_a_further_batch_and_fewer_take_what_they_need(tiny_runs, tmp_path):
    first = wanted(tmp_path, 3).batches()
    assert folders(first, tmp_path) == ["references-seeds-0-2", "opax/4-rounds-seeds-0-2", "random/4-rounds-seeds-0-2"]
    for batch in first:
        batch.create()
    more = wanted(tmp_path, 5, methods=("opax",)).batches()
    names = ["references-seeds-0-2", "references-seeds-3-4", "opax/4-rounds-seeds-0-2", "opax/4-rounds-seeds-3-4"]
    assert folders(more, tmp_path) == names
    assert [list(batch.config.seed_list) for batch in more] == [[0, 1, 2], [3, 4]] * 2
    for batch in more:
        batch.create()
    assert folders(wanted(tmp_path, 2, methods=("opax",)).batches(), tmp_path) == names[::2]
    assert folders(wanted(tmp_path, 5, methods=("opax",)).batches(), tmp_path) == names
    longer = wanted(tmp_path, 3, rounds={"pendulum-gp": 9}, methods=("opax",)).batches()
    assert folders(longer, tmp_path) == ["references-seeds-0-2", "opax/9-rounds-seeds-0-2"]


def test_gaps_between_seeds_are_filled(tiny_runs, tmp_path):
    for batch in wanted(tmp_path, 6, methods=("opax",)).batches():
        middle = replace(batch.config, first_seed=2, seeds=2)
        replace(batch, config=middle, folder=batch.folder.with_name(batch.folder.name.replace("0-5", "2-3"))).create()
    seeds = [batch.seeds for batch in wanted(tmp_path, 6, methods=("opax",)).batches() if batch.method == "opax"]
    assert seeds == ["2-3", "0-1", "4-5"]


def test_batches_with_other_settings_are_rejected(tiny_runs, tmp_path, monkeypatch):
    for batch in wanted(tmp_path, 3).batches():
        batch.create()
    monkeypatch.setattr(grid, "run_config", lambda *args, **kwargs: replace(tiny_config(*args, **kwargs), horizon=8))
    with pytest.raises(SondeError, match=r"made with other settings: horizon is 6 there and 8 here; name another folder"):
        wanted(tmp_path, 3).batches()
    assert wanted(tmp_path, 3, lite=True).batches()  # they have folders of their own


def test_unfinished_batches_are_found(tiny_runs, tmp_path):
    references, opax, random = wanted(tmp_path, 3).batches()
    for batch in (references, opax, random):
        assert batch.rounds_done() == 0 and batch.rows() == [] and batch.seconds_per_round() is None
        batch.create()
    (opax.folder / "checkpoints" / "0004.json").write_text("{}")
    (random.folder / "checkpoints" / "0003.json").write_text("{}")
    (random.folder / "checkpoints" / "0004.safetensors").write_bytes(b"")  # the note that completes it is missing
    unfinished = [batch for batch in wanted(tmp_path, 3).batches() if not batch.finished]
    assert folders(unfinished, tmp_path) == ["references-seeds-0-2", "random/4-rounds-seeds-0-2"]
    assert [batch.rounds_done() for batch in unfinished] == [0, 3]


def test_figures_without_returns_evaluate_no_tasks_but_use_runs_that_did(tiny_runs, tmp_path):
    without = wanted(tmp_path, 3, methods=("opax",), evaluate_tasks=False)
    assert folders(without.batches(), tmp_path) == ["opax/4-rounds-no-tasks-seeds-0-2"]
    assert [batch.config.evaluate_every for batch in without.batches()] == [0]
    for batch in wanted(tmp_path, 3, methods=("opax",)).batches():
        batch.create()
    with_tasks, more = wanted(tmp_path, 5, methods=("opax",), evaluate_tasks=False).batches()
    assert folders([with_tasks, more], tmp_path) == ["opax/4-rounds-seeds-0-2", "opax/4-rounds-no-tasks-seeds-3-4"]
    more.create()
    assert folders(without.batches(), tmp_path) == ["opax/4-rounds-seeds-0-2"]
    # one that has merely begun does not hide another that is further
    whole = replace(more.config, first_seed=0, seeds=5)
    further = replace(more, config=whole, folder=more.folder.with_name("4-rounds-no-tasks-seeds-0-4"))
    further.create()
    (further.folder / "checkpoints" / "0002.json").write_text("{}")
    assert folders(without.batches(), tmp_path) == ["opax/4-rounds-no-tasks-seeds-0-4"]
    shutil.rmtree(further.folder)
    again = wanted(tmp_path, 5, methods=("opax",), evaluate_tasks=False).batches()
    assert folders(again, tmp_path) == ["opax/4-rounds-seeds-0-2", "opax/4-rounds-no-tasks-seeds-3-4"]


def test_every_panel_is_evaluated_and_nothing_else_is():
    for setting in TRAINED_ON:
        shown = {p.task for f in FIGURES.values() for p in f.panels if p.setting == setting and p.is_return}
        assert set(run_config(setting, "opax", 2, 1).task_names) == set(TASKS[setting]) == shown
