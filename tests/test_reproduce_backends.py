"""Where an experiment is run: in processes on this machine, in tasks on Ray.

Workers do not see what a test patches: what they need travels by value, or in the folder's config.json.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from experiments.command import Experiment, run_missing
from experiments.paper import SCALES, Scale
from rich.console import Console

from sonde._internal.errors import SondeError
from sonde.reproduce import cluster, grid, local
from sonde.runs.sweep._grid import REFERENCES, Batch
from sonde.runs.sweep._local import run_locally
from tiny import TINY

# Ray starts its processes by a fork, of which JAX, if another test has used it here, warns; they replace themselves at once
pytestmark = pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")

ROUNDS = 30  # of which the first one compiles: time enough to stop a worker among the others
EXPLORED, JUDGED = f"opax/{ROUNDS}-rounds-seeds-0-1", "references-seeds-0-1"
quietly = lambda running: None
needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks for workers in /proc")


def tiny_config(setting, method, rounds, seeds, first_seed=0, lite=False):
    tiny = replace(TINY, horizon=6, evaluate_every=0, tasks=("swing-up",))  # fewer programs to compile
    return replace(tiny, method=method, rounds=rounds, seeds=seeds, first_seed=first_seed)


def explored(out: Path) -> Batch:
    return Batch("pendulum-gp", "opax", tiny_config("pendulum-gp", "opax", ROUNDS, 2), out / EXPLORED)


def judged(out: Path) -> Batch:
    return Batch("pendulum-gp", REFERENCES, tiny_config("pendulum-gp", "random", 1, 2), out / JUDGED)


def broken(out: Path) -> Batch:
    batch = explored(out / "broken")
    batch.create()
    (batch.folder / "config.json").write_text('{"episodes": "many"}')
    return batch


def assert_alike(batch: Batch, other: Batch) -> None:
    """Bit for bit, but for the time it took."""
    assert batch.finished and other.finished
    assert measured(batch) == measured(other) != []
    if batch.kind != REFERENCES:
        ours, theirs = learned(batch), learned(other)
        assert ours.keys() == theirs.keys() != set()
        assert all(ours[name].tobytes() == theirs[name].tobytes() for name in ours)


def measured(batch: Batch) -> list[dict]:
    return [{key: value for key, value in row.items() if not key.startswith("seconds/")} for row in batch.rows()]


def learned(batch: Batch) -> dict[str, np.ndarray]:
    return safetensors.numpy.load((batch.folder / "checkpoints" / f"{batch.rounds:04d}.safetensors").read_bytes())


def contents(folder: Path) -> dict[Path, tuple[bytes, int]]:
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


def worker_of(batch: Batch) -> int | None:
    """The process that holds the lock of its folder."""
    lock = batch.folder / ".lock"
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if link.readlink() == lock:
                return int(link.parts[2])
    return None


def wait_until(true) -> None:
    for _ in range(6000):
        if true():
            return
        time.sleep(0.01)
    raise AssertionError("waited for a minute")


class KillInTheMiddle:
    """Kills the worker of a batch, once, after a round more is finished."""

    def __init__(self, batch: Batch):
        self.batch, self.began, self.killed_after = batch, batch.rounds_done(), None

    def __call__(self, running):
        if self.killed_after is None and self.batch.rounds_done() > self.began and (worker := worker_of(self.batch)):
            os.kill(worker, signal.SIGKILL)
            self.killed_after = self.batch.rounds_done()

    def check(self):
        assert self.killed_after is not None and self.began < self.killed_after < self.batch.rounds


def times_begun(batch: Batch) -> int:
    return len((batch.folder / "machines.jsonl").read_text().splitlines())


@contextlib.contextmanager
def tiny_runs(compiled: Path):
    """A scale small enough for tests, and workers that share what they compile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_COMPILATION_CACHE_DIR", str(compiled))
        patch.setitem(SCALES, "small", Scale(2, dict.fromkeys(SCALES["small"].rounds, ROUNDS)))
        patch.setattr(grid, "run_config", tiny_config)
        yield


