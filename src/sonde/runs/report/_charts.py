"""Line charts as SVG: a line and a band for each subject, readable without the page's script, which adds hover and choices."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sonde.runs.report._html import Markup, cell, details, interval, number, table, tag, tick_text

WIDTH, HEIGHT = 380, 236
LEFT, RIGHT, TOP, BOTTOM = 54, 14, 12, 34
"""Margins around the plot, in which labels are."""
MAX_POINTS = 400
"""Most points of a line; longer runs are thinned out."""
DASHES = ("", "7 4", "2 3", "9 3 2 3")
"""Line styles, which tell lines apart in print."""


@dataclass(frozen=True)
class Line:
    """A metric of one subject over rounds."""

    number: int
    """Number of the subject."""
    name: str
    x: np.ndarray
    """Rounds [n]."""
    y: np.ndarray
    """Means over seeds [n]."""
    low: np.ndarray
    """Lower end of the band [n]; NaN without one."""
    high: np.ndarray
    """Upper end of the band [n]."""
    seeds: Sequence[np.ndarray] = ()
    """Values of each seed, as points [m, 2]."""


@dataclass(frozen=True)
class LineChart:
    """What a chart of lines shows."""

    identifier: str
    """Its id on the page."""
    title: str
    unit: str
    meaning: str
    """What the numbers mean, in one sentence."""
    lines: Sequence[Line]
    log: bool = False
    references: Sequence[tuple[float, str]] = field(default_factory=tuple)
    """Horizontal lines, with their labels."""
    x_title: str = "round"
    band: str = "± 2 standard errors"
    """What the band is."""


def identifier(key: str) -> str:
    """The key of a metric as part of an id; different keys stay different.

    Args:
        key: The key.
    """
    return "".join(letter if letter.isalnum() or letter == "_" else f"-{ord(letter):x}-" for letter in key)


class Axis:
    """A linear or logarithmic axis from values to pixels."""

    def __init__(self, low: float | int, high: float | int, pixels: tuple[float | int, float | int], log: bool = False):
        """Fix the axis.

        Args:
            low: Value at the first pixel.
            high: Value at the last pixel.
            pixels: Where it begins and ends.
            log: Whether it is logarithmic.
        """
        self.log = log
        self.low, self.high = (math.log10(low), math.log10(high)) if log else (low, high)
        self.pixels = pixels

    def __call__(self, value: float | int) -> float:
        """The pixel of a value.

        Args:
            value: The value.
        """
        place = (math.log10(value) if self.log else value) - self.low
        return round(self.pixels[0] + place / (self.high - self.low) * (self.pixels[1] - self.pixels[0]), 1)

    def ticks(self, count: int = 5) -> list[float]:
        """Round values along the axis.

        Args:
            count: About how many.
        """
        if not self.log:
            return nice_ticks(self.low, self.high, count)
        decades = range(math.floor(self.low), math.ceil(self.high) + 1)
        for steps in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 8)):
            inside = [step * 10.0**decade for decade in decades for step in steps]
            inside = [tick for tick in inside if self.low - 1e-9 <= math.log10(tick) <= self.high + 1e-9]
            if len(inside) >= 3:
                return inside[:: -(-len(inside) // (count + 2))]
        return nice_ticks(10**self.low, 10**self.high, count)


def nice_ticks(low: float | int, high: float | int, count: int = 5) -> list[float]:
    """Multiples of 1, 2, 2.5 or 5 times a power of ten within limits.

    Args:
        low: Lower limit.
        high: Upper limit.
        count: About how many.
    """
    raw = (high - low) / max(count, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [0.0 if i == 0 else float(f"{i * step:.10g}") for i in range(first, last + 1)]


def limits(chart: LineChart) -> tuple[float, float, bool]:
    """Limits of a chart's values, and whether its axis is logarithmic.

    Args:
        chart: The chart.
    """
    every = np.concatenate([part for line in chart.lines for part in (line.y, line.low, line.high)])
    every = np.concatenate([every[np.isfinite(every)], [value for value, _ in chart.references]])
    means = np.concatenate([line.y for line in chart.lines])
    log = chart.log and bool((means > 0).any())
    if log:  # a band may reach zero: the axis goes down to a third of the mean for it
        positive = means[means > 0]
        low, high = max(every.min(), positive.min() / 3), every.max()
        margin = 1.05 * (high / low) ** 0.05
        return float(low / margin), float(high * margin), True
    low, high = float(every.min()), float(every.max())
    least = 0.02 * max(abs(low), abs(high)) or 1.0  # do not magnify a negligible difference
    half = 0.55 * max(high - low, least)
    return (low + high) / 2 - half, (low + high) / 2 + half, False


def draw(chart: LineChart) -> Markup:
    """A chart as a figure, with its numbers as a table below.

    Args:
        chart: What it shows.
    """
    low, high, log = limits(chart)
    rounds = np.concatenate([line.x for line in chart.lines])
    first, last = float(rounds.min()), float(rounds.max())
    pad = 0.03 * (last - first) if last > first else 0.5
    x = Axis(first - pad, last + pad, (LEFT, WIDTH - RIGHT))
    y = Axis(low, high, (HEIGHT - BOTTOM, TOP), log)
    parts = [_frame(chart, x, y), *(_reference(i, each, y) for i, each in enumerate(chart.references))]
    parts += [_line(line, x, y) for line in chart.lines]
    described = summary(chart)
    picture = tag(
        "svg",
        tag("title", f"{chart.title} [{chart.unit}] over {chart.x_title}s"),
        tag("desc", described),
        *parts,
        tag("g", class_="cursor"),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        tabindex=0,
        aria_label=f"{chart.title}: {described}",
        data_chart=chart.identifier,
    )
    unit = ", ".join(filter(None, (chart.unit, "log scale" if log else "")))
    heading = tag("figcaption", tag("h3", chart.title), tag("span", unit, class_="unit"))
    return tag("figure", heading, picture, _numbers(chart), class_="chart", id=f"chart-{chart.identifier}")


def chart_data(chart: LineChart) -> dict[str, Any]:
    """What the page's script needs for hover.

    Args:
        chart: The chart.
    """
    low, high, log = limits(chart)
    y, shown = Axis(low, high, (HEIGHT - BOTTOM, TOP), log), lambda value: not log or value > 0
    rounds = np.concatenate([line.x for line in chart.lines])
    first, last = float(rounds.min()), float(rounds.max())
    pad = 0.03 * (last - first) if last > first else 0.5
    x = Axis(first - pad, last + pad, (LEFT, WIDTH - RIGHT))
    lines = []
    for line in map(_thinned, chart.lines):
        text = [_value_text(*values) for values in zip(line.y, line.low, line.high, strict=True)]
        places = [y(value) if shown(value) else None for value in line.y.tolist()]
        lines.append({"s": line.number, "n": line.name, "x": line.x.tolist(), "y": places, "t": text})
    return {
        "title": chart.title,
        "xt": chart.x_title,
        "px": {int(value): x(float(value)) for value in sorted(set(rounds.tolist()))},
        "lines": lines,
        "box": [LEFT, TOP, WIDTH - RIGHT, HEIGHT - BOTTOM],
    }


def summary(chart: LineChart) -> str:
    """What a chart shows, in words.

    Args:
        chart: The chart.
    """
    said = []
    for line in chart.lines:
        if len(line.x) == 1:
            said.append(f"{line.name}: {number(float(line.y[0]))} in {chart.x_title} {int(line.x[0])}")
        else:
            ends = f"{number(float(line.y[0]))} in {chart.x_title} {int(line.x[0])}"
            said.append(f"{line.name}: from {ends} to {number(float(line.y[-1]))} in {chart.x_title} {int(line.x[-1])}")
    return "; ".join(said) + "."


def _frame(chart: LineChart, x: Axis, y: Axis) -> Markup:
    """Grid, axes and their labels."""
    parts = []
    for tick in y.ticks():
        at = y(tick)
        parts.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=at, y2=at, class_="grid"))
        parts.append(tag("text", tick_text(tick), x=LEFT - 7, y=at + 4, class_="tick end"))
    for tick in x.ticks(6):
        if tick == int(tick) and x.low <= tick <= x.high:
            at = x(tick)
            parts.append(tag("line", x1=at, x2=at, y1=HEIGHT - BOTTOM, y2=HEIGHT - BOTTOM + 4, class_="axis"))
            parts.append(tag("text", f"{tick:.0f}", x=at, y=HEIGHT - BOTTOM + 17, class_="tick middle"))
    parts.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=HEIGHT - BOTTOM, y2=HEIGHT - BOTTOM, class_="axis"))
    parts.append(tag("text", chart.x_title, x=(LEFT + WIDTH - RIGHT) / 2, y=HEIGHT - 3, class_="tick middle"))
    return tag("g", *parts, class_="frame")


def _reference(place: int, reference: tuple[float, str], y: Axis) -> Markup:
    """A horizontal line with its label, at the left and right end in turn."""
    at = y(reference[0])
    line = tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=at, y2=at)
    x, end = (WIDTH - RIGHT - 2, "tick end") if place % 2 == 0 else (LEFT + 4, "tick")
    return tag("g", line, tag("text", reference[1], x=x, y=at - 4, class_=end), class_="reference")


def _line(line: Line, x: Axis, y: Axis) -> Markup:
    """Band, seeds, line and markers of one subject."""
    line, bottom = _thinned(line), 10**y.low if y.log else y.low
    shown = [(float(a), float(b)) for a, b in zip(line.x, line.y, strict=True) if np.isfinite(b) and (b > 0 or not y.log)]
    parts, inside = [], lambda value: min(max(value, bottom), 10**y.high if y.log else y.high)
    band = [(float(a), float(lo), float(hi)) for a, lo, hi in zip(line.x, line.low, line.high, strict=True) if lo < hi]
    if band:
        upper = [f"{x(a)},{y(inside(hi))}" for a, _, hi in band]
        lower = [f"{x(a)},{y(inside(lo))}" for a, lo, _ in reversed(band)]
        parts.append(tag("path", d=f"M{' L'.join(upper + lower)} Z", class_="band"))
    if len(line.seeds) > 1:
        each = [f"M{' L'.join(f'{x(a)},{y(inside(b))}' for a, b in points.tolist())}" for points in line.seeds if len(points)]
        parts.append(tag("path", d=" ".join(each), class_="seeds"))
    if len(shown) > 1:
        path = f"M{' L'.join(f'{x(a)},{y(b)}' for a, b in shown)}"
        parts.append(tag("path", d=path, class_="line", stroke_dasharray=DASHES[line.number % len(DASHES)] or None))
    for i, (a, b) in enumerate(shown):
        if len(shown) <= 30 or i in (0, len(shown) - 1):
            title = tag("title", f"{line.name}, round {a:.0f}: {number(b)}")
            parts.append(tag("circle", title, cx=x(a), cy=y(b), r=2.6, class_="dot"))
    return tag("g", *parts, class_=f"s s{line.number}")


def _thinned(line: Line) -> Line:
    """At most `MAX_POINTS` points, the last one among them."""
    if len(line.x) <= MAX_POINTS:
        return line
    kept = np.unique(np.linspace(0, len(line.x) - 1, MAX_POINTS).round().astype(int))
    return Line(line.number, line.name, line.x[kept], line.y[kept], line.low[kept], line.high[kept])


def _value_text(mean: float, low: float, high: float) -> str:
    known = np.isfinite(low) and np.isfinite(high)
    return f"{number(mean)} [{interval(low, high)}]" if known else number(mean)


def _numbers(chart: LineChart) -> Markup:
    """The meaning of a chart and its numbers."""
    lines = [_thinned(line) for line in chart.lines]
    rows = []
    for value in sorted({int(each) for line in lines for each in line.x}):
        cells: list[Any] = [value]
        for line in lines:
            at = np.flatnonzero(line.x == value)
            known = len(at) > 0
            mean, low, high = (float(part[at[0]]) if known else math.nan for part in (line.y, line.low, line.high))
            cells.append(cell(mean, _value_text(mean, low, high), class_=f"s{line.number}"))
        rows.append(cells)
    thin = (
        f" Longer runs are thinned out to {MAX_POINTS} rounds." if any(len(line.x) > MAX_POINTS for line in chart.lines) else ""
    )
    banded = any(np.isfinite(line.low).any() for line in chart.lines)
    note = f"{chart.meaning}{f' Mean over seeds [{chart.band}].' if banded else ''}{thin}"
    shown = table([chart.x_title, *(line.name for line in lines)], rows, f"{chart.title}, {chart.unit or 'no unit'}")
    return details("Meaning and values", tag("p", note), shown)
