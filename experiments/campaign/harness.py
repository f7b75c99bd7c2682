"""Cases in worker processes, and a journal of what happened in each.

A worker is a fresh process that imports and prepares a part once, then runs one case after the other. One that dies or takes
too long is a fault of its case; the next case gets another worker. The journal has one line per case.
"""

import json
import multiprocessing
import os
import random
import resource
import shutil
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

KINDS = ("lost", "wrong", "traceback", "outside")
"""Kinds of faults: something gone, other results than expected, no clean error, a file changed outside of the folder."""
MEMORY = 8 * 2**30
"""Bytes that a worker may ask for: a case that wants more fails without taking the machine with it."""
PREPARATION = 600.0
"""Seconds that a worker has to prepare itself."""


class Outcome:
    """What happened in one case."""

    def __init__(self):
        """Nothing happened yet."""
        self.counts: Counter[str] = Counter()
        self.faults: list[tuple[str, str]] = []

    def count(self, what: str, number: int = 1) -> None:
        """Count something that was done.

        Args:
            what: Its name in the table.
            number: How often.
        """
        self.counts[what] += number

    def fault(self, kind: str, text: str) -> None:
        """Write down that something is not as it should be.

        Args:
            kind: One of `KINDS`.
            text: What happened.
        """
        assert kind in KINDS
        self.faults.append((kind, text[-3000:]))

    def to_json(self, case: int) -> dict[str, Any]:
        """The line of the journal.

        Args:
            case: Number of the case.
        """
        return {"case": case, "counts": dict(self.counts), "faults": self.faults}


def prepare_environment() -> None:
    """Make programs small and quick to compile, and keep them between processes; to be called before JAX is imported."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sonde" / "campaign"
    settings = {
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MPLBACKEND": "agg",
        "COLUMNS": "200",
    }
    for name, value in settings.items():
        os.environ.setdefault(name, value)


def read_journal(path: Path) -> dict[int, dict[str, Any]]:
    """The lines of a journal by case; a line that was not finished is left out.

    Args:
        path: The journal, whether it exists or not.
    """
    found = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        found[entry["case"]] = entry
    return found


class Campaign:
    """All parts with one seed, in one folder."""

    def __init__(self, folder: Path, seed: int = 0, jobs: int = 2, minutes: float | None = None):
        """Nothing runs yet.

        Args:
            folder: Where journals are kept.
            seed: Seed of all cases.
            jobs: Worker processes.
            minutes: Most time for a part.
        """
        self.folder, self.seed, self.jobs = folder, seed, jobs
        self.seconds = float("inf") if minutes is None else 60 * minutes
        folder.mkdir(parents=True, exist_ok=True)

    def journal(self, name: str) -> Path:
        """Where the cases of a part are written down.

        Args:
            name: Name of the part.
        """
        return self.folder / f"{name}-seed{self.seed}.jsonl"

    def run(self, name: str, cases: int, again: bool = False) -> None:
        """Run those cases of a part that the journal does not have.

        Args:
            name: Name of the part.
            cases: Number of cases, of which the first is 0.
            again: Repeat those in which something was found.
        """
        lines, began = read_journal(self.journal(name)), time.monotonic()
        done = {number: line for number, line in lines.items() if not (again and line["faults"])}
        left, lock = iter([number for number in range(cases) if number not in done]), threading.Lock()

        def work() -> None:
            worker = Worker(name, self.seed)
            while time.monotonic() - began < self.seconds:
                with lock:
                    number = next(left, None)
                if number is None:
                    break
                outcome = worker.run(number)
                with lock, open(self.journal(name), "a") as file:
                    file.write(json.dumps(outcome.to_json(number)) + "\n")
                    done[number] = outcome.to_json(number)
                    if sys.stderr.isatty() or len(done) % max(1, cases // 20) == 0:
                        bad = sum(bool(line["faults"]) for line in done.values())
                        print(f"{name}: {len(done)}/{cases}, {bad} with faults", file=sys.stderr, flush=True)
            worker.close()

        threads = [threading.Thread(target=work) for _ in range(min(self.jobs, max(1, cases - len(done))))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def one(self, name: str, number: int) -> Outcome:
        """Run a single case.

        Args:
            name: Name of the part.
            number: Number of the case.
        """
        worker = Worker(name, self.seed)
        outcome = worker.run(number)
        worker.close()
        return outcome


class Worker:
    """A process that runs cases of one part, started again when it died."""

    def __init__(self, name: str, seed: int):
        """Start no process yet.

        Args:
            name: Name of the part.
            seed: Seed of all cases.
        """
        self.name, self.seed = name, seed
        self.process: Any = None

    def run(self, number: int) -> Outcome:
        """Run one case.

        Args:
            number: Its number.
        """
        from experiments.campaign.parts import PARTS

        if self.process is None:
            self.start()
        limit, problem = PARTS[self.name].limit, ""
        try:
            self.pipe.send(number)
            if self.pipe.poll(limit):
                return self.pipe.recv()
            problem = f"took more than {limit:g} s"
        except (EOFError, OSError):
            self.process.join()
            problem = f"the process died with exit code {self.process.exitcode}"
        self.close(kill=True)
        outcome = Outcome()
        outcome.fault("traceback", problem)
        return outcome

    def start(self) -> None:
        """Start the process, and wait until it is prepared."""
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        prepare_environment()
        self.folder = tempfile.mkdtemp(prefix=f"sonde-{self.name}-")
        self.process = context.Process(target=_work, args=(self.name, self.seed, self.folder, other))
        self.process.start()
        other.close()
        if not self.pipe.poll(PREPARATION) or not self._is_prepared():
            self.close(kill=True)
            raise RuntimeError(f"the part {self.name} cannot be prepared")

    def _is_prepared(self) -> bool:
        try:
            return self.pipe.recv()
        except EOFError:
            return False

    def close(self, kill: bool = False) -> None:
        """End the process and delete its folder.

        Args:
            kill: Whether to end it in the middle of a case.
        """
        if self.process is None:
            return
        if kill:
            self.process.kill()
        else:
            self.pipe.send(None)
        self.process.join()
        self.pipe.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.process = None


def _work(name: str, seed: int, folder: str, pipe: Connection) -> None:
    """Prepare a part, then run the cases that the pipe asks for."""
    from experiments.campaign.parts import PARTS

    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, most))
    home = Path(folder)
    os.environ["XDG_STATE_HOME"] = str(home / "state")
    (home / "prepared").mkdir()
    os.chdir(home)
    prepare, case = PARTS[name].load()
    prepared = prepare(home / "prepared")
    pipe.send(True)
    while (number := pipe.recv()) is not None:
        pipe.send(run_case(name, case, prepared, seed, number, home))


def run_case(name: str, case: Callable[..., None], prepared: Any, seed: int, number: int, home: Path) -> Outcome:
    """Run one case in this process, in a folder of its own that is deleted afterwards.

    Args:
        name: Name of the part.
        case: Its function.
        prepared: What the part has prepared.
        seed: Seed of all cases.
        number: Number of the case.
        home: Where the folder is made.
    """
    outcome, place, before = Outcome(), home / "case", Path.cwd()
    place.mkdir()
    os.chdir(place)
    try:
        case(prepared, random.Random(f"{seed} {name} {number}"), place, outcome)
    except Exception:  # a check of the case itself, or something that nobody expected
        outcome.fault("traceback", traceback.format_exc())
    os.chdir(before)
    shutil.rmtree(place, ignore_errors=True)
    return outcome
