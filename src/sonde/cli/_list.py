"""`sonde list`: everything that has a name on the command line.

The tables hold classes, whose modules import JAX, and that takes seconds. So the text is in a file, which `_listing` writes
from the tables and a test compares with them.
"""

from dataclasses import dataclass
from pathlib import Path

LISTING = Path(__file__).with_name("listing.txt")
"""What the command prints; `python -m sonde.cli._listing` writes it."""


@dataclass
class ListArguments:
    """List presets, worlds and their tasks, methods, models, solvers, and the parts that these are made of."""


def main(args: list[str]) -> None:
    """Run the command.

    Args:
        args: Words after the command.
    """
    if args:  # help, or a mistake
        import tyro

        tyro.cli(ListArguments, args=args, prog="sonde list")
    print(LISTING.read_text(encoding="utf-8"), end="")
