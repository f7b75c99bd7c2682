"""Measurements in files: they are written and read without losing a bit, and errors name the place in the file."""

import csv
import io
import json
import os
import re
import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from command_line import call
from sonde import Callback, Explorer, SondeError, Trajectory, rollout
from sonde.runs import _measurements, _minari, figures, read_measurements
from sonde.runs._export import export_run
from sonde.runs._run import build_explorer, restore_explorer, run
from sonde.runs._store import RunStore
from sonde.worlds import OwnSystem, Pendulum
from test_runs import contents, damage_flip, without_times
from tiny import TINY, TINY_OPTIONS

minari = pytest.importorskip("minari")
list_local_namespaces = pytest.importorskip("minari.namespace").list_local_namespaces

ARRAYS = ("states", "actions", "next_states")
HEADER = ["cos th", "sin th", "thdot", "torque", "next cos th", "next sin th", "next thdot"]
OPTIONS = [*TINY_OPTIONS, "--seeds", "2", "--evaluate-every", "0"]
SMALL = replace(TINY, seeds=2, evaluate_every=0)


@pytest.fixture(scope="module")
def log() -> dict[str, np.ndarray]:
    """30 transitions of Gymnasium's pendulum, two episodes; its torque limit is 2."""
    env, rows = gym.make("Pendulum-v1"), []
    env.action_space.seed(1)
    for episode in range(2):
        state, _ = env.reset(seed=episode)
        for _ in range(15):
            torque = env.action_space.sample()
            next_state, *_ = env.step(torque)
            rows.append((state, torque / 2, next_state))
            state = next_state
    return {name: np.array(part, dtype=np.float64) for name, part in zip(ARRAYS, zip(*rows, strict=True), strict=True)}


def as_csv(log, header=HEADER) -> str:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(header)
    writer.writerows([repr(float(v)) for v in row] for row in np.concatenate([log[name] for name in ARRAYS], axis=1))
    return text.getvalue()


def write(path: Path, content) -> str:
    if isinstance(content, dict):
        np.savez(path, **content)
    else:
        path.write_text(content, newline="")
    return str(path)


def everything(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def assert_same(found: Trajectory, log) -> None:
    for name in ARRAYS:
        assert getattr(found, name).dtype == np.float64
        np.testing.assert_array_equal(getattr(found, name), log[name])


# Reading


def test_files_are_read_without_losing_a_bit(log, tmp_path):
    assert_same(read_measurements(write(tmp_path / "a.npz", {**log, "other": np.zeros(3)}), Pendulum()), log)
    assert_same(read_measurements(write(tmp_path / "a.csv", as_csv(log)), Pendulum()), log)


def test_csv_columns_may_be_in_any_order_with_others_between(log, tmp_path):
    rows = [[*row[::-1], f"12:0{i % 10}"] for i, row in enumerate(csv.reader(as_csv(log).splitlines()))]
    rows[0][-1] = "clock"
    text = "\ufeff" + "\n\n".join(", ".join(row) for row in rows)  # as a spreadsheet may write it, with blank lines
    assert_same(read_measurements(write(tmp_path / "a.csv", text), Pendulum()), log)


def test_csv_rows_of_an_episode_follow_each_other(tmp_path):
    text = "episode,x,u,t\na,1,0.1,0\na,2,0.2,1\na,4,,2\nb,8,0.3,0\nb,16,,1\nc,32,,0\na,64,0.5,0\na,128,0.5,1\n"
    found = read_measurements(write(tmp_path / "a.csv", text), OwnSystem(states=("x",), actions=("u",)))
    assert found.states[:, 0].tolist() == [1, 2, 8, 64]
    assert found.actions[:, 0].tolist() == [0.1, 0.2, 0.3, 0.5]
    assert found.next_states[:, 0].tolist() == [2, 4, 16, 128]


def changed(row: int, column: int, value: str):
    def change(text: str) -> str:
        rows = list(csv.reader(text.splitlines()))
        rows[row][column] = value
        return "\n".join(",".join(cells) for cells in rows)

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (changed(0, 6, "next_thdot"), r"missing column\(s\) 'next thdot'; found: .*did you mean 'next_thdot' for 'next thdot'"),
        (changed(0, 3, "Torque"), r"missing column\(s\) 'torque'; found: .*'Torque'.*did you mean 'Torque'"),
        (changed(0, 3, "thdot"), r"missing column\(s\) 'torque'"),
        (lambda text: text.replace("next ", "then "), r"there is no clock.* add a column 'episode'.*'next cos th'"),
        (
            lambda text: text.replace("torque", "torque,torque", 1).replace("\n", ",0\n").replace(",0\n", "\n", 1),
            "occur more than once",
        ),
        (lambda text: "", r"missing column\(s\) 'cos th', .*; found: none"),
        (lambda text: ",".join(HEADER), "it has no transitions"),
        (changed(7, 2, ""), r"line 8, column 'thdot' \(an empty cell counts as nan\): expected a finite number, got nan;"),
        (changed(7, 5, "nan"), "line 8, column 'next sin th' .*got nan"),
        (changed(2, 0, "-inf"), "line 3, column 'cos th': .*got -inf"),
        (changed(2, 0, "1e300"), "line 3, column 'cos th': .*expected at most 1e.15, got 1e.300"),
        (changed(4, 6, "fast"), "line 5, column 'next thdot': expected a number such as -0.25, got 'fast'"),
        (changed(4, 3, "2.0"), r"line 5, column 'torque': expected an action in \[-1, 1\], got 2; scale actions"),
        (changed(4, 3, "0.5,0.5"), "line 5 has 8 cells, the header has 7"),
        (lambda text: text.replace("\n", '\n"', 3), "cannot be read as CSV"),
        (lambda text: text.replace("next ", "then ").replace("then cos th", "episode"), "it has no transitions"),
    ],
)
def test_csv_file_with_a_fault_is_rejected(change, message, log, tmp_path):
    source = write(tmp_path / "log.csv", change(as_csv(log)))
    with pytest.raises(SondeError, match=message) as caught:
        read_measurements(source, Pendulum())
    assert source in str(caught.value)


