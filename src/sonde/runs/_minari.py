"""Read and write local Minari datasets (extra `data`), without network access.

A Minari dataset holds episodes of T actions and T + 1 observations. Its actions are in the units of its action space, Sonde's
in [-1, 1]: they are rescaled when read, and written unchanged with an action space of [-1, 1].
"""

import contextlib
import importlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from sonde._internal.errors import SondeError, did_you_mean
from sonde.data import Trajectory
from sonde.runs._measurements import LARGEST, MINARI, checked, columns, too_large
from sonde.worlds import World

Found = TypeVar("Found")
IDENTIFIER = re.compile(r"[\w-]+(/[\w-]+)*-v\d+")


def datasets_folder() -> Path:
    """The folder in which Minari keeps its datasets."""
    given = os.environ.get("MINARI_DATASETS_PATH")
    return Path(given) if given is not None else Path.home() / ".minari" / "datasets"


def dataset_folder(name: str) -> Path:
    """The folder of a dataset, whether it exists or not.

    Args:
        name: Id of the dataset, such as GROUP/NAME-v0.
    """
    if not IDENTIFIER.fullmatch(name):
        raise SondeError(f"{MINARI}{name}: expected a dataset's id such as NAME-v0 or GROUP/NAME-v0")
    return datasets_folder() / name


def _minari() -> Any:
    try:
        return importlib.import_module("minari")
    except ImportError:
        raise SondeError("Minari datasets need the package minari: pip install '.[data]' in Sonde's folder") from None


# Reading


def read_minari(name: str, world: World) -> Trajectory:
    """Read all transitions of a local dataset.

    Args:
        name: Id of the dataset.
        world: The system that was measured.

    Returns:
        Transitions [N, ...], with actions rescaled to [-1, 1].
    """
    source, episodes = f"{MINARI}{name}", _from_dataset(name, _episodes)
    starts = np.cumsum([0, *(len(actions) for _, actions in episodes)])

    def place(array: str, row: int, column: int) -> str:
        number = int(np.searchsorted(starts, row, side="right")) - 1
        return f"episode {number}, step {row - starts[number]}, {columns(world)[array][column]!r} (actions rescaled to [-1, 1])"

    arrays = {
        "states": np.concatenate([states[:-1] for states, _ in episodes]),
        "actions": np.concatenate([actions for _, actions in episodes]),
        "next_states": np.concatenate([states[1:] for states, _ in episodes]),
    }
    return checked(source, arrays, world, place)


def dimensions(name: str) -> tuple[int, int]:
    """Numbers in a flat observation, and in an action, of a local dataset.

    Args:
        name: Id of the dataset.
    """
    from gymnasium.spaces import flatdim

    return _from_dataset(name, lambda _, dataset: (flatdim(dataset.observation_space), flatdim(dataset.action_space)))


def _from_dataset(name: str, read: Callable[[str, Any], Found]) -> Found:
    """What a function finds in a local dataset."""
    source, folder = f"{MINARI}{name}", dataset_folder(name)
    minari = _minari()
    if not (folder / "data").is_dir():
        found = [str(p.parent.parent.relative_to(datasets_folder())) for p in datasets_folder().rglob("data/metadata.json")]
        raise SondeError(
            f"{source}: there is no such dataset in {datasets_folder()}, which has: {', '.join(sorted(found)) or 'none'};"
            f"{did_you_mean(name, found)} 'minari download {name}' gets one that is published"
        )
    try:
        return read(source, minari.load_dataset(name, download=False))
    except SondeError:
        raise
    except Exception as error:  # Minari raises many kinds for files that are damaged or of another version
        raise SondeError(f"{source} cannot be read: {type(error).__name__}: {error}") from None


