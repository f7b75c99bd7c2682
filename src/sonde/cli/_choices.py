"""From words on the command line to the config that options then change: presets, worlds, and parts by name."""

import copy
import dataclasses
import difflib
import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sonde._internal.errors import SondeError, one_of
from sonde._internal.user_code import is_in_file, load_from_file, with_absolute_path
from sonde.imagination import IMAGINATIONS
from sonde.methods import METHODS, method_named
from sonde.models import BETA_RULES, KERNELS, MODELS
from sonde.objectives import OBJECTIVES
from sonde.runs import PRESETS, RunConfig, for_world
from sonde.solvers import SOLVERS
from sonde.worlds import WORLDS, GymWorld, HostWorld, OwnSystem, World

GYM = "gym:"
_OTHERS = ", ".join(name for name, kind in WORLDS.items() if name not in PRESETS and kind not in (GymWorld, OwnSystem))
_PRESETS = textwrap.fill(", ".join(PRESETS), 115, break_on_hyphens=False, subsequent_indent=" " * 15)
WHAT_TO_EXPLORE = f"""  a preset     {_PRESETS}
  a world      {_OTHERS}, with settings for unknown systems
  FILE.py:NAME a World of your own
  gym:ENV      any Gymnasium environment with continuous observations and actions: gym:Hopper-v5, gym:my_module:MyEnv-v0,
               or gym:FILE.py:NAME, a class or function of your own that makes one
"""
PARTS: dict[str, Mapping[str, Any]] = {
    "model": MODELS,
    "solver": SOLVERS,
    "method": METHODS,
    "beta-rule": BETA_RULES,
    "evaluation-imagination": IMAGINATIONS,
    "model.kernel": KERNELS,
    "method.imagination": IMAGINATIONS,
    "method.objective": OBJECTIVES,
}
"""Options that choose a part by name, in the order in which they are applied."""
CHOOSE_PARTS = "\n".join(
    f"--{part} NAME chooses the {part} ({', '.join(table)}, or FILE.py:NAME)." for part, table in PARTS.items()
)


def starting_point(name: str) -> RunConfig:
    """The config that a preset, a world or gym:ENV stands for.

    Args:
        name: What was named on the command line.

    """
    if name in PRESETS:
        return PRESETS[name]
    if name.startswith(GYM):
        return for_world(GymWorld(with_absolute_path(name.removeprefix(GYM))))
    if is_in_file(name):
        return for_world(_checked_world(name))
    if name in WORLDS and WORLDS[name] is not OwnSystem:
        return for_world(WORLDS[name]())
    if name in WORLDS:
        raise SondeError(f"explore: {name!r} is a system that only you can run: see sonde.Experiment")
    close = difflib.get_close_matches(name, [*PRESETS, *WORLDS], 1)
    meant = f" did you mean {close[0]!r}?" if close else ""
    raise SondeError(f"unknown preset {name!r};{meant} expected one of:\n{WHAT_TO_EXPLORE.rstrip()}")


def _checked_world(name: str) -> World:
    world = _from_file(name)
    if not isinstance(world, World):
        raise SondeError(f"{name} must be a World, or a class of one, got {world!r}; for a Gymnasium environment: gym:{name}")
    return world


def _from_file(name: str) -> Any:
    """An object of a user's file, or of a class there."""
    found = load_from_file(with_absolute_path(name))
    return found() if isinstance(found, type) else found


def try_world(world: World) -> None:
    """Take one step on a host world, so that one that fails says so before a folder is made.

    Args:
        world: The world to explore.

    """
    if isinstance(world, HostWorld):
        copies = world.open(1)
        try:
            copies.reset([0])
            copies.step(np.zeros((1, world.action_dim)))
        finally:
            copies.close()


def with_parts(config: RunConfig, args: list[str]) -> tuple[RunConfig, list[str]]:
    """Apply the options that choose a part by name; another part comes with its default settings.

    Args:
        config: The config to change.
        args: Words of the command line.

    Returns:
        The changed config, and the words that are left.

    """
    chosen, rest, words = dict[str, str](), [], iter(args)
    for word in words:
        option, equals, value = word.partition("=")
        part = option.removeprefix("--")
        if part not in PARTS or option == part:
            rest.append(word)
        else:
            chosen[part] = value if equals else next(words, "")
    for part in PARTS:
        if part in chosen:
            config = _with_part(config, part, chosen[part])
    return config, rest


def _with_part(config: RunConfig, part: str, name: str) -> RunConfig:
    path = ["confidence", "beta_rule"] if part == "beta-rule" else part.replace("-", "_").split(".")
    owner = config if len(path) == 1 else getattr(config, path[0])
    if not any(field.name == path[-1] for field in dataclasses.fields(owner)):
        raise SondeError(f"--{part}: {type(owner).__name__} has no {path[-1]}; choose another {path[0]} first")
    current = getattr(owner, path[-1])
    if is_in_file(name):
        value = _from_file(name)
    else:
        one_of(part, name, PARTS[part])
        value = method_named(name, config.method) if part == "method" else PARTS[part][name]
        if isinstance(value, type):
            value = current if type(current) is value else value()
        elif part != "method" and type(current) is type(value):
            value = current
    changed = _unchecked(owner, path[-1], value)
    return changed if len(path) == 1 else _unchecked(config, path[0], changed)


def _unchecked(owner: Any, field: str, value: Any) -> Any:
    """`dataclasses.replace` without checks: parts need only fit each other once all options are applied."""
    changed = copy.copy(owner)
    object.__setattr__(changed, field, value)
    return changed


def folder_name(name: str) -> str:
    """What was named on the command line, as the name of a folder.

    Args:
        name: A preset, a world, gym:ENV or FILE.py:NAME.

    """
    if is_in_file(name):
        path, attribute = name.removeprefix(GYM).rsplit(":", 1)
        name = f"{GYM if name.startswith(GYM) else ''}{Path(path).stem}:{attribute}"
    return re.sub(r"[^\w.-]+", "-", name)
