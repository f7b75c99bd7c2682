"""Kill -9 at random moments, up to three times in a row, then complete the run: its files must be those of a quiet run.

A worker imports everything but starts no computation, so that it can fork. Of ten processes nine take what is computed from a
recording of a quiet run (`replay`), so that they do nothing but write files, at which kills are aimed. The others compute: they
first do a run of their own, which compiles all programs, say that they are ready, and are killed within the time that the work
then takes, or while they still start. A process that is never killed completes runs, computing what is left, and compares them.
"""

import multiprocessing
import os
import select
import shutil
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import jax
import numpy as np

from experiments.campaign.harness import Outcome
from experiments.campaign.replay import Recorded, recording, replay
from experiments.campaign.sandbox import QUICK, call, differing, draw_numbers_only, results, tree
from sonde.data import Trajectory
from sonde.models import GaussianProcess
from sonde.runs import Experiment, explore
from sonde.runs._store import RunStore
from sonde.worlds import OwnSystem

OWN = replace(
    QUICK, world=OwnSystem(("angle", "speed"), ("torque",)), seeds=1, horizon=8, model=GaussianProcess(steps=3, rank=8)
)
OLD = replace(QUICK, rounds=1, capacity=QUICK.data_capacity)


def measured(number: int) -> Trajectory:
    """A rollout that is the same each time.

    Args:
        number: Number of the round, from 1.
    """
    rng = np.random.default_rng(number)
    states = rng.normal(size=(8, 2))
    return Trajectory(states[:-1], rng.uniform(-1, 1, size=(7, 1)), states[1:])


def run_script(folder: Path) -> None:
    """Run the program of somebody whose system Sonde cannot run."""
    with Experiment(folder, OWN) as experiment:
        while not experiment.finished:
            experiment.ask()
            experiment.tell(measured(experiment.round + 1))


def run_explore(folder: Path) -> None:
    """Explore, or continue."""
    explore(QUICK, folder)


def run_command(folder: Path) -> None:
    """Explore on the command line, or resume."""
    if (folder / "config.json").exists():
        answer = call("resume", str(folder))
    else:
        options = ("--method", "random", "--evaluate-every", "0", "--rounds", "3", "--horizon", "12", "--seeds", "2")
        parts = ("--model.steps", "3", "--model.rank", "16", "--solver.samples", "16", "--solver.elites", "4")
        rest = ("--solver.iterations", "2", "--solver.horizon", "5", "--evaluation-horizon", "10", "--out", str(folder))
        answer = call("explore", "pendulum-gp", *options, *parts, *rest)
    if answer.code != 0:
        raise RuntimeError(f"exit code {answer.code}: {answer.err}")


def run_overwrite(folder: Path) -> None:
    """Replace an old run, or continue the new one that has replaced it."""
    new = folder.exists() and RunStore.open(folder).config.rounds == QUICK.rounds
    explore(QUICK, folder, overwrite=not new)


WAYS: dict[str, Callable[[Path], None]] = {
    "explore": run_explore,
    "command": run_command,
    "script": run_script,
    "overwrite": run_overwrite,
}
"""What is killed."""


class Finisher:
    """A process that is never killed: completes runs, and compares them with quiet ones."""

    def __init__(self, folder: Path):
        """Start it.

        Args:
            folder: Where it keeps quiet runs.
        """
        context = multiprocessing.get_context("fork")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=_finish, args=(folder, other), daemon=True)
        self.process.start()
        self.lengths: dict[str, float]
        self.recorded: dict[str, dict[int, list[Recorded]]]
        self.lengths, self.recorded = self.pipe.recv()

    def complete(self, way: str, folder: Path) -> tuple[str, str] | None:
        """Complete a run.

        Args:
            way: How, one of `WAYS`.
            folder: The run.

        Returns:
            The kind of fault and what happened; None if all is well.
        """
        self.pipe.send((way, folder))
        return self.pipe.recv()


def _finish(folder: Path, pipe: Any) -> None:
    draw_numbers_only()
    quiet, lengths, recorded = {}, {}, {}
    with recording() as old:
        explore(OLD, folder.parent / "old")
    for way, work in WAYS.items():
        for name in ("first", "second"):  # the second has its programs
            began = time.monotonic()
            with recording() as rounds:
                work(folder / way / name)
            lengths[way] = time.monotonic() - began
        quiet[way], recorded[way] = results(folder / way / "second"), {OLD.rounds: old, QUICK.rounds: rounds}
    pipe.send((lengths, recorded))
    while True:
        way, place = pipe.recv()
        try:
            WAYS[way](place)
            names = differing(results(place), quiet[way])
            pipe.send(("wrong", f"other results: {names}") if names else None)
        except Exception as error:
            pipe.send(("lost", f"cannot be completed: {type(error).__name__}: {error}"))


