"""The progress display of a run.

On a terminal it is live: a table with a row per round, sparklines of what matters most, what is being done, and the time left.
Elsewhere (a log, a pipe) each finished round is printed as one line.
"""

import math
import shlex
import textwrap
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console, ConsoleOptions, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from sonde._internal.metric_spec import MetricSpec
from sonde._internal.user_code import task_label
from sonde.evaluation._constraints import constraint_warnings
from sonde.evaluation._drift import drift_warning
from sonde.evaluation._schema import FALLBACK, MAX_EPISTEMIC, MAX_EPISTEMIC_COMMON, REALISED_INFORMATION, VIOLATIONS
from sonde.evaluation._stalling import stall_warning
from sonde.evaluation._whiteness import incomplete_warning
from sonde.models import Auto
from sonde.models._known_physics import learner_of
from sonde.runs import _columns
from sonde.runs._callbacks import PHASES, Callback, Row
from sonde.runs._columns import Column, fitting_table
from sonde.runs._config import RunConfig
from sonde.runs._sparkline import sparkline

DOING = {
    "plan": "planning and acting",
    "fit": "fitting the model",
    "evaluate": "evaluating the model and the tasks",
}
"""What is shown for each phase of a round."""
MODEL_ERROR = "model_rmse"
"""Key of the error of the mean model."""
MOST_CURVES = 6
"""Most sparklines."""
LONGEST = 40
"""Longest sparkline, in characters."""


def shown_metrics(config: RunConfig) -> list[MetricSpec]:
    """The metrics with a column in the display: those of the schema that name one.

    Args:
        config: The run.
    """
    # the uncertainty of a model changes with its hyper-parameters, so that under the common kernel stands beside it
    rule = config.stopping_rule
    hidden = {"realised_information_gain"} if rule is not None and rule.subject == "information" else set[str]()
    hidden |= set() if config.constraints else {VIOLATIONS.key, FALLBACK.key}
    shown = [spec for spec in config.schema.specs if spec.column and spec.key not in hidden]
    return sorted(shown, key=lambda spec: spec.key != "realised_information_gain")  # the information gain comes first


class Curve(NamedTuple):
    """The course of a number over the rounds so far, as means over seeds."""

    label: str
    """What it is called."""
    spec: MetricSpec
    """How it is drawn and printed."""
    values: dict[int, float]
    """Values by round."""
    cells: Sequence[str]
    """Texts of the table, the newest of which may have details in brackets."""

    def line(self, rounds: int, width: int, labels: int, ascii_only: bool) -> Text:
        """Label, sparkline, first and newest value, and details of it if there is room.

        Args:
            rounds: Rounds of the whole run.
            width: Width of the terminal.
            labels: Width of the longest label.
            ascii_only: Whether the terminal has ASCII only.
        """
        first, newest = next(iter(self.values.values())), list(self.values.values())[-1]
        text = f"{number(first, self.spec.digits)} -> {number(newest, self.spec.digits)}"
        label = self.label if len(self.label) <= labels else f"{self.label[: labels - 1]}…"
        drawn = sparkline(self.values, rounds, min(LONGEST, width - labels - len(text) - 6), self.spec.log, ascii_only)
        line = f"  {label:<{labels}}  {drawn}  {text}"
        details = next((cell.partition(" (")[2] for cell in reversed(self.cells) if cell != "-"), "")
        return Text(f"{line} ({details}" if details and len(f"{line} ({details}") <= width else line[:width], no_wrap=True)


