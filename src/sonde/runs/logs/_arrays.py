"""Named arrays: MATLAB's .mat up to version 7, and .npz files of signals.

The columns of an array [N, k] are called NAME[0], NAME[1], ...
"""

import functools
import itertools
import zipfile
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sonde._internal.errors import SondeError, first_line
from sonde._internal.measured import real_numbers
from sonde.runs._measurements import EPISODE, LARGEST, MOST_COLUMNS, quoted, too_large
from sonde.runs.logs._clock import clock_of
from sonde.runs.logs._recording import LogFile, Recording, Track, array_and_index

LARGEST_ARRAY = 2**30
"""Most bytes of an array that is unpacked."""
HDF5 = b"\x89HDF\r\n\x1a\n"


@dataclass(frozen=True)
class ArraysLog(LogFile):
    """A file of named arrays, all of which have one row per sample."""

    first = 0
    """Number of the first row."""

    @functools.cached_property
    def shapes(self) -> dict[str, tuple[int, int]]:
        """Samples and columns of each array of numbers."""
        found = self._shapes()
        samples = max((max(shape, default=1) for shape in found.values()), default=0)
        return {name: _table_shape(shape, samples) for name, shape in found.items() if len(shape) <= 2}

    @abstractmethod
    def _shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shape of each array of numbers; nothing is unpacked."""

    @abstractmethod
    def _load(self, names: Sequence[str]) -> Mapping[str, np.ndarray]:
        """Unpack arrays."""

    def columns(self) -> dict[str, str | None]:
        """Names of the columns."""
        names = (
            name if width == 1 else f"{name}[{i}]"
            for name, (_, width) in self.shapes.items()
            for i in range(min(width, MOST_COLUMNS))
        )
        return dict.fromkeys(itertools.islice(names, MOST_COLUMNS))

    def read(self, columns: Sequence[str], clock: str | None) -> Recording:
        """Read columns.

        Args:
            columns: Their names.
            clock: The time column as in `LogFormat`.
        """
        time = clock_of(self, clock, columns)
        episode = [EPISODE] if EPISODE in self.columns() else []
        wanted = [*columns, *([time.column] if time else []), *episode]
        arrays = list(dict.fromkeys(array_and_index(column)[0] for column in wanted))
        for name in arrays:
            self._check_size(name)
        try:
            loaded = self._load(arrays)
            numbers = {name: real_numbers(f"{self.source}: {name}", loaded[name]).astype(np.float64) for name in arrays}
        except SondeError:
            raise
        except Exception as error:  # a damaged file may raise anything
            raise SondeError(f"{self.source} cannot be read ({first_line(error)}); save it again") from None
        tables = {name: _table(values, self.shapes[name]) for name, values in numbers.items()}
        lengths = {name: len(table) for name, table in tables.items()}
        if len(set(lengths.values())) != 1:
            raise SondeError(f"{self.source}: the arrays must have equally many samples, got {lengths}")
        signals = {column: tables[array_and_index(column)[0]][:, array_and_index(column)[1]] for column in wanted}
        times = None if time is None else self._times(signals[time.column] * time.unit.factor, time.column)
        begins = np.diff(signals[EPISODE], prepend=np.nan) != 0 if episode else None
        rows = np.arange(self.first, self.first + len(next(iter(signals.values()))))
        return Recording(self.source, (Track({name: signals[name] for name in columns}, rows, times, begins=begins),), "row")

    def _check_size(self, name: str) -> None:
        rows, width = self.shapes[name]
        if rows > LARGEST or 16 * rows * width > LARGEST_ARRAY:
            raise too_large(self.source, f"an array {name!r} of {rows:,} x {width:,}")

    def _times(self, times: np.ndarray, name: str) -> np.ndarray:
        bad = np.flatnonzero(~np.isfinite(times))
        if len(bad):
            raise SondeError(
                f"{self.source}: row {bad[0] + self.first}, column {name!r}: expected a time, got {times[bad[0]]:g}"
            )
        return times


def _table_shape(shape: tuple[int, ...], samples: int) -> tuple[int, int]:
    """Samples and columns of an array: vectors lie either way, and tables may have their samples side by side."""
    rows, width = (*shape, 1, 1)[:2]
    return (width, rows) if rows == 1 or (width == samples and rows != samples) else (rows, width)


def _table(values: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    table = values.reshape(-1, 1) if values.ndim < 2 else values
    return table if table.shape == shape else table.T


class NpzLog(ArraysLog):
    """A file of `numpy.savez` with one array per signal."""

    def _shapes(self) -> Mapping[str, tuple[int, ...]]:
        found = {}
        try:
            with zipfile.ZipFile(self.path) as archive:
                for info in archive.infolist():
                    with archive.open(info) as file:
                        shape, _, dtype = _npy_header(file)
                    if dtype.kind in "biuf":
                        found[info.filename.removesuffix(".npy")] = shape
        except Exception as error:  # a damaged file may raise anything
            raise SondeError(f"{self.path} is not a readable .npz file ({error}); write it with numpy.savez") from None
        return found

    def _load(self, names: Sequence[str]) -> Mapping[str, np.ndarray]:
        with np.load(self.path, allow_pickle=False) as file:
            return {name: file[name] for name in names}


def _npy_header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(file)
    return np.lib.format.read_array_header_2_0(file)


class MatLog(ArraysLog):
    """A MATLAB file of version 5 to 7 with plain arrays."""

    first = 1

    def _shapes(self) -> Mapping[str, tuple[int, ...]]:
        from scipy.io import whosmat

        with open(self.path, "rb") as file:
            start = file.read(520)
        if HDF5 in (start[:8], start[512:520]):
            raise SondeError(f"{self.path} is a MATLAB file of version 7.3; save it with save('-v7', ...)")
        try:
            held = whosmat(self.path)
        except Exception as error:  # a damaged file may raise anything
            raise SondeError(f"{self.path} is not a readable MATLAB file ({first_line(error)})") from None
        plain = {name: shape for name, shape, kind in held if kind.startswith(("double", "single", "int", "uint", "logical"))}
        if not plain:
            others = quoted([f"{name} ({kind})" for name, _, kind in held])
            raise SondeError(
                f"{self.path}: expected arrays of numbers, got {others}; save each signal as an array of its own, such as "
                "x = data.x; save('log.mat', 'x', 't', '-v7')"
            )
        return plain

    def _load(self, names: Sequence[str]) -> Mapping[str, np.ndarray]:
        from scipy.io import loadmat

        loaded = loadmat(self.path, variable_names=list(names))
        return {name: loaded[name] for name in names}