@pytest.fixture(scope="session")
def compiled(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture(scope="module", autouse=True)
def all_runs_are_tiny(compiled):
    with tiny_runs(compiled):
        yield


@pytest.fixture
def attentive(monkeypatch):
    """Backends look often, so that a test can act between two rounds."""
    for backend in (local, cluster):
        monkeypatch.setattr(backend, "PAUSE", 0.02)


# for the session: processes that share the tests among them may come back to this file
@pytest.fixture(scope="session")
def experiment(tmp_path_factory, compiled) -> Experiment:
    """An experiment of two batches, run side by side on this machine."""
    out = tmp_path_factory.mktemp("experiment")
    tiny = Experiment(("rewards",), "small", None, True, out, ("pendulum-gp",), ("opax",))
    with tiny_runs(compiled):
        assert run_missing(tiny, "local", 2, None, 0.0, Console(quiet=True)) == {}
    return tiny


@pytest.fixture
def undisturbed(experiment) -> list[Batch]:
    """The batches: what was explored, and the references."""
    references, run = experiment.batches()
    return [run, references]


# On this machine


def test_an_experiment_is_run_once(experiment, undisturbed, monkeypatch):
    run, references = undisturbed
    assert [row["round"] for row in run.rows()] == [1 + i // 2 for i in range(2 * ROUNDS)]
    assert {row["method"] for row in references.rows()} == {"oracle", "random-actions"}
    before = contents(experiment.out)
    monkeypatch.setattr(local, "_start", lambda batch: pytest.fail("it was begun again"))
    assert run_missing(experiment, "local", 2, None, 0.0, Console(quiet=True)) == {}
    assert contents(experiment.out) == before


@needs_proc
def test_a_killed_worker_goes_on_and_a_failure_has_a_reason(undisturbed, tmp_path, attentive):
    good, bad = explored(tmp_path), broken(tmp_path)
    kill = KillInTheMiddle(good)
    failures = run_locally([bad, good], 2, kill)
    kill.check()
    assert times_begun(good) == 2
    assert_alike(good, undisturbed[0])
    assert list(failures) == [bad.folder]
    assert "ended with 2" in failures[bad.folder] and "rounds" in failures[bad.folder]
    assert str(bad.folder / "log.txt") in failures[bad.folder]


def test_an_interrupt_ends_the_workers(tmp_path, monkeypatch):
    start, started = local._start, []
    monkeypatch.setattr(local, "_start", lambda batch: started.append(start(batch)) or started[-1])

    def interrupt(running):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_locally([explored(tmp_path)], 1, interrupt)
    assert [process.returncode for process in started] == [-signal.SIGKILL]


PARENT = """
import sys
from pathlib import Path
from sonde.runs.sweep._grid import Batch
from sonde.runs.sweep._local import run_locally
from sonde.runs._store import RunStore
folder = Path(sys.argv[1])
run_locally([Batch("pendulum-gp", "opax", RunStore.open(folder).config, folder)], 1, lambda running: None)
"""


@needs_proc
def test_nothing_is_left_running_when_the_parent_is_killed(undisturbed, tmp_path):
    batch = explored(tmp_path)
    batch.create()
    with subprocess.Popen([sys.executable, "-c", PARENT, str(batch.folder)]) as parent:
        wait_until(lambda: batch.rounds_done() > 0)
        parent.kill()
    wait_until(lambda: worker_of(batch) is None)
    assert not batch.finished
    assert run_locally([batch], 1, quietly) == {}
    assert_alike(batch, undisturbed[0])


def test_results_are_those_of_the_seeds_and_rounds_that_were_asked_for(experiment, tmp_path):
    small = replace(experiment.grid("rewards"), seeds=1)
    results = small.asked_for(small.results(tmp_path / "curves.csv"))
    assert {row["seed"] for row in results.rows} == {0}
    assert {row["method"] for row in results.rows} == {"opax", "oracle", "random-actions"}
    results.save(tmp_path / "curves.csv")
    elsewhere = replace(small, out=tmp_path / "elsewhere")  # where only the numbers are
    again = elsewhere.asked_for(elsewhere.results(tmp_path / "curves.csv"))
    largest = lambda found: [row["max_epistemic"] for row in found.rows if row["method"] == "opax"]
    assert largest(again) == pytest.approx(largest(results), rel=1e-5) and len(largest(again)) == ROUNDS


# On Ray


@pytest.fixture(scope="module")
def address(all_runs_are_tiny):
    """A cluster of two machines, both of them this one, each with room for one task."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    machines = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    machines.add_node(num_cpus=1)
    yield machines.address
    machines.shutdown()


@needs_proc
def test_ray_gives_the_same_numbers_though_it_is_interrupted_and_a_worker_killed(undisturbed, tmp_path, attentive, address):
    run, references, bad = explored(tmp_path), judged(tmp_path), broken(tmp_path)

    def interrupt(running):
        if run.rounds_done() > 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cluster.run_on_ray([run], address, 0.0, interrupt)
    wait_until(lambda: worker_of(run) is None)
    assert 0 < run.rounds_done() < ROUNDS

    kill, places = KillInTheMiddle(run), set()
    failures = cluster.run_on_ray([run, references, bad], address, 0.0, lambda now: (kill(now), places.add(len(now))))
    kill.check()
    assert times_begun(run) == 3
    assert places == {0, 1, 2}
    assert list(failures) == [bad.folder] and "rounds" in failures[bad.folder]
    for batch, other in zip((run, references), undisturbed, strict=True):
        assert_alike(batch, other)


def test_ray_on_this_machine_is_started_and_ended(tmp_path):
    ray = pytest.importorskip("ray")
    bad = broken(tmp_path)
    failures = cluster.run_on_ray([bad], None, 0.0, quietly)
    assert list(failures) == [bad.folder] and "rounds" in failures[bad.folder]
    assert str(bad.folder / "log.txt") in failures[bad.folder]
    assert not ray.is_initialized()


def test_what_was_done_on_a_machine_with_files_of_its_own_is_kept_here(undisturbed, tmp_path, monkeypatch):
    for batch in undisturbed:
        text = cluster.to_json(batch.config)
        files = cluster.bring_to_end(batch.setting, batch.kind, text, str(batch.folder))
        here = replace(batch, folder=tmp_path / batch.kind)
        here.create()
        note = here.folder / "checkpoints" / "0003.json"
        note.write_text("{}")  # it had begun here, and gives way
        if batch.kind != REFERENCES:
            with monkeypatch.context() as patch:  # the machine goes down while files are written
                patch.setattr(cluster, "write_atomically", _full_after(len(files) - 1))
                with pytest.raises(OSError):
                    cluster.keep(here, files)
            assert here.rounds_done() < ROUNDS
        cluster.keep(here, files)
        assert_alike(here, batch)
        assert not note.exists()
        before = contents(here.folder)
        cluster.keep(here, {"config.json": b"not needed"})
        assert contents(here.folder) == before


def _full_after(writes: int):
    left = iter(range(writes))

    def write(path, content):
        if next(left, None) is None:
            raise OSError("no space left")
        path.write_bytes(content)

    return write


def test_a_task_refuses_a_folder_with_other_settings(undisturbed):
    batch = undisturbed[0]
    other = cluster.to_json(replace(batch.config, horizon=7))
    with pytest.raises(SondeError, match="horizon is 6 there and 7 here; remove it there"):
        cluster.bring_to_end(batch.setting, batch.kind, other, str(batch.folder))


def test_ray_says_what_it_lacks(tmp_path, monkeypatch, address):
    batch = explored(tmp_path)
    for gpus in (-1.0, 1.5, float("nan")):
        with pytest.raises(SondeError, match="--gpus must be"):
            cluster.run_on_ray([batch], address, gpus, quietly)
    with pytest.raises(SondeError, match="Ray's machines have 0 at most"):
        cluster.run_on_ray([batch], address, 0.5, quietly)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = f"127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(SondeError, match=f"no Ray cluster could be reached at {nobody}"):
        cluster.run_on_ray([batch], nobody, 0.0, quietly)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SondeError, match=r"pip install 'sonde\[cluster\]'"):
        cluster.run_on_ray([batch], address, 0.0, quietly)
    assert not batch.folder.exists()
