"""Batches: seeds of one config that advance in lockstep, in a folder like any run's.

What a batch has finished is read from its folder, so nothing else needs to be remembered of a sweep that was stopped.
"""

import glob
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from sonde._internal.consent import allow_code
from sonde._internal.errors import SondeError
from sonde._internal.reading import parse_json
from sonde.runs._checkpoints import Checkpoints
from sonde.runs._codec import code_of
from sonde.runs._config import RunConfig, differences, with_absolute_paths
from sonde.runs._store import RunStore
from sonde.runs.sweep._results import Row

MACHINES = "machines.jsonl"
"""File in the folder of a batch: the machines and versions that worked on it."""


@dataclass(frozen=True)
class Batch:
    """Seeds of one config, run together; subclass it for work other than exploring."""

    setting: str
    """What it shares with the batches that it is compared with; may be empty."""
    method: str
    """Its name among them, in tables and figures."""
    config: RunConfig = field(compare=False)
    """What is run, with the seeds of this batch."""
    folder: Path
    """Folder of the run."""

    worker: ClassVar[str] = "sonde.runs.sweep._worker:explore_batch"
    """MODULE:FUNCTION that does the work: function(store, callbacks), called in a process of its own. It continues where the
    folder stands, and does nothing if all is done."""

    @property
    def name(self) -> str:
        """The batch in a line of text."""
        return f"{self.setting} {self.method} seeds {self.seeds}".strip()

    @property
    def rounds(self) -> int:
        """How many rounds it has when it is done."""
        return self.config.rounds

    @property
    def seeds(self) -> str:
        """First and last seed."""
        return f"{self.config.seed_list[0]}-{self.config.seed_list[-1]}"

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        return self.rounds_done() >= self.rounds

    def create(self) -> None:
        """Make its folder, if it has none yet."""
        if not self.folder.exists():
            RunStore.create(self.folder, self.config, runs_here=False)

    def store(self) -> RunStore:
        """Open its folder, which may name the same code as its config."""
        with allow_code(code_of(with_absolute_paths(self.config))):
            return RunStore.open(self.folder)

    def rounds_done(self) -> int:
        """Rounds that need not be run again: those with a checkpoint; all, once the stopping rule has ended the run."""
        done = max(Checkpoints(self.folder).rounds(), default=0)
        if done and self.config.until is not None and self.store().why_stopped() is not None:
            return self.rounds
        return done

    def rows(self) -> list[Row]:
        """What was measured in the rounds that are done, as rows of `Results`."""
        if not self.folder.exists():
            return []
        done, names = self.rounds_done(), {"setting": self.setting, "method": self.method}
        return [names | _numbers(row) for row in self.store().load_metrics() if row["round"] <= done]

    def machines(self) -> list[dict[str, str]]:
        """Machines and versions that worked on it."""
        path = self.folder / MACHINES
        lines = (
            path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1] if path.exists() else []
        )  # a line that a kill has cut has no end
        return [parse_json(line, str(path)) for line in dict.fromkeys(lines)]

    def seconds_per_round(self) -> float | None:
        """Mean duration of the latest rounds; None before there is one."""
        rows = {row["round"]: sum(v for k, v in row.items() if k.startswith("seconds/")) for row in self.rows()}
        latest = [seconds for _, seconds in sorted(rows.items())][1:][-3:] or list(rows.values())  # the first one compiles
        return sum(latest) / len(latest) if latest else None


def _numbers(row: Row) -> Row:
    """The numbers of a line of metrics; null there is NaN here."""
    return {key: math.nan if value is None else value for key, value in row.items() if not isinstance(value, str)}


def existing_batches(wanted: Batch) -> list[Batch]:
    """Batches that exist of a config.

    Args:
        wanted: The config; its folder without `-seeds-FIRST-LAST` is where batches are looked for.

    Returns:
        Those batches, with their own seeds. It is an error if anything but their seeds differs from what is wanted.
    """
    found = []
    for folder in sorted(wanted.folder.parent.glob(f"{glob.escape(wanted.folder.name)}-seeds-*")):
        if not (folder / "config.json").exists():
            continue
        saved = replace(wanted, folder=folder).store().config
        ours = with_absolute_paths(replace(wanted.config, seeds=saved.seeds, first_seed=saved.first_seed))
        if differing := list(differences(saved, ours)):
            raise SondeError(f"{folder} was made with other settings: {'; '.join(differing)}; name another folder with --out")
        found.append(replace(wanted, config=saved, folder=folder))
    return found


def cover_seeds(wanted: Batch, existing: Sequence[Batch], at_most: int | None = None) -> list[Batch]:
    """Batches that together have all seeds of a config.

    Args:
        wanted: The config with all its seeds; its folder without `-seeds-FIRST-LAST` is where new batches go.
        existing: Batches to use, the better ones first; of two that share a seed the first is used.
        at_most: Most seeds of a new batch.

    Returns:
        Existing batches that have any of the seeds, then new ones for the seeds that are missing.
    """
    batches, have, seeds = list[Batch](), set[int](), set(wanted.config.seed_list)
    for batch in existing:
        if not have & set(batch.config.seed_list):
            batches.append(batch)
            have |= set(batch.config.seed_list)
    for first, last in _stretches((seed for seed in wanted.config.seed_list if seed not in have), at_most):
        config = replace(wanted.config, first_seed=first, seeds=last - first + 1)
        folder = wanted.folder.with_name(f"{wanted.folder.name}-seeds-{first}-{last}")
        batches.append(replace(wanted, config=config, folder=folder))
    return [batch for batch in batches if set(batch.config.seed_list) & seeds]


def _stretches(numbers: Iterable[int], at_most: int | None) -> Iterator[tuple[int, int]]:
    """Stretches of consecutive numbers, as (first, last)."""
    for _, group in itertools.groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        stretch = [number for _, number in group]
        size = at_most or len(stretch)
        for start in range(0, len(stretch), size):
            part = stretch[start : start + size]
            yield part[0], part[-1]
