"""The system that a log was measured on, as far as its column map and its header say."""

import re
from collections.abc import Sequence

from sonde._internal.errors import SondeError
from sonde.data import SystemSpec
from sonde.runs._measurements import EPISODE, MINARI, quoted
from sonde.runs._minari import dimensions
from sonde.runs._saved import MEASURED
from sonde.runs.logs._arrays import NpzLog
from sonde.runs.logs._clock import clock_of
from sonde.runs.logs._columns import ACTION, EXAMPLE, columns_of
from sonde.runs.logs._format import LogFormat
from sonde.runs.logs._lerobot import LeRobotLog
from sonde.runs.logs._open import expanded, open_log
from sonde.runs.logs._recording import LogFile, bare_name
from sonde.worlds import OwnSystem

STATE = re.compile(r"x\d*")
"""Titles of columns that are states where nothing else says so."""


def system_of(log: LogFormat, sources: str | Sequence[str]) -> OwnSystem:
    """The dimensions of the system that logs were measured on.

    Args:
        log: How to read them. Names in its column map that are u, u0, u1, ..., or that have a range, are actions; all others
            are states.
        sources: Files or datasets. Without a column map the first one says what it has: arrays of states and actions, columns
            with next states, or columns called x1, x2, ... and u1, u2, ...

    Returns:
        A system of that many states and actions.
    """
    columns = columns_of(log.columns)
    if columns:
        states = tuple(name for name, column in columns.items() if not column.is_action)
        actions = tuple(name for name, column in columns.items() if column.is_action)
        found = ", ".join(columns)
    else:
        first = expanded(sources)[0]
        states, actions = _stated(first, log)
        found = f"the columns of {first}"
    if not states or not actions:
        raise SondeError(
            f"columns: expected at least one state and one action, got {found}; actions are called u, u1, ... or have a range: "
            f"give {EXAMPLE} with --columns"
        )
    return OwnSystem(states=states, actions=actions)


def _stated(source: str, log: LogFormat) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """States and actions by what a source says itself."""
    if source.startswith(MINARI):
        return _numbered(*dimensions(source.removeprefix(MINARI)))
    file = open_log(source, log)
    if isinstance(file, NpzLog) and set(MEASURED) <= file.shapes.keys():
        return _numbered(*(file.shapes[name][1] for name in MEASURED[:2]))
    if isinstance(file, LeRobotLog) and file.roles() is not None:
        return file.role_names()
    return _titled(file, log)


def _numbered(states: int, actions: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    spec = SystemSpec.of_size(states, actions)
    return spec.state_names, spec.action_names


def _titled(file: LogFile, log: LogFormat) -> tuple[tuple[str, ...], tuple[str, ...]]:
    titles = list(file.columns())
    states = tuple(bare_name(title) for title in titles if f"next {title}" in titles)
    if states:
        clock = clock_of(file, log.time_column)
        others = {*states, *(f"next {state}" for state in states), EPISODE, None if clock is None else bare_name(clock.column)}
        return states, tuple(bare_name(title) for title in titles if bare_name(title) not in others)
    names = [bare_name(title) for title in titles]
    states = tuple(name for name in names if STATE.fullmatch(name))
    actions = tuple(name for name in names if ACTION.fullmatch(name))
    if not states or not actions:
        raise SondeError(
            f"{file.source}: which of its columns are states and which actions? It has {quoted(titles)}; say so with --columns "
            f"{EXAMPLE}"
        )
    return states, actions