def _episodes(source: str, dataset: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    """States [T + 1, dx] and rescaled actions [T, du] of each episode."""
    centre, reach = _scale(source, dataset.action_space)
    if dataset.total_steps > LARGEST:
        raise too_large(source, f"{dataset.total_steps:,}")
    found = []
    for number, episode in enumerate(dataset.iterate_episodes()):
        states = _flat(source, dataset.observation_space, episode.observations)
        actions = np.asarray(episode.actions, dtype=np.float64)
        if len(states) != len(actions) + 1:
            raise SondeError(
                f"{source}: episode {number} must have one observation more than actions, got {len(states)} and {len(actions)}"
            )
        found.append((states, (actions.reshape(len(actions), len(reach)) - centre) / reach))
    if not found:
        raise SondeError(f"{source}: it has no episodes; leave out --data to start from nothing")
    return found


def _scale(source: str, space: Any) -> tuple[np.ndarray, np.ndarray]:
    """Centre and half-width of an action space, flat [du]; rescaling from [-1, 1] to [-1, 1] changes no bit."""
    from gymnasium.spaces import Box

    if not isinstance(space, Box):
        raise SondeError(f"{source}: expected an action space of real numbers (Box), got {space}; Sonde learns no other")
    low, high = (np.asarray(bound, dtype=np.float64).reshape(-1) for bound in (space.low, space.high))
    if not np.isfinite([low, high]).all() or (low >= high).any():
        raise SondeError(
            f"{source}: expected an action space with two different finite bounds, got {space}; "
            "save the measurements as FILE.npz, with actions scaled to [-1, 1]"
        )
    return (low + high) / 2, (high - low) / 2


def _flat(source: str, space: Any, observations: Any) -> np.ndarray:
    """Observations as [T, dx], in the order in which Gymnasium flattens that space."""
    from gymnasium.spaces import Box, Dict

    if isinstance(space, Dict):
        return np.concatenate([_flat(source, part, observations[key]) for key, part in space.spaces.items()], axis=1)
    if not isinstance(space, Box):
        raise SondeError(f"{source}: expected observations of real numbers (Box, or a Dict of Boxes), got {space}")
    values = np.asarray(observations, dtype=np.float64)
    return values.reshape(len(values), -1)


# Writing


def write_minari(name: str, episodes: Sequence[Mapping[str, np.ndarray]], facts: Mapping[str, Any], overwrite: bool) -> Path:
    """Write a new local dataset.

    Args:
        name: Id of the dataset.
        episodes: For each episode observations [T + 1, dx], actions [T, du], terminations [T] and truncations [T].
        facts: Metadata of the dataset.
        overwrite: Replace a dataset that exists.

    Returns:
        The folder of the dataset.
    """
    folder = check_target(name, overwrite)
    datasets_folder().mkdir(parents=True, exist_ok=True)
    # made under another name, so that a dataset never exists in part
    draft = Path(tempfile.mkdtemp(prefix=".sonde.", dir=datasets_folder()))
    try:
        (draft / "new").mkdir()
        _write_storage(draft / "new" / "data", name, episodes, facts)
        if folder.exists():
            folder.rename(draft / "old")
        try:
            (draft / "new").rename(folder)
        except OSError:
            with contextlib.suppress(OSError):
                (draft / "old").rename(folder)
            raise
        shutil.rmtree(draft / "old", ignore_errors=True)
    finally:
        if not (draft / "old").exists():  # it is the only copy if it could be neither replaced nor put back
            shutil.rmtree(draft)
    return folder


def _write_storage(path: Path, name: str, episodes: Sequence[Mapping[str, np.ndarray]], facts: Mapping[str, Any]) -> None:
    minari = _minari()
    from gymnasium.spaces import Box
    from minari.data_collector import EpisodeBuffer
    from minari.dataset.minari_storage import MinariStorage
    from minari.namespace import create_namespace, list_local_namespaces

    state_dim, action_dim = (episodes[0][array].shape[1] for array in ("observations", "actions"))
    buffers = [
        EpisodeBuffer(
            id=number,
            observations=list(episode["observations"]),
            actions=list(episode["actions"]),
            rewards=[0.0] * len(episode["actions"]),
            terminations=list(episode["terminations"]),
            truncations=list(episode["truncations"]),
        )
        for number, episode in enumerate(episodes)
    ]
    storage = MinariStorage.new(
        path,
        observation_space=Box(-np.inf, np.inf, (state_dim,), np.float64),
        action_space=Box(-1.0, 1.0, (action_dim,), np.float64),
    )
    storage.update_metadata({"dataset_id": name, "minari_version": minari.__version__, **facts})
    storage.update_episodes(buffers)
    group = name.rpartition("/")[0]
    if group and group not in list_local_namespaces():
        create_namespace(group)


def check_target(name: str, overwrite: bool) -> Path:
    """Reject a dataset that must not be written.

    Args:
        name: Id of the dataset.
        overwrite: Replace a dataset that exists.

    Returns:
        The folder of the dataset.
    """
    folder = dataset_folder(name)
    _minari()
    if folder.exists() and not overwrite:
        raise SondeError(f"{MINARI}{name} exists in {datasets_folder()}; choose another name, or replace it with --overwrite")
    if folder.exists() and not (folder / "data" / "metadata.json").is_file():
        raise SondeError(f"{folder} is not a Minari dataset, so it is not replaced; choose another name")
    return folder
