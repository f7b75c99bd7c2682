"""What an experiment needs and where it is run: batches, processes on this machine, tasks on Ray.

Workers do not see what a test patches: what they need travels by value, or in the folder's config.json.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from tiny import TINY

from sonde.errors import SondeError
from sonde.reproduce import cluster, local
from sonde.reproduce.grid import REFERENCE_FILE, REFERENCES, Batch, Grid
from sonde.reproduce.local import run_locally
from sonde.runs.store import RunStore

ROUNDS = 20  # of which the first one compiles: time enough to kill a worker among the others
quietly = lambda running: None


def explored(parent: Path, seed: int = 0) -> Batch:
    config = replace(TINY, episodes=ROUNDS, horizon=6, first_seed=seed, seeds=2, evaluate_every=10)
    return Batch("pendulum-gp", config.method, config, parent / f"{ROUNDS}-rounds-seeds-{seed}-{seed + 1}")


def references(parent: Path) -> Batch:
    return Batch("pendulum-gp", REFERENCES, replace(TINY, method="random", episodes=1, seeds=2), parent / "references-seeds-0-1")


def two(parent: Path) -> list[Batch]:
    return [explored(parent), references(parent)]


def measured(batch: Batch) -> list[dict]:
    return [{key: value for key, value in row.items() if not key.startswith("seconds/")} for row in batch.rows()]


def learned(batch: Batch) -> dict[str, np.ndarray]:
    return safetensors.numpy.load((batch.folder / "checkpoints" / f"{batch.rounds:04d}.safetensors").read_bytes())


def assert_alike(batch: Batch, other: Batch) -> None:
    """Bit for bit."""
    assert batch.finished and other.finished
    assert measured(batch) == measured(other) != []
    if batch.kind != REFERENCES:
        ours, theirs = learned(batch), learned(other)
        assert ours.keys() == theirs.keys() != set()
        assert all(ours[name].tobytes() == theirs[name].tobytes() for name in ours)


def worker_of(batch: Batch) -> int | None:
    """The process that holds the lock of its folder."""
    lock = str(batch.folder / ".lock")
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if os.readlink(link) == lock:
                return int(link.parts[2])
    return None


class KillInTheMiddle:
    """Kills the worker of a batch, once, after a round is finished."""

    def __init__(self, batch: Batch):
        self.batch, self.killed_after = batch, None

    def __call__(self, running):
        if self.killed_after is None and self.batch.rounds_done() > 0 and (worker := worker_of(self.batch)):
            os.kill(worker, signal.SIGKILL)
            self.killed_after = self.batch.rounds_done()

    def check(self):
        assert self.killed_after is not None and 0 < self.killed_after < self.batch.rounds
        assert len((self.batch.folder / "machines.jsonl").read_text().splitlines()) == 2  # it was begun twice


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> list[Batch]:
    """Two batches, run side by side."""
    batches = two(tmp_path_factory.mktemp("undisturbed"))
    seen = []
    assert run_locally(batches, 2, lambda running: seen.append(len(running))) == {}
    assert max(seen) == 2 and seen[-1] == 0
    return batches


@pytest.fixture
def attentive(monkeypatch):
    """Backends look often, so that a test can act between two rounds."""
    for backend in (local, cluster):
        monkeypatch.setattr(backend, "PAUSE", 0.02)


needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks for a worker in /proc")


# On this machine


def test_batches_are_finished_once(undisturbed):
    batch, judged = undisturbed
    assert batch.finished and judged.finished
    assert [row["episode"] for row in batch.rows()] == [1 + i // 2 for i in range(2 * ROUNDS)]
    assert {row["method"] for row in judged.rows()} == {"oracle", "random-actions"}
    files = [path for b in undisturbed for path in b.folder.rglob("*") if path.is_file()]
    before = {path: path.read_bytes() for path in files if path.name not in ("log.txt", "machines.jsonl")}
    assert run_locally([b for b in undisturbed if not b.finished], 2, quietly) == {}
    assert run_locally([batch], 1, quietly) == {}  # even if asked, it repeats nothing
    assert {path: path.read_bytes() for path in before} == before


def test_a_failure_has_a_reason_and_others_finish(tmp_path):
    good, bad = references(tmp_path / "good"), explored(tmp_path / "bad")
    bad.create()
    (bad.folder / "config.json").write_text('{"episodes": "many"}')
    failures = run_locally([bad, good], 2, quietly)
    assert list(failures) == [bad.folder] and good.finished
    assert "ended with 2" in failures[bad.folder] and "config.json" in failures[bad.folder]
    assert str(bad.folder / "log.txt") in failures[bad.folder]


@needs_proc
def test_a_killed_worker_goes_on(undisturbed, tmp_path, attentive):
    batch = explored(tmp_path)
    kill = KillInTheMiddle(batch)
    assert run_locally([batch], 1, kill) == {}
    kill.check()
    assert_alike(batch, undisturbed[0])


PARENT = """
import sys
from pathlib import Path
from sonde.reproduce.grid import Batch
from sonde.reproduce.local import run_locally
from sonde.runs.store import RunStore
folder = Path(sys.argv[1])
config = RunStore.open(folder).config
run_locally([Batch("pendulum-gp", config.method, config, folder)], 1, lambda running: None)
"""


@needs_proc
def test_nothing_is_left_running_when_the_parent_is_killed(undisturbed, tmp_path):
    batch = explored(tmp_path)
    batch.create()
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(batch.folder)])
    _wait_until(lambda: batch.rounds_done() > 0)
    parent.kill()
    parent.wait()
    _wait_until(lambda: worker_of(batch) is None)
    assert not batch.finished
    assert run_locally([batch], 1, quietly) == {}
    assert_alike(batch, undisturbed[0])


def _wait_until(true) -> None:
    for _ in range(6000):
        if true():
            return
        time.sleep(0.01)
    raise AssertionError("waited for a minute")


# On Ray


@pytest.fixture(scope="module")
def address():
    """A cluster of two machines, both of them this one, each with room for one task."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    machines = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    machines.add_node(num_cpus=1)
    yield machines.address
    machines.shutdown()


@needs_proc
def test_ray_gives_the_same_numbers_though_a_worker_is_killed(undisturbed, tmp_path, attentive, address):
    batches = two(tmp_path)
    kill, seen = KillInTheMiddle(batches[0]), set()
    bad = explored(tmp_path / "bad")
    bad.create()
    (bad.folder / "config.json").write_text('{"episodes": "many"}')

    def on_tick(running):
        seen.add(len(running))
        kill(running)

    failures = cluster.run_on_ray([*batches, bad], address, 0.0, on_tick)
    assert list(failures) == [bad.folder] and "config.json" in failures[bad.folder]
    kill.check()
    assert seen == {0, 1, 2}
    for batch, other in zip(batches, undisturbed, strict=True):
        assert_alike(batch, other)
