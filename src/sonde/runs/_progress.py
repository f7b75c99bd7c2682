"""The progress display of a run: a table with a row per round, and a line that says what is being done.

On a terminal it is updated in place; elsewhere (a log, a pipe) each finished round is printed as one line.
"""

import math
import time
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from sonde._internal.metric_spec import MetricSpec
from sonde._internal.user_code import task_label
from sonde.evaluation._stalling import stall_warning
from sonde.models import Auto
from sonde.runs._callbacks import PHASES, Callback, Row
from sonde.runs._config import RunConfig

DOING = {
    "plan": "planning and acting",
    "fit": "fitting the model",
    "evaluate": "evaluating the model and the tasks",
}
"""What is shown for each phase of a round."""


def shown_metrics(config: RunConfig) -> list[MetricSpec]:
    """The metrics with a column in the display: those of the schema that name one.

    Args:
        config: The run.
    """
    # the uncertainty of a model changes with its hyper-parameters, so that under the common kernel stands beside it
    rule = config.stopping_rule
    hidden = {"realised_information_gain"} if rule is not None and rule.subject == "information" else set()
    shown = [spec for spec in config.schema.specs if spec.column and spec.key not in hidden]
    return sorted(shown, key=lambda spec: spec.key != "realised_information_gain")  # the information gain comes first


