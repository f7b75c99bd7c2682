"""Checkpoints: the model's params after a round, with checksums of everything that they were made from.

    DIR/checkpoints/0001.safetensors   the params after round 1
    DIR/checkpoints/0001.json          checksums of the params, of config.json and of all measurements

The arrays are written first: a checkpoint exists once its JSON file, its note, does. It is deleted in the opposite order. While
a note exists, all that it lists is there and as it says: a reader that finds something else, and the same notes before and
after, has found damage; if the notes have changed, a writer was at work, and the reader looks again (`steadily`).
"""

import contextlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
import safetensors.numpy

from sonde._internal.errors import SondeError
from sonde._internal.files import checksum, sync_folder, write_atomically
from sonde._internal.reading import MAX_ARRAY_BYTES, MAX_JSON_BYTES, parse_json, read_limited
from sonde.runs._initial_data import initial_data_checksum
from sonde.runs._saved import saved_arrays

FORMAT = 3
"""Number of the format; checkpoints of another one are rejected."""
KEPT = 2
"""Number of checkpoints that are kept, the newest ones."""
Result = TypeVar("Result")


def data_path(folder: Path, round_number: int) -> Path:
    """Where a run keeps the measurements of a round.

    Args:
        folder: Folder of the run.
        round_number: The round, from 1.
    """
    return folder / "data" / f"{round_number:04d}.safetensors"


