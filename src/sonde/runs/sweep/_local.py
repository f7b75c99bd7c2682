"""Batches on this machine: several processes at a time, which share its cores and GPUs."""

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from sonde._internal.errors import whole
from sonde._internal.files import open_to_append
from sonde._internal.machine import cores
from sonde.runs.sweep import _backend
from sonde.runs.sweep._backend import LOG, TRIES, Backend, Watch, import_path, reason
from sonde.runs.sweep._batch import Batch

VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class LocalBackend(Backend):
    """Runs each batch in a process of its own on this machine."""

    workers: int | None = None
    """Batches at the same time; by default 3 per GPU, or on a CPU 2, or more if it has more than four cores."""

    def __post_init__(self):
        """Reject a number of workers that is none."""
        if self.workers is not None:
            whole("sweep", workers=self.workers)

    def run(self, batches: Sequence[Batch], callbacks: str, watch: Watch) -> dict[Path, str]:
        """Start processes until all batches are done."""
        if not batches:
            return {}
        gpus = visible_gpus()
        workers = self.workers or default_workers(len(gpus))
        waiting, failures = list(batches), {}
        running: dict[Batch, _Worker] = {}
        tries: Counter[Path] = Counter()
        try:
            while waiting or running:
                while waiting and len(running) < workers:
                    batch = waiting.pop(0)
                    tries[batch.folder] += 1
                    gpu = _least_used(gpus, [worker.gpu for worker in running.values()])
                    running[batch] = _Worker(start_worker(batch, callbacks, gpu), gpu)
                watch(list(running))
                time.sleep(_backend.PAUSE)
                for batch in [batch for batch, worker in running.items() if worker.process.poll() is not None]:
                    with running.pop(batch).process as process:  # closes its standard input
                        code = process.returncode
                    if code < 0 and tries[batch.folder] < TRIES:
                        waiting.insert(0, batch)
                    elif code != 0:
                        failures[batch.folder] = reason(batch.folder, code)
            watch([])
        finally:
            for worker in running.values():  # an interrupt: all that is finished is on disk
                with worker.process as process:
                    process.kill()
        return failures


@dataclass(frozen=True)
class _Worker:
    process: subprocess.Popen[Any]
    gpu: str | None


def start_worker(batch: Batch, callbacks: str, gpu: str | None = None) -> subprocess.Popen[Any]:
    """Start the process of a batch.

    Args:
        batch: The batch; its folder is made if there is none.
        callbacks: Callbacks for the worker, as text.
        gpu: The only GPU that it may use, as CUDA numbers them; None: as this process.
    """
    batch.create()
    command = [sys.executable, "-m", "sonde.runs.sweep._process", batch.worker, str(batch.folder), callbacks]
    # threads of LAPACK in several processes wait for each other, and are then slower than one thread each
    environment = {"OPENBLAS_NUM_THREADS": "1", **os.environ, "PYTHONPATH": import_path()}
    environment |= {} if gpu is None else {VISIBLE_GPUS: gpu}
    with os.fdopen(open_to_append(batch.folder / LOG), "ab") as log:
        # a process group of its own: an interrupt reaches the parent alone, which ends its children in order
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True, env=environment)


def on_accelerator() -> bool:
    """Whether JAX computes on something faster than a CPU."""
    # this process, and those that it starts, share the accelerator: none may take all of its memory
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    return jax.default_backend() != "cpu"


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, as CUDA numbers them."""
    if not on_accelerator():
        return []
    visible = os.environ.get(VISIBLE_GPUS)
    return visible.split(",") if visible else [str(number) for number in range(jax.local_device_count())]


def default_workers(gpus: int) -> int:
    """Batches at a time that keep this machine busy.

    Args:
        gpus: Number of GPUs.
    """
    # a few fill each other's gaps on a GPU; on a CPU none uses two cores fully
    return 3 * gpus if gpus else max(min(2, cores()), cores() // 2)


def _least_used(gpus: Sequence[str], used: Sequence[str | None]) -> str | None:
    return min(gpus, key=used.count) if len(gpus) > 1 else None
