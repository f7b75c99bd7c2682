"""Every format of logs, in files made by the format's own writer: read back as written; faults named by file, row, column."""

import csv
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from sonde import SondeError
from sonde.runs import read_measurements
from sonde.runs.logs import LogFormat, _mcap, _messages, check_logs, system_of
from sonde.worlds import OwnSystem

SYSTEM = OwnSystem(states=("x1", "x2"), actions=("u",))
STEPS, DT = 40, 0.05
WORDS = LogFormat(columns=("x1=position", "x2=speed", "u=command"))
TOPICS = LogFormat(columns=("x1=/joints.position[0]", "x2=/joints.velocity[0]", "u=/command.data"), irregular="resample", dt=DT)


@pytest.fixture(scope="module")
def signals() -> dict[str, np.ndarray]:
    """A log of one episode, sampled every DT seconds."""
    rng = np.random.default_rng(3)
    time = DT * np.arange(STEPS)
    return {
        "time": time,
        "position": np.sin(time),
        "speed": np.cos(time),
        "command": rng.uniform(-1, 1, STEPS),
    }


def assert_read(source, signals, log: LogFormat = WORDS, **tolerance) -> None:
    found = read_measurements(str(source), SYSTEM, log)
    states = np.stack([signals["position"], signals["speed"]], axis=1)
    np.testing.assert_allclose(found.states, states[:-1], **{"rtol": 0, **tolerance})
    np.testing.assert_allclose(found.next_states, states[1:], **{"rtol": 0, **tolerance})
    np.testing.assert_allclose(found.actions[:, 0], signals["command"][:-1], **{"rtol": 0, **tolerance})


# Text


def write_csv(path: Path, signals, **options) -> Path:
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, **options)
        writer.writerow(signals)
        writer.writerows([repr(float(value)) for value in row] for row in zip(*signals.values(), strict=True))
    return path


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_text_is_read_as_written(signals, tmp_path, delimiter):
    assert_read(write_csv(tmp_path / "a.csv", signals, delimiter=delimiter), signals)


def test_savetxt_of_numpy_is_read_as_written(signals, tmp_path):
    table = np.stack(list(signals.values()), axis=1)
    np.savetxt(tmp_path / "a.txt", table, delimiter=",", header="recorded on a bench\n" + ",".join(signals), fmt="%r")
    text = (tmp_path / "a.txt").read_text().replace("np.float64(", "").replace(")", "")
    (tmp_path / "a.txt").write_text(text)
    assert_read(tmp_path / "a.txt", signals)


# MATLAB and numpy


def test_matlab_file_is_read_as_written(signals, tmp_path):
    from scipy.io import savemat

    savemat(tmp_path / "rows.mat", signals, oned_as="row")
    savemat(tmp_path / "columns.mat", signals, oned_as="column", do_compression=True)
    joint = {"time": signals["time"], "state": np.stack([signals["position"], signals["speed"]]), "command": signals["command"]}
    savemat(tmp_path / "wide.mat", joint)
    savemat(tmp_path / "tall.mat", {**joint, "state": joint["state"].T})
    for name in ("rows.mat", "columns.mat"):
        assert_read(tmp_path / name, signals)
    for name in ("wide.mat", "tall.mat"):
        assert_read(tmp_path / name, signals, LogFormat(columns=("x1=state[0]", "x2=state[1]", "u=command")))


