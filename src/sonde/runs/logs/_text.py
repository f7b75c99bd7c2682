"""Text files: CSV and its kin, with semicolons or tabs, decimal commas, comments, and units in a second header line."""

import array
import csv
import functools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from sonde._internal.errors import SondeError
from sonde.runs._measurements import EPISODE, LARGEST, LONGEST_LINE, MOST_COLUMNS, quoted, too_large
from sonde.runs.logs._clock import NO_CLOCK, Clock, clock_of, clock_parser
from sonde.runs.logs._format import LogFormat
from sonde.runs.logs._recording import LogFile, Recording, Track, split_title
from sonde.runs.logs._units import unit_named

DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t"}
COMMENT = "#"
_COMMA_NUMBER = re.compile(r"\s*[+-]?\d*,\d+([eE][+-]?\d+)?\s*")


@dataclass(frozen=True)
class Header:
    """What stands above the numbers."""

    titles: tuple[str, ...]
    """Titles of the columns."""
    units: tuple[str | None, ...]
    """Units of the columns, where they are stated."""
    delimiter: str
    """What separates cells."""
    lines: int
    """Lines before the first row."""


@dataclass(frozen=True)
class TextLog(LogFile):
    """A text file with one sample per line."""

    log: LogFormat
    """How it is read."""

    @functools.cached_property
    def header(self) -> Header:
        """Titles, units and delimiter."""
        with _opened(self.path) as file:
            return _header(self.path, file, self.log)

    def columns(self) -> dict[str, str | None]:
        """Titles of the columns, with the units that stand in brackets or in a line of their own."""
        return dict(zip(self.header.titles, self.header.units, strict=True))

    def read(self, columns: Sequence[str], clock: str | None) -> Recording:
        """Read columns of all rows.

        Args:
            columns: Their titles.
            clock: The time column as in `LogFormat`.
        """
        header, titles = self.header, self.header.titles
        time = clock_of(self, clock, columns)
        wanted = [*columns, *([time.column] if time else []), *([EPISODE] if EPISODE in titles else [])]
        twice = sorted({name for name in wanted if titles.count(name) > 1})
        if twice:
            raise SondeError(f"{self.path}: column(s) {quoted(twice)} occur more than once; rename or drop all but one")
        with _opened(self.path) as file:
            rows = _Rows(self, csv.reader(_lines(self.path, file, header.lines), delimiter=header.delimiter, strict=True), time)
            track = rows.read(columns)
        return Recording(self.source, (track,), "line", {name: unit for name, unit in self.columns().items() if unit})

    def number(self, cell: str) -> float:
        """Read a number; an empty cell is NaN.

        Args:
            cell: The cell.
        """
        if self.log.decimal_comma:
            if "." in cell:
                raise ValueError(cell)
            cell = cell.replace(",", ".")
        return float(cell or "nan") if "_" not in cell else float("not a number")


class _Rows:
    """The rows of a text file, as numbers."""

    def __init__(self, file: TextLog, reader: Any, clock: Clock | None):
        self.file, self.reader, self.clock = file, reader, clock
        self.titles = file.header.titles
        self.time_at = None if clock is None else self.titles.index(clock.column)
        self.parse: Callable[[str], float] | None = None

    def read(self, columns: Sequence[str]) -> Track:
        where = [self.titles.index(name) for name in columns]
        numbers, lines, begins, times = array.array("d"), array.array("q"), array.array("b"), array.array("d")
        episode_at, current = self.titles.index(EPISODE) if EPISODE in self.titles else None, None
        for cells in self._cells():
            if len(lines) > LARGEST:
                raise too_large(self.file.source, "more")
            try:
                numbers.extend(map(self.file.number, [cells[i] for i in where]))
            except ValueError:
                raise self._no_number({self.titles[i]: cells[i] for i in where}) from None
            if self.time_at is not None:
                times.append(self._time(cells[self.time_at].strip()))
            lines.append(self._line)
            episode = None if episode_at is None else cells[episode_at]
            begins.append(episode != current)
            current = episode
        table = np.array(numbers).reshape(-1, len(where))
        stamps = None if self.clock is None else np.array(times)
        values = {name: table[:, i] for i, name in enumerate(columns)}
        return Track(values, np.array(lines), stamps, begins=np.array(begins, bool) if episode_at is not None else None)

    @property
    def _line(self) -> int:
        return self.reader.line_num + self.file.header.lines

    def _cells(self) -> Iterator[list[str]]:
        """The cells of each row."""
        place = f"{self.file.path}: line"
        try:
            for cells in self.reader:
                if not cells or cells[0].lstrip().startswith(COMMENT):
                    continue
                if len(cells) != len(self.titles):
                    raise SondeError(f"{place} {self._line} has {len(cells)} cells, the header has {len(self.titles)}")
                yield cells
        except UnicodeDecodeError as error:
            raise _not_text(self.file.path, error) from None
        except csv.Error as error:
            raise SondeError(f"{self.file.path}: line {self._line} cannot be read as CSV ({error})") from None

    def _time(self, cell: str) -> float:
        assert self.clock is not None
        try:
            if self.parse is None:
                self.parse = clock_parser(cell, self.clock.unit, self.file.number)
            time = self.parse(cell)
            if not math.isfinite(time):
                raise ValueError("expected a time, got nan" if cell else "there is no time")
        except ValueError as error:
            place = f"{self.file.path}: line {self._line}, column {self.clock.column!r}"
            raise SondeError(f"{place}: {_comma_hint(cell, self.file.log) or error}; repair the row, or {NO_CLOCK}") from None
        return time

    def _no_number(self, cells: Mapping[str, str]) -> SondeError:
        for name, cell in cells.items():
            try:
                self.file.number(cell)
            except ValueError:
                expected = "-0,25" if self.file.log.decimal_comma else "-0.25"
                hint = _comma_hint(cell, self.file.log) or f"expected a number such as {expected}, got {cell[:80]!r}"
                return SondeError(f"{self.file.path}: line {self._line}, column {name!r}: {hint}; repair or drop the row")
        raise AssertionError("all cells are numbers")


