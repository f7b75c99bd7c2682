"""Options of the commands, read from their dataclasses as the parser reads them: names, help and what they take."""

import ast
import dataclasses
import functools
import inspect
import re
import textwrap
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tyro

HELP_LENGTH = 72
"""Longest help of an option, in characters."""
KNOWN: dict[str, str] = {
    "method": "methods",
    "task": "tasks",
    "exploration_task": "tasks",
    "evaluation_tasks": "tasks",
    "set": "settings",
    "until": "rules",
    "data": "data",
    "files": "data",
    "system": "systems",
    "out": "files",
}
"""What texts stand for, by the name of the field; `out` may also be a path, whose help says what of."""

Option = dict[str, Any]
"""`help`; `takes`: a kind of value or a list of values, where that is known; `flag`: it takes nothing; `many`: it takes any
number of values, `count`: how many otherwise; `again`: it may be given several times; `of`: the parts that have it, where not
all do; `path`: its place in a config, where that is not its name."""


def options_of_class(kind: Any) -> tuple[dict[str, Option], list[Option]]:
    """Options and positional words of a command.

    Args:
        kind: The dataclass of its arguments.

    Returns:
        Options by name, and one entry for each positional argument, in their order.
    """
    options, positional = dict[str, Option](), list[Option]()
    hints = typing.get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        if tyro.conf.Positional in _marks(hint):
            positional.append(_option(kind, field.name, hint))
        elif not any(map(_is_part, _alternatives(hint))):
            options[f"--{_word(field.name)}"] = _option(kind, field.name, hint)  # flags are off by default
        elif _is_unnamed(hint) and field.default_factory is not dataclasses.MISSING:  # a part whose options are the command's
            every = options_of_value(field.default_factory())
            options |= {name: option for name, option in every if not name.startswith("--no-")}
    return options, positional


def options_of_value(value: Any, prefix: str = "", place: str = "") -> Iterator[tuple[str, Option]]:
    """Options for all fields of a config, and of the parts of it that are dataclasses.

    Args:
        value: The config, or a part of it.
        prefix: What the names of its options begin with.
        place: Where it is in the config.
    """
    hints = typing.get_type_hints(type(value), include_extras=True)
    for field in dataclasses.fields(value):
        hint, inner, path = hints[field.name], getattr(value, field.name), place + field.name
        if dataclasses.is_dataclass(inner):
            yield from options_of_value(inner, prefix if _is_unnamed(hint) else f"{prefix}{_word(field.name)}.", f"{path}.")
        elif isinstance(inner, tuple) and any(map(dataclasses.is_dataclass, inner)):
            for number, entry in enumerate(inner):
                yield from options_of_value(entry, f"{prefix}{_word(field.name)}.{number}.", f"{path}.{number}.")
        elif not any(map(_is_part, _alternatives(hint))):  # a part that is missing is chosen by name
            option = _option(type(value), field.name, hint)
            if path.replace("_", "-") != prefix + _word(field.name):
                option["path"] = path
            yield from _named(prefix, field.name, option).items()


def _named(prefix: str, field: str, option: Option) -> dict[str, Option]:
    names = [f"--{prefix}{_word(field)}", *([f"--{prefix}no-{_word(field)}"] if "flag" in option else [])]
    return dict.fromkeys(names, option)


def _word(field: str) -> str:
    return field.replace("_", "-")


def _marks(hint: Any) -> tuple[Any, ...]:
    return getattr(hint, "__metadata__", ())


def _is_unnamed(hint: Any) -> bool:
    """Whether the options of a part have no prefix."""
    return any(getattr(mark, "name", None) == "" for mark in _marks(hint))


def _alternatives(hint: Any) -> list[Any]:
    """The types and literals that a hint allows, those of the entries of a tuple included."""
    inner = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Annotated:
        return _alternatives(inner[0])
    if typing.get_origin(hint) is typing.Literal or not inner:
        return [hint]
    return [alternative for part in inner if part is not Ellipsis for alternative in _alternatives(part)]


def _is_part(kind: Any) -> bool:
    return isinstance(kind, type) and kind.__module__.startswith("sonde.")


def _option(owner: type, field: str, hint: Any) -> Option:
    kinds, text = _alternatives(hint), docstrings(owner).get(field, "")
    option: Option = {"help": first_sentence(text)}
    literals = [str(value) for kind in kinds if typing.get_origin(kind) is typing.Literal for value in typing.get_args(kind)]
    if bool in kinds:
        option["flag"] = True
    elif literals:
        option["takes"] = literals
    elif Path in kinds:
        option["takes"] = "folders" if text.startswith("Folder") else "files"
    elif str in kinds and field in KNOWN:
        option["takes"] = KNOWN[field]
    if tyro.conf.UseAppendAction in _marks(hint):
        option["again"] = True
    elif (number := _values_of(hint)) != 1:
        option |= {"count": number} if number else {"many": True}
    return option


def _values_of(hint: Any) -> int:
    """How many values an option takes; 0 for any number."""
    inner = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Annotated:
        return _values_of(inner[0])
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        numbers = [_values_of(kind) for kind in inner]
        return 0 if 0 in numbers else max(numbers)
    if typing.get_origin(hint) is not tuple:
        return 1
    return 0 if inner[-1] is Ellipsis else sum(map(_values_of, inner))


def first_sentence(text: str) -> str:
    """The first sentence of a docstring, in one short line.

    Args:
        text: The docstring.
    """
    sentence = re.split(r"(?<=[^.])\.\s|;\s", " ".join(text.split()))[0].rstrip(".")
    return textwrap.shorten(sentence, HELP_LENGTH, placeholder=" ...")


@functools.cache
def docstrings(kind: type) -> dict[str, str]:
    """Docstrings of the fields of a class, and of its bases: the text below each.

    Args:
        kind: The class.
    """
    found = dict[str, str]()
    for base in reversed(kind.__mro__):
        if dataclasses.is_dataclass(base):
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
            assert isinstance(tree, ast.ClassDef)
            for above, below in zip(tree.body, tree.body[1:], strict=False):
                if isinstance(above, ast.AnnAssign) and isinstance(above.target, ast.Name) and isinstance(below, ast.Expr):
                    found[above.target.id] = str(ast.literal_eval(below.value))
    return found