def with_one(name: str, value: float):
    def change(log):
        log[name][3, 0] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda log: log.pop("actions"), "there is no 'actions'; it has 'states', 'next_states'"),
        (lambda log: log.update(states=log["states"][:, :2]), r"states must have shape \[N, 3\], .*'thdot', got \[30, 2\]"),
        (lambda log: log.update(actions=log["actions"][:, 0]), r"actions must have shape \[N, 1\], .* got \[30\]"),
        (lambda log: log.update(states=log["states"][None]), r"got \[1, 30, 3\]"),
        (lambda log: log.update(actions=log["actions"][:9]), r"equally many rows, got \{'states': 30, 'actions': 9"),
        (lambda log: log.update({name: log[name][:0] for name in ARRAYS}), "it has no transitions"),
        (with_one("next_states", np.nan), r"next_states\[3, 0\] \('next cos th'\): expected a finite number, got nan;"),
        (with_one("states", -1e20), r"states\[3, 0\] \('cos th'\): expected at most 1e\+15"),
        (with_one("actions", -1.1), r"actions\[3, 0\] \('torque'\): expected an action in \[-1, 1\], got -1.1"),
        (lambda log: log.update(actions=2 * log["actions"]), r"more of actions\); scale actions"),
        (lambda log: log.update(actions=log["actions"].astype(str)), "actions must be an array of real numbers, got .*<U"),
        (lambda log: log.update(states=log["states"] + 0j), "real numbers, got one of type complex128"),
        (lambda log: log.update(states=log["states"].astype(object)), "cannot be read .*plain arrays of numbers"),
    ],
)
def test_npz_file_with_a_fault_is_rejected(change, message, log, tmp_path):
    copy = {name: array.copy() for name, array in log.items()}
    change(copy)
    source = write(tmp_path / "log.npz", copy)
    with pytest.raises(SondeError, match=message) as caught:
        read_measurements(source, Pendulum())
    assert source in str(caught.value)


