"""What a reader gives: recordings, whose tracks hold the columns that were sampled together."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from sonde._internal.errors import SondeError, nearest
from sonde.runs._measurements import SHOWN, quoted
from sonde.runs.logs._units import Unit, unit_named

STATES, ACTIONS = "observation.state", "action"
"""What LeRobot calls the arrays of states and actions."""


@dataclass(frozen=True)
class Track:
    """Columns that were sampled together, such as those of a table or of one topic."""

    columns: Mapping[str, np.ndarray]
    """Values [n] of each column; NaN where nothing was written."""
    rows: np.ndarray
    """Line or number of each sample in the source [n]."""
    times: np.ndarray | None = None
    """When each was taken [n], in seconds; None if the source has no clock."""
    name: str = ""
    """The topic, where there are several."""
    begins: np.ndarray | None = None
    """Where the source itself begins a new episode [n]; None for only at the first row."""

    @property
    def starts(self) -> np.ndarray:
        """Where the source begins an episode [n], the first row included."""
        starts = np.zeros(len(self.rows), bool) if self.begins is None else self.begins.copy()
        starts[:1] = True
        return starts


@dataclass(frozen=True)
class Recording:
    """What one source holds of the columns that were asked for."""

    source: str
    """The file or dataset."""
    tracks: tuple[Track, ...]
    """Its tracks; one for a table."""
    row: str = "line"
    """What the numbers of samples count."""
    units: Mapping[str, str] = field(default_factory=dict)
    """Units that the source states, by column."""
    dt: float | None = None
    """Time between samples that the source states, in seconds."""

    def track_of(self, column: str) -> Track:
        """The track that a column is in.

        Args:
            column: Name of the column.
        """
        return next(track for track in self.tracks if column in track.columns)


@dataclass(frozen=True)
class LogFile(ABC):
    """A source that has been opened: it knows its columns, and reads those that are asked for."""

    path: Path
    """The file or folder."""

    @property
    def source(self) -> str:
        """The file or folder, for messages."""
        return str(self.path)

    @abstractmethod
    def columns(self) -> dict[str, str | None]:
        """Names of the columns, with the units that the source states."""

    @abstractmethod
    def read(self, columns: Sequence[str], clock: str | None) -> Recording:
        """Read columns.

        Args:
            columns: Names that `find` returned.
            clock: The time column as in `LogFormat`.
        """

    def roles(self) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
        """Columns that the source itself calls states and actions; None if it does not say."""
        return None

    def find(self, name: str) -> str | None:
        """The column that a name stands for.

        Args:
            name: A column with or without the unit that is part of its title.

        Returns:
            Its full name; None if there is none.
        """
        known = self.columns()
        if name in known:
            return name
        bare = [column for column in known if bare_name(column) == name]
        if len(bare) > 1:
            raise SondeError(
                f"{self.source}: columns {quoted(bare)} are both called {name!r}; name one with its unit, in quotes"
            )
        return bare[0] if bare else None

    def missing(self, names: Sequence[str]) -> SondeError:
        """Make the error for columns that do not exist.

        Args:
            names: The columns that were asked for and not found.
        """
        known = list(self.columns())
        spare = [column for column in known[:1000] if f"next {column}" not in known]
        bare = {bare_name(column): column for column in spare}
        hints, lacking = [f"found: {quoted(known)}"], list(dict.fromkeys(names))
        for name in lacking[:SHOWN]:
            if close := nearest(name, spare) or bare.get(nearest(name, bare) or ""):
                hints.append(f"did you mean {close!r} for {name!r}?")
        return SondeError(f"{self.source}: missing column(s) {quoted(lacking)}; {'; '.join(hints)}")


def array_and_index(column: str) -> tuple[str, int]:
    """The array that a column belongs to, and its place there.

    Args:
        column: NAME[3] or NAME, which is NAME[0].
    """
    name, bracket, rest = column.partition("[")
    return name, int(rest.rstrip("]")) if bracket else 0


def bare_name(title: str) -> str:
    """A column's title without the unit at its end.

    Args:
        title: Such as position [mm] or position (mm).
    """
    return split_title(title)[0]


def split_title(title: str) -> tuple[str, str | None]:
    """Name and unit in a column's title.

    Args:
        title: Such as position [mm] or position (mm).

    Returns:
        The name, and the unit if there is one; what is in round brackets counts only if it is a known unit.
    """
    text = title.strip()
    for opening, closing in ("[]", "()"):
        at = text.rfind(opening)
        if text.endswith(closing) and at > 0:
            name, unit = text[:at].strip(), text[at + 1 : -1].strip()
            if unit_named(unit) is not None or (opening == "[" and unit and not unit.isdigit()):
                return name, unit
    return text, None


def stated_unit(recording: Recording, column: str) -> Unit | None:
    """The unit that a source states for a column; None if it states none, or one that is not known.

    Args:
        recording: The recording.
        column: Name of the column.
    """
    text = recording.units.get(column)
    return None if text is None else unit_named(text)
