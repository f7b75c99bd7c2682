"""Fields of configs that came after the first runs were recorded."""

import dataclasses
from typing import Any

_ADDED = "added later"


def added_later(default: Any) -> Any:
    """A field of a dataclass that older `config.json` files lack: they meant this default, which must therefore never change.

    It is written only where it differs from that, so that an older config, read and written again, stays the same text.
    """
    return dataclasses.field(default=default, metadata={_ADDED: True})


def may_be_missing(field: dataclasses.Field) -> bool:
    """Whether a config without this field is complete."""
    return _ADDED in field.metadata


def is_written(field: dataclasses.Field, value: Any) -> bool:
    """Whether a config with this value says so."""
    return not may_be_missing(field) or value != field.default
