"""The example of a plant in another process: explored in real time, killed twice, then controlled without JAX."""

import importlib.util
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest

from sonde import Experiment, load_policy
from sonde.runs._run import build_explorer
from sonde.runs._store import RunStore

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "examples" / "plant_over_tcp.py"
WITHOUT_JAX = """
import runpy, sys
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
assert not {"jax", "sonde", "scipy"} & set(sys.modules)
"""
ROUND = re.compile(r"round (\d): (\d+) steps, (\d+) late, (\d+) repeated by the plant, at most (\S+) m/s")


@pytest.fixture(scope="module")
def example():
    """The example as a module."""
    spec = importlib.util.spec_from_file_location("plant_over_tcp", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """The plant, in a process of its own."""
    plant = program("--port", "0", "plant")
    yield int(next(plant.stdout).split()[-1])
    kill(plant)


def program(*args: str, code: str | None = None) -> subprocess.Popen:
    begin = [sys.executable] if code is None else [sys.executable, "-c", code]
    return subprocess.Popen([*begin, str(EXAMPLE), *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def kill(process: subprocess.Popen) -> None:
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    process.stdout.close()


def wait_for(process: subprocess.Popen, beginning: str) -> list[str]:
    """The lines up to the one that begins so."""
    said = []
    for line in process.stdout:
        said.append(line.strip())
        if line.startswith(beginning):
            return said
    raise AssertionError("\n".join(said))


def loss(example, policy, link) -> float:
    """What an episode loses, as a share of what standing still would lose."""
    states, actions, _ = example.run_episode(policy, link)
    total = sum(example.hold(*row) for row in zip(states[:-1], actions, states[1:], strict=True))
    return -float(total) / (len(actions) * abs(example.GOAL - states[0, 0]))


@pytest.mark.slow
def test_a_plant_over_tcp_is_explored_killed_twice_and_controlled_without_jax(example, port, tmp_path):
    out = tmp_path / "slide"
    words = ["--port", str(port), "explore", "--out", str(out), "--rounds", "3"]
    data, checkpoints = (lambda number: out / "data" / f"{number:04d}.safetensors"), out / "checkpoints"

    measuring = program(*words)
    wait_for(measuring, "round 2: running")
    time.sleep(0.5)
    kill(measuring)
    assert data(1).exists() and not data(2).exists()
    first = data(1).read_bytes()

    learning = program(*words)
    assert wait_for(learning, "round 2: running") == ["continuing after round 1", "round 2: running"]
    while not data(2).exists():
        assert learning.poll() is None, learning.communicate()[0]
        time.sleep(0.002)
    kill(learning)
    assert not (checkpoints / "0002.json").exists()
    second = data(2).read_bytes()

    last = program(*words)
    assert wait_for(last, "round 3: running") == ["continuing after round 2", "round 3: running"]
    time.sleep(0.3)
    last.send_signal(signal.SIGSTOP)  # the plant goes on
    time.sleep(0.6)
    last.send_signal(signal.SIGCONT)
    said = wait_for(last, "exported")
    assert last.wait() == 0
    last.stdout.close()

    check_run(out, [first, second], data)
    number, steps, _, repeated, _ = next(found for line in said if (found := ROUND.search(line))).groups()
    assert (number, steps) == ("3", str(example.STEPS)) and int(repeated) >= 10

    done = program("--port", str(port), "control", str(out / "policies" / "hold.onnx"), code=WITHOUT_JAX)
    output, _ = done.communicate()
    assert done.returncode == 0 and "wanted: 0.50 m" in output, output
    check_policy(example, out, port)


def check_run(out: Path, told: list[bytes], data) -> None:
    """Three rounds, each once; what was told is there as it was, and what was learned follows from it."""
    store = RunStore.open(out)
    rows = store.load_metrics()
    assert [(row["round"], row["transitions"]) for row in rows] == [(1, 40), (2, 80), (3, 120)]
    assert [data(1).read_bytes(), data(2).read_bytes()] == told
    assert all(0 <= row["late_actions"] <= 1 for row in rows), "also of the round after which the program was killed"
    fast = [np.abs(trajectory.states[0, :, 1]) > 0.8 for trajectory in store.load_data(2)]
    assert np.mean(fast) < 0.1
    with Experiment(out, store.config) as experiment:
        saved = jax.tree.leaves(experiment.explorer.params)
    explorer = build_explorer(store.config)
    for trajectory in store.load_data(3):
        explorer.tell(trajectory)
    for ours, afresh in zip(saved, jax.tree.leaves(explorer.params), strict=True):
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(afresh))


def check_policy(example, out: Path, port: int) -> None:
    """The exported policy acts as the one in numpy, and loses not much more than a controller that was tuned by hand."""
    file = out / "policies" / "hold.onnx"
    exported, plain = example.OnnxPolicy(str(file)), load_policy(file.with_suffix(".safetensors"))
    for x in np.random.default_rng(0).normal(size=(50, 2)):
        np.testing.assert_allclose(exported(x), plain(x), atol=1e-5)  # networks are in single precision
    by_hand = lambda x: np.clip([1.5 * (example.GOAL - x[0]) - 0.6 * x[1]], -1, 1)
    with example.Link(port) as link:
        learned = np.mean([loss(example, example.OnnxPolicy(str(file)), link) for _ in range(3)])
        known = np.mean([loss(example, by_hand, link) for _ in range(3)])
    print(f"lost, of what standing still loses: {learned:.2f} learned, {known:.2f} by hand")
    assert known < 0.5 and learned < 0.75, (known, learned)
