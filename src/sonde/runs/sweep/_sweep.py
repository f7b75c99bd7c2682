"""A sweep: configs by name, run in batches of seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol, runtime_checkable

from sonde._internal.errors import SondeError, whole
from sonde.runs._callbacks import Callback
from sonde.runs._config import RunConfig
from sonde.runs.sweep._backend import Backend, Watch
from sonde.runs.sweep._batch import Batch, cover_seeds, existing_batches
from sonde.runs.sweep._local import LocalBackend
from sonde.runs.sweep._results import Results
from sonde.runs.sweep._worker import to_text
from sonde.runs.trackers._names import is_behind


@runtime_checkable
class HasBatches(Protocol):
    """What `run_sweep` runs: a `Sweep`, or anything else that consists of batches."""

    def batches(self) -> list[Batch]:
        """All batches, finished ones too."""
        ...


@dataclass(frozen=True)
class Sweep:
    """Configs to run, by name; their batches are in `FOLDER/NAME-seeds-FIRST-LAST`.

    What exists already is continued, or used as it is: more seeds become further batches, fewer take what they need.
    """

    folder: Path | str
    """Where the batches are."""
    configs: Mapping[str, RunConfig]
    """Configs by name, such as "opax", or "wide/opax", where "wide" is the setting that methods are compared in."""
    seeds_per_batch: int | None = None
    """Most seeds that run together; by default all of a config."""

    def __post_init__(self):
        """Reject what cannot be run."""
        if not self.configs:
            raise SondeError("sweep: expected at least one config, got none")
        for name in self.configs:
            path = PurePosixPath(name)
            if not name or name != str(path) or path.is_absolute() or ".." in path.parts:
                raise SondeError(f"sweep: names of configs become folders, such as 'opax' or 'wide/opax', got {name!r}")
        if self.seeds_per_batch is not None:
            whole("sweep", seeds_per_batch=self.seeds_per_batch)
        if Path(self.folder).exists() and not Path(self.folder).is_dir():
            raise SondeError(f"sweep: expected a folder, got the file {self.folder}")

    def batches(self) -> list[Batch]:
        """All batches, finished ones too; it is an error if one that exists was made with other settings."""
        found = []
        for name, config in self.configs.items():
            setting, _, method = name.rpartition("/")
            wanted = Batch(setting, method, config, Path(self.folder).absolute() / name)
            found += cover_seeds(wanted, existing_batches(wanted), self.seeds_per_batch)
        return found

    def results(self) -> Results:
        """What was measured so far, of the seeds of the configs."""
        seeds = {name: set(config.seed_list) for name, config in self.configs.items()}
        named = ((f"{batch.setting}/{batch.method}".lstrip("/"), batch) for batch in self.batches())
        return Results(row for name, batch in named for row in batch.rows() if row["seed"] in seeds[name])


def run_sweep(
    sweep: HasBatches,
    backend: Backend | None = None,
    callbacks: Sequence[Callback] = (),
    watch: Watch | None = None,
) -> dict[Path, str]:
    """Run every batch to completion; those that are finished are not run again, but tracks of them are completed.

    It can be stopped at any time and called again: batches continue after their last finished round, with the results that they
    would have had without the interruption.

    Args:
        sweep: What to run.
        backend: Where; by default processes on this machine.
        callbacks: Who listens. Each batch has its own copies, in its own process, so they must be dataclasses of numbers and
            texts, defined in a file.
        watch: Called in this process several times a second with the batches that are being worked on; see `SweepProgress`.

    Returns:
        What went wrong, by folder; empty if all is done.
    """
    batches, sent = sweep.batches(), to_text(callbacks)
    missing = [batch for batch in batches if not batch.finished]
    # here, where the folders are: elsewhere they would be computed again
    gaps = [batch for batch in batches if batch.finished and _has_gap(batch, callbacks)]
    watch = watch or (lambda running: None)
    failures = LocalBackend(1).run(gaps, sent, watch) if gaps else {}
    return failures | (backend or LocalBackend()).run(missing, sent, watch)


def _has_gap(batch: Batch, callbacks: Sequence[Callback]) -> bool:
    """Whether a tracker has not seen the end of a batch; other work than exploring has no trackers."""
    return batch.worker == Batch.worker and is_behind(batch.folder, callbacks)