class ProgressDisplay(Callback):
    """Shows a run on a console."""

    def __init__(self, console: Console):
        """Keep the console; nothing is shown before the run starts.

        Args:
            console: Where to show the run.
        """
        self.console = console
        self._live: Live | None = None

    def on_run_start(self, config: RunConfig, rows: Sequence[Row]) -> None:
        """Show the rounds that an earlier process finished."""
        self.config, self.rule = config, config.stopping_rule
        self.worst: list[tuple[int, float]] = []  # rounds, and the largest number of the stopping rule over seeds
        self.shown = shown_metrics(config)
        self.columns = ["round", "transitions", *(spec.column for spec in self.shown)]
        self.columns += [term.title for term in self.rule.terms] if self.rule else []
        self.columns += [task_label(task) for task in config.task_names] if config.evaluate_every else []
        self.columns += ["model (simulation error)"] if isinstance(config.model, Auto) else []
        self.columns += [f"{phase} s" for phase in PHASES]
        # as Text, because names of methods and tasks may look like Rich's markup
        title = Text(self._title(), style="table.title")
        self.table = Table(title=title, title_justify="left")
        for column in self.columns:
            self.table.add_column(Text(column), justify="right")
        self.stalls: str | None = None
        self.best: dict[tuple[int, str], float] = {}  # the best return so far, by seed and task
        self.round_seconds: list[float] = []
        self.round_began = time.perf_counter()
        for number in sorted({row["round"] for row in rows}):
            self._add([row for row in rows if row["round"] == number])
        if self.console.is_terminal:
            self._live = Live(console=self.console, refresh_per_second=8, transient=False)
            self._live.start()
        else:
            self.console.print(self._title(), soft_wrap=True, markup=False, emoji=False)

    def on_phase(self, round_number: int, phase: str, detail: str) -> None:
        """Show the phase."""
        if phase == "plan" and not detail:
            self.round_began = time.perf_counter()
        if self._live:
            doing = f"{DOING[phase]}, {detail}" if detail else DOING[phase]
            limit = f"{'at most ' if self.rule else ''}{self.config.rounds}"
            text = f"round {round_number} of {limit}: {doing}{self._remaining(round_number)}{self._outlook()}"
            self._live.update(Group(*self._with_warning(), Spinner("dots", Text(text))))

    def on_round_end(self, round_number: int, rows: Sequence[Row]) -> None:
        """Add the round to the table."""
        self.round_seconds.append(time.perf_counter() - self.round_began)
        cells = self._add(rows)
        if not self._live:
            line = ", ".join(f"{c} {v}" for c, v in zip(self.columns, cells, strict=True))
            done = "stopped" in rows[0] or round_number == self.config.rounds
            self.console.print(line + ("" if done else self._outlook()), soft_wrap=True, markup=False, emoji=False)
            if self.stalls:
                self.console.print(self.stalls, soft_wrap=True, markup=False, emoji=False)

    def on_run_end(self) -> None:
        """Stop updating the terminal."""
        if self._live:
            self._live.update(Group(*self._with_warning()))
            self._live.stop()
            self._live = None

    def _with_warning(self) -> list[RenderableType]:
        """The table and, if exploration stalls, a sentence about it."""
        return [self.table, *([Text(self.stalls, style="yellow")] if self.stalls else [])]

    def _title(self) -> str:
        shown = "means; for the stopping rule, the largest value" if self.rule else "means"
        seeds = f", {self.config.seeds} seeds ({shown})" if self.config.seeds > 1 else ""
        task = f" on {self.config.exploration_task}" if self.config.exploration_task else ""
        until = f" until {self.rule.text}, at most" if self.rule else ""
        return f"{self.config.method.name}{task}:{until} {self.config.rounds} rounds of {self.config.steps} steps{seeds}"

    def _outlook(self) -> str:
        """How many more rounds the stopping rule will need, in words."""
        return f"; {self.rule.outlook(self.worst, self.config.rounds)}" if self.rule else ""

    def _remaining(self, round_number: int) -> str:
        if not self.round_seconds:
            return " (the first one also compiles)"
        # the first round includes compilation, so the latest one is the better estimate
        expected = self.rule.rounds_left(self.worst) if self.rule else None
        most = self.config.rounds - round_number + 1
        known = self.rule is None or (expected is not None and expected <= most)
        left = (most if expected is None else min(most, expected)) * self.round_seconds[-1]
        duration = f"{left / 60:.0f} min" if left > 90 else f"{left:.0f} s"
        return f" ({'about' if known else 'at most'} {duration} left)"

    def _add(self, rows: Sequence[Row]) -> list[str]:
        cells = [str(rows[0]["round"]), str(rows[0].get("transitions", "-"))]
        cells += [_mean(rows, spec.key, spec.digits) for spec in self.shown]
        if self.rule:
            worst = self.rule.worst(rows)
            known = [value for value in worst if value is not None]
            self.worst += [(rows[0]["round"], max(known))] if len(known) == len(worst) else []
            cells += ["-" if value is None else f"{value:.4g}" for value in worst]
        for task in self.config.task_names if self.config.evaluate_every else ():
            cells.append(self._returns(rows, task_label(task)))
        cells += [_choices(self.config.model, rows)] if isinstance(self.config.model, Auto) else []
        cells += [_mean(rows, f"seconds/{phase}", 1) for phase in PHASES]
        self.table.add_row(*cells)
        self.stalls = stall_warning(rows, self.config.method, self.config.model)
        return cells

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


def _choices(model: Auto, rows: Sequence[Row]) -> str:
    """The models that were chosen for the seeds, and the errors of all candidates, the chosen ones first."""
    chosen = {model.labels[int(row["model_choice"])] for row in rows}
    ordered = sorted(model.labels, key=lambda label: label not in chosen)
    errors = [f"{label} {_mean(rows, f'simulation_error/{label}', 3)}" for label in ordered]
    return f"{', '.join(errors[: len(chosen)])} (others: {', '.join(errors[len(chosen) :]) or 'none'})"


def _mean(rows: Sequence[Row], key: str, digits: int | None = None) -> str:
    """The mean over seeds as text; without `digits`, their number depends on the size of the value."""
    values = [row[key] for row in rows if row.get(key) is not None]
    if not values:
        return "-"
    average = sum(values) / len(values)
    if digits is None:
        digits = 0 if abs(average) >= 100 else 1 if abs(average) >= 10 else 2
    return f"{average:.{digits}f}"
