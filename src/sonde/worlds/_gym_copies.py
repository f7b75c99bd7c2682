"""Copies of a Gymnasium environment in lockstep, on Gymnasium's own vector environments.

Each copy is wrapped so that it takes actions in [-1, 1] and gives one flat float64 vector, whatever its spaces are. Rewards and
infos are left behind: what a transition is worth is for tasks to say.
"""

import contextlib
import functools
import inspect
import json
import math
import os
import platform
import traceback
from collections.abc import Generator, Iterator, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from sonde._internal.errors import SondeError, first_line
from sonde._internal.user_code import is_in_file, load_from_file
from sonde.worlds._base import Simulators, Stepped

LARGEST_STATE = 1000  # numbers; an image has more, and neither models nor planners here are made for it


class Interface(NamedTuple):
    """What a planner needs to know of an environment before it runs."""

    state_names: tuple[str, ...]
    action_names: tuple[str, ...]
    seconds_per_step: float | None
    pictures: bool
    """Whether it can be made so that it draws itself."""


@functools.cache
def interface(env: str, options: str) -> Interface:
    """Read once per process from an environment that is made for it, and closed."""
    made = make(env, options)
    try:
        states = tuple(name for path, box in _leaves(env, made.observation_space) for name in _names(path, box.shape))
        if not 0 < len(states) <= LARGEST_STATE:
            raise SondeError(
                f"{env}: its observations hold {len(states)} numbers, expected 1 to {LARGEST_STATE}; for images, wrap it so "
                "that it observes positions and velocities"
            )
        return Interface(states, _action_names(env, made.action_space), _seconds(made), _draws(env, made))
    finally:
        made.close()


def make(env: str, options: str, pictures: bool = False) -> gymnasium.Env:
    """The environment that was named, ready to draw itself if `pictures` says so."""
    keywords = json.loads(options)
    if pictures:
        keywords.setdefault("render_mode", "rgb_array")
    try:
        maker = load_from_file(env) if is_in_file(env) else functools.partial(gymnasium.make, env, disable_env_checker=True)
        made = maker(**keywords)
    except SondeError:
        raise
    except gymnasium.error.DependencyNotInstalled as error:
        hint = "for MuJoCo: pip install '.[mujoco]' in Sonde's folder"
        raise SondeError(f"{env} needs more than is installed ({error}); {hint}") from None
    except (gymnasium.error.Error, ImportError) as error:
        hint = "name an id such as Pendulum-v1 or my_module:MyEnv-v0, or a class of your own as FILE.py:NAME"
        raise SondeError(f"there is no environment {env!r} to be had ({first_line(error)}); {hint}") from None
    except Exception as error:
        raise SondeError(f"{env} cannot be made with options {options}: {_what_failed(error)}") from error
    if not isinstance(made, gymnasium.Env):
        raise SondeError(f"{env} must make a gymnasium.Env, got {type(made).__name__}")
    return made


def _leaves(env: str, space: Any, path: str = "") -> Iterator[tuple[str, spaces.Box]]:
    """The Boxes in an observation, in order, each with the way to it ("" if it is the whole)."""
    if isinstance(space, spaces.Box):
        yield path, space
    elif isinstance(space, spaces.Dict | spaces.Tuple):
        for key, part in space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces):
            yield from _leaves(env, part, f"{path}.{key}" if path else str(key))
    else:
        what = f"the part {path!r} of its observations is" if path else "its observations are"
        raise SondeError(
            f"{env}: {what} {space}; expected real numbers (Box, or Dict and Tuple of Boxes): leave out or convert what is "
            "not, in a gymnasium.ObservationWrapper"
        )


def _flat(space: Any, value: Any) -> Iterator[np.ndarray]:
    """The numbers of an observation, in the order of `_leaves`."""
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            yield from _flat(part, value[key])
    elif isinstance(space, spaces.Tuple):
        for part, item in zip(space.spaces, value, strict=True):
            yield from _flat(part, item)
    else:
        array = np.asarray(value, dtype=np.float64).reshape(-1)
        if array.size != math.prod(space.shape):
            raise SondeError(f"an observation of shape {list(np.shape(value))} came, its space promises {list(space.shape)}")
        yield array


def _names(path: str, shape: tuple[int, ...]) -> list[str]:
    if not path:
        return [f"x{number}" for number in range(math.prod(shape))]
    return [f"{path}[{','.join(map(str, place))}]" if place else path for place in np.ndindex(*shape)]


def _action_names(env: str, space: Any) -> tuple[str, ...]:
    if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
        hint = "environments often have a continuous version (MountainCarContinuous-v0), or wrap it so that it takes a Box"
        raise SondeError(f"{env}: its actions are {space}; Sonde plans continuous actions, a Box of real numbers; {hint}")
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()) or math.prod(space.shape) == 0:
        hint = "wrap it in gymnasium.wrappers.RescaleAction or ClipAction, or give its action_space finite low and high"
        raise SondeError(f"{env}: its actions are {space}; expected at least one, and bounds on each; {hint}")
    return tuple(f"u{number}" for number in range(math.prod(space.shape)))


