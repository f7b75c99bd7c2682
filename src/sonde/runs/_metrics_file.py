"""The metrics of a run.

    DIR/metrics.jsonl    a line per round and seed
    DIR/metrics.sha256   for each round, the checksum of its lines

Both are written as a whole each time, so that they never have half a line. Lines of rounds without a checkpoint are not
finished, and are not read.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path

from sonde._internal.errors import SondeError
from sonde._internal.files import checksum, write_atomically
from sonde._internal.reading import MAX_ARRAY_BYTES, read_limited


class DamagedMetrics(SondeError):
    """Metrics that are not as they were written."""

    def __init__(self, path: Path, rounds: list[int]):
        """Say which.

        Args:
            path: The file of metrics.
            rounds: The rounds whose lines are missing or were changed, sorted.
        """
        self.rounds = rounds
        named = f"{', '.join(map(str, rounds[:10]))}{' and later' if len(rounds) > 10 else ''}"
        super().__init__(f"{path} or its checksums are damaged: lines of round {named} are missing or were changed")


def metrics_path(folder: Path) -> Path:
    """Where a run keeps its metrics.

    Args:
        folder: Folder of the run.
    """
    return folder / "metrics.jsonl"


def read_lines(folder: Path, rounds: int) -> dict[int, bytes]:
    """Read the lines of the first rounds; those that are not as they were written are rejected.

    Args:
        folder: Folder of the run.
        rounds: Number of finished rounds.

    Returns:
        The lines of each round.
    """
    saved, expected = saved_lines(folder), _checksums(folder)
    lines = {number: saved.get(number, b"") for number in range(1, rounds + 1)}
    damaged = [number for number, text in lines.items() if checksum(text) != expected.get(number)]
    if damaged:
        raise DamagedMetrics(metrics_path(folder), damaged)
    return lines


def saved_lines(folder: Path) -> dict[int, bytes]:
    """All lines by round, finished or not, as they are; what is not a line of metrics is left out.

    Args:
        folder: Folder of the run.
    """
    path, found = metrics_path(folder), dict[int, bytes]()
    for line in read_limited(path, MAX_ARRAY_BYTES).splitlines(keepends=True) if path.is_file() else ():
        try:
            number = json.loads(line)["round"]
        except (ValueError, TypeError, KeyError, RecursionError):
            continue
        if isinstance(number, int):
            found[number] = found.get(number, b"") + line
    return found


def append_lines(folder: Path, round_number: int, lines: bytes) -> None:
    """Add the lines of a round, and drop those of later rounds.

    Args:
        folder: Folder of the run.
        round_number: The round, from 1.
        lines: Its lines.
    """
    saved, sums = saved_lines(folder), _checksums(folder)
    # earlier rounds keep their checksums: damage since then is not made good by computing them again
    earlier = {number: sums.get(number, "") for number in range(1, round_number)}
    _write({**{n: saved.get(n, b"") for n in earlier}, round_number: lines}, {**earlier, round_number: checksum(lines)}, folder)


def drop_lines(folder: Path, lines: Mapping[int, bytes]) -> None:
    """Drop all lines but those of some rounds.

    Args:
        folder: Folder of the run.
        lines: What `read_lines` returned.
    """
    _write(lines, {number: checksum(text) for number, text in lines.items()}, folder)


def _checksums(folder: Path) -> dict[int, str]:
    path, found = folder / "metrics.sha256", dict[int, str]()
    for line in read_limited(path, MAX_ARRAY_BYTES).decode(errors="replace").splitlines() if path.is_file() else ():
        words = line.split()
        if len(words) == 2 and re.fullmatch("[0-9]{4,9}", words[1]):
            found[int(words[1])] = words[0]
    return found


def _write(lines: Mapping[int, bytes], sums: Mapping[int, str], folder: Path) -> None:
    write_atomically(metrics_path(folder), b"".join(lines[number] for number in sorted(lines)))
    text = "".join(f"{sums[number]}  {number:04d}\n" for number in sorted(sums))
    write_atomically(folder / "metrics.sha256", text.encode())