def test_file_that_cannot_be_read_is_rejected(log, tmp_path, monkeypatch):
    for name, content, message in [
        ("text.npz", b"hello", "text.npz is not a readable .npz file"),
        ("latin.csv", "cos th,größe".encode("latin-1"), "not text in UTF-8"),
        ("log.xlsx", b"", "expected FILE.csv .*, .npz, .mat, .mcap, .* or minari:"),
    ]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(SondeError, match=message):
            read_measurements(str(tmp_path / name), Pendulum())
    with pytest.raises(SondeError, match=r"none\.csv: there is no such file; looked for /"):
        read_measurements("none.csv", Pendulum())
    whole = Path(write(tmp_path / "log.npz", log))
    whole.write_bytes(whole.read_bytes()[:-30])
    with pytest.raises(SondeError, match="not a readable"):
        read_measurements(str(whole), Pendulum())
    content = bytearray(Path(write(tmp_path / "log.npz", log)).read_bytes())
    content[300] ^= 1
    whole.write_bytes(content)
    with pytest.raises(SondeError, match=r"cannot be read \(Bad CRC"):
        read_measurements(str(whole), Pendulum())
    with pytest.raises(SondeError, match=r"'x' would name more than one; use FILE.npz"):
        read_measurements(write(tmp_path / "a.csv", "x"), OwnSystem(states=("x",), actions=("x",)))


def test_too_many_measurements_are_rejected_before_they_are_loaded(log, tmp_path, monkeypatch):
    monkeypatch.setattr(_measurements, "LARGEST", 29)
    for name, content in (("a.csv", as_csv(log)), ("a.npz", log)):
        with pytest.raises(SondeError, match="expected at most 29 transitions, got"):
            read_measurements(write(tmp_path / name, content), Pendulum())
    many = {name: np.tile(array, (100, 1)) for name, array in log.items()}
    monkeypatch.setattr(np, "load", lambda *_, **__: pytest.fail("it was loaded"))
    with pytest.raises(SondeError, match="bytes; select the most useful ones"):
        read_measurements(write(tmp_path / "a.npz", many), Pendulum())


# Starting from measurements


@pytest.fixture(scope="module")
def finished(log, tmp_path_factory) -> RunStore:
    """A run that started from a log, named by a relative path; the log is gone."""
    folder = tmp_path_factory.mktemp("started")
    write(folder / "log.csv", as_csv(log))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(figures, "draw_run", lambda *_: [])
        assert call(patch, "explore", "pendulum-gp-lite", *OPTIONS, "--data", "log.csv", "--out", "run") == 0
    (folder / "log.csv").unlink()
    return RunStore.open(folder / "run")


@pytest.fixture
def copy(finished, tmp_path) -> RunStore:
    shutil.copytree(finished.folder, tmp_path / "copy")
    return RunStore.open(tmp_path / "copy")


@pytest.mark.slow
def test_run_learns_from_initial_data_before_its_first_round(finished, log):
    assert json.loads((finished.folder / "config.json").read_text())["data"] == str(finished.folder.parent / "log.csv")
    assert [row["transitions"] for row in finished.load_metrics()] == [42, 42, 54, 54, 66, 66]
    started = restore_explorer(finished, 0)
    assert (started.transitions, started.round) == (30, 0)
    np.testing.assert_array_equal(started.data.states[:, :30], np.stack([log["states"]] * 2))
    mean = started.predict(np.stack([log["states"][7]] * 2), np.stack([log["actions"][7]] * 2)).mean
    largest_step = np.abs(log["next_states"] - log["states"]).max()
    assert np.abs(mean - log["next_states"][7]).max() < 0.1 * largest_step
    # the first plan was made with that model: an explorer without initial data plans something else
    first = finished.load_data(1)[0].actions
    untold = build_explorer(finished.config, finished.load_initial_data())
    assert np.array_equal(rollout(Pendulum(), started.ask(), 12).actions, first)
    assert not np.array_equal(rollout(Pendulum(), untold.ask(), 12).actions, first)


class Interrupt(Callback):
    """Interrupts a run at the beginning of a phase."""

    def __init__(self, round_number: int, phase: str):
        self.moment = round_number, phase

    def on_phase(self, round_number, phase, detail):
        if (round_number, phase) == self.moment:
            raise KeyboardInterrupt


