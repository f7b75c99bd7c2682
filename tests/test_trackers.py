"""Trackers: what other readers read back is metrics.jsonl, also after kills, failures and going back."""

import functools
import importlib.util
import json
import os
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from command_line import call
from sonde._internal.errors import SondeError
from sonde.explorer import Explorer
from sonde.methods import METHODS
from sonde.runs import Callback, Experiment, explore, explore_together
from sonde.runs._codec import to_json
from sonde.runs._place import foreign_entries
from sonde.runs._run import restore_explorer, run
from sonde.runs._store import RunStore
from sonde.runs.sweep import LocalBackend, Sweep, run_sweep
from sonde.runs.trackers import TRACKERS, TensorBoard, Track, Tracker, WandB
from sonde.runs.trackers import _tracker as tracker_module
from sonde.runs.trackers._names import is_behind, trackers_named, tracks_in
from sonde.runs.trackers._origin import git_state
from sonde.runs.trackers._record import TrackRecord, record_path
from test_own_system import CONFIG as OWN
from test_own_system import measured
from tiny import TINY, TINY_OPTIONS
from user_parts import LargestAction

SMALL = replace(TINY, method=METHODS["random"], evaluate_every=0, rounds=3, seeds=2, metrics=(LargestAction(scale=0.1),))
FOLDER = Path(__file__).parent


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """The rows of metrics.jsonl, read as JSON lines."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def defined(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if value is not None}


# ---- readers -----------------------------------------------------------------------------------------------------------------


def read_tensorboard(folder: Path) -> Any:
    """An event folder, as TensorBoard itself sees it."""
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason="needs tensorboard")
    sizes = dict.fromkeys((reader.SCALARS, reader.TENSORS, reader.IMAGES), 0)
    found = reader.EventAccumulator(str(folder), size_guidance=sizes)
    found.Reload()
    return found


def tensorboard_points(folder: Path) -> list[tuple[str, int, int, float]]:
    """All numbers of all seeds: key, seed, round and value."""
    points = []
    for place in sorted((folder / "tracks" / "tensorboard").glob("seed-*")):
        events, seed = read_tensorboard(place), int(place.name.removeprefix("seed-"))
        points += [(key, seed, e.step, e.value) for key in events.Tags()["scalars"] for e in events.Scalars(key)]
    return sorted(points)


def expected_points(folder: Path) -> list[tuple[str, int, int, float]]:
    """The same of metrics.jsonl, in single precision."""
    rows = rows_of(folder)
    numbers = ((key, row, value) for row in rows for key, value in row.items() if isinstance(value, int | float))
    return sorted((key, row["seed"], row["round"], float(np.float32(value))) for key, row, value in numbers)


def read_wandb(path: Path) -> list[Any]:
    """The records of a .wandb file: seven bytes, then the log format of LevelDB with protocol buffers."""
    from wandb.proto import wandb_internal_pb2

    data, position, found, parts = path.read_bytes(), 7, [], b""
    assert data[:4] == b":W&B"
    while position + 7 <= len(data):
        if (left := 32768 - position % 32768) < 7:
            position += left
            continue
        _, size, kind = struct.unpack("<IHB", data[position : position + 7])
        parts = (b"" if kind in (1, 2) else parts) + data[position + 7 : position + 7 + size]
        position += 7 + size
        if kind in (1, 4):
            found.append(wandb_internal_pb2.Record.FromString(parts))
    return found


def wandb_rows(folder: Path) -> list[dict[str, Any]]:
    """The history of all seeds; exactly one folder of each is left."""
    paths = sorted((folder / "tracks" / "wandb").glob("*/*.wandb"))
    assert len(paths) == len({row["seed"] for row in rows_of(folder)})
    rows = []
    for path in paths:
        for record in read_wandb(path):
            if record.WhichOneof("record_type") == "history":
                items = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
                assert items.pop("_step") == items["round"]
                rows.append({key: value for key, value in items.items() if not key.startswith(("_", "figures", "films"))})
    return sorted(rows, key=lambda row: (row["round"], row["seed"]))


# ---- what is written ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tracked(tmp_path_factory) -> Path:
    """A run that TensorBoard followed."""
    folder = tmp_path_factory.mktemp("trackers") / "run"
    explore(SMALL, folder, [TensorBoard(figures_every=2)])
    return folder


@pytest.mark.slow
def test_tensorboard_reads_back_every_number_of_every_seed(tracked):
    points = tensorboard_points(tracked)
    assert points == expected_points(tracked)
    assert {key for key, *_ in points} >= {"largest_action", "seed", "transitions", "model_rmse", "seconds/fit"}
    assert "planned_information_gain" not in {key for key, *_ in points}, "random actions have no plan: it is missing"


@pytest.mark.slow
def test_tensorboard_has_config_origin_and_figures(tracked):
    events = read_tensorboard(tracked / "tracks" / "tensorboard" / "run")
    text = lambda key: events.Tensors(f"{key}/text_summary" if key not in events.Tags()["tensors"] else key)
    ((config,), (versions,)) = text("config"), text("versions")
    read = lambda event: json.loads(event.tensor_proto.string_val[0].decode().strip("`\n"))
    assert read(config).items() >= json.loads(to_json(SMALL)).items()
    assert read(versions)["sonde"] and config.step == 1
    images = events.Images("figures/curves")
    assert [image.step for image in images] == [2, 3]
    assert images[-1].encoded_image_string == (tracked / "figures" / "curves.png").read_bytes()
    with Image.open(tracked / "figures" / "curves.png") as picture:
        assert picture.size == (images[-1].width, images[-1].height)


@pytest.mark.slow
def test_tracks_are_sondes_own_and_a_run_with_them_can_be_replaced(tracked, tmp_path, monkeypatch):
    folder = copied(tracked, tmp_path)
    assert foreign_entries(folder) == []
    (folder / "tracks" / "tensorboard" / "seed-0" / "notes.txt").touch()
    (folder / "tracks" / "wandb").symlink_to(tmp_path)
    assert foreign_entries(folder) == ["tracks/tensorboard/seed-0/notes.txt", "tracks/wandb"]
    (folder / "tracks" / "tensorboard" / "seed-0" / "notes.txt").unlink()
    (folder / "tracks" / "wandb").unlink()
    explore(replace(SMALL, rounds=1, capacity=36), folder, overwrite=True)
    assert not (folder / "tracks").exists()


def copied(folder: Path, to: Path) -> Path:
    return shutil.copytree(folder, to / "copy")


@pytest.mark.slow
def test_film_among_the_figures_is_sent_when_a_finished_run_is_resumed(tracked, tmp_path):
    folder = copied(tracked, tmp_path)
    frames = [Image.new("RGB", (8, 6), (shade, 0, 0)) for shade in (0, 200)]
    frames[0].save(folder / "figures" / "swing-up.gif", save_all=True, append_images=frames[1:])
    (folder / "figures" / "link.gif").symlink_to(folder / "figures" / "swing-up.gif")
    for _ in range(2):
        run(RunStore.open(folder), [TensorBoard()])
        events = read_tensorboard(folder / "tracks" / "tensorboard" / "run")
        (film,) = events.Images("films/swing-up")
        assert film.encoded_image_string == (folder / "figures" / "swing-up.gif").read_bytes() and film.step == 3
        assert "films/link" not in events.Tags()["images"], "a link may lead to anything"
        assert tensorboard_points(folder) == expected_points(folder)


@pytest.mark.slow
def test_run_that_went_back_has_only_its_new_points(tracked, tmp_path):
    folder = copied(tracked, tmp_path)
    before = expected_points(folder)
    run(RunStore.open(folder), [TensorBoard()], from_round=2)
    assert tensorboard_points(folder) == expected_points(folder) != before, "times differ at least"


@pytest.mark.slow
def test_experiment_and_single_run_of_several_are_tracked(tmp_path):
    with Experiment(tmp_path / "own", OWN, [TensorBoard()]) as experiment:
        experiment.tell(measured(1))
        assert tensorboard_points(tmp_path / "own") == expected_points(tmp_path / "own")
    small = replace(SMALL, rounds=2, capacity=36)
    configs, folders = [small, replace(small, first_seed=5)], [tmp_path / "a", tmp_path / "b"]
    explore_together(configs, folders, [[TensorBoard()], [TensorBoard()]])
    for folder in folders:
        assert tensorboard_points(folder) == expected_points(folder)
    shared = TensorBoard()
    with pytest.raises(SondeError, match="a tracker follows one run at a time"):
        explore_together(configs, [tmp_path / "c", tmp_path / "d"], [[shared], [shared]])


# ---- kills -------------------------------------------------------------------------------------------------------------------


@dataclass
class Killer(Callback):
    """Kills the process when a round is on disk, before the trackers hear of it."""

    def on_round_end(self, round_number, rows):
        if round_number == 2:
            os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class DyingTensorBoard(TensorBoard):
    """Kills the process after a seed of a round was written, and the next one was not."""

    def log(self, row):
        if (row["round"], row["seed"]) == (2, 1):
            os.kill(os.getpid(), signal.SIGKILL)
        super().log(row)


@dataclass
class DyingWandB(WandB):
    """Kills the process after everything of a round was given to wandb, which writes it later."""

    def log(self, row):
        super().log(row)
        if (row["round"], row["seed"]) == (2, 1):
            os.kill(os.getpid(), signal.SIGKILL)


def run_program(program: str, env: Mapping[str, str] = os.environ, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program in another process, where the modules of the tests can be imported."""
    path = os.pathsep.join([str(FOLDER), str(FOLDER.parent / "src"), str(FOLDER.parent)])
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env={**env, "PYTHONPATH": path}, cwd=cwd, capture_output=True, text=True)


