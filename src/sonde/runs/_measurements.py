"""Read measurements from FILE.npz or FILE.csv, and check those from any source (`_minari` reads Minari datasets).

The result is always a trajectory of transitions [N, ...]. They are checked here, so that an error can say where in the file
the problem is. `sonde.runs._export` writes what this module reads.
"""

import array
import csv
import difflib
import itertools
import zipfile
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from sonde._internal.errors import SondeError, did_you_mean, first_line
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


def read_file(source: str, world: World) -> Trajectory:
    """Read measurements from a file.

    Args:
        source: FILE.npz or FILE.csv.
        world: The system that was measured.

    Returns:
        Transitions [N, ...], with actions in [-1, 1].
    """
    path, readers = Path(source).expanduser(), {".npz": _read_npz, ".csv": _read_csv}
    if path.suffix.lower() not in readers:
        raise SondeError(f"{source}: expected FILE.npz, FILE.csv or minari:DATASET-v0; save the measurements as one of these")
    if not path.is_file():
        meant = did_you_mean(path.name, _files_beside(path, readers))
        raise SondeError(f"{source}: there is no such file;{meant} looked for {path.absolute()}")
    return readers[path.suffix.lower()](path, world)


def _files_beside(path: Path, suffixes: Container[str]) -> list[str]:
    """Names of the files of some kinds in the folder of a file."""
    try:
        return [other.name for other in itertools.islice(path.parent.iterdir(), 1000) if other.suffix.lower() in suffixes]
    except OSError:
        return []


def absolute_source(source: str) -> str:
    """Make a source independent of the working directory.

    Args:
        source: FILE.npz, FILE.csv or minari:DATASET.
    """
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
        raise SondeError(f"CSV needs a name for each column, and {_quoted(twice)} would name more than one; use FILE.npz")
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
                f"{source}: {name} must have shape [N, {len(labels)}], one column each for {_quoted(labels)}, "
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
    advice = "scale actions by the actuator's limits, and clip them if the system does"
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


def _quoted(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return ", ".join(repr(name[:80]) for name in names[:SHOWN]) + more or "none"


# FILE.npz


def _read_npz(path: Path, world: World) -> Trajectory:
    names = columns(world)
    try:
        with zipfile.ZipFile(path) as archive:
            members = sorted(archive.infolist(), key=lambda info: info.file_size)  # of two with the same name the larger counts
            sizes = {info.filename.removesuffix(".npy"): info.file_size for info in members}
    except Exception as error:  # a damaged file may raise anything
        raise SondeError(f"{path} is not a readable .npz file ({error}); write it with numpy.savez") from None
    missing = [name for name in names if name not in sizes]
    if missing:
        raise SondeError(
            f"{path}: expected arrays {_quoted(list(names))}, but there is no {_quoted(missing)}; it has {_quoted(list(sizes))}"
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


# FILE.csv


def _read_csv(path: Path, world: World) -> Trajectory:
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            return _from_rows(path, csv.reader(_lines(path, file), strict=True), world)
    except UnicodeDecodeError as error:
        raise SondeError(f"{path} is not text in UTF-8 ({error}); save it as CSV in UTF-8") from None
    except (OSError, csv.Error) as error:
        raise SondeError(f"{path} cannot be read as CSV ({error})") from None


def _lines(path: Path, file: TextIO) -> Iterator[str]:
    """The lines of a file, none of which may be so long that it is no row of numbers."""
    while line := file.readline(LONGEST_LINE + 1):
        if len(line) > LONGEST_LINE:
            raise SondeError(f"{path}: a line has more than {LONGEST_LINE:,} characters; expected one row of numbers per line")
        yield line


def _from_rows(path: Path, reader: Any, world: World) -> Trajectory:
    names = csv_columns(world)
    header = [cell.strip() for cell in next(reader, [])]
    if len(header) > MOST_COLUMNS:
        raise SondeError(f"{path}: expected at most {MOST_COLUMNS:,} columns, got {len(header):,}; keep those of the system")
    follows = EPISODE in header and not set(names["next_states"]) & set(header)
    wanted = [*names["states"], *names["actions"], *(() if follows else names["next_states"])]
    numbers, at, begins = _read_rows(path, reader, header, _where(path, header, wanted, world))
    dx, du = world.state_dim, world.action_dim
    states, actions, next_states = np.split(numbers, [dx, dx + du], axis=1)
    next_at = at
    if follows:
        # a row is followed by the next one, unless that begins an episode; of the last row only the state counts
        kept = np.flatnonzero(~begins[1:])
        states, actions, next_states, at, next_at = states[kept], actions[kept], states[kept + 1], at[kept], at[kept + 1]
        names = {**names, "next_states": names["states"]}

    def place(name: str, row: int, column: int) -> str:
        line = (next_at if name == "next_states" else at)[row]
        return f"line {line}, column {names[name][column]!r} (an empty cell counts as nan)"

    return checked(str(path), {"states": states, "actions": actions, "next_states": next_states}, world, place)


def _read_rows(path: Path, reader: Any, header: list[str], where: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The numbers at those positions of each row [N, ...], its line [N], and whether it begins an episode [N]."""
    numbers, lines, begins = array.array("d"), array.array("q"), array.array("b")
    episode_at, current = header.index(EPISODE) if EPISODE in header else None, None
    for cells in reader:
        if not cells:  # a blank line
            continue
        if len(cells) != len(header):
            raise SondeError(f"{path}: line {reader.line_num} has {len(cells)} cells, the header has {len(header)}")
        if len(lines) > LARGEST:
            raise too_large(str(path), "more")
        try:
            numbers.extend(float(cells[i] or "nan") for i in where)
        except ValueError:
            found = {header[i]: cells[i] for i in where}
            raise _no_number(f"{path}: line {reader.line_num}", found) from None
        lines.append(reader.line_num)
        episode = None if episode_at is None else cells[episode_at]
        begins.append(episode != current)
        current = episode
    return np.array(numbers).reshape(-1, len(where)), np.array(lines), np.array(begins, dtype=bool)


def _no_number(line: str, cells: Mapping[str, str]) -> SondeError:
    for name, cell in cells.items():
        try:
            float(cell or "nan")
        except ValueError:
            return SondeError(f"{line}, column {name!r}: expected a number such as -0.25, got {cell!r}; repair or drop the row")
    raise AssertionError("all cells are numbers")


def _where(path: Path, header: list[str], wanted: Sequence[str], world: World) -> list[int]:
    """The position of each wanted column; others, such as a clock, are ignored."""
    missing = [name for name in wanted if name not in header]
    if missing:
        hints = [f"found: {_quoted(header)}"]
        spare = {name.lower(): name for name in header if name not in wanted}
        for name in missing[:SHOWN]:
            for close in difflib.get_close_matches(name.lower(), list(spare)[:1000], n=1, cutoff=0.7):
                hints.append(f"did you mean {spare[close]!r} for {name!r}?")
        if len(header) == 1 and any(mark in header[0] for mark in ";\t"):
            hints.append("separate columns by commas, and write decimals with a point")
        elif set(missing) == set(columns(world)["next_states"]):
            hints.append(f"or, instead of next states, add a column {EPISODE!r}: rows of one episode follow each other")
        raise SondeError(f"{path}: missing column(s) {_quoted(missing)}; {'; '.join(hints)}")
    twice = sorted({name for name in wanted if header.count(name) > 1})
    if twice:
        raise SondeError(f"{path}: column(s) {_quoted(twice)} occur more than once; rename or drop all but one")
    return [header.index(name) for name in wanted]
