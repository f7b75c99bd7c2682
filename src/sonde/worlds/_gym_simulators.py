"""Copies of a Gymnasium environment, on Gymnasium's own vector environments.

Each copy is wrapped so that it takes actions in [-1, 1] and returns one flat float64 vector, whatever its spaces are. Rewards
and infos are dropped: the reward of a transition is defined by tasks.
"""

import contextlib
import functools
import inspect
import json
import math
import os
import platform
import signal
import threading
import traceback
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from multiprocessing import resource_tracker
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from sonde._internal.errors import SondeError, did_you_mean, first_line
from sonde._internal.user_code import is_in_file, load_from_file
from sonde.worlds._base import Simulators, Stepped

MAX_STATE_DIM = 1000
"""Observations with more numbers are rejected: models and planners are not made for images."""


class EnvInterface(NamedTuple):
    """What has to be known about an environment before it runs."""

    state_names: tuple[str, ...]
    """A name for each number of an observation."""
    action_names: tuple[str, ...]
    """A name for each number of an action."""
    seconds_per_step: float | None
    """Duration of a step; None if the environment does not say."""
    can_render: bool
    """Whether it can be created with render_mode 'rgb_array'."""


@functools.cache
def read_interface(env: str, options: str) -> EnvInterface:
    """Create an environment to read its interface, and close it; cached per process.

    Args:
        env: Id or FILE.py:NAME of the environment.
        options: Its keyword arguments, as a JSON object.
    """
    made = make_env(env, options)
    try:
        states = tuple(name for path, box in _boxes(env, made.observation_space) for name in _names(path, box.shape))
        if not 0 < len(states) <= MAX_STATE_DIM:
            raise SondeError(
                f"{env}: expected observations of 1 to {MAX_STATE_DIM} numbers, got {len(states)}; for images, wrap it so "
                "that it observes positions and velocities"
            )
        return EnvInterface(states, _action_names(env, made.action_space), _seconds(made), _can_render(env, made))
    finally:
        made.close()


def make_env(env: str, options: str, render: bool = False) -> gymnasium.Env:
    """Create an environment.

    Args:
        env: Id or FILE.py:NAME of the environment.
        options: Its keyword arguments, as a JSON object.
        render: Whether to create it with render_mode 'rgb_array'.
    """
    keywords = json.loads(options)
    if render:
        keywords.setdefault("render_mode", "rgb_array")
    try:
        maker = load_from_file(env) if is_in_file(env) else functools.partial(gymnasium.make, env, disable_env_checker=True)
        made = maker(**keywords)
    except SondeError:
        raise
    except gymnasium.error.DependencyNotInstalled as error:
        hint = "for MuJoCo: pip install '.[mujoco]' in Sonde's folder"
        raise SondeError(f"{env} needs a package that is not installed ({error}); {hint}") from None
    except (gymnasium.error.Error, ImportError) as error:
        hint = "give an id such as Pendulum-v1 or my_module:MyEnv-v0, or your own class as FILE.py:NAME"
        unknown = isinstance(error, gymnasium.error.UnregisteredEnv)
        meant = did_you_mean(env, gymnasium.registry) if unknown else ""
        why = meant or f" {hint} ({first_line(error)})"
        raise SondeError(f"environment {env!r} was not found;{why}") from None
    except Exception as error:
        raise SondeError(f"{env} cannot be created with options {options}: {_describe_error(error)}") from error
    if not isinstance(made, gymnasium.Env):
        raise SondeError(f"{env} must create a gymnasium.Env, got {type(made).__name__}")
    return made


def _boxes(env: str, space: Any, path: str = "") -> Iterator[tuple[str, spaces.Box]]:
    """The Boxes of an observation space in order, each with its path ("" if it is the whole space)."""
    if isinstance(space, spaces.Box):
        yield path, space
    elif isinstance(space, spaces.Dict | spaces.Tuple):
        for key, part in space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces):
            yield from _boxes(env, part, f"{path}.{key}" if path else str(key))
    else:
        what = f"part {path!r} of its observations is" if path else "its observations are"
        raise SondeError(
            f"{env}: {what} {space}; expected real numbers (Box, or Dict and Tuple of Boxes): remove or convert the rest "
            "in a gymnasium.ObservationWrapper"
        )