def test_matlab_file_with_a_fault_is_refused(signals, tmp_path):
    import h5py
    from scipy.io import savemat

    broken = {**signals, "speed": np.where(np.arange(STEPS) == 7, np.nan, signals["speed"])}
    short = {**signals, "speed": signals["speed"][:-1]}
    for name, content, message in [
        ("nan.mat", broken, r"nan.mat: row 8, column 'speed': expected a finite number, got nan"),
        ("short.mat", short, r"equally many samples, got \{'position': 40, 'speed': 39"),
        ("struct.mat", {"data": signals}, r"expected arrays of numbers, got 'data \(struct\)'; save each signal"),
        ("objects.mat", {"x": np.array([{}, 1], dtype=object)}, r"got 'x \(cell\)'"),
        ("far.mat", {**signals, "command": 3 * signals["command"]}, r"column 'command': expected an action in \[-1, 1\], got"),
        ("lack.mat", {"time": signals["time"]}, r"missing column\(s\) 'position', 'speed', 'command'; found: 'time'"),
    ]:
        savemat(tmp_path / name, content)
        with pytest.raises(SondeError, match=message):
            read_measurements(str(tmp_path / name), SYSTEM, WORDS)
    with h5py.File(tmp_path / "new.mat", "w", userblock_size=512) as file:
        file["position"] = signals["position"]
    (tmp_path / "text.mat").write_bytes(b"hello")
    damaged = tmp_path / "damaged.mat"
    damaged.write_bytes((tmp_path / "far.mat").read_bytes()[:-200])
    for name, message in [
        ("new.mat", "version 7.3; save it with"),
        ("text.mat", "not a readable MATLAB file"),
        ("damaged.mat", "damaged.mat (cannot be read|is not a readable MATLAB file)"),
    ]:
        with pytest.raises(SondeError, match=message):
            read_measurements(str(tmp_path / name), SYSTEM, WORDS)


def test_arrays_that_are_too_large_are_refused_before_they_are_unpacked(signals, tmp_path, monkeypatch):
    import scipy.io

    from sonde.runs.logs import _arrays

    scipy.io.savemat(tmp_path / "a.mat", signals)
    np.savez(tmp_path / "a.npz", **signals)
    monkeypatch.setattr(_arrays, "LARGEST", STEPS - 1)
    monkeypatch.setattr(scipy.io, "loadmat", lambda *_, **__: pytest.fail("it was loaded"))
    monkeypatch.setattr(np, "load", lambda *_, **__: pytest.fail("it was loaded"))
    for name in ("a.mat", "a.npz"):
        with pytest.raises(SondeError, match=r"expected at most .* transitions, got an array 'position' of 40 x 1"):
            read_measurements(str(tmp_path / name), SYSTEM, WORDS)


def test_npz_of_signals_is_read_as_written(signals, tmp_path):
    np.savez(tmp_path / "a.npz", **signals)
    assert_read(tmp_path / "a.npz", signals)


# MCAP


def write_mcap(path: Path, signals, *, slow: int = 1, change=lambda topic, number, content: content) -> Path:
    """Joints with each sample, and the command with each `slow`-th one, as JSON."""
    from mcap.writer import Writer

    with open(path, "wb") as file:
        writer = Writer(file)
        writer.start()
        schema = writer.register_schema("any", "jsonschema", b"{}")
        channels = {topic: writer.register_channel(topic, "json", schema) for topic in ("/joints", "/command")}
        for number, (time, position, speed, command) in enumerate(zip(*signals.values(), strict=True)):
            contents = {"/joints": {"position": [position], "velocity": [speed], "name": ["a"]}, "/command": {"data": command}}
            for topic, content in contents.items():
                if topic == "/command" and number % slow:
                    continue
                stamp = 10**18 + round(time * 1e9)
                data = json.dumps(change(topic, number, content)).encode()
                writer.add_message(channels[topic], log_time=stamp, data=data, publish_time=stamp - 5)
        writer.finish()
    return path


def test_mcap_with_json_is_read_as_written(signals, tmp_path):
    path = write_mcap(tmp_path / "a.mcap", signals)
    assert_read(path, signals, TOPICS, atol=1e-7)  # on the grid of clocks with nanoseconds
    assert check_logs(str(path), TOPICS, SYSTEM).dt == DT


def test_topics_of_another_rate_are_held(signals, tmp_path):
    path = write_mcap(tmp_path / "a.mcap", signals, slow=4)
    from dataclasses import replace

    with pytest.raises(SondeError, match=r"it has no transitions; .*gap"):
        read_measurements(str(path), SYSTEM, TOPICS)
    found = read_measurements(str(path), SYSTEM, replace(TOPICS, max_gap=4))
    held = np.repeat(signals["command"][::4], 4)[: len(found.actions)]
    np.testing.assert_array_equal(found.actions[:, 0], held)
    with pytest.raises(SondeError, match=r"sampled at different times .*add --irregular resample"):
        read_measurements(str(path), SYSTEM, replace(TOPICS, irregular="cut"))


