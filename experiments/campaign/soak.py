"""A long run with a reader beside it the whole time: no healthy file is called damaged, and neither memory nor files pile up.

    CAMPAIGN_ROUNDS=300 python -m experiments.campaign soak

The writer is a process of its own, which notes its memory and its open files after every round. The reader loads metrics,
measurements and checkpoints, and runs commands.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

from experiments.campaign.harness import Outcome
from experiments.campaign.sandbox import QUICK, call, check_answer, draw_numbers_only
from sonde import SondeError
from sonde.runs import Callback, explore
from sonde.runs._run import restore_explorer
from sonde.runs._store import RunStore

ROUNDS = int(os.environ.get("CAMPAIGN_ROUNDS", "300"))
GROWTH = 48 * 2**20
"""Bytes by which the writer may grow between its first and its last third: allocators keep some."""


class Notes(Callback):
    """Notes memory and open files after each round."""

    def __init__(self, path: Path):
        """Note nothing yet.

        Args:
            path: File of the notes.
        """
        self.path = path

    def on_round_end(self, round_number: int, rows: object) -> None:
        """Note one round.

        Args:
            round_number: The round.
            rows: Its metrics.
        """
        memory = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        with open(self.path, "a") as file:
            file.write(json.dumps([round_number, memory, len(list(Path("/proc/self/fd").iterdir()))]) + "\n")


def write(folder: Path) -> None:
    """Run the long run.

    Args:
        folder: Where to write it, and the notes.
    """
    explore(replace(QUICK, rounds=ROUNDS, horizon=3, seeds=1), folder / "run", [Notes(folder / "notes")])


def prepare(folder: Path) -> None:
    """Nothing to prepare.

    Args:
        folder: Where to work.
    """
    draw_numbers_only()


def case(_: None, rng: Random, folder: Path, outcome: Outcome) -> None:
    """Write in one process, read in this one.

    Args:
        _: Nothing.
        rng: What is read next.
        folder: An empty folder.
        outcome: Where to write down what happened.
    """
    command = [sys.executable, "-m", "experiments.campaign.soak", str(folder)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with open(folder / "said", "wb") as said:
        writer = subprocess.Popen(command, stdout=said, stderr=said, env=environment)
    while writer.poll() is None:
        if not (folder / "run" / "config.json").exists():
            time.sleep(0.01)
            continue
        _read(folder, rng, outcome)
    if writer.returncode != 0:
        outcome.fault("traceback", f"the writer ended with {writer.returncode}: {(folder / 'said').read_text()[-2000:]}")
    _read(folder, rng, outcome)
    rows = RunStore.open(folder / "run").load_metrics()
    outcome.count("rounds", len(rows))
    if [row["round"] for row in rows] != list(range(1, ROUNDS + 1)):
        outcome.fault("lost", f"{len(rows)} rows of {ROUNDS} rounds")
    _check_growth([json.loads(line) for line in (folder / "notes").read_text().splitlines()], outcome)


def _read(folder: Path, rng: Random, outcome: Outcome) -> None:
    """Read something that the writer may be changing at this moment."""
    run = folder / "run"

    readers: dict[str, Callable[[], object]] = {
        "metrics": lambda: RunStore.open(run).load_metrics(),
        "measurements": lambda: RunStore.open(run).load_finished(),
        "checkpoints": lambda: restore_explorer(RunStore.open(run)),
    }
    commands = {
        "plot": ["--out", str(folder / "out.png")],
        "export": ["--out", str(folder / "out.npz"), "--overwrite"],
        "analyse": [],
    }
    what = rng.choice((*readers, *readers, *commands))
    outcome.count("reads")
    if what in readers:
        try:
            readers[what]()
        except SondeError as error:
            outcome.fault("wrong", f"{what}: {error}")
    else:
        answer = call(what, str(run), *commands[what])
        check_answer(answer, what, outcome)
        if answer.code != 0 and "no finished round" not in answer.err:
            outcome.fault("wrong", f"{what}: {answer.err}")


def _check_growth(notes: list[tuple[int, int, int]], outcome: Outcome) -> None:
    third = max(1, len(notes) // 3)
    early, late = notes[third - 1 : 2 * third] or notes, notes[-third:]
    memory = max(entry[1] for entry in late) - max(entry[1] for entry in early)
    files = max(entry[2] for entry in late) - max(entry[2] for entry in early)
    outcome.count("MB of growth", max(0, memory // 2**20))
    if memory > GROWTH:
        outcome.fault("wrong", f"memory grew by {memory / 2**20:.0f} MB over {len(notes)} rounds")
    if files > 0:
        outcome.fault("wrong", f"open files grew by {files} over {len(notes)} rounds")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