def _seconds(made: gymnasium.Env) -> float | None:
    """The time step, if it says so; the speed at which it wants to be shown is the next best."""
    for given, invert in ((getattr(made.unwrapped, "dt", None), False), (made.metadata.get("render_fps"), True)):
        if isinstance(given, int | float | np.number) and 0 < given < math.inf:
            return 1 / float(given) if invert else float(given)
    return None


def _draws(env: str, made: gymnasium.Env) -> bool:
    if "rgb_array" not in (made.metadata.get("render_modes") or ()):
        return False
    if not is_in_file(env):
        return True
    parameters = inspect.signature(load_from_file(env)).parameters
    return "render_mode" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


class Flat(gymnasium.Wrapper):
    """Actions in [-1, 1], observations as one vector; errors of the environment say whose they are."""

    def __init__(self, env: gymnasium.Env, name: str):
        """`name` is for messages."""
        super().__init__(env)
        self.name, inner = name, env.action_space
        assert isinstance(inner, spaces.Box)
        self.inner_actions, self.inner_observations = inner, env.observation_space
        low, high = inner.low.astype(np.float64), inner.high.astype(np.float64)
        self.centre, self.half_range = (low + high) / 2, (high - low) / 2
        size = sum(math.prod(box.shape) for _, box in _leaves(name, env.observation_space))
        self.observation_space = spaces.Box(-np.inf, np.inf, (size,), np.float64)
        self.action_space = spaces.Box(-1.0, 1.0, (self.centre.size,), np.float64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """The first observation."""
        with _blaming(self.name, "reset"):
            observation, _ = self.env.reset(seed=seed, options=options)
            return self._state(observation), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        """The next observation, and whether the episode is over."""
        scaled = self.centre + self.half_range * np.clip(action, -1.0, 1.0).reshape(self.centre.shape)
        with _blaming(self.name, "step"):
            observation, _, terminated, truncated, _ = self.env.step(scaled.astype(self.inner_actions.dtype))
            return self._state(observation), 0.0, bool(terminated), bool(truncated), {}

    def render(self) -> Any:
        """An image from a copy that was made to draw, nothing from others."""
        if self.env.render_mode != "rgb_array":
            return None
        if platform.system() == "Linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
            os.environ.setdefault("MUJOCO_GL", "egl")  # else MuJoCo environments look for a screen, in vain
        return self.env.render()

    def _state(self, observation: Any) -> np.ndarray:
        return np.concatenate(list(_flat(self.inner_observations, observation)))


def _make_flat(env: str, options: str, pictures: bool) -> Flat:
    return Flat(make(env, options, pictures), env)


class GymCopies(Simulators):
    """S copies on a vector environment that never resets by itself."""

    def __init__(self, env: str, options: str, num_copies: int, processes: bool):
        """All in this process, or each in one of its own."""
        self.env, self.pictures = env, interface(env, options).pictures
        makers = [functools.partial(_make_flat, env, options, self.pictures and copy == 0) for copy in range(num_copies)]
        if processes:
            # not forked: JAX has threads, and a fork of a process with threads may hang
            self.copies = AsyncVectorEnv(makers, context="spawn", autoreset_mode=AutoresetMode.DISABLED)
        else:
            self.copies = SyncVectorEnv(makers, autoreset_mode=AutoresetMode.DISABLED)

    def reset(self, seeds: Sequence[int]) -> np.ndarray:
        """Seed and start every copy."""
        with _blaming(self.env, "reset"):
            return self.copies.reset(seed=list(seeds))[0]

    def step(self, actions: np.ndarray) -> Stepped:
        """Advance every copy; the vector environment gives fresh arrays each time."""
        with _blaming(self.env, "step"):
            states, _, terminated, truncated, _ = self.copies.step(np.asarray(actions, np.float64))
        return Stepped(states, terminated, truncated)

    def restart(self, which: np.ndarray) -> np.ndarray:
        """Start some copies anew, by their own generators."""
        with _blaming(self.env, "reset"):
            return self.copies.reset(options={"reset_mask": np.asarray(which, bool)})[0]

    def picture(self) -> np.ndarray:
        """What the first copy draws."""
        if not self.pictures:
            raise SondeError(f"{self.env} has no pictures: it must offer render_mode 'rgb_array', in its metadata and __init__")
        try:
            image = np.asarray(self.copies.call("render")[0])
        except Exception as error:
            hint = "for MuJoCo without a screen, install EGL or set MUJOCO_GL=osmesa; others say what they need"
            raise SondeError(f"{self.env} cannot be drawn: {_what_failed(error)}; {hint}") from error
        if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
            raise SondeError(f"{self.env}: expected an image, uint8 [height, width, 3], got {image.dtype} {list(image.shape)}")
        return image

    def close(self) -> None:
        """End processes and windows."""
        self.copies.close()


@contextlib.contextmanager
def _blaming(env: str, what: str) -> Generator[None]:
    """Errors of an environment, as one line that says where it failed."""
    try:
        yield
    except SondeError as error:
        raise error if str(error).startswith(env) else SondeError(f"{env}: {error}") from None
    except (EOFError, ConnectionError) as error:
        raise SondeError(
            f"{env}: its process ended during {what} ({type(error).__name__}); try it without processes"
        ) from error
    except Exception as error:
        raise SondeError(f"{env}: its {what} failed: {_what_failed(error)}") from error


def _what_failed(error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {first_line(error)} ({frame.filename}, line {frame.lineno})"
