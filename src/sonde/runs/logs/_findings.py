"""What is noticed while a log is read, as sentences."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sonde.runs._measurements import SHOWN

Level = Literal["note", "warning", "error"]


@dataclass(frozen=True)
class Finding:
    """Something about a log that its user should know."""

    level: Level
    """`note`: as it should be; `warning`: something is left out or doubtful; `error`: the log cannot be used."""
    source: str
    """The file or dataset."""
    text: str
    """What was found."""
    advice: str = ""
    """What to do about it."""

    def __str__(self) -> str:
        """The finding as a sentence."""
        return f"{self.source}: {self.text}" + (f"; {self.advice}" if self.advice else "")


def places(row: str, numbers: Sequence[int], most: int = 5) -> str:
    """Name rows of a source, the first few in full.

    Args:
        row: What they are: line, row or message.
        numbers: Their numbers.
        most: How many are named.
    """
    shown = ", ".join(str(number) for number in numbers[: min(most, SHOWN)])
    more = f" and {len(numbers) - most:,} more" if len(numbers) > most else ""
    return f"{row}{'s' if len(numbers) > 1 else ''} {shown}{more}"


def count(number: int, what: str) -> str:
    """A number of things, in words.

    Args:
        number: How many.
        what: One of them.
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"
