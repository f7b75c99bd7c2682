"""Batches on a Ray cluster: each is a task with its share of a GPU, in a process of its own.

Every machine of the cluster needs Sonde, and the files of classes of one's own. It need not see this machine's files otherwise:
a task is sent the config of its batch, and returns the batch's whole folder, which is written here unless it is here already. A
task whose process or machine dies is started again: after its last finished round where it finds the folder (same machine,
shared files), from the start elsewhere. A machine with files of its own keeps its copy of the folder; to start a batch over,
remove it there too.
"""

import logging
import os
import platform
import socket
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sonde._internal.compilation_cache import cache_compilations
from sonde._internal.consent import allow_code
from sonde._internal.errors import SondeError, first_line
from sonde._internal.files import append_line, write_atomically
from sonde._internal.machine import cores
from sonde.runs._codec import from_json, to_json
from sonde.runs._config import RunConfig, differences, with_absolute_paths
from sonde.runs._store import RunStore
from sonde.runs.sweep import _backend
from sonde.runs.sweep._backend import LOG, TRIES, Backend, Watch, import_path, reason
from sonde.runs.sweep._batch import Batch
from sonde.runs.sweep._worker import work

Files = dict[str, bytes]
"""What is in a folder: content by path within it."""


@dataclass(frozen=True)
class RayBackend(Backend):
    """Runs each batch as a task of a Ray cluster; needs the extra 'ray'."""

    address: str | None = None
    """The cluster; by default one is started on this machine."""
    gpus: float = 0.0
    """GPUs for each batch: a share such as 0.25, or a whole number; 0: batches run on CPUs."""

    def run(self, batches: Sequence[Batch], callbacks: str, watch: Watch) -> dict[Path, str]:
        """Submit all batches and wait for them."""
        ray = _ray()
        if not batches:
            return {}
        if not 0 <= self.gpus < float("inf") or (self.gpus > 1 and self.gpus % 1):
            raise SondeError(f"sweep: --gpus must be 0, a share such as 0.25, or a whole number, got {self.gpus}")
        failures = {}
        with _connected(ray, self.address):
            _check_gpus(ray, self.gpus)
            task = ray.remote(**_needs(self.gpus))(bring_to_end)
            orders = (
                (batch.worker, to_json(with_absolute_paths(batch.config)), str(batch.folder), callbacks) for batch in batches
            )
            pending = {task.remote(*order): batch for order, batch in zip(orders, batches, strict=True)}
            try:
                while pending:
                    for ref in ray.wait(list(pending), timeout=_backend.PAUSE)[0]:
                        batch = pending.pop(ref)
                        try:
                            keep(batch, ray.get(ref))
                        except ray.exceptions.RayError as error:
                            failures[batch.folder] = _failed(batch, error)
                    # Ray begins tasks in the order in which they came
                    watch(list(pending.values())[: _places(ray, self.gpus)])
            finally:
                for ref in pending:  # an interrupt: all that is finished is on disk
                    ray.cancel(ref, force=True)
        return failures


def bring_to_end(worker: str, config: str, folder: str, callbacks: str) -> Files:
    """The task, on any machine of the cluster.

    Args:
        worker: MODULE:FUNCTION that does the work.
        config: The config of the batch, as JSON.
        folder: Folder of the batch, on whatever machine this is.
        callbacks: Callbacks, as text.

    Returns:
        Everything in the folder but its log.
    """
    cache_compilations()
    path = Path(folder)
    with allow_code():  # the process that sent the config has loaded the same code
        wanted = from_json(RunConfig, config, "the config that was sent")
        if not path.exists():
            RunStore.create(path, wanted)
        if differing := list(differences(RunStore.open(path).config, wanted)):
            there = f"{folder} on {platform.node()} was made with other settings: {'; '.join(differing)}"
            raise SondeError(f"{there}; remove it there, or name another folder with --out")
        work(worker, path, callbacks)
    # always: it cannot be told here whether the machine that asked sees this folder
    paths = [file for file in path.rglob("*") if file.is_file() and file.name != LOG and file.name[0] != "."]
    return {str(file.relative_to(path)): file.read_bytes() for file in paths}


def keep(batch: Batch, files: Files) -> None:
    """Write what a task returned, unless it is there.

    Args:
        batch: The batch.
        files: What `bring_to_end` returned.
    """
    batch.create()
    if batch.finished:  # it was done in this very folder
        return
    is_note = lambda name: name.startswith("checkpoints/") and name.endswith(".json")
    for note in (batch.folder / "checkpoints").glob("*.json"):  # of rounds that were begun here and then done elsewhere
        note.unlink()
    for name in sorted(files, key=lambda name: (is_note(name), name)):  # notes last: they say that the rest is there
        path = batch.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, files[name])


def _ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anyone
    try:
        import ray
    except ModuleNotFoundError:
        raise SondeError("the backend 'ray' needs Ray, which is not installed: pip install 'sonde[ray]'") from None
    return ray


@contextmanager
def _connected(ray: Any, address: str | None) -> Generator[None]:
    """A cluster to work on; one that was started here ends here."""
    here = {"include_dashboard": False} if address is None else {}
    try:
        _knock(address or "")
        ray.init(address or "local", log_to_driver=False, logging_level=logging.ERROR, **here)
    except (OSError, RuntimeError, ValueError) as error:
        what = "Ray could not be started" if address is None else f"no Ray cluster could be reached at {address}"
        hint = "" if address is None else "; start one with 'ray start --head', and with the same versions as here"
        raise SondeError(f"{what} ({first_line(error)}){hint}") from None
    try:
        yield
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """Fail at once where nothing answers; Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()


def _needs(gpus: float) -> dict[str, Any]:
    """What each task gets."""
    variables = {
        "PYTHONPATH": f"{import_path()}{os.pathsep}${{PYTHONPATH}}",  # beside that of the machine
        # several tasks may share a GPU: none may take all of its memory
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        # Ray would give linear algebra a single thread; the number of threads shows in the last bits of a result
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(cores())),
    }
    if gpus == 0:
        variables["JAX_PLATFORMS"] = "cpu"
    # JAX in a process serves one batch only; an error of our own would come again, a process that died need not
    again = {"max_calls": 1, "max_retries": TRIES - 1, "retry_exceptions": False}
    return {"num_cpus": 1, "num_gpus": gpus, "runtime_env": {"env_vars": variables}, **again}


def _check_gpus(ray: Any, gpus: float) -> None:
    """Reject what Ray would wait for without end."""
    most = max((node["Resources"].get("GPU", 0.0) for node in ray.nodes() if node["Alive"]), default=0.0)
    if gpus > most:
        raise SondeError(f"sweep: --gpus {gpus:g} was asked for each batch; Ray's machines have {most:g} at most")


def _places(ray: Any, gpus: float) -> int:
    """How many tasks the cluster has room for, as it is now."""
    resources = ray.cluster_resources()
    places = resources.get("CPU", 0.0)
    return int(min(places, resources.get("GPU", 0.0) / gpus) if gpus else places)


def _failed(batch: Batch, error: Exception) -> str:
    """Add an error to the batch's log; the reason, in a line."""
    batch.create()
    append_line(batch.folder / LOG, str(error))
    return reason(batch.folder)
