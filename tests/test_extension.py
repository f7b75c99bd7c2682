"""Extension from outside: a user's file defines a kernel, an objective, a world, a solver and a metric, and passes objects.

The file is run as a script, killed, and run again; the command line then resumes and plots the same run.
"""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from command_line import call
from sonde.runs._store import RunStore
from sonde.runs.figures._curves import drawn_metrics, grouped

MINE = '''
"""Everything that a user may write. Run as a script, it explores; the guard keeps `sonde resume` from doing so again."""

import os
import signal
import sys
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

import sonde
from sonde.imagination import Mean
from sonde.models import Kernel
from sonde.objectives import Objective
from sonde.runs import ProgressDisplay
from sonde.solvers import Planner
from sonde.worlds import JaxWorld


@dataclass(frozen=True)
class RationalQuadratic(Kernel):
    """A mixture of squared exponentials of different length-scales."""

    alpha: float = 1.0

    def cross(self, a, b):
        return (1 + jnp.sum((a[:, None] - b) ** 2, axis=-1) / (2 * self.alpha)) ** -self.alpha

    def diagonal(self, a):
        return jnp.ones(a.shape[0], a.dtype)


@dataclass(frozen=True)
class PowerOfUncertainty(Objective):
    """A power of the epistemic std, summed over dimensions."""

    power: float = 1.0

    def rewards(self, imagined):
        return jnp.sum(imagined.predictions.epistemic_std**self.power, axis=-1)


@dataclass(frozen=True)
class Cart(JaxWorld):
    """A cart on a track, pushed with a force."""

    friction: float = 0.1
    state_names = ("position", "speed")
    action_names = ("force",)
    tasks = {"go-right": lambda x, u, x_next: x_next[0]}

    def reset(self, key):
        return jnp.zeros(2)

    def dynamics(self, x, u):
        speed = (1 - self.friction) * x[1] + 0.3 * u[0]
        return jnp.array([x[0] + speed, speed])

    def step(self, x, u, key):
        return self.dynamics(x, u)

    def reachable_points(self):
        rng = np.random.default_rng(0)
        return rng.uniform(-1, 1, (20, 2)), rng.uniform(-1, 1, (20, 1))


@dataclass(frozen=True)
class RandomShooting(Planner):
    """Draw plans, imagine them, keep the best."""

    horizon: int = 3
    plans: int = 8

    def initial_state(self, problem):
        return None

    def plan(self, problem, state, x, key):
        draw, imagine = jax.random.split(key)
        plans = jax.random.uniform(draw, (self.plans, self.horizon, problem.control_dim), x.dtype, -1.0, 1.0)
        values = jnp.mean(jnp.sum(problem.rewards(x, plans, imagine), axis=-1), axis=-1)
        return plans[jnp.argmax(values)], state


@dataclass(frozen=True)
class Distance(sonde.Metric):
    """How far the cart travelled."""

    @property
    def spec(self):
        return sonde.MetricSpec("distance", "Distance travelled", "m", "Way of the cart in a round.", column="way", digits=3)

    def compute(self, result):
        return np.abs(result.trajectory.next_states - result.trajectory.states)[..., 0].sum(axis=1)


class KillAfterRound(sonde.Callback):
    """Kill this process when a round is finished."""

    def on_round_end(self, round_number, rows):
        os.kill(os.getpid(), signal.SIGKILL)


CONFIG = sonde.RunConfig(
    world=Cart(friction=0.2),
    model=sonde.GaussianProcess(kernel=RationalQuadratic(alpha=2.0), steps=2, rank=8),
    method=sonde.Method(Mean(), PowerOfUncertainty(power=2.0), label="curious"),
    solver=RandomShooting(),
    metrics=(Distance(),),
    rounds=3,
    horizon=5,
    evaluation_horizon=4,
)

if __name__ == "__main__":
    callbacks = [ProgressDisplay(Console(width=200))] + ([KillAfterRound()] if "--kill" in sys.argv else [])
    sonde.explore(CONFIG, sys.argv[1], callbacks)
'''


def script(file: Path, folder: Path, *options: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, file, folder, *options], capture_output=True, text=True)


def results(folder: Path) -> tuple[dict[str, bytes], list[dict]]:
    """Measurements and checkpoints byte by byte, and metrics without times."""
    paths = [path for name in ("data", "checkpoints") for path in sorted((folder / name).iterdir())]
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return (
        {str(path.relative_to(folder)): path.read_bytes() for path in paths},
        [{key: value for key, value in row.items() if not key.startswith("seconds/")} for row in rows],
    )


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("user") / "mine.py"
    file.write_text(MINE)
    return file


