"""Where batches run: in processes on this machine, in tasks on Ray.

Workers do not see what a test patches: what they need travels by value, or in the folder's config.json. They are killed and
stopped by callbacks, at a known round, so that no test depends on how fast a machine is.
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
from rich.console import Console

from experiments import grid
from experiments.command import Reproduction, run_missing
from experiments.paper import SCALES, Scale
from experiments.references import REFERENCES, ReferenceBatch
from sonde._internal.errors import SondeError
from sonde.runs._codec import to_json
from sonde.runs.sweep import Batch, LocalBackend, RayBackend, _backend, _local, _ray
from sonde.runs.sweep._worker import from_text, to_text
from sweep_parts import Interrupt, RoundsInFile
from tiny import TINY

# Ray starts its processes by a fork, of which JAX, if another test has used it here, warns; they replace themselves at once
pytestmark = pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")

ROUNDS = 4
EXPLORED, JUDGED = f"opax/{ROUNDS}-rounds-seeds-0-1", "references-seeds-0-1"
NO_CALLBACKS = to_text([])
quietly = lambda running: None
needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks for workers in /proc")


def tiny_config(setting, method, rounds, seeds, *, lite=False):
    tiny = replace(TINY.with_method(method), horizon=6, evaluate_every=0)  # fewer programs to compile
    return replace(tiny, evaluation_tasks=("swing-up",), rounds=rounds, seeds=seeds)


def explored(out: Path) -> Batch:
    return Batch("pendulum-gp", "opax", tiny_config("pendulum-gp", "opax", ROUNDS, 2), out / EXPLORED)


def judged(out: Path) -> Batch:
    return ReferenceBatch("pendulum-gp", REFERENCES, tiny_config("pendulum-gp", "random", 1, 2), out / JUDGED)


def broken(out: Path) -> Batch:
    batch = explored(out / "broken")
    batch.create()
    (batch.folder / "config.json").write_text('{"format": 3, "rounds": "many"}')
    return batch


def assert_alike(batch: Batch, other: Batch) -> None:
    """Bit for bit, but for the time it took."""
    assert batch.finished and other.finished
    assert measured(batch) == measured(other) != []
    if batch.method != REFERENCES:
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
        time.sleep(0.02)
    raise AssertionError("waited for two minutes")


def interrupted(out: Path, after: int, kill: bool) -> tuple[str, Path]:
    """Callbacks that end, or stop, a worker after a round, and the file that says that they did."""
    marker = out / f"interrupted-{after}"
    return to_text([Interrupt(after, str(marker), kill)]), marker


def times_begun(batch: Batch) -> int:
    return len((batch.folder / "machines.jsonl").read_text().splitlines())


@contextlib.contextmanager
def tiny_runs():
    """A scale small enough for tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SCALES, "small", Scale(2, dict.fromkeys(SCALES["small"].rounds, ROUNDS)))
        patch.setattr(grid, "run_config", tiny_config)
        yield


@pytest.fixture(scope="module", autouse=True)
def all_runs_are_tiny():
    with tiny_runs():
        yield


@pytest.fixture(autouse=True)
def attentive(monkeypatch):
    """Backends look often, so that nothing waits for them."""
    monkeypatch.setattr(_backend, "PAUSE", 0.05)


# for the session: processes that share the tests among them may come back to this file
@pytest.fixture(scope="session")
def reproduction(tmp_path_factory) -> Reproduction:
    """A part of a figure that needs two batches, run side by side on this machine."""
    out = tmp_path_factory.mktemp("reproduction")
    tiny = Reproduction(("rewards",), "small", None, True, out, ("pendulum-gp",), ("opax",))
    with tiny_runs():
        assert run_missing(tiny, LocalBackend(2), Console(quiet=True)) == {}
    return tiny


@pytest.fixture
def undisturbed(reproduction) -> list[Batch]:
    """The batches: what was explored, and the references."""
    references, run = reproduction.batches()
    return [run, references]


# On this machine


