"""From words on the command line to the config that options then change: presets, worlds, and parts by name."""

import copy
import dataclasses
import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from sonde._internal import user_code
from sonde._internal.errors import SondeError, did_you_mean, first_line, one_of
from sonde._internal.precision import double_precision
from sonde._internal.user_code import is_in_file, load_from_file, with_absolute_path
from sonde.cli._prior import FIELDS_HELP, PRIORS, RANGES, RANGES_HELP, with_prior, without_ranges
from sonde.imagination import IMAGINATIONS, Imagination
from sonde.methods import METHODS, Method, method_named
from sonde.models import BETA_RULES, KERNELS, MODELS, BetaRule, Kernel, Model
from sonde.models._physics import Dynamics
from sonde.objectives import OBJECTIVES, Objective
from sonde.runs import PRESETS, RunConfig, default_config
from sonde.solvers import SOLVERS, Solver
from sonde.worlds import WORLDS, FmuWorld, GymWorld, HostWorld, JaxWorld, OwnSystem, World

GYM, FMU = "gym:", "fmu:"
_BY_FILE = (GymWorld, FmuWorld, OwnSystem)
_OTHERS = ", ".join(name for name, kind in WORLDS.items() if name not in PRESETS and kind not in _BY_FILE)
_PRESETS = textwrap.fill(", ".join(PRESETS), 120, break_on_hyphens=False, initial_indent=" " * 15, subsequent_indent=" " * 15)
WHAT_TO_EXPLORE = f"""  a preset     {_PRESETS.lstrip()}
  a world      {_OTHERS}, with default settings
  FILE.py:NAME a World of your own
  gym:ENV      any Gymnasium environment with continuous observations and actions: gym:Hopper-v5,
               gym:my_module:MyEnv-v0, or gym:FILE.py:NAME, a class or function of your own that makes one
  fmu:FILE     a plant of Modelica, Simulink or another tool, exported as an FMU for co-simulation: fmu:plant.fmu
"""


class Part(NamedTuple):
    """A part of a config that an option chooses by name."""

    table: Mapping[str, Any]
    """Names of the built-in ones."""
    kind: type
    """Class of which one in a user's file must be."""
    meaning: str
    """What the part does, for the help text."""


PARTS: dict[str, Part] = {
    "model": Part(MODELS, Model, "what learns the system"),
    "solver": Part(SOLVERS, Solver, "what plans, or trains a policy, on the model"),
    "method": Part(METHODS, Method, "how to explore: an imagination and an objective"),
    "beta-rule": Part(BETA_RULES, BetaRule, "how wide the confidence region is; none for a fixed beta"),
    "evaluation-imagination": Part(IMAGINATIONS, Imagination, "how plans for tasks treat what the model does not know"),
    "model.kernel": Part(KERNELS, Kernel, "covariance function of a Gaussian process"),
    "method.imagination": Part(IMAGINATIONS, Imagination, "how exploring plans treat what the model does not know"),
    "method.objective": Part(OBJECTIVES, Objective, "what exploring plans maximise"),
    "prior": Part({"none": None, **PRIORS}, Dynamics, "known physics; the model learns what it lacks"),
}
"""Options that choose a part by name, in the order in which they are applied."""


def parts_help(width: int = 120) -> str:
    """The options that choose parts, as a paragraph of a help text.

    Args:
        width: Longest line.
    """
    lines = ["These options choose a part, by NAME or as FILE.py:NAME, a class or object of your own:"]
    indent = 4 + max(len(f"--{name} NAME") for name in PARTS)
    for name, part in PARTS.items():
        option, text = f"  --{name} NAME", f"{part.meaning} ({', '.join(part.table)})"
        wrapped = textwrap.wrap(text, width - indent, break_on_hyphens=False)
        lines += [f"{left:<{indent}}{right}" for left, right in zip([option, *[""] * len(wrapped)], wrapped, strict=False)]
    lines += [f"  {RANGES} NAME=LOW:HIGH ...", f"{'':<{indent}}{RANGES_HELP}", FIELDS_HELP]
    return "\n".join(lines)


def named_system(command: str, args: list[str]) -> str | None:
    """The system that a command begins with.

    Args:
        command: Name of the command.
        args: Words after it.

    Returns:
        What was named; None if help was asked for instead, which is then printed.
    """
    if args and not args[0].startswith("-"):
        return args[0]
    if args and args[0] not in ("-h", "--help"):
        raise SondeError(f"{command}: name a preset first (or another system), then options:\n{WHAT_TO_EXPLORE.rstrip()}")
    print(f"usage: sonde {command} SYSTEM [options]\n\nSYSTEM is\n{WHAT_TO_EXPLORE}")
    print(f"'sonde {command} SYSTEM --help' lists all options with the values that SYSTEM gives them.")
    return None


