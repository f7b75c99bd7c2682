"""Tasks by name: those of a world, and functions in a person's own file (`rewards.py:stand_still`)."""

import functools
import importlib.util
import sys
import zlib
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sonde.errors import SondeError, first_line, one_of
from sonde.objectives import RewardFunction
from sonde.precision import double_precision
from sonde.worlds.base import World


def is_in_file(name: str) -> bool:
    """Whether the name is of the form FILE.py:NAME."""
    return ".py:" in name


def with_absolute_path(name: str) -> str:
    """The same name, from whatever folder it is read later."""
    if not is_in_file(name):
        return name
    path, attribute = name.rsplit(":", 1)
    return f"{Path(path).expanduser().absolute()}:{attribute}"


def load_from_file(name: str) -> Any:
    """What FILE.py:NAME names."""
    path, attribute = name.rsplit(":", 1)
    module = _module(str(Path(path).expanduser().absolute()))
    if not hasattr(module, attribute):
        public = [n for n in vars(module) if not n.startswith("_")]
        raise SondeError(f"{path} has no {attribute!r}; it has: {', '.join(public) or 'nothing'}")
    return getattr(module, attribute)


@functools.cache  # one file, one module: the compiler knows functions by their identity
def _module(path: str) -> Any:
    file = Path(path)
    if not file.is_file():
        raise SondeError(f"there is no file {path}; name one as FILE.py:NAME")
    # files of the same name in different folders are different modules
    spec = importlib.util.spec_from_file_location(f"sonde_user_{file.stem}_{zlib.crc32(path.encode()):08x}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up here
    sys.path.insert(0, str(file.parent))  # it may import its neighbours, as a script may
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[spec.name]
        raise SondeError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(str(file.parent))
    return module


@double_precision
def reward_named(world: World, name: str) -> RewardFunction:
    """The world's task of that name, or the function that FILE.py:NAME names."""
    if not is_in_file(name):
        if not world.tasks:
            raise SondeError(f"this world has no task of its own, got {name!r}; give a function as FILE.py:NAME")
        one_of("task", name, world.tasks)
        return world.tasks[name]
    return check_reward(world, load_from_file(name), name)


@double_precision
def check_reward(world: World, reward: RewardFunction, name: str) -> RewardFunction:
    """The same function, if it is one from a transition to a number; `name` is what errors call it."""
    x, u = jnp.zeros(world.state_dim), jnp.zeros(world.action_dim)
    try:
        result = jax.eval_shape(reward, x, u, x)
    except Exception as error:
        raise SondeError(
            f"{name} is not a reward: called as reward(x, u, x_next) with x [{world.state_dim}] and u [{world.action_dim}] it "
            f"failed with {type(error).__name__}: {first_line(error)}; write it with jax.numpy for one transition, and with "
            "jnp.where in place of if"
        ) from error
    if not hasattr(result, "shape") or result.shape != () or not jnp.issubdtype(result.dtype, jnp.floating):
        found = f"shape {list(result.shape)} of {result.dtype}" if hasattr(result, "shape") else repr(result)
        raise SondeError(f"{name} must return one real number per transition, got {found}")
    numbers: list[Any] = [np.zeros(n) for n in (world.state_dim, world.action_dim, world.state_dim)]
    try:
        reward(*numbers)
    except IndexError as error:  # JAX would take the last entry without a word
        raise SondeError(
            f"{name} asks for an entry that is not there ({error}): x has {world.state_dim} numbers "
            f"({', '.join(world.state_names)}), u has {world.action_dim}"
        ) from None
    except Exception:  # jax.numpy may want its own arrays, which it gets
        return reward
    return reward


def task_label(name: str) -> str:
    """A short name for tables and figures."""
    return name.rsplit(":", 1)[1] if is_in_file(name) else name
