"""Sections about the model: visited states over its uncertainty, its errors by dimension, and its calibration."""

from collections.abc import Sequence

import numpy as np

from sonde.models._calibration import LEVELS
from sonde.runs.report import _states
from sonde.runs.report._charts import Axis
from sonde.runs.report._content import Content, Section
from sonde.runs.report._curves import OF_CALIBRATION, charts, metric_chart
from sonde.runs.report._html import Markup, cell, details, joined, number, paragraphs, table, tag

BAR = 150
"""Pixels of the longest bar of an error."""


def states(content: Content) -> Section | None:
    """Visited states of each subject, over what its model still does not know; None where states have one dimension only.

    Args:
        content: What the page shows.
    """
    found = [(subject, facts.states) for subject, facts in zip(content.subjects, content.facts, strict=True) if facts.states]
    if not found:
        return None
    every = [each for _, each in found]
    limits, scale = _states.shared_limits(every), _states.shared_scale(every)
    rounds = max(int(each.rounds.max()) for each in every)
    figures = []
    for subject, each in found:
        picture = None if scale is None or each.field is None else _states.field_picture(each.field, scale)
        caption = f"Seed {each.seed}, {each.count:,} measurements" + (
            f", {len(each.points):,} of them shown" if each.count > len(each.points) else ""
        )
        heading = tag(
            "figcaption", tag("h3", subject.name, class_=f"s{subject.number} name"), tag("span", caption, class_="unit")
        )
        figures.append(
            tag("figure", heading, _states.draw(each, subject.number, limits, rounds, picture), class_="chart states")
        )
    content.data["states"] = {
        "names": every[0].columns,
        "limits": limits,
        "ticks": _states.axes_of(limits),
        "named": [list(pair) for pair in every[0].ticks],
        "rounds": rounds,
        "runs": {str(subject.number): _states.data_of(each) for subject, each in found},
        "box": [_states.LEFT, _states.TOP, _states.WIDTH - _states.RIGHT, _states.HEIGHT - _states.BOTTOM],
    }
    field = (
        ""
        if scale is None
        else f" The darker the ground, the larger the model's remaining uncertainty there at zero action (norm of the "
        f"epistemic std, logarithmic, from {number(scale[0])} to {number(scale[1])} state units)."
    )
    more = " All runs share axes, colours and this scale." if len(found) > 1 else ""
    text = f"Each point is a measurement, coloured by its round (see the scale).{field}{more}"
    text += " The two coordinates, and what the colours stand for, can be chosen."
    body = joined(
        paragraphs(text),
        tag("div", class_="controls", id="states-controls"),
        _rounds_key(rounds),
        tag("div", *figures, class_="charts wide"),
    )
    return Section("states", "Visited states and remaining uncertainty", body)


def _rounds_key(rounds: int) -> Markup:
    steps = [tag("i", class_=f"r{i}") for i in range(_states.SHADES)]
    ends = tag("span", "round 1", id="key-low"), tag("span", f"round {rounds}", id="key-high")
    return tag("div", ends[0], tag("span", *steps, class_="ramp", aria_hidden="true"), ends[1], class_="key")


def errors(content: Content) -> Section:
    """Errors of each subject's model, by state dimension.

    Args:
        content: What the page shows.
    """
    known = [(subject, facts.errors) for subject, facts in zip(content.subjects, content.facts, strict=True) if facts.errors]
    reasons = dict.fromkeys(facts.no_errors for facts in content.facts if facts.no_errors and not facts.errors)
    if not known:
        return Section(
            "errors", "Model error by state dimension", paragraphs(*(reasons or ["The run has no checkpoint to look at."]))
        )
    names = content.world.state_names
    head, cells = ["state dimension"], [[name] for name in names]
    relative = {subject.number: np.concatenate([each.relative for each in found]) for subject, found in known}
    largest = max((float(x) for share in relative.values() for x in share.mean(axis=0) if np.isfinite(x)), default=0.0)
    for subject, found in known:
        own = "" if content.single else f"{subject.name}: "
        head += [f"{own}error (state units)", f"{own}spread of changes", f"{own}error / spread"]
        rmse, spread = (np.concatenate([getattr(each, part) for each in found]) for part in ("rmse", "spread"))
        for row, i in zip(cells, range(len(names)), strict=True):
            values = rmse[:, i], spread[:, i], relative[subject.number][:, i]
            row += [_mean(values[0]), cell(float(values[1].mean())), _bar(values[2], largest, subject.number)]
    wheres = list(dict.fromkeys(found[0].where for _, found in known))
    where = wheres[0] if len(wheres) == 1 else "; or ".join(wheres)
    several = any(len(found[0].rmse) > 1 or len(found) > 1 for _, found in known)
    band = " Means over seeds, ± two standard errors." if several else ""
    text = (
        f"Root mean square error of the predicted next state, on {where}. Divided by the spread (standard deviation) of the "
        f"changes from one step to the next, it can be compared between dimensions: 1 is no better than always predicting the "
        f"mean change.{band}"
    )
    body = joined(paragraphs(text, *reasons), table(head, cells, "Model error by state dimension"))
    return Section("errors", "Model error by state dimension", body)


def _mean(values: np.ndarray) -> Markup:
    """A mean over seeds, with its band."""
    mean = float(values.mean())
    if len(values) < 2:
        return cell(mean)
    return cell(mean, f"{number(mean)} ± {number(2 * float(values.std(ddof=1)) / len(values) ** 0.5, 2)}")


