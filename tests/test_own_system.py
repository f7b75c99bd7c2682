"""A system that Sonde cannot run: nothing that was told is ever lost, and the same measurements give the same model."""

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from sonde import ICEM, Experiment, Explorer, GaussianProcess, Method, OwnSystem, RunConfig, SondeError, Trajectory
from sonde.cli import _evaluate, _export, _plot, _resume
from sonde.imagination import Optimistic
from sonde.objectives import InformationGain
from sonde.runs import Callback, _run
from sonde.runs._callbacks import Callbacks
from sonde.runs._run import build_explorer
from sonde.runs._store import RunStore
from sonde.worlds import Pendulum

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "examples" / "own_robot.py"
CONFIG = RunConfig(
    world=OwnSystem(states=("angle", "speed"), actions=("torque",)),
    rounds=3,
    horizon=8,
    method=Method(Optimistic(particles=2), InformationGain()),
    model=GaussianProcess(steps=3, rank=8),
    solver=ICEM(horizon=3, samples=8, elites=2, iterations=2),
)


def measured(number: int) -> Trajectory:
    """A rollout of a damped swing under random torques, 5 to 7 steps long."""
    rng = np.random.default_rng(number)
    states, actions = [rng.normal(size=2)], rng.uniform(-1, 1, size=(4 + number, 1))
    for u in actions:
        angle, speed = states[-1]
        states.append(np.array([angle + 0.1 * speed, 0.9 * speed - 0.1 * np.sin(angle) + 0.2 * u[0]]))
    return Trajectory(np.array(states[:-1]), actions, np.array(states[1:]))


def leaves(explorer: Explorer) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves((explorer.params, explorer.posterior, explorer.data))]


