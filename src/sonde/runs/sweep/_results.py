"""What the batches of a sweep have measured: a table that goes to a small CSV file and back.

One row per setting, method, seed and round, with every metric of that round. A metric that was not measured in a round is not
in its row; one that was not finite is NaN.
"""

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sonde._internal.errors import SondeError
from sonde._internal.files import write_atomically
from sonde.evaluation._statistics import Curve

KEYS = ("setting", "method", "seed", "round")
Row = dict[str, Any]


class Results:
    """The rows, and the curves that they make."""

    def __init__(self, rows: Iterable[Row]):
        """Sort the rows.

        Args:
            rows: Metrics by name, with the keys setting, method, seed and round; of rows with the same keys the last counts.
        """
        self.rows = sorted({_key(row): row for row in rows}.values(), key=_key)
        self._of: dict[tuple[str, str], list[Row]] = {}
        for row in self.rows:
            self._of.setdefault((row["setting"], row["method"]), []).append(row)

    def methods(self, setting: str) -> list[str]:
        """The methods that have rows in a setting.

        Args:
            setting: The setting.
        """
        return [method for name, method in self._of if name == setting]

    def metrics(self) -> list[str]:
        """Names of everything that was measured."""
        return [name for name in dict.fromkeys(name for row in self.rows for name in row) if name not in KEYS]

    def rounds(self, setting: str, methods: Sequence[str]) -> list[int]:
        """The rounds that all seeds of any of these methods have, whatever was measured in them.

        Args:
            setting: The setting.
            methods: The methods.
        """
        curves = (self.curve(setting, method, "round") for method in methods)
        return sorted({int(round_number) for curve in curves if curve is not None for round_number in curve.rounds})

    def curve(self, setting: str, method: str, metric: str) -> Curve | None:
        """A metric for all seeds, in the rounds that each of them has.

        Args:
            setting: The setting.
            method: The method.
            metric: The metric.

        Returns:
            The curve; None if there is no such round.
        """
        by_seed: dict[int, dict[int, float]] = {}
        for row in self._of.get((setting, method), ()):
            if metric in row:
                by_seed.setdefault(row["seed"], {})[row["round"]] = row[metric]
        if not by_seed:
            return None
        seeds, rounds = sorted(by_seed), sorted(set.intersection(*(set(values) for values in by_seed.values())))
        if not rounds:
            return None
        values = np.array([[by_seed[seed][round_number] for round_number in rounds] for seed in seeds], float)
        return Curve(np.array(seeds), np.array(rounds), values)

    def only(self, settings: Sequence[str], methods: Sequence[str]) -> "Results":
        """The rows of some settings and methods.

        Args:
            settings: The settings.
            methods: The methods.
        """
        return Results(row for row in self.rows if row["setting"] in settings and row["method"] in methods)

    def save(self, path: Path) -> None:
        """Write all rows as CSV, with six digits; how long things took is left out.

        Args:
            path: The file.
        """
        names = [name for name in dict.fromkeys(name for row in self.rows for name in row) if not name.startswith("seconds/")]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(names)
        for row in self.rows:
            writer.writerow([_text(row[name]) if name in row else "" for name in names])
        write_atomically(path, text.getvalue().encode())

    @classmethod
    def load(cls, path: Path) -> "Results":
        """Read what `save` wrote.

        Args:
            path: The file.
        """
        try:
            with path.open(newline="") as file:
                reader = csv.DictReader(file)
                if not set(KEYS) <= set(reader.fieldnames or ()):
                    raise ValueError(f"its first line must name {', '.join(KEYS)}")
                return cls([_parsed(row) for row in reader])
        except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
            raise SondeError(
                f"{path} is not a table of results ({error}); restore it, or remove it to have it written again"
            ) from None


def _key(row: Row) -> tuple:
    return tuple(row[name] for name in KEYS)


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _parsed(row: dict[str, str]) -> Row:
    whole = ("seed", "round", "transitions")
    number = lambda name, text: int(text) if name in whole else float(text)
    words = {name: row[name] for name in ("setting", "method")}
    rest = {name: number(name, text) for name, text in row.items() if name not in words and text != ""}
    return {**words, **rest}