def text_at(number, value):
    return lambda topic, n, content: {**content, "data": value} if (topic, n) == ("/command", number) else content


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (text_at(6, "off"), r"message 7, column '/command.data': expected a number, got 'off'"),
        (text_at(6, None), r"message 7, column '/command.data': expected a number, got nothing"),
        (text_at(6, 7.5), r"message 7, column '/command.data': expected an action in \[-1, 1\], got 7.5"),
        (
            lambda topic, n, content: {} if (topic, n) == ("/joints", 4) else content,
            r"message 5, column '/joints.position\[0\]'",
        ),
        (lambda topic, n, content: {"data": 1} if topic == "/joints" else content, r"missing column\(s\) '/joints.position"),
    ],
)
def test_mcap_with_a_fault_is_refused(signals, tmp_path, change, message):
    path = write_mcap(tmp_path / "a.mcap", signals, change=change)
    with pytest.raises(SondeError, match=re.escape(str(path)) + ".*" + message):
        read_measurements(str(path), SYSTEM, TOPICS)


def test_mcap_that_is_damaged_or_in_another_encoding_is_refused(signals, tmp_path, monkeypatch):
    from mcap.writer import Writer

    path = write_mcap(tmp_path / "a.mcap", signals)
    content = bytearray(path.read_bytes())
    content[200] ^= 1
    (tmp_path / "flipped.mcap").write_bytes(content)
    (tmp_path / "cut.mcap").write_bytes(content[:-100])
    (tmp_path / "text.mcap").write_bytes(b"hello")
    with open(tmp_path / "proto.mcap", "wb") as file:
        writer = Writer(file)
        writer.start()
        writer.add_message(writer.register_channel("/joints", "protobuf", 0), 0, b"", 0)
        writer.finish()
    for name in ("flipped.mcap", "cut.mcap", "text.mcap", "proto.mcap"):
        with pytest.raises(SondeError, match=f"{name}.*(cannot be read as MCAP|encodings protobuf)"):
            read_measurements(str(tmp_path / name), SYSTEM, TOPICS)
    monkeypatch.setattr(_messages, "LARGEST", STEPS - 1)
    with pytest.raises(SondeError, match="got 40 messages of /joints"):
        read_measurements(str(path), SYSTEM, TOPICS)
    monkeypatch.setattr(_mcap, "LARGEST_CHUNK", 100)
    with pytest.raises(SondeError, match="a chunk unpacks to more than 100 bytes"):
        read_measurements(str(path), SYSTEM, TOPICS)


# ROS 2


def write_bag(path: Path, signals, plugin: str, lag: float = 0.0) -> Path:
    """A bag by rosbags' writer; joints are stamped `lag` seconds before they are logged."""
    from rosbags.rosbag2 import StoragePlugin, Writer
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS2_HUMBLE)
    kinds = {name: store.types[name] for name in ("sensor_msgs/msg/JointState", "std_msgs/msg/Float64", "std_msgs/msg/Header")}
    joint, number, header = kinds.values()
    stamp_of = store.types["builtin_interfaces/msg/Time"]
    empty = np.array([])
    with Writer(path, version=9, storage_plugin=StoragePlugin[plugin]) as writer:
        joints, command = (
            writer.add_connection(topic, kind.__msgtype__, typestore=store)
            for topic, kind in (("/joints", joint), ("/command", number))
        )
        for time, position, speed, value in zip(*signals.values(), strict=True):
            logged = 10**18 + round((time + lag) * 1e9)
            stamp = stamp_of(*(int(part) for part in divmod(10**18 + round(time * 1e9), 10**9)))
            message = joint(header(stamp, "base"), ["a"], np.array([position]), np.array([speed]), empty)
            writer.write(joints, logged, store.serialize_cdr(message, joint.__msgtype__))
            writer.write(command, logged, store.serialize_cdr(number(value), number.__msgtype__))
    return path


