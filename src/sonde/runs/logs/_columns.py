"""Column maps: what each state and action of a system is in a log.

    NAME=COLUMN [UNIT] LOW..HIGH * FACTOR + OFFSET

Only NAME=COLUMN is needed. COLUMN may be in cos(...), sin(...), unwrap(...) or d/dt(...), with its unit inside, and in
quotation marks if it has any of these signs itself.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sonde._internal.errors import MAGNITUDE, SondeError
from sonde.runs.logs._units import UNITS_HELP, Unit, unit_named

ACTION = re.compile(r"u\d*")
"""Names that are actions' without a range."""
FUNCTIONS = ("cos", "sin", "unwrap", "d/dt")
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_ENTRY = re.compile(
    rf"""(?P<column>'[^']*'|"[^"]*"|.*?)
    (?:\s*\[(?P<unit>[^\[\]\d][^\[\]]*)\])?
    (?:\s+(?P<low>{_NUMBER})\s*\.\.\s*(?P<high>{_NUMBER}))?
    (?:\s*\*\s*(?P<factor>{_NUMBER}))?
    (?:\s+(?P<sign>[+-])\s*(?P<offset>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?))?""",
    re.VERBOSE,
)
_FUNCTION = re.compile(r"(cos|sin|unwrap|d/dt)\s*\(\s*(.*)\)\s*([^)]*)")
EXAMPLE = "NAME=COLUMN, such as 'x1=position [mm]', 'u=voltage -24..24' or 'v=d/dt(position [mm])'"


@dataclass(frozen=True)
class Column:
    """Where a state or an action is in a log, and how it becomes a number of the system."""

    name: str
    """Name of the state or action."""
    source: str
    """Name of the column or topic field."""
    function: str | None = None
    """What is computed from it; None for itself."""
    unit: Unit | None = None
    """Its unit; None for the one that the log states, if any."""
    limits: tuple[float, float] | None = None
    """Values in the log that become -1 and 1."""
    factor: float = 1.0
    """What its value, in units of the system, is multiplied by."""
    offset: float = 0.0
    """What is added after that."""

    @property
    def is_action(self) -> bool:
        """Whether it is an action by its name or range, where no system says so."""
        return self.limits is not None or ACTION.fullmatch(self.name) is not None


def columns_of(entries: Sequence[str]) -> dict[str, Column]:
    """Read a column map.

    Args:
        entries: Its entries, NAME=COLUMN with what follows.

    Returns:
        The columns by the name of the state or action, in their order.
    """
    found = dict[str, Column]()
    for entry in entries:
        column = _parsed(entry)
        if column.name in found:
            raise SondeError(f"columns: {column.name!r} is given twice; name each state and action once")
        found[column.name] = column
    return found


def _parsed(entry: str) -> Column:
    name, equals, text = (part.strip() for part in entry.partition("="))
    if not (name and equals and text):
        raise SondeError(f"columns: expected {EXAMPLE}, got {entry!r}")
    inner, function = text, None
    parts: dict[str, str | None] = {}
    if called := _FUNCTION.fullmatch(text):
        function, inner, after = called.groups()
        parts = _matched(f" {after}", entry)
        if (parts["column"] or "").strip() or parts["unit"] or parts["low"]:
            raise SondeError(f"columns: {entry!r}: the column, its unit and nothing else belong into {function}(...)")
    inside = _matched(inner, entry)
    if function is None:
        parts = inside
    elif inside["low"] or inside["factor"] or inside["offset"]:
        raise SondeError(f"columns: {entry!r}: write factors and offsets after {function}(...)")
    source = (inside["column"] or "").strip()
    if not source:
        raise SondeError(f"columns: {entry!r} names no column; expected {EXAMPLE}")
    source = source[1:-1] if source[0] in "'\"" else source
    limits = None if parts["low"] is None else (float(parts["low"]), float(parts["high"] or "nan"))
    offset = float(parts["offset"] or 0) * (-1 if parts["sign"] == "-" else 1)
    column = Column(name, source, function, _unit(inside["unit"], entry), limits, float(parts["factor"] or 1), offset)
    _check(column, entry)
    return column


def _matched(text: str, entry: str) -> dict[str, str | None]:
    found = _ENTRY.fullmatch(text)
    if found is None:
        raise SondeError(f"columns: expected {EXAMPLE}, got {entry!r}")
    return found.groupdict()


def _unit(text: str | None, entry: str) -> Unit | None:
    if text is None:
        return None
    if (unit := unit_named(text)) is None:
        raise SondeError(
            f"columns: {entry!r}: unknown unit [{text}]; expected one such as {UNITS_HELP}, or a factor as in "
            "'x1=position * 0.001'"
        )
    return unit


def _check(column: Column, entry: str) -> None:
    if column.limits is not None:
        low, high = column.limits
        if not low < high:
            raise SondeError(f"columns: {entry!r}: expected a range LOW..HIGH with LOW below HIGH")
        if column.factor != 1 or column.offset:
            raise SondeError(f"columns: {entry!r}: a range says how values become [-1, 1]; leave out factor and offset")
    if not 0 < abs(column.factor) <= MAGNITUDE or abs(column.offset) > MAGNITUDE:
        raise SondeError(f"columns: {entry!r}: expected a factor that is not 0, and numbers up to {MAGNITUDE:g}")