def starting_point(name: str) -> RunConfig:
    """The config that a preset, a world, gym:ENV or fmu:FILE stands for.

    Args:
        name: What was named on the command line: a preset, a world, gym:ENV, fmu:FILE or FILE.py:NAME.
    """
    if name in PRESETS:
        return PRESETS[name]
    if name.startswith(GYM):
        return default_config(GymWorld(with_absolute_path(name.removeprefix(GYM))))
    if name.startswith(FMU):
        return default_config(FmuWorld(str(Path(name.removeprefix(FMU)).expanduser().absolute())))
    if is_in_file(name):
        return default_config(_checked_world(name))
    if name in WORLDS and WORLDS[name] is not OwnSystem:
        return default_config(WORLDS[name]())
    if name in WORLDS:
        raise SondeError(f"explore: {name!r} is a system that only you can run: use sonde.Experiment from Python")
    if name.endswith(user_code.FMU):
        raise SondeError(f"unknown preset {name!r}; for a plant of another tool: {FMU}{name}")
    if meant := did_you_mean(name, [*PRESETS, *WORLDS]):
        raise SondeError(f"unknown preset {name!r};{meant} 'sonde list' shows all presets and worlds")
    raise SondeError(f"unknown preset {name!r}; expected one of:\n{WHAT_TO_EXPLORE.rstrip()}")


def _checked_world(name: str) -> World:
    world = _from_file(name)
    if not isinstance(world, World):
        raise SondeError(f"{name} must be a World or a class of one, got {world!r}; for a Gymnasium environment: gym:{name}")
    return world


def _from_file(name: str) -> Any:
    """An object in a user's file, or one of a class there."""
    found = load_from_file(with_absolute_path(name))
    if not isinstance(found, type):
        return found
    try:
        return found()
    except TypeError as error:
        raise SondeError(f"{name} needs arguments ({error}): give its fields defaults, or name an object") from None


def try_world(world: World) -> None:
    """Take one step on a host world, and trace one on a world in JAX: one that fails does so before a folder is made.

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
    elif isinstance(world, JaxWorld):
        _trace(world)


@double_precision
def _trace(world: JaxWorld) -> None:
    """Find out whether a world in JAX can be reset and stepped, without computing anything."""
    name, spec = type(world).__name__, world.spec
    state, action = (jax.ShapeDtypeStruct((size,), np.float64) for size in (spec.state_dim, spec.action_dim))
    for what, function, given in (("reset", world.reset, ()), ("step", world.step, (state, action))):
        try:
            found = jax.eval_shape(function, *given, jax.random.key(0))
        except SondeError:
            raise
        except Exception as error:
            raise SondeError(f"{name}: its {what} failed: {type(error).__name__}: {first_line(error)}") from error
        if getattr(found, "shape", None) != state.shape:
            raise SondeError(f"{name}: its {what} must return a state {list(state.shape)}, got {found}")


def with_parts(config: RunConfig, args: list[str]) -> tuple[RunConfig, list[str]]:
    """Apply the options that choose a part by name. A part that changes has its default settings.

    Args:
        config: The config to change; it is checked later, when all options are applied.
        args: Words of the command line.

    Returns:
        The changed config, and the words that are left.
    """
    args, ranges = without_ranges(args)
    chosen, rest, words = dict[str, str](), [], iter(args)
    for word in words:
        option, equals, value = word.partition("=")
        part = option.removeprefix("--")
        if part not in PARTS or option == part:
            rest.append(word)
        else:
            chosen[part] = value if equals else next(words, "")
    prior = chosen.pop("prior", None)
    for part in PARTS:
        if part in chosen:
            config = _with_part(config, part, chosen[part])
    return _unchecked(config, "model", with_prior(config.model, prior, ranges)), rest


def _with_part(config: RunConfig, part: str, name: str) -> RunConfig:
    path = ["confidence", "beta_rule"] if part == "beta-rule" else part.replace("-", "_").split(".")
    owner = config if len(path) == 1 else getattr(config, path[0])
    if not any(field.name == path[-1] for field in dataclasses.fields(owner)):
        raise SondeError(f"--{part}: {type(owner).__name__} has no {path[-1]}; choose another {path[0]} first")
    current = getattr(owner, path[-1])
    table, kind, _ = PARTS[part]
    if is_in_file(name):
        value = _from_file(name)
        if not isinstance(value, kind):
            raise SondeError(f"--{part}: {name} must be a {kind.__name__} or a class of one, got {value!r}")
    else:
        one_of(part, name, table)
        value = method_named(name, config.method) if part == "method" else table[name]
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
        name: A preset, a world, gym:ENV, fmu:FILE or FILE.py:NAME.
    """
    if name.startswith(FMU):
        name = f"{FMU}{Path(name.removeprefix(FMU)).stem}"
    if is_in_file(name):
        path, attribute = name.removeprefix(GYM).rsplit(":", 1)
        name = f"{GYM if name.startswith(GYM) else ''}{Path(path).stem}:{attribute}"
    return re.sub(r"[^\w.-]+", "-", name)
