"""Checkpoints: the model's params after a round, with checksums of everything that they were made from.

    DIR/checkpoints/0001.safetensors   the params after round 1
    DIR/checkpoints/0001.json          checksums of the params, of config.json and of all measurements

The arrays are written first: a checkpoint exists once its JSON file does.
"""

import json
import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import safetensors.numpy

from sonde._internal.errors import SondeError
from sonde._internal.files import checksum, sync_folder, write_atomically
from sonde._internal.reading import MAX_ARRAY_BYTES, MAX_JSON_BYTES, parse_json, read_limited
from sonde.runs._initial_data import initial_data_checksum
from sonde.runs._saved import saved_arrays

FORMAT = 2
"""Number of the format; checkpoints of another one are rejected."""
KEPT = 2
"""Number of checkpoints that are kept, the newest ones."""


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
            round_number: The round, from 1.
            params: The model's params after it, a pytree of arrays.
        """
        note, arrays = self.paths(round_number)
        content = safetensors.numpy.save(contiguous(_named_leaves(params)))
        write_atomically(arrays, content)
        facts = {
            "format": FORMAT,
            "round": round_number,
            "config": self._config_checksum(),
            "arrays": checksum(content),
            "data": [checksum(data_path(self.folder, n).read_bytes()) for n in range(1, round_number + 1)],
            "initial_data": initial_data_checksum(self.folder),
        }
        write_atomically(note, json.dumps(facts, indent=2).encode())
        self._delete(self.rounds()[:-KEPT])

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

    def delete_after(self, round_number: int) -> None:
        """Delete the checkpoints of later rounds.

        Args:
            round_number: The last round whose checkpoint stays.
        """
        self._delete([later for later in self.rounds() if later > round_number])
        sync_folder(self.folder / "checkpoints")

    def _delete(self, rounds: list[int]) -> None:
        for number in rounds:
            for path in self.paths(number):
                path.unlink(missing_ok=True)

    def _config_checksum(self) -> str:
        return checksum((self.folder / "config.json").read_bytes())

    def _facts(self, round_number: int) -> dict[str, Any]:
        """The content of a checkpoint's JSON file, if it is one of this run."""
        note, _ = self.paths(round_number)
        name = f"checkpoint {note.stem}"
        try:
            facts = parse_json(read_limited(note, MAX_JSON_BYTES), str(note))
        except (OSError, SondeError) as error:
            raise SondeError(f"{name} is damaged ({error})") from None
        if not isinstance(facts, dict) or facts.get("format") != FORMAT or facts.get("round") != round_number:
            raise SondeError(f"{name} does not belong to this run: {note} is not of format {FORMAT} and round {round_number}")
        if facts.get("config") != self._config_checksum():
            raise SondeError(f"{name} does not belong to this run: it was made with another config.json")
        return facts

    def _check_data(self, facts: dict[str, Any], round_number: int) -> None:
        name, checksums = f"checkpoint {round_number:04d}", facts.get("data")
        if not isinstance(checksums, list) or len(checksums) != round_number:
            raise SondeError(f"{name} does not belong to this run: it does not list the data of {round_number} rounds")
        if facts.get("initial_data") != initial_data_checksum(self.folder):
            raise SondeError(f"{name} does not belong to this run: it was made with other initial data")
        for number, expected in enumerate(checksums, start=1):
            path = data_path(self.folder, number)
            if not path.exists() or checksum(read_limited(path, MAX_ARRAY_BYTES)) != expected:
                raise SondeError(f"{name} cannot be used: {path} is missing or damaged")


def _shapes(arrays: dict[str, Any]) -> dict[str, Any]:
    """What must agree between a saved tree and that of the model: names, shapes and kinds of numbers."""
    return {name: (array.shape, array.dtype.kind) for name, array in arrays.items()}


def _named_leaves(tree: Any) -> dict[str, Any]:
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}
