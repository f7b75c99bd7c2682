"""The page: its sections in order, and one HTML file with style, script and data inside."""

import functools
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from importlib import resources

from sonde import __version__
from sonde.runs.figures._style import LOOKS
from sonde.runs.report import _curves, _fit, _model, _overview, _results
from sonde.runs.report._content import Content, Section
from sonde.runs.report._html import Markup, data_block, joined, tag
from sonde.runs.report._states import SHADES

MAX_BYTES = 6_000_000
"""Largest page; films that do not fit are left out."""
SECTIONS: tuple[Callable[[Content], Section | None], ...] = (
    _overview.overview,
    _overview.warnings_section,
    _fit.fit,
    _curves.comparison,
    _curves.curves,
    _model.states,
    _model.errors,
    _model.calibration,
    _results.tasks,
    _results.provenance,
)
"""The sections in their order; each gives None where it has nothing to show. A feature with a section of its own (constraints,
say) adds it here."""
PALETTE = {
    "opax": ("#0072B2", "#56B4E9"),
    "opax-sum": ("#2A8FC4", "#9AD4F5"),
    "mean-ae": ("#007A5A", "#35C79C"),
    "pets-ae": ("#A86F00", "#F0B13C"),
    "h-ucrl": ("#A94C82", "#E59BC6"),
    "random": ("#5B5B5B", "#B4B4B4"),
    "opax-heuristic": ("#332288", "#9D8DF0"),
    "cee-us": ("#661100", "#E0836F"),
    "max": ("#B54400", "#FF9A57"),
    "plan2explore": ("#8A22CC", "#CF8CFF"),
}
"""Colours of methods on a light and a dark page, as in figures; each has a contrast of at least 3 to its ground."""
OTHERS = (("#006E7A", "#4CC9D9"), ("#8C2D04", "#F5A37A"), ("#4D6B00", "#B5D65B"), ("#B0124B", "#FF85AE"))
"""Colours of methods that have none, and of further runs of the same method."""
RAMP = (
    (("#7e03a8", "#c5407e", "#e8743c", "#d9a514"), "light"),
    (("#a54bd6", "#e0609a", "#fb9560", "#f7dc4b"), "dark"),
)
"""Colours from the first round to the last, on a light and a dark page."""


def write(content: Content, renew: float | None = None, status: str | None = None) -> str:
    """The page as text.

    Args:
        content: What it shows.
        renew: Seconds after which the page loads itself again; None for a page that stays.
        status: A sentence about the run at the top of the page.
    """
    _drop_films(content, MAX_BYTES)
    return _written(content, renew, status)


def _drop_films(content: Content, limit: int) -> None:
    """Leave out films that would make the page too large, the last ones first."""
    solved = [each for facts in content.facts for each in facts.solved if each.film is not None]
    room = limit - len(_written(content, None, None).encode()) if solved else 0
    for each in reversed(solved):
        if room < 0:
            assert each.film is not None
            room += len(each.film.source)
            each.film = None
            each.why_no_film = (
                f"There is no film here: with it the page would be larger than {limit / 1e6:g} MB; "
                "'sonde evaluate DIR --task T --video FILE' makes one."
            )


def _written(content: Content, renew: float | None, status: str | None) -> str:
    content.data = {}
    sections = [found for section in SECTIONS if (found := section(content)) is not None]
    title = _overview.headline(content)
    reload = Markup(f'<noscript><meta http-equiv="refresh" content="{renew:g}"></noscript>') if renew else Markup("")
    made = datetime.now().astimezone()
    parts = {
        "title": joined(title),
        "generator": joined(f"Sonde {__version__}"),
        "refresh": reload,
        "live": Markup(f' data-renew="{renew:g}"' if renew else ""),
        "style": Markup(_asset("style.css") + _colours(content)),
        "when": tag("time", f"Made {made:%Y-%m-%d %H:%M %Z}".strip(), datetime=made.isoformat(timespec="seconds")),
        "status": tag("p", status, class_="status") if status else Markup(""),
        "navigation": joined(*(tag("a", each.title, href=f"#{each.identifier}") for each in sections)),
        "legend": _legend(content),
        "sections": joined(*map(_section, sections)),
        "footer": joined(
            "Made with Sonde ", __version__, ". The file needs no network: it can be kept, sent and opened anywhere."
        ),
        "data": data_block("data", content.data),
        "script": Markup(_asset("script.js")),
    }
    return _filled(_asset("page.html"), parts)


def _filled(template: str, parts: Mapping[str, str]) -> str:
    """The template with its parts, in one pass: what is filled in is never looked at again."""
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], template)


@functools.cache
def _asset(name: str) -> str:
    return resources.files("sonde.runs.report").joinpath("assets", name).read_text(encoding="utf-8")


def _section(section: Section) -> Markup:
    heading = tag("h2", section.title, id=f"{section.identifier}-title")
    return tag("section", heading, section.body, id=section.identifier, aria_labelledby=f"{section.identifier}-title")


def _legend(content: Content) -> Markup:
    """A chip for each of several subjects, which the script makes a button."""
    if content.single:
        return Markup("")
    chips = [
        tag("span", subject.name, class_=f"toggle s{subject.number}", data_s=f"s{subject.number}")
        for subject in content.subjects
    ]
    return joined(*chips)


def _colours(content: Content) -> str:
    """Colours of subjects and rounds as variables, light and dark."""
    light, dark = zip(*_chosen([subject.config.method.name for subject in content.subjects]), strict=True)
    rules = {}
    for colours, (ramp, scheme) in zip((light, dark), RAMP, strict=True):
        lines = [f".s{number}{{--c:{colour}}}" for number, colour in enumerate(colours)]
        lines += [f".r{i}{{--r:{_between(ramp, i / (SHADES - 1))}}}" for i in range(SHADES)]
        rules[scheme] = "".join(lines)
    return f"{rules['light']}\n@media (prefers-color-scheme: dark){{{rules['dark']}}}\n"


def _chosen(methods: list[str]) -> list[tuple[str, str]]:
    """A colour for each subject, all different as long as there are enough."""
    assert PALETTE.keys() == LOOKS.keys()
    free = [*OTHERS, *(colours for name, colours in PALETTE.items() if name not in methods)]
    chosen: list[tuple[str, str]] = []
    for method in methods:
        own = PALETTE.get(method)
        chosen.append(own if own is not None and own not in chosen else free.pop(0))
    return chosen


def _between(colours: tuple[str, ...], share: float) -> str:
    """A colour on the way through several."""
    at = share * (len(colours) - 1)
    low = min(int(at), len(colours) - 2)
    ends = ([int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in colours[low : low + 2])
    return "#" + "".join(f"{round(a + (at - low) * (b - a)):02x}" for a, b in zip(*ends, strict=True))
