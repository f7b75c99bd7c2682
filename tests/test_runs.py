"""Runs on disk: they survive anything, and refuse what is damaged."""

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
from sonde.models._calibration import LEVELS
from sonde.runs._config import RunConfig, from_json, to_json
from sonde.runs._presets import PRESETS
from sonde.runs._run import restore_explorer, run
from sonde.runs._store import RunStore
from tiny import TINY, TINY_OPTIONS

KEYS = {
    *("seed", "round", "transitions", "prediction_error", "planned_information_gain", "realised_information_gain"),
    *("max_epistemic", "max_epistemic_common", "mean_epistemic", "model_rmse", "model_nll", "calibration_error"),
    *("return/swing-up", "return/keep-down", "seconds/plan", "seconds/fit", "seconds/world", "seconds/evaluate"),
}

CALIBRATION_KEYS = {f"calibration/{name}_{when}" for name in ("error", "coverage90") for when in ("before", "after")}


def quiet(phase, round_number, rows):
    pass


def without_times(rows):
    return [{k: v for k, v in row.items() if not k.startswith("seconds/")} for row in rows]


def contents(folder: Path) -> dict[str, bytes]:
    """All that a finished run must have the same, however often it was interrupted."""
    paths = [p for name in ("data", "checkpoints") for p in sorted((folder / name).iterdir())]
    return {str(p.relative_to(folder)): p.read_bytes() for p in paths}


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> RunStore:
    store = RunStore.create(tmp_path_factory.mktemp("runs") / "finished", replace(TINY, seeds=2))
    run(store, quiet)
    return store


@pytest.fixture
def copy(finished, tmp_path) -> RunStore:
    shutil.copytree(finished.folder, tmp_path / "copy")
    return RunStore.open(tmp_path / "copy")


def test_metrics_hold_one_line_per_seed_and_episode(finished):
    rows = finished.load_metrics()
    assert [(row["round"], row["seed"]) for row in rows] == [(e, s) for e in (1, 2, 3) for s in (0, 1)]
    assert all(row.keys() >= KEYS and not row.keys() & CALIBRATION_KEYS for row in rows)
    assert [row["transitions"] for row in rows[::2]] == [12, 24, 36]
    assert all(row["seconds/plan"] > 0 and row["seconds/fit"] > 0 for row in rows)


def judged(folder: Path, holdout: float) -> RunStore:
    config = replace(TINY, method="random", rounds=2, seeds=2, evaluate_every=0, holdout=holdout, recalibrate=True)
    store = RunStore.create(folder, config)
    run(store, quiet)
    return store


def test_metrics_say_how_the_model_did_on_held_out_measurements(tmp_path):
    store = judged(tmp_path / "run", 0.5)
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


def test_metrics_are_null_where_nothing_was_held_out_yet(tmp_path):
    rows = judged(tmp_path / "run", 0.01).load_metrics()  # of 24 measurements
    assert all(row[key] is None for row in rows for key in CALIBRATION_KEYS)


def test_the_last_two_checkpoints_and_all_data_are_kept(finished):
    assert finished.checkpoints() == [2, 3]
    assert len(finished.load_data(3)) == 3
    assert not list(finished.folder.rglob("*.part"))


@pytest.mark.parametrize("round", [0, 2])
def test_going_back_and_on_again_is_bit_identical(finished, copy, round_number):
    run(copy, quiet, from_round=round_number)
    assert contents(copy.folder) == contents(finished.folder)
    assert without_times(copy.load_metrics()) == without_times(finished.load_metrics())


def test_a_torn_line_and_lines_from_the_future_are_dropped(finished, copy):
    future = {**copy.load_metrics()[-1], "round": 4}
    with open(copy.metrics_path, "a") as file:
        file.write(json.dumps(future) + "\n" + '{"seed": 0, "epis')
    run(copy, quiet)
    assert copy.load_metrics() == finished.load_metrics()


def test_restored_explorer_believes_what_it_believed(finished):
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
def test_a_damaged_checkpoint_is_refused_and_the_older_offered(finished, copy, damage, suffix):
    damage(copy.folder / "checkpoints" / f"0003.{suffix}")
    if (suffix, damage) == ("json", Path.unlink):
        # without its note a checkpoint was never finished: the run goes on from the one before
        run(copy, quiet)
    else:
        before = contents(copy.folder)
        with pytest.raises(SondeError, match=r"checkpoint 0003 .*--from-episode 2"):
            run(copy, quiet)
        assert contents(copy.folder) == before
        run(copy, quiet, from_round=2)
    assert contents(copy.folder) == contents(finished.folder)


def test_damaged_data_is_refused(copy):
    damage_flip(copy.folder / "data" / "0001.safetensors")
    with pytest.raises(SondeError, match=r"0001.safetensors is missing or damaged.*--from-episode 0"):
        run(copy, quiet)


