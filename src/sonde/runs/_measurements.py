"""What measurements are: transitions [N, ...], checked so that an error can say where in a file the problem is; FILE.npz.

`sonde.runs.logs` reads all other files, `_minari` datasets; `_export` writes what they read.
"""

import itertools
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sonde._internal.errors import SondeError, first_line
from sonde._internal.measured import EXTREME, real_numbers
from sonde.data import SystemSpec, Trajectory
from sonde.worlds import World

MINARI = "minari:"
"""Prefix of Minari datasets."""
EPISODE = "episode"
"""Name of the column that numbers episodes."""
LARGEST = 1_000_000
"""Most transitions that are read; more would take hours to learn from."""
LONGEST_LINE = 1_000_000
"""Most characters of a line of a CSV file."""
MOST_COLUMNS = 10_000
"""Most columns of a CSV file, other ones included."""
SHOWN = 20
"""Most names that an error message lists."""

Place = Callable[[str, int, int], str]
"""place(array, row, column): where in the source a number is, in words."""


def absolute_sources(sources: str | tuple[str, ...]) -> str | tuple[str, ...]:
    """Make sources independent of the working directory.

    Args:
        sources: Files, folders, patterns such as logs/*.csv, or minari:DATASET; one or several.
    """
    return _absolute(sources) if isinstance(sources, str) else tuple(map(_absolute, sources))


def _absolute(source: str) -> str:
    return source if source.startswith(MINARI) else str(Path(source).expanduser().absolute())


def columns(world: World | SystemSpec) -> dict[str, tuple[str, ...]]:
    """Names of the columns of each array in a CSV file.

    Args:
        world: The system that was measured.

    Returns:
        Names for states, actions and next states.
    """
    nexts = tuple(f"next {name}" for name in world.state_names)
    return {"states": world.state_names, "actions": world.action_names, "next_states": nexts}


def csv_columns(world: World | SystemSpec) -> dict[str, tuple[str, ...]]:
    """The same as `columns`; rejected if two columns would have the same name.

    Args:
        world: The system that was measured.
    """
    names = columns(world)
    flat = [*itertools.chain(*names.values()), EPISODE]
    twice = sorted({name for name in flat if flat.count(name) > 1 or name != name.strip()})
    if twice:
        raise SondeError(f"CSV needs a name for each column, and {quoted(twice)} would name more than one; use FILE.npz")
    return names


def checked(source: str, arrays: Mapping[str, Any], world: World, place: Place) -> Trajectory:
    """Validate arrays; an error says where in the source the problem is.

    Args:
        source: Where the arrays come from.
        arrays: `states`, `actions` and `next_states`.
        world: The system that was measured.
        place: Names the place of a number in the source.

    Returns:
        Transitions [N, ...] in double precision.
    """
    numbers = {}
    for name, labels in columns(world).items():
        values = real_numbers(f"{source}: {name}", arrays[name])
        if values.ndim != 2 or values.shape[1] != len(labels):
            raise SondeError(
                f"{source}: {name} must have shape [N, {len(labels)}], one column each for {quoted(labels)}, "
                f"got {list(values.shape)}"
            )
        numbers[name] = values.astype(np.float64)
    rows = {name: len(values) for name, values in numbers.items()}
    if len(set(rows.values())) != 1:
        raise SondeError(f"{source}: states, actions and next_states must have equally many rows, got {rows}")
    if rows["states"] == 0:
        raise SondeError(f"{source}: it has no transitions; leave out --data to start from nothing")
    if rows["states"] > LARGEST:
        raise too_large(source, f"{rows['states']:,}")
    for name, values in numbers.items():
        _reject_where(~np.isfinite(values), values, source, name, place, "expected a finite number", "repair or drop that row")
        extreme = np.abs(values) > EXTREME
        _reject_where(extreme, values, source, name, place, f"expected at most {EXTREME:g}", "repair or drop that row")
    outside = np.abs(numbers["actions"]) > 1 + 1e-6
    advice = "scale actions by the actuator's limits (a range LOW..HIGH in --columns), and clip them if the system does"
    _reject_where(outside, numbers["actions"], source, "actions", place, "expected an action in [-1, 1]", advice)
    return Trajectory(numbers["states"], numbers["actions"], numbers["next_states"])


def too_large(source: str, rows: str) -> SondeError:
    """Make the error for more than `LARGEST` transitions.

    Args:
        source: Where they come from.
        rows: How many there are, in words.
    """
    return SondeError(f"{source}: expected at most {LARGEST:,} transitions, got {rows}; select the most useful ones")


def _reject_where(
    bad: np.ndarray, values: np.ndarray, source: str, name: str, place: Place, expected: str, advice: str
) -> None:
    if bad.any():
        row, column = (int(i) for i in np.argwhere(bad)[0])
        others = int(bad.sum()) - 1
        more = f" (and {others:,} more of {name})" if others else ""
        raise SondeError(f"{source}: {place(name, row, column)}: {expected}, got {values[row, column]:.6g}{more}; {advice}")


def quoted(names: Sequence[str]) -> str:
    """List names for an error message, the first few in full.

    Args:
        names: The names.
    """
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return ", ".join(repr(name[:80]) for name in names[:SHOWN]) + more or "none"


# FILE.npz


def sizes_of(path: Path) -> dict[str, int]:
    """Bytes of each array of a file when it is unpacked, which it is not here.

    Args:
        path: FILE.npz.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = sorted(archive.infolist(), key=lambda info: info.file_size)  # of two with the same name the larger counts
            return {info.filename.removesuffix(".npy"): info.file_size for info in members}
    except Exception as error:  # a damaged file may raise anything
        raise SondeError(f"{path} is not a readable .npz file ({error}); write it with numpy.savez") from None


def read_npz(path: Path, world: World) -> Trajectory:
    """Read transitions from arrays `states`, `actions` and `next_states`.

    Args:
        path: FILE.npz.
        world: The system that was measured.

    Returns:
        Transitions [N, ...], with actions in [-1, 1].
    """
    names, sizes = columns(world), sizes_of(path)
    missing = [name for name in names if name not in sizes]
    if missing:
        raise SondeError(
            f"{path}: expected arrays {quoted(list(names))}, but there is no {quoted(missing)}; it has {quoted(list(sizes))}"
        )
    # before anything is unpacked: a header of numpy takes a few hundred bytes, a number at most 16
    if any(sizes[name] > 1024 + 16 * LARGEST * len(labels) for name, labels in names.items()):
        raise too_large(str(path), f"{sum(sizes[name] for name in names):,} bytes")
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in names}
    except Exception as error:  # a damaged file may raise anything, and a header that asks for too much a MemoryError
        raise SondeError(
            f"{path} cannot be read ({first_line(error)}); expected plain arrays of numbers, as numpy.savez writes them"
        ) from None
    place: Place = lambda name, row, column: f"{name}[{row}, {column}] ({names[name][column]!r})"
    return checked(str(path), arrays, world, place)
