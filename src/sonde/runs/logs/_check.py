"""What a log holds, what would be used of it, and what to do about the rest."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sonde._internal.errors import SondeError
from sonde.runs._measurements import LARGEST, MINARI, too_large
from sonde.runs.logs._columns import Column
from sonde.runs.logs._findings import Finding, count, places
from sonde.runs.logs._format import LogFormat
from sonde.runs.logs._load import Loaded, Opened, open_source, step_of, transitions_of
from sonde.runs.logs._open import expanded, open_log
from sonde.runs.logs._recording import stated_unit
from sonde.runs.logs._system import system_of
from sonde.runs.logs._units import Unit
from sonde.worlds import World

SATURATED = 0.05
"""Share of samples at the very largest or smallest value from which a sensor or an actuator seems to be at its limit."""
FEW = 3
"""Most different values of a signal that switches, of which one or the other is always the largest."""
NARROW = 0.2
"""Largest action below which the limits are probably not those of the actuator."""


@dataclass(frozen=True)
class Channel:
    """A column of a log."""

    column: str
    """Its name there."""
    unit: str | None = None
    """Its unit there, if it is known."""
    used_as: str | None = None
    """The state or action that it is; None if it is not used."""
    becomes: str | None = None
    """What happens to its values: a unit, a range, a function."""
    low: float | None = None
    """Smallest value in the log."""
    high: float | None = None
    """Largest value in the log."""
    empty: int = 0
    """Number of samples without a value."""


@dataclass(frozen=True)
class SourceCheck:
    """What one source holds."""

    source: str
    """The file or dataset."""
    samples: int
    """Number of samples of the first state; of transitions where these are what the source holds."""
    step: float | None
    """Average time between samples, without gaps, in seconds; None without a clock."""
    transitions: int
    """Number of transitions that would be used."""
    episodes: int
    """Unbroken stretches that they are in."""
    channels: tuple[Channel, ...]
    """Its columns; all there are if it is not known which are used."""
    findings: tuple[Finding, ...]
    """What was noticed."""


@dataclass(frozen=True)
class LogCheck:
    """What logs hold, and what would be used of them."""

    states: tuple[str, ...]
    """Names of the system's states; empty if they are not known."""
    actions: tuple[str, ...]
    """Names of its actions."""
    dt: float | None
    """Step of the system in seconds, if it is known."""
    sources: tuple[SourceCheck, ...]
    """The sources, one by one."""

    @property
    def transitions(self) -> int:
        """Number of transitions that would be used."""
        return sum(one.transitions for one in self.sources)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings."""
        return tuple(finding for one in self.sources for finding in one.findings)

    @property
    def usable(self) -> bool:
        """Whether a run can start from these sources: each of them can be read."""
        return self.transitions > 0 and not any(finding.level == "error" for finding in self.findings)


def check_logs(sources: str | Sequence[str], log: LogFormat | None = None, world: World | None = None) -> LogCheck:
    """Find out what logs hold and what would be used of them; faults are findings, not errors.

    Args:
        sources: One or several files, patterns such as `logs/*.csv`, folders, or minari:DATASET.
        log: How they are read.
        world: The system that was measured; by default what the column map or the first source says.

    Returns:
        What was found.
    """
    log, files = log or LogFormat(), expanded(sources)
    try:
        world = world or system_of(log, files)
    except SondeError as error:
        return LogCheck((), (), None, tuple(_unread(source, log, error) for source in files))
    found: dict[str, Opened | Loaded | SondeError] = {}
    for source in files:
        try:
            found[source] = open_source(source, world, log)
        except SondeError as error:
            found[source] = error
    dt = step_of([one for one in found.values() if not isinstance(one, SondeError)], world, log)
    checks = [_checked(source, one, world, log, dt) for source, one in found.items()]
    if (total := sum(one.transitions for one in checks)) > LARGEST:
        finding = Finding("error", files[-1], _without("data", too_large("data", f"{total:,} in all sources")))
        checks[-1] = replace(checks[-1], findings=(*checks[-1].findings, finding))
    return LogCheck(world.state_names, world.action_names, dt, tuple(checks))


def _checked(source: str, found: Opened | Loaded | SondeError, world: World, log: LogFormat, dt: float | None) -> SourceCheck:
    if isinstance(found, SondeError):
        return _unread(source, log, found)
    channels = _channels_of_arrays(found, world) if isinstance(found, Loaded) else tuple(_channels(found))
    try:
        loaded = found if isinstance(found, Loaded) else transitions_of(found, world, log, dt)
    except SondeError as error:
        assert isinstance(found, Opened)
        findings = (Finding("error", source, _without(source, error)), *_hints(found))
        return SourceCheck(source, _samples(found), found.step, 0, 0, channels, findings)
    noticed = (*loaded.findings, *_of_measurements(loaded, world))
    if isinstance(found, Loaded):
        return SourceCheck(
            source, len(loaded.measured.states), None, len(loaded.measured.states), loaded.episodes, channels, noticed
        )
    noticed = (*noticed, *_hints(found), *_of_time(found, loaded, log.irregular))
    return SourceCheck(source, _samples(found), found.step, len(loaded.measured.states), loaded.episodes, channels, noticed)


def _samples(found: Opened) -> int:
    return len(found.recording.track_of(found.states[0].source).rows)


def _unread(source: str, log: LogFormat, error: SondeError) -> SourceCheck:
    """A source of which only the columns can be told, if that."""
    channels: tuple[Channel, ...] = ()
    finding = Finding("error", source, _without(source, error))
    if not source.startswith(MINARI):
        try:
            channels = tuple(Channel(name, unit) for name, unit in open_log(source, log).columns().items())
        except SondeError as other:
            finding = Finding("error", source, _without(source, other))
    return SourceCheck(source, 0, None, 0, 0, channels, (finding,))


def _without(source: str, error: SondeError) -> str:
    """An error's message without the source that it begins with."""
    return str(error).removeprefix(f"{source}: ")