def test_a_foreign_checkpoint_is_refused(copy):
    config = json.loads((copy.folder / "config.json").read_text())
    config["beta"] = 3.0
    (copy.folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(SondeError, match=r"made under another config\.json"):
        run(RunStore.open(copy.folder), quiet)


def test_two_processes_cannot_write_one_run(copy):
    with copy.locked(), pytest.raises(SondeError, match="in use by another process"):
        run(RunStore.open(copy.folder), quiet)
    before = contents(copy.folder)
    with copy.locked(), pytest.raises(SondeError, match="in use by another process"):
        RunStore.create(copy.folder, TINY, overwrite=True)
    assert contents(copy.folder) == before


def test_foreign_files_beside_checkpoints_do_no_harm(copy):
    (copy.folder / "checkpoints" / "0003.bak.json").write_text("mine")
    assert copy.checkpoints() == [2, 3]


def test_a_run_that_lacks_a_folder_is_refused(copy):
    shutil.rmtree(copy.folder / "checkpoints")
    with pytest.raises(SondeError, match="it lacks checkpoints"):
        RunStore.open(copy.folder)


def test_a_folder_is_never_overwritten_unasked(finished, copy, tmp_path):
    before = contents(copy.folder)
    with pytest.raises(SondeError, match="exists; choose another --out"):
        RunStore.create(copy.folder, TINY)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    with pytest.raises(SondeError, match="not the folder of a run"):
        RunStore.create(tmp_path / "mine", TINY, overwrite=True)
    assert (tmp_path / "mine" / "thesis.tex").exists() and contents(copy.folder) == before
    RunStore.create(copy.folder, TINY, overwrite=True)
    assert contents(copy.folder) == {}


@pytest.mark.parametrize("name", list(PRESETS))
def test_configs_survive_json(name):
    text = to_json(PRESETS[name])
    assert from_json(text, "here") == PRESETS[name]


def test_a_config_from_before_gradients_had_a_limit_means_none():
    """New fits have a limit; a run that was recorded without goes on without, and its config stays the same text."""
    entries = json.loads(to_json(TINY))
    assert entries["model"].pop("gradient_limit") == 10.0
    older = json.dumps(entries, indent=2) + "\n"
    config = from_json(older, "here")
    assert config == replace(TINY, model=replace(TINY.model, gradient_limit=0.0))
    assert to_json(config) == older


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.update(horizon="many"), "horizon: expected int, got 'many'"),
        (lambda c: c.update(horizon=-1), "horizon must be above 0, got -1"),
        (lambda c: c.update(horizon=True), "horizon: expected int, got True"),
        (lambda c: c.update(colour="red"), r"unknown field\(s\) colour"),
        (lambda c: c.pop("beta"), r"missing field\(s\) beta"),
        (lambda c: c.update(method="magic"), "unknown method 'magic'"),
        (lambda c: c.update(model=3), "model: expected an object with a 'kind'"),
        (lambda c: c["model"].update(kind="oracle"), "unknown kind of"),
        (lambda c: c["model"].update(kind=[]), "unknown kind of"),
        (lambda c: c.update(beta=float("inf")), "beta must be 0 or above and finite"),
        (lambda c: c.update(first_seed=2**70), "first_seed must lie in"),
        (lambda c: c["model"].update(kernel="cubic"), "kernel: expected 'rbf' or"),
        (lambda c: c["solver"].update(samples=2.5), "samples: expected int, got 2.5"),
        (lambda c: c.update(capacity=3), "capacity 3 is too small: 3 episodes of 12 steps need 36"),
        (lambda c: c.update(task="fly"), "method 'opax' explores without any task"),
    ],
)
def test_an_edited_config_is_refused(change, message):
    entries = json.loads(to_json(TINY))
    change(entries)
    with pytest.raises(SondeError, match=message):
        from_json(json.dumps(entries), "config.json")


def test_a_config_that_is_no_json_is_refused(tmp_path):
    store = RunStore.create(tmp_path / "run", TINY)
    for nonsense in ("{", "[]", "null", ""):
        (store.folder / "config.json").write_text(nonsense)
        with pytest.raises(SondeError, match=r"config\.json"):
            RunStore.open(store.folder)


def sonde(*args: str, cache: Path) -> subprocess.Popen:
    environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(cache), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "sonde", *args]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def test_kill_9_at_random_moments_changes_nothing(tmp_path):
    cache = tmp_path / "cache"
    whole = sonde("explore", "pendulum-gp-lite", *TINY_OPTIONS, "--out", str(tmp_path / "whole"), cache=cache)
    assert whole.wait() == 0, whole.stderr.read()
    began = time.monotonic()
    killed = sonde("explore", "pendulum-gp-lite", *TINY_OPTIONS, "--out", str(tmp_path / "killed"), cache=cache)
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
        killed = sonde("resume", str(tmp_path / "killed"), cache=cache)
    assert killed.wait() == 0, killed.stderr.read()
    killed.stderr.close()
    whole.stderr.close()
    assert kills > 0, f"the run ended within {time.monotonic() - began:.0f} s, before it could be killed"
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")
    rows = [RunStore.open(tmp_path / name).load_metrics() for name in ("killed", "whole")]
    assert without_times(rows[0]) == without_times(rows[1])


def test_default_config_is_the_papers_preset():
    assert RunConfig() == PRESETS["pendulum-gp"]
