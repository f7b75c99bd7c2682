"""Faults inside `Experiment.tell`, each followed by another try: the folder must end as if nothing had happened.

A fault is an exception at the k-th call of a function of the operating system, or at the k-th line of the package that runs: a
full disk (also in the middle of a file), Ctrl-C, no memory, or anything else. After it the program calls `tell` again, or is
started again, as a user would.
"""

import builtins
import errno
import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import sonde
from experiments.campaign.harness import Outcome
from experiments.campaign.kills import OWN, measured
from experiments.campaign.sandbox import differing, results
from sonde._internal.errors import SondeError
from sonde.runs import Experiment

PACKAGE = str(Path(sonde.__file__).parent)
CALLS = ("open", "write", "fsync", "replace", "rename", "unlink", "mkdir", "close", "scandir", "listdir", "stat", "fdopen")
"""Functions of `os` that may fail."""
TRIES = 6
"""Most times that a program tries to tell a round."""


def full_disk() -> Exception:
    """The error of a full disk."""
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


RAISED: dict[str, Callable[[], BaseException]] = {
    "full disk": full_disk,
    "Ctrl-C": KeyboardInterrupt,
    "no memory": MemoryError,
    "exception": lambda: RuntimeError("anything"),
    "input/output error": lambda: OSError(errno.EIO, os.strerror(errno.EIO)),
}
"""What is raised."""


class Trigger:
    """Raises at the k-th event, once."""

    def __init__(self, at: int, make: Callable[[], BaseException]):
        """Wait for the events.

        Args:
            at: Number of the event, from 1.
            make: Makes what is raised.
        """
        self.at, self.make, self.seen, self.fired = at, make, 0, ""

    def event(self, where: str) -> None:
        """Count an event.

        Args:
            where: Where it is.
        """
        self.seen += 1
        if self.seen == self.at:
            self.fired = where
            raise self.make()


@contextmanager
def at_lines(trigger: Trigger) -> Generator[None]:
    """Let every line of the package be an event.

    Args:
        trigger: Raises at one of them.
    """

    def on_line(frame: FrameType, kind: str, _: Any) -> Any:
        if kind == "line":
            trigger.event(f"{frame.f_code.co_filename}:{frame.f_lineno}")
        return on_line

    def on_call(frame: FrameType, _: str, __: Any) -> Any:
        return on_line if frame.f_code.co_filename.startswith(PACKAGE) else None

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        yield
    finally:
        sys.settrace(before)


@contextmanager
def at_calls(trigger: Trigger) -> Generator[None]:
    """Let every call of a function of the operating system be an event; a file is half written before the disk is full.

    Args:
        trigger: Raises at one of them.
    """
    originals: dict[str, Any] = {name: getattr(os, name) for name in CALLS}
    opened = builtins.open

    def failing(name: str) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            trigger.event(f"os.{name}({args[0] if args else ''!r})")
            return originals[name](*args, **options)

        return call

    class HalfWritten:
        """A file whose writes may fail in the middle."""

        def __init__(self, file: Any):
            self._file = file

        def write(self, content: Any) -> int:
            try:
                trigger.event(f"write to {self._file.name}")
            except BaseException:
                self._file.write(content[: len(content) // 2])
                self._file.flush()
                raise
            return self._file.write(content)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._file, name)

        def __enter__(self) -> "HalfWritten":
            return self

        def __exit__(self, *_: Any) -> None:
            self._file.close()

    def open_file(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
        trigger.event(f"open({file!r}, {mode!r})")
        found = opened(file, mode, *args, **options)
        return HalfWritten(found) if set(mode) & set("wax+") else found

    def open_descriptor(descriptor: int, *args: Any, **options: Any) -> Any:
        return HalfWritten(originals["fdopen"](descriptor, *args, **options))

    for name in CALLS:
        setattr(os, name, failing(name))
    os.fdopen, builtins.open = open_descriptor, open_file  # ty: ignore[invalid-assignment]
    try:
        yield
    finally:
        builtins.open = opened
        for name, original in originals.items():
            setattr(os, name, original)


def prepare(folder: Path) -> dict[str, Any]:
    """Make the quiet run, and count the events of telling each round.

    Args:
        folder: Where to work.
    """
    events: dict[tuple[str, int], int] = {}
    for watch, name in ((at_lines, "lines"), (at_lines, "lines"), (at_calls, "calls")):  # the first one also compiles
        place = folder / f"quiet{len(list(folder.iterdir()))}"
        with Experiment(place, OWN) as experiment:
            for number in range(1, OWN.rounds + 1):
                trigger = Trigger(0, RuntimeError)
                with watch(trigger):
                    experiment.tell(measured(number))
                events[name, number] = trigger.seen
    return {"events": events, "results": results(place)}


def case(prepared: dict[str, Any], rng: Random, folder: Path, outcome: Outcome) -> None:
    """Tell all rounds, with one to three faults in one of them.

    Args:
        prepared: What `prepare` returned.
        rng: Which faults, and where.
        folder: An empty folder.
        outcome: Where to write down what happened.
    """
    wrong, faults, history = rng.randint(1, OWN.rounds), rng.choice((1, 1, 2, 3)), []
    run, restarts = folder / "run", rng.random() < 0.4
    experiment = Experiment(run, OWN).__enter__()
    try:
        for number in range(1, OWN.rounds + 1):
            for _ in range(TRIES):
                if restarts and experiment.round >= number:  # a program that was started again asks where it is
                    break
                if number != wrong or faults == 0:
                    experiment.tell(measured(number))
                    break
                faults -= 1
                problem = _faulty_tell(prepared, experiment, number, rng)
                outcome.count("faults" if problem else "faults without effect")
                if problem is None:
                    break
                history.append(problem)
                if restarts:
                    experiment.__exit__()
                    experiment = Experiment(run, OWN).__enter__()
            if experiment.round != number:
                outcome.fault("wrong", f"{history}: after round {number} the run is in round {experiment.round}")
                return
        experiment.__exit__()
        with Experiment(run, OWN):  # deletes a checkpoint that is too old, if a fault was in the way
            pass
        if names := differing(results(run), prepared["results"]):
            outcome.fault("wrong", f"{history}: other results: {names}")
    except (SondeError, OSError) as error:
        outcome.fault("lost", f"{history}: the next try says: {type(error).__name__}: {error}")
    left = [str(path.relative_to(folder)) for path in folder.rglob(".*") if path.name != ".lock"]
    if left:
        outcome.fault("outside", f"{history}: left behind: {left}")


def _faulty_tell(prepared: dict[str, Any], experiment: Experiment, number: int, rng: Random) -> str | None:
    """Tell a round with a fault; what was raised where, or None if nothing was."""
    what, where = rng.choice(tuple(RAISED)), rng.choice(("lines", "calls", "calls"))
    trigger = Trigger(rng.randint(1, prepared["events"][where, number]), RAISED[what])
    try:
        with at_lines(trigger) if where == "lines" else at_calls(trigger):
            experiment.tell(measured(number))
    except BaseException as error:
        if not trigger.fired:
            raise
        return f"{what} at {trigger.fired.replace(PACKAGE, 'sonde')} (raised {type(error).__name__})"
    return None