@pytest.mark.parametrize("plugin", ["SQLITE3", "MCAP"])
def test_ros_bag_is_read_as_written(signals, tmp_path, plugin):
    bag = write_bag(tmp_path / "bag", signals, plugin)
    (storage,) = [path for path in bag.iterdir() if path.suffix in (".mcap", ".db3")]
    for source in (bag, storage):
        assert_read(source, signals, TOPICS, atol=1e-7)


def test_ros_stamps_are_the_clock_when_asked_for(signals, tmp_path):
    from dataclasses import replace

    bag = write_bag(tmp_path / "bag", signals, "MCAP", lag=0.3)
    only_joints = LogFormat(
        columns=("x1=/joints.position[0]", "x2=/joints.velocity[0]", "u=/joints.velocity[0]"), time_column="header.stamp"
    )
    assert_read(bag, {**signals, "command": signals["speed"]}, only_joints)
    with pytest.raises(SondeError, match=r"message 1 of /command has no time 'header.stamp'"):
        read_measurements(str(bag), SYSTEM, replace(TOPICS, time_column="header.stamp"))


def test_ros_bag_with_a_fault_is_refused(signals, tmp_path):
    bag = write_bag(tmp_path / "bag", signals, "SQLITE3")
    with pytest.raises(SondeError, match=r"missing column\(s\) '/joint.position\[0\]'; .*did you mean '/joints.position\[0\]'"):
        read_measurements(
            str(bag), SYSTEM, LogFormat(columns=("x1=/joint.position[0]", "x2=/joints.velocity[0]", "u=/command"))
        )
    packed = tmp_path / "packed"
    shutil.copytree(bag, packed)
    text = (bag / "metadata.yaml").read_text()
    (packed / "metadata.yaml").write_text(re.sub("compression_mode: .*", "compression_mode: FILE", text))
    with pytest.raises(SondeError, match="is compressed as a whole; unpack it first"):
        read_measurements(str(packed), SYSTEM, TOPICS)
    (storage,) = bag.glob("*.db3")
    storage.write_bytes(storage.read_bytes()[:5000])
    with pytest.raises(SondeError, match=r"bag.* cannot be read as a ROS 2 bag"):
        read_measurements(str(bag), SYSTEM, TOPICS)
    (bag / "metadata.yaml").unlink()
    with pytest.raises(SondeError, match=r"is a folder without meta/info.json \(LeRobot\) or metadata.yaml"):
        read_measurements(str(bag), SYSTEM, TOPICS)


# LeRobot


def write_lerobot(folder: Path, signals, version: str, change=lambda columns: columns) -> Path:
    """Two episodes in the layout of a version: a file for each, or both in one."""
    import pyarrow
    import pyarrow.parquet

    states = np.stack([signals["position"], signals["speed"]], axis=1).astype(np.float32)
    half = STEPS // 2
    tables = []
    for episode, part in enumerate((slice(0, half), slice(half, STEPS))):
        count = len(states[part])
        columns = {
            "observation.state": pyarrow.array(list(states[part]), type=pyarrow.list_(pyarrow.float32(), 2)),
            "action": pyarrow.array(
                list(signals["command"][part, None].astype(np.float32)), type=pyarrow.list_(pyarrow.float32())
            ),
            "episode_index": pyarrow.array(np.full(count, episode)),
            "timestamp": pyarrow.array((DT * np.arange(count)).astype(np.float32)),
        }
        tables.append(pyarrow.table(change(columns) if episode else columns))
    place = folder / "data" / "chunk-000"
    place.mkdir(parents=True)
    if version == "v2.1":
        for number, table in enumerate(tables):
            pyarrow.parquet.write_table(table, place / f"episode_{number:06d}.parquet")
    else:
        pyarrow.parquet.write_table(pyarrow.concat_tables(tables), place / "file-000.parquet")
    features = {
        "observation.state": {"dtype": "float32", "shape": [2], "names": {"motors": ["shoulder", "elbow"]}},
        "action": {"dtype": "float32", "shape": [1], "names": None},
        "observation.images.top": {"dtype": "video", "shape": [3, 4, 4]},
        "episode_index": {"dtype": "int64", "shape": [1]},
        "timestamp": {"dtype": "float32", "shape": [1]},
    }
    (folder / "meta").mkdir()
    (folder / "meta" / "info.json").write_text(json.dumps({"codebase_version": version, "fps": 20, "features": features}))
    return folder


