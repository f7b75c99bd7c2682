"""Everything that a page shows, collected before any of it is written."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sonde.evaluation import Schema
from sonde.runs.report._advice import Finding, warnings_of
from sonde.runs.report._html import Markup
from sonde.runs.report._learned import HeldOut, ModelErrors, held_out, model_errors
from sonde.runs.report._states import States, visited
from sonde.runs.report._subjects import Subject, schema_of
from sonde.runs.report._tasks import Say, Solved, TaskWork, solve_tasks
from sonde.worlds import World


@dataclass
class Facts:
    """What was computed for one subject beside its metrics."""

    errors: list[ModelErrors] = field(default_factory=list)
    """Of each of its runs that has them."""
    no_errors: str | None = None
    """Why there are none, as a sentence."""
    held_out: list[HeldOut] = field(default_factory=list)
    """Of each of its runs."""
    states: States | None = None
    """Of the first seed of its first run."""
    solved: list[Solved] = field(default_factory=list)
    """Tasks of all its runs."""


@dataclass
class Content:
    """Everything that a page shows."""

    subjects: list[Subject]
    schema: Schema
    facts: list[Facts]
    """Of each subject."""
    findings: list[Finding]
    """Warnings and notes about all subjects."""
    data: dict = field(default_factory=dict)
    """What the page's script needs; sections add to it."""

    @property
    def single(self) -> bool:
        """Whether the page is about one subject."""
        return len(self.subjects) == 1

    @property
    def world(self) -> World:
        """The system."""
        return self.subjects[0].config.world


class Section(NamedTuple):
    """A part of the page."""

    identifier: str
    title: str
    body: Markup


def collect(subjects: Sequence[Subject], work: TaskWork, say: Say) -> Content:
    """Compute what a page shows.

    Args:
        subjects: What the page is about.
        work: What to compute for tasks.
        say: Called with what is being done.
    """
    facts = [_facts(subject, work, say) for subject in subjects]
    findings = [finding for subject in subjects for finding in warnings_of(subject)]
    return Content(list(subjects), schema_of(subjects), facts, findings)


def _facts(subject: Subject, work: TaskWork, say: Say) -> Facts:
    facts = Facts()
    for source in subject.sources:
        if not source.store.checkpoints():
            continue
        say(f"{source.store.folder.name}: restoring what was learned")
        explorer = source.restored()
        say(f"{source.store.folder.name}: comparing the model with the system")
        errors = model_errors(source.store, explorer)
        if isinstance(errors, ModelErrors):
            facts.errors.append(errors)
        else:
            facts.no_errors = errors
        held = held_out(explorer)
        facts.held_out += [] if held is None else [held]
        if not explorer.round:  # fitted to logs, and not explored yet
            continue
        if facts.states is None and explorer.spec.state_dim > 1:
            steps = [measured.states.shape[1] for measured in source.store.load_data(explorer.round)]
            facts.states = visited(explorer, source.store.config.world, steps)
        facts.solved += solve_tasks(source, work, say)
    return facts
