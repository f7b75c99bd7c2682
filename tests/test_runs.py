"""Runs on disk: they survive interruptions, and damaged ones are rejected."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sonde._internal.errors import SondeError
from sonde.methods import METHODS
from sonde.models import Confidence, GaussianProcess
from sonde.models._calibration import LEVELS
from sonde.runs import PRESETS, RunConfig, explore
from sonde.runs._run import restore_explorer, run
from sonde.runs._store import RunStore
from tiny import TINY, TINY_OPTIONS
from user_parts import LargestAction

KEYS = {
    *("seed", "round", "transitions", "prediction_error", "overconfidence", "information_rank"),
    *("planned_information_gain", "realised_information_gain"),
    *("max_epistemic", "max_epistemic_common", "mean_epistemic", "model_rmse", "model_nll", "calibration_error"),
    *("return/swing-up", "return/keep-down", "seconds/plan", "seconds/fit", "seconds/world", "seconds/evaluate"),
}

CALIBRATION_KEYS = {f"calibration/{name}_{when}" for name in ("error", "coverage90") for when in ("before", "after")}


def without_times(rows):
    return [{k: v for k, v in row.items() if not k.startswith("seconds/")} for row in rows]


def contents(folder: Path) -> dict[str, bytes]:
    """All that must be the same in a finished run, however often it was interrupted."""
    paths = [p for name in ("data", "checkpoints") for p in sorted((folder / name).iterdir())]
    return {str(p.relative_to(folder)): p.read_bytes() for p in paths}


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> RunStore:
    store = RunStore.create(tmp_path_factory.mktemp("runs") / "finished", replace(TINY, seeds=2))
    run(store)
    return store


@pytest.fixture
def copy(finished, tmp_path) -> RunStore:
    shutil.copytree(finished.folder, tmp_path / "copy")
    return RunStore.open(tmp_path / "copy")


@pytest.mark.slow
def test_metrics_have_one_line_per_round_and_seed(finished):
    rows = finished.load_metrics()
    assert [(row["round"], row["seed"]) for row in rows] == [(e, s) for e in (1, 2, 3) for s in (0, 1)]
    assert all(row.keys() >= KEYS and not row.keys() & CALIBRATION_KEYS for row in rows)
    assert [row["transitions"] for row in rows[::2]] == [12, 24, 36]
    assert all(row["seconds/plan"] > 0 and row["seconds/fit"] > 0 for row in rows)


def recalibrated(folder: Path, holdout: float) -> RunStore:
    confidence = Confidence(holdout=holdout, recalibrate=True)
    config = replace(TINY, method=METHODS["random"], rounds=2, horizon=60, seeds=2, evaluate_every=0, confidence=confidence)
    store = RunStore.create(folder, config)
    run(store)
    return store


@pytest.mark.slow
def test_calibration_metrics_are_those_of_the_held_out_measurements(tmp_path):
    store = recalibrated(tmp_path / "run", 0.5)
    rows, calibration = store.load_metrics(), restore_explorer(store, 2).calibration
    assert all(row.keys() >= CALIBRATION_KEYS for row in rows)
    assert calibration is not None and LEVELS[-1] == 0.9
    for seed, row in enumerate(rows[2:]):
        for name, shares in (("before", calibration.before), ("after", calibration.after)):
            share = np.asarray(shares)[seed]
            errors = [abs(share[i, j] - level) for i, level in enumerate(LEVELS) for j in range(3)]
            assert row[f"calibration/error_{name}"] == pytest.approx(sum(errors) / 27)
            assert row[f"calibration/coverage90_{name}"] == pytest.approx(share[-1].mean())
    assert rows[2]["calibration/error_before"] != rows[3]["calibration/error_before"]
    assert rows[2]["calibration/error_before"] != rows[2]["calibration/error_after"]


@pytest.mark.slow
def test_calibration_metrics_are_null_where_nothing_was_held_out_yet(tmp_path):
    rows = recalibrated(tmp_path / "run", 0.01).load_metrics()  # of 120 measurements
    assert all(row[key] is None for row in rows for key in CALIBRATION_KEYS)


def test_last_two_checkpoints_and_all_data_are_kept(finished):
    assert finished.checkpoints() == [2, 3]
    assert len(finished.load_data(3)) == 3
    assert not list(finished.folder.rglob("*.part"))


@pytest.mark.parametrize("round_number", [0, 2])
def test_going_back_and_continuing_is_bit_identical(finished, copy, round_number):
    run(copy, from_round=round_number)
    assert contents(copy.folder) == contents(finished.folder)
    assert without_times(copy.load_metrics()) == without_times(finished.load_metrics())


def test_incomplete_lines_and_lines_of_later_rounds_are_dropped(finished, copy):
    future = {**copy.load_metrics()[-1], "round": 4}
    with open(copy.metrics_path, "a") as file:
        file.write(json.dumps(future) + "\n" + '{"seed": 0, "roun')
    run(copy)
    assert copy.load_metrics() == finished.load_metrics()


def test_restored_explorer_has_the_same_posterior(finished):
    first, again = (restore_explorer(finished, 3) for _ in range(2))
    assert first.transitions == 36
    assert np.array_equal(first.posterior.centres.factor, again.posterior.centres.factor)


def damage_truncate(path: Path):
    path.write_bytes(path.read_bytes()[:-7])


def damage_flip(path: Path):
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("damage", [damage_truncate, damage_flip, Path.unlink])
@pytest.mark.parametrize("suffix", ["safetensors", "json"])
def test_damaged_checkpoint_is_rejected_and_an_older_one_offered(finished, copy, damage, suffix):
    damage(copy.folder / "checkpoints" / f"0003.{suffix}")
    if (suffix, damage) == ("json", Path.unlink):
        # without its note a checkpoint was never finished: the run continues from the one before
        run(copy)
    else:
        before = contents(copy.folder)
        with pytest.raises(SondeError, match=r"checkpoint 0003 .*--from-round 2"):
            run(copy)
        assert contents(copy.folder) == before
        run(copy, from_round=2)
    assert contents(copy.folder) == contents(finished.folder)


def test_damaged_data_is_rejected(copy):
    damage_flip(copy.folder / "data" / "0001.safetensors")
    with pytest.raises(SondeError, match=r"0001.safetensors is missing or damaged.*--from-round 0"):
        run(copy)


def edit_config(store: RunStore, change) -> None:
    entries = json.loads((store.folder / "config.json").read_text())
    change(entries)
    (store.folder / "config.json").write_text(json.dumps(entries))


def test_checkpoint_of_another_config_is_rejected(copy):
    edit_config(copy, lambda entries: entries["method"]["imagination"].update(beta=3.0))
    with pytest.raises(SondeError, match=r"does not belong to this run: it was made with another config\.json"):
        run(RunStore.open(copy.folder))


def test_checkpoint_of_another_format_is_rejected(copy):
    path = copy.folder / "checkpoints" / "0003.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 1}))
    with pytest.raises(SondeError, match=r"another version of Sonde.*not of format 3 and round 3"):
        run(copy)


def test_two_processes_cannot_write_one_run(copy):
    with copy.locked(), pytest.raises(SondeError, match="in use by another process"):
        run(RunStore.open(copy.folder))
    before = contents(copy.folder)
    with copy.locked(), pytest.raises(SondeError, match="in use by another process"):
        RunStore.start(copy.folder, TINY, overwrite=True)
    assert contents(copy.folder) == before
    assert [path.name for path in copy.folder.parent.iterdir()] == ["copy"], "no draft is left behind"


def test_other_files_beside_checkpoints_are_ignored(copy):
    (copy.folder / "checkpoints" / "0003.bak.json").write_text("mine")
    assert copy.checkpoints() == [2, 3]


def test_run_without_one_of_its_folders_is_rejected(copy):
    shutil.rmtree(copy.folder / "checkpoints")
    with pytest.raises(SondeError, match="it has no checkpoints"):
        RunStore.open(copy.folder)


def test_folder_is_only_overwritten_on_request(copy, tmp_path):
    before = contents(copy.folder)
    with pytest.raises(SondeError, match="exists; choose another --out"):
        RunStore.create(copy.folder, TINY)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    with pytest.raises(SondeError, match="not the folder of a run"):
        RunStore.start(tmp_path / "mine", TINY, overwrite=True)
    assert (tmp_path / "mine" / "thesis.tex").exists() and contents(copy.folder) == before


def test_config_that_is_not_json_is_rejected(tmp_path):
    store = RunStore.create(tmp_path / "run", TINY)
    for nonsense in ("{", "[]", "null", ""):
        (store.folder / "config.json").write_text(nonsense)
        with pytest.raises(SondeError, match=r"config\.json"):
            RunStore.open(store.folder)


# explore() in Python


def test_explore_makes_the_same_run_and_continues_an_existing_folder(finished, tmp_path):
    config = replace(TINY, seeds=2)
    (tmp_path / "run").mkdir()  # an empty folder is no run yet
    explorer = explore(config, tmp_path / "run")
    assert explorer.round == 3 and contents(tmp_path / "run") == contents(finished.folder)
    for name in ("checkpoints/0003.json", "checkpoints/0003.safetensors", "data/0003.safetensors"):
        (tmp_path / "run" / name).unlink()
    assert explore(config, str(tmp_path / "run")).round == 3
    assert contents(tmp_path / "run") == contents(finished.folder)
    assert without_times(RunStore.open(tmp_path / "run").load_metrics()) == without_times(finished.load_metrics())
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    assert explore(config, tmp_path / "run").transitions == 36, "a finished run is only loaded"
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before


@pytest.mark.slow
def test_explore_rejects_a_folder_of_another_config(copy):
    before = contents(copy.folder)
    other = replace(copy.config, horizon=13, solver=replace(TINY.solver, samples=17))
    with pytest.raises(SondeError, match=r"solver.samples is 16 there and 17 here; horizon is 12 there and 13 here"):
        explore(other, copy.folder)
    assert contents(copy.folder) == before
    explore(replace(copy.config, first_seed=5, evaluate_every=0), copy.folder, overwrite=True)
    assert contents(copy.folder).keys() == before.keys() and contents(copy.folder) != before


def test_explore_rejects_a_folder_that_is_not_a_run(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(SondeError, match="not the folder of a run"):
        explore(TINY, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.slow
def test_run_with_a_whole_number_for_a_real_one_can_be_resumed(tmp_path):
    config = replace(TINY, evaluate_every=0, metrics=(LargestAction(scale=2),))
    explore(config, tmp_path / "run")
    assert run(RunStore.open(tmp_path / "run")).round == 3


# The command line, killed


def sonde(*args: str, read_only: bool = True) -> subprocess.Popen:
    """Start `sonde ARGS`; a process that will be killed does not write to the cache of compiled programs, but reads it."""
    environment = {**os.environ, **({"JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": str(2**60)} if read_only else {})}
    command = [sys.executable, "-m", "sonde", *args]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


@pytest.mark.slow
def test_kill_9_at_random_moments_changes_nothing(tmp_path):
    whole = sonde("explore", "pendulum-gp-lite", *TINY_OPTIONS, "--out", str(tmp_path / "whole"), read_only=False)
    assert whole.wait() == 0, whole.stderr.read()
    began = time.monotonic()
    killed = sonde("explore", "pendulum-gp-lite", *TINY_OPTIONS, "--out", str(tmp_path / "killed"))
    while not (tmp_path / "killed" / "config.json").exists():
        time.sleep(0.02)
    rng, kills = random.Random(1), 0
    while kills < 4:
        time.sleep(rng.uniform(0.0, 6.0))
        if killed.poll() is not None:
            break
        killed.send_signal(signal.SIGKILL)
        kills += killed.wait() == -signal.SIGKILL
        killed.stderr.close()
        killed = sonde("resume", str(tmp_path / "killed"))
    assert killed.wait() == 0, killed.stderr.read()
    killed.stderr.close()
    whole.stderr.close()
    assert kills > 0, f"the run ended within {time.monotonic() - began:.0f} s, before it could be killed"
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")
    rows = [RunStore.open(tmp_path / name).load_metrics() for name in ("killed", "whole")]
    assert without_times(rows[0]) == without_times(rows[1])


def test_default_config_is_the_papers_preset_with_the_default_model():
    assert RunConfig() == replace(PRESETS["pendulum-gp"], model=GaussianProcess())
