"""What all figures share: colours, axes that can be read, and files that appear whole or not at all.

Figures are built as objects and never shown, so neither a display nor pyplot's global state is touched.
"""

import io
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator
from PIL import Image

from sonde._internal.errors import SondeError
from sonde._internal.files import write_atomically

FORMATS = (".pdf", ".png", ".svg")
"""Suffixes that a figure may have."""
STYLE: dict[Any, Any] = {"font.size": 11, "axes.titlesize": 12, "axes.axisbelow": True, "legend.frameon": False}
"""Settings of matplotlib in which figures are drawn."""
# Okabe and Ito's palette, then colours that colour-blind readers can tell from it and from each other as well as those of the
# palette (by simulation, for each of the three kinds); markers differ too, for print without colour
LOOKS = {
    "opax": ("#0072B2", "o"),
    "opax-sum": ("#56B4E9", "s"),
    "mean-ae": ("#009E73", "^"),
    "pets-ae": ("#E69F00", "D"),
    "h-ucrl": ("#CC79A7", "v"),
    "random": ("#595959", "X"),
    "opax-heuristic": ("#332288", "p"),
    "cee-us": ("#661100", "<"),
    "max": ("#C04800", ">"),
    "plan2explore": ("#A030E0", "*"),
}
"""Colour and marker of each method."""
OTHER_LOOK = ("#000000", "P")
"""Colour and marker of methods that are not in `LOOKS`."""
LINE_STYLES = ("-", "--", ":", "-.")
"""Line styles that tell groups of the same method apart."""


def scale_y(ax: Axes, log: bool, low: float, high: float, least: float = 1e-3) -> None:
    """Set the limits of a y axis, with readable labels.

    Args:
        ax: The axes.
        log: Whether the axis is logarithmic.
        low: Smallest value to show.
        high: Largest value to show.
        least: Smallest span of an axis that is not logarithmic.
    """
    if not log:
        # do not magnify a negligible difference to the height of the panel
        half = 0.56 * max(high - low, least, 0.01 * abs(high))
        ax.set_ylim((low + high) / 2 - half, (low + high) / 2 + half)
        return
    margin = 1.02 * (high / low) ** 0.06
    ax.set(yscale="log", ylim=(low / margin, high * margin))
    if high / low < 100:  # powers of ten alone would leave the axis with hardly a label
        ax.yaxis.set_major_locator(MaxNLocator(5) if high / low < 5 else LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())


def file_format(out: Path) -> str:
    """The format of a figure by the suffix of its file; other suffixes are rejected.

    Args:
        out: Path of the figure.
    """
    if out.suffix.lower() not in FORMATS:
        raise SondeError(f"a figure cannot be written to {out.name!r}: end its name in one of {', '.join(FORMATS)}")
    return out.suffix.lower().removeprefix(".")


def save_figure(figure: Figure, out: Path, colours: int | None = None) -> None:
    """Write a figure, whole or not at all.

    Args:
        figure: The figure.
        out: Where to write it, in the format of its suffix.
        colours: Reduce a PNG to this number of colours, which makes it about a third as large.
    """
    content = io.BytesIO()
    figure.savefig(content, format=file_format(out))
    if colours is not None and file_format(out) == "png":
        image = Image.open(content).convert("RGB").quantize(colours, dither=Image.Dither.NONE)
        content = io.BytesIO()
        image.save(content, "png", optimize=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, content.getvalue())
