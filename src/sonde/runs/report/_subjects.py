"""What a report is about: runs that were opened, pooled where only their seeds differ, and checked against each other."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sonde._internal.errors import SondeError
from sonde._internal.user_code import task_label
from sonde.evaluation import Evaluation, Schema
from sonde.evaluation._statistics import Curve
from sonde.explorer import Explorer
from sonde.runs._config import RunConfig, world_label
from sonde.runs._run import restore_explorer
from sonde.runs._store import RunStore
from sonde.runs.figures._curves import Group, grouped, labels

MAX_SUBJECTS = 12
"""Most lines in a chart that can be told apart."""


@dataclass
class Source:
    """A run that was opened, and what is known of it beside its folder."""

    store: RunStore
    explorer: Explorer | None = None
    """The explorer after its last finished round, if it is at hand."""
    evaluations: Mapping[str, Mapping[str, Evaluation]] = field(default_factory=dict)
    """Evaluations after the last round by task and name ('learned', 'oracle', 'random'), if they are at hand."""
    remarks: list[str] = field(default_factory=list)
    """What the model warned of when it was restored."""

    def restored(self) -> Explorer:
        """The explorer after the newest checkpoint; what its model warns of is kept in `remarks`."""
        if self.explorer is None:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                self.explorer = restore_explorer(self.store)
            self.remarks += [str(each.message) for each in caught if each.category is UserWarning]
        return self.explorer


@dataclass
class Subject:
    """What has one line in the charts: a run, or several that differ only in their seeds."""

    number: int
    """Position on the page, which decides its colour and marker."""
    name: str
    """Its name on the page."""
    group: Group
    sources: list[Source]
    """Its runs."""

    @property
    def config(self) -> RunConfig:
        """The config of its first run."""
        return self.sources[0].store.config

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Metrics of all its runs."""
        return self.group.rows

    @property
    def rounds(self) -> int:
        """The last finished round."""
        return max(row["round"] for row in self.rows)

    @property
    def initial(self) -> int:
        """Number of measurements that it started from."""
        measurements = self.sources[0].store.load_initial_data()
        return 0 if measurements is None else len(measurements.states)

    @property
    def last(self) -> list[dict[str, Any]]:
        """Metrics of each seed after its last round."""
        ends = {seed: max(row["round"] for row in self.rows if row["seed"] == seed) for seed in sorted(self.group.seeds)}
        return [row for row in self.rows if row["round"] == ends[row["seed"]]]

    def curve(self, key: str) -> Curve | None:
        """A metric for all seeds, in the rounds in which each of them has a finite value.

        Args:
            key: Key of the metric.

        Returns:
            The curve; None if there is no such round.
        """
        found: dict[int, dict[int, float]] = {seed: {} for seed in sorted(self.group.seeds)}
        for row in self.rows:
            value = row.get(key)
            if isinstance(value, int | float) and np.isfinite(value):
                found[row["seed"]][row["round"]] = float(value)
        rounds = sorted(set.intersection(*(set(values) for values in found.values())))
        if not rounds:
            return None
        values = np.array([[values[number] for number in rounds] for values in found.values()])
        return Curve(np.array(list(found)), np.array(rounds), values)


def subjects(sources: Sequence[Source]) -> list[Subject]:
    """Pool runs that differ only in their seeds, after checking that all of them can be shown side by side.

    Args:
        sources: The runs.
    """
    _check(sources)
    groups = grouped([source.store for source in sources], rows_of)
    if len(groups) > MAX_SUBJECTS:
        raise SondeError(f"report: expected at most {MAX_SUBJECTS} runs that differ in more than seeds, got {len(groups)}")
    left, found = list(sources), []
    names = [_short(name) for name in labels(groups)] if len(groups) > 1 else [groups[0].config.method.name]
    for number, (group, name) in enumerate(zip(groups, names, strict=True)):
        own = [next(source for source in left if source.store.folder == folder) for folder in group.folders]
        for source in own:
            left.remove(source)
        found.append(Subject(number, name, group, own))
    return found


def rows_of(store: RunStore) -> list[dict[str, Any]]:
    """The metrics of a run; where it was only fitted to logs, a row for each seed that says of how many measurements.

    Args:
        store: The run.
    """
    rows, initial = store.load_metrics(), store.load_initial_data()
    if rows or initial is None or 0 not in store.checkpoints():
        return rows
    return [{"seed": seed, "round": 0, "transitions": len(initial.states)} for seed in store.seeds]


def _short(label: str) -> str:
    """A label of the figures without the number of seeds, which the page says elsewhere."""
    return label.rpartition(" (")[0]


def _check(sources: Sequence[Source]) -> None:
    """Reject runs without a round, and runs of different systems or tasks."""
    for source in sources:
        if not rows_of(source.store):
            raise SondeError(
                f"{source.store.folder} has no finished round yet, so there is nothing to report; wait for its first round "
                "(--follow does), or continue it with 'sonde resume'"
            )
    first = sources[0].store
    for store in (source.store for source in sources[1:]):
        for what, of in _COMPARED.items():
            mine, theirs = of(first.config), of(store.config)
            if mine != theirs:
                raise SondeError(
                    f"report: runs side by side must have the same {what}; {first.folder} has {_listed(mine)} and "
                    f"{store.folder} has {_listed(theirs)}; make a report of each"
                )


_COMPARED = {
    "system": lambda config: (world_label(config.world),),
    "states": lambda config: tuple(config.world.state_names),
    "actions": lambda config: tuple(config.world.action_names),
    "tasks": lambda config: tuple(sorted(map(task_label, config.task_names))) if config.evaluate_every else (),
}
"""What runs must share to be shown side by side."""


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "none"


def schema_of(found: Sequence[Subject]) -> Schema:
    """The schema of metrics of all subjects.

    Args:
        found: The subjects.
    """
    own = {metric.spec.key: metric for subject in found for metric in subject.config.metrics}
    return Schema(found[0].config.world, tuple(own.values()))


def opened(folder: Path, allow_code: bool = False) -> Source:
    """Open a run for a report.

    Args:
        folder: Its folder.
        allow_code: Whether code that its config names may run.
    """
    return Source(RunStore.open(folder, allow_code))
