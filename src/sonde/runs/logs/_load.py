"""From sources to transitions of a system."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from sonde._internal.errors import SondeError, did_you_mean
from sonde.data import Trajectory
from sonde.runs._measurements import EPISODE, LARGEST, MINARI, checked, csv_columns, quoted, read_npz, sizes_of, too_large
from sonde.runs._minari import read_minari
from sonde.runs._saved import MEASURED
from sonde.runs.logs._clock import typical_step
from sonde.runs.logs._columns import Column, columns_of
from sonde.runs.logs._episodes import Plan, episodes_of, evaluated
from sonde.runs.logs._findings import Finding
from sonde.runs.logs._format import NO_TIME, LogFormat
from sonde.runs.logs._open import open_log
from sonde.runs.logs._recording import LogFile, Recording, stated_unit
from sonde.runs.logs._segments import check_dt
from sonde.runs.logs._units import unit_named
from sonde.worlds import World


@dataclass(frozen=True)
class Opened:
    """A source that has been read, before its times are looked at."""

    states: tuple[Column, ...]
    """Where the states come from."""
    actions: tuple[Column, ...]
    """Where the actions come from."""
    nexts: tuple[Column, ...]
    """Where the next states come from; none if rows follow each other."""
    recording: Recording
    """What was read."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """States, then actions."""
        return (*self.states, *self.actions)

    @property
    def step(self) -> float | None:
        """Average time between samples of the first state, in seconds; None without a clock."""
        return typical_step(self.recording.track_of(self.states[0].source))


@dataclass(frozen=True)
class Loaded:
    """What one source gives."""

    source: str
    """The file or dataset."""
    measured: Trajectory
    """Transitions [N, ...]."""
    opened: Opened | None = None
    """What they were made of; None for files that hold transitions as arrays."""
    findings: tuple[Finding, ...] = ()
    """What was noticed."""

    @property
    def episodes(self) -> int:
        """Unbroken stretches: each row begins in the state that the one before it led to."""
        return 1 + int((self.measured.next_states[:-1] != self.measured.states[1:]).any(axis=1).sum())


def load(sources: Sequence[str], world: World, log: LogFormat) -> list[Loaded]:
    """Read sources.

    Args:
        sources: Files, folders and Minari datasets, without patterns.
        world: The system that was measured.
        log: How they are read.
    """
    found = [open_source(source, world, log) for source in sources]
    dt = step_of(found, world, log)
    loaded = [one if isinstance(one, Loaded) else transitions_of(one, world, log, dt) for one in found]
    total = sum(len(one.measured.states) for one in loaded)
    if total > LARGEST:
        raise too_large("data", f"{total:,} in {len(loaded)} sources")
    return loaded


def open_source(source: str, world: World, log: LogFormat) -> Opened | Loaded:
    """Read a source; those that hold transitions as arrays are done then.

    Args:
        source: A file, a folder or a Minari dataset.
        world: The system that was measured.
        log: How it is read.
    """
    _check_names(world, log)
    return _transitions_as_arrays(source, world, log) or _opened(open_log(source, log), world, log)


def step_of(found: Sequence[Opened | Loaded], world: World, log: LogFormat) -> float | None:
    """The step of the system in seconds: as given, as simulated, as a dataset states it, or as it was sampled.

    Args:
        found: All sources.
        world: The system that was measured.
        log: How they are read.
    """
    opened = [one for one in found if isinstance(one, Opened)]
    stated = [one.recording.dt for one in opened if one.recording.dt is not None]
    steps = [one.step for one in opened if one.step is not None]
    median = float(np.median(steps)) if steps else None
    return log.dt or world.seconds_per_step or (stated[0] if stated else median)


def _check_names(world: World, log: LogFormat) -> None:
    """Whether a column map speaks of this system."""
    known = (*world.state_names, *world.action_names)
    for name, column in columns_of(log.columns).items():
        if name not in known:
            raise SondeError(
                f"columns: the system has no {name!r};{did_you_mean(name, known)} its states are {quoted(world.state_names)}, "
                f"its actions {quoted(world.action_names)}"
            )
        if name in world.action_names and column.function is not None:
            raise SondeError(f"columns: {name!r} is an action, which is logged and not computed; leave out {column.function}")
        if name not in world.action_names and column.limits is not None:
            raise SondeError(
                f"columns: {name!r} is a state; a range LOW..HIGH is for actions, a state takes a unit or a factor"
            )


def _transitions_as_arrays(source: str, world: World, log: LogFormat) -> Loaded | None:
    """Files that hold transitions, with the next state of each."""
    if source.startswith(MINARI):
        _reject_columns(source, log)
        return Loaded(source, read_minari(source.removeprefix(MINARI), world))
    path = Path(source).expanduser()
    if path.suffix.lower() != ".npz" or not path.is_file() or log.columns:
        return None
    if set(MEASURED) & sizes_of(path).keys():
        return Loaded(source, read_npz(path, world))
    return None


def _reject_columns(source: str, log: LogFormat) -> None:
    if log.columns:
        raise SondeError(f"{source}: a Minari dataset has arrays of states and actions, in their order; leave out --columns")


# Columns


def _opened(file: LogFile, world: World, log: LogFormat) -> Opened:
    if not log.columns and file.roles() is None:
        csv_columns(world)  # names must tell columns apart
    roles = file.roles() or ((), ())
    missing = list[str]()
    states, actions = (
        tuple(_resolved(file, names, places, log, missing))
        for names, places in zip((world.state_names, world.action_names), roles, strict=True)
    )
    nexts = () if missing else _next_columns(file, states)
    if missing:
        raise file.missing(missing)
    sources = list(dict.fromkeys(column.source for column in (*states, *actions, *nexts)))
    recording = file.read(sources, NO_TIME if nexts else log.time_column)
    if not nexts and log.time_column != NO_TIME:
        _check_order(file, recording, states)
    return Opened(states, actions, nexts, recording)


def _resolved(
    file: LogFile, names: Sequence[str], places: Sequence[str], log: LogFormat, missing: list[str]
) -> Iterator[Column]:
    """Where each state or action is in a file; those that are not there are added to `missing`."""
    given, default = columns_of(log.columns), dict(zip(names, places, strict=True)) if len(names) == len(places) else {}
    for name in names:
        column = given.get(name) or Column(name, default.get(name, name))
        source = file.find(column.source)
        missing.extend([] if source else [column.source])
        yield replace(column, source=source or column.source)


def _next_columns(file: LogFile, states: Sequence[Column]) -> tuple[Column, ...]:
    """Columns of next states, if the file has them."""
    if any(column.function == "d/dt" for column in states):
        return ()
    found = [file.find(f"next {column.source}") or file.find(f"next {column.name}") for column in states]
    if not any(found):
        return ()
    if lacking := [f"next {column.source}" for column, source in zip(states, found, strict=True) if source is None]:
        raise file.missing(lacking)
    return tuple(replace(column, source=str(source)) for column, source in zip(states, found, strict=True))


def _check_order(file: LogFile, recording: Recording, states: Sequence[Column]) -> None:
    """Reject a table of which nothing says that its rows follow each other."""
    if all(track.times is None and track.begins is None for track in recording.tracks):
        nexts = list(dict.fromkeys(f"next {column.source}" for column in states))
        timed = [title for title, text in file.columns().items() if (unit := unit_named(text or "")) and unit.base == "s"]
        clock = f" (is it {quoted(timed)}?)" if timed else ""
        raise SondeError(
            f"{file.source}: there is no clock, so nothing says that rows follow each other: name it with --time-column{clock}"
            f"; or say --time-column none if all rows are one step apart; or add a column {EPISODE!r}, or next states as "
            f"{quoted(nexts)}"
        )


# Transitions


def transitions_of(opened: Opened, world: World, log: LogFormat, dt: float | None) -> Loaded:
    """Turn what was read into transitions.

    Args:
        opened: What was read.
        world: The system that was measured.
        log: How it is read.
        dt: Step of the system in seconds; None if it is not known.
    """
    recording, findings = opened.recording, list(_of_units(opened))
    if opened.nexts:
        values, rows = evaluated(recording, (*opened.columns, *opened.nexts))
        parts, lines = _split(values, world), _split(rows, world)
    else:
        if dt is not None:
            findings += check_dt(recording.source, dt, opened.step, world.seconds_per_step, log)
        episodes, found = episodes_of(recording, Plan(opened.states, opened.actions, log, dt))
        findings += found
        if not episodes:
            raise SondeError("; ".join([f"{recording.source}: it has no transitions", *(one.text for one in findings)]))
        parts, lines = _followed([one.values for one in episodes], world), _followed([one.rows for one in episodes], world)
    groups = (opened.states, opened.actions, opened.nexts or opened.states)
    titles = {name: [column.source for column in columns] for name, columns in zip(MEASURED, groups, strict=True)}

    def place(name: str, row: int, column: int) -> str:
        where = f"{recording.row} {lines[name][row, column]}, column {titles[name][column]!r}"
        empty = recording.row == "line" and np.isnan(parts[name][row, column])
        return f"{where} (an empty cell counts as nan)" if empty else where

    return Loaded(recording.source, checked(recording.source, parts, world, place), opened, tuple(findings))


def _split(values: np.ndarray, world: World) -> dict[str, np.ndarray]:
    at = [world.state_dim, world.state_dim + world.action_dim]
    return dict(zip(MEASURED, np.split(values, at, axis=1), strict=True))


def _followed(episodes: Sequence[np.ndarray], world: World) -> dict[str, np.ndarray]:
    """Transitions from rows that follow each other: of the last one of each episode only the state counts."""
    dx = world.state_dim
    return {
        "states": np.concatenate([values[:-1, :dx] for values in episodes]),
        "actions": np.concatenate([values[:-1, dx:] for values in episodes]),
        "next_states": np.concatenate([values[1:, :dx] for values in episodes]),
    }


def _of_units(opened: Opened) -> Iterator[Finding]:
    recording = opened.recording
    for column in opened.columns:
        text, stated = recording.units.get(column.source), stated_unit(recording, column.source)
        if text is not None and stated is None and column.unit is None and column.limits is None:
            advice = f"values are taken as they are; give another one, or a factor, with --columns {column.name!r}=..."
            yield Finding("note", recording.source, f"the unit [{text}] of {column.source!r} is not known", advice)
        if (
            stated is not None
            and column.unit is not None
            and (stated.base, stated.factor) != (column.unit.base, column.unit.factor)
        ):
            differ = f"the unit of {column.source!r} is [{text}] in the log and [{column.unit.name}] in the column map"
            yield Finding("warning", recording.source, differ, "the column map counts")