@pytest.mark.slow
@pytest.mark.parametrize("moment", [(1, "plan"), (2, "evaluate"), (3, "plan")])
def test_interrupted_run_with_initial_data_is_bit_identical(finished, copy, moment):
    with pytest.raises(KeyboardInterrupt):
        run(copy, [Interrupt(*moment)], from_round=0)
    run(copy)
    assert contents(copy.folder) == contents(finished.folder)
    assert without_times(copy.load_metrics()) == without_times(finished.load_metrics())


@pytest.mark.parametrize("damage", [damage_flip, Path.unlink])
@pytest.mark.parametrize("name", ["initial.safetensors", "initial.sha256"])
@pytest.mark.parametrize("from_round", [0, None])
def test_damaged_copy_of_initial_data_is_rejected(copy, damage, name, from_round):
    damage_at = copy.folder / "data" / name
    if (name, damage) == ("initial.sha256", damage_flip):
        damage_at.write_text("0" + damage_at.read_text()[1:].replace("0", "1"))
    else:
        damage(damage_at)
    before = contents(copy.folder)
    with pytest.raises(
        SondeError, match=r"initial\.safetensors is missing or damaged, .*start a new run with --data /.*log\.csv"
    ):
        run(copy, from_round=from_round)
    assert contents(copy.folder) == before


def test_initial_data_of_another_run_is_rejected(copy, log, tmp_path):
    other = {name: array[::-1] for name, array in log.items()}
    new = RunStore.create(tmp_path / "other", replace(SMALL, data=write(tmp_path / "other.npz", other)))
    for name in ("initial.safetensors", "initial.sha256"):
        shutil.copy(new.folder / "data" / name, copy.folder / "data" / name)
    with pytest.raises(SondeError, match=r"checkpoint 0003 does not belong to this run: .*made with other initial data"):
        run(copy)


def test_rejected_run_leaves_nothing_on_disk(log, tmp_path, monkeypatch, capsys):
    write(tmp_path / "log.csv", changed(3, 3, "7")(as_csv(log)))
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))
    before = sorted(tmp_path.rglob("*"))
    for source in (str(tmp_path / "log.csv"), "nowhere.npz", "minari:nothing-v0", "minari:../log.csv"):
        assert call(monkeypatch, "explore", "pendulum-gp-lite", "--data", source, "--out", str(tmp_path / "sub" / "run")) == 2
        assert "sonde: error: " in capsys.readouterr().err
        assert sorted(tmp_path.rglob("*")) == before


# Export


def of_seed(store: RunStore, index: int) -> dict[str, np.ndarray]:
    files = store.load_data(3)
    return {name: np.concatenate([getattr(file, name)[index] for file in files]) for name in ARRAYS}


@pytest.mark.parametrize("name", ["a.npz", "a.csv", "minari:tiny-v0", "minari:group/sub/tiny-v0"])
def test_exported_measurements_are_read_back_without_losing_a_bit(finished, log, tmp_path, monkeypatch, name, capsys):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))
    monkeypatch.setattr(Explorer, "__init__", lambda *_, **__: pytest.fail("no explorer is needed"))
    out = name if name.startswith("minari:") else str(tmp_path / name)
    before = everything(finished.folder)
    assert call(monkeypatch, "export", str(finished.folder), "--out", out, "--seed", "1") == 0
    assert "36 transitions in 3 episodes" in capsys.readouterr().out
    assert_same(read_measurements(out, Pendulum()), of_seed(finished, 1))
    written = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert call(monkeypatch, "export", str(finished.folder), "--out", out) == 2
    assert re.search("exists.*--overwrite", capsys.readouterr().err)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == written
    assert call(monkeypatch, "export", str(finished.folder), "--out", out, "--initial-data", "--overwrite") == 0
    both = {array: np.concatenate([log[array], rows]) for array, rows in of_seed(finished, 0).items()}
    assert_same(read_measurements(out, Pendulum()), both)
    assert everything(finished.folder) == before
    assert not [path for path in tmp_path.rglob(".*") if path != tmp_path]


