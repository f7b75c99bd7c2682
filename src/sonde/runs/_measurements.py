"""Measurements that exist already, read from FILE.npz, FILE.csv, or minari:DATASET, a local Minari dataset.

Whatever the source, all runs learn from the same transitions, [N, ...] each. They are checked here, where they enter, so that
an error can say where in the file the trouble is. `sonde.runs._export` writes what this module reads.
"""

import array
import csv
import difflib
import itertools
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sonde._internal.errors import SondeError
from sonde.data import Trajectory
from sonde.worlds._base import World

MINARI = "minari:"
EPISODE = "episode"
LARGEST = 1_000_000
"""Transitions; more would take hours to learn from."""
EXTREME = 1e15
"""Beyond this a number is no measurement, but what a logger writes when it has none."""

Place = Callable[[str, int, int], str]
"""place(array, row, column): where in the source a number stands."""


def read_measurements(source: str, world: World) -> Trajectory:
    """The transitions of FILE.npz, FILE.csv or minari:DATASET, as arrays [N, ...]; actions in [-1, 1]."""
    if source.startswith(MINARI):
        from sonde.runs._minari import read_minari

        return read_minari(source.removeprefix(MINARI), world)
    path, readers = Path(source).expanduser(), {".npz": _read_npz, ".csv": _read_csv}
    if path.suffix.lower() not in readers:
        raise SondeError(f"{source}: expected FILE.npz, FILE.csv or minari:DATASET-v0; save the measurements as one of these")
    if not path.is_file():
        raise SondeError(f"{source}: there is no such file; looked for {path.absolute()}")
    return readers[path.suffix.lower()](path, world)


def absolute_source(source: str) -> str:
    """The same source, from whatever folder it is read later."""
    return source if source.startswith(MINARI) else str(Path(source).expanduser().absolute())


def columns(world: World) -> dict[str, tuple[str, ...]]:
    """What the columns of each array are called in a CSV file."""
    nexts = tuple(f"next {name}" for name in world.state_names)
    return {"states": world.state_names, "actions": world.action_names, "next_states": nexts}


def csv_columns(world: World) -> dict[str, tuple[str, ...]]:
    """The same; refused where two columns would have the same name."""
    names = columns(world)
    flat = [*itertools.chain(*names.values()), EPISODE]
    twice = sorted({name for name in flat if flat.count(name) > 1 or name != name.strip()})
    if twice:
        raise SondeError(f"CSV cannot serve this world: {_quoted(twice)} would not name one column only; use FILE.npz")
    return names


def checked(source: str, arrays: Mapping[str, Any], world: World, place: Place) -> Trajectory:
    """The arrays as a trajectory in double precision, or an error that says where in the source something is wrong."""
    numbers = {}
    for name, labels in columns(world).items():
        values = np.asarray(arrays[name])
        if values.dtype.kind not in "iuf":
            raise SondeError(f"{source}: {name} must be an array of real numbers, got one of type {values.dtype}")
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
        raise SondeError(f"{source}: there is not one transition in it; leave out --data to start from nothing")
    if rows["states"] > LARGEST:
        raise too_large(source, f"{rows['states']:,}")
    for name, values in numbers.items():
        _refuse_where(~np.isfinite(values), values, source, name, place, "expected a finite number", "repair or drop that row")
        extreme = np.abs(values) > EXTREME
        _refuse_where(extreme, values, source, name, place, f"expected at most {EXTREME:g}", "repair or drop that row")
    outside = np.abs(numbers["actions"]) > 1 + 1e-6
    advice = "scale actions by the actuator's limits, and clip them if the system does"
    _refuse_where(outside, numbers["actions"], source, "actions", place, "expected an action in [-1, 1]", advice)
    return Trajectory(numbers["states"], numbers["actions"], numbers["next_states"])


def too_large(source: str, rows: str) -> SondeError:
    """More than can be learned from."""
    return SondeError(f"{source}: expected at most {LARGEST:,} transitions, got {rows}; keep those that matter")


def _refuse_where(
    bad: np.ndarray, values: np.ndarray, source: str, name: str, place: Place, expected: str, advice: str
) -> None:
    if bad.any():
        row, column = (int(i) for i in np.argwhere(bad)[0])
        others = int(bad.sum()) - 1
        more = f" (and {others:,} more of {name})" if others else ""
        raise SondeError(f"{source}: {place(name, row, column)}: {expected}, got {values[row, column]:.6g}{more}; {advice}")


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names)) or "none"


