"""Clocks: cells as seconds, and what the steps between samples say."""

import datetime
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np

from sonde._internal.errors import SondeError
from sonde.runs.logs._format import NO_TIME
from sonde.runs.logs._recording import LogFile, Track, split_title
from sonde.runs.logs._units import Unit, unit_named

CLOCKS = ("time", "timestamp", "t", "datetime")
"""Titles of columns that are taken for the clock, with a unit or not; in any case, but for t."""
_SUFFIX = re.compile(r"(.*)[_ ](ns|us|ms|s|sec|min)")
NO_CLOCK = "give --time-column with its unit, or --time-column none if rows are one step apart"


@dataclass(frozen=True)
class Clock:
    """The column that holds times."""

    column: str
    """Its name in the source."""
    unit: Unit
    """Unit of its numbers; ISO time stamps have none."""


def clock_of(file: LogFile, given: str | None, used: Collection[str] = ()) -> Clock | None:
    """Find the clock of a table.

    Args:
        file: The source.
        given: The time column as in `LogFormat`.
        used: Columns that are states or actions, so that they are not taken for a clock.

    Returns:
        The clock; None if there is none or none is wanted.
    """
    if given == NO_TIME:
        return None
    titles = file.columns()
    if given is not None:
        name, unit = split_title(given)
        column = file.find(given) or file.find(name)
        if column is None:
            raise file.missing([name])
        return Clock(column, _time_unit(file, column, unit if file.find(given) is None else None))
    for wanted in CLOCKS:
        for title in (title for title in titles if title not in used):
            name, suffix = _bare_clock(title)
            if name == wanted:
                return Clock(title, _time_unit(file, title, suffix))
    return None


def _bare_clock(title: str) -> tuple[str, str | None]:
    bare = split_title(title)[0]
    name = bare if len(bare) == 1 else bare.lower().replace("time stamp", "timestamp")  # T is a temperature
    found = _SUFFIX.fullmatch(name)
    return (found[1], found[2]) if found else (name, None)


def _time_unit(file: LogFile, column: str, given: str | None) -> Unit:
    text = given or file.columns()[column] or split_title(column)[1] or _bare_clock(column)[1] or "s"
    unit = unit_named(text)
    if unit is None or unit.base != "s":
        raise SondeError(
            f"{file.source}: the clock {column!r} has the unit [{text}]; expected one of time, such as [ms] or [s]"
        )
    return unit


def clock_parser(cell: str, unit: Unit, number: Callable[[str], float]) -> Callable[[str], float]:
    """How the cells of a clock become seconds.

    Args:
        cell: The first cell.
        unit: Unit of numbers.
        number: Reads a number.

    Returns:
        A function from a cell to seconds; it raises ValueError for what is no time.
    """
    for parser in (lambda text: number(text) * unit.factor, _date, _time_of_day):
        try:
            parser(cell)
        except ValueError:
            continue
        return parser
    raise ValueError(f"expected a number or an ISO time stamp such as 2026-01-31T12:00:00.250, got {cell[:80]!r}")


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def _date(text: str) -> float:
    found = datetime.datetime.fromisoformat(text.strip())
    found = found if found.tzinfo else found.replace(tzinfo=datetime.UTC)
    return (found - _EPOCH) / datetime.timedelta(seconds=1)


def _time_of_day(text: str) -> float:
    found = datetime.time.fromisoformat(text.strip())
    return found.hour * 3600 + found.minute * 60 + found.second + found.microsecond * 1e-6


def typical_step(track: Track) -> float | None:
    """Average time between samples, without lost, repeated and backward ones.

    Args:
        track: The samples.

    Returns:
        Seconds; None without two samples at different times.
    """
    if track.times is None:
        return None
    steps = np.diff(track.times)[~track.starts[1:]]
    forward = steps[steps > 0]
    if not len(forward):
        return None
    # the mean of steps near the median: a clock of milliseconds shows 60 Hz as 16 and 17 ms
    near = forward[np.abs(forward / np.median(forward) - 1) < 0.5]
    return float(f"{np.mean(near):.6g}")  # what clocks resolve: 0.05, not 0.049999999999998934
