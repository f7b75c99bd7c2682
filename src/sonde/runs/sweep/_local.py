"""Batches on this machine: each in a process of its own, so many at a time."""

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sonde.runs.sweep._grid import Batch

PAUSE = 0.3  # seconds between two looks
LOG = "log.txt"
TRIES = 3  # of a batch whose process was killed (by the system for want of memory, say); it goes on where it was
OnTick = Callable[[Sequence[Batch]], None]
"""Called again and again with the batches that are being worked on."""


def run_locally(batches: Sequence[Batch], workers: int, on_tick: OnTick) -> dict[Path, str]:
    """Bring all batches to their end; what went wrong, by folder."""
    waiting, failures = list(batches), {}
    running: dict[Batch, subprocess.Popen[Any]] = {}
    tries: Counter[Path] = Counter()
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                batch = waiting.pop(0)
                tries[batch.folder] += 1
                running[batch] = _start(batch)
            on_tick(list(running))
            time.sleep(PAUSE)
            for batch in [batch for batch, process in running.items() if process.poll() is not None]:
                with running.pop(batch) as process:  # closes its standard input
                    code = process.returncode
                if code < 0 and tries[batch.folder] < TRIES:
                    waiting.insert(0, batch)
                elif code != 0:
                    failures[batch.folder] = reason(batch.folder, code)
        on_tick([])
    finally:
        for process in running.values():  # an interrupt: all that is finished is on disk
            with process:
                process.kill()
    return failures


def _start(batch: Batch) -> subprocess.Popen[Any]:
    batch.create()
    command = [sys.executable, "-m", "sonde.runs.sweep._worker", batch.kind, str(batch.folder), batch.setting]
    with (batch.folder / LOG).open("ab") as log:
        # a process group of its own: an interrupt reaches the parent alone, which ends its children in order
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True)


def reason(folder: Path, code: int | None = None) -> str:
    """The last line of a batch's log."""
    lines = (folder / LOG).read_text(errors="replace").split("\n") if (folder / LOG).exists() else []
    last = next((line for line in reversed(lines) if line.strip()), "it left no message")
    ended = "" if code is None else f"its process ended with {code}: "
    return f"{ended}{last.strip()} (all of it: {folder / LOG})"