class ProgressDisplay(Callback):
    """Shows a run on a console."""

    def __init__(self, console: Console, folder: Path | None = None):
        """Keep the console; nothing is shown before the run starts.

        Args:
            console: Where to show the run.
            folder: Folder of the run; on a terminal, the command that makes its report is shown.
        """
        self.console, self.folder = console, folder
        self._live: Live | None = None
        self._lock = threading.Lock()  # a thread of the terminal's draws while rounds are added

    def on_run_start(self, config: RunConfig, rows: Sequence[Row]) -> None:
        """Show the rounds that an earlier process finished."""
        self.config, self.rule = config, config.stopping_rule
        self.worst: list[tuple[int, float]] = []  # rounds, and the largest number of the stopping rule over seeds
        self.shown = shown_metrics(config)
        self.tasks = [task_label(task) for task in config.task_names] if config.evaluate_every else []
        self.columns = self._columns()
        self.total = Column("s", _columns.SECONDS, _columns.PHASES)  # where there is no room for all phases
        self.curves = self._curves()
        self.warnings: str | None = None
        self.best: dict[tuple[int, str], float] = {}  # the best return so far, by seed and task
        self.round_seconds: list[float] = []
        self.round_began = time.perf_counter()
        self.doing, self.spinner = "", Spinner("line" if self.console.options.ascii_only else "dots")
        for round_number in sorted({row["round"] for row in rows}):
            self._add([row for row in rows if row["round"] == round_number])
        if self.console.is_terminal:
            self._live = Live(self, console=self.console, refresh_per_second=8, transient=False)
            self._live.start()
        else:
            self.console.print(self._title(), soft_wrap=True, markup=False, emoji=False)

    def on_phase(self, round_number: int, phase: str, detail: str) -> None:
        """Show the phase."""
        if phase == "plan" and not detail:
            self.round_began = time.perf_counter()
        doing = f"{DOING[phase]}, {detail}" if detail else DOING[phase]
        limit = f"{'at most ' if self.rule else ''}{self.config.rounds}"
        self.doing = f"round {round_number} of {limit}: {doing}{self._remaining(round_number)}"

    def on_round_end(self, round_number: int, rows: Sequence[Row]) -> None:
        """Add the round to the table."""
        self.round_seconds.append(time.perf_counter() - self.round_began)
        self._add(rows)
        if not self._live:
            line = ", ".join(f"{column.title} {column.cells[-1]}" for column in self.columns)
            done = "stopped" in rows[0] or round_number == self.config.rounds
            self.console.print(line + ("" if done else self._outlook("; ")), soft_wrap=True, markup=False, emoji=False)
            if self.warnings:
                self.console.print(self.warnings, soft_wrap=True, markup=False, emoji=False)

    def on_run_end(self) -> None:
        """Stop updating the terminal."""
        if self._live:
            self.doing = ""
            self._live.stop()  # with everything, however high the terminal is
            self._live = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """What the terminal shows now: all of it once the run ended, and what fits its height before."""
        with self._lock:
            yield from list(self._shown(console, options))

    def _shown(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        width = options.max_width
        below = [*_wrapped(self.warnings, width, "bold red"), *self._now(width)]
        curves = self._curve_lines(width, options.ascii_only)
        above = _wrapped(self._title(), width, "bold")
        room = None
        if self.doing:
            free = console.height - len(above) - len(below) - 1
            curves = curves[: max(0, free - 5)]
            room = max(1, free - len(curves) - 3)
        yield from above
        if self.total.cells:
            yield from fitting_table([*self.columns, self.total], width, room)
        yield from curves
        yield from below

    def _now(self, width: int) -> Iterator[RenderableType]:
        """What is being done, and what is expected."""
        if self.doing:
            yield Text("")
            head, *rest = textwrap.wrap(self.doing, max(10, width - 2))
            self.spinner.update(text=Text(head, no_wrap=True))
            yield self.spinner
            yield from (Text(f"  {line}", no_wrap=True) for line in rest)
            yield from _wrapped(self._outlook(), width)
            if self.folder is not None and self.total.cells:  # the folder is there after the first round
                yield from _wrapped(f"report: sonde report {shlex.quote(_shortest(self.folder))}", width, "dim")

    def _columns(self) -> list[Column]:
        """The columns of the table, which are the entries of a line in a log."""
        gone = {
            REALISED_INFORMATION.key: _columns.INFORMATION,
            MAX_EPISTEMIC_COMMON.key: _columns.COMMON,
            MAX_EPISTEMIC.key: None,
            MODEL_ERROR: _columns.MODEL,
        }
        last = len(self.tasks) - 1
        return [
            Column("round"),
            Column("transitions", _columns.TRANSITIONS),
            *(Column(spec.column, gone.get(spec.key, _columns.OTHERS)) for spec in self.shown),
            *(Column(term.title) for term in (self.rule.terms if self.rule else ())),
            *(Column(task, _columns.TASKS + last - place if place else None) for place, task in enumerate(self.tasks)),
            *([Column("model (simulation error)", _columns.CHOICE)] if isinstance(learner_of(self.config.model), Auto) else []),
            *(Column(f"{phase} s", _columns.PHASES) for phase in PHASES),
        ]

    def _curves(self) -> dict[str, Curve]:
        """What has a sparkline, by its key, the most important ones first."""
        keys = {MAX_EPISTEMIC.key: "uncertainty", **{f"return/{task}": task for task in self.tasks}, MODEL_ERROR: "model error"}
        columns = {column.title: column.cells for column in self.columns}
        specs = {key: self.config.schema.spec(key) for key in keys}
        return {key: Curve(label, specs[key], {}, columns[label]) for key, label in keys.items()}

    def _curve_lines(self, width: int, ascii_only: bool) -> list[Text]:
        """The sparklines that fit, below an empty line."""
        drawn = [curve for curve in self.curves.values() if len(curve.values) > 1][:MOST_CURVES]
        labels = min(20, max((len(curve.label) for curve in drawn), default=0))
        lines = [curve.line(self.config.rounds, width, labels, ascii_only) for curve in drawn]
        return [Text(""), *lines] if lines else []

    def _title(self) -> str:
        shown = "means; for the stopping rule, the largest value" if self.rule else "means"
        seeds = f", {self.config.seeds} seeds ({shown})" if self.config.seeds > 1 else ""
        task = f" on {self.config.exploration_task}" if self.config.exploration_task else ""
        until = f" until {self.rule.text}, at most" if self.rule else ""
        return f"{self.config.method.name}{task}:{until} {self.config.rounds} rounds of {self.config.steps} steps{seeds}"

    def _outlook(self, before: str = "") -> str:
        """How many more rounds the stopping rule will need, in words."""
        return f"{before}{self.rule.outlook(self.worst, self.config.rounds)}" if self.rule else ""

    def _remaining(self, round_number: int) -> str:
        if not self.round_seconds:
            return " (the first one also compiles)"
        # the first round includes compilation, so the latest one is the better estimate
        expected = self.rule.rounds_left(self.worst) if self.rule else None
        most = self.config.rounds - round_number + 1
        known = self.rule is None or (expected is not None and expected <= most)
        left = (most if expected is None else min(most, expected)) * self.round_seconds[-1]
        return f" ({'about' if known else 'at most'} {duration(left)} left)"

    def _add(self, rows: Sequence[Row]) -> None:
        """Add a round to all columns and curves."""
        cells: list[tuple[str, str | None]] = [(str(rows[0]["round"]), None), (str(rows[0].get("transitions", "-")), None)]
        cells += [(_mean(rows, spec.key, spec.digits), None) for spec in self.shown]
        if self.rule:
            worst = self.rule.worst(rows)
            known = [value for value in worst if value is not None]
            self.worst += [(rows[0]["round"], max(known))] if len(known) == len(worst) else []
            cells += [("-" if value is None else f"{value:.4g}", None) for value in worst]
        cells += [(self._returns(rows, task), _mean(rows, f"return/{task}")) for task in self.tasks]
        model = learner_of(self.config.model)
        cells += [_choices(model, rows)] if isinstance(model, Auto) else []
        cells += [(_mean(rows, f"seconds/{phase}", 1), None) for phase in PHASES]
        with self._lock:
            for column, (text, short) in zip(self.columns, cells, strict=True):
                column.add(text, short)
            self.total.add(f"{sum(rows[0].get(f'seconds/{phase}') or 0.0 for phase in PHASES):.1f}")
            self._add_to_curves(rows)
        warnings = [
            incomplete_warning(rows, self.config.past),
            stall_warning(rows, self.config.method, self.config.model),
            drift_warning(rows, self.config.confidence),
        ]
        if self.config.constraints:
            warnings += constraint_warnings(rows, self.config.safety.fallback, self.config.steps)
        self.warnings = " ".join(filter(None, warnings)) or None

    def _add_to_curves(self, rows: Sequence[Row]) -> None:
        for key, curve in self.curves.items():
            values = [row[key] for row in rows if row.get(key) is not None]
            if values:
                curve.values[rows[0]["round"]] = sum(values) / len(values)

    def _returns(self, rows: Sequence[Row], task: str) -> str:
        """Return on a task, the best so far, and success, as means over seeds."""
        key = f"return/{task}"
        for row in rows:
            if row.get(key) is not None:
                self.best[row["seed"], task] = max(row[key], self.best.get((row["seed"], task), -math.inf))
        returned, solved = _mean(rows, key), _mean(rows, f"success/{task}", 2)
        best = _mean([{key: value} for (_, named), value in self.best.items() if named == task], key)
        more = [*([f"best {best}"] if returned not in ("-", best) else []), *([f"success {solved}"] if solved != "-" else [])]
        return f"{returned} ({', '.join(more)})" if more else returned


def _choices(model: Auto, rows: Sequence[Row]) -> tuple[str, str]:
    """The models that were chosen for the seeds with the errors of all candidates, the chosen ones first; and their names."""
    chosen = {model.labels[int(row["model_choice"])] for row in rows}
    ordered = sorted(model.labels, key=lambda label: label not in chosen)
    errors = [f"{label} {_mean(rows, f'simulation_error/{label}', 3)}" for label in ordered]
    text = f"{', '.join(errors[: len(chosen)])} (others: {', '.join(errors[len(chosen) :]) or 'none'})"
    return text, ", ".join(ordered[: len(chosen)])


def _mean(rows: Sequence[Row], key: str, digits: int | None = None) -> str:
    """The mean over seeds as text; without `digits`, their number depends on the size of the value."""
    values = [row[key] for row in rows if row.get(key) is not None]
    if not values:
        return "-"
    return number(sum(values) / len(values), digits)


def number(value: float, digits: int | None) -> str:
    """A number as text.

    Args:
        value: The number.
        digits: Decimals; None: as many as suit the size of the value.
    """
    if digits is None:
        digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:z.{digits}f}"  # z: no minus sign before what rounds to zero


def duration(seconds: float) -> str:
    """A time in the unit that suits it.

    Args:
        seconds: The time.
    """
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _wrapped(text: str | None, width: int, style: str = "") -> list[Text]:
    """A text as lines of the terminal, broken between words."""
    return [Text(line, style=style, no_wrap=True) for line in textwrap.wrap(text or "", width, break_on_hyphens=False)]


def _shortest(folder: Path) -> str:
    """The folder as one would type it here."""
    return str(folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder)