# Columns


def _channels(found: Opened) -> Iterator[Channel]:
    recording = found.recording
    for number, column in enumerate(found.columns):
        values = recording.track_of(column.source).columns[column.source]
        known = values[np.isfinite(values)]
        unit = column.unit or stated_unit(recording, column.source)
        kind = "state" if number < len(found.states) else "action"
        low, high = (float(known.min()), float(known.max())) if len(known) else (None, None)
        text = unit.name if unit else recording.units.get(column.source)
        yield Channel(column.source, text, f"{kind} {column.name}", _becomes(column, unit), low, high, len(values) - len(known))


def _channels_of_arrays(found: Loaded, world: World) -> tuple[Channel, ...]:
    measured = found.measured
    groups = (("state", world.state_names, measured.states), ("action", world.action_names, measured.actions))
    return tuple(
        Channel(name, None, f"{kind} {name}", None, float(values[:, i].min()), float(values[:, i].max()))
        for kind, names, values in groups
        for i, name in enumerate(names)
    )


def _becomes(column: Column, unit: Unit | None) -> str | None:
    """What happens to the values of a column, in words."""
    if column.limits is not None:
        return f"{column.limits[0]:g}..{column.limits[1]:g} to -1..1"
    text = "" if unit is None or unit.factor == 1 else unit.base
    if column.function is not None:
        base = "" if unit is None else f"{unit.base}/s" if column.function == "d/dt" else text
        text = ", ".join(part for part in (column.function, base) if part)
    text += f" * {column.factor:g}" if column.factor != 1 else ""
    text += f" {'+' if column.offset > 0 else '-'} {abs(column.offset):g}" if column.offset else ""
    return text.strip() or None


# Findings


def _of_measurements(loaded: Loaded, world: World) -> Iterator[Finding]:
    """Signals that say little."""
    measured = loaded.measured
    say = lambda level, text, advice: Finding(level, loaded.source, text, advice)
    for name, values in zip(world.state_names, measured.states.T, strict=True):
        if values.min() == values.max():
            yield say(
                "warning", f"the state {name!r} is always {values[0]:.6g}", "nothing can be learned about it; leave it out"
            )
        elif (share := _at_limits(values)) > SATURATED:
            advice = "if the sensor is at its limit there, cut these rows out"
            yield say(
                "warning", f"the state {name!r} is at its largest or smallest value in {share:.0%} of the samples", advice
            )
    for name, values in zip(world.action_names, measured.actions.T, strict=True):
        largest = float(np.abs(values).max())
        if values.min() == values.max():
            advice = "its effect cannot be learned; record a log in which it changes"
            yield say("warning", f"the action {name!r} is always {values[0]:.6g}", advice)
        elif largest < NARROW:
            advice = "if the actuator can do more, give its limits as a range LOW..HIGH"
            yield say("note", f"the action {name!r} only goes up to {largest:.3g} of 1", advice)
        elif (share := float(np.mean(np.abs(values) >= 1 - 1e-9))) > SATURATED:
            yield say("note", f"the action {name!r} is at its limit in {share:.0%} of the samples", "")


