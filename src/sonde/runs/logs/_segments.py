"""Time: where samples are lost, late, repeated or out of order, and the stretches of a log without any of that.

With `cut`, samples are taken as exactly dt apart, and a step that differs from dt by more than the jitter begins a new
episode. With `resample`, a stretch lasts until a gap of more than `max_gap` steps, and gets a grid of dt that begins at its
first sample. In both, a sample with the time of the one before it is dropped, and where time goes back a new episode begins.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from sonde._internal.errors import SondeError
from sonde.runs.logs._findings import Finding, Level, count, places
from sonde.runs.logs._format import LogFormat
from sonde.runs.logs._recording import Recording, Track

SAME = 1e-3
"""Share of a step below which two times are the same."""
At = Callable[[np.ndarray], str]
"""at(where): the samples there, in words."""
MOSTLY = 0.5
"""Share of irregular steps above which dt is not the step of a log at all."""


@dataclass(frozen=True)
class Steps:
    """The samples of a track that are used, and the steps between them."""

    kept: np.ndarray
    """Indices of the samples that are used, without repeated ones [m]."""
    lengths: np.ndarray
    """Steps from the sample before each, in units of dt [m]; NaN where the source begins an episode."""
    breaks: np.ndarray
    """Where a new stretch begins [m], the first sample included."""
    repeated: np.ndarray
    """Indices of samples with the time of the one before."""

    def stretches(self) -> Iterator[np.ndarray]:
        """Indices of the samples of each stretch."""
        yield from np.split(self.kept, np.flatnonzero(self.breaks)[1:]) if len(self.kept) else ()


def steps_of(track: Track, dt: float | None, log: LogFormat) -> Steps:
    """Find the steps of a track that do not fit.

    Args:
        track: The track.
        dt: Step of the system in seconds; None if neither it nor a clock is known.
        log: What counts as irregular.
    """
    rows, starts = np.arange(len(track.rows)), track.starts
    if track.times is None or dt is None:
        return Steps(rows, np.full(len(rows), np.nan), starts, rows[:0])
    ahead = np.diff(track.times, prepend=-np.inf) / dt
    repeated = (np.abs(ahead) < SAME) & ~starts
    kept = np.flatnonzero(~repeated)
    lengths = np.diff(track.times[kept], prepend=np.nan) / dt
    lengths[starts[kept]] = np.nan
    if log.irregular == "cut":
        irregular = np.abs(lengths - 1) > log.jitter + SAME
    else:
        irregular = (lengths < 0) | (lengths > log.max_gap + log.jitter)
    return Steps(kept, lengths, starts[kept] | irregular, rows[repeated])


def findings_of(recording: Recording, track: Track, steps: Steps, dt: float, log: LogFormat) -> Iterator[Finding]:
    """Say what was found in the times of a track.

    Args:
        recording: The recording that the track belongs to.
        track: The track.
        steps: Its steps.
        dt: Step of the system in seconds.
        log: What counts as irregular.
    """
    lines = track.rows[steps.kept]
    say = lambda level, text, advice="": Finding(level, recording.source, text, advice)
    topic = f" of {track.name}" if track.name else ""
    at: At = lambda where: places(recording.row, lines[where].tolist()) + topic
    back, gaps = steps.lengths < 0, steps.lengths > 1 + log.jitter + SAME
    early = (steps.lengths >= 0) & (steps.lengths < 1 - log.jitter - SAME)
    inside = np.abs(steps.lengths - 1)[~back & ~gaps & ~early]
    jitter = np.nanmax(inside, initial=0.0, where=np.isfinite(inside))
    if jitter > 0.01:
        yield say("note", f"samples are up to {jitter:.0%} of a step early or late", "resampling takes that into account")
    if len(steps.repeated):
        repeated = places(recording.row, track.rows[steps.repeated].tolist()) + topic
        yield say("warning", f"{repeated} repeat{'s' * (len(steps.repeated) == 1)} the time of the one before", "dropped")
    if back.any():
        yield say("warning", f"time goes back at {at(back)}", "a new episode begins there")
    if log.irregular == "cut":
        _check_mostly(recording, steps, gaps | early, dt, log)
        yield from _cuts(recording, steps, gaps, early, at)
        return
    if gaps.any():
        longest, cut = np.nanmax(steps.lengths[gaps]), gaps & steps.breaks
        text = f"{count(int(gaps.sum()), 'gap')} of up to {longest:.4g} steps before {at(gaps)}"
        if not cut.any():
            yield say("note", text, f"bridged, being at most --max-gap {log.max_gap} steps")
            return
        done = f"a new episode begins after {count(int(cut.sum()), 'gap')} of more than --max-gap {log.max_gap} steps"
        yield say("warning", text, done)


def _cuts(recording: Recording, steps: Steps, gaps: np.ndarray, early: np.ndarray, at: At) -> Iterator[Finding]:
    if gaps.any():
        lost, longest = np.round(steps.lengths[gaps] - 1).sum(), np.nanmax(steps.lengths[gaps])
        text = f"about {count(int(lost), 'sample')} lost or late before {at(gaps)} (the longest gap has {longest:.4g} steps)"
        yield Finding("warning", recording.source, text, "a new episode begins after each gap")
    if early.any():
        text = f"samples come too early at {at(early)} (down to {np.nanmin(steps.lengths[early]):.3g} of a step)"
        yield Finding("warning", recording.source, text, "a new episode begins there; --irregular resample keeps them")


def _check_mostly(recording: Recording, steps: Steps, irregular: np.ndarray, dt: float, log: LogFormat) -> None:
    """Reject a log of which most steps are not dt."""
    known = np.isfinite(steps.lengths)
    if irregular.sum() <= MOSTLY * known.sum():
        return
    median, mean = (float(of(steps.lengths[known])) * dt for of in (np.median, np.mean))
    if abs(mean / dt - 1) <= log.jitter:
        text = f"most steps differ from {dt:.6g} s by more than {log.jitter:.0%}, though not on average"
        advice = "raise --jitter, or add --irregular resample"
    else:
        text = f"samples are {median:.6g} s apart, and the system's step is {dt:.6g} s"
        advice = (
            "give the time between samples as --dt, or log faster" if median > dt else "add --irregular resample, or give --dt"
        )
    raise SondeError(f"{recording.source}: {text}; {advice}")


def check_dt(source: str, dt: float, typical: float | None, world: float | None, log: LogFormat) -> Iterator[Finding]:
    """Compare the step of the system with what is known about it.

    Args:
        source: Where the samples come from.
        dt: The step that is used.
        typical: Average time between samples; None without a clock.
        world: Step of the system's simulator; None if it has none.
        log: How logs are read.
    """
    if world is not None and abs(dt / world - 1) > 0.01:
        raise SondeError(f"log: dt is {dt:.6g} s, and the system's own step is {world:.6g} s; leave out --dt to use that one")
    if typical is None or abs(typical / dt - 1) <= 0.01:
        return
    level: Level = "note" if log.irregular == "resample" else "warning"
    yield Finding(level, source, f"samples are {typical:.6g} s apart, and the system's step is {dt:.6g} s")


def common_stretches(tracks: Sequence[Track], steps: Sequence[Steps]) -> Iterator[tuple[float, float, list[np.ndarray]]]:
    """Intervals in which no track has a gap.

    Args:
        tracks: Tracks with clocks.
        steps: The steps of each.

    Returns:
        First and last time of each interval, and the samples of each track around it.
    """
    intervals = [
        [(times[i[0]], times[i[-1]], i) for i in one.stretches()]
        for times, one in zip([np.asarray(track.times) for track in tracks], steps, strict=True)
    ]
    common = [(low, high, [i]) for low, high, i in intervals[0]]
    for one in intervals[1:]:
        common = [
            (max(low, other_low), min(high, other_high), [*parts, i])
            for low, high, parts in common
            for other_low, other_high, i in one
            if max(low, other_low) < min(high, other_high)
        ]
    yield from common
