"""The folder of a run.

    DIR/config.json                    what was asked for
    DIR/metrics.jsonl                  one line per seed and episode
    DIR/data/0001.safetensors          the measurements of episode 1, all seeds [S, T, ...]
    DIR/data/initial.safetensors       the measurements that the run started from, if any
    DIR/policies/swing-up.safetensors  trained policies of the last episode, all seeds, to use without planner (`sonde.control.deploy`)
    DIR/checkpoints/0001.safetensors   what was learned after episode 1 (the last two are kept)
    DIR/checkpoints/0001.json          its checksums; a checkpoint exists once this file does
    DIR/figures/                       pictures

An episode is first written to `data`, then to `metrics.jsonl`, then to `checkpoints`. Whatever an interruption leaves behind
the newest checkpoint is thus ignored or written again, with the same content.
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

import jax
import numpy as np
import safetensors
import safetensors.numpy

from sonde._internal.errors import SondeError
from sonde._internal.files import checksum, sync_folder, write_atomically
from sonde.data import Trajectory
from sonde.evaluation._tasks import check_goal_support, reward_named, task_named
from sonde.runs._codec import from_json, to_json
from sonde.runs._config import RunConfig, with_absolute_paths
from sonde.runs._initial_data import initial_data_checksum, load_initial_data, save_initial_data
from sonde.runs._measurements import read_measurements
from sonde.solvers import Policy
from sonde.worlds import has_simulator

FORMAT = 2
KEPT_CHECKPOINTS = 2
FOLDERS = ("data", "checkpoints", "figures")


class RunStore:
    """Reads and writes the folder of one run."""

    def __init__(self, folder: Path, config: RunConfig):
        """Use `create` or `open` instead."""
        self.folder, self.config = folder, config

    @classmethod
    def create(cls, folder: Path, config: RunConfig, overwrite: bool = False) -> "RunStore":
        """A new run; a folder that exists is left untouched unless `overwrite` says otherwise."""
        folder = folder.absolute()
        config = with_absolute_paths(config)
        for task in config.evaluation_tasks:
            check_goal_support(task_named(config.world, task), config.settings_for(task).solver, task)
        if config.exploration_task is not None:
            reward_named(config.world, config.exploration_task)
        if config.stopping_rule is not None:
            config.stopping_rule.check_world(config.world)
        initial_data = None if config.data is None else read_measurements(config.data, config.world)
        if folder.exists() and not overwrite:
            raise SondeError(
                f"{folder} exists; choose another --out, continue it with 'sonde resume', or replace it with --overwrite"
            )
        if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not (folder / "config.json").exists())):
            raise SondeError(f"{folder} is not the folder of a run: refusing to replace it")
        folder.parent.mkdir(parents=True, exist_ok=True)
        # made under another name, so that a folder never exists without its config
        draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        draft.chmod(0o755)
        for name in FOLDERS:
            (draft / name).mkdir()
        if initial_data is not None:
            save_initial_data(draft, initial_data)
        write_atomically(draft / "config.json", to_json(config).encode())
        if not folder.exists():
            draft.rename(folder)
        else:
            with _locked(folder):
                old = Path(tempfile.mkdtemp(prefix=f".{folder.name}.old.", dir=folder.parent))
                folder.rename(old / "run")
                draft.rename(folder)
            shutil.rmtree(old)
        sync_folder(folder.parent)
        return cls(folder, config)

    @classmethod
    def open(cls, folder: Path) -> "RunStore":
        """A run that exists."""
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
            raise SondeError(f"{folder} is not whole: it lacks {', '.join(missing)}; restore from a copy")
        return store

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Hold the run, so that no other process writes to it; the lock ends with the process, however it ends."""
        return _locked(self.folder)

    # Measurements

    def data_path(self, round_number: int) -> Path:
        """Where the measurements of `episode` are."""
        return self.folder / "data" / f"{round_number:04d}.safetensors"

    def save_data(self, round_number: int, trajectory: Trajectory) -> None:
        """The measurements of `episode` (counted from 1)."""
        given = {name: getattr(trajectory, name) for name in ("states", "actions", "next_states", "terminated", "truncated")}
        arrays = {name: array for name, array in given.items() if array is not None}
        write_atomically(self.data_path(round_number), safetensors.numpy.save(_contiguous(arrays)))

    def drop_data(self, round_number: int) -> None:
        """Forget the measurements of `episode`."""
        self.data_path(round_number).unlink(missing_ok=True)

    def has_data(self, round_number: int) -> bool:
        """Whether the measurements of `episode` are there, learned from or not."""
        return self.data_path(round_number).exists()

    def load_data(self, rounds: int) -> list[Trajectory]:
        """The measurements of the first `episodes` episodes."""
        return [Trajectory(**_read_arrays(self.data_path(round_number))) for round_number in range(1, rounds + 1)]

    def load_initial_data(self) -> Trajectory | None:
        """The measurements that the run started from."""
        return None if self.config.data is None else load_initial_data(self.folder, self.config.data)

    def load_finished(self) -> list[Trajectory]:
        """The measurements of all finished episodes, as their checkpoint knows them."""
        newest = max(self.checkpoints(), default=0)
        if newest:
            self._check_data(f"checkpoint {newest:04d}", self._noted(newest), newest)
        return self.load_data(newest)

    def save_policies(self, policies: Mapping[str, Policy]) -> None:
        """Those policies, by name, that are trained and can be used without a planner; they replace the last ones."""
        for name, policy in policies.items():
            content = policy.to_bytes()
            if content is not None:
                (self.folder / "policies").mkdir(exist_ok=True)
                write_atomically(self.folder / "policies" / f"{name}.safetensors", content)

    # Checkpoints

    def _checkpoint_paths(self, round_number: int) -> tuple[Path, Path]:
        stem = self.folder / "checkpoints" / f"{round_number:04d}"
        return stem.with_suffix(".json"), stem.with_suffix(".safetensors")

    def checkpoints(self) -> list[int]:
        """Episodes after which a checkpoint exists, oldest first."""
        notes = (self.folder / "checkpoints").glob("*.json")
        return sorted(int(path.stem) for path in notes if path.stem.isdigit())

    def save_checkpoint(self, round_number: int, params: Any) -> None:
        """What was learned after `episode`; older checkpoints but one go."""
        note, arrays = self._checkpoint_paths(round_number)
        content = safetensors.numpy.save(_contiguous(_named_leaves(params)))
        write_atomically(arrays, content)
        facts = {
            "format": FORMAT,
            "round": round_number,
            "config": checksum(to_json(self.config).encode()),
            "arrays": checksum(content),
            "data": [checksum(self.data_path(e).read_bytes()) for e in range(1, round_number + 1)],
            "initial_data": initial_data_checksum(self.folder),
        }
        write_atomically(note, json.dumps(facts, indent=2).encode())
        for old in self.checkpoints()[:-KEPT_CHECKPOINTS]:
            for path in self._checkpoint_paths(old):
                path.unlink(missing_ok=True)

    def load_checkpoint(self, round_number: int, like: Any) -> Any:
        """The params after `episode`, in the structure of `like`; refused if damaged, incomplete or of another run."""
        try:
            return self._load_checkpoint(round_number, like)
        except SondeError as error:
            good = [e for e in self.checkpoints() if e < round_number and self._is_good(e, like)]
            if not has_simulator(self.config.world):
                note, _ = self._checkpoint_paths(round_number)
                hint = f"restore it from a copy; or, if data/ is whole, remove {note}: what it held is then learned again"
            elif good:
                hint = f"an older checkpoint is good: 'sonde resume {self.folder} --from-round {good[-1]}' uses it"
            else:
                hint = f"no older checkpoint is good: 'sonde resume {self.folder} --from-round 0' starts the run anew"
            raise SondeError(f"{error}; {hint}") from None

    def _is_good(self, round_number: int, like: Any) -> bool:
        try:
            self._load_checkpoint(round_number, like)
        except SondeError:
            return False
        return True

    def _load_checkpoint(self, round_number: int, like: Any) -> Any:
        note, path = self._checkpoint_paths(round_number)
        name, facts = f"checkpoint {note.stem}", self._noted(round_number)
        try:
            content = path.read_bytes()
        except OSError as error:
            raise SondeError(f"{name} is damaged ({error})") from None
        if facts.get("arrays") != checksum(content):
            raise SondeError(f"{name} is damaged: {path} does not have the checksum that was noted")
        self._check_data(name, facts, round_number)
        arrays = safetensors.numpy.load(content)
        wanted = _named_leaves(like)
        shapes = {k: v.shape for k, v in arrays.items()}
        if shapes != {k: v.shape for k, v in wanted.items()}:
            raise SondeError(f"{name} is foreign: its arrays do not fit the model of config.json")
        return jax.tree.unflatten(jax.tree.structure(like), [arrays[k] for k in wanted])

    def _noted(self, round_number: int) -> dict[str, Any]:
        """What the checkpoint's note says, if it is a note of this run."""
        note, _ = self._checkpoint_paths(round_number)
        name = f"checkpoint {note.stem}"
        try:
            facts = json.loads(note.read_text())
        except (OSError, ValueError) as error:
            raise SondeError(f"{name} is damaged ({error})") from None
        if not isinstance(facts, dict) or facts.get("format") != FORMAT or facts.get("round") != round_number:
            raise SondeError(f"{name} is foreign: {note} is not of format {FORMAT} and episode {round_number}")
        if facts.get("config") != checksum(to_json(self.config).encode()):
            raise SondeError(f"{name} is foreign: it was made under another config.json")
        return facts

    def _check_data(self, name: str, facts: dict[str, Any], round_number: int) -> None:
        """Refuse measurements that are not those which the checkpoint was made from."""
        checksums = facts.get("data")
        if not isinstance(checksums, list) or len(checksums) != round_number:
            raise SondeError(f"{name} is foreign: it does not list the data of {round_number} episodes")
        if facts.get("initial_data") != initial_data_checksum(self.folder):
            raise SondeError(f"{name} is foreign: it was made in a run that started from other measurements")
        for number, expected in enumerate(checksums, start=1):
            data = self.data_path(number)
            if not data.exists() or checksum(data.read_bytes()) != expected:
                raise SondeError(f"{name} cannot be used: {data} is missing or damaged")

    # Metrics

    @property
    def metrics_path(self) -> Path:
        """One JSON object per line."""
        return self.folder / "metrics.jsonl"

    def append_metrics(self, rows: list[dict[str, Any]]) -> None:
        """Add lines and force them to disk."""
        with open(self.metrics_path, "a") as file:
            file.write("".join(json.dumps(row) + "\n" for row in rows))
            file.flush()
            os.fsync(file.fileno())

    def load_metrics(self) -> list[dict[str, Any]]:
        """All lines; what an interruption left of the last one is passed over."""
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
                torn = number == len(lines) and not text.endswith("\n")
                if not torn:
                    raise SondeError(f"{self.metrics_path}, line {number} is not a line of metrics; remove it") from None
        return rows

    def why_stopped(self) -> str | None:
        """Why the run has stopped for good, by its rule, in words; None: it has not."""
        newest = max(self.checkpoints(), default=0)
        return next((row.get("stopped") for row in self.load_metrics() if row["round"] == newest), None)

    def forget_after(self, round_number: int) -> None:
        """Drop what an interruption, or a person who goes back, left of later episodes."""
        # checkpoints first: a run never goes on from one whose metrics are gone
        for later in self.checkpoints():
            if later > round_number:
                for path in self._checkpoint_paths(later):
                    path.unlink(missing_ok=True)
        sync_folder(self.folder / "checkpoints")
        saved = self.load_metrics()
        rows = [row for row in saved if row["round"] <= round_number]
        if len(rows) < len(saved):  # then the policies are those of a later episode
            shutil.rmtree(self.folder / "policies", ignore_errors=True)
        write_atomically(self.metrics_path, "".join(json.dumps(row) + "\n" for row in rows).encode())


@contextlib.contextmanager
def _locked(folder: Path) -> Generator[None]:
    with open(folder / ".lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SondeError(f"{folder} is in use by another process; wait for it or stop it") from None
        yield


def _contiguous(arrays: dict[str, Any]) -> dict[str, np.ndarray]:
    return {name: np.ascontiguousarray(array) for name, array in arrays.items()}


def _named_leaves(tree: Any) -> dict[str, Any]:
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def _read_arrays(path: Path) -> dict[str, Any]:
    try:
        return safetensors.numpy.load(path.read_bytes())
    except (OSError, safetensors.SafetensorError) as error:
        raise SondeError(f"{path} cannot be read ({error})") from None
