"""Command lines and configs, through the real entry point: exit code 0, 2 or 130, no traceback, nothing changed by an error.

All checks are real. Where a command would begin to explore, evaluate or train, it has passed them, and ends there; one in fifty
folders with a changed config is loaded in earnest.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from experiments.campaign.damage import OF_CONTENT
from experiments.campaign.harness import Outcome
from experiments.campaign.mutations import CSV
from experiments.campaign.sandbox import TINY, call, changed, check_answer, draw_numbers_only, make_sentinel, tree
from experiments.campaign.words import changed_config, command_line
from sonde.cli import _run, _sweep
from sonde.runs import _run as runs_run
from sonde.runs import explore
from sonde.runs._store import RunStore

READERS: dict[str, tuple[str, ...]] = {
    "export": ("--out", "measured.npz"),
    "plot": ("--out", "figure.png"),
    "evaluate": ("--task", "swing-up"),
    "analyse": (),
    "resume": (),
}
"""Commands that open a folder."""


def prepare(folder: Path) -> Path:
    """Make the folder that every case gets a copy of: a run, files of somebody else, a log.

    Args:
        folder: Where to work.
    """
    draw_numbers_only()
    place = folder / "place"
    make_sentinel(place / "foreign")
    (place / "foreign" / "config.json").write_text('{"mine": true}')
    (place / "empty").mkdir()
    (place / "file.txt").write_text("mine")
    (place / "log.csv").write_text(CSV)
    explore(TINY, place / "run")
    call("resume", str(place / "run"))
    shutil.copytree(place, folder / "pristine")
    return place


def _reached(*_: Any, **__: Any) -> Any:
    raise SystemExit(0)


def _reached_run(store: RunStore, *_: Any, **__: Any) -> Any:
    with store.locked():
        raise SystemExit(0)


@contextmanager
def checks_only() -> Generator[None]:
    """Let commands end where their checks end and the work begins."""
    places = ((_run, "run", _reached_run), (_sweep, "run_sweep", _reached), (runs_run, "restore_explorer", _reached))
    before = [(module, name, getattr(module, name)) for module, name, _ in places]
    for module, name, replacement in places:
        setattr(module, name, replacement)
    try:
        yield
    finally:
        for module, name, original in before:
            setattr(module, name, original)


def case(place: Path, rng: Random, folder: Path, outcome: Outcome) -> None:
    """Run one command line, or one command on a folder with another config.

    Args:
        place: What `prepare` returned.
        rng: Which one.
        folder: An empty folder.
        outcome: Where to write down what happened.
    """
    os.chdir(place)
    before = shared = tree(place)
    if rng.random() < 0.6:
        words = command_line(rng)
        outcome.count("command lines")
        with checks_only():
            answer = call(*words)
        _check(answer, words, before, place, outcome)
    else:
        run = folder / "run"
        shutil.copytree(place / "run", run)
        outcome.count("configs")
        _change_config(run, rng)
        os.chdir(folder)
        words = _reading_command(run, rng)
        before, earnest = tree(folder), rng.random() < 0.02
        if earnest:
            answer = call(*words)
        else:
            with checks_only():
                answer = call(*words)
        _check(answer, [*words, (run / "config.json").read_bytes()[-2000:]], before, folder, outcome)
        if moved := changed(shared, tree(place)):
            outcome.fault("outside", f"{words}: {moved}")


def _reading_command(run: Path, rng: Random) -> list[str]:
    command = rng.choice(tuple(READERS))
    return [command, str(run), *READERS[command]]


def _change_config(run: Path, rng: Random) -> None:
    """Change the config; in most cases with fitting checksums, so that what reads it later is reached too."""
    path = run / "config.json"
    if rng.random() < 0.8:
        path.write_text(changed_config(path.read_text(), rng), errors="surrogatepass")
    else:
        path.write_bytes(rng.choice(OF_CONTENT)(path.read_bytes(), rng))
    if rng.random() < 0.8:
        for note in (run / "checkpoints").glob("*.json"):
            facts = json.loads(note.read_text()) | {"config": hashlib.sha256(path.read_bytes()).hexdigest()}
            note.write_text(json.dumps(facts, indent=2))


def _check(answer: Any, words: Any, before: dict[str, str], place: Path, outcome: Outcome) -> None:
    check_answer(answer, words, outcome, one_line=False)
    moved = changed(before, tree(place))
    if answer.code != 0 and (lost := {name: how for name, how in moved.items() if not name.endswith(".lock")}):
        kind = "lost" if any(how != "new" for how in lost.values()) else "outside"
        outcome.fault(kind, f"{words}: exit code {answer.code}: {lost}: {answer.err[-300:]}")
    foreign = {name: how for name, how in moved.items() if name.startswith("foreign/") and how != "new"}
    if foreign and "--overwrite" not in words:
        outcome.fault("lost", f"{words}: {foreign}")
    if moved and place.name == "place":
        os.chdir(place.parent)
        shutil.rmtree(place)
        shutil.copytree(place.with_name("pristine"), place)
