"""Fields that a class of a config got after configs without them had been written."""

import dataclasses
from typing import TypeVar

Value = TypeVar("Value")
_ADDED = "sonde added"


def added(default: Value) -> Value:
    """Declare a field that a file may leave out, since it was written before the field existed.

    Args:
        default: Its value in such files, and of new objects.
    """
    return dataclasses.field(default=default, metadata={_ADDED: True})


def may_be_missing(field: dataclasses.Field) -> bool:
    """Whether a file may leave a field out.

    Args:
        field: A field of a dataclass.
    """
    return _ADDED in field.metadata