KILLS = {
    "between": "[DyingTensorBoard()]",
    "after": "[TensorBoard(), DyingWandB(mode='offline')]",
}


@pytest.mark.slow
@pytest.mark.parametrize("moment", KILLS)
def test_killed_and_resumed_run_has_no_gap_and_no_double_points(moment, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "run"
    program = f"from test_trackers import *; explore(SMALL, {str(folder)!r}, {KILLS[moment]})"
    ended = run_program(program)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert RunStore.open(folder).checkpoints()[-1] == 2 and is_behind(folder, [TensorBoard()])
    monkeypatch.setenv("WANDB_MODE", "offline")
    names = ["tensorboard", *(["wandb"] if moment == "after" else [])]
    assert tracks_in(folder) == names
    assert call(monkeypatch, "resume", str(folder), "--track", *names) == 0
    assert f"Track: tensorboard --logdir {folder}/tracks/tensorboard" in capsys.readouterr().out
    assert tensorboard_points(folder) == expected_points(folder)
    assert {row["round"] for row in rows_of(folder)} == {1, 2, 3}
    if moment == "after":
        assert wandb_rows(folder) == [defined(row) for row in rows_of(folder)]
    assert not is_behind(folder, trackers_named(names)) and foreign_entries(folder) == []


# ---- Weights & Biases and Trackio --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_wandb_reads_back_every_number_and_the_config(tmp_path):
    pytest.importorskip("wandb", reason="needs wandb: pip install 'sonde[wandb]'")
    folder, tracker = tmp_path / "run", WandB(project="mine", mode="offline")
    explore(SMALL, folder, [tracker])
    assert wandb_rows(folder) == [defined(row) for row in rows_of(folder)]
    assert tracker.shown == f"wandb sync {folder}/tracks/wandb" and foreign_entries(folder) == []
    for path in (folder / "tracks" / "wandb").glob("*/*.wandb"):
        (opened,) = [record.run for record in read_wandb(path) if record.WhichOneof("record_type") == "run"]
        settings = {item.key: json.loads(item.value_json) for item in opened.config.update}
        assert settings.items() >= json.loads(to_json(SMALL)).items() and settings["versions"]["sonde"]
        assert opened.project == "mine" and opened.display_name == f"run-seed-{settings['seed']}"
    shown = list((folder / "tracks" / "wandb").glob("*-0/files/media/images/figures/*.png"))
    assert {path.name.partition("_")[0] for path in shown} == {path.stem for path in (folder / "figures").glob("*.png")}
    with pytest.raises(SondeError, match=r"has a track of wandb at .*/mine, and your settings say .*/other: set them"):
        explore(SMALL, folder, [WandB(project="other", mode="offline")])


@pytest.mark.slow
def test_wandb_without_an_account_is_said_before_anything_is_done(tmp_path):
    pytest.importorskip("wandb", reason="needs wandb: pip install 'sonde[wandb]'")
    program = (
        "from sonde.runs.trackers import WandB\n"
        "try: WandB(mode='online').check()\n"
        "except ValueError as error: print(type(error).__name__, error)"
    )
    clean = {key: value for key, value in os.environ.items() if not key.startswith("WANDB")}
    env = {**clean, "HOME": str(tmp_path / "home"), "NETRC": str(tmp_path / "none")}
    said = run_program(program, env, tmp_path).stdout
    assert "SondeError wandb: you are not logged in: run 'wandb login', or set WANDB_MODE=offline" in said


def test_settings_of_wandb_in_a_strangers_folder_are_not_obeyed(tmp_path):
    pytest.importorskip("wandb", reason="needs wandb: pip install 'sonde[wandb]'")
    track = Track(tmp_path, SMALL, TrackRecord(), {})
    for evil in ("wandb/settings", ".wandb/settings"):
        (tmp_path / "tracks" / evil).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tracks" / evil).write_text("[default]\nbase_url = https://example.invalid\n")
        with pytest.raises(SondeError, match="holds what neither Sonde nor wandb wrote"):
            WandB(mode="offline").begin(track)
        (tmp_path / "tracks" / evil).unlink()


@pytest.mark.slow
def test_trackio_reads_back_every_number_also_after_a_kill(tmp_path):
    pytest.importorskip("trackio", reason="needs trackio: pip install 'sonde[trackio]'")
    folder = tmp_path / "run"
    env = {**os.environ, "TRACKIO_DIR": str(tmp_path / "trackio")}  # read when it is imported
    imports = "from test_trackers import *; from sonde.runs.trackers import Trackio"
    program = f"{imports}; explore(SMALL, {str(folder)!r}, [Trackio(project='mine'), %s])"
    for other, code in (("Killer()", -signal.SIGKILL), ("Callback()", 0)):
        ended = run_program(program % other, env)
        assert ended.returncode == code, ended.stderr
    with sqlite3.connect(tmp_path / "trackio" / "mine.db") as database:
        written = [json.loads(text) for (text,) in database.execute("select metrics from metrics order by step, run_name, id")]
        configs = [json.loads(text) for (text,) in database.execute("select config from configs order by run_name")]
    rows = [row for row in written if "round" in row]
    assert sorted(rows, key=lambda row: (row["round"], row["seed"])) == [defined(row) for row in rows_of(folder)]
    assert [config["seed"] for config in configs] == [0, 1]
    assert all(config.items() >= json.loads(to_json(SMALL)).items() for config in configs)
    (figures,) = [row for row in written if "round" not in row]
    assert {key.removeprefix("figures/") for key in figures} == {path.stem for path in (folder / "figures").glob("*.png")}


# ---- what all trackers share -------------------------------------------------------------------------------------------------

SERVICE: dict[str, dict[tuple[int, int], Any]] = {}
"""A tracking service: rows by seed and round, by the id of the track; it says no to a row that it has."""


class DeadError(BaseException):
    """Stands for a kill: nothing of the process happens afterwards."""


@dataclass
class Remote(Tracker):
    """Sends to `SERVICE`; rows wait, and are lost by a kill."""

    dies_at: int = 1000
    fails: bool = False
    waiting: int = 0

    name = "remote"
    package = "json"

    def destination(self) -> str:
        return "service"

    def begin(self, track):
        self.id, self.queue, self.media, self.calls = track.id, [], [], 0
        rows = SERVICE.setdefault(track.id, {})
        return {seed: max((n for s, n in rows if s == seed), default=0) for seed in track.config.seed_list}

    def log(self, row):
        self.calls += 1
        if self.calls >= self.dies_at:
            raise ConnectionError("no route to host") if self.fails else DeadError
        self.queue.append(row)
        self.flush(self.waiting)

    def flush(self, left: int = 0):
        while len(self.queue) > left:
            row = self.queue.pop(0)
            assert (row["seed"], row["round"]) not in SERVICE[self.id], "a double point"
            SERVICE[self.id][row["seed"], row["round"]] = row

    def log_media(self, kind, round_number, paths):
        self.media.append((kind, round_number))

    def end(self):
        self.flush()

    def where(self, track):
        return f"https://service/{track.id}"


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> RunStore:
    folder = tmp_path_factory.mktemp("finished") / "run"
    explore(replace(SMALL, rounds=4), folder)
    return RunStore.open(folder)


@functools.cache
def beginning(folder: Path) -> Explorer:
    """The explorer before the first round, which `follow` does not change."""
    return restore_explorer(RunStore.open(folder), 0)


def follow(store: RunStore, tracker: Tracker, done: int, until: int) -> None:
    """What a process does that goes on with a run after some rounds, and ends after others."""
    rows, partial = store.load_metrics(), RunStore.open(store.folder)
    tracker.on_run_opened(partial, beginning(store.folder))
    of = lambda first, last: [row for row in rows if first <= row["round"] <= last]
    tracker.on_run_start(store.config, of(1, done))
    for number in range(done + 1, until + 1):
        partial.load_metrics = lambda number=number: of(1, number)
        tracker.on_round_end(number, of(number, number))
    tracker.on_run_end()


def sent(store: RunStore) -> list[dict[str, Any]]:
    rows = SERVICE[TrackRecord.load(store.folder, "remote").id]
    return [rows[key] for key in sorted(rows, key=lambda key: key[::-1])]


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_track_is_whole_after_any_kills_and_failures(finished, data):
    draw, patch = data.draw, pytest.MonkeyPatch()
    record_path(finished.folder, "remote").unlink(missing_ok=True)
    with patch.context() as context:
        context.setattr(tracker_module, "drawn_figures", lambda store, explorer: [])
        done = 0
        for _ in range(draw(st.integers(0, 4))):
            until = draw(st.integers(done, 4))
            dies_at, waiting = draw(st.integers(1, 12)), draw(st.integers(0, 3))
            tracker = Remote(dies_at=dies_at, waiting=waiting, fails=draw(st.booleans()))
            try:
                if tracker.fails and dies_at <= 2 * until - len(SERVICE.get(_id(finished), {})):
                    with pytest.warns(UserWarning, match="tracking with remote stopped"):
                        follow(finished, tracker, done, until)
                else:
                    follow(finished, tracker, done, until)
            except DeadError:
                assert until == 0 or is_behind(finished.folder, [tracker])
            done = until
        follow(finished, Remote(), done, 4)
    assert sent(finished) == finished.load_metrics()
    assert not is_behind(finished.folder, [Remote()])


def _id(store: RunStore) -> str:
    return TrackRecord.load(store.folder, "remote").id if record_path(store.folder, "remote").exists() else ""


@pytest.mark.slow
def test_failing_tracker_warns_once_and_the_run_goes_on(tmp_path):
    with pytest.warns(
        UserWarning, match=r"remote stopped \(ConnectionError: no route to host\).*sonde resume .*run --track remote"
    ):
        explore(SMALL, tmp_path / "run", [Remote(dies_at=3, fails=True)])
    store = RunStore.open(tmp_path / "run")
    assert store.checkpoints()[-1] == 3 and len(sent(store)) == 2
    tracker = Remote()
    run(store, [tracker])
    assert sent(store) == store.load_metrics() and tracker.media == [("figures", 3)]
    assert tracker.shown == f"https://service/{TrackRecord.load(store.folder, 'remote').id}"


@pytest.mark.slow
def test_run_that_goes_back_begins_a_new_track_where_points_cannot_be_removed(tmp_path):
    explore(SMALL, tmp_path / "run", [Remote()])
    store = RunStore.open(tmp_path / "run")
    before, old = _id(store), sent(store)
    run(store, [Remote()], from_round=2)
    assert _id(store) != before and sent(store) == store.load_metrics()
    assert list(SERVICE[before].values()) == old
    run(store, [Remote()])
    assert sent(store) == store.load_metrics()


BAD_RECORDS = {
    "nothing": "{}",
    "no JSON": "{",
    "another format": json.dumps({"format": 2}),
    "path as id": {"id": "../../etc"},
    "long id": {"id": "0" * 13},
    "number as place": {"destination": 3},
    "text as rounds": {"rounds": "many"},
    "no checksum": {"rounds": ["zz"]},
    "negative": {"complete": -1},
    "film": {"films": {"a.gif": 1}},
    "extra": {"server": "https://example.invalid"},
}


@pytest.mark.parametrize("damage", BAD_RECORDS)
def test_record_of_a_stranger_is_checked(damage, tmp_path):
    TrackRecord().save(tmp_path, "remote")
    path, change = record_path(tmp_path, "remote"), BAD_RECORDS[damage]
    good = json.loads(path.read_text())
    assert TrackRecord.load(tmp_path, "remote") == TrackRecord(**{key: value for key, value in good.items() if key != "format"})
    path.write_text(change if isinstance(change, str) else json.dumps(good | change))
    with pytest.raises(SondeError, match=r"remote\.json"):
        TrackRecord.load(tmp_path, "remote")


@pytest.mark.slow
def test_folder_says_neither_that_nor_where_to_send_anything(tracked, tmp_path, monkeypatch, capsys):
    folder = copied(tracked, tmp_path)
    record = TrackRecord.load(folder, "tensorboard")
    for name in ("wandb", "trackio"):
        record.destination = "https://example.invalid/evil"
        record.save(folder, name)
    before = {path: path.read_bytes() for path in (folder / "tracks").rglob("*") if path.is_file()}
    assert call(monkeypatch, "resume", str(folder)) == 0
    assert "'--track tensorboard wandb trackio' sends them what they miss" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in (folder / "tracks").rglob("*") if path.is_file()} == before
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert call(monkeypatch, "resume", str(folder), "--track", "wandb") == 2
    assert "has a track of wandb at https://example.invalid/evil, and your settings say" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("place", ["tracks", "tracks/tensorboard", "tracks/tensorboard/seed-1"])
