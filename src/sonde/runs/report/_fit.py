"""The section of a run that was made from logs: how well its model predicted a part that it had not seen."""

import base64
from pathlib import Path

from sonde._internal.errors import SondeError
from sonde._internal.reading import MAX_JSON_BYTES, read_limited
from sonde.runs._judgement import AFFINE, MODEL, NOTHING, Judgement, judgement_of
from sonde.runs.report._content import Content, Section
from sonde.runs.report._html import Markup, cell, joined, paragraphs, table, tag


def fit(content: Content) -> Section | None:
    """Errors and coverage on held-out measurements, and simulations of them; None for runs that only explored.

    Args:
        content: What the page shows.
    """
    parts = []
    for subject in content.subjects:
        judgement = judgement_of(subject.sources[0].store.folder)
        if judgement is not None:
            name = None if content.single else tag("p", tag("strong", subject.name, class_=f"name s{subject.number}"))
            parts.append(joined(name, _judged(judgement), _picture(subject.sources[0].store.folder)))
    return Section("fit", "Predictions of held-out measurements", joined(*parts)) if parts else None


def _judged(judgement: Judgement) -> Markup:
    text = (
        f"Before anything was explored, a model was fitted to {judgement.fitted:,} transitions of a log and judged on others, "
        f"{judgement.split} ({judgement.held_out:,} transitions). Errors are root mean squares in units of each state's "
        f"spread. The model that the run began with was then fitted to {judgement.final}."
    )
    tables = []
    for number, steps in enumerate(judgement.steps):
        ahead = "One step ahead" if steps == 1 else f"Simulated {steps} steps ahead"
        errors = [judgement.errors[kind][number] for kind in (MODEL, AFFINE, NOTHING)]
        inside = judgement.coverage[number]
        rows = [
            [name, *(cell(each[row]) for each in errors), cell(inside[row], f"{100 * inside[row]:.0f} %")]
            for row, name in enumerate(judgement.states)
        ]
        head = ["state", "model", "affine least squares", "no change", "in 90 % band"]
        tables.append(table(head, rows, f"{ahead}: errors on {judgement.windows[number]:,} predictions"))
    return joined(paragraphs(text), *tables)


def _picture(folder: Path) -> Markup | None:
    """The figure that the fit drew, if it is still there."""
    try:
        content = read_limited(folder / "figures" / "fit.png", MAX_JSON_BYTES)
    except (OSError, SondeError):
        return None
    source = f"data:image/png;base64,{base64.b64encode(content).decode()}"
    words = "Simulated states with 90 % bands, and measured ones, over time"
    return tag("figure", tag("img", src=source, alt=words, style="max-width:100%"), tag("figcaption", words))
