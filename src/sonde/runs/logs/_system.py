"""The system that a log was measured on, as far as its column map and its header say."""

from collections.abc import Sequence

from sonde._internal.errors import SondeError
from sonde.runs.logs._columns import EXAMPLE
from sonde.runs.logs._format import LogFormat
from sonde.runs.logs._columns import columns_of
from sonde.worlds import OwnSystem


def system_of(log: LogFormat, sources: str | Sequence[str]) -> OwnSystem:
    """The dimensions of the system that logs were measured on.

    Args:
        log: How to read them. Names in its column map that are u, u0, u1, ..., or that have a range, are actions; all others
            are states.
        sources: Files or datasets; without a column map, their headers are read.

    Returns:
        A system of that many states and actions.
    """
    columns = columns_of(log.columns)
    states = tuple(name for name, column in columns.items() if not column.is_action)
    actions = tuple(name for name, column in columns.items() if column.is_action)
    if not states or not actions:
        raise SondeError(f"columns: expected at least one state and one action, as {EXAMPLE}; got {', '.join(columns) or 'none'}")
    return OwnSystem(states=states, actions=actions)