def test_nothing_is_written_through_links(place, tracked, tmp_path, monkeypatch, capsys):
    folder, elsewhere = copied(tracked, tmp_path), tmp_path / "elsewhere"
    shutil.move(folder / place, elsewhere)
    (folder / place).symlink_to(elsewhere)
    before = sorted(path.name for path in elsewhere.rglob("*"))
    assert call(monkeypatch, "resume", str(folder), "--track", "tensorboard") == 2
    assert "not a link to one" in capsys.readouterr().err
    assert sorted(path.name for path in elsewhere.rglob("*")) == before


# ---- names, settings, sweeps -------------------------------------------------------------------------------------------------


def test_unknown_tracker_is_rejected_with_the_nearest_name(tmp_path, monkeypatch, capsys):
    args = ["pendulum-gp-lite", *TINY_OPTIONS, "--out", str(tmp_path / "run"), "--track", "tensorbord"]
    for command in (["explore", *args], ["sweep", "pendulum-gp-lite", *args[-4:]], ["resume", *args[-3:]]):
        assert call(monkeypatch, *command) == 2
        said = capsys.readouterr().err
        assert "unknown tracker 'tensorbord'; did you mean 'tensorboard'? expected one of: tensorboard, trackio, wandb" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", TRACKERS)
def test_package_that_is_missing_is_named(name, monkeypatch):
    monkeypatch.setattr(tracker_module.importlib.util, "find_spec", lambda module: None)
    package = TRACKERS[name].package
    with pytest.raises(SondeError, match=rf"'{name}' needs {package}, which is not installed: pip install 'sonde\[{name}\]'"):
        trackers_named([name])