@pytest.fixture(scope="module")
def killed(file) -> Path:
    """A run whose process was killed after its first round."""
    folder = file.parent / "killed"
    done = script(file, folder, "--kill")
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert RunStore.open(folder).checkpoints() == [1]
    return folder


@pytest.fixture(scope="module")
def whole(file) -> Path:
    """The same run, not interrupted."""
    folder = file.parent / "whole"
    done = script(file, folder)
    assert done.returncode == 0, done.stderr
    assert [line.partition(",")[0] for line in done.stdout.splitlines()[1:]] == ["round 1", "round 2", "round 3"]
    return folder


@pytest.mark.slow
def test_script_continues_a_killed_run_with_the_same_results(file, killed, whole, tmp_path):
    folder = shutil.copytree(killed, tmp_path / "run")
    done = script(file, folder)
    assert done.returncode == 0, done.stderr
    assert "round 2," in done.stdout and "round 1," not in done.stdout
    assert results(folder) == results(whole)


@pytest.mark.slow
def test_command_line_resumes_a_killed_run_with_the_same_results(killed, whole, tmp_path, monkeypatch, capsys):
    folder = shutil.copytree(killed, tmp_path / "run")
    assert call(monkeypatch, "resume", str(folder)) == 0
    assert results(folder) == results(whole)
    assert (folder / "figures" / "curves.png").exists()
    printed, (_, rows) = capsys.readouterr().out, results(folder)
    assert "curious: 3 rounds of 5 steps" in printed and "round 3," in printed
    assert f", way {rows[1]['distance']:.3f}, " in printed, "the user's metric has a column in the progress display"


@pytest.mark.slow
def test_metric_is_recorded_and_drawn(whole, tmp_path, monkeypatch):
    store = RunStore.open(whole)
    distances = [row["distance"] for row in store.load_metrics()]
    assert len(distances) == 3 and all(distance > 0 for distance in distances)
    assert call(monkeypatch, "plot", str(whole), "--out", str(tmp_path / "curves.svg")) == 0
    assert "Distance travelled" in [spec.title for spec in drawn_metrics(grouped([store])).values()]
    assert "<!-- Distance travelled -->" in (tmp_path / "curves.svg").read_text()


def test_config_on_disk_names_the_classes_and_their_fields(file, whole):
    config = json.loads((whole / "config.json").read_text())
    assert config["model"]["kernel"] == {"class": f"{file}:RationalQuadratic", "alpha": 2.0}
    assert config["method"]["objective"] == {"class": f"{file}:PowerOfUncertainty", "power": 2.0}
    assert config["world"] == {"class": f"{file}:Cart", "friction": 0.2}
    assert config["solver"] == {"class": f"{file}:RandomShooting", "horizon": 3, "plans": 8}
    assert config["metrics"] == [{"class": f"{file}:Distance"}]


@pytest.mark.slow
def test_command_line_explores_with_parts_from_a_file(file, tmp_path, monkeypatch):
    parts = {"--model.kernel": "RationalQuadratic", "--method.objective": "PowerOfUncertainty", "--solver": "RandomShooting"}
    options = [word for option, name in parts.items() for word in (option, f"{file}:{name}")]
    options += ["--model", "gp", "--model.steps", "2", "--model.rank", "8", "--method", "mean-ae", "--rounds", "1"]
    options += ["--no-recalibrate", "--holdout", "0"]
    options += ["--horizon", "5", "--evaluation-horizon", "4", "--model.kernel.alpha", "2", "--method.objective.power", "2"]
    folder = tmp_path / "run"
    assert call(monkeypatch, "explore", f"{file}:Cart", *options, "--world.friction", "0.2", "--out", str(folder)) == 0
    config = RunStore.open(folder).config
    names = [type(part).__name__ for part in (config.world, config.model.kernel, config.method.objective, config.solver)]
    assert names == ["Cart", "RationalQuadratic", "PowerOfUncertainty", "RandomShooting"]
    assert (config.world.friction, config.model.kernel.alpha, config.method.objective.power) == (0.2, 2.0, 2.0)
    assert [row["transitions"] for row in RunStore.open(folder).load_metrics()] == [5]


def test_part_of_the_wrong_kind_is_rejected(file, tmp_path, monkeypatch, capsys):
    out = ["--out", str(tmp_path / "run")]
    assert call(monkeypatch, "explore", f"{file}:Cart", "--solver", f"{file}:Distance", *out) == 2
    assert "must be a Solver or a class of one" in capsys.readouterr().err
    assert call(monkeypatch, "explore", f"{file}:Distance", *out) == 2
    assert "must be a World or a class of one" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