def _bar(values: np.ndarray, largest: float, subject: int) -> Markup:
    """A ratio with a bar."""
    mean = float(values.mean())
    width = 0.0 if not np.isfinite(mean) or largest <= 0 else BAR * mean / largest
    rect = tag("rect", x=0, y=2, width=round(width, 1), height=8, rx=2)
    bar = tag("svg", rect, viewBox=f"0 0 {BAR} 12", class_=f"bar s{subject}", aria_hidden="true")
    return cell(mean, joined(tag("span", number(mean)), bar), class_="withbar")


def calibration(content: Content) -> Section | None:
    """How often measurements lie inside the model's intervals, and whether it knows where it errs.

    Args:
        content: What the page shows.
    """
    panels = []
    reach = {s.number: np.concatenate([each.coverage for each in f.errors]) for s, f in _both(content) if f.errors}
    if reach:
        wheres = {each.where for facts in content.facts for each in facts.errors}
        where = wheres.pop() if len(wheres) == 1 else "the points of the section above"
        panels.append(_panel(content, "Coverage of intervals", f"On {where}.", {n: (share, "") for n, share in reach.items()}))
    for name, words in (("before", "with the model's own stds"), ("after", "recalibrated (cross-fitted)")):
        held = {s.number: np.concatenate([getattr(each, name) for each in f.held_out]) for s, f in _both(content) if f.held_out}
        if held:
            title, text = (
                f"Held-out measurements, {name} recalibration",
                f"Intervals {words}, on measurements that were held out.",
            )
            panels.append(_panel(content, title, text, {n: (share, "") for n, share in held.items()}))
    over_rounds = [chart for key in OF_CALIBRATION if (chart := metric_chart(content, key))]
    if not panels and not over_rounds:
        return None
    text = (
        "A model is calibrated if its 90 % intervals contain 90 % of the measurements, and likewise at every level. Below the "
        "diagonal the model is too certain, above it too cautious. Overconfidence is measured on each round's new data before "
        "learning from them; the rank correlation says whether the model promised information where it then erred."
    )
    body = joined(paragraphs(text), charts(content, over_rounds, panels))
    return Section("calibration", "Calibration and overconfidence", body)


def _both(content: Content):
    return zip(content.subjects, content.facts, strict=True)


WIDTH = 300


def _panel(content: Content, title: str, text: str, shares: dict[int, tuple[np.ndarray, str]]) -> Markup:
    """Coverage against stated level: a line for each subject, mean over seeds and dimensions."""
    x, y = Axis(0, 1, (46, WIDTH - 20)), Axis(0, 1, (WIDTH - 40, 10))
    parts = [_square(x, y)]
    for number_, (share, _) in shares.items():
        mean = np.nanmean(share, axis=(0, 2))
        places = [(x(float(a)), y(float(b))) for a, b in zip(LEVELS, mean, strict=True)]
        line = tag("path", d=f"M{' L'.join(f'{a},{b}' for a, b in places)}", class_="line")
        name = content.subjects[number_].name
        dots = [
            tag(
                "circle",
                tag("title", f"{name}: {100 * b:.0f} % inside {100 * a:.0f} % intervals"),
                cx=p,
                cy=q,
                r=3,
                class_="dot",
            )
            for (p, q), a, b in zip(places, LEVELS, mean, strict=True)
        ]
        parts.append(tag("g", line, *dots, class_=f"s s{number_}"))
    said = "; ".join(
        f"{content.subjects[n].name}: {100 * float(np.nanmean(share[:, -1])):.0f} % inside the 90 % intervals"
        for n, (share, _) in shares.items()
    )
    size = f"0 0 {WIDTH} {WIDTH}"
    picture = tag(
        "svg", tag("title", title), tag("desc", said), *parts, viewBox=size, role="img", aria_label=f"{title}: {said}"
    )
    heading = tag("figcaption", tag("h3", title), tag("span", "share of measurements inside", class_="unit"))
    return tag("figure", heading, picture, _coverage_numbers(content, text, title, shares), class_="chart square")


def _coverage_numbers(content: Content, text: str, title: str, shares: dict[int, tuple[np.ndarray, str]]) -> Markup:
    """The lines as a table, and the 90 % intervals by dimension."""
    names = [content.subjects[n].name for n in shares]
    percent = lambda value: cell(value, f"{100 * value:.1f} %")
    means: Sequence[np.ndarray] = [np.nanmean(share, axis=(0, 2)) for share, _ in shares.values()]
    rows = [[f"{100 * level:.0f} %", *(percent(float(mean[i])) for mean in means)] for i, level in enumerate(LEVELS)]
    by_level = table(["stated", *names], rows, f"{title}: mean over seeds and dimensions")
    nineties = [np.nanmean(share[:, -1], axis=0) for share, _ in shares.values()]
    rows = [[name, *(percent(float(each[i])) for each in nineties)] for i, name in enumerate(content.world.state_names)]
    by_dimension = table(["state dimension", *names], rows, "Inside 90 % intervals, by dimension")
    return details("Meaning and values", paragraphs(text), by_level, by_dimension)


def _square(x: Axis, y: Axis) -> Markup:
    parts = []
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts.append(tag("line", x1=x(0), x2=x(1), y1=y(tick), y2=y(tick), class_="grid"))
        parts.append(tag("text", f"{100 * tick:.0f} %", x=x(0) - 6, y=y(tick) + 4, class_="tick end"))
        if tick:
            parts.append(tag("text", f"{100 * tick:.0f} %", x=x(tick), y=y(0) + 16, class_="tick middle"))
    parts.append(tag("line", x1=x(0), y1=y(0), x2=x(1), y2=y(1), class_="diagonal"))
    parts.append(tag("text", "stated level", x=(x(0) + x(1)) / 2, y=y(0) + 34, class_="tick middle"))
    return tag("g", *parts, class_="frame")