def _comma_hint(cell: str, log: LogFormat) -> str:
    if log.decimal_comma or not _COMMA_NUMBER.fullmatch(cell):
        return ""
    return f"{cell!r} seems to be a number with a decimal comma: add --decimal-comma"


def _opened(path: Path) -> TextIO:
    try:
        return open(path, newline="", encoding="utf-8-sig")
    except OSError as error:
        raise SondeError(f"{path} cannot be read as CSV ({error})") from None


def _not_text(path: Path, error: Exception) -> SondeError:
    return SondeError(f"{path} is not text in UTF-8 ({error}); save it as CSV in UTF-8")


def _lines(path: Path, file: TextIO, skip: int = 0) -> Iterator[str]:
    """The lines of a file, none of which may be so long that it is no row of numbers."""
    number = 0
    while line := file.readline(LONGEST_LINE + 1):
        number += 1
        if len(line) > LONGEST_LINE:
            raise SondeError(f"{path}: a line has more than {LONGEST_LINE:,} characters; expected one row of numbers per line")
        if number > skip:
            yield line


# The header


def _header(path: Path, file: TextIO, log: LogFormat) -> Header:
    comment, number = "", log.skip_lines
    try:
        lines = _lines(path, file, log.skip_lines)
        for line in lines:
            number += 1
            if not line.strip():
                continue
            if not line.lstrip().startswith(COMMENT):
                break
            comment = line.lstrip().lstrip(COMMENT)
        else:
            line = ""
        below = next(lines, "")
    except UnicodeDecodeError as error:
        raise _not_text(path, error) from None
    delimiter = DELIMITERS.get(log.delimiter) or _delimiter(line, log)
    titles = _split(path, line, delimiter, number)
    if comment and all(_is_number(cell, log) for cell in titles):  # numpy.savetxt writes the header as a comment
        above = _split(path, comment, delimiter, number)
        if len(above) == len(titles):
            return _with_units(above, [], delimiter, number - 1)
    if len(titles) > MOST_COLUMNS:
        raise SondeError(f"{path}: expected at most {MOST_COLUMNS:,} columns, got {len(titles):,}; keep those of the system")
    units = _split(path, below, delimiter, number + 1)
    is_units = len(units) == len(titles) and _are_units(units)
    return _with_units(titles, units if is_units else [], delimiter, number + is_units)


def _delimiter(line: str, log: LogFormat) -> str:
    """The most frequent separator outside quotation marks; a comma where there is none."""
    bare = re.sub(r'"[^"]*"', "", line)
    candidates = ";\t" if log.decimal_comma else ",;\t"
    best = max(candidates, key=bare.count)
    return best if bare.count(best) else ","


def _split(path: Path, line: str, delimiter: str, number: int) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line.strip("\r\n")], delimiter=delimiter, strict=True), [])]
    except csv.Error as error:
        raise SondeError(f"{path}: line {number} cannot be read as CSV ({error})") from None


def _is_number(cell: str, log: LogFormat) -> bool:
    try:
        float(cell.replace(",", ".") if log.decimal_comma else cell)
    except ValueError:
        return False
    return True


def _are_units(cells: Sequence[str]) -> bool:
    """Whether a line below the titles holds units: nothing else, and at least one that is known."""
    bare = [cell[1:-1].strip() if cell[:1] + cell[-1:] in ("[]", "()") else cell for cell in cells]
    known = [cell for cell, inner in zip(cells, bare, strict=True) if inner and unit_named(inner) is not None]
    no_number = [cell for cell in cells if cell and re.match(r"[+-]?[\d.,]", cell)]
    return bool(known) and not no_number


def _with_units(titles: Sequence[str], below: Sequence[str], delimiter: str, lines: int) -> Header:
    stripped = [cell.strip("[]() ") or None for cell in below] if below else [None] * len(titles)
    units = [unit or split_title(title)[1] for title, unit in zip(titles, stripped, strict=True)]
    return Header(tuple(titles), tuple(units), delimiter, lines)
