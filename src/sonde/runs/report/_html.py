"""HTML and SVG from Python: every text is escaped here, once, and nothing else writes markup."""

import html
import json
import math
from typing import Any

VOID = ("br", "img", "input", "meta", "source", "circle", "line", "path", "rect", "image", "polyline")


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def tag(name: str, *children: Any, **attributes: Any) -> Markup:
    """An element.

    Args:
        name: Its name.
        *children: What is inside: markup as it is, other values as text; None is left out.
        **attributes: Its attributes; an underscore becomes a hyphen, one at the end is left out, as in `class_`. None and False
            are left out, and True is an attribute without a value.
    """
    words = [name]
    for key, value in attributes.items():
        if value is not None and value is not False:
            key = key.rstrip("_").replace("_", "-")
            words.append(key if value is True else f'{key}="{html.escape(str(value))}"')
    opening = f"<{' '.join(words)}"
    if name in VOID and not children:
        return Markup(f"{opening}/>" if name in ("circle", "line", "path", "rect", "image", "polyline") else f"{opening}>")
    return Markup(f"{opening}>{joined(*children)}</{name}>")


def joined(*children: Any) -> Markup:
    """Children one after the other.

    Args:
        *children: As for `tag`.
    """
    return Markup("".join(_escaped(child) for child in children if child is not None))


def _escaped(child: Any) -> str:
    return child if isinstance(child, Markup) else html.escape(str(child), quote=False)


def data_block(identifier: str, content: Any) -> Markup:
    """Data for the page's script.

    Args:
        identifier: The element's id.
        content: What goes to JSON; numbers that are not finite become null.
    """
    text = json.dumps(finite(content), separators=(",", ":"), allow_nan=False)
    # nothing in a text may end the element
    text = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return Markup(f'<script type="application/json" id="{html.escape(identifier)}">{text}</script>')


def finite(content: Any) -> Any:
    """The same content with None in place of numbers that are not finite.

    Args:
        content: Dictionaries, lists, texts and numbers.
    """
    if isinstance(content, dict):
        return {key: finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def number(value: float | int | None, digits: int = 3) -> str:
    """A number as people read it: significant digits, thousands apart, a true minus sign.

    Args:
        value: The number.
        digits: Significant digits at least; whole numbers keep all of theirs.
    """
    if value is None or not math.isfinite(value):
        return "–"
    size = abs(value)
    if size and (size < 1e-4 or size >= 1e9):
        mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
        text = f"{mantissa}e{int(exponent)}"
    elif size >= 10 ** (digits - 1) or value == int(value):
        text = f"{value:,.0f}"
    else:
        text = f"{value:.{max(digits - 1 - math.floor(math.log10(size)), 0)}f}" if size else "0"
    return text.replace("-", "−").replace("e−", "e-")


def tick_text(value: float | int) -> str:
    """A number for an axis, without zeros at its end.

    Args:
        value: The number.
    """
    text = number(value, 4)
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text


def interval(low: float | int, high: float | int, digits: int = 3) -> str:
    """An interval in words.

    Args:
        low: Its lower end.
        high: Its upper end.
        digits: As for `number`.
    """
    return f"{number(low, digits)} to {number(high, digits)}"


def cell(value: float | int | None, text: str | None = None, **attributes: Any) -> Markup:
    """A table cell with a number, which it also has with all digits.

    Args:
        value: The number.
        text: What is shown; by default the number.
        **attributes: More attributes.
    """
    known = value is not None and math.isfinite(value)
    return tag("td", number(value) if text is None else text, data_value=repr(float(value)) if known else None, **attributes)


def table(head: list[Any], rows: list[list[Any]], caption: str) -> Markup:
    """A table that scrolls sideways on narrow screens.

    Args:
        head: Headings of its columns.
        rows: Its rows: cells as markup, or values that become cells; the first of each row is its heading.
        caption: What it shows.
    """
    as_cell = lambda value: value if isinstance(value, Markup) and value.startswith("<td") else tag("td", value)
    body = [tag("tr", tag("th", row[0], scope="row"), *map(as_cell, row[1:])) for row in rows]
    columns = tag("tr", *(tag("th", title, scope="col") for title in head))
    whole = tag("table", tag("caption", caption), tag("thead", columns), tag("tbody", *body))
    return tag("div", whole, class_="scroll", tabindex=0, role="region", aria_label=caption)


def details(summary: str, *children: Any, **attributes: Any) -> Markup:
    """Content that is shown on demand.

    Args:
        summary: What is always visible.
        *children: The content.
        **attributes: More attributes, such as `open=True`.
    """
    return tag("details", tag("summary", summary), *children, **attributes)


def paragraphs(*texts: Any) -> Markup:
    """Paragraphs.

    Args:
        *texts: One for each; None is left out.
    """
    return joined(*(tag("p", text) for text in texts if text is not None))
