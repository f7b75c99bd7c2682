"""The folder of a run.

    DIR/config.json                    what was asked for
    DIR/metrics.jsonl                  one line per round and seed
    DIR/data/0001.safetensors          the measurements of round 1, all seeds [S, T, ...]
    DIR/data/initial.safetensors       the measurements that the run started from, if any
    DIR/policies/swing-up.safetensors  trained policies of the last round, all seeds, to use without planner (`load_policy`)
    DIR/checkpoints/0001.safetensors   what was learned in round 1 and before (the last two are kept)
    DIR/checkpoints/0001.json          its checksums; a checkpoint exists once this file does
    DIR/figures/                       pictures

A round is first written to `data`, then to `metrics.jsonl`, then to `checkpoints`. What an interruption leaves after the newest
checkpoint is ignored, or written again with the same content.
"""

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.numpy

from sonde._internal.errors import SondeError
from sonde._internal.files import sync_folder, write_atomically
from sonde.data import Trajectory
from sonde.evaluation._tasks import check_goal_support, reward_named, task_named
from sonde.runs._checkpoints import Checkpoints, contiguous, data_path
from sonde.runs._codec import from_json, to_json
from sonde.runs._config import RunConfig, with_absolute_paths
from sonde.runs._initial_data import load_initial_data, read_measurements, save_initial_data
from sonde.runs._memory import check_memory
from sonde.solvers import Policy
from sonde.worlds import has_simulator

FOLDERS = ("data", "checkpoints", "figures")
ARRAYS = ("states", "actions", "next_states", "terminated", "truncated")