def test_settings_that_cannot_be_are_rejected():
    with pytest.raises(SondeError, match="figures_every must be a whole number, 0 or above, got -1"):
        TensorBoard(figures_every=-1)
    if importlib.util.find_spec("wandb"):
        with pytest.raises(SondeError, match="mode must be 'online' or 'offline', got 'on'"):
            WandB(mode="on")


def test_git_state_is_the_commit_and_whether_tracked_files_differ(tmp_path):
    assert git_state(tmp_path) == {}
    git = lambda *words: subprocess.run(["git", "-C", str(tmp_path), *words], check=True, capture_output=True, text=True).stdout
    git("init", "-q")
    assert git_state(tmp_path) == {}, "there is no commit yet"
    (tmp_path / "a.py").write_text("1\n")
    git("add", "a.py")
    git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "first")
    commit = git("log", "-1", "--format=%H").strip()
    (tmp_path / "untracked").touch()
    assert git_state(tmp_path) == {"commit": commit, "dirty": False}
    (tmp_path / "a.py").write_text("2\n")
    assert git_state(tmp_path) == {"commit": commit, "dirty": True}


@pytest.mark.slow
@pytest.mark.parametrize("lockstep", [False, True])
def test_batches_of_sweeps_are_tracked_and_gaps_are_filled(lockstep, tmp_path):
    sweep = Sweep(tmp_path / "sweep", {"random": replace(SMALL, rounds=1, capacity=36)})
    backend, (batch,) = LocalBackend(1, lockstep), sweep.batches()
    assert run_sweep(sweep, backend) == {} and not (batch.folder / "tracks").exists()
    for _ in range(2):
        assert run_sweep(sweep, backend, [TensorBoard()]) == {}  # it is finished, and its track lacks all rounds
        assert tensorboard_points(batch.folder) == expected_points(batch.folder)
    written = sorted((batch.folder / "tracks").rglob("events*"))
    assert run_sweep(sweep, backend, [TensorBoard()]) == {}
    assert sorted((batch.folder / "tracks").rglob("events*")) == written, "nothing was missing"


def test_trackers_reach_other_processes():
    from sonde.runs.sweep._worker import from_text, to_text

    pytest.importorskip("wandb", reason="needs wandb: pip install 'sonde[wandb]'")
    given = (TensorBoard(figures_every=5), WandB(project="mine", mode="offline"))
    assert "sonde.runs.trackers:WandB" in to_text(given)
    assert from_text(to_text(given)) == given


@pytest.mark.slow
def test_command_line_tracks_a_run(tmp_path, monkeypatch, capsys):
    short = ["--rounds", "1", "--capacity", "36", "--method", "random", "--evaluate-every", "0"]
    args = ["explore", "pendulum-gp-lite", *TINY_OPTIONS, *short, "--out", str(tmp_path / "run"), "--track", "tensorboard"]
    assert call(monkeypatch, *args) == 0
    assert f"Track: tensorboard --logdir {tmp_path}/run/tracks/tensorboard" in capsys.readouterr().out
    assert tensorboard_points(tmp_path / "run") == expected_points(tmp_path / "run")
