"""Configs as JSON: every object names its class, and has all of its fields.

    {"format": 2, "rounds": 10, "world": {"class": "sonde.worlds:Pendulum", "process_noise": 0.0}, ...}

Classes of Sonde are named by room and name. A class of one's own is named as FILE.py:NAME, or as MODULE:NAME if it belongs to an
installed package.
"""

import dataclasses
import importlib
import inspect
import json
import sys
import sysconfig
import types
import typing
from pathlib import Path
from typing import Any, TypeVar

from sonde._internal.errors import SondeError
from sonde._internal.user_code import is_in_file, load_from_file

FORMAT = 2
"""Number of the format; configs of another one are rejected."""
CLASS = "class"
Config = TypeVar("Config")


def to_json(config: Any) -> str:
    """Write a config.

    Args:
        config: A dataclass whose fields are numbers, texts, tuples of them, or objects of dataclasses.

    Returns:
        Readable JSON with every field.

    """
    entries = {"format": FORMAT, **_fields(config)}
    return json.dumps(entries, indent=2) + "\n"


def from_json(kind: type[Config], text: str, source: str) -> Config:
    """Read a config.

    Args:
        kind: The class of the config.
        text: What `to_json` wrote.
        source: Where the text comes from, for error messages.

    """
    try:
        entries = json.loads(text)
    except json.JSONDecodeError as error:
        raise SondeError(f"{source} is not valid JSON ({error}); restore it from a copy") from None
    if not isinstance(entries, dict) or entries.get("format") != FORMAT:
        found = entries.get("format") if isinstance(entries, dict) else None
        raise SondeError(
            f"{source}: expected a config of format {FORMAT}, got {found!r}; it was made by another version of Sonde"
        )
    return _build(kind, {key: value for key, value in entries.items() if key != "format"}, source)


def class_reference(kind: type) -> str:
    """How a config names a class.

    Args:
        kind: A class at the top level of its module.

    """
    module = kind.__module__
    if module.split(".")[0] == "sonde":
        return f"{'.'.join(module.split('.')[:2])}:{kind.__name__}"
    file = Path(inspect.getfile(kind)).resolve()
    installed = [Path(sysconfig.get_paths()[name]).resolve() for name in ("purelib", "platlib", "stdlib")]
    if any(file.is_relative_to(folder) for folder in installed):
        return f"{module}:{kind.__name__}"
    return f"{file}:{kind.__name__}"


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: _encoded(getattr(value, field.name), field.name) for field in dataclasses.fields(value)}


def _encoded(value: Any, name: str) -> Any:
    if isinstance(value, tuple):
        return [_encoded(entry, name) for entry in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {CLASS: class_reference(type(value)), **_fields(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise SondeError(
        f"config: {name} is {value!r}, which cannot be saved; make its class a frozen dataclass of numbers and texts, "
        "and name functions as FILE.py:NAME"
    )


def _resolved(reference: Any, where: str) -> type:
    """The class that a config names."""
    if not isinstance(reference, str) or ":" not in reference:
        raise SondeError(f"{where}: expected a class such as 'sonde.models:GaussianProcess', got {reference!r}")
    path, name = reference.rsplit(":", 1)
    if is_in_file(reference):
        script = getattr(sys.modules.get("__main__"), "__file__", None)
        if script is not None and Path(script).resolve() == Path(path):  # the program that is running defines it itself
            found = getattr(sys.modules["__main__"], name, None)
        else:
            found = load_from_file(reference)
    else:
        try:
            found = getattr(importlib.import_module(path), name, None)
        except ImportError as error:
            raise SondeError(f"{where}: {reference} cannot be imported ({error})") from None
    if not isinstance(found, type) or not dataclasses.is_dataclass(found):
        raise SondeError(f"{where}: {reference} is not a class that a config can hold (a dataclass)")
    return found


def _build(kind: Any, entries: dict[str, Any], where: str) -> Any:
    hints = typing.get_type_hints(kind)
    names = {field.name for field in dataclasses.fields(kind)}
    for problem, found in (("unknown", entries.keys() - names), ("missing", names - entries.keys())):
        if found:
            raise SondeError(f"{where}: {problem} field(s) {', '.join(sorted(found))}; expected {', '.join(sorted(names))}")
    values = {name: _decoded(hints[name], value, f"{where}: {name}") for name, value in entries.items()}
    try:
        return kind(**values)
    except SondeError as error:
        raise SondeError(f"{where}: {error}") from None


def _decoded(hint: Any, value: Any, where: str) -> Any:
    """A value of a JSON document as the type that a field has."""
    choices = _choices(hint)
    if isinstance(value, dict):
        kind = _resolved(value.get(CLASS), where)
        wanted = [choice for choice in choices if isinstance(choice, type)]
        if not any(issubclass(kind, choice) for choice in wanted):
            raise SondeError(f"{where}: expected {_told(choices)}, got {value[CLASS]}")
        return _build(kind, {key: entry for key, entry in value.items() if key != CLASS}, where)
    for choice in choices:
        if typing.get_origin(choice) is tuple and isinstance(value, list):
            return tuple(_decoded(typing.get_args(choice)[0], entry, where) for entry in value)
        if choice is float and type(value) is int:
            return float(value)
        if type(value) is choice or (not isinstance(choice, type) and value == choice):
            return value
    raise SondeError(f"{where}: expected {_told(choices)}, got {value!r}")


def _choices(hint: Any) -> list[Any]:
    """The types and literals that a hint allows."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType, typing.Literal):
        return [choice for option in typing.get_args(hint) for choice in _choices(option)]
    return [typing.get_args(hint)[0]] if typing.get_origin(hint) is typing.Annotated else [hint]


def _told(choices: list[Any]) -> str:
    names = (choice.__name__ if isinstance(choice, type) else "None" if choice is None else repr(choice) for choice in choices)
    return " or ".join(names).replace("NoneType", "None")