class RunStore:
    """Reads and writes the folder of one run."""

    def __init__(self, folder: Path, config: RunConfig):
        """Use `create` or `open` instead.

        Args:
            folder: Folder of the run, which exists.
            config: Its config.
        """
        self.folder, self.config = folder, config
        self._checkpoints = Checkpoints(folder)

    @classmethod
    def create(cls, folder: Path, config: RunConfig, overwrite: bool = False, *, runs_here: bool = True) -> "RunStore":
        """Make the folder of a new run.

        Args:
            folder: Where to make it.
            config: The config of the run; what it names in files of one's own is loaded and checked first.
            overwrite: Replace a run that is there.
            runs_here: Whether this process will run it, and not another one; see `check_memory`.
        """
        folder, config = folder.absolute(), with_absolute_paths(config)
        text = _checked_config(config)
        initial_data = None if config.data is None else read_measurements(config.data, config.world)
        check_memory(config, 0 if initial_data is None else initial_data.states.shape[-2], runs_here)
        if folder.exists() and not overwrite:
            raise SondeError(
                f"{folder} exists; choose another --out, continue it with 'sonde resume', or replace it with --overwrite"
            )
        if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not (folder / "config.json").exists())):
            raise SondeError(f"{folder} is not the folder of a run, so it is not replaced; choose another --out")
        folder.parent.mkdir(parents=True, exist_ok=True)
        # made under another name, so that a folder never exists without its config
        draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        draft.chmod(0o755)
        for name in FOLDERS:
            (draft / name).mkdir()
        if initial_data is not None:
            save_initial_data(draft, initial_data)
        write_atomically(draft / "config.json", text.encode())
        _move(draft, folder)
        return cls(folder, config)

    @classmethod
    def open(cls, folder: Path) -> "RunStore":
        """Open a run that exists.

        Args:
            folder: Folder of the run.
        """
        path = folder / "config.json"
        try:
            text = path.read_text()
        except OSError:
            raise SondeError(f"{folder} is not the folder of a run: it has no readable config.json") from None
        except UnicodeDecodeError:
            raise SondeError(f"{path} is not text; restore it from a copy") from None
        store = cls(folder.absolute(), from_json(RunConfig, text, str(path)))
        missing = [name for name in FOLDERS if not (folder / name).is_dir()]
        if missing:
            raise SondeError(f"{folder} is incomplete: it has no {', '.join(missing)}; restore it from a copy")
        return store

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Lock the run against other processes; the lock ends with the process, however it ends."""
        return _locked(self.folder)

    # Measurements

    def data_path(self, round_number: int) -> Path:
        """Where the measurements of a round are, whether they exist or not.

        Args:
            round_number: The round, from 1.
        """
        return data_path(self.folder, round_number)

    def save_data(self, round_number: int, trajectory: Trajectory) -> None:
        """Write the measurements of a round.

        Args:
            round_number: The round, from 1.
            trajectory: Measurements [S, T, ...].
        """
        given = {name: getattr(trajectory, name) for name in ARRAYS}
        arrays = {name: array for name, array in given.items() if array is not None}
        write_atomically(self.data_path(round_number), safetensors.numpy.save(contiguous(arrays)))

    def drop_data(self, round_number: int) -> None:
        """Delete the measurements of a round.

        Args:
            round_number: The round, from 1.
        """
        self.data_path(round_number).unlink(missing_ok=True)

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
        return [Trajectory(**_read_arrays(self.data_path(number))) for number in range(1, rounds + 1)]

    def load_initial_data(self) -> Trajectory | None:
        """Read the measurements [N, ...] that the run started from, if any."""
        return None if self.config.data is None else load_initial_data(self.folder, self.config.data)

    def load_finished(self) -> list[Trajectory]:
        """Read the measurements of all finished rounds, checked against the newest checkpoint."""
        newest = max(self.checkpoints(), default=0)
        if newest:
            self._checkpoints.check_data(newest)
        return self.load_data(newest)

    def save_policies(self, policies: Mapping[str, Policy]) -> None:
        """Write those policies that are trained and can be used without a planner, in place of the last ones.

        Args:
            policies: Policies by name.
        """
        for name, policy in policies.items():
            content = policy.to_bytes()
            if content is not None:
                (self.folder / "policies").mkdir(exist_ok=True)
                write_atomically(self.folder / "policies" / f"{name}.safetensors", content)

    # Checkpoints

    def checkpoints(self) -> list[int]:
        """Rounds after which a checkpoint exists, oldest first."""
        return self._checkpoints.rounds()

    def save_checkpoint(self, round_number: int, params: Any) -> None:
        """Write what was learned; only the last two checkpoints are kept.

        Args:
            round_number: The round, from 1.
            params: The model's params after it.
        """
        self._checkpoints.save(round_number, params)

    def load_checkpoint(self, round_number: int, like: Any) -> Any:
        """Read what was learned; a checkpoint that is damaged, incomplete or of another run is rejected.

        Args:
            round_number: The round, from 1.
            like: Params of the same structure and shapes.
        """
        try:
            return self._checkpoints.load(round_number, like)
        except SondeError as error:
            older = [n for n in self.checkpoints() if n < round_number and self._checkpoints.is_usable(n, like)]
            if not has_simulator(self.config.world):
                note, _ = self._checkpoints.paths(round_number)
                hint = f"restore it from a copy; or, if data/ is complete, remove {note}: the round is then learned again"
            elif older:
                hint = f"an older checkpoint is good: 'sonde resume {self.folder} --from-round {older[-1]}' uses it"
            else:
                hint = f"no older checkpoint is good: 'sonde resume {self.folder} --from-round 0' starts the run over"
            raise SondeError(f"{error}; {hint}") from None

    # Metrics

    @property
    def metrics_path(self) -> Path:
        """The file of metrics, with one JSON object per line."""
        return self.folder / "metrics.jsonl"

    def append_metrics(self, rows: list[dict[str, Any]]) -> None:
        """Add the metrics of a round and force them to disk.

        Args:
            rows: One dictionary per seed.
        """
        with open(self.metrics_path, "a") as file:
            file.write("".join(json.dumps(row) + "\n" for row in rows))
            file.flush()
            os.fsync(file.fileno())

    def load_metrics(self) -> list[dict[str, Any]]:
        """Read all metrics; a last line that an interruption left incomplete is skipped."""
        if not self.metrics_path.exists():
            return []
        rows = []
        text = self.metrics_path.read_bytes().decode(errors="replace")
        lines = text.splitlines()
        for number, line in enumerate(lines, start=1):
            try:
                row = json.loads(line)
                rows.append({**row, "seed": int(row["seed"]), "round": int(row["round"])})
            except (TypeError, KeyError, ValueError):
                incomplete = number == len(lines) and not text.endswith("\n")
                if not incomplete:
                    raise SondeError(f"{self.metrics_path}, line {number} is not a line of metrics; remove it") from None
        return rows

    def why_stopped(self) -> str | None:
        """Why the run stopped early by its stopping rule, in words; None if it did not."""
        newest = max(self.checkpoints(), default=0)
        return next((row.get("stopped") for row in self.load_metrics() if row["round"] == newest), None)

    def forget_after(self, round_number: int) -> None:
        """Delete checkpoints, metrics and policies of later rounds, after an interruption or to go back.

        Args:
            round_number: The last round that stays.
        """
        # checkpoints first: a run never continues from one whose metrics are gone
        self._checkpoints.delete_after(round_number)
        saved = self.load_metrics()
        rows = [row for row in saved if row["round"] <= round_number]
        if len(rows) < len(saved):  # then the policies are those of a later round
            shutil.rmtree(self.folder / "policies", ignore_errors=True)
        write_atomically(self.metrics_path, "".join(json.dumps(row) + "\n" for row in rows).encode())


def _checked_config(config: RunConfig) -> str:
    """The config as JSON, once all that it names was found, and the JSON was read back."""
    for task in config.evaluation_tasks:
        check_goal_support(task_named(config.world, task), config.settings_for(task).solver, task)
    if config.exploration_task is not None:
        reward_named(config.world, config.exploration_task)
    if config.stopping_rule is not None:
        config.stopping_rule.check_world(config.world)
    text = to_json(config)
    from_json(RunConfig, text, "config")  # a run whose config cannot be read could not be resumed
    return text


def _move(draft: Path, folder: Path) -> None:
    """Rename the draft to its place; what was there is deleted once the draft is in place."""
    if not folder.exists():
        draft.rename(folder)
    else:
        try:
            with _locked(folder):
                old = Path(tempfile.mkdtemp(prefix=f".{folder.name}.old.", dir=folder.parent))
                folder.rename(old / "run")
                draft.rename(folder)
        except SondeError:  # another process uses the folder
            shutil.rmtree(draft)
            raise
        shutil.rmtree(old)
    sync_folder(folder.parent)


@contextlib.contextmanager
def _locked(folder: Path) -> Generator[None]:
    with open(folder / ".lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SondeError(f"{folder} is in use by another process; wait for it or stop it") from None
        yield


def _read_arrays(path: Path) -> dict[str, Any]:
    try:
        return safetensors.numpy.load(path.read_bytes())
    except (OSError, safetensors.SafetensorError) as error:
        raise SondeError(f"{path} cannot be read ({error})") from None
