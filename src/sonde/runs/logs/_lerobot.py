"""LeRobot datasets on this computer, versions 2 and 3 (extra `logs`): a folder with meta/info.json and parquet files.

Version 2 has a file for each episode, version 3 several episodes in each; both number episodes in a column of their own.
"""

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sonde._internal.errors import SondeError, first_line
from sonde._internal.reading import MAX_JSON_BYTES, parse_json, read_limited
from sonde.runs._measurements import LARGEST, MOST_COLUMNS, too_large
from sonde.runs.logs._format import NO_TIME
from sonde.runs.logs._mcap import extra
from sonde.runs.logs._recording import ACTIONS, STATES, LogFile, Recording, Track, array_and_index

INFO = Path("meta", "info.json")
NUMBERS = ("float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")
EPISODES, TIMES = "episode_index", "timestamp"


@dataclass(frozen=True)
class LeRobotLog(LogFile):
    """A LeRobot dataset."""

    @functools.cached_property
    def info(self) -> Mapping[str, Any]:
        """Content of meta/info.json."""
        path = self.path / INFO
        info = parse_json(read_limited(path, MAX_JSON_BYTES), str(path))
        features = info.get("features") if isinstance(info, dict) else None
        if not isinstance(features, dict) or not all(isinstance(feature, dict) for feature in features.values()):
            raise SondeError(f"{path}: expected a dataset of LeRobot with 'features'")
        version = str(info.get("codebase_version", ""))
        if not version.startswith(("v2", "v3")):
            raise SondeError(f"{path}: expected a dataset of version 2 or 3, got {version!r}; convert it with LeRobot")
        return info

    @functools.cached_property
    def widths(self) -> dict[str, int]:
        """Number of columns of each feature of numbers."""
        found = dict[str, int]()
        for name, feature in self.info["features"].items():
            shape = feature.get("shape")
            if feature.get("dtype") in NUMBERS and isinstance(shape, list) and len(shape) <= 1:
                size = shape[0] if shape else 1
                if isinstance(size, int) and 0 < size <= MOST_COLUMNS:
                    found[name] = size
        return found

    def columns(self) -> dict[str, str | None]:
        """FEATURE[0], FEATURE[1], ... of each feature of numbers."""
        named = itertools.chain.from_iterable(self._of(name) for name in self.widths)
        return dict.fromkeys(itertools.islice(named, MOST_COLUMNS))

    def _of(self, feature: str) -> tuple[str, ...]:
        width = self.widths.get(feature, 0)
        return (feature,) if width == 1 and feature not in (STATES, ACTIONS) else tuple(f"{feature}[{i}]" for i in range(width))

    def roles(self) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
        """The columns of observation.state and of action."""
        return (self._of(STATES), self._of(ACTIONS)) if {STATES, ACTIONS} <= self.widths.keys() else None

    def role_names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names of states and actions: those of the dataset, if it tells all apart, otherwise x0, x1, ... and u0, u1, ..."""
        states, actions = self._names(STATES, "x"), self._names(ACTIONS, "u")
        return states, tuple(f"u{i}" for i in range(len(actions))) if set(states) & set(actions) else actions

    def _names(self, feature: str, letter: str) -> tuple[str, ...]:
        width, names = self.widths[feature], self.info["features"][feature].get("names")
        if isinstance(names, dict):  # {"motors": [...]}
            names = next(iter(names.values()), None)
        fits = isinstance(names, list) and len(names) == width and all(isinstance(name, str) and name for name in names)
        return tuple(names) if fits and len(set(names)) == width else tuple(f"{letter}{i}" for i in range(width))

    def read(self, columns: Sequence[str], clock: str | None) -> Recording:
        """Read columns of all episodes.

        Args:
            columns: Features with indices.
            clock: none, or the feature with times; by default timestamp.
        """
        time = None if clock == NO_TIME else clock or (TIMES if TIMES in self.widths else None)
        if time is not None and time not in self.widths:
            raise self.missing([time])
        features = list(
            dict.fromkeys([*(array_and_index(column)[0] for column in columns), EPISODES, *([time] if time else [])])
        )
        tables = self._tables(features)
        signals = {column: tables[array_and_index(column)[0]][:, array_and_index(column)[1]] for column in columns}
        episodes = tables[EPISODES][:, 0]
        begins = np.diff(episodes, prepend=np.nan) != 0
        fps = self.info.get("fps")
        dt = 1 / fps if isinstance(fps, int | float) and 0 < fps < 1e9 else None
        times = tables[time][:, 0] if time else None
        return Recording(self.source, (Track(signals, np.arange(len(episodes)), times, begins=begins),), "frame", {}, dt)

    def _tables(self, features: Sequence[str]) -> dict[str, np.ndarray]:
        parquet = extra("pyarrow.parquet")
        paths = sorted((self.path / "data").rglob("*.parquet"))
        if not paths:
            raise SondeError(f"{self.path}: there are no parquet files in {self.path / 'data'}; download the dataset first")
        parts: dict[str, list[np.ndarray]] = {name: [] for name in features}
        rows = 0
        for path in paths:
            try:
                with parquet.ParquetFile(path) as file:
                    rows += file.metadata.num_rows
                    if rows > LARGEST:
                        raise too_large(self.source, f"at least {rows:,} frames")
                    if lacking := [name for name in features if name not in file.schema_arrow.names]:
                        raise SondeError(f"{path}: missing column(s) {', '.join(map(repr, lacking))}")
                    table = file.read(columns=list(features))
                for name in features:
                    parts[name].append(self._numbers(path, name, table.column(name).combine_chunks()))
            except SondeError:
                raise
            except Exception as error:  # a damaged file may raise anything
                raise SondeError(f"{path} cannot be read as parquet ({first_line(error)}); restore it from a copy") from None
        return {name: np.concatenate(arrays) for name, arrays in parts.items()}

    def _numbers(self, path: Path, name: str, column: Any) -> np.ndarray:
        """A feature of one file [n, width]."""
        kinds, width = extra("pyarrow.types"), self.widths[name]
        nested = kinds.is_list(column.type) or kinds.is_fixed_size_list(column.type) or kinds.is_large_list(column.type)
        lengths = extra("pyarrow.compute").list_value_length(column) if nested else column.is_valid().cast("int64")
        wrong = np.flatnonzero(lengths.fill_null(0).to_numpy(zero_copy_only=False) != (width if nested else 1))
        if len(wrong):
            got = column[int(wrong[0])].as_py()
            raise SondeError(f"{path}: row {wrong[0]}, column {name!r}: expected {width} number(s), got {got!r}")
        flat = column.flatten() if nested else column
        return np.asarray(flat.to_numpy(zero_copy_only=False), dtype=np.float64).reshape(-1, width)
