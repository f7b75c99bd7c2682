"""Damaged run folders: every command either gives the results of the healthy folder, or says in one line what is wrong.

The run has initial data, two seeds and three rounds. A case damages one to three things in a copy, then runs every command on a
copy of that. What a folder without its newest checkpoint would give is expected too, where that checkpoint's note is gone: a
run that was interrupted in its last round looks the same.
"""

import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from experiments.campaign.damage import damage_content, damage_tree
from experiments.campaign.harness import Outcome
from experiments.campaign.sandbox import (
    TINY,
    Answer,
    call,
    changed,
    check_answer,
    differing,
    draw_numbers_only,
    make_sentinel,
    results,
    tree,
)
from sonde.runs import explore

COMMANDS: dict[str, tuple[str, ...]] = {
    "evaluate": ("--task", "swing-up"),
    "analyse": ("--out", "out.json", "--samples", "20"),
    "plot": ("--out", "out.png"),
    "export": ("--out", "out.npz"),
    "resume": (),
}
"""Commands and their options, in the order in which they run; `resume` may change the folder, and gets a copy of its own."""
CSV = "cos th,sin th,thdot,torque,next cos th,next sin th,next thdot\n1,0,0.5,0.1,1,0.025,0.51\n0.9,0.1,0.3,-0.2,0.9,0.12,0.3\n"
NEWEST = "checkpoints/0003.json"
READ = r"metrics|data/(0001|0002|0003|initial).safetensors|checkpoints/0003.safetensors"
"""What the results of a finished run are made of: older checkpoints and files of others stay as they are."""
DERIVED = r"figures/.*|\.lock|(.*/)?\.[^/]*\.part"
"""Files that `resume` may write or remove although the run is damaged elsewhere: drawn again, or left by a killed process."""


def prepare(folder: Path, initial_data: bool = True) -> dict[str, Any]:
    """Make the healthy run, and the answers of every command to it and to its first two rounds.

    Args:
        folder: Where to work.
        initial_data: Whether the run has any; without, it is one that the tests have compiled.

    Returns:
        The folder of the run under `run`, the answers under `expected`, by number of rounds and command.
    """
    draw_numbers_only()
    (folder / "log.csv").write_text(CSV)
    explore(replace(TINY, data=str(folder / "log.csv") if initial_data else None), folder / "healthy")
    call("resume", str(folder / "healthy"))  # draws the figures
    expected: dict[int, dict[str, Any]] = {}
    for rounds in (3, 2):
        place = folder / f"rounds{rounds}"
        place.mkdir()
        shutil.copytree(folder / "healthy", place / "run")
        if rounds == 2:
            (place / "run" / NEWEST).unlink()
        expected[rounds] = {}
        for name in COMMANDS:
            expected[rounds][name] = _facts(name, _command(name, place / "run", place), place)
            for path in place.glob("out*"):
                path.unlink()
        problems = {name: facts for name, facts in expected[rounds].items() if facts["code"] != 0}
        assert not problems, problems
    return {"run": folder / "healthy", "expected": expected}


def _command(name: str, run: Path, place: Path) -> Answer:
    options = [str(place / word) if word.startswith("out.") else word for word in COMMANDS[name]]
    if name == "export" and (run / "data" / "initial.sha256").exists():
        options.append("--initial-data")
    return call(name, str(run), *options)


def _facts(name: str, answer: Answer, place: Path) -> dict[str, Any]:
    """What a command found: its files, or what it printed; for `resume` the run itself."""
    facts: dict[str, Any] = {"code": answer.code}
    if answer.code == 0:
        if name == "resume":
            facts["results"] = results(place / "run", READ)
        elif name == "evaluate":
            facts["printed"] = re.sub(r"\s+", " ", answer.out.replace(str(place), ""))
        facts["files"] = {path.name: path.read_bytes() for path in place.glob("out*")}
    return facts


def case(prepared: dict[str, Any], rng: Random, folder: Path, outcome: Outcome) -> None:
    """Damage a copy of the run, and run every command on it.

    Args:
        prepared: What `prepare` returned.
        rng: What to damage.
        folder: An empty folder.
        outcome: Where to write down what happened.
    """
    sentinel, damaged = folder / "sentinel", folder / "damaged"
    make_sentinel(sentinel)
    shutil.copytree(prepared["run"], damaged)
    done = [_damage(damaged, sentinel, rng) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
    outcome.count("mutations")
    for name in COMMANDS:
        place = folder / "place"
        shutil.copytree(damaged, place / "run", symlinks=True, copy_function=_copy)
        _check(name, place, prepared["expected"], f"{done}: {name}", outcome, sentinel)
        shutil.rmtree(place)


def _damage(damaged: Path, sentinel: Path, rng: Random) -> str:
    return damage_content(damaged, rng) if rng.random() < 0.65 else damage_tree(damaged, sentinel, rng)


def _copy(source: str, target: str) -> None:
    """Copy a file; a named pipe is made again."""
    if Path(source).is_fifo():
        os.mkfifo(target)
    else:
        shutil.copyfile(source, target)


def _check(name: str, place: Path, expected: dict[int, Any], what: str, outcome: Outcome, sentinel: Path) -> None:
    before, outside = tree(place / "run"), tree(sentinel)
    answer = _command(name, place / "run", place)
    check_answer(answer, what, outcome)
    after = tree(place / "run")
    if moved := changed(outside, tree(sentinel)):
        outcome.fault("outside", f"{what}: {moved}")
    strays = {path.name for path in place.parent.iterdir()} - {"sentinel", "damaged", "place"}
    strays |= {path.name for path in place.iterdir() if not path.name.startswith("out")} - {"run"}
    if strays:
        outcome.fault("outside", f"{what}: left {sorted(strays)}")
    moved = changed(before, after)
    if answer.code == 0:
        whole = before.get(NEWEST, "folder") not in ("folder", "device")
        facts = _facts(name, answer, place)
        wanted = [expected[3]] if whole else [expected[3], expected[2]]
        if not any(facts == entry[name] for entry in wanted):
            outcome.fault("wrong", f"{what}: {_difference(facts, wanted[0][name])}: {answer.out[-500:]}")
        if name == "resume":  # it may add and replace what it computes again, and removes nothing but leftovers
            moved = {path: how for path, how in moved.items() if how == "gone" and not _is_leftover(path, before)}
    allowed = DERIVED if name == "resume" else r"\.lock"
    if lost := {path: how for path, how in moved.items() if not re.fullmatch(allowed, path)}:
        outcome.fault("lost", f"{what}: exit code {answer.code}: {lost}")


def _is_leftover(path: str, before: dict[str, str]) -> bool:
    """Whether a file is that of a checkpoint without its note, which was never finished or is being deleted."""
    return (
        path.endswith(".safetensors")
        and path.startswith("checkpoints/")
        and f"{path.removesuffix('safetensors')}json" not in before
    )


def _difference(facts: dict[str, Any], wanted: dict[str, Any]) -> str:
    names = [key for key in facts if facts[key] != wanted.get(key)]
    if "results" in names:
        return f"results differ: {differing(facts['results'], wanted['results'])}"
    return json.dumps({key: [str(facts[key])[:300], str(wanted.get(key))[:300]] for key in names})
