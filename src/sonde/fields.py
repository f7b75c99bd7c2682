"""Fields of configs that came after the first runs were recorded."""

import dataclasses
from typing import Any

_MEANT = "meant by older configs"
_SAME = object()


def added_later(default: Any, meant: Any = _SAME) -> Any:
    """A field of a dataclass that older `config.json` files lack: they meant this default, or what `meant` says.

    That value must therefore never change. The field is written only where it differs from it, so that an older config, read
    and written again, stays the same text.
    """
    return dataclasses.field(default=default, metadata={_MEANT: default if meant is _SAME else meant})


def meant_by_older(kind: Any) -> dict[str, Any]:
    """The fields of a dataclass that a config need not have, and what it means without them."""
    return {field.name: field.metadata[_MEANT] for field in dataclasses.fields(kind) if _MEANT in field.metadata}


def is_written(field: dataclasses.Field, value: Any) -> bool:
    """Whether a config with this value says so."""
    return _MEANT not in field.metadata or value != field.metadata[_MEANT]
