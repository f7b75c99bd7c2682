"""The table of the progress display: as many columns as fit, the most important ones first, and no torn lines."""

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len, set_cell_size
from rich.text import Text

HEADING = 14
"""Widest heading where there is little room: longer ones continue below."""
GAP = 2
WRAPPED, PHASES, TRANSITIONS, DETAILS, COMMON, INFORMATION, OTHERS, CHOICE, MODEL, SECONDS, TASKS = range(1, 12)
"""What is given up, in this order, until the table fits: headings in one line, the phases' seconds (for their sum), the number
of transitions, details in cells, the common kernel, information, metrics of worlds and users, the model's choice and error, all
seconds; then tasks, from the last to the second."""


@dataclass
class Column:
    """A column of the table."""

    title: str
    """Its heading."""
    gone: int | None = None
    """The step at which it is given up; None: never."""
    comes: int = 0
    """The step from which it is shown, in place of others."""
    cells: list[str] = field(default_factory=list)
    """A text for each round."""
    short: list[str] = field(default_factory=list)
    """The same without details."""

    def add(self, text: str, short: str | None = None) -> None:
        """Add the cell of another round.

        Args:
            text: The cell.
            short: The cell without details; by default the same.
        """
        self.cells.append(text)
        self.short.append(text if short is None else short)


def fitting_table(columns: Sequence[Column], width: int, rows: int | None = None) -> list[Text]:
    """The table as lines, none of which is wider than the terminal.

    Args:
        columns: All columns, with equally many cells.
        width: Width of the terminal.
        rows: Most rows, of which the newest are shown; None for all.
    """
    total = len(columns[0].cells)
    first = 0 if rows is None or rows >= total else total - max(1, rows - 1)
    steps = [0, *sorted({column.gone for column in columns if column.gone is not None} | {WRAPPED, DETAILS})]
    for step in steps:
        shown = [column for column in columns if column.comes <= step and (column.gone is None or step < column.gone)]
        headings = [_heading(column.title, step) for column in shown]
        cells = [(column.short if step >= DETAILS else column.cells)[first:] for column in shown]
        widths = [max(map(cell_len, (*heading, *texts)), default=0) for heading, texts in zip(headings, cells, strict=True)]
        if sum(widths) + GAP * len(widths) <= width:
            break
    deepest = max(map(len, headings))
    headings = [[""] * (deepest - len(heading)) + heading for heading in headings]
    lines = [Text(_line(heading, widths), style="bold") for heading in zip(*headings, strict=True)]
    if first:
        lines.append(Text(f"  ... {first} earlier round{'' if first == 1 else 's'}", style="dim"))
    lines += [Text(_line(row, widths)) for row in zip(*cells, strict=True)]
    return [_cut(line, width) for line in lines]


def _heading(title: str, step: int) -> list[str]:
    if step >= DETAILS:
        title = title.partition(" (")[0]
    if step < WRAPPED or len(title) <= HEADING:
        return [title]
    wrapped = textwrap.wrap(title, HEADING, break_long_words=False)
    return [part if len(part) <= HEADING else f"{part[: HEADING - 1]}…" for part in wrapped]


def _line(cells: Iterable[str], widths: Sequence[int]) -> str:
    """Cells, aligned at the right."""
    return "".join(" " * (GAP + w - cell_len(cell)) + cell for cell, w in zip(cells, widths, strict=True))


def _cut(line: Text, width: int) -> Text:
    """The line, or its beginning: on a terminal that is narrower than the most important columns."""
    line.no_wrap = True
    return line if cell_len(line.plain) <= width else Text(set_cell_size(line.plain, width), style=line.style, no_wrap=True)