def contiguous(arrays: dict[str, Any]) -> dict[str, np.ndarray]:
    """Arrays as safetensors needs them.

    Args:
        arrays: Arrays by name.
    """
    return {name: np.ascontiguousarray(array) for name, array in arrays.items()}


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, folder: Path):
        """Nothing is read yet.

        Args:
            folder: Folder of the run.
        """
        self.folder = folder

    def rounds(self) -> list[int]:
        """Rounds after which a checkpoint exists, oldest first."""
        notes = (self.folder / "checkpoints").glob("*.json")
        return sorted(int(path.stem) for path in notes if re.fullmatch("[0-9]{4,9}", path.stem))

    def paths(self, round_number: int) -> tuple[Path, Path]:
        """The checksums and the arrays of a checkpoint, whether they exist or not.

        Args:
            round_number: The round, from 1.
        """
        stem = self.folder / "checkpoints" / f"{round_number:04d}"
        return stem.with_suffix(".json"), stem.with_suffix(".safetensors")

    def save(self, round_number: int, params: Any) -> None:
        """Write a checkpoint, and delete those that are too old to keep.

        Args:
            round_number: The round; 0 for what was learned from initial data alone.
            params: The model's params after it, a pytree of arrays.
        """
        note, arrays = self.paths(round_number)
        # what was written in earlier rounds keeps its checksums: damage since then is not made good by computing them again
        before = self._facts(round_number - 1) if round_number > 1 else {"data": []}
        new = range(max(round_number, 1), round_number + 1)  # none for what was learned from initial data alone
        content = safetensors.numpy.save(contiguous(_named_leaves(params)))
        write_atomically(arrays, content)
        facts = {
            "format": FORMAT,
            "round": round_number,
            "config": self._config_checksum(),
            "arrays": checksum(content),
            "data": [*before["data"], *(checksum(data_path(self.folder, n).read_bytes()) for n in new)],
            "initial_data": initial_data_checksum(self.folder),
        }
        write_atomically(note, json.dumps(facts, indent=2).encode())
        with contextlib.suppress(OSError):  # the round is finished; what cannot be deleted now is deleted later
            self._keep(self.rounds()[-KEPT:])

    def load(self, round_number: int, like: Any) -> Any:
        """Read a checkpoint; one that is damaged, incomplete or of another run is rejected.

        Args:
            round_number: The round, from 1.
            like: Params of the same structure and shapes.
        """
        note, path = self.paths(round_number)
        name, facts = f"checkpoint {note.stem}", self._facts(round_number)
        try:
            content = read_limited(path, MAX_ARRAY_BYTES)
        except (OSError, SondeError) as error:
            raise SondeError(f"{name} is damaged ({error})") from None
        if facts.get("arrays") != checksum(content):
            raise SondeError(f"{name} is damaged: {path} does not have the checksum in {note.name}")
        self._check_data(facts, round_number)
        arrays, wanted = saved_arrays(content, str(path)), _named_leaves(like)
        if _shapes(arrays) != _shapes(wanted):
            raise SondeError(f"{name} does not belong to this run: its arrays do not fit the model of config.json")
        return jax.tree.unflatten(jax.tree.structure(like), [arrays[key] for key in wanted])

    def is_usable(self, round_number: int, like: Any) -> bool:
        """Whether a checkpoint can be loaded.

        Args:
            round_number: The round, from 1.
            like: Params of the same structure and shapes.
        """
        try:
            self.load(round_number, like)
        except SondeError:
            return False
        return True

    def check_data(self, round_number: int) -> None:
        """Reject measurements that are not those which a checkpoint was made from.

        Args:
            round_number: The round of the checkpoint, from 1.
        """
        self._check_data(self._facts(round_number), round_number)

    def steadily(self, read: Callable[[int], Result]) -> Result:
        """Read something of the newest checkpoint; again, if a writer has added or deleted checkpoints in the meantime.

        Args:
            read: Called with the round of the newest checkpoint, 0 if there is none.

        Returns:
            What `read` returns.
        """
        while True:
            before = self._listing()
            try:
                return read(max(self.rounds(), default=0))
            except (SondeError, OSError):
                if self._listing() == before:
                    raise

    def delete_after(self, round_number: int) -> None:
        """Delete the checkpoints of later rounds.

        Args:
            round_number: The last round whose checkpoint stays.
        """
        self._keep([number for number in self.rounds() if number <= round_number][-KEPT:])
        sync_folder(self.folder / "checkpoints")

    def _keep(self, rounds: list[int]) -> None:
        """Delete all other checkpoints, and what was left of those that could not be deleted or finished."""
        paths = [path for path in (self.folder / "checkpoints").iterdir() if re.fullmatch(r"[0-9]{4,9}", path.stem)]
        for number in {int(path.stem) for path in paths} - set(rounds):
            for path in self.paths(number):  # the note first
                path.unlink(missing_ok=True)

    def _config_checksum(self) -> str:
        return checksum((self.folder / "config.json").read_bytes())

    def _listing(self) -> set[tuple[str, int, int]]:
        """What tells the notes of now from those of another moment."""
        found = set()
        for path in (self.folder / "checkpoints").glob("*.json"):
            try:
                facts = path.stat(follow_symlinks=False)
            except OSError:  # deleted in the meantime
                continue
            found.add((path.name, facts.st_ino, facts.st_mtime_ns))
        return found

    def _facts(self, round_number: int) -> dict[str, Any]:
        """The content of a checkpoint's JSON file, if it is one of this run."""
        note, _ = self.paths(round_number)
        name = f"checkpoint {note.stem}"
        try:
            facts = parse_json(read_limited(note, MAX_JSON_BYTES), str(note))
        except (OSError, SondeError) as error:
            raise SondeError(f"{name} is damaged ({error})") from None
        if not isinstance(facts, dict) or facts.get("format") != FORMAT or facts.get("round") != round_number:
            raise SondeError(
                f"{name} does not belong to this run, or was made by another version of Sonde: "
                f"{note} is not of format {FORMAT} and round {round_number}"
            )
        if not isinstance(facts.get("data"), list) or len(facts["data"]) != round_number:
            raise SondeError(f"{name} does not belong to this run: it does not list the data of {round_number} rounds")
        if facts.get("config") != self._config_checksum():
            raise SondeError(f"{name} does not belong to this run: it was made with another config.json")
        return facts

    def _check_data(self, facts: dict[str, Any], round_number: int) -> None:
        name = f"checkpoint {round_number:04d}"
        if facts.get("initial_data") != initial_data_checksum(self.folder):
            raise SondeError(f"{name} does not belong to this run: it was made with other initial data")
        for number, expected in enumerate(facts["data"], start=1):
            path = data_path(self.folder, number)
            if not path.exists() or checksum(read_limited(path, MAX_ARRAY_BYTES)) != expected:
                raise SondeError(f"{name} cannot be used: {path} is missing or damaged")


def _shapes(arrays: dict[str, Any]) -> dict[str, Any]:
    """What must agree between a saved tree and that of the model: names, shapes and kinds of numbers."""
    return {name: (array.shape, array.dtype.kind) for name, array in arrays.items()}


def _named_leaves(tree: Any) -> dict[str, Any]:
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}