@pytest.mark.slow
def test_finished_batches_are_not_run_again(reproduction, undisturbed, monkeypatch):
    run, references = undisturbed
    assert [row["round"] for row in run.rows()] == [1 + i // 2 for i in range(2 * ROUNDS)]
    assert {row["method"] for row in references.rows()} == {"oracle", "random-actions"}
    before = contents(reproduction.out)
    monkeypatch.setattr(_local, "start_worker", lambda *_: pytest.fail("it was begun again"))
    assert run_missing(reproduction, LocalBackend(2), Console(quiet=True)) == {}
    assert contents(reproduction.out) == before


def test_batch_that_is_killed_again_and_again_fails_after_three_tries(tmp_path, monkeypatch):
    started = []

    def start(group, callbacks, gpu):
        group[0].create()
        started.append(subprocess.Popen([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], stdin=subprocess.PIPE))
        return started[-1]

    monkeypatch.setattr(_local, "start_worker", start)
    batch = explored(tmp_path)
    failures = LocalBackend(1).run([batch], NO_CALLBACKS, quietly)
    assert len(started) == 3
    assert "ended with -9: it left no message" in failures[batch.folder]


def test_interrupt_ends_the_workers(tmp_path, monkeypatch):
    start, started = _local.start_worker, []
    monkeypatch.setattr(_local, "start_worker", lambda *args: started.append(start(*args)) or started[-1])

    def interrupt(running):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        LocalBackend(1).run([explored(tmp_path)], NO_CALLBACKS, interrupt)
    assert [process.returncode for process in started] == [-signal.SIGKILL]


PARENT = """
import sys
from pathlib import Path
from sonde.runs._store import RunStore
from sonde.runs.sweep import Batch, LocalBackend
folder = Path(sys.argv[1])
LocalBackend(1).run([Batch("pendulum-gp", "opax", RunStore.open(folder).config, folder)], sys.argv[2], lambda running: None)
"""


@pytest.mark.slow
@needs_proc
def test_batch_continues_after_its_parent_and_then_its_worker_are_killed_and_a_failure_has_a_reason(undisturbed, tmp_path):
    good, bad = explored(tmp_path), broken(tmp_path)
    good.create()
    callbacks, stopped = interrupted(tmp_path, after=1, kill=False)
    with subprocess.Popen([sys.executable, "-c", PARENT, str(good.folder), callbacks]) as parent:
        wait_until(stopped.exists)
        assert worker_of(good) is not None
        parent.kill()
    wait_until(lambda: worker_of(good) is None)  # nothing is left running
    assert good.rounds_done() == 1 and times_begun(good) == 1

    callbacks, killed = interrupted(tmp_path, after=2, kill=True)
    failures = LocalBackend(2).run([bad, good], callbacks, quietly)
    assert killed.exists()
    assert times_begun(good) == 3
    assert_alike(good, undisturbed[0])
    assert list(failures) == [bad.folder]
    assert "ended with 2" in failures[bad.folder] and "rounds" in failures[bad.folder]
    assert str(bad.folder / "log.txt") in failures[bad.folder]


def test_workers_are_spread_over_the_gpus(tmp_path, monkeypatch):
    given = []

    def start(group, callbacks, gpu):
        given.append(gpu)
        return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)

    def watch(running):
        if len(running) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(_local, "start_worker", start)
    monkeypatch.setattr(_local, "visible_gpus", lambda: ["0", "3"])
    with pytest.raises(KeyboardInterrupt):
        LocalBackend(4).run([explored(tmp_path / str(number)) for number in range(5)], NO_CALLBACKS, watch)
    assert given == ["0", "3", "0", "3"]
    assert _local.default_workers(2) == 6 and _local.default_workers(0) >= 1


def test_worker_sees_only_the_gpu_that_it_is_given(tmp_path, monkeypatch):
    environments, start = [], subprocess.Popen

    def note(command, *, env, **options):
        environments.append(env)
        return start([sys.executable, "-c", ""], env=env, **options)

    monkeypatch.setattr(subprocess, "Popen", note)
    for gpu in ("3", None):
        with _local.start_worker((explored(tmp_path),), NO_CALLBACKS, gpu):
            pass
    assert environments[0]["CUDA_VISIBLE_DEVICES"] == "3"
    assert environments[1].get("CUDA_VISIBLE_DEVICES") == os.environ.get("CUDA_VISIBLE_DEVICES")