def same(first: list[np.ndarray], second: list[np.ndarray]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def from_measurements(config: RunConfig, trajectories: list[Trajectory]) -> list[np.ndarray]:
    """What an explorer that was never saved learns from the same measurements."""
    explorer = build_explorer(config)
    for trajectory in trajectories:
        explorer.tell(trajectory)
    return leaves(explorer)


def files(folder: Path) -> dict[str, bytes]:
    paths = [p for name in ("data", "checkpoints") for p in (folder / name).iterdir()]
    return {f"{p.parent.name}/{p.name}": p.read_bytes() for p in paths}


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A run whose program was started again for every round."""
    folder = tmp_path_factory.mktemp("own") / "run"
    for number in (1, 2, 3):
        with Experiment(folder, CONFIG) as experiment:
            assert experiment.round == number - 1 and not experiment.finished
            if number == 2:
                policy = experiment.ask(budget=10.0)
                assert np.abs(policy(np.zeros(2))).max() <= 1 and policy.iterations == 2
                experiment.ask()  # so that the same is saved as where nothing was asked for
            (row,) = experiment.tell(measured(number))
            assert row["round"] == number and row["realised_information_gain"] > 0
    return folder


@pytest.mark.slow
def test_restarted_experiment_gives_the_same_model(finished):
    with Experiment(finished, CONFIG) as experiment:
        assert experiment.finished and experiment.explorer.transitions == 5 + 6 + 7
        assert same(leaves(experiment.explorer), from_measurements(CONFIG, [measured(n) for n in (1, 2, 3)]))
        for rejected in (experiment.ask, lambda: experiment.tell(measured(4))):
            with pytest.raises(SondeError, match="all 3 rounds were told"):
                rejected()
    rows = RunStore.open(finished).load_metrics()
    assert [row["transitions"] for row in rows] == [5, 11, 18]
    assert all(row["planned_information_gain"] is None and "return/park" not in row for row in rows)


@pytest.mark.parametrize("moment", ["append_metrics", "save_checkpoint", "save_policies"])
def test_kill_while_learning_loses_no_measurement(finished, tmp_path, monkeypatch, moment):
    class Killed(BaseException):
        pass

    def die(*_):
        raise Killed

    for number in (1, 2, 3):
        with pytest.raises(Killed), Experiment(tmp_path / "run", CONFIG) as experiment, monkeypatch.context() as patch:
            assert experiment.round == number - 1, "the last round was learned from when the folder was opened"
            patch.setattr(RunStore, moment, die)
            experiment.tell(measured(number))
    with Experiment(tmp_path / "run", CONFIG) as experiment:
        assert experiment.finished
    assert files(tmp_path / "run") == files(finished)
    assert [row["transitions"] for row in RunStore.open(tmp_path / "run").load_metrics()] == [5, 11, 18]


def test_late_actions_are_counted_although_the_program_was_killed_while_learning(tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    def die(*_):
        raise Killed

    with pytest.raises(Killed), Experiment(tmp_path / "run", CONFIG) as experiment:
        policy = experiment.ask(budget=1e-9)
        for x in measured(1).states:
            policy(x)
        monkeypatch.setattr(RunStore, "append_metrics", die)
        experiment.tell(measured(1))
    monkeypatch.undo()
    told = (tmp_path / "run" / "data" / "0001.safetensors").read_bytes()
    with Experiment(tmp_path / "run", CONFIG):
        pass
    store = RunStore.open(tmp_path / "run")
    (row,) = store.load_metrics()
    assert row["late_actions"] == policy.timing.late / policy.timing.calls > 0.5
    assert store.data_path(1).read_bytes() == told
    share = json.dumps(row["late_actions"]).encode()
    for wrong in (b"2", b"NaN"):
        key = b'late_actions\\": '
        store.data_path(1).write_bytes(told.replace(key + share, key + wrong.ljust(len(share))))
        assert store.data_path(1).read_bytes() != told
        with pytest.raises(SondeError):
            store.load_known(1)


def test_deleted_checkpoint_is_learned_again(finished, tmp_path):
    with Experiment(tmp_path / "run", CONFIG) as experiment:
        for number in (1, 2, 3):
            experiment.tell(measured(number))
    damaged = tmp_path / "run" / "checkpoints" / "0003.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-3])
    with (
        pytest.raises(SondeError, match=r"0003 is damaged.*if data/ is complete, remove .*0003\.json"),
        Experiment(tmp_path / "run", CONFIG),
    ):
        pass
    damaged.with_suffix(".json").unlink()
    with Experiment(tmp_path / "run", CONFIG):
        pass
    assert files(tmp_path / "run") == files(finished)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: replace(t, states=t.states[:, :1]), "states must have shape"),
        (lambda t: replace(t, states=t.states * np.nan), "states must be finite"),
        (lambda t: replace(t, actions=t.actions + 3), r"actions must lie in \[-1, 1\]"),
        (lambda t: replace(t, terminated=np.zeros(2, bool)), r"terminated must have shape \[1, 5\], got \[1, 2\]"),
        (lambda t: t.joined(t), r"at most 8 steps \(the config's horizon\), got 10"),
    ],
)
def test_measurements_that_cannot_be_used_are_rejected_and_change_nothing(tmp_path, change, message):
    trajectory = measured(1)
    batched = Trajectory(trajectory.states[None], trajectory.actions[None], trajectory.next_states[None])
    with Experiment(tmp_path / "run", CONFIG) as experiment:
        with pytest.raises(SondeError, match=message):
            experiment.tell(change(batched if "at most" in message else trajectory))
        assert experiment.round == 0 and files(tmp_path / "run") == {}


def test_measurements_that_the_model_cannot_learn_from_are_not_kept(tmp_path, monkeypatch):
    def fail(*_):
        raise SondeError("the posterior is not finite")

    with Experiment(tmp_path / "run", CONFIG) as experiment:
        monkeypatch.setattr(Explorer, "tell", fail)
        with pytest.raises(SondeError, match="not finite"):
            experiment.tell(measured(1))
        assert experiment.round == 0 and files(tmp_path / "run") == {}
    assert list(tmp_path.iterdir()) == [], "a run in which nothing was measured leaves no folder"


def test_after_a_restart_measurements_that_the_model_cannot_learn_from_are_kept(tmp_path, monkeypatch):
    """Then the file may be the only copy of what the robot did."""

    def die(*_):
        raise KeyboardInterrupt

    def fail(*_):
        raise SondeError("the posterior is not finite")

    with pytest.raises(KeyboardInterrupt), Experiment(tmp_path / "run", CONFIG) as experiment, monkeypatch.context() as patch:
        patch.setattr(Explorer, "tell", die)
        experiment.tell(measured(1))
    saved = files(tmp_path / "run")
    assert saved
    with monkeypatch.context() as patch:
        patch.setattr(Explorer, "tell", fail)
        with pytest.raises(SondeError, match="move them away to continue without them"), Experiment(tmp_path / "run", CONFIG):
            pass
    assert files(tmp_path / "run") == saved


# tell is a transaction


class Interrupted(BaseException):
    """Such as KeyboardInterrupt, and any other exception."""


def full_disk():
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def whole(folder: Path) -> dict[str, bytes]:
    """All files of a run but metrics, whose times differ."""
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock" and "metrics" not in path.name)
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def rows(folder: Path) -> list[dict]:
    saved = RunStore.open(folder).load_metrics()
    # how long planning took, and whether it was in time, is known to the process that planned only
    return [{key: value for key, value in row.items() if not key.startswith(("seconds/", "late_actions"))} for row in saved]


def raised_at(patch: pytest.MonkeyPatch, places: Sequence[tuple[Any, str]], moment: int, error: BaseException, *, after: bool):
    """Raise an error in, or right after, one of the next calls of some functions; a list of the calls so far."""
    calls: list[str] = []

    def faulty(real, name):
        def function(*args, **kwargs):
            if name == "open" and not args[1] & os.O_CREAT:  # a full disk can be read
                return real(*args, **kwargs)
            calls.append(name)
            due = len(calls) == moment
            if due and not after:
                raise error
            result = real(*args, **kwargs)
            if due:
                raise error
            return result

        return function

    for owner, name in places:
        patch.setattr(owner, name, faulty(getattr(owner, name), name))
    return calls


SYSTEM_CALLS = [(os, name) for name in ("open", "fdopen", "fsync", "replace", "unlink")]
PHASES = [
    *((RunStore, name) for name in ("save_data", "save_policies", "append_metrics", "save_checkpoint")),
    *((Explorer, name) for name in ("tell", "_set_state")),
    *((_run, name) for name in ("round_metrics", "RoundResult", "_evaluate_tasks")),
    (Callbacks, "on_phase"),
    (Callbacks, "on_round_end"),
]


@pytest.fixture(scope="module")
def told(finished, tmp_path_factory) -> Path:
    """A run in which two rounds of three were told."""
    folder = tmp_path_factory.mktemp("told") / "run"
    with Experiment(folder, CONFIG) as experiment:
        for number in (1, 2):
            experiment.tell(measured(number))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(("places", "error"), [(SYSTEM_CALLS, full_disk()), (PHASES, Interrupted())])
def test_round_is_told_once_whatever_is_raised_where(finished, told, tmp_path, places, error, after):
    expected, seen = whole(finished), []
    for moment in range(1, 1000):
        again = tmp_path / str(moment)
        shutil.copytree(told, again)
        with Experiment(again, CONFIG) as experiment, pytest.MonkeyPatch.context() as patch:
            calls = raised_at(patch, places, moment, error, after=after)
            try:
                experiment.tell(measured(3))
            except (OSError, Interrupted):
                seen.append(calls[moment - 1])
                finished_before = experiment.round == 3
                assert ((again / "checkpoints" / "0003.json").exists()) == finished_before
                if moment % 3:  # else the program ends here, and is started again
                    patch.undo()
                    (row,) = experiment.tell(measured(3))
                    assert row["round"] == 3 and row["transitions"] == 18
            assert experiment.finished or moment % 3 == 0
        with Experiment(again, CONFIG) as experiment:
            assert experiment.finished or not finished_before
            if not experiment.finished:  # not even the measurements were saved
                experiment.tell(measured(3))
        assert whole(again) == expected and rows(again) == rows(finished), (moment, calls[-1])
        shutil.rmtree(again)
        if len(calls) < moment:
            break
    # a file that cannot be deleted any more stops nothing
    assert len(seen) > 10 and {*seen, "unlink"} >= {name for _, name in places}


@pytest.mark.parametrize("moment", [("on_round_end", 1), ("save_checkpoint", 1), ("append_metrics", 1), ("tell", 1)])
def test_tell_can_be_repeated_after_an_exception(finished, tmp_path, moment, monkeypatch):
    (place,) = [entry for entry in PHASES if entry[1] == moment[0]]
    with Experiment(tmp_path / "run", CONFIG) as experiment:
        for number in (1, 2, 3):
            with monkeypatch.context() as patch:
                raised_at(patch, [place], 1, Interrupted(), after=True)
                with pytest.raises(Interrupted):
                    experiment.tell(measured(number))
            (row,) = experiment.tell(measured(number))
            assert row["round"] == number == experiment.round
        assert experiment.finished
    assert whole(tmp_path / "run") == whole(finished) and rows(tmp_path / "run") == rows(finished)


def test_other_measurements_after_a_finished_round_are_another_round(tmp_path, monkeypatch):
    with Experiment(tmp_path / "run", CONFIG) as experiment:
        with monkeypatch.context() as patch:
            raised_at(patch, [(Callbacks, "on_round_end")], 1, Interrupted(), after=False)
            with pytest.raises(Interrupted):
                experiment.tell(measured(1))
        assert experiment.tell(measured(2))[0]["round"] == 2
        assert experiment.tell(measured(1))[0]["round"] == 3, "a second time, and on purpose"


def test_measurements_of_an_odd_type_change_nothing(tmp_path):
    odd = replace(measured(1), planned_information=np.array(["a"] * 5))
    with Experiment(tmp_path / "run", CONFIG) as experiment:
        with pytest.raises((TypeError, SondeError)):
            experiment.tell(odd)
        assert experiment.round == 0
        assert experiment.tell(measured(1))[0]["round"] == 1
    assert [row["transitions"] for row in rows(tmp_path / "run")] == [5]


def test_damaged_metrics_are_learned_again_from_the_measurements(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    (tmp_path / "run" / "metrics.jsonl").write_text("")
    with pytest.raises(SondeError, match=r"lines of round 1, 2, 3 .*if data/ is complete, remove .*\*\.json"):
        Experiment(tmp_path / "run", CONFIG).__enter__()
    for note in (tmp_path / "run" / "checkpoints").glob("*.json"):
        note.unlink()
    with Experiment(tmp_path / "run", CONFIG) as experiment:
        assert experiment.finished
    assert whole(tmp_path / "run") == whole(finished) and rows(tmp_path / "run") == rows(finished)


def test_run_without_measurements_leaves_no_folder_and_can_have_another_config(tmp_path):
    with Experiment(tmp_path / "run", CONFIG) as experiment:
        assert (tmp_path / "run" / "config.json").exists(), "a program may write its own files there"
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(RuntimeError), Experiment(tmp_path / "run", CONFIG, [Failing()]):
        pass
    assert list(tmp_path.iterdir()) == []
    RunStore.create(tmp_path / "run", replace(CONFIG, rounds=2))  # killed before anything was measured
    with Experiment(tmp_path / "run", CONFIG) as experiment:
        (tmp_path / "run" / "notes.txt").write_text("mine")
    assert (tmp_path / "run" / "notes.txt").exists() and RunStore.open(tmp_path / "run").config.rounds == 3
    assert experiment.config.rounds == 3


class Failing(Callback):
    """Cannot be started."""

    def on_run_start(self, config, rows):
        raise RuntimeError("a tracker without network")


def test_another_config_is_rejected_and_its_differences_are_named(finished):
    method = Method(Optimistic(particles=2, beta=3.0), InformationGain())
    other = replace(CONFIG, method=method, model=GaussianProcess(steps=4, rank=8), solver=ICEM())
    message = (
        r"model.steps is 3 there and 4 here; method.imagination.beta is 2.0 there and 3.0 here; "
        r"solver.horizon is 3 there and 20 here"
    )
    with pytest.raises(SondeError, match=message), Experiment(finished, other):
        pass


def test_folders_and_worlds_that_cannot_be_used_are_rejected(finished, tmp_path):
    with pytest.raises(SondeError, match="Sonde can run Pendulum itself"):
        Experiment(tmp_path / "run", replace(CONFIG, world=Pendulum()))
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(SondeError, match="not the folder of a run"), Experiment(tmp_path, CONFIG):
        pass
    with pytest.raises(SondeError, match="open it first"):
        Experiment(finished, CONFIG).ask()
    with (
        Experiment(finished, CONFIG),
        pytest.raises(SondeError, match="in use by another process"),
        Experiment(finished, CONFIG),
    ):
        pass
    (tmp_path / "empty").mkdir()
    with Experiment(tmp_path / "empty", CONFIG) as experiment:
        assert experiment.round == 0


@pytest.mark.slow
def test_tasks_are_solved_after_exploring(finished, tmp_path):
    def far(x, u, x_next):
        return x_next[1]

    file = tmp_path / "rewards.py"
    file.write_text("def far(x, u, x_next):\n    return x_next[1]\n\n\ndef wrong(x, u, x_next):\n    return x\n")
    with Experiment(finished, CONFIG) as experiment:
        ours, named = (experiment.solve(task) for task in (far, f"{file}:far"))
        assert np.array_equal(ours(np.zeros(2)), named(np.zeros(2)))
        in_time = experiment.solve(far, budget=10.0)
        in_time(np.zeros(2))
        assert in_time.iterations == 2
        for wrong in (f"{file}:wrong", lambda x, u, x_next: x):
            with pytest.raises(SondeError, match="must return one real number per transition"):
                experiment.solve(wrong)


def test_commands_that_need_no_simulator_work_and_others_are_rejected(finished, tmp_path, capsys):
    with pytest.raises(SondeError, match=r"Sonde cannot run OwnSystem itself; continue with sonde\.Experiment"):
        _resume.main([str(finished)])
    (tmp_path / "rewards.py").write_text("def far(x, u, x_next):\n    return x_next[1]\n")
    _evaluate.main([str(finished), "--task", f"{tmp_path}/rewards.py:far"])
    assert "OwnSystem has no simulator, so this is what the model promises" in " ".join(capsys.readouterr().out.split())
    with pytest.raises(SondeError, match="OwnSystem"):
        _evaluate.main([str(finished), "--task", f"{tmp_path}/rewards.py:far", "--oracle"])
    _plot.main([str(finished), "--out", str(tmp_path / "curves.png")])
    assert (tmp_path / "curves.png").stat().st_size > 10_000
    _export.main([str(finished), "--out", str(tmp_path / "all.csv")])
    lines = (tmp_path / "all.csv").read_text().splitlines()
    assert len(lines) == 1 + 18 and "angle" in lines[0] and "torque" in lines[0]
    capsys.readouterr()


# The example, as its own program


def start(out: Path) -> subprocess.Popen:
    command = [sys.executable, str(EXAMPLE), "--out", str(out), "--rounds", "3"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def kill(program: subprocess.Popen) -> None:
    program.send_signal(signal.SIGKILL)
    assert program.wait() == -signal.SIGKILL
    assert program.stdout is not None
    program.stdout.close()


@pytest.mark.slow
def test_example_survives_being_killed(tmp_path):
    out, first = tmp_path / "cart", tmp_path / "cart" / "data" / "0001.safetensors"
    program = start(out)
    while not (out / "checkpoints" / "0001.json").exists():
        assert program.poll() is None, program.communicate()[0]
        time.sleep(0.02)
    kill(program)
    after_one = first.read_bytes()
    program = start(out)
    assert program.stdout is not None
    said = []
    for line in program.stdout:
        said.append(line.strip())
        if line.startswith("round 2: running"):  # the cart needs 0.7 s to reach an end of its track
            time.sleep(0.15)
            break
    kill(program)
    assert said == ["continuing after round 1", "round 2: running"]
    assert sorted(p.name for p in (out / "data").iterdir()) == ["0001.safetensors"]
    program = start(out)
    output, _ = program.communicate()
    assert program.returncode == 0, output
    assert output.startswith("continuing after round 1\nround 2: running") and "parked at" in output
    store = RunStore.open(out)
    assert store.checkpoints() == [2, 3] and first.read_bytes() == after_one
    assert [row["round"] for row in store.load_metrics()] == [1, 2, 3]
    with Experiment(out, store.config) as experiment:
        saved = jax.tree.leaves(experiment.explorer.params)
    explorer = build_explorer(store.config)
    for trajectory in store.load_data(3):
        explorer.tell(trajectory)
    assert same([np.asarray(leaf) for leaf in saved], [np.asarray(leaf) for leaf in jax.tree.leaves(explorer.params)])


def test_example_and_documentation_are_the_same_program():
    example, page = EXAMPLE.read_text(), (ROOT / "docs" / "own-system.md").read_text()
    assert set(re.findall(r"^(?:from|import) (\w+)", example, re.MULTILINE)) == {"argparse", "time", "numpy", "sonde"}
    assert "jax" not in example
    blocks = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "deploy" not in block]
    assert len(blocks) == 5
    for block in blocks:
        indented = [textwrap.indent(block, " " * depth) for depth in (0, 4, 8)]
        assert any(text in example for text in indented), f"not in the example:\n{block}"


def test_round_is_told_once_even_if_the_second_try_fails_too(finished, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("input/output error")

    class Fails(Callback):
        def on_round_end(self, round_number, rows):
            if round_number == 2:
                raise KeyboardInterrupt

    with Experiment(tmp_path / "run", CONFIG, [Fails()]) as experiment:
        experiment.tell(measured(1))
        with pytest.raises(KeyboardInterrupt):
            experiment.tell(measured(2))
        with monkeypatch.context() as patch, pytest.raises(OSError, match="input/output"):
            patch.setattr(RunStore, "load_metrics", fail)
            experiment.tell(measured(2))
        (row,) = experiment.tell(measured(2))
        assert row["round"] == experiment.round == 2
        experiment.tell(measured(3))
    assert files(tmp_path / "run") == files(finished)


def test_round_that_fails_is_undone_even_if_the_disk_cannot_be_looked_at(finished, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("input/output error")

    with Experiment(tmp_path / "run", CONFIG) as experiment:
        for number in (1, 2, 3):
            with monkeypatch.context() as patch, pytest.raises(OSError, match="input/output"):
                patch.setattr(RunStore, "save_checkpoint", fail)
                patch.setattr(RunStore, "checkpoints", fail)
                experiment.tell(measured(number))
            assert experiment.round == number - 1
            experiment.tell(measured(number))
    assert files(tmp_path / "run") == files(finished)
