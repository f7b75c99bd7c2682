"""Logs of messages: topics whose fields are columns, called TOPIC.FIELD, such as /joint_states.position[0]."""

import functools
import itertools
import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sonde._internal.errors import SondeError
from sonde.runs._measurements import LARGEST, quoted, too_large
from sonde.runs.logs._format import NO_TIME
from sonde.runs.logs._recording import LogFile, Recording, Track

PUBLISHED = "publish_time"
"""Name of the time at which messages were sent, in place of that at which they were logged."""
MOST_ENTRIES = 100
"""Most entries of an array in a message that are listed as columns."""
MOST_DEPTH = 10
"""Deepest field of a message."""
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


class Message(NamedTuple):
    """One message of a topic."""

    topic: str
    """The topic."""
    logged: int
    """When it was logged, in nanoseconds."""
    published: int
    """When it was sent, in nanoseconds; as `logged` where the format has one time only."""
    content: Any
    """Nested dicts, lists and objects."""


@dataclass(frozen=True)
class MessagesLog(LogFile):
    """A file of messages with times."""

    @abstractmethod
    def counts(self) -> Mapping[str, int]:
        """Number of messages of each topic that can be read."""

    @abstractmethod
    def messages(self, topics: Sequence[str]) -> Iterator[Message]:
        """The messages of some topics, in the order of their times.

        Args:
            topics: The topics.
        """

    @functools.cached_property
    def fields(self) -> dict[str, tuple[str, str]]:
        """Topic and field of each column that the first message of each topic has."""
        found = dict[str, tuple[str, str]]()
        for topic in self.counts():
            for message in itertools.islice(self.messages([topic]), 1):
                found |= {f"{topic}{leaf}": (topic, leaf) for leaf in _leaves(message.content)}
        return found

    def columns(self) -> dict[str, str | None]:
        """Topics with their fields of numbers."""
        return dict.fromkeys(self.fields)

    def read(self, columns: Sequence[str], clock: str | None) -> Recording:
        """Read columns; those of a topic are a track.

        Args:
            columns: Topics with fields.
            clock: publish_time, a field such as header.stamp, or none; by default when messages were logged.
        """
        wanted = dict[str, list[str]]()
        for column in columns:
            wanted.setdefault(self.fields[column][0], []).append(column)
        for topic in wanted:
            if self.counts()[topic] > LARGEST:
                raise too_large(self.source, f"{self.counts()[topic]:,} messages of {topic}")
        values = {column: list[float]() for column in columns}
        stamps = {topic: list[int]() for topic in wanted}
        for message in self.messages(list(wanted)):
            topic, number = message.topic, len(stamps[message.topic]) + 1
            if number > LARGEST:
                raise too_large(self.source, "more")
            for column in wanted[topic]:
                values[column].append(self._number(message, self.fields[column][1], number))
            stamps[topic].append(self._stamp(message, clock, number))
        if empty := [topic for topic, times in stamps.items() if not times]:
            raise SondeError(f"{self.source}: there are no messages of {quoted(empty)}")
        origin = min(times[0] for times in stamps.values())
        tracks = []
        for topic, names in wanted.items():
            times = None if clock == NO_TIME else np.array([time - origin for time in stamps[topic]]) * 1e-9
            numbers = {name: np.array(values[name]) for name in names}
            tracks.append(Track(numbers, np.arange(1, len(stamps[topic]) + 1), times, topic))
        return Recording(self.source, tuple(tracks), "message")

    def find(self, name: str) -> str | None:
        """The column that a name stands for; a topic with one number may be named without its field.

        Args:
            name: A topic with or without a field.
        """
        if name in self.fields:
            return name
        own = [column for column, (topic, _) in self.fields.items() if topic == name]
        return own[0] if len(own) == 1 else None

    def _number(self, message: Message, leaf: str, number: int) -> float:
        value = _field(message.content, leaf)
        if isinstance(value, bool | int | float | np.number | np.bool_):
            return float(value)
        got = "nothing" if value is None else repr(value)[:80]
        raise SondeError(
            f"{self.source}: message {number}, column '{message.topic}{leaf}': expected a number, got {got}; every message of "
            "a topic needs its fields"
        )

    def _stamp(self, message: Message, clock: str | None, number: int) -> int:
        if clock in (None, NO_TIME):
            return message.logged
        if clock == PUBLISHED:
            return message.published
        value = _field(message.content, f".{clock}")
        parts = [_field(value, name) for name in (".sec", ".nanosec", ".nsec")]
        if isinstance(parts[0], int | np.integer):
            return int(parts[0]) * 10**9 + int(parts[1] or parts[2] or 0)
        if isinstance(value, int | float | np.number) and np.isfinite(value):
            return round(float(value) * 1e9)
        raise SondeError(
            f"{self.source}: message {number} of {message.topic} has no time {clock!r}; --time-column names a field in seconds "
            f"or a stamp such as header.stamp in every message, {PUBLISHED}, or nothing for the time of the log"
        )


def _field(content: Any, path: str) -> Any:
    """A field of a message; None if there is none."""
    for name, index in _STEP.findall(path):
        if index:
            is_list = isinstance(content, list | tuple | np.ndarray)
            content = content[int(index)] if is_list and int(index) < len(content) else None
        else:
            content = content.get(name) if isinstance(content, dict) else getattr(content, name, None)
        if content is None:
            return None
    return content


def _leaves(content: Any, path: str = "", depth: int = 0) -> Iterator[str]:
    """Fields of numbers in a message."""
    if isinstance(content, bool | int | float | np.number | np.bool_):
        yield path
    elif depth > MOST_DEPTH or isinstance(content, str | bytes):
        return
    elif isinstance(content, list | tuple | np.ndarray):
        for number, entry in enumerate(content[:MOST_ENTRIES]):
            yield from _leaves(entry, f"{path}[{number}]", depth + 1)
    else:
        fields = content if isinstance(content, dict) else getattr(content, "__dict__", {})
        for name, entry in fields.items():
            if _STEP.fullmatch(name) and not name.startswith("__"):
                yield from _leaves(entry, f"{path}.{name}", depth + 1)
