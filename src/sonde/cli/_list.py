"""`sonde list [WHAT]`: everything that has a name on the command line, in tables as wide as the terminal."""

import os
import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, Literal, get_args

from sonde._internal.errors import one_of
from sonde.cli._names import known_names

What = Literal["presets", "worlds", "methods", "models", "kernels", "solvers", "imaginations", "objectives", "beta-rules"]
NARROWEST = 20
"""Fewest characters of the last column, which is the one that wraps."""
GAP = 2
RIGHT = ("rounds", "steps")
"""Columns of numbers, which are aligned at the right."""
BOLD, FAINT, PLAIN = "\033[1m", "\033[2m", "\033[0m"


def arguments() -> type:
    """The dataclass of the arguments, made when it is needed: the parser takes longer to import than the tables to print."""
    from dataclasses import dataclass

    import tyro

    @dataclass
    class ListArguments:
        """List presets, worlds and their tasks, methods, models, solvers, and the parts that these are made of."""

        what: tyro.conf.Positional[What | None] = None
        """The table to list; by default all."""

    return ListArguments


def main(args: list[str]) -> None:
    """Run the command.

    Args:
        args: Words after the command.
    """
    if len(args) == 1 and not args[0].startswith("-"):
        one_of("table", args[0], get_args(What))
    elif args:  # help, or a mistake
        import tyro

        tyro.cli(arguments(), args=args, prog="sonde list")
    tables = known_names()["tables"]
    shown = [tables[args[0]]] if args else list(tables.values())
    in_colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    print("\n\n".join("\n".join(table_lines(table, terminal_width(), in_colour)) for table in shown))


def terminal_width() -> int | None:
    """Characters in a line of the terminal; None where lines may be of any length, as in a file or a pipe."""
    if (given := os.environ.get("COLUMNS", "")).isdigit() and int(given) > 0:
        return int(given)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except (OSError, ValueError):  # not a terminal
        return None


def table_lines(table: dict[str, Any], width: int | None, in_colour: bool = False) -> Iterator[str]:
    """A table as lines.

    Args:
        table: Its `title`, its `rows`, of which the first are the headings, and perhaps a `note` below them.
        width: Longest line, which the last column is wrapped to; None for any.
        in_colour: Whether to make titles bold and headings faint.
    """
    bold, faint, plain = (BOLD, FAINT, PLAIN) if in_colour else ("", "", "")
    yield f"{bold}{table['title']}{plain}"
    heading, *rows = table["rows"]
    widths = [max(map(len, column)) for column in zip(heading, *rows, strict=True)]
    for number, row in enumerate((heading, *rows)):
        for line in _row_lines(row, heading, widths, width):
            yield f"{faint}{line}{plain}" if number == 0 else line
    if note := table.get("note"):
        yield from textwrap.wrap(note, (width or 10_000) - GAP, initial_indent=" " * GAP, subsequent_indent=" " * GAP)


def _row_lines(row: Sequence[str], heading: Sequence[str], widths: Sequence[int], width: int | None) -> Iterator[str]:
    """One row, whose last cell continues below itself."""
    cells = [cell.rjust(w) if title in RIGHT else cell.ljust(w) for cell, title, w in zip(row, heading, widths, strict=True)]
    gap = " " * GAP
    before = gap + "".join(cell + gap for cell in cells[:-1])
    if width is None:
        yield (before + cells[-1]).rstrip()
        return
    room = max(NARROWEST, width - len(before))
    wrapped = [cells[-1]] if len(cells[-1]) <= room else textwrap.wrap(row[-1], room, break_on_hyphens=False)
    for number, part in enumerate(wrapped):
        yield ((before if number == 0 else " " * len(before)) + part).rstrip()
