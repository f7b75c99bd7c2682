"""From words on the command line to the config that options then change: presets, worlds, kinds of model and solver."""

import difflib
import re
import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np

from sonde._internal.errors import SondeError, one_of
from sonde._internal.user_code import is_in_file, with_absolute_path
from sonde.models import MODELS
from sonde.runs._config import RunConfig
from sonde.runs._presets import PRESETS, for_world
from sonde.solvers import SOLVERS
from sonde.worlds import WORLDS, GymWorld, HostWorld, OwnSystem, World

GYM = "gym:"
_OTHERS = ", ".join(name for name, kind in WORLDS.items() if name not in PRESETS and kind not in (GymWorld, OwnSystem))
_PRESETS = textwrap.fill(", ".join(PRESETS), 115, break_on_hyphens=False, subsequent_indent=" " * 13)
WHAT_TO_EXPLORE = f"""  a preset   {_PRESETS}
  a world    {_OTHERS}, with settings for unknown systems
  gym:ENV    any Gymnasium environment with continuous observations and actions: gym:Hopper-v5, gym:my_module:MyEnv-v0,
             or gym:FILE.py:NAME, a class or function of your own that makes one
"""
KINDS = {"model": MODELS, "solver": SOLVERS}
CHOOSE_KINDS = "\n".join(f"--{part} NAME chooses another {part} ({', '.join(table)})." for part, table in KINDS.items())


def starting_point(name: str) -> RunConfig:
    """The config that a preset, a world or gym:ENV stands for."""
    if name in PRESETS:
        return PRESETS[name]
    if name.startswith(GYM):
        return for_world(GymWorld(with_absolute_path(name.removeprefix(GYM))))
    if name in WORLDS and WORLDS[name] is not OwnSystem:
        return for_world(WORLDS[name]())
    if name in WORLDS:
        raise SondeError(f"explore: {name!r} is a system that only you can run: see sonde.Experiment")
    close = difflib.get_close_matches(name, [*PRESETS, *WORLDS], 1)
    meant = f" did you mean {close[0]!r}?" if close else ""
    raise SondeError(f"unknown preset {name!r};{meant} expected one of:\n{WHAT_TO_EXPLORE.rstrip()}")


def try_world(world: World) -> None:
    """Take one step on a system outside of JAX: one that cannot be had or fails says so before a folder is made."""
    if isinstance(world, HostWorld):
        copies = world.open(1)
        try:
            copies.reset([0])
            copies.step(np.zeros((1, world.action_dim)))
        finally:
            copies.close()


def with_kinds(config: RunConfig, args: list[str]) -> tuple[RunConfig, list[str]]:
    """`--model NAME` and `--solver NAME`, taken out of `args` and obeyed: another kind comes with its default settings."""
    rest, words = [], iter(args)
    for word in words:
        option, equals, value = word.partition("=")
        part = option.removeprefix("--")
        if part not in KINDS or option == part:
            rest.append(word)
            continue
        value = value if equals else next(words, "")
        one_of(part, value, KINDS[part])
        kind = KINDS[part][value]
        if type(getattr(config, part)) is not kind:
            config = replace(config, **{part: kind()})
    return config, rest


def folder_name(name: str) -> str:
    """What a person asked for, as the name of a folder."""
    if is_in_file(name):
        path, attribute = name.removeprefix(GYM).rsplit(":", 1)
        name = f"{GYM}{Path(path).stem}:{attribute}"
    return re.sub(r"[^\w.-]+", "-", name)