def _flatten(space: Any, value: Any) -> Iterator[np.ndarray]:
    """The numbers of an observation, in the order of `_boxes`."""
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            yield from _flatten(part, value[key])
    elif isinstance(space, spaces.Tuple):
        for part, item in zip(space.spaces, value, strict=True):
            yield from _flatten(part, item)
    else:
        array = np.asarray(value, dtype=np.float64).reshape(-1)
        if array.size != math.prod(space.shape):
            raise SondeError(
                f"expected an observation of shape {list(space.shape)}, as its space says, got {list(np.shape(value))}"
            )
        yield array


def _names(path: str, shape: tuple[int, ...]) -> list[str]:
    if not path:
        return [f"x{number}" for number in range(math.prod(shape))]
    return [f"{path}[{','.join(map(str, index))}]" if index else path for index in np.ndindex(*shape)]


def _action_names(env: str, space: Any) -> tuple[str, ...]:
    if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
        hint = "environments often have a continuous version (MountainCarContinuous-v0), or wrap it so that it takes a Box"
        raise SondeError(f"{env}: its actions are {space}; Sonde plans continuous actions, a Box of real numbers; {hint}")
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()) or math.prod(space.shape) == 0:
        hint = "wrap it in gymnasium.wrappers.RescaleAction or ClipAction, or give its action_space finite low and high"
        raise SondeError(f"{env}: its actions are {space}; expected at least one number, each with finite bounds; {hint}")
    return tuple(f"u{number}" for number in range(math.prod(space.shape)))


def _seconds(made: gymnasium.Env) -> float | None:
    """The time step if the environment has one, else the time between rendered frames."""
    for given, invert in ((getattr(made.unwrapped, "dt", None), False), (made.metadata.get("render_fps"), True)):
        if isinstance(given, int | float | np.number) and 0 < given < math.inf:
            return 1 / float(given) if invert else float(given)
    return None


def _can_render(env: str, made: gymnasium.Env) -> bool:
    if "rgb_array" not in (made.metadata.get("render_modes") or ()):
        return False
    if not is_in_file(env):
        return True
    parameters = inspect.signature(load_from_file(env)).parameters
    return "render_mode" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