def test_exported_rows_have_the_number_of_their_episode(finished, tmp_path):
    export_run(finished, str(tmp_path / "a.npz"), initial_data=True)
    export_run(finished, str(tmp_path / "a.csv"), initial_data=True)
    expected = np.repeat([1, 2, 3, 4, 5], [15, 15, 12, 12, 12])  # two of the log, three of the run
    np.testing.assert_array_equal(np.load(tmp_path / "a.npz", allow_pickle=False)["episode"], expected)
    rows = list(csv.DictReader((tmp_path / "a.csv").read_text().splitlines()))
    assert [int(row["episode"]) for row in rows] == expected.tolist()
    # a program that reads no next states sees the same transitions
    log = [",".join(row[name] for name in ("episode", *HEADER[:4])) for row in rows]
    follows = read_measurements(write(tmp_path / "b.csv", "\n".join([",".join(("episode", *HEADER[:4])), *log])), Pendulum())
    whole = read_measurements(str(tmp_path / "a.csv"), Pendulum())
    kept = np.flatnonzero(np.diff(expected) == 0)
    np.testing.assert_array_equal(follows.next_states, whole.next_states[kept])


def test_rejected_export_writes_nothing(finished, copy, tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))
    (tmp_path / "datasets" / "thesis-v0").mkdir(parents=True)
    (tmp_path / "folder.npz").mkdir()
    new = RunStore.create(tmp_path / "new", SMALL)
    damage_flip(copy.folder / "data" / "0002.safetensors")
    before = everything(tmp_path)
    for store, out, options, message in [
        (finished, "a.xlsx", {}, "expected --out FILE.npz, FILE.csv or minari:DATASET-v0, got"),
        (finished, "none/a.npz", {}, "the folder .*none does not exist; make it first"),
        (finished, "folder.npz", {"overwrite": True}, "is a folder"),
        (finished, "a.npz", {"seed": 7}, "has no seed 7; it has 0, 1"),
        (finished, "minari:tiny", {}, "expected a dataset's id such as NAME-v0"),
        (finished, "minari:../tiny-v0", {"overwrite": True}, "expected a dataset's id such as NAME-v0"),
        (finished, "minari:thesis-v0", {"overwrite": True}, "is not a Minari dataset, so it is not replaced"),
        (new, "a.npz", {}, "has no finished round yet"),
        (new, "a.npz", {"initial_data": True}, "has no initial data"),
        (copy, "a.npz", {}, r"0002\.safetensors is missing or damaged"),
    ]:
        target = out if out.startswith("minari:") else str(tmp_path / out)
        with pytest.raises(SondeError, match=message):
            export_run(store, target, **options)
    assert everything(tmp_path) == before


# Minari


@pytest.fixture
def datasets(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))
    return tmp_path / "datasets"


def test_minari_episodes_end_where_time_is_broken(datasets, tmp_path):
    """Terminations, truncations and jumps; loaded with Minari's own functions."""
    rng = np.random.default_rng(1)
    store = RunStore.create(tmp_path / "run", replace(SMALL, seeds=1, first_seed=3))
    walk = rng.normal(size=(9, 3))
    states, next_states = walk[:-1].copy(), walk[1:].copy()
    next_states[1] = rng.normal(size=3)  # terminated: the next row starts somewhere else
    next_states[3] = rng.normal(size=3)  # truncated
    next_states[4] = rng.normal(size=3)  # a jump without a flag
    terminated, truncated = np.zeros((1, 8), bool), np.zeros((1, 8), bool)
    terminated[0, 1] = truncated[0, 3] = truncated[0, 6] = True  # 6: restarted in the very state that it led to
    actions = rng.uniform(-1, 1, (8, 1))
    trajectory = Trajectory(states[None], actions[None], next_states[None], terminated=terminated, truncated=truncated)
    store.save_data(1, trajectory)
    store.save_checkpoint(1, {"none": np.zeros(1)})
    assert export_run(store, "minari:group/walk-v1").episodes == 5
    dataset = minari.load_dataset("group/walk-v1")
    assert (dataset.total_episodes, dataset.total_steps) == (5, 8)
    assert list(minari.list_local_datasets()) == ["group/walk-v1"]
    assert list_local_namespaces() == ["group"]
    assert dataset.observation_space == gym.spaces.Box(-np.inf, np.inf, (3,), np.float64)
    assert dataset.action_space == gym.spaces.Box(-1.0, 1.0, (1,), np.float64)
    cuts = [slice(0, 2), slice(2, 4), slice(4, 5), slice(5, 7), slice(7, 8)]
    for number, (episode, cut) in enumerate(zip(dataset.iterate_episodes(), cuts, strict=True)):
        np.testing.assert_array_equal(episode.observations[:-1], states[cut])
        np.testing.assert_array_equal(episode.observations[1:], next_states[cut])
        np.testing.assert_array_equal(episode.actions, actions[cut])
        assert episode.observations.dtype == episode.actions.dtype == np.float64
        assert not episode.rewards.any() and len(episode.rewards) == len(episode.actions)
        last = np.arange(cut.start, cut.stop) == cut.stop - 1
        np.testing.assert_array_equal(episode.terminations, last & (number == 0))
        np.testing.assert_array_equal(episode.truncations, last & (number != 0))
    facts = dataset.storage.metadata
    assert facts["algorithm_name"] == facts["method"] == "opax" and facts["seed"] == 3 and facts["world"] == "pendulum"
    assert facts["world_settings"]["class"] == "sonde.worlds:Pendulum" and facts["world_settings"]["length"] == 1.0
    assert facts["state_names"] == ["cos th", "sin th", "thdot"] and "all rewards are 0" in facts["description"]


