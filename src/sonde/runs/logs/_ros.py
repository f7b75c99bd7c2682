"""ROS 2 bags, in sqlite3 or MCAP storage, by the package rosbags (extra `logs`); ROS itself is not needed."""

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sonde._internal.errors import SondeError, first_line
from sonde.runs.logs._mcap import McapLog, extra
from sonde.runs.logs._messages import Message, MessagesLog

TYPE = re.compile(r"[A-Za-z]\w*/msg/[A-Za-z]\w*")
"""Names of message types: rosbags writes and runs code for each type, so nothing else is given to it."""
METADATA = "metadata.yaml"
METADATA_BYTES = 16 * 2**20


@dataclass(frozen=True)
class RosLog(MessagesLog):
    """A bag: its folder, or its .mcap or .db3 file."""

    def _opened(self) -> Any:
        reader = extra("rosbags.rosbag2").Reader(self.path)
        reader.open()
        return reader

    @functools.cached_property
    def connections(self) -> dict[str, list[Any]]:
        """Connections of each topic whose messages can be read."""
        self._check_compression()
        try:
            reader = self._opened()
            found = dict[str, list[Any]]()
            for connection in reader.connections:
                if TYPE.fullmatch(connection.msgtype):
                    found.setdefault(connection.topic, []).append(connection)
            reader.close()
        except Exception as error:  # a damaged bag may raise anything
            raise self._damaged(error) from None
        if not found:
            raise SondeError(f"{self.path}: the bag has no topics")
        return found

    def counts(self) -> Mapping[str, int]:
        """Number of messages of each topic."""
        return {topic: sum(one.msgcount for one in connections) for topic, connections in self.connections.items()}

    def messages(self, topics: Sequence[str]) -> Iterator[Message]:
        """The messages of some topics, by the time at which they were logged.

        Args:
            topics: The topics.
        """
        number = 0
        try:
            stores = {one.msgtype: _types(one) for topic in topics for one in self.connections[topic]}
            reader = self._opened()
            try:
                chosen = [one for one in reader.connections if one.topic in topics and one.msgtype in stores]
                for connection, time, raw in reader.messages(connections=chosen):
                    number += 1
                    content = stores[connection.msgtype].deserialize_cdr(raw, connection.msgtype)
                    yield Message(connection.topic, time, time, content)
            finally:
                reader.close()
        except SondeError:
            raise
        except Exception as error:  # a damaged bag may raise anything
            raise self._damaged(error, f", after message {number}") from None

    def _check_compression(self) -> None:
        """Reject a bag that would unpack to more than fits into memory, or onto the disk as a whole."""
        for part in self.path.glob("*.mcap") if self.path.is_dir() else [self.path] * (self.path.suffix == ".mcap"):
            _ = McapLog(part).summary
        path = self.path / METADATA
        if not self.path.is_dir() or not path.is_file():
            return
        if path.stat().st_size > METADATA_BYTES:
            raise SondeError(f"{path} is too large: expected at most {METADATA_BYTES:,} bytes")
        if re.search(r"compression_mode:\s*[\"']?file", path.read_text(encoding="utf-8", errors="replace"), re.IGNORECASE):
            raise SondeError(f"{self.path} is compressed as a whole; unpack it first, with 'ros2 bag convert'")

    def _damaged(self, error: Exception, where: str = "") -> SondeError:
        if isinstance(error, SondeError):
            return error
        kind = type(error).__name__
        return SondeError(f"{self.path}{where} cannot be read as a ROS 2 bag ({kind}: {first_line(error)})")


def _types(connection: Any) -> Any:
    """The types that a connection needs: those that the bag defines, otherwise those that come with ROS 2."""
    typesys = extra("rosbags.typesys")
    kind = connection.msgdef.format.name
    if kind == "NONE":
        return typesys.get_typestore(typesys.Stores.LATEST)
    read = typesys.get_types_from_msg if kind == "MSG" else typesys.get_types_from_idl
    store = typesys.get_typestore(typesys.Stores.EMPTY)
    args = (connection.msgdef.data, connection.msgtype) if kind == "MSG" else (connection.msgdef.data,)
    types = read(*args)
    if wrong := [name for name in types if not TYPE.fullmatch(name)]:
        raise SondeError(f"a message type is called {wrong[0][:80]!r}; expected PACKAGE/msg/NAME")
    store.register(types)
    return store
