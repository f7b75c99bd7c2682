"""What the folder of a run holds apart from code: measurements, metrics and the entries of its config.

None of it needs the classes that the config names: a run whose method, model or world is in a file that is gone, or that may
not run here, still gives all of its measurements.
"""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from sonde._internal.errors import SondeError, did_you_mean
from sonde._internal.reading import MAX_ARRAY_BYTES, MAX_JSON_BYTES, read_limited
from sonde.data import SystemSpec, Trajectory
from sonde.runs._checkpoints import Checkpoints, data_path
from sonde.runs._codec import entries_of, part_of
from sonde.runs._initial_data import initial_data_path, load_initial_data
from sonde.runs._metrics_file import DamagedMetrics, metrics_path, read_lines
from sonde.runs._place import FOLDERS, is_unfinished, reject_links, wait_until_in_place
from sonde.runs._saved import saved_known, saved_measurements, saved_row, saved_spec
from sonde.worlds import World

SYSTEM_WITHOUT_SIMULATOR = "sonde.worlds:OwnSystem"
Result = TypeVar("Result")


class RunFolder:
    """Reads the folder of one run, without any code that the run names."""

    def __init__(self, folder: Path):
        """Use `open` instead.

        Args:
            folder: Folder of the run, which exists.
        """
        self.folder = folder
        self._checkpoints = Checkpoints(folder)

    @classmethod
    def open(cls, folder: Path) -> "RunFolder":
        """Open a run that exists.

        Args:
            folder: Folder of the run.
        """
        read_config(folder)
        found = cls(folder.absolute())
        _ = found.seeds
        return found

    @cached_property
    def entries(self) -> dict[str, Any]:
        """The config as it stands in config.json: what it names is text."""
        return entries_of(read_config(self.folder), str(self.folder / "config.json"))

    @property
    def seeds(self) -> tuple[int, ...]:
        """All seeds of the run."""
        first, count = (self.entries.get(name) for name in ("first_seed", "seeds"))
        if type(first) is not int or type(count) is not int or count < 1:
            raise SondeError(f"{self.folder / 'config.json'}: expected whole numbers for seeds and first_seed")
        return tuple(range(first, first + count))

    @property
    def spec(self) -> SystemSpec:
        """Names of states and actions, as the files of measurements have them; those of older runs come from the world."""
        for path in (self.data_path(1), initial_data_path(self.folder)):
            if path.is_file() and (spec := saved_spec(_content(path), str(path))) is not None:
                return spec
        where = f"{self.folder / 'config.json'}: world"
        return part_of(World, self.entries.get("world"), where).spec

    def seed_index(self, seed: int | None) -> int:
        """Position of a seed among those of the run; one that it does not have is rejected.

        Args:
            seed: The seed; None for the first.
        """
        if seed is not None and seed not in self.seeds:
            raise SondeError(f"{self.folder} has no seed {seed}; it has {', '.join(map(str, self.seeds))}")
        return 0 if seed is None else self.seeds.index(seed)

    # Measurements

    def data_path(self, round_number: int) -> Path:
        """Where the measurements of a round are, whether they exist or not.

        Args:
            round_number: The round, from 1.
        """
        return data_path(self.folder, round_number)

    def has_data(self, round_number: int) -> bool:
        """Whether the measurements of a round are there, learned from or not.

        Args:
            round_number: The round, from 1.
        """
        return self.data_path(round_number).exists()

    def load_data(self, rounds: int) -> list[Trajectory]:
        """Read the measurements of the first rounds.

        Args:
            rounds: Number of rounds to read.

        Returns:
            One trajectory per round, with arrays [S, T, ...].
        """
        paths = [self.data_path(number) for number in range(1, rounds + 1)]
        return [Trajectory(**saved_measurements(_content(path), str(path))) for path in paths]

    def load_known(self, round_number: int) -> dict[str, float]:
        """Read the metrics of a round that were saved with its measurements.

        Args:
            round_number: The round, from 1.
        """
        path = self.data_path(round_number)
        return saved_known(_content(path), str(path))

    def load_initial_data(self) -> Trajectory | None:
        """Read the measurements [N, ...] that the run started from, if any."""
        source = self.entries.get("data")
        if not source:
            return None
        named = tuple(map(str, source)) if isinstance(source, list) else str(source)
        return load_initial_data(self.folder, named)

    def load_finished(self) -> list[Trajectory]:
        """Read the measurements of all finished rounds, checked against the newest checkpoint."""

        def read(newest: int) -> list[Trajectory]:
            if newest:
                self._checkpoints.check_data(newest)
            return self.load_data(newest)

        return self.steadily(read)

    def load_last(self) -> Trajectory:
        """Read the measurements of the last finished round [S, T, ...].

        Of a run that was only fitted to measurements, they are the last episode of those, the same for all seeds.
        """
        if finished := self.load_finished():
            return finished[-1]
        measured = self.load_initial_data()
        if measured is None:
            raise SondeError(f"{self.folder} has no finished round yet: run 'sonde resume {self.folder}' first")
        begins = np.flatnonzero((measured.next_states[:-1] != measured.states[1:]).any(axis=-1)) + 1
        start = int(begins[-1]) if len(begins) else 0
        arrays = (measured.states, measured.actions, measured.next_states)
        return Trajectory(*(np.repeat(array[None, start:], len(self.seeds), axis=0) for array in arrays))

    # Checkpoints and metrics

    def checkpoints(self) -> list[int]:
        """Rounds after which a checkpoint exists, oldest first; 0 for what was learned from initial data alone."""
        return self._checkpoints.rounds()

    def steadily(self, read: Callable[[int], Result]) -> Result:
        """Read something of the newest checkpoint, also while another process adds to the run.

        Args:
            read: Called with the round of the newest checkpoint, 0 if there is none.

        Returns:
            What `read` returns.
        """
        return self._checkpoints.steadily(read)

    @property
    def metrics_path(self) -> Path:
        """The file of metrics, with one JSON object per line."""
        return metrics_path(self.folder)

    def load_metrics(self) -> list[dict[str, Any]]:
        """Read the metrics of all finished rounds; if any is missing or was changed, all are rejected."""
        lines = self.steadily(self._metrics_after)
        return [saved_row(line, str(self.metrics_path)) for text in lines.values() for line in text.splitlines()]

    @property
    def _is_measured_outside(self) -> bool:
        """Whether only the user can measure again."""
        world = self.entries.get("world")
        return isinstance(world, dict) and world.get("class") == SYSTEM_WITHOUT_SIMULATOR

    def _metrics_after(self, round_number: int) -> dict[int, bytes]:
        """Lines of metrics by round, up to a checkpoint and checked against it."""
        try:
            return read_lines(self.folder, round_number)
        except DamagedMetrics as error:
            good = max((number for number in self.checkpoints() if number < error.rounds[0]), default=0)
            if self._is_measured_outside:
                notes = self.folder / "checkpoints" / "*.json"
                hint = f"restore it from a copy; or, if data/ is complete, remove {notes}: all rounds are then learned again"
            else:
                hint = f"'sonde resume {self.folder} --from-round {good}' computes them again"
            raise SondeError(f"{error}; {hint}") from None