minaris_own_warnings = pytest.mark.filterwarnings(
    "ignore:env_spec is None:UserWarning", "ignore:Implicitly cleaning up:ResourceWarning"
)


def collected(name: str, env: gym.Env, steps: int = 20) -> list[tuple[np.ndarray, np.ndarray]]:
    """A dataset by Minari's own recorder; what it saw, as (flat observation, action)."""
    recorder = minari.DataCollector(env)
    recorder.action_space.seed(1)
    seen = []
    for episode in range(2):
        observation, _ = recorder.reset(seed=episode)
        for _ in range(steps):
            action = recorder.action_space.sample()
            seen.append((gym.spaces.flatten(env.observation_space, observation), action))
            observation, _, terminated, truncated, _ = recorder.step(action)
            if terminated or truncated:
                break
        seen.append((gym.spaces.flatten(env.observation_space, observation), None))
    about = {
        "algorithm_name": "random",
        "author": "me",
        "author_email": "me@here",
        "code_permalink": "none",
        "description": "none",
    }
    recorder.create_dataset(name, eval_env="Pendulum-v1", **about)
    recorder.close()
    return seen


@minaris_own_warnings
def test_recording_of_a_pendulum_by_minari_is_read(datasets):
    seen = collected("pendulum/random-v0", gym.make("Pendulum-v1"))
    found = read_measurements("minari:pendulum/random-v0", Pendulum())
    rows = [i for i, (_, action) in enumerate(seen) if action is not None]
    assert len(found.states) == 40
    np.testing.assert_array_equal(found.states, np.array([seen[i][0] for i in rows], dtype=np.float64))
    np.testing.assert_array_equal(found.actions, np.array([seen[i][1] for i in rows], dtype=np.float64) / 2)
    np.testing.assert_array_equal(found.next_states, np.array([seen[i + 1][0] for i in rows], dtype=np.float64))
    x, u = found.states, found.actions[:, 0]
    speed = np.clip(x[:, 2] + (15 * x[:, 1] + 3 * 2 * u) * 0.05, -8, 8)  # the pendulum's equation, with u in [-1, 1]
    np.testing.assert_allclose(found.next_states[:, 2], speed, atol=1e-5)