def _at_limits(values: np.ndarray) -> float:
    """Share of samples at the largest or smallest value; 0 of a signal that only switches."""
    if len(np.unique(values[:10_000])) <= FEW:
        return 0.0
    return float(np.mean((values == values.max()) | (values == values.min())))


def _hints(found: Opened) -> Iterator[Finding]:
    """What a column map could say better."""
    recording = found.recording
    say = lambda level, text, advice="": Finding(level, recording.source, text, advice)
    for column in found.actions:
        values = recording.track_of(column.source).columns[column.source]
        known = values[np.isfinite(values)]
        unit = column.unit or stated_unit(recording, column.source)
        scaled = known * (1.0 if unit is None else unit.factor) * column.factor + column.offset
        if column.limits is None and len(known) and np.abs(scaled).max() > 1 + 1e-6:
            text = f"the action {column.name!r} goes from {known.min():g} to {known.max():g} in the log, beyond -1..1"
            example = f"--columns '{column.name}={column.source} LOW..HIGH'"
            yield say("note", text, f"give the actuator's limits: {example}")
    derived = {column.source for column in found.states if column.function == "d/dt"}
    for column in found.states:
        track, unit = recording.track_of(column.source), column.unit or stated_unit(recording, column.source)
        if unit is None or unit.base not in ("m", "rad"):
            continue
        values = track.columns[column.source] * unit.factor
        turns = np.flatnonzero(np.abs(np.diff(values)) > np.pi) + 1 if unit.is_angle and column.function is None else ()
        if len(turns):
            text = f"the angle {column.name!r} jumps by about a turn at {places(recording.row, track.rows[turns].tolist())}"
            yield say("warning", text, "use cos(...) and sin(...) of it as states, or unwrap(...)")
        if column.source not in derived and not _has_speed(found):
            text = f"{column.name!r} is a position, and no state is a velocity"
            advice = f"derive one (--columns 'v={_call(column)}'), or explore with --history 2"
            yield say("note", text, advice)


def _has_speed(found: Opened) -> bool:
    units = [column.unit or stated_unit(found.recording, column.source) for column in found.states]
    return any(unit is not None and unit.base in ("m/s", "rad/s") for unit in units) or any(
        column.function == "d/dt" for column in found.states
    )


def _call(column: Column) -> str:
    return f"d/dt({column.source}{f' [{column.unit.name}]' if column.unit else ''})"


def _of_time(found: Opened, loaded: Loaded, irregular: str) -> Iterator[Finding]:
    recording = found.recording
    if found.nexts:
        yield Finding("note", recording.source, "each row has its next state", "no clock is needed")
    elif found.step is None:
        yield Finding("warning", recording.source, "there is no clock", "lost samples cannot be found; --time-column names one")
    left = _samples(found) - len(loaded.measured.states) - loaded.episodes
    if irregular == "cut" and not found.nexts and left > 0:
        yield Finding("note", recording.source, f"{count(left, 'sample')} not used: alone between gaps, or left out above")


def as_json(check: LogCheck) -> dict[str, Any]:
    """A check as what JSON can hold.

    Args:
        check: The check.
    """
    plain = lambda values: {name: value for name, value in vars(values).items() if name not in ("channels", "findings")}
    sources = [
        {
            **plain(one),
            "channels": [vars(channel) for channel in one.channels],
            "findings": [{**vars(finding), "sentence": str(finding)} for finding in one.findings],
        }
        for one in check.sources
    ]
    whole = {"usable": check.usable, "transitions": check.transitions}
    return {**whole, "states": list(check.states), "actions": list(check.actions), "dt": check.dt, "sources": sources}
