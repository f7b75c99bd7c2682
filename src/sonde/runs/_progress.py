"""What a person sees while a run goes on: a growing table and a line that says what is happening now.

On a terminal it is live; elsewhere (a log, a pipe) each finished episode is one plain line.
"""

import time
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table

from sonde._internal.user_code import task_label
from sonde.models import GaussianProcess, Model
from sonde.runs._config import RunConfig

PHASES = {
    "plan": "planning and acting",
    "fit": "learning from the measurements",
    "evaluate": "judging the model and trying the tasks",
}
Row = dict[str, Any]


def measured(model: Model) -> dict[str, tuple[str, int]]:
    """Columns: the key of the metric, and digits. A stopping rule shows its own instead of the one that is named like it."""
    # what a Gaussian process holds for uncertain changes with its hyper-parameters, so it is judged by one kernel throughout;
    # an ensemble is not, since in many dimensions that kernel has nothing nearby
    uncertainty = "max_epistemic_common" if isinstance(model, GaussianProcess) else "max_epistemic"
    return {"information": ("realised_information_gain", 0), "uncertainty": (uncertainty, 4), "model error": ("model_rmse", 4)}


class LiveProgress:
    """Call it as `sonde.runs._run.Progress`; use it as a context, so that the terminal is left in order."""

    def __init__(self, config: RunConfig, console: Console, done: list[Row]):
        """`done` are the rows of episodes that an earlier part of the run finished."""
        self.config, self.console = config, console
        self.rule = config.stopping_rule
        self.worst: list[tuple[int, float]] = []  # episodes and what the rule looks at, of the run that is furthest from it
        self.measured = measured(config.model)
        if self.rule:
            self.measured.pop(self.rule.subject)
        self.columns = ["round", "transitions", *self.measured]
        self.columns += [quantity.label for quantity in self.rule.quantities] if self.rule else []
        self.columns += [task_label(task) for task in config.task_names] if config.evaluate_every else []
        self.columns += ["plan s", "fit s", "evaluate s"]
        self.table = Table(*self.columns, title=self._title(), title_justify="left")
        for column in self.table.columns:
            column.justify = "right"
        self.round_seconds: list[float] = []
        self.round_began = time.perf_counter()
        rounds = sorted({row["round"] for row in done})
        for round_number in rounds:
            self._add([row for row in done if row["round"] == round_number])
        self.live = Live(console=console, refresh_per_second=8, transient=False) if console.is_terminal else None

    def __enter__(self) -> "LiveProgress":
        if self.live:
            self.live.start()
        else:
            self.console.print(self._title(), soft_wrap=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            self.live.update(self.table)
            self.live.stop()

    def __call__(self, phase: str, round_number: int, rows: list[Row] | None) -> None:
        """Show the phase, or the finished episode."""
        if phase == "plan":
            self.round_began = time.perf_counter()
        if rows is not None:
            self.round_seconds.append(time.perf_counter() - self.round_began)
            cells = self._add(rows)
            if not self.live:
                line = ", ".join(f"{c} {v}" for c, v in zip(self.columns, cells, strict=True))
                over = "stopped" in rows[0] or round_number == self.config.rounds
                self.console.print(line + ("" if over else self._outlook()), soft_wrap=True)
        elif self.live:
            phase, _, step = phase.partition("/")
            doing = f"{PHASES[phase]}, {step}" if step else PHASES[phase]
            limit = f"{'at most ' if self.rule else ''}{self.config.rounds}"
            text = f"episode {round_number} of {limit}: {doing}{self._remaining(round_number)}{self._outlook()}"
            self.live.update(Group(self.table, Spinner("dots", text)))

    def _title(self) -> str:
        told = "means; of the rule, the worst" if self.rule else "means"
        seeds = f", {self.config.seeds} runs in lockstep ({told})" if self.config.seeds > 1 else ""
        task = f" on {self.config.task}" if self.config.task else ""
        until = f" until {self.rule.text}, at most" if self.rule else ""
        return f"{self.config.method}{task}:{until} {self.config.rounds} episodes of {self.config.steps} steps{seeds}"

    def _outlook(self) -> str:
        """How many more episodes the stopping rule is expected to take."""
        return f"; {self.rule.outlook(self.worst, self.config.rounds)}" if self.rule else ""

    def _remaining(self, round_number: int) -> str:
        if not self.round_seconds:
            return " (the first one also compiles)"
        # the first episode compiles, so a later one is the better guess
        expected = self.rule.rounds_left(self.worst) if self.rule else None
        possible = self.config.rounds - round_number + 1
        known = self.rule is None or (expected is not None and expected <= possible)
        left = (possible if expected is None else min(possible, expected)) * self.round_seconds[-1]
        how_long = f"{left / 60:.0f} min" if left > 90 else f"{left:.0f} s"
        return f" ({'about' if known else 'at most'} {how_long} left)"

    def _add(self, rows: list[Row]) -> list[str]:
        def mean(key: str, digits: int | None) -> str:
            values = [row[key] for row in rows if row.get(key) is not None]
            if not values:
                return "-"
            average = sum(values) / len(values)
            if digits is None:  # returns may be of any size
                digits = 0 if abs(average) >= 100 else 1 if abs(average) >= 10 else 2
            return f"{average:.{digits}f}"

        cells = [
            str(rows[0]["round"]),
            str(rows[0]["transitions"]),
            *(mean(key, digits) for key, digits in self.measured.values()),
        ]
        if self.rule:
            worst = self.rule.worst(rows)
            self.worst += [] if worst[0] is None else [(rows[0]["round"], worst[0])]
            cells += ["-" if value is None else f"{value:.4g}" for value in worst]
        for task in self.config.task_names if self.config.evaluate_every else ():
            reached, solved = mean(f"return/{task_label(task)}", None), mean(f"success/{task_label(task)}", 2)
            cells.append(reached if solved == "-" else f"{reached} (success {solved})")
        cells += [mean(f"seconds/{phase}", 1) for phase in PHASES]
        self.table.add_row(*cells)
        return cells