def test_results_are_those_of_the_seeds_and_rounds_that_were_asked_for(reproduction, tmp_path):
    small = replace(reproduction.grid("rewards"), seeds=1)
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
def address():
    """A cluster of two machines, both of them this one, each with room for one task."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    machines = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    machines.add_node(num_cpus=1)
    yield machines.address
    machines.shutdown()


@pytest.mark.slow
@needs_proc
def test_ray_gives_the_same_numbers_after_an_interrupt_and_a_killed_worker(undisturbed, tmp_path, request):
    ray = pytest.importorskip("ray")
    run, references, bad = explored(tmp_path), judged(tmp_path), broken(tmp_path)
    callbacks, stopped = interrupted(tmp_path, after=1, kill=False)

    def interrupt(running):
        if stopped.exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        RayBackend().run([run], callbacks, interrupt)  # on this machine, where Ray is started and ended
    assert not ray.is_initialized()
    wait_until(lambda: worker_of(run) is None)
    assert run.rounds_done() == 1

    callbacks, killed = interrupted(tmp_path, after=3, kill=True)
    places, cluster = set(), RayBackend(request.getfixturevalue("address"))
    failures = cluster.run([run, references, bad], callbacks, lambda now: places.add(len(now)))
    assert killed.exists()
    assert times_begun(run) == 3
    assert places == {0, 1, 2}
    assert list(failures) == [bad.folder] and "rounds" in failures[bad.folder]
    assert str(bad.folder / "log.txt") in failures[bad.folder]
    for batch, other in zip((run, references), undisturbed, strict=True):
        assert_alike(batch, other)


def test_ray_says_what_it_lacks(tmp_path, monkeypatch, address):
    batch = explored(tmp_path)
    for gpus in (-1.0, 1.5, float("nan")):
        with pytest.raises(SondeError, match="--gpus must be"):
            RayBackend(address, gpus).run([batch], NO_CALLBACKS, quietly)
    with pytest.raises(SondeError, match="Ray's machines have 0 at most"):
        RayBackend(address, 0.5).run([batch], NO_CALLBACKS, quietly)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free = f"127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(SondeError, match=f"no Ray cluster could be reached at {free}"):
        RayBackend(free).run([batch], NO_CALLBACKS, quietly)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SondeError, match=r"pip install 'sonde\[ray\]'"):
        RayBackend(address).run([batch], NO_CALLBACKS, quietly)
    assert not batch.folder.exists()


def test_results_of_a_machine_with_files_of_its_own_are_kept_here(undisturbed, tmp_path, monkeypatch):
    for batch in undisturbed:
        files = _ray.bring_to_end(batch.worker, to_json(batch.config), str(batch.folder), NO_CALLBACKS)
        here = replace(batch, folder=tmp_path / batch.method)
        here.create()
        note = here.folder / "checkpoints" / "0002.json"
        note.write_text("{}")  # it had begun here, and gives way
        if batch.method != REFERENCES:
            with monkeypatch.context() as patch:  # the machine goes down while files are written
                patch.setattr(_ray, "write_atomically", _full_after(len(files) - 1))
                with pytest.raises(OSError):
                    _ray.keep(here, files)
            assert here.rounds_done() < ROUNDS
        _ray.keep(here, files)
        assert_alike(here, batch)
        assert not note.exists()
        before = contents(here.folder)
        _ray.keep(here, {"config.json": b"not needed"})
        assert contents(here.folder) == before


def _full_after(writes: int):
    left = iter(range(writes))

    def write(path, content):
        if next(left, None) is None:
            raise OSError("no space left")
        path.write_bytes(content)

    return write


def test_task_rejects_a_folder_with_other_settings(undisturbed):
    batch = undisturbed[0]
    other = to_json(replace(batch.config, horizon=7))
    with pytest.raises(SondeError, match="horizon is 6 there and 7 here; remove it there"):
        _ray.bring_to_end(batch.worker, other, str(batch.folder), NO_CALLBACKS)


@pytest.mark.slow
def test_callbacks_of_workers_are_rebuilt_from_text(tmp_path):
    (callback,) = from_text(to_text([RoundsInFile(str(tmp_path / "rounds"), "finished")]))
    callback.on_round_end(2, [{}, {}])
    assert (tmp_path / "rounds").read_text() == "finished 2 of 2 seeds\n"
