"""What the parts share: the smallest run that has all parts, the command line called in this process, folders compared."""

import hashlib
import json
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from experiments.campaign.harness import Outcome
from sonde.methods import METHODS
from sonde.models import GaussianProcess
from sonde.runs import RunConfig
from sonde.solvers import ICEM

TINY = RunConfig(
    rounds=3,
    horizon=12,
    evaluation_horizon=10,
    seeds=2,
    model=GaussianProcess(steps=3, rank=16),
    solver=ICEM(samples=16, elites=4, iterations=2, horizon=5),
)
"""A run of less than a second, once its programs are compiled."""
QUICK = replace(TINY, method=METHODS["random"], evaluate_every=0)
"""The same without planning."""
CODES = (0, 2, 130)
"""Exit codes that a command may end with."""


class Answer(NamedTuple):
    """How a command ended."""

    code: int
    """Exit code; 1 if an exception came through."""
    out: str
    """What it printed."""
    err: str
    """What it printed to the error stream, with the traceback of an exception that came through."""


@contextmanager
def caught_output() -> Generator[list[str]]:
    """Take what this process prints, also from native code; the list has both streams afterwards."""
    said: list[str] = []
    sys.stdout.flush()
    sys.stderr.flush()
    saved, streams = (os.dup(1), os.dup(2)), (sys.stdout, sys.stderr)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        # streams of a test runner do not write to 1 and 2
        sys.stdout, sys.stderr = (os.fdopen(os.dup(number), "w", encoding="utf-8", errors="replace") for number in (1, 2))
        try:
            yield said
        finally:
            sys.stdout.close()
            sys.stderr.close()
            sys.stdout, sys.stderr = streams
            for stream, descriptor, file in zip((1, 2), saved, (out, err), strict=True):
                os.dup2(descriptor, stream)
                os.close(descriptor)
                file.seek(0)
                said.append(file.read().decode(errors="replace"))


def call(*words: str) -> Answer:
    """Run `sonde WORDS` in this process.

    Args:
        words: The command line.
    """
    from sonde.cli import _main

    before = sys.argv
    setattr(_main, "cache_compilations", lambda: None)  # noqa: B010 (the campaign has its own cache)
    code = 0
    with caught_output() as said:
        try:
            sys.argv = ["sonde", *words]
            _main.main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        except BaseException:
            code = 1
            traceback.print_exc()
        finally:
            sys.argv = before
    return Answer(code, *said)


def check_answer(answer: Answer, words: Any, outcome: Outcome, one_line: bool = True) -> None:
    """Count how a command ended; tracebacks, odd exit codes and errors without a message are faults.

    Args:
        answer: How it ended.
        words: The command line, for the message.
        outcome: Where to write it down.
        one_line: Whether the error must be a single line.
    """
    outcome.count(f"exit {answer.code}")
    said = answer.out + answer.err
    if answer.code not in CODES or "Traceback (most recent call last)" in said:
        outcome.fault("traceback", f"{words}: exit code {answer.code}: {said[-2000:]}")
    elif answer.code == 2 and not said.strip():
        outcome.fault("traceback", f"{words}: exit code 2 without a message: {said[-500:]}")
    elif answer.code == 2 and one_line:
        lines = answer.err.strip().split("\n")
        if len(lines) != 1 or not lines[0].startswith("sonde: error: ") or len(lines[0]) > 5000:
            outcome.fault("traceback", f"{words}: expected one line that says what is wrong, got: {answer.err[-2000:]}")


def tree(folder: Path) -> dict[str, str]:
    """All that is in a folder: kinds, link targets and checksums by path.

    Args:
        folder: The folder, whether it exists or not; links are not followed.
    """
    found: dict[str, str] = {}
    left = [folder] if folder.is_dir() and not folder.is_symlink() else []
    while left:
        for entry in os.scandir(left.pop()):
            name = os.fsencode(os.path.relpath(entry.path, folder)).decode(errors="backslashreplace")
            if entry.is_symlink():
                found[name] = f"link to {Path(entry.path).readlink()}"
            elif entry.is_dir():
                found[name] = "folder"
                left.append(Path(entry.path))
            elif entry.is_file():
                found[name] = hashlib.sha256(Path(entry.path).read_bytes()).hexdigest()
            else:
                found[name] = "device"
    return found


def changed(before: dict[str, str], after: dict[str, str]) -> dict[str, str]:
    """What differs between two trees, in words by path.

    Args:
        before: The first tree.
        after: The second tree.
    """
    found = dict.fromkeys(before.keys() - after.keys(), "gone")
    found |= dict.fromkeys(after.keys() - before.keys(), "new")
    return found | {name: "changed" for name in before.keys() & after.keys() if before[name] != after[name]}


def results(folder: Path, names: str = ".*") -> dict[str, Any]:
    """Everything of a run that must not depend on interruptions: files byte by byte, metrics without times.

    Args:
        folder: The run.
        names: Pattern of the files that count.
    """
    every = (path for name in ("data", "checkpoints") for path in (folder / name).iterdir())
    files = {name for path in every if re.fullmatch(names, name := str(path.relative_to(folder)))}
    found: dict[str, Any] = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in files}
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    found["metrics"] = [{k: v for k, v in row.items() if not k.startswith("seconds/")} for row in rows]
    return found


def differing(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Names under which two results differ.

    Args:
        one: The first results.
        other: The second results.
    """
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def make_sentinel(folder: Path) -> None:
    """Put files of somebody else into a folder, none of which may ever change.

    Args:
        folder: The folder, which is made.
    """
    (folder / "work").mkdir(parents=True)
    for number, name in enumerate(("thesis.txt", "work/config.json", "work/0003.safetensors", "work/metrics.jsonl")):
        (folder / name).write_text(f"years of work, part {number}\n")


def draw_numbers_only() -> None:
    """Have figures saved as checksums of what they show: that takes no time, and compares exactly."""
    from matplotlib.figure import Figure

    def save(figure: Figure, file: Any, **_: Any) -> None:
        digest = hashlib.sha256()
        for axes in figure.axes:
            for shown in (*axes.lines, *axes.collections, *axes.images):
                for read in ("get_xydata", "get_offsets", "get_array"):
                    if (values := getattr(shown, read, lambda: None)()) is not None:
                        digest.update(values.tobytes())
            digest.update(repr((axes.get_title(), axes.get_xlim(), axes.get_ylim())).encode())
        file.write(digest.hexdigest().encode())

    Figure.savefig = save  # ty: ignore[invalid-assignment]
