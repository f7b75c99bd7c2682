"""The cells of the comparison: one system, one kind of data, with noise or without, one seed.

In every cell the models and the peers learn from the same measurements. Each of them leaves one line in `cells.jsonl`; lines
that are there already are not computed again.
"""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save

from benchmarks.measuring import note
from benchmarks.systems.development import DEVELOPMENT
from benchmarks.systems.learning import explored, learned
from benchmarks.systems.peers import FLOOR, PEERS, fitted
from benchmarks.systems.plant import EXCITATIONS, NOISE, Plant, collect
from benchmarks.systems.plants import SYSTEMS
from benchmarks.systems.scoring import Windows, coverage, errors, predictor_of
from sonde._internal.errors import SondeError, one_of, whole
from sonde._internal.files import append_line, write_atomically
from sonde.data import Trajectory

OPAX = "opax"
"""Kind of data that OpAx chooses."""
KINDS = (*EXCITATIONS, OPAX)
"""Kinds of data."""
FEWEST = 20
"""Fewest measurements: peers hold some of them out."""
PLANTS = {**SYSTEMS, **DEVELOPMENT}
"""Every plant by name."""


@dataclass(frozen=True)
class Cell:
    """What models learn from."""

    system: str
    """Name of a plant."""
    data: str
    """One of `KINDS`."""
    noise: bool
    """Whether the plant is noisy."""
    seed: int
    """Randomness of measurements and fits."""
    measurements: int
    """Number of measurements."""

    def __post_init__(self):
        """Reject names that do not exist."""
        one_of("system", self.system, PLANTS)
        one_of("kind of data", self.data, KINDS)
        whole("cell", measurements=self.measurements)
        if self.measurements < FEWEST:
            raise SondeError(f"cell: peers need at least {FEWEST} measurements, got {self.measurements}")

    @property
    def plant(self) -> Plant:
        """The system."""
        return replace(PLANTS[self.system], process_noise=NOISE if self.noise else 0.0)

    @property
    def name(self) -> str:
        """A name for messages and files."""
        return f"{self.system}-{self.data}-{'noisy' if self.noise else 'clean'}-{self.seed}-{self.measurements}"


@dataclass(frozen=True)
class Suite:
    """Which cells are computed, and by which models."""

    systems: tuple[str, ...]
    data: tuple[str, ...]
    noise: tuple[bool, ...]
    seeds: int
    measurements: int
    models: tuple[str, ...]

    @property
    def cells(self) -> list[Cell]:
        """All cells, system by system."""
        return [
            Cell(system, data, noise, seed, self.measurements)
            for system in self.systems
            for data in self.data
            for noise in self.noise
            for seed in range(self.seeds)
        ]

    @property
    def learners(self) -> tuple[str, ...]:
        """Models, peers and the floor."""
        return (*self.models, *PEERS, FLOOR)


@dataclass
class Results:
    """The lines of all cells, on disk if there is a folder."""

    folder: Path | None = None
    """Folder of `cells.jsonl`, and of measurements that take long to collect."""

    @cached_property
    def lines(self) -> dict[tuple[Cell, str], dict[str, Any]]:
        """Scores by cell and learner."""
        found = {}
        if self.folder is not None and (self.folder / "cells.jsonl").exists():
            for number, line in enumerate((self.folder / "cells.jsonl").read_text().splitlines(), 1):
                try:
                    row = json.loads(line)
                    found[Cell(**row["cell"]), row["by"]] = row
                except (ValueError, KeyError, TypeError) as error:
                    raise SondeError(
                        f"{self.folder / 'cells.jsonl'}: line {number} is not a result ({error}); remove it"
                    ) from None
        return found

    def add(self, cell: Cell, by: str, scores: dict[str, float]) -> None:
        """Keep the scores of one learner.

        Args:
            cell: The cell.
            by: The learner.
            scores: Its scores.
        """
        row = {"cell": asdict(cell), "by": by, **scores}
        self.lines[cell, by] = row
        if self.folder is not None:
            append_line(self.folder / "cells.jsonl", json.dumps(row))

    def of(self, suite: Suite) -> Iterator[tuple[Cell, dict[str, dict[str, Any]]]]:
        """The finished cells of a suite, with the scores by learner.

        Args:
            suite: Which cells.
        """
        for cell in suite.cells:
            scores = {by: self.lines[cell, by] for by in suite.learners if (cell, by) in self.lines}
            if len(scores) == len(suite.learners):
                yield cell, scores


def measure(cell: Cell, folder: Path | None) -> Trajectory:
    """The measurements of a cell; those that OpAx chose are kept in a file.

    Args:
        cell: The cell.
        folder: Where the file is; None for no file.
    """
    if cell.data != OPAX:
        return collect(cell.plant, cell.data, cell.measurements, cell.seed)
    file = None if folder is None else folder / f"{cell.name}.safetensors"
    if file is not None and file.exists():
        return Trajectory(**load_file(file))
    data = explored(cell.plant, cell.measurements, cell.seed)
    if file is not None:
        arrays = {name: getattr(data, name) for name in ("states", "actions", "next_states", "truncated")}
        write_atomically(file, save({name: np.ascontiguousarray(array) for name, array in arrays.items()}))
    return data


def score(cell: Cell, by: str, data: Trajectory, tests: Windows) -> dict[str, float]:
    """Let one learner learn and test it.

    Args:
        cell: The cell.
        by: Name of a model or of a peer.
        data: Measurements.
        tests: Test windows.
    """
    start = time.monotonic()
    if by in (*PEERS, FLOOR):
        predict, posterior = fitted(by, cell.plant, data, cell.seed), None
    else:
        posterior = learned(by, cell.plant, data, cell.seed)
        predict = predictor_of(posterior)
    seconds = time.monotonic() - start
    found = {**errors(predict, tests), "fit_seconds": round(seconds, 2)}
    return found if posterior is None else {**found, **coverage(posterior, tests, cell.seed)}


def run(suite: Suite, results: Results) -> None:
    """Compute what is missing, with a line of progress per cell.

    Args:
        suite: Which cells, and which models.
        results: What there is already; new scores are added.
    """
    cells = suite.cells
    for number, cell in enumerate(cells, 1):
        missing = [by for by in suite.learners if (cell, by) not in results.lines]
        if not missing:
            continue
        start = time.monotonic()
        data, tests = measure(cell, results.folder), Windows.of(cell.plant)
        for by in missing:
            results.add(cell, by, score(cell, by, data, tests))
        shown: Sequence[str] = [f"{by} {results.lines[cell, by]['twenty_step']:.3g}" for by in suite.learners]
        note(f"{number}/{len(cells)} {cell.name}: 20-step errors {', '.join(shown)} ({time.monotonic() - start:.0f} s)")