class Asymmetric(gym.Env):
    """Nested observations, and action bounds that are not symmetric."""

    def __init__(self, action_space=None, flag=False):
        box = lambda *shape: gym.spaces.Box(-np.inf, np.inf, shape, np.float64)
        inner = gym.spaces.Dict({"z": box(2, 2), "a": box(1)})
        self.observation_space = gym.spaces.Dict({"wide": inner, "pos": gym.spaces.Discrete(2) if flag else box(2)})
        self.action_space = action_space or gym.spaces.Box(np.array([0.0, -1.0]), np.array([10.0, 3.0]), dtype=np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


@minaris_own_warnings
def test_dict_observations_and_asymmetric_actions_are_read(datasets):
    seen = collected("asymmetric-v0", Asymmetric(), steps=3)
    world = OwnSystem(states=tuple(f"x{i}" for i in range(7)), actions=("a", "b"))
    found = read_measurements("minari:asymmetric-v0", world)
    steps = [pair for pair in seen if pair[1] is not None]
    np.testing.assert_array_equal(found.states, np.array([state for state, _ in steps]))
    np.testing.assert_allclose(found.actions, [[a / 5 - 1, (b - 1) / 2] for _, (a, b) in steps], atol=1e-15)
    with pytest.raises(SondeError, match=r"minari:asymmetric-v0: states must have shape \[N, 3\], .* got \[6, 7\]"):
        read_measurements("minari:asymmetric-v0", Pendulum())


@minaris_own_warnings
@pytest.mark.parametrize(
    ("env", "message"),
    [
        (Asymmetric(gym.spaces.Discrete(3)), r"expected an action space of real numbers \(Box\), got Discrete\(3\)"),
        (Asymmetric(gym.spaces.Box(-np.inf, np.inf, (2,))), "expected an action space with two different finite bounds"),
        (Asymmetric(gym.spaces.Box(0.0, 0.0, (2,))), "expected an action space with two different finite bounds"),
        (Asymmetric(flag=True), r"expected observations of real numbers \(Box, or a Dict of Boxes\), got Discrete\(2\)"),
    ],
)
def test_spaces_that_cannot_be_learned_are_rejected(env, message, datasets):
    collected("odd-v0", env, steps=2)
    with pytest.raises(SondeError, match=message):
        read_measurements("minari:odd-v0", OwnSystem(states=tuple("abcdefg"), actions=("u", "v")))


def test_minari_dataset_with_a_fault_is_rejected(datasets, finished, monkeypatch):
    export_run(finished, "minari:mine-v0")
    with pytest.raises(SondeError, match=r"no such dataset in .*datasets, which has: mine-v0; 'minari download other-v0'"):
        read_measurements("minari:other-v0", Pendulum())
    actions = finished.load_data(1)[0].actions[0]
    monkeypatch.setattr(_measurements, "LARGEST", 36)
    monkeypatch.setattr(_minari, "LARGEST", 36)
    read_measurements("minari:mine-v0", Pendulum())
    import h5py

    data = datasets / "mine-v0" / "data"
    with h5py.File(data / "main_data.hdf5", "a") as file:
        file["episode_1/actions"][4] = 1.5
    with pytest.raises(
        SondeError, match=r"minari:mine-v0: episode 1, step 4, 'torque' .*expected an action in \[-1, 1\], got 1.5"
    ):
        read_measurements("minari:mine-v0", Pendulum())
    with h5py.File(data / "main_data.hdf5", "a") as file:
        file["episode_1/actions"].resize((len(actions) - 1, 1))
    with pytest.raises(SondeError, match="episode 1 must have one observation more than actions, got 13 and 11"):
        read_measurements("minari:mine-v0", Pendulum())
    os.truncate(data / "main_data.hdf5", 1000)
    with pytest.raises(SondeError, match="minari:mine-v0 cannot be read: "):
        read_measurements("minari:mine-v0", Pendulum())
    monkeypatch.setitem(sys.modules, "minari", None)
    with pytest.raises(SondeError, match=r"pip install '\.\[data\]'"):
        read_measurements("minari:mine-v0", Pendulum())


# The documentation


@pytest.mark.slow
def test_examples_of_the_documentation_run(datasets, tmp_path, monkeypatch):
    text = (Path(__file__).parent.parent / "docs" / "data.md").read_text()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(figures, "draw_run", lambda *_: [])
    names: dict = {"__name__": "example"}
    for kind, block in re.findall(r"```(python|console)\n(.*?)```", text, flags=re.DOTALL):
        if kind == "python":
            exec(block.replace("GaussianProcess()", "GaussianProcess(steps=3, rank=16)").replace("1000", "36"), names)
            continue
        for line in block.splitlines():
            program, *args = shlex.split(line)
            assert program == "sonde"
            assert call(monkeypatch, *args, *(OPTIONS if args[0] == "explore" else [])) == 0
    assert names["explorer"].transitions == 30
    assert len(read_measurements("table.csv", Pendulum()).states) == 36
    assert len(np.load("all.npz", allow_pickle=False)["states"]) == 66
    assert minari.load_dataset("pendulum/opax-v0").total_steps == 36
