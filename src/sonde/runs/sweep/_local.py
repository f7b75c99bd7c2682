"""Batches on this machine: several processes at a time, which share its cores and GPUs.

A process works on a group of batches: on one, or in lockstep on all that can be fitted by one program.
"""

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
from sonde.runs._together import unlike
from sonde.runs.sweep import _backend
from sonde.runs.sweep._backend import LOG, TRIES, Backend, Watch, import_path, reason
from sonde.runs.sweep._batch import Batch

VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class LocalBackend(Backend):
    """Runs batches on this machine, each in a process of its own, or in lockstep."""

    workers: int | None = None
    """Processes at the same time; by default 3 per GPU, or on a CPU 2, or more if it has more than four cores."""
    lockstep: bool = False
    """Run all batches whose models can be fitted by one program in one process; see `sonde.runs.explore_together`."""

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
        waiting: list[Group] = groups(batches, max(1, len(gpus))) if self.lockstep else [(batch,) for batch in batches]
        failures: dict[Path, str] = {}
        running: dict[Group, _Worker] = {}
        tries: Counter[Path] = Counter()
        try:
            while waiting or running:
                while waiting and len(running) < workers:
                    group = waiting.pop(0)
                    tries[group[0].folder] += 1
                    gpu = _least_used(gpus, [worker.gpu for worker in running.values()])
                    running[group] = _Worker(start_worker(group, callbacks, gpu), gpu)
                watch([batch for group in running for batch in group])
                time.sleep(_backend.PAUSE)
                for group in [group for group, worker in running.items() if worker.process.poll() is not None]:
                    with running.pop(group).process as process:  # closes its standard input
                        code = process.returncode
                    if code < 0 and tries[group[0].folder] < TRIES:
                        waiting.insert(0, group)
                    elif code != 0:
                        failures |= _failures(group, code)
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


Group = tuple[Batch, ...]
"""Batches that one process works on; the log of the process is that of the first."""


def groups(batches: Sequence[Batch], parts: int = 1) -> list[Group]:
    """Put batches together that can be fitted by one program.

    Args:
        batches: The batches.
        parts: Number of processes that each such group is divided among, one for each GPU.

    Returns:
        Groups in the order of their first batches; one that does other work than exploring is alone.
    """
    found: list[Group] = []
    for batch in batches:
        fits = (
            number
            for number, (first, *_) in enumerate(found)
            if batch.worker == first.worker == Batch.worker and not unlike(first.config, batch.config)
        )
        if (number := next(fits, None)) is None:
            found.append((batch,))
        else:
            found[number] += (batch,)
    return [part for group in found for part in (group[first::parts] for first in range(parts)) if part]


def _failures(group: Group, code: int) -> dict[Path, str]:
    """What went wrong with those batches of a group that are not finished."""
    if len(group) == 1:
        return {group[0].folder: reason(group[0].folder, code)}
    unfinished = [batch.folder for batch in group if not batch.finished]
    logged = lambda folder: code > 0 and (folder / LOG).exists()  # a process that is killed writes into none
    return {folder: reason(folder if logged(folder) else group[0].folder, code) for folder in unfinished}


def start_worker(group: Group, callbacks: str, gpu: str | None = None) -> subprocess.Popen[Any]:
    """Start the process of a group of batches.

    Args:
        group: The batches; their folders are made if there are none.
        callbacks: Callbacks for the worker, as text.
        gpu: The only GPU that it may use, as CUDA numbers them; None: as this process.
    """
    for batch in group:
        batch.create()
    folders = [str(batch.folder) for batch in group]
    command = [sys.executable, "-m", "sonde.runs.sweep._process", group[0].worker, callbacks, *folders]
    # threads of LAPACK in several processes wait for each other, and are then slower than one thread each
    environment = {"OPENBLAS_NUM_THREADS": "1", **os.environ, "PYTHONPATH": import_path()}
    environment |= {} if gpu is None else {VISIBLE_GPUS: gpu}
    with os.fdopen(open_to_append(group[0].folder / LOG), "ab") as log:
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
