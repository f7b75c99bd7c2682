"""Systems, disks and terminals that fail: one clean error, and a run that continues as if nothing had happened.

- A Gymnasium environment that raises, returns nonsense or dies in the middle of a run; then it is well again, and `resume` must
  give the results of a run without the fault.
- A world in JAX that raises or returns nonsense.
- A disk that is full in the middle of a run, then has space again; a disk that is read-only. These need permission to mount.
- A terminal that knows only ASCII, in a process of its own.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from experiments.campaign.harness import Outcome
from experiments.campaign.sandbox import call, changed, check_answer, differing, draw_numbers_only, results, tree

ENVIRONMENT = """
import os
import gymnasium
import numpy as np
from gymnasium.spaces import Box

class Arm(gymnasium.Env):
    steps = 0

    def __init__(self):
        self.observation_space, self.action_space = Box(-np.inf, np.inf, (2,), np.float64), Box(-1, 1, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = self.np_random.uniform(-1, 1, size=2)
        return self.told("reset", (self.x, {}))

    def step(self, action):
        self.x = np.array([self.x[0] + 0.1 * self.x[1], 0.9 * self.x[1] + 0.2 * action[0]])
        return self.told("step", (self.x, 0.0, False, False, {}))

    def told(self, what, answer):
        if not os.path.exists("fault"):
            return answer
        where, at, kind = open("fault").read().split(" ", 2)
        Arm.steps += where == what
        if where != what or Arm.steps != int(at):
            return answer
        x, *rest = answer
        if kind == "raise":
            raise RuntimeError("the arm is stuck\\nbadly")
        if kind == "interrupt":
            raise KeyboardInterrupt
        if kind == "die":
            os._exit(9)
        if kind == "none":
            return None
        if kind == "fewer":
            return (x,)
        odd = {
            "nan": x * np.nan,
            "infinite": x * np.inf,
            "large": x * 1e300,
            "shape": np.zeros(3),
            "text": "left",
            "empty": None,
            "list": [0.0, [1.0]],
            "complex": x * 1j,
        }
        return (odd[kind], *rest)
"""
WORLD = """
from dataclasses import dataclass
import jax.numpy as jnp
from sonde.worlds import Pendulum

@dataclass(frozen=True)
class Raises(Pendulum):
    def step(self, x, u, key=None):
        raise RuntimeError("no such thing")

@dataclass(frozen=True)
class Nan(Pendulum):
    def step(self, x, u, *rest):
        return super().step(x, u, *rest) * jnp.nan

@dataclass(frozen=True)
class Shape(Pendulum):
    def step(self, x, u, *rest):
        return jnp.zeros(5)

@dataclass(frozen=True)
class Names(Pendulum):
    @property
    def state_names(self):
        return ("a", "a", "b")

broken = 3
def function():
    raise ValueError("never")
"""
TINY = [
    *("--method", "random", "--model", "gp", "--model.steps", "2", "--model.rank", "8", "--rounds", "2", "--horizon", "4"),
    *("--evaluate-every", "0", "--holdout", "0", "--no-recalibrate"),
]
KINDS = ("raise", "interrupt", "none", "fewer", "nan", "infinite", "large", "shape", "text", "empty", "list", "complex")
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "", "TERM": "dumb"}


def prepare(folder: Path) -> dict[str, Any]:
    """Make a run without faults.

    Args:
        folder: Where to work.
    """
    draw_numbers_only()
    (folder / "arm.py").write_text(ENVIRONMENT)
    (folder / "world.py").write_text(WORLD)
    prepared: dict[str, Any] = {"folder": folder}
    for name, options in (("plain", []), ("processes", ["--world.processes"])):
        answer = call(*_explore(folder, folder / name), *options)
        assert answer.code == 0, answer
        prepared[name] = results(folder / name)
    prepared["can mount"] = os.geteuid() == 0 and _mounted(folder / "disk", "1m")
    if prepared["can mount"]:
        _unmount(folder / "disk")
    return prepared


def _explore(folder: Path, run: Path) -> list[str]:
    return ["explore", f"gym:{folder / 'arm.py'}:Arm", *TINY, "--world.reachable-steps", "0", "--out", str(run)]


def _mounted(place: Path, size: str) -> bool:
    place.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _unmount(place: Path) -> None:
    subprocess.run(["umount", str(place)], check=True)


def case(prepared: dict[str, Any], rng: Random, folder: Path, outcome: Outcome) -> None:
    """Let one thing fail.

    Args:
        prepared: What `prepare` returned.
        rng: What fails.
        folder: An empty folder.
        outcome: Where to write down what happened.
    """
    scenarios: tuple[Callable[..., None], ...] = (
        *(_faulty_arm,) * 12,
        *(_dying_arm,) * 2,
        *(_faulty_world,) * 2,
        *(_full_disk,) * 8,
        *(_read_only,) * 2,
        _ascii_terminal,
    )
    rng.choice(scenarios)(prepared, rng, folder, outcome)


def _faulty_arm(prepared: dict[str, Any], rng: Random, folder: Path, outcome: Outcome, options: tuple[str, ...] = ()) -> None:
    """An environment that fails once, then is well."""
    kind = "die" if options else rng.choice(KINDS)
    where = rng.choice(("reset", "step", "step", "step"))
    _reset_count()
    (folder / "fault").write_text(f"{where} {rng.randint(1, 3 if where == 'reset' else 10)} {kind}")
    what = f"{(folder / 'fault').read_text()} {' '.join(options)}"
    words, run = [*_explore(prepared["folder"], folder / "run"), *options], folder / "run"
    answer = call(*words)
    outcome.count("faulty environments")
    check_answer(answer, what, outcome, one_line=answer.code == 2)
    (folder / "fault").unlink()
    again = call("resume", str(run)) if (run / "config.json").exists() else call(*words)
    check_answer(again, f"{what}, then resume", outcome)
    if again.code != 0:
        outcome.fault("lost", f"{what}: cannot be resumed: {again.err}")
    elif names := differing(results(run), prepared["processes" if options else "plain"]):
        outcome.fault("wrong", f"{what}: exit code {answer.code}, then other results: {names}")
    _check_strays(folder, what, outcome)


def _reset_count() -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith("sonde_user_arm"):
            module.Arm.steps = 0


def _dying_arm(prepared: dict[str, Any], rng: Random, folder: Path, outcome: Outcome) -> None:
    """An environment in a process of its own that dies."""
    _faulty_arm(prepared, rng, folder, outcome, ("--world.processes",))


def _faulty_world(prepared: dict[str, Any], rng: Random, folder: Path, outcome: Outcome) -> None:
    """A world in JAX that cannot be used leaves no folder."""
    name = rng.choice(("Raises", "Nan", "Shape", "Names", "broken", "function", "Missing"))
    answer = call("explore", f"{prepared['folder'] / 'world.py'}:{name}", *TINY, "--out", str(folder / "run"))
    outcome.count("faulty worlds")
    check_answer(answer, f"world {name}", outcome)
    if answer.code == 0:
        outcome.fault("wrong", f"world {name}: explored as if nothing were wrong")
    _check_strays(folder, f"world {name}", outcome)
    if (folder / "run").exists() and not (folder / "run" / "checkpoints").is_dir():
        outcome.fault("lost", f"world {name}: left half a folder")


def _full_disk(prepared: dict[str, Any], rng: Random, folder: Path, outcome: Outcome) -> None:
    """A disk that is full at a random byte, then grows."""
    disk, size = folder / "disk", 4 * rng.randint(3, 30)  # a page is the smallest file
    if not prepared["can mount"] or not _mounted(disk, f"{size}k"):
        outcome.count("skipped: no permission to mount")
        return
    try:
        run, words = disk / "run", _explore(prepared["folder"], disk / "run")
        answer = call(*words)
        outcome.count("full disks" if answer.code else "disks with space")
        check_answer(answer, f"disk of {size} kB", outcome)
        if answer.code == 2 and str(disk) not in answer.err:
            outcome.fault("wrong", f"disk of {size} kB: the message names no file: {answer.err}")
        subprocess.run(["mount", "-o", "remount,size=8m", str(disk)], check=True)
        again = call("resume", str(run)) if (run / "config.json").exists() else call(*words)
        if again.code != 0:
            outcome.fault("lost", f"disk of {size} kB: cannot be resumed: {again.err}")
        elif names := differing(results(run), prepared["plain"]):
            outcome.fault("wrong", f"disk of {size} kB: other results: {names}")
        _check_strays(disk, f"disk of {size} kB", outcome)
    finally:
        _unmount(disk)


def _read_only(prepared: dict[str, Any], rng: Random, folder: Path, outcome: Outcome) -> None:
    """A disk that cannot be written: reading commands work, others say so."""
    disk = folder / "disk"
    if not prepared["can mount"] or not _mounted(disk, "8m"):
        outcome.count("skipped: no permission to mount")
        return
    try:
        shutil.copytree(prepared["folder"] / "plain", disk / "run")
        before = tree(disk)
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        readers = (["export", "--out", str(folder / "out.npz")], ["plot", "--out", str(folder / "out.png")], ["analyse"])
        writers = (["resume"], ["resume", "--from-round", "1"], ["plot", "--out", str(disk / "out.png")])
        for expected, commands in ((0, readers), (2, writers)):
            command, *options = rng.choice(commands)
            answer = call(command, str(disk / "run"), *options)
            outcome.count("read-only disks")
            check_answer(answer, f"{command} {options} on a read-only disk", outcome)
            if answer.code != expected:
                outcome.fault("wrong", f"{command} {options} on a read-only disk: exit code {answer.code}: {answer.err}")
        if moved := changed(before, tree(disk)):
            outcome.fault("lost", f"read-only disk: {moved}")
    finally:
        _unmount(disk)


def _ascii_terminal(prepared: dict[str, Any], rng: Random, folder: Path, outcome: Outcome) -> None:
    """A terminal that knows only ASCII, and names that are not."""
    run = folder / "Länge"
    shutil.copytree(prepared["folder"] / "plain", run)
    words = rng.choice(
        (
            ["list"],
            ["export", str(run), "--out", "größe.csv"],
            ["analyse", str(run), "--allow-code"],
            ["export", str(folder / "日本"), "--out", "x.npz"],
            ["explore", "pendulüm"],
            ["explore", "pendulum-gp-lite", "--help"],
        )
    )
    done = subprocess.run([sys.executable, "-m", "sonde", *words], capture_output=True, env=os.environ | ASCII, check=False)
    said = (done.stdout + done.stderr).decode(errors="replace")
    outcome.count("ASCII terminals")
    if done.returncode not in (0, 2) or "Traceback (most recent call last)" in said:
        outcome.fault("traceback", f"{words} in an ASCII terminal: exit code {done.returncode}: {said[-2000:]}")


def _check_strays(folder: Path, what: str, outcome: Outcome) -> None:
    strays = [str(path.relative_to(folder)) for path in folder.rglob(".*") if path.name != ".lock"]
    if strays:
        outcome.fault("outside", f"{what}: left behind: {strays}")