class FlatEnv(gymnasium.Wrapper):
    """An environment with actions in [-1, 1] and observations as one vector, whose errors carry its name."""

    def __init__(self, env: gymnasium.Env, name: str):
        """Wrap an environment.

        Args:
            env: The environment.
            name: Its name in error messages.
        """
        super().__init__(env)
        self.name, inner = name, env.action_space
        assert isinstance(inner, spaces.Box)
        self.inner_actions, self.inner_observations = inner, env.observation_space
        low, high = inner.low.astype(np.float64), inner.high.astype(np.float64)
        self.centre, self.half_range = (low + high) / 2, (high - low) / 2
        size = sum(math.prod(box.shape) for _, box in _boxes(name, env.observation_space))
        self.observation_space = spaces.Box(-np.inf, np.inf, (size,), np.float64)
        self.action_space = spaces.Box(-1.0, 1.0, (self.centre.size,), np.float64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Start an episode, as in Gymnasium."""
        with _named_errors(self.name, "reset"):
            observation, _ = self.env.reset(seed=seed, options=options)
            return self._state(observation), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Take a step, as in Gymnasium; the reward is always 0."""
        scaled = self.centre + self.half_range * np.clip(action, -1.0, 1.0).reshape(self.centre.shape)
        with _named_errors(self.name, "step"):
            observation, _, terminated, truncated, _ = self.env.step(scaled.astype(self.inner_actions.dtype))
            return self._state(observation), 0.0, bool(terminated), bool(truncated), {}

    def render(self) -> Any:
        """Return an image if the environment was created to render, else None."""
        if self.env.render_mode != "rgb_array":
            return None
        if platform.system() == "Linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
            os.environ.setdefault("MUJOCO_GL", "egl")  # by default MuJoCo environments need a screen
        return self.env.render()

    def _state(self, observation: Any) -> np.ndarray:
        return np.concatenate(list(_flatten(self.inner_observations, observation)))


def _make_flat(env: str, options: str, render: bool) -> FlatEnv:
    return FlatEnv(make_env(env, options, render), env)


class ProcessCopies(AsyncVectorEnv):
    """Copies in processes, any of which may die at any time."""

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """End all processes, also those of which the others know nothing any more."""
        try:
            with warnings.catch_warnings(action="ignore"):  # about a call that a process did not answer before it died
                super().close_extras(timeout, terminate)
        except Exception:  # a process that has died does not answer
            for process in getattr(self, "processes", ()):
                process.kill()


class GymSimulators(Simulators):
    """S copies on a vector environment without automatic resets; only the first copy can render."""

    def __init__(self, env: str, makers: Sequence[Callable[[], FlatEnv]], processes: bool, can_render: bool = False):
        """Create the copies.

        Args:
            env: Name of the environment in error messages.
            makers: What makes each of the S copies.
            processes: Whether each copy has its own process.
            can_render: Whether the first copy can be drawn.
        """
        self.env, self.can_render = env, can_render
        if processes:
            # not forked: JAX has threads, and a fork of a process with threads may hang
            with _named_errors(env, "start"), _children_without_interrupts():
                self.copies = ProcessCopies(makers, context="spawn", autoreset_mode=AutoresetMode.DISABLED)
        else:
            self.copies = SyncVectorEnv(makers, autoreset_mode=AutoresetMode.DISABLED)

    @classmethod
    def of_env(cls, env: str, options: str, num_copies: int, processes: bool) -> "GymSimulators":
        """Create copies of an environment that has a name.

        Args:
            env: Id or FILE.py:NAME of the environment.
            options: Its keyword arguments, as a JSON object.
            num_copies: Number of copies S.
            processes: Whether each copy has its own process.
        """
        can_render = read_interface(env, options).can_render
        makers = [functools.partial(_make_flat, env, options, can_render and copy == 0) for copy in range(num_copies)]
        return cls(env, makers, processes, can_render)

    def reset(self, seeds: Sequence[int]) -> np.ndarray:
        """Seed and start every copy."""
        with _named_errors(self.env, "reset"):
            return self.copies.reset(seed=list(seeds))[0]

    def step(self, actions: np.ndarray) -> Stepped:
        """Advance every copy."""
        with _named_errors(self.env, "step"):
            states, _, terminated, truncated, _ = self.copies.step(np.asarray(actions, np.float64))
        return Stepped(states, terminated, truncated)  # the vector environment returns new arrays at every step

    def restart(self, which: np.ndarray) -> np.ndarray:
        """Start new episodes in some copies, with each copy's own random generator."""
        with _named_errors(self.env, "reset"):
            return self.copies.reset(options={"reset_mask": np.asarray(which, bool)})[0]

    def render(self) -> np.ndarray:
        """Render the first copy."""
        if not self.can_render:
            raise SondeError(f"{self.env} cannot be drawn: it must offer render_mode 'rgb_array', in its metadata and __init__")
        try:
            image = np.asarray(self.copies.call("render")[0])
        except Exception as error:
            hint = "for MuJoCo without a screen, install EGL or set MUJOCO_GL=osmesa"
            raise SondeError(f"{self.env} cannot be drawn: {_describe_error(error)}; {hint}") from error
        if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
            raise SondeError(f"{self.env}: expected an image, uint8 [height, width, 3], got {image.dtype} {list(image.shape)}")
        return image

    def close(self) -> None:
        """End processes and close windows."""
        self.copies.close()


@contextlib.contextmanager
def _children_without_interrupts() -> Generator[None]:
    """Start processes that ignore Ctrl-C, which reaches them too: this process ends them, and says one sentence for all.

    Here it is heard once they have started, because a process that is ended in the middle of its start complains.
    """
    resource_tracker.ensure_running()  # a process of Python's own, whose start would undo the next line
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # which these processes inherit
    handler, heard = signal.getsignal(signal.SIGINT), []
    in_main_thread = threading.current_thread() is threading.main_thread()  # others have no handlers
    if in_main_thread:
        signal.signal(signal.SIGINT, lambda *event: heard.append(event))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if in_main_thread:
            signal.signal(signal.SIGINT, handler)
        if heard and callable(handler):
            handler(*heard[0])


@contextlib.contextmanager
def _named_errors(env: str, what: str) -> Generator[None]:
    """Turn errors of an environment into one line that says where it failed."""
    try:
        yield
    except SondeError as error:
        raise error if str(error).startswith(env) else SondeError(f"{env}: {error}") from None
    except (EOFError, ConnectionError) as error:
        raise SondeError(
            f"{env}: its process ended during {what} ({type(error).__name__}); try it without processes"
        ) from error
    except Exception as error:
        raise SondeError(f"{env}: its {what} failed: {_describe_error(error)}") from error


def _describe_error(error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {first_line(error)} ({frame.filename}, line {frame.lineno})"
