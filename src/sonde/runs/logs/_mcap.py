"""MCAP files whose messages are JSON (extra `logs`); those of ROS 2 are read by `_ros`."""

import functools
import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sonde._internal.errors import SondeError, first_line
from sonde._internal.reading import parse_json
from sonde.runs.logs._messages import Message, MessagesLog

LARGEST_CHUNK = 2**30
"""Most bytes that a compressed part of a file may unpack to."""
JSON, CDR = "json", "cdr"
MESSAGE_BYTES = 4 * 2**20
"""Most bytes of a message."""


def extra(name: str) -> Any:
    """Import a package of the extra `logs`.

    Args:
        name: The package's module.
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        package = name.partition(".")[0]
        raise SondeError(f"this log needs the package {package}: pip install '.[logs]' in Sonde's folder") from None


@dataclass(frozen=True)
class McapLog(MessagesLog):
    """An MCAP file with messages in JSON."""

    @functools.cached_property
    def summary(self) -> Any:
        """Channels, chunks and numbers of messages."""
        reader = extra("mcap.reader")
        try:
            with open(self.path, "rb") as file:
                summary = reader.make_reader(file).get_summary()
        except Exception as error:  # a damaged file may raise anything
            raise self._damaged(error) from None
        if summary is None or summary.statistics is None:
            raise SondeError(f"{self.path} has no index, so it was not closed; 'mcap recover' writes one")
        if any(chunk.uncompressed_size > LARGEST_CHUNK for chunk in summary.chunk_indexes):
            raise SondeError(f"{self.path}: a chunk unpacks to more than {LARGEST_CHUNK:,} bytes; write smaller ones")
        return summary

    def encodings(self) -> dict[str, str]:
        """How the messages of each topic are written."""
        return {channel.topic: channel.message_encoding for channel in self.summary.channels.values()}

    def counts(self) -> Mapping[str, int]:
        """Number of messages of each topic in JSON."""
        counts = self.summary.statistics.channel_message_counts
        found = dict[str, int]()
        for identifier, channel in self.summary.channels.items():
            if channel.message_encoding == JSON:
                found[channel.topic] = found.get(channel.topic, 0) + counts.get(identifier, 0)
        if not found:
            kinds = ", ".join(sorted(set(self.encodings().values()))) or "none"
            raise SondeError(f"{self.path}: expected messages in JSON, or of ROS 2 (cdr), got the encodings {kinds}")
        return found

    def messages(self, topics: Sequence[str]) -> Iterator[Message]:
        """The messages of some topics, by the time at which they were logged.

        Args:
            topics: The topics.
        """
        try:
            with open(self.path, "rb") as file:
                reader = extra("mcap.reader").make_reader(file, validate_crcs=True)
                for number, (_, channel, message) in enumerate(reader.iter_messages(topics=topics), 1):
                    if len(message.data) > MESSAGE_BYTES:
                        raise SondeError(f"{self.path}: message {number} has more than {MESSAGE_BYTES:,} bytes")
                    content = parse_json(message.data, f"{self.path}: message {number} of {channel.topic}")
                    yield Message(channel.topic, message.log_time, message.publish_time, content)
        except SondeError:
            raise
        except Exception as error:  # a damaged file may raise anything
            raise self._damaged(error) from None

    def _damaged(self, error: Exception) -> SondeError:
        if isinstance(error, SondeError):
            return error
        kind = type(error).__name__
        return SondeError(f"{self.path} cannot be read as MCAP ({kind}: {first_line(error)}); restore it from a copy")
