"""What all backends share: a backend brings batches to their end, each in a process of its own."""

import abc
import os
import sys
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path

from sonde.runs.sweep._batch import Batch

PAUSE = 0.3  # seconds between two looks
TRIES = 3  # of a batch whose process was killed (by the system for lack of memory, say); it continues where it was
LOG = "log.txt"
"""File in the folder of a batch: what its processes printed."""
JAX_NOTE = "For simplicity, JAX has removed its internal frames"  # JAX ends its tracebacks with it
Watch = Callable[[Sequence[Batch]], None]
"""Called again and again with the batches that are being worked on."""


class Backend(abc.ABC):
    """Where batches are run."""

    @abc.abstractmethod
    def run(self, batches: Sequence[Batch], callbacks: str, watch: Watch) -> dict[Path, str]:
        """Bring batches to their end.

        Args:
            batches: What to run, in this order.
            callbacks: Callbacks for the workers, as `sonde.runs.sweep._worker.to_text` writes them.
            watch: Called several times a second.

        Returns:
            What went wrong, by folder; a batch whose process was killed has then been tried `TRIES` times.
        """


def import_path() -> str:
    """PYTHONPATH for workers: where this process finds modules beside installed ones, such as a user's own packages."""
    installed = [Path(sysconfig.get_paths()[name]) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    paths = [Path(entry or ".").absolute() for entry in sys.path]
    own = [path for path in paths if path.is_dir() and not any(path.is_relative_to(folder) for folder in installed)]
    return os.pathsep.join(str(path) for path in dict.fromkeys(own))


def reason(folder: Path, code: int | None = None) -> str:
    """Why a batch failed: the last line of its log.

    Args:
        folder: Folder of the batch.
        code: Exit code of its process.
    """
    lines = (folder / LOG).read_text(encoding="utf-8", errors="replace").split("\n") if (folder / LOG).exists() else []
    told = (line for line in reversed(lines) if line.strip("- ") and not line.startswith(JAX_NOTE))
    last = next(told, "it left no message")
    ended = "" if code is None else f"its process ended with {code}: "
    return f"{ended}{last.strip()} (all of it: {folder / LOG})"
