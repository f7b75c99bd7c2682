"""From recordings to episodes: states and actions of the system, one step of dt apart.

Rules of resampling: states are interpolated linearly between the two samples around a point of the grid (angles along the
shorter way round); the action of a step is the one that was logged last before the middle of the step, as if it were held.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sonde._internal.errors import SondeError
from sonde._internal.measured import EXTREME
from sonde.runs.logs._columns import Column
from sonde.runs.logs._findings import Finding, count
from sonde.runs.logs._format import POLYNOMIAL, LogFormat
from sonde.runs.logs._recording import Recording, Track, stated_unit
from sonde.runs.logs._segments import SAME, Steps, common_stretches, findings_of, steps_of

TURN = 2 * np.pi


@dataclass(frozen=True)
class Episode:
    """States and actions, one step apart."""

    values: np.ndarray
    """States, then actions [T, dx + du]."""
    rows: np.ndarray
    """Line or number in the source of each value [T, dx + du]; of interpolated ones, that of the sample before."""


@dataclass(frozen=True)
class Plan:
    """Which columns become which states and actions, and how."""

    states: tuple[Column, ...]
    """The states."""
    actions: tuple[Column, ...]
    """The actions."""
    log: LogFormat
    """How the log is read."""
    dt: float | None
    """Step of the system in seconds, if it is known."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """States, then actions."""
        return (*self.states, *self.actions)


@dataclass(frozen=True)
class _Samples:
    """One column in units of the system, before functions, factors and offsets."""

    column: Column
    track: Track
    values: np.ndarray
    times: np.ndarray | None
    rows: np.ndarray
    wraps: bool
    """Whether it is an angle that jumps by a turn now and then."""

    def at(self, indices: np.ndarray) -> "_Samples":
        """Those of a stretch."""
        times = None if self.times is None else self.times[indices]
        return replace(self, values=self.values[indices], times=times, rows=self.rows[indices])


def episodes_of(recording: Recording, plan: Plan) -> tuple[list[Episode], list[Finding]]:
    """Bring a recording into episodes.

    Args:
        recording: The recording; its tracks hold all columns of the plan.
        plan: What becomes what.

    Returns:
        The episodes, and what was noticed about time.
    """
    used = {id(track): track for track in (recording.track_of(column.source) for column in plan.columns)}
    tracks = list(used.values())
    _check_clock(recording, tracks, plan)
    steps = [steps_of(track, plan.dt, plan.log) for track in tracks]
    findings = [
        finding
        for track, one in zip(tracks, steps, strict=True)
        if track.times is not None and plan.dt is not None
        for finding in findings_of(recording, track, one, plan.dt, plan.log)
    ]
    whole = _resampled if plan.log.irregular == "resample" else _as_sampled
    found = [episode for episode in whole(recording, tracks, steps, plan) if len(episode.values) > 1]
    if any(column.function == "d/dt" for column in plan.states):
        window = plan.log.velocity_window
        kept = [_with_velocities(episode, plan) for episode in found if len(episode.values) >= window]
        if len(kept) < len(found):
            text = f"{count(len(found) - len(kept), 'episode')} shorter than the {window} samples of a velocity left out"
            findings.append(Finding("warning", recording.source, text, "a shorter --velocity-window keeps more"))
        found = kept
    return found, findings


def evaluated(recording: Recording, columns: Sequence[Column]) -> tuple[np.ndarray, np.ndarray]:
    """Columns of a table row by row, whatever its times are.

    Args:
        recording: The table.
        columns: The columns, in the order of the result.

    Returns:
        Values and numbers of their rows, both [n, columns].
    """
    samples = [_samples(recording, column) for column in columns]
    values = [_smooth(recording, one, None) for one in samples]
    return np.stack(values, axis=1), np.stack([one.rows for one in samples], axis=1)


def _check_clock(recording: Recording, tracks: Sequence[Track], plan: Plan) -> None:
    timeless = any(track.times is None for track in tracks)
    if len(tracks) > 1 and (plan.log.irregular != "resample" or timeless):
        raise SondeError(
            f"{recording.source}: states and actions are sampled at different times (in {len(tracks)} topics); add --irregular "
            "resample and --dt to bring them to one step"
        )
    if plan.log.irregular == "resample" and timeless:
        raise SondeError(f"{recording.source}: resampling needs a clock; name it with --time-column, or leave --irregular out")
    if plan.log.irregular == "resample" and plan.dt is None:
        raise SondeError(f"{recording.source}: it has no two samples to resample between; give a longer log")
    if plan.dt is None and any(column.function == "d/dt" for column in plan.states):
        raise SondeError(f"{recording.source}: velocities need the time between samples; give --dt or --time-column")


# Stretches


def _as_sampled(recording: Recording, tracks: Sequence[Track], steps: Sequence[Steps], plan: Plan) -> Iterator[Episode]:
    columns = [_samples(recording, column) for column in plan.columns]
    for indices in steps[0].stretches():
        samples = [column.at(indices) for column in columns]
        values = [_smooth(recording, one, None) for one in samples]
        yield Episode(np.stack(values, axis=1), np.stack([one.rows for one in samples], axis=1))


def _resampled(recording: Recording, tracks: Sequence[Track], steps: Sequence[Steps], plan: Plan) -> Iterator[Episode]:
    assert plan.dt is not None
    columns = [_samples(recording, column) for column in plan.columns]
    for low, high, parts in common_stretches(tracks, steps):
        grid = low + plan.dt * np.arange(int((high - low) / plan.dt + SAME) + 1)
        values, rows = list[np.ndarray](), list[np.ndarray]()
        for number, column in enumerate(columns):
            samples = column.at(next(part for part, track in zip(parts, tracks, strict=True) if track is column.track))
            held = number >= len(plan.states)
            before = _last_before(samples, grid + plan.dt * (0.5 if held else SAME))
            values.append(_scaled(samples, samples.values[before]) if held else _smooth(recording, samples, grid, before))
            rows.append(samples.rows[before])
        yield Episode(np.stack(values, axis=1), np.stack(rows, axis=1))


def _last_before(samples: _Samples, moments: np.ndarray) -> np.ndarray:
    """Index of the last sample at or before each moment; the first sample before that."""
    assert samples.times is not None
    return np.clip(np.searchsorted(samples.times, moments, side="right") - 1, 0, None)


def _samples(recording: Recording, column: Column) -> _Samples:
    track = recording.track_of(column.source)
    raw = track.columns[column.source]
    if column.limits is not None:
        low, high = column.limits
        return _Samples(column, track, (raw - (low + high) / 2) / ((high - low) / 2), track.times, track.rows, False)
    unit = column.unit or stated_unit(recording, column.source)
    values = raw if unit is None else raw * unit.factor
    is_angle = column.function in ("cos", "sin") or (unit is not None and unit.is_angle)
    finite = values[np.isfinite(values)]
    # an encoder that counts turns does not wrap, and may pass half a turn from one sample to the next
    within = not len(finite) or bool(finite.max() - finite.min() <= TURN * (1 + SAME))
    return _Samples(column, track, values, track.times, track.rows, column.function == "unwrap" or (is_angle and within))


def _scaled(samples: _Samples, values: np.ndarray) -> np.ndarray:
    return values * samples.column.factor + samples.column.offset


def _smooth(recording: Recording, samples: _Samples, grid: np.ndarray | None, before: np.ndarray | None = None) -> np.ndarray:
    """A column at the points of a grid, or where it was sampled; d/dt is taken later, of whole episodes."""
    column, values = samples.column, samples.values
    if grid is None and column.function is None:
        return _scaled(samples, values)
    _check_finite(recording, samples)
    turned = np.unwrap(values) if samples.wraps else values
    found = turned if grid is None else np.interp(grid, np.asarray(samples.times), turned)
    if column.function in ("cos", "sin"):
        found = np.cos(found) if column.function == "cos" else np.sin(found)
    elif column.function is None and before is not None:
        found = found - (turned - values)[before]  # within the turn in which it was logged
    return found if column.function == "d/dt" else _scaled(samples, found)


def _check_finite(recording: Recording, samples: _Samples) -> None:
    bad = np.flatnonzero(~(np.abs(samples.values) <= EXTREME))
    if len(bad):
        value = samples.values[bad[0]]
        empty = " (an empty cell counts as nan)" if recording.row == "line" and np.isnan(value) else ""
        raise SondeError(
            f"{recording.source}: {recording.row} {samples.rows[bad[0]]}, column {samples.column.source!r}{empty}: expected a "
            f"finite number, got {value:.6g}; repair or drop that row"
        )


def _with_velocities(episode: Episode, plan: Plan) -> Episode:
    """The slope of a cubic polynomial through the samples around each; at the ends, through the first or last of them."""
    from scipy.signal import savgol_filter  # not above: it takes longer to import than most logs to read

    values = episode.values.copy()
    for number, column in enumerate(plan.states):
        if column.function == "d/dt":
            slope = savgol_filter(values[:, number], plan.log.velocity_window, POLYNOMIAL, deriv=1, delta=plan.dt)
            values[:, number] = slope * column.factor + column.offset
    return Episode(values, episode.rows)