# FILE.npz


def _read_npz(path: Path, world: World) -> Trajectory:
    names = columns(world)
    try:
        with zipfile.ZipFile(path) as archive:
            sizes = {info.filename.removesuffix(".npy"): info.file_size for info in archive.infolist()}
    except (OSError, zipfile.BadZipFile) as error:
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
    except (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise SondeError(
            f"{path} cannot be read ({error}); expected plain arrays of numbers, as numpy.savez writes them"
        ) from None
    place: Place = lambda name, row, column: f"{name}[{row}, {column}] ({names[name][column]!r})"
    return checked(str(path), arrays, world, place)


# FILE.csv


def _read_csv(path: Path, world: World) -> Trajectory:
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            return _from_rows(path, csv.reader(file, strict=True), world)
    except UnicodeDecodeError as error:
        raise SondeError(f"{path} is not text in UTF-8 ({error}); save it as CSV in UTF-8") from None
    except (OSError, csv.Error) as error:
        raise SondeError(f"{path} cannot be read as CSV ({error})") from None


def _from_rows(path: Path, reader: Any, world: World) -> Trajectory:
    names = csv_columns(world)
    header = [cell.strip() for cell in next(reader, [])]
    follows = EPISODE in header and not set(names["next_states"]) & set(header)
    wanted = [*names["states"], *names["actions"], *(() if follows else names["next_states"])]
    where = _where(path, header, wanted, world)
    numbers, lines, begins = array.array("d"), array.array("q"), array.array("b")
    current = None
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
            found = {name: cells[i] for name, i in zip(wanted, where, strict=True)}
            raise _no_number(f"{path}: line {reader.line_num}", found) from None
        lines.append(reader.line_num)
        if follows:
            episode = cells[header.index(EPISODE)]
            begins.append(episode != current)
            current = episode
    dx, du = world.state_dim, world.action_dim
    states, actions, next_states = np.split(np.array(numbers).reshape(-1, len(wanted)), [dx, dx + du], axis=1)
    at = next_at = np.array(lines)
    if follows:
        # a row is followed by the next one, unless that begins an episode; of the last row only the state counts
        kept = np.flatnonzero(np.array(begins[1:]) == 0)
        states, actions, next_states, at, next_at = states[kept], actions[kept], states[kept + 1], at[kept], at[kept + 1]
        names = {**names, "next_states": names["states"]}

    def place(name: str, row: int, column: int) -> str:
        line = (next_at if name == "next_states" else at)[row]
        return f"line {line}, column {names[name][column]!r} (an empty cell counts as nan)"

    return checked(str(path), {"states": states, "actions": actions, "next_states": next_states}, world, place)


def _no_number(line: str, cells: Mapping[str, str]) -> SondeError:
    for name, cell in cells.items():
        try:
            float(cell or "nan")
        except ValueError:
            return SondeError(f"{line}, column {name!r}: expected a number such as -0.25, got {cell!r}; repair or drop the row")
    raise AssertionError("some cell is no number")


def _where(path: Path, header: list[str], wanted: Sequence[str], world: World) -> list[int]:
    """The position of each wanted column; others (a clock, a note) are no concern of ours."""
    missing = [name for name in wanted if name not in header]
    if missing:
        hints = [f"found: {_quoted(header)}"]
        spare = {name.lower(): name for name in header if name not in wanted}
        for name in missing:
            for close in difflib.get_close_matches(name.lower(), spare, n=1, cutoff=0.7):
                hints.append(f"did you mean {spare[close]!r} for {name!r}?")
        if len(header) == 1 and any(mark in header[0] for mark in ";\t"):
            hints.append("separate columns by commas, and write decimals with a point")
        elif set(missing) == set(columns(world)["next_states"]):
            hints.append(f"instead of the next state, a column {EPISODE!r} serves: rows of one episode follow each other")
        raise SondeError(f"{path}: missing column(s) {_quoted(missing)}; {'; '.join(hints)}")
    twice = sorted({name for name in wanted if header.count(name) > 1})
    if twice:
        raise SondeError(f"{path}: column(s) {_quoted(twice)} stand there more than once; rename or drop all but one")
    return [header.index(name) for name in wanted]
