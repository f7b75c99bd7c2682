"""Which batches a figure needs, and which of them exist.

    DIR/runs/pendulum-gp/opax/10-rounds-seeds-0-9             a batch: seeds that advance in lockstep, a folder like any run's
    DIR/runs/pendulum-gp/opax/10-rounds-no-tasks-seeds-0-9    the same without evaluating tasks, for a figure without returns
    DIR/runs/pendulum-gp/references-seeds-0-9                 the planner on the true system, and random actions, for every task

What exists already is continued, or used as it is: more seeds become further batches, fewer take what they need.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from experiments.paper import run_config
from experiments.references import ORACLE, RANDOM_ACTIONS, REFERENCES, ReferenceBatch
from sonde.runs import RunConfig
from sonde.runs.sweep import Batch, Results
from sonde.runs.sweep._batch import cover_seeds, existing_batches


@dataclass(frozen=True)
class Grid:
    """Every method in every setting, with the rounds and seeds that a figure shows."""

    settings: tuple[str, ...]
    methods: tuple[str, ...]
    rounds: dict[str, int]
    """Rounds of each setting."""
    seeds: int
    lite: bool
    """Whether lighter planners and models are used than the paper's."""
    out: Path
    evaluate_tasks: bool = True
    """Whether returns are needed; otherwise batches that exist may have them, and new ones do not."""

    def batches(self) -> list[Batch]:
        """All that is needed, existing batches first; it is an error if one that exists was made with other settings."""
        found = []
        for setting in self.settings:
            if self.evaluate_tasks:
                found += self._references(setting)
            for method in self.methods:
                found += self._explorations(setting, method)
        return found

    def config(self, setting: str, method: str) -> RunConfig:
        """The config of all seeds; `method` may be `REFERENCES`."""
        explored = "random" if method == REFERENCES else method
        config = run_config(setting, explored, self.rounds[setting], self.seeds, lite=self.lite)
        return replace(config, rounds=1) if method == REFERENCES else config  # the same for any number of rounds

    def _folder(self, setting: str) -> Path:
        return self.out / "runs" / (f"{setting}-lite" if self.lite else setting)

    def _references(self, setting: str) -> list[Batch]:
        wanted = ReferenceBatch(setting, REFERENCES, self.config(setting, REFERENCES), self._folder(setting) / REFERENCES)
        return cover_seeds(wanted, existing_batches(wanted))

    def _explorations(self, setting: str, method: str) -> list[Batch]:
        config, folder = self.config(setting, method), self._folder(setting) / method
        wanted = Batch(setting, method, config, folder / f"{self.rounds[setting]}-rounds")
        existing = existing_batches(wanted)
        if not self.evaluate_tasks:
            wanted = replace(
                wanted, config=replace(config, evaluate_every=0), folder=folder / f"{self.rounds[setting]}-rounds-no-tasks"
            )
            # of two that have the same seeds, the one that is further counts
            existing = sorted([*existing, *existing_batches(wanted)], key=lambda batch: -batch.rounds_done())
        return cover_seeds(wanted, existing)

    def results(self, table: Path) -> Results:
        """All that was measured so far: by the batches that exist, and what `table` has of others."""
        recorded = Results.load(table).rows if table.exists() else []
        return Results([*recorded, *(row for batch in self.batches() for row in batch.rows())])

    def asked_for(self, results: Results) -> Results:
        """The rows of the settings, methods, seeds and rounds of this grid."""
        wanted = lambda row: row["seed"] < self.seeds and row["round"] <= self.rounds[row["setting"]]
        chosen = results.only(self.settings, (*self.methods, ORACLE, RANDOM_ACTIONS))
        return Results(row for row in chosen.rows if wanted(row))