def prepare(folder: Path) -> dict[str, Any]:
    """Start the process that completes runs, and keep an old run to be replaced.

    Args:
        folder: Where to work.
    """
    draw_numbers_only()
    finisher = Finisher(folder / "quiet")
    prepared: dict[str, Any] = {"finisher": finisher, "old": folder / "old", "old tree": _without_lock(folder / "old")}
    prepared["lengths"] = {}
    for way in WAYS:
        run = folder / "lengths" / way
        if way == "overwrite":
            shutil.copytree(folder / "old", run)
        began = time.monotonic()
        ended = _killed(way, run, finisher.recorded[way], None)
        prepared["lengths"][way] = time.monotonic() - began
        assert ended == 0, (way, (run.parent / "said").read_text())
    return prepared


def _without_lock(folder: Path) -> dict[str, str]:
    return {name: facts for name, facts in tree(folder).items() if name != ".lock"}


def case(prepared: dict[str, Any], rng: Random, folder: Path, outcome: Outcome) -> None:
    """Kill a run one to three times, and complete it.

    Args:
        prepared: What `prepare` returned.
        rng: What is killed, and when.
        folder: An empty folder.
        outcome: Where to write down what happened.
    """
    way, run, finisher = rng.choice(tuple(WAYS)), folder / "run", prepared["finisher"]
    if way == "overwrite":
        shutil.copytree(prepared["old"], run)
    history, warm = [], folder / "warm"
    warm.mkdir()
    for depth in range(rng.choice((1, 2, 2, 3, 3, 3))):
        share = rng.random()
        if rng.random() < 0.9:
            history.append(f"{way} after {share:.3f} of its time")
            ended = _killed(way, run, finisher.recorded[way], share * prepared["lengths"][way])
            done = "kills, rounds replayed"
            # the machine may be faster or slower now: aim at what the work takes today
            prepared["lengths"][way] *= 1.03 if ended == -signal.SIGKILL else 0.85
        else:
            starts = rng.random() < 0.2
            history.append(f"{way}, computing, {'at its start' if starts else f'after {share:.3f} of its time'}")
            ended = _killed_computing(
                way, run, 2 * share if starts else share * finisher.lengths[way], starts, warm / str(depth)
            )
            done = "kills, rounds computed"
        outcome.count(done if ended == -signal.SIGKILL else "ends before the kill")
        if ended not in (0, -signal.SIGKILL):
            outcome.fault("traceback", f"{history}: exit code {ended}: {_said(folder)}")
        if way == "overwrite" and _is_old(run) and (lost := _lost(prepared["old tree"], run)):
            outcome.fault("lost", f"{history}: the old run has {lost}")
    problem = finisher.complete(way, run)
    outcome.count("runs completed")
    if problem is not None:
        outcome.fault(problem[0], f"{history}: {problem[1]}")
    left = {path.name for path in folder.iterdir() if not path.name.startswith(("warm", ".warm", "said"))} - {"run"}
    left |= {str(path.relative_to(run)) for path in run.rglob("*.part")}
    if left:
        outcome.fault("outside", f"{history}: left behind: {sorted(left)}")


def _is_old(run: Path) -> bool:
    """Whether the old run must still be at its place: nothing else is, or its own config."""
    config = run / "config.json"
    return not config.exists() or f'"rounds": {OLD.rounds}' in config.read_text()


def _lost(old: dict[str, str], run: Path) -> list[str]:
    """Files of the old run that are not there, nor in the folder in which it waits while it is being replaced."""
    places = [run, *(path for path in run.parent.iterdir() if path.name.startswith(".") and path.is_dir())]
    trees = [_without_lock(place) for place in places]
    return min(([name for name in old if found.get(name) != old[name]] for found in trees), key=len)


def _said(folder: Path) -> str:
    path = folder / "said"
    return path.read_text(errors="replace")[-2000:] if path.exists() else ""


def _killed(way: str, run: Path, recorded: dict[int, list[Recorded]], seconds: float | None) -> int:
    """Start a process that replays its rounds, kill it after some time, and return its exit code."""
    process = os.fork()
    if process == 0:
        replay(recorded)
        _work(way, run, None)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(process, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def _killed_computing(way: str, run: Path, seconds: float, starts: bool, warm: Path) -> int:
    """The same with a process that computes: after some time of its work, or of its start."""
    ready, done = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(ready)
        _work(way, run, warm, done)
    os.close(done)
    if not starts:
        select.select([ready], [], [], 120)
    time.sleep(seconds)
    os.close(ready)
    os.kill(process, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def _work(way: str, run: Path, warm: Path | None, done: int | None = None) -> None:
    """Work until the kill; with a folder to warm up in, compile everything first, and say so."""
    # a process that will be killed does not write to the cache of compiled programs
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 2**60)
    run.parent.mkdir(parents=True, exist_ok=True)
    said = os.open(run.parent / "said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(said, 1)
    os.dup2(said, 2)
    code = 1
    try:
        if warm is not None and done is not None:
            if way == "overwrite":
                explore(OLD, warm)
            WAYS[way](warm)
            os.write(done, b"!")
        WAYS[way](run)
        code = 0
    except BaseException:
        traceback.print_exc()
    os._exit(code)
