"""Which runs an experiment needs, which of them exist, and how far they are.

    DIR/runs/pendulum-gp/opax/10-rounds-seeds-0-9            a batch: runs that advance in lockstep, a folder like any run's
    DIR/runs/pendulum-gp/opax/10-rounds-untried-seeds-0-9    the same without trying tasks, for a figure that shows no returns
    DIR/runs/pendulum-gp/references-seeds-0-9                the planner on the true system, and random actions, for every task

Whatever is there already is gone on with, or used as it is: more seeds become further batches, fewer take what they need.
"""

import itertools
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from experiments.paper import run_config

from sonde._internal.errors import SondeError
from sonde.runs._config import RunConfig, differences
from sonde.runs._store import RunStore
from sonde.runs.sweep._results import ORACLE, RANDOM_ACTIONS, Results, Row

REFERENCES = "references"
REFERENCE_FILE = "references.csv"
MACHINES = "machines.jsonl"


@dataclass(frozen=True)
class Batch:
    """Runs of one setting and method that advance in lockstep; or the references of a setting, which are judged at once."""

    setting: str
    kind: str
    """A method, or `REFERENCES`."""
    config: RunConfig
    folder: Path

    @property
    def rounds(self) -> int:
        """How many rounds it has when it is done."""
        return 1 if self.kind == REFERENCES else self.config.rounds

    @property
    def seeds(self) -> str:
        """Which, in words."""
        first, last = self.config.seed_list[0], self.config.seed_list[-1]
        return f"{first}-{last}"

    def create(self) -> None:
        """Make its folder, if it has none yet."""
        if not self.folder.exists():
            RunStore.create(self.folder, self.config)

    def rounds_done(self) -> int:
        """Rounds that need not be done again."""
        if self.kind == REFERENCES:
            return int((self.folder / REFERENCE_FILE).exists())
        notes = (self.folder / "checkpoints").glob("*.json")
        return max((int(path.stem) for path in notes if path.stem.isdigit()), default=0)

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        return self.rounds_done() >= self.rounds

    def rows(self) -> list[Row]:
        """What was measured in the rounds that are done."""
        if not self.folder.exists():
            return []
        if self.kind == REFERENCES:
            return Results.load(self.folder / REFERENCE_FILE).rows if self.finished else []
        done = self.rounds_done()
        names = {"setting": self.setting, "method": self.kind}
        finite = lambda row: {key: math.nan if value is None else value for key, value in row.items()}
        return [names | finite(row) for row in RunStore.open(self.folder).load_metrics() if row["round"] <= done]

    def machines(self) -> list[dict[str, str]]:
        """Machines and versions that worked on it."""
        path = self.folder / MACHINES
        lines = path.read_text().split("\n")[:-1] if path.exists() else []  # a line that a kill has cut has no end
        return [json.loads(line) for line in dict.fromkeys(lines)]

    def seconds_per_round(self) -> float | None:
        """How long the latest rounds took; None before there is one, and for references, which are no rounds."""
        if self.kind == REFERENCES:
            return None
        rows = {row["round"]: sum(v for k, v in row.items() if k.startswith("seconds/")) for row in self.rows()}
        latest = [seconds for _, seconds in sorted(rows.items())][1:][-3:] or list(rows.values())  # the first one compiles
        return sum(latest) / len(latest) if latest else None


@dataclass(frozen=True)
class Grid:
    """What an experiment wants: every method in every setting, for so many rounds and seeds."""

    settings: tuple[str, ...]
    methods: tuple[str, ...]
    rounds: dict[str, int]
    seeds: int
    lite: bool
    out: Path
    try_tasks: bool = True
    """Whether returns are needed; otherwise batches that exist may have them, and new ones do not."""

    def batches(self) -> list[Batch]:
        """All that is needed, existing batches first; refused if one that exists was made with other settings."""
        found = []
        for setting in self.settings:
            if self.try_tasks:
                found += self._covering(setting, REFERENCES)
            for method in self.methods:
                found += self._covering(setting, method)
        return found

    def config(self, setting: str, kind: str) -> RunConfig:
        """That of a batch with all seeds."""
        method = "random" if kind == REFERENCES else kind
        config = run_config(setting, method, self.rounds[setting], self.seeds, lite=self.lite)
        return replace(config, rounds=1) if kind == REFERENCES else config  # no matter how long anything is explored

    def _covering(self, setting: str, kind: str) -> list[Batch]:
        """The batches that together have all seeds."""
        rounds, config = self.rounds[setting], self.config(setting, kind)
        name = f"{setting}-lite" if self.lite else setting
        parent = self.out / "runs" / name if kind == REFERENCES else self.out / "runs" / name / kind
        prefix = REFERENCES if kind == REFERENCES else f"{rounds}-rounds"
        existing = self._existing(setting, kind, config, parent, prefix)
        if not self.try_tasks:  # of two that have the same seeds, the one that is further counts
            prefix, config = f"{prefix}-untried", replace(config, evaluate_every=0)
            existing += self._existing(setting, kind, config, parent, prefix)
            existing.sort(key=lambda batch: -batch.rounds_done())
        batches, have = list[Batch](), set[int]()
        for batch in existing:
            if not have & set(batch.config.seed_list):
                batches.append(batch)
                have |= set(batch.config.seed_list)
        for first, last in _stretches(seed for seed in config.seed_list if seed not in have):
            seeds = replace(config, first_seed=first, seeds=last - first + 1)
            batches.append(Batch(setting, kind, seeds, parent / f"{prefix}-seeds-{first}-{last}"))
        return [batch for batch in batches if set(batch.config.seed_list) & set(config.seed_list)]

    def _existing(self, setting: str, kind: str, config: RunConfig, parent: Path, prefix: str) -> list[Batch]:
        """Batches that are there; refused if anything but their seeds is not as wanted."""
        found = []
        for folder in sorted(parent.glob(f"{prefix}-seeds-*")):
            if not (folder / "config.json").exists():
                continue
            saved = RunStore.open(folder).config
            wanted = replace(config, seeds=saved.seeds, first_seed=saved.first_seed)
            if differing := list(differences(saved, wanted)):
                raise SondeError(
                    f"{folder} was made with other settings: {'; '.join(differing)}; name another folder with --out"
                )
            found.append(Batch(setting, kind, saved, folder))
        return found

    def results(self, table: Path) -> Results:
        """All that was measured so far: of runs that are here, and what `table` has of others."""
        recorded = Results.load(table).rows if table.exists() else []
        return Results([*recorded, *(row for batch in self.batches() for row in batch.rows())])

    def asked_for(self, results: Results) -> Results:
        """Those of the settings, methods, seeds and rounds of this grid."""
        wanted = lambda row: row["seed"] < self.seeds and row["round"] <= self.rounds[row["setting"]]
        chosen = results.only(self.settings, (*self.methods, ORACLE, RANDOM_ACTIONS))
        return Results(row for row in chosen.rows if wanted(row))


def _stretches(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Stretches of numbers that follow each other, as (first, last)."""
    for _, group in itertools.groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        stretch = [number for _, number in group]
        yield stretch[0], stretch[-1]
