"""Configs as JSON: every object names its class, and has all of its fields.

    {"format": 3, "rounds": 10, "world": {"class": "sonde.worlds:Pendulum", "process_noise": 0.0}, ...}

Classes of Sonde are named by room and name, those of other packages as MODULE:NAME, and a class in a file of one's own as
FILE.py:NAME.
"""

import dataclasses
import importlib
import inspect
import itertools
import json
import sysconfig
import types
import typing
from pathlib import Path
from typing import Any, TypeVar

from sonde._internal.consent import CLASS, check_code, code_named
from sonde._internal.errors import SondeError, did_you_mean
from sonde._internal.reading import parse_json
from sonde._internal.user_code import is_in_file, load_from_file, loaded_module

FORMAT = 3
"""Number of the format; configs of another one are rejected."""
Config = TypeVar("Config")


def to_json(config: Any) -> str:
    """Write a config.

    Args:
        config: A dataclass whose fields are numbers, texts, objects of dataclasses, or tuples of these.

    Returns:
        Readable JSON with every field.
    """
    entries = {"format": FORMAT, **_fields(config, "")}
    return json.dumps(entries, indent=2) + "\n"


def from_json(kind: type[Config], text: str | bytes, source: str) -> Config:
    """Read a config; code that it names is loaded if it may run (`sonde._internal.consent`).

    Args:
        kind: The class of the config.
        text: What `to_json` wrote.
        source: Where the text comes from, for error messages.
    """
    entries = entries_of(text, source)
    check_code(entries, source)
    return _build(kind, {key: value for key, value in entries.items() if key != "format"}, source)


def entries_of(text: str | bytes, source: str) -> dict[str, Any]:
    """Read a config without building anything of it.

    Args:
        text: What `to_json` wrote.
        source: Where the text comes from, for error messages.
    """
    entries = parse_json(text, source)
    if not isinstance(entries, dict) or entries.get("format") != FORMAT:
        found = entries.get("format") if isinstance(entries, dict) else None
        raise SondeError(
            f"{source}: expected a config of format {FORMAT}, got {found!r}; it was made by another version of Sonde"
        )
    return entries


def part_of(kind: type[Config], entry: Any, source: str) -> Config:
    """Build one part of a config; code that it names is loaded if it may run.

    Args:
        kind: The class that the part must be of.
        entry: The part, as `entries_of` gives it.
        source: Where it comes from, for error messages.
    """
    check_code(entry, source)
    return _decoded(kind, entry, source)


def code_of(config: Any) -> list[str]:
    """Names of the code outside of Sonde that a config needs.

    Args:
        config: The config, with absolute paths.
    """
    return list(code_named(json.loads(to_json(config))))


def class_reference(kind: type) -> str:
    """How a config names a class.

    Args:
        kind: A class at the top level of its module.
    """
    module, name = kind.__module__, kind.__qualname__
    if module.split(".")[0] == "sonde":
        public = list(itertools.takewhile(lambda part: not part.startswith("_"), module.split(".")))
        rooms = [".".join(public[:size]) for size in range(2, len(public) + 1)]  # the outermost that has it
        room = next((room for room in rooms if hasattr(importlib.import_module(room), name)), rooms[0])
        return f"{room}:{name}"
    try:
        file = Path(inspect.getfile(kind)).resolve()
    except (OSError, TypeError):  # typed into a notebook or a shell
        file = None
    if file is None or "." in name:
        raise SondeError(f"config: {name} cannot be found again when the run is resumed; define it at the top level of a file")
    installed = (Path(sysconfig.get_paths()[place]).resolve() for place in ("purelib", "platlib", "stdlib"))
    in_package = "." in module or any(file.is_relative_to(folder) for folder in installed)
    return f"{module if in_package else file}:{name}"


def _fields(value: Any, where: str) -> dict[str, Any]:
    prefix = f"{where}." if where else ""
    return {field.name: _encoded(getattr(value, field.name), prefix + field.name) for field in dataclasses.fields(value)}


