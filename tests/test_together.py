"""Several runs in one process, fitted by one program: the same results as alone, whatever ends or fails meanwhile."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import numpy as np
import pytest
import safetensors.numpy

from command_line import call
from sonde._internal.errors import SondeError
from sonde.cli import _sweep as command
from sonde.control import rollout
from sonde.explorer import Explorer, Told, fit_together
from sonde.methods import METHODS
from sonde.models import ProbabilisticEnsemble
from sonde.runs import Callback, RunConfig, explore, explore_together
from sonde.runs import _together as together
from sonde.runs._store import RunStore
from sonde.runs.sweep import Batch, LocalBackend, Sweep, _local, run_sweep
from sonde.runs.sweep._worker import explore_in_lockstep, to_text
from sonde.worlds import Pendulum
from sweep_parts import Interrupt, RoundsInFile
from tiny import TINY

TOLERANCE = 1e-6
NETWORKS = ProbabilisticEnsemble(members=2, width=8, layers=1, epochs=20, patience=0, noise="fixed")
SMALL = replace(TINY, horizon=6, rounds=3, seeds=2, evaluate_every=0)


def methods(*names: str, start: RunConfig = SMALL) -> list[RunConfig]:
    return [start.with_method(name) for name in names]


def measured(folder: Path) -> list[dict]:
    rows = RunStore.open(folder).load_metrics()
    number = lambda value: np.nan if value is None else value
    return [{key: number(value) for key, value in row.items() if not key.startswith("seconds/")} for row in rows]


def learned(folder: Path, round_number: int) -> dict[str, np.ndarray]:
    return safetensors.numpy.load((folder / "checkpoints" / f"{round_number:04d}.safetensors").read_bytes())


def assert_alike(folder: Path, other: Path) -> None:
    """Same rounds, metrics and params; a fit in a larger batch may round differently, and plans on its result pass that on."""
    ours, theirs = measured(folder), measured(other)
    assert [row.keys() for row in ours] == [row.keys() for row in theirs] != []
    for row, expected in zip(ours, theirs, strict=True):
        assert row == pytest.approx(expected, rel=TOLERANCE, abs=TOLERANCE, nan_ok=True)
    newest = RunStore.open(folder).checkpoints()[-1]
    assert newest == RunStore.open(other).checkpoints()[-1]
    for name, array in learned(folder, newest).items():
        np.testing.assert_allclose(array, learned(other, newest)[name], rtol=TOLERANCE, atol=TOLERANCE, err_msg=name)


# One fit of several explorers


@pytest.mark.slow
@pytest.mark.parametrize("model", [replace(NETWORKS, patience=5), TINY.model], ids=["networks", "gp"])
def test_explorers_fitted_together_learn_what_each_learns_alone(model):
    world = Pendulum()
    make = lambda seeds: Explorer(METHODS["random"], model, SMALL.solver, world.spec, capacity=24, seeds=seeds)
    alone, joined = ([make((0, 1)), make((0, 2))] for _ in range(2))
    for _ in range(2):
        trajectories = [rollout(world, explorer.ask(), 12) for explorer in alone]
        for explorer, trajectory in zip(alone, trajectories, strict=True):
            explorer.tell(trajectory)
        told = [Told.of(explorer, trajectory) for explorer, trajectory in zip(joined, trajectories, strict=True)]
        for each, params in zip(told, fit_together(told), strict=True):
            each.learn(params)
    # in a larger batch, sums may be made in another order: of single-precision numbers in networks, of double ones in a GP
    tolerance = 1e-5 if isinstance(model, ProbabilisticEnsemble) else 1e-9
    for explorer, other in zip(joined, alone, strict=True):
        assert explorer.round == other.round == 2
        for ours, theirs in zip(jax.tree.leaves(explorer.params), jax.tree.leaves(other.params), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


def test_explorers_that_are_at_different_rounds_or_of_different_sizes_are_not_fitted_together():
    world = Pendulum()
    make = lambda capacity: Explorer(METHODS["random"], NETWORKS, SMALL.solver, world.spec, capacity=capacity)
    one, two, larger = make(24), make(24), make(25)
    trajectory = rollout(world, one.ask(), 6)
    two.tell(trajectory)
    for other in (two, larger):
        with pytest.raises(SondeError, match="same model, holdout, capacity, window and measurements"):
            fit_together([Told.of(one, trajectory), Told.of(other, trajectory)])


# Whole runs


@dataclass
class Fits:
    """Notes how many explorers each fit had."""

    sizes: list[int]

    def __call__(self, told):
        self.sizes.append(len(told))
        return fit_together(told)


@pytest.fixture
def fits(monkeypatch) -> list[int]:
    noted = Fits([])
    monkeypatch.setattr(together, "fit_together", noted)
    return noted.sizes


@dataclass
class FailAfter(Callback):
    """Raises at the end of a round."""

    round: int

    def on_round_end(self, round_number, rows):
        if round_number == self.round:
            raise ValueError("the tracker is gone")


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> dict[str, Path]:
    """Folders of two methods that were run one after the other."""
    folder = tmp_path_factory.mktemp("alone")
    for config in methods("opax", "random"):
        explore(config, folder / config.method.name)
    return {name: folder / name for name in ("opax", "random")}


def assert_as_alone(folder: Path, alone: dict[str, Path]) -> None:
    for name, other in alone.items():
        assert_alike(folder / name, other)


@pytest.mark.slow
def test_runs_together_end_as_alone_and_say_how_long_they_waited(alone, fits, tmp_path):
    configs = methods("opax", "random")
    explorers = explore_together(configs, [tmp_path / "opax", tmp_path / "random"])
    assert [explorer.round for explorer in explorers] == [3, 3] and fits == [2, 2, 2]
    assert_as_alone(tmp_path, alone)
    for row in RunStore.open(tmp_path / "opax").load_metrics():
        assert row["seconds/wait"] >= 0 and row["seconds/fit"] > 0


@pytest.mark.slow
def test_error_in_one_run_does_not_stop_the_others_and_those_behind_catch_up(alone, fits, tmp_path):
    configs, folders = methods("opax", "random"), [tmp_path / "opax", tmp_path / "random"]
    with pytest.raises(SondeError, match=r"1 of 2 runs failed: .*random: the tracker is gone; the others ended as they should"):
        explore_together(configs, folders, [[], [FailAfter(1)]])
    assert fits == [2, 1, 1]
    assert [RunStore.open(folder).checkpoints()[-1] for folder in folders] == [3, 1]
    # opax at round 2, random at round 1
    RunStore.open(folders[0]).forget_after(2)
    explore_together(configs, folders)
    assert fits[3:] == [1, 2]
    assert_as_alone(tmp_path, alone)


@pytest.mark.slow
def test_stopping_rule_of_one_run_does_not_stop_the_others(fits, tmp_path):
    opax, random = methods("opax", "random")
    explorers = explore_together([replace(opax, until="information<1e9"), random], [tmp_path / "opax", tmp_path / "random"])
    assert [explorer.round for explorer in explorers] == [1, 3] and fits == [2, 1, 1]
    assert RunStore.open(tmp_path / "opax").why_stopped() is not None


@pytest.mark.slow
def test_fit_that_fails_is_an_error_of_each_run_and_no_round_is_lost(monkeypatch, tmp_path):
    calls = []

    def fails_at_the_second(told):
        calls.append(len(told))
        if len(calls) == 2:
            raise MemoryError("no room")
        return fit_together(told)

    monkeypatch.setattr(together, "fit_together", fails_at_the_second)
    folders = [tmp_path / "opax", tmp_path / "random"]
    with pytest.raises(SondeError, match=r"2 of 2 runs failed: .*no room"):
        explore_together(methods("opax", "random"), folders)
    assert [RunStore.open(folder).checkpoints() for folder in folders] == [[1], [1]]


def test_interrupt_ends_all_runs(monkeypatch, tmp_path):
    begun = threading.Event()

    class Begun(Callback):
        def on_run_start(self, config, rows):
            begun.set()

    def interrupt(futures):
        begun.wait()
        raise KeyboardInterrupt

    monkeypatch.setattr(together, "wait", interrupt)
    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        explore_together(methods("random", "random"), [tmp_path / "one", tmp_path / "two"], [[Begun()], []])
    assert threading.active_count() == before
    assert all(RunStore.open(path).checkpoints()[-1] < 3 for path in tmp_path.glob("[!.]*"))


@pytest.mark.parametrize("at_once", [1, 3])
def test_as_many_runs_as_allowed_are_at_work_at_the_same_time(at_once):
    meeting, all_here, inside, most = together.Meeting(3, at_once), threading.Barrier(at_once), [], []

    def attend(number):
        with meeting.attended():
            inside.append(number)
            most.append(len(inside))
            all_here.wait(60)
            inside.remove(number)

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(attend, range(3)))
    assert max(most) == at_once


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": replace(TINY.model, steps=4)}, "model.steps is 3 there and 4 here"),
        ({"model": NETWORKS}, "model is GaussianProcess"),
        ({"horizon": 7}, "capacity is 18 there and 21 here; steps_per_round is 6 there and 7 here"),
        ({"confidence": replace(SMALL.confidence, holdout=0.2)}, "holdout is 0.0 there and 0.2 here"),
    ],
)
def test_configs_that_one_program_cannot_fit_are_rejected_before_anything_is_written(change, message, tmp_path):
    configs = [SMALL, SMALL.with_method("random"), replace(SMALL, **change)]
    with pytest.raises(SondeError, match=rf"configs 0 \(there\) and 2 \(here\) cannot be fitted by one program: {message}"):
        explore_together(configs, [tmp_path / str(number) for number in range(3)])
    assert not list(tmp_path.iterdir())


def test_folders_and_callbacks_must_be_as_many_as_configs_and_a_folder_of_another_run_leaves_nothing_behind(tmp_path):
    with pytest.raises(SondeError, match="as many folders as configs, got 1 and 2"):
        explore_together([SMALL, SMALL], [tmp_path / "one"])
    with pytest.raises(SondeError, match="as many lists of callbacks as configs, got 1 and 2"):
        explore_together([SMALL, SMALL], [tmp_path / "one", tmp_path / "two"], [[]])
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "notes.txt").write_text("mine")
    with pytest.raises(SondeError):
        explore_together([SMALL, SMALL], [tmp_path / "one", tmp_path / "two"])
    assert [path.name for path in tmp_path.iterdir()] == ["two"]


# Sweeps


def batches(folder: Path, configs: list[RunConfig]) -> list[Batch]:
    return Sweep(folder, {config.method.name: config for config in configs}).batches()


def test_batches_are_grouped_by_what_one_program_can_fit(tmp_path):
    networks = replace(SMALL, model=NETWORKS)
    named = {"opax": SMALL, "pe/opax": networks}
    named |= {"random": SMALL.with_method("random"), "pe/random": networks.with_method("random")}
    found = _local.groups(Sweep(tmp_path, named, seeds_per_batch=1).batches())
    assert [[batch.name for batch in group] for group in found] == [
        [f"{name} seeds {seed}-{seed}" for name in (f"{setting}opax", f"{setting}random") for seed in (0, 1)]
        for setting in ("", "pe ")
    ]

    class Other(Batch):
        worker = "elsewhere:work"

    other = Other("", "opax", SMALL, tmp_path)
    assert _local.groups([other, other]) == [(other,), (other,)]
    (first, second, *_), *_ = found
    assert _local.groups([first, second], parts=2) == [(first,), (second,)], "one process for each GPU"
    assert _local.groups([first, second], parts=3) == [(first,), (second,)]


@pytest.mark.slow
def test_lockstep_sweep_continues_after_a_kill_and_gives_the_numbers_of_separate_runs(alone, tmp_path):
    sweep = Sweep(tmp_path / "sweep", {config.method.name: config for config in methods("opax", "random")})
    callbacks = [Interrupt(2, str(tmp_path / "killed")), RoundsInFile(str(tmp_path / "rounds"))]
    assert run_sweep(sweep, LocalBackend(1, lockstep=True), callbacks) == {}
    assert (tmp_path / "killed").exists()
    # the kill came at the end of a second round, before the other callback heard of it
    heard = (tmp_path / "rounds").read_text().splitlines()
    assert sorted(set(heard)) == [f"round {number} of 2 seeds" for number in (1, 2, 3)]
    assert heard.count("round 1 of 2 seeds") == heard.count("round 3 of 2 seeds") == 2
    for batch in sweep.batches():
        assert len((batch.folder / "machines.jsonl").read_text().splitlines()) == 2  # killed once
        assert_alike(batch.folder, alone[batch.method])


@pytest.mark.slow
def test_batch_that_cannot_be_opened_fails_alone_and_its_log_says_why(tmp_path):
    good, bad = batches(tmp_path, methods("random", "opax"))
    for batch in (good, bad):
        batch.create()
    (bad.folder / "config.json").write_text('{"format": 3, "rounds": "many"}')
    assert not explore_in_lockstep([bad.folder, good.folder], to_text([]))
    assert good.finished
    found = _local._failures((bad, good), 2)
    assert list(found) == [bad.folder] and "rounds" in found[bad.folder]
    assert explore_in_lockstep([good.folder], to_text([]))  # nothing is left to do


@pytest.mark.slow
def test_command_runs_methods_in_lockstep_from_end_to_end(monkeypatch, tmp_path, capsys):
    settings = {
        **{"horizon": 6, "evaluate_every": 0, "model.steps": 3, "model.rank": 16, "evaluation_tasks": "(swing-up)"},
        **{"solver.samples": 16, "solver.elites": 4, "solver.horizon": 5, "solver.iterations": 2},
    }
    args = [word for path, value in settings.items() for word in ("--set", f"{path}={value}")]
    args += ["--method", "mean-ae", "random", "--seeds", "2", "--rounds", "2", "--lockstep", "--out", str(tmp_path)]
    assert call(monkeypatch, "sweep", "pendulum-gp", *args) == 0
    said = capsys.readouterr().out
    assert "mean-ae seeds 0-1: round 2 of 2" in said and "random seeds 0-1: round 2 of 2" in said
    for folder in sorted(tmp_path.glob("*-seeds-0-1")):
        assert all("seconds/wait" in row for row in RunStore.open(folder).load_metrics())  # fitted with the other
    assert call(monkeypatch, "sweep", "pendulum-gp", *args) == 0
    assert "2 batches, 2 finished" in capsys.readouterr().out


def test_lockstep_is_for_this_machine_only():
    assert command.backend_named("local", 2, None, 0.0, lockstep=True) == LocalBackend(2, lockstep=True)
    with pytest.raises(SondeError, match="leave out --backend ray or --lockstep"):
        command.backend_named("ray", None, None, 0.0, lockstep=True)