@pytest.mark.parametrize("version", ["v2.1", "v3.0"])
def test_lerobot_dataset_is_read_as_written(signals, tmp_path, version):
    folder = write_lerobot(tmp_path / "data", signals, version)
    found, half = read_measurements(str(folder), SYSTEM), STEPS // 2
    states = np.stack([signals["position"], signals["speed"]], axis=1).astype(np.float32)
    kept = np.setdiff1d(np.arange(STEPS - 1), [half - 1])
    np.testing.assert_array_equal(found.states, states[kept])
    np.testing.assert_array_equal(found.next_states, states[kept + 1])
    np.testing.assert_array_equal(found.actions[:, 0], signals["command"].astype(np.float32)[kept])
    assert system_of(LogFormat(), str(folder)) == OwnSystem(states=("shoulder", "elbow"), actions=("u0",))
    check = check_logs(str(folder))
    assert (check.transitions, check.dt, check.sources[0].episodes) == (STEPS - 2, DT, 2)


def replaced(name: str, value):
    import pyarrow

    return lambda columns: {**columns, name: pyarrow.array(value(columns[name].to_pylist()), type=columns[name].type)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            replaced("action", lambda rows: [*rows[:3], [0.5, 0.5], *rows[4:]]),
            r"000001.parquet: row 3, column 'action': expected 1",
        ),
        (
            replaced("action", lambda rows: [*rows[:3], None, *rows[4:]]),
            r"row 3, column 'action': expected 1 number\(s\), got None",
        ),
        (replaced("action", lambda rows: [*rows[:3], [4.0], *rows[4:]]), r"frame 23, column 'action\[0\]': .*got 4"),
        (lambda columns: {k: v for k, v in columns.items() if k != "action"}, r"000001.parquet: missing column\(s\) 'action'"),
    ],
)
def test_lerobot_dataset_with_a_fault_is_refused(signals, tmp_path, change, message):
    folder = write_lerobot(tmp_path / "data", signals, "v2.1", change)
    with pytest.raises(SondeError, match=message):
        read_measurements(str(folder), SYSTEM)


def test_lerobot_dataset_that_cannot_be_read_is_refused(signals, tmp_path, monkeypatch):
    from sonde.runs.logs import _lerobot

    folder = write_lerobot(tmp_path / "data", signals, "v3.0")
    info = json.loads((folder / "meta" / "info.json").read_text())
    monkeypatch.setattr(_lerobot, "LARGEST", STEPS - 1)
    with pytest.raises(SondeError, match=r"expected at most .* transitions, got at least 40 frames"):
        read_measurements(str(folder), SYSTEM)
    (file,) = (folder / "data").rglob("*.parquet")
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(SondeError, match=r"file-000.parquet cannot be read as parquet"):
        read_measurements(str(folder), SYSTEM)
    file.unlink()
    with pytest.raises(SondeError, match="there are no parquet files"):
        read_measurements(str(folder), SYSTEM)
    (folder / "meta" / "info.json").write_text(json.dumps({**info, "codebase_version": "v1.6"}))
    with pytest.raises(SondeError, match=r"expected a dataset of version 2 or 3, got 'v1.6'"):
        read_measurements(str(folder), SYSTEM)


def test_package_that_is_missing_is_named(signals, tmp_path, monkeypatch):
    import sys

    path = write_mcap(tmp_path / "a.mcap", signals)
    monkeypatch.setitem(sys.modules, "mcap.reader", None)
    with pytest.raises(SondeError, match=r"needs the package mcap: pip install '\.\[logs\]'"):
        read_measurements(str(path), SYSTEM, TOPICS)
