"""Sections of charts: the metrics of the schema over rounds, and differences between runs."""

from collections.abc import Sequence

import numpy as np

from sonde.evaluation._schema import DRIFT, INFORMATION_RANK, OVERCONFIDENCE
from sonde.evaluation._stalling import TOO_CERTAIN, UNRELATED
from sonde.models._drift import CHANGED
from sonde.runs.figures._curves import curve
from sonde.runs.report._charts import Line, LineChart, chart_data, draw, identifier
from sonde.runs.report._comparison import CONFIDENCE, common_curves, common_seeds, difference_charts, differences
from sonde.runs.report._content import Content, Section
from sonde.runs.report._html import Markup, cell, details, joined, number, paragraphs, table, tag
from sonde.runs.report._subjects import Subject

NOT_CURVES = ("seed", "round", "transitions", "stopped", "model_choice")
REFERENCES = {
    OVERCONFIDENCE.key: ((1.0, "right"), (TOO_CERTAIN, "too certain above")),
    INFORMATION_RANK.key: ((UNRELATED, "stalls below"),),
    DRIFT.key: ((CHANGED, "changed above"),),
    "coverage90": ((0.9, "stated"),),
    "coverage90_simulated": ((0.9, "stated"),),
}
"""Values that a metric is compared with, and their labels."""
OF_CALIBRATION = (
    OVERCONFIDENCE.key,
    INFORMATION_RANK.key,
    DRIFT.key,
    "coverage90",
    "coverage90_simulated",
    "calibration_error",
)
"""Metrics whose charts are in the section about calibration."""


def metric_chart(content: Content, key: str) -> LineChart | None:
    """The chart of a metric; None where no subject has it.

    Args:
        content: What the page shows.
        key: Key of the metric.
    """
    spec, lines = content.schema.spec(key), []
    for subject in content.subjects:
        rounds, means, bands = curve(subject.rows, key)
        if len(rounds):
            ends = means - bands, means + bands
            lines.append(Line(subject.number, subject.name, rounds, means, *ends, _seeds(subject, key)))
    if not lines:
        return None
    references = REFERENCES.get(key, ())
    return LineChart(identifier(key), spec.title_of(key), spec.unit, spec.meaning, lines, spec.log, references)


def _seeds(subject: Subject, key: str) -> list[np.ndarray]:
    """Points [n, 2] of each seed, if there are several."""
    if len(subject.group.seeds) < 2:
        return []
    found = []
    for seed in sorted(subject.group.seeds):
        points = [(row["round"], row[key]) for row in subject.rows if row["seed"] == seed and row.get(key) is not None]
        found.append(np.array(points, float).reshape(-1, 2))
    return found


def charts(content: Content, found: Sequence[LineChart], first: Sequence[Markup] = ()) -> Markup:
    """Charts side by side, known to the page's script.

    Args:
        content: What the page shows.
        found: The charts.
        first: Figures that come before them.
    """
    content.data.setdefault("charts", {}).update({chart.identifier: chart_data(chart) for chart in found})
    return tag("div", *first, *map(draw, found), class_="charts")


def curves(content: Content) -> Section:
    """All metrics over rounds, those of figures first and the others on demand.

    Args:
        content: What the page shows.
    """
    keys = list(dict.fromkeys(key for subject in content.subjects for row in subject.rows for key in row))
    known = [key for key in keys if key not in NOT_CURVES and any(spec.matches(key) for spec in content.schema.specs)]
    drawn = content.schema.drawn(known)
    others = [key for key in known if key not in drawn and key not in OF_CALIBRATION]
    main, more = ([chart for key in part if (chart := metric_chart(content, key))] for part in (drawn, others))
    several = any(len(subject.group.seeds) > 1 for subject in content.subjects)
    lead = "Lines are means over seeds, bands two standard errors of the mean to each side. " if several else ""
    text = (
        f"{lead}Hover over a chart, or focus it and use the arrow keys, to read values; every chart has its numbers below it."
    )
    rest = details(f"More metrics ({len(more)})", charts(content, more), class_="more", id="more-metrics") if more else None
    return Section("curves", "Over the rounds", joined(paragraphs(text), charts(content, main), rest))


def comparison(content: Content) -> Section | None:
    """Differences between runs, seed by seed, with intervals; None for one run.

    Args:
        content: What the page shows.
    """
    if content.single:
        return None
    subjects, base = content.subjects, content.subjects[0]
    found, seeds = differences(subjects, content.schema), common_seeds(subjects)
    if not found:
        return Section(
            "comparison", "Side by side", paragraphs("The runs have no metric in a common round, so none is compared.")
        )
    pair = len(subjects) == 2
    which = f"{subjects[1].name}, compared with {base.name} [95 % interval]" if pair else "difference or ratio [95 % interval]"
    ends = [base.name, subjects[1].name if pair else "this one"]
    head = ["metric", *([] if pair else ["compared"]), which, "shown by the interval", *ends]
    rows = []
    for each in found:
        name = [] if pair else [tag("td", subjects[each.subject].name, class_=f"s{each.subject} name")]
        means = [cell(value) for value in each.means]
        low, high = each.bounds
        shown = cell(each.value, each.text, data_low=repr(low), data_high=repr(high), data_key=each.key)
        unit = tag("span", each.unit, class_="unit") if each.unit else None
        rows.append([joined(each.title, " ", unit), *name, shown, tag("td", each.verdict), *means])
    listed = ", ".join(map(str, seeds)) or "none"
    text = (
        f"Each run is compared with {base.name}, the first one, in the last round that all of them have (round "
        f"{max(each.round for each in found)}), paired by seed; seeds that all of them have: {listed}. Intervals are "
        f"Student's, at {100 * CONFIDENCE:.0f} %, for the mean of the paired differences; metrics on a logarithmic axis are "
        "compared by ratios (×) of geometric means. 'Higher' and 'lower' say that the interval excludes no difference, not "
        "that this is better; where it does not, no difference is shown, which is not the same as none being there."
    )
    expected = (
        f" With {len(found)} comparisons, about {number(0.05 * len(found), 2)} of the intervals can be expected to miss by "
        "chance."
        if len(found) > 3
        else ""
    )
    few = (
        " Intervals from fewer than five seeds are wide, and rest on differences being about normal." if len(seeds) < 5 else ""
    )
    over = details(
        "Differences over the rounds", charts(content, difference_charts(subjects, content.schema)), open=len(seeds) > 1
    )
    body = joined(
        paragraphs(f"{text}{expected}{few}"), table(head, rows, f"Compared with {base.name}"), _unequal(content), over
    )
    return Section("comparison", "Side by side", body)


def _unequal(content: Content) -> Markup | None:
    """What else must be known about the comparison: unequal numbers of seeds or rounds."""
    notes = []
    for what, values in (
        ("rounds", {subject.name: subject.rounds for subject in content.subjects}),
        ("seeds", {subject.name: len(subject.group.seeds) for subject in content.subjects}),
    ):
        if len(set(values.values())) > 1:
            notes.append(f"Numbers of {what} differ: {', '.join(f'{name} {value}' for name, value in values.items())}.")
    keys = {key for subject in content.subjects for row in subject.rows for key in row}
    alone = [key for key in content.schema.drawn(keys) if common_curves(content.subjects, key) is None]
    if alone:
        titles = ", ".join(content.schema.spec(key).title_of(key) for key in alone)
        notes.append(f"Not compared, because not all runs have them in a common round: {titles}.")
    return paragraphs(*notes) if notes else None