def _encoded(value: Any, where: str) -> Any:
    if isinstance(value, tuple):
        return [_encoded(entry, f"{where}[{number}]") for number, entry in enumerate(value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {CLASS: class_reference(type(value)), **_fields(value, where)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if callable(value):
        raise SondeError(
            f"config: {where} is {value!r}, and functions cannot be saved; write a frozen dataclass in its place, "
            "or name the function as FILE.py:NAME where a task or a prior is asked for"
        )
    raise SondeError(
        f"config: {where} is {value!r}, which cannot be saved; expected numbers, texts, tuples or frozen dataclasses"
    )


def _build(kind: Any, entries: dict[str, Any], where: str) -> Any:
    """An object from the values of its fields."""
    hints = typing.get_type_hints(kind)
    names = {field.name for field in dataclasses.fields(kind)}
    missing, expected = sorted(names - entries.keys()), ", ".join(sorted(names))
    if unknown := sorted(entries.keys() - names):
        meant = did_you_mean(unknown[0], missing)  # a field that is misspelt is missing too
        raise SondeError(f"{where}: unknown field(s) {', '.join(unknown)};{meant} expected {expected}")
    if missing:
        raise SondeError(
            f"{where}: missing field(s) {', '.join(missing)}; expected {expected}; "
            "a file without them was edited, or made by another version of Sonde"
        )
    values = {name: _decoded(hints[name], value, f"{where}: {name}") for name, value in entries.items()}
    try:
        return kind(**values)
    except SondeError as error:
        raise SondeError(f"{where}: {error}") from None


def _decoded(hint: Any, value: Any, where: str) -> Any:
    """A value of a JSON document as the type of a field."""
    choices = _choices(hint)
    if isinstance(value, dict):
        kind = _class_named(value.get(CLASS), where)
        if not any(issubclass(kind, choice) for choice in choices if isinstance(choice, type)):
            raise SondeError(f"{where}: expected {_described(choices)}, got {value[CLASS]}")
        return _build(kind, {key: entry for key, entry in value.items() if key != CLASS}, where)
    for choice in choices:
        if typing.get_origin(choice) is tuple and isinstance(value, list):
            return _decoded_tuple(choice, value, where)
        if choice is float and type(value) is int:
            return float(value)
        if type(value) is choice or (not isinstance(choice, type) and value == choice):
            return value
    raise SondeError(f"{where}: expected {_described(choices)}, got {value!r}")


def _decoded_tuple(hint: Any, values: list[Any], where: str) -> tuple[Any, ...]:
    kinds = typing.get_args(hint)
    if kinds[-1] is Ellipsis:
        kinds = kinds[:1] * len(values)
    if len(kinds) != len(values):
        raise SondeError(f"{where}: expected {len(kinds)} entries, got {len(values)}")
    return tuple(_decoded(kind, value, where) for kind, value in zip(kinds, values, strict=True))


def _class_named(reference: Any, where: str) -> type:
    """The class that a config names."""
    if not isinstance(reference, str) or ":" not in reference:
        raise SondeError(f"{where}: expected a class such as 'sonde.models:GaussianProcess', got {reference!r}")
    names: list[str] = []
    if is_in_file(reference):
        found = _from_file(reference)
    else:
        module, name = reference.rsplit(":", 1)
        try:
            room = importlib.import_module(module)
            found, names = getattr(room, name, None), dir(room)
        except Exception as error:  # a module of somebody else's may raise anything
            raise SondeError(f"{where}: {reference} cannot be imported ({type(error).__name__}: {error})") from None
    if not isinstance(found, type) or not dataclasses.is_dataclass(found):
        meant = did_you_mean(reference.rsplit(":", 1)[1], [other for other in names if other[:1].isupper()])
        raise SondeError(f"{where}: {reference} is not a dataclass, or does not exist{f';{meant}' if meant else ''}")
    return found


def _from_file(reference: str) -> Any:
    """What FILE.py:NAME names; a file that is a loaded module, such as the program itself, is not loaded again."""
    path, name = reference.rsplit(":", 1)
    module = loaded_module(Path(path))
    return load_from_file(reference) if module is None else getattr(module, name, None)


def _choices(hint: Any) -> list[Any]:
    """The types and literals that a hint allows."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType, typing.Literal):
        return [choice for option in typing.get_args(hint) for choice in _choices(option)]
    return [typing.get_args(hint)[0]] if typing.get_origin(hint) is typing.Annotated else [hint]


def _described(choices: list[Any]) -> str:
    names = (choice.__name__ if isinstance(choice, type) else repr(choice) for choice in choices)
    return " or ".join(names).replace("NoneType", "None")