def read_config(folder: Path) -> bytes:
    """Read config.json, once it is clear that the folder is that of a run.

    Args:
        folder: Folder of the run.
    """
    wait_until_in_place(folder.absolute())
    try:
        text = read_limited(folder / "config.json", MAX_JSON_BYTES)
    except OSError:
        begun = "; its first round was not finished: start it again" if is_unfinished(folder.absolute()) else ""
        meant = did_you_mean(str(folder), _runs_beside(folder))
        more = begun or (f";{meant}" if meant else "")
        raise SondeError(f"{folder} is not the folder of a run: it has no readable config.json{more}") from None
    reject_links(folder)
    return text


def check_complete(folder: Path) -> None:
    """Reject a run of which a folder is missing.

    Args:
        folder: Folder of the run.
    """
    missing = [name for name in FOLDERS if not (folder / name).is_dir()]
    if missing:
        raise SondeError(f"{folder} is incomplete: it has no {', '.join(missing)}; restore it from a copy")


def _content(path: Path) -> bytes:
    try:
        return read_limited(path, MAX_ARRAY_BYTES)
    except OSError as error:
        raise SondeError(f"{path} cannot be read ({error})") from None


def _runs_beside(folder: Path) -> list[str]:
    """Runs in the same folder, as one would name them in place of this one."""
    try:
        return [str(folder.with_name(path.parent.name)) for path in folder.absolute().parent.glob("*/config.json")]
    except (OSError, ValueError):
        return []
