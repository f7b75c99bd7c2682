"""Sweeps: which batches they have, what comes out of them, and the command."""

import importlib
from dataclasses import dataclass, replace
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from rich.console import Console
from scipy import stats

from command_line import call
from sonde._internal.errors import SondeError
from sonde.cli import _sweep as command
from sonde.models import RBF, Matern52
from sonde.runs import explore
from sonde.runs._codec import to_json
from sonde.runs._store import RunStore
from sonde.runs.sweep import Backend, Batch, LocalBackend, RayBackend, Results, Sweep, SweepProgress, final_values, run_sweep
from sonde.runs.sweep._worker import work
from sweep_parts import RoundsInFile
from tiny import TINY
from user_parts import LargestAction

SMALL = replace(TINY, horizon=6, rounds=2, seeds=2, evaluation_tasks=("swing-up",), evaluation_horizon=4)
TINY_SETTINGS = [
    *("--set", "horizon=6", "--set", "evaluation-horizon=4", "--set", "evaluation_tasks=(swing-up)", "--set", "model.steps=3"),
    *("--set", "model.rank=16", "--set", "solver.samples=16", "--set", "solver.elites=4", "--set", "solver.horizon=5"),
    *("--set", "solver.iterations=2"),
]


@dataclass(frozen=True)
class InThisProcess(Backend):
    """Runs one batch after the other, with programs that the tests have compiled."""

    def run(self, batches, callbacks, watch):
        for batch in batches:
            batch.create()
            watch([batch])
            work(batch.worker, batch.folder, callbacks)
        watch([])
        return {}


def names(sweep: Sweep) -> list[str]:
    return [str(batch.folder.relative_to(Path(sweep.folder).absolute())) for batch in sweep.batches()]


# Batches


def test_batches_are_named_after_configs_and_seeds(tmp_path):
    sweep = Sweep(tmp_path, {"opax": SMALL, "wide/opax": replace(SMALL, seeds=5)}, seeds_per_batch=2)
    assert names(sweep) == ["opax-seeds-0-1", "wide/opax-seeds-0-1", "wide/opax-seeds-2-3", "wide/opax-seeds-4-4"]
    assert [(batch.setting, batch.method) for batch in sweep.batches()] == [("", "opax"), *[("wide", "opax")] * 3]
    assert [batch.name for batch in sweep.batches()[:2]] == ["opax seeds 0-1", "wide opax seeds 0-1"]


def test_existing_batches_are_used_whatever_their_size(tmp_path):
    for batch in Sweep(tmp_path, {"opax": replace(SMALL, seeds=3)}).batches():
        batch.create()
    assert names(Sweep(tmp_path, {"opax": SMALL}, 1)) == ["opax-seeds-0-2"]
    assert names(Sweep(tmp_path, {"opax": replace(SMALL, seeds=6)})) == ["opax-seeds-0-2", "opax-seeds-3-5"]
    with pytest.raises(SondeError, match="horizon is 6 there and 7 here; name another folder"):
        Sweep(tmp_path, {"opax": replace(SMALL, horizon=7)}).batches()


@pytest.mark.parametrize("name", ["", "/opax", "../opax", "wide//opax", "wide/"])
def test_names_that_are_no_folders_are_rejected(name, tmp_path):
    with pytest.raises(SondeError, match="names of configs become folders"):
        Sweep(tmp_path, {name: SMALL})


def test_sweeps_without_configs_or_folder_are_rejected(tmp_path):
    with pytest.raises(SondeError, match="at least one config"):
        Sweep(tmp_path, {})
    with pytest.raises(SondeError, match="seeds_per_batch must be a whole number"):
        Sweep(tmp_path, {"opax": SMALL}, 0)
    (tmp_path / "file").touch()
    with pytest.raises(SondeError, match="expected a folder, got the file"):
        Sweep(tmp_path / "file", {"opax": SMALL})
    with pytest.raises(SondeError, match="workers must be a whole number"):
        LocalBackend(0)


@pytest.mark.slow
def test_batch_that_its_stopping_rule_ended_is_finished(tmp_path):
    config = replace(SMALL, until="information<1e9", evaluate_every=0)
    sweep = Sweep(tmp_path, {"opax": config})
    assert run_sweep(sweep, InThisProcess()) == {}
    (batch,) = sweep.batches()
    assert batch.finished and batch.rounds_done() == 2 and RunStore.open(batch.folder).checkpoints() == [1]
    assert {type(value) for row in batch.rows() for key, value in row.items() if key not in ("setting", "method")} <= {
        int,
        float,
    }
    sweep.results().save(tmp_path / "curves.csv")
    assert len(Results.load(tmp_path / "curves.csv").rows) == len(batch.rows())


# Results


PACKAGE = """
from dataclasses import dataclass
from sweep_parts import RoundsInFile

@dataclass(frozen=True)
class FromPackage(RoundsInFile):
    pass
"""


@pytest.mark.slow
def test_sweep_of_own_classes_runs_with_callbacks_and_gives_the_same_as_explore(tmp_path, monkeypatch):
    (tmp_path / "own_package").mkdir()
    (tmp_path / "own_package" / "listeners.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(tmp_path)
    from_package = importlib.import_module("own_package.listeners").FromPackage(str(tmp_path / "rounds"), "again")
    config = replace(SMALL.with_method("random"), metrics=(LargestAction(),), evaluate_every=0)
    sweep = Sweep(tmp_path / "sweep", {"random": config})
    heard = RoundsInFile(str(tmp_path / "rounds"))
    assert run_sweep(sweep, LocalBackend(1), [heard, from_package]) == {}  # in a process that knows only what is on disk
    lines = [f"{who} {number} of 2 seeds" for number in (1, 2) for who in ("round", "again")]
    assert (tmp_path / "rounds").read_text().splitlines() == lines
    explore(config, tmp_path / "alone")
    largest = [row["largest_action"] for row in RunStore.open(tmp_path / "alone").load_metrics()]
    curve = sweep.results().curve("", "random", "largest_action")
    assert curve is not None and curve.values.T.flatten().tolist() == largest
    # finished: nothing is run again
    assert run_sweep(sweep, LocalBackend(1), [heard]) == {}
    assert (tmp_path / "rounds").read_text().splitlines() == lines


def test_callbacks_that_cannot_be_sent_are_rejected(tmp_path):
    class Local(RoundsInFile):
        pass

    with pytest.raises(SondeError, match="top level of a file"):
        run_sweep(Sweep(tmp_path, {"opax": SMALL}), InThisProcess(), [Local("x")])
    assert not list(tmp_path.iterdir())


def table(values: dict, metric: str = "score") -> Results:
    """Results from values [S, T] by setting and method."""
    return Results(
        {"setting": setting, "method": method, "seed": seed, "round": t + 1, metric: float(value)}
        for (setting, method), rows in values.items()
        for seed, curve in enumerate(rows)
        for t, value in enumerate(curve)
    )


def test_final_values_are_means_with_two_standard_errors_and_paired_differences():
    draws = np.random.default_rng(0)
    mine, theirs = draws.normal(size=(6, 3)), draws.normal(size=(5, 2))
    results = table({("", "opax"): theirs, ("", "random"): mine})
    baseline, other = final_values(results, "score", [("", "opax"), ("", "random")])
    assert (baseline.round, baseline.seeds, baseline.baseline, baseline.difference) == (2, 5, None, None)
    assert baseline.mean == pytest.approx(theirs[:, -1].mean()) and baseline.band == pytest.approx(2 * stats.sem(theirs[:, -1]))
    # in round 2 and for the five seeds, which both have
    expected = stats.ttest_rel(mine[:5, 1], theirs[:, 1]).confidence_interval(0.95)
    assert other.baseline == ("", "opax") and other.difference.interval() == pytest.approx((expected.low, expected.high))
    assert other.comparison == f"{other.difference.mean:+.3g} [{expected.low:+.3g}, {expected.high:+.3g}]"


def test_logarithmic_metrics_are_compared_by_ratios_where_they_are_positive():
    low, high = np.array([[1.0], [2.0], [4.0]]), np.array([[3.0], [6.0], [12.0]])
    entries = [("", "opax"), ("", "random")]
    _, other = final_values(table({entries[0]: low, entries[1]: high}), "score", entries, log=True)
    assert other.is_ratio and other.comparison == "x3 [3, 3]"
    _, other = final_values(table({entries[0]: 0 * low, entries[1]: high}), "score", entries, log=True)
    assert not other.is_ratio and other.difference.mean == pytest.approx(7)


def test_methods_are_compared_within_settings_and_settings_where_there_is_one_method():
    values = np.arange(4.0)[:, None]
    four = [("wide", "opax"), ("wide", "random"), ("deep", "opax"), ("deep", "random")]
    found = final_values(table(dict.fromkeys(four, values)), "score", four)
    assert [value.baseline for value in found] == [None, ("wide", "opax"), None, ("deep", "opax")]
    found = final_values(table(dict.fromkeys(four[::2], values)), "score", four)
    assert [value.baseline for value in found] == [None, ("wide", "opax")]


def test_single_seeds_and_missing_values_are_shown_as_unknown():
    entries = [("", "opax"), ("", "random"), ("", "max")]
    results = table({entries[0]: [[1.0]], entries[1]: [[np.nan]]})
    first, second = final_values(results, "score", entries)
    assert np.isnan(first.band) and second.comparison == "-"


# Progress


def test_progress_names_batches_and_estimates_the_rest(tmp_path, capsys):
    sweep = Sweep(tmp_path, {"opax": SMALL, "random": SMALL})
    first, second = sweep.batches()
    for batch in (first, second):
        batch.create()
    progress = SweepProgress([first, second], Console(width=100))
    with progress:
        progress([first])
        assert progress.seconds_left() is None
        (first.folder / "checkpoints" / "0001.json").write_text("{}")
        row = {"seed": 0, "round": 1, "seconds/plan": 2.0, "seconds/fit": 1.0}
        RunStore.open(first.folder).append_metrics([row])
        progress([first, second])
    assert "opax seeds 0-1: round 1 of 2; 1 of 4 rounds in all" in capsys.readouterr().out
    assert progress.seconds_left() == pytest.approx(3 * 3.0 / 2)  # three rounds, two batches at a time
    terminal = Console(width=100, record=True)
    terminal.print(progress._table([first]))
    assert [line.split("│")[-2].strip() for line in terminal.export_text().splitlines() if "0-1" in line] == [
        "running",
        "waiting",
    ]


# The command


@pytest.fixture
def in_this_process(monkeypatch):
    monkeypatch.setattr(command, "LocalBackend", lambda *options: InThisProcess())


@pytest.mark.slow
def test_command_runs_a_grid_draws_it_as_plot_does_and_runs_nothing_twice(in_this_process, monkeypatch, tmp_path, capsys):
    args = ["pendulum-gp", "--method", "opax", "random", "--seeds", "2", "--rounds", "2", *TINY_SETTINGS]
    args += ["--set", "evaluate_every=1,2", "--out", str(tmp_path / "sweep")]
    assert call(monkeypatch, "sweep", *args) == 0
    said = capsys.readouterr().out
    assert "4 batches, 0 finished" in said and "evaluate_every=2 random seeds 0-1: round 2 of 2" in said
    assert "Return on swing-up [sum of rewards]; 2 seeds, round 2" in said and "x: ratio of geometric means" in said
    folders = sorted((tmp_path / "sweep").glob("*/*-seeds-*"))
    assert [str(path.relative_to(tmp_path / "sweep")) for path in folders] == [
        f"evaluate_every={every}/{method}-seeds-0-1" for every in (1, 2) for method in ("opax", "random")
    ]
    for folder in folders:
        config = RunStore.open(folder).config
        assert config == replace(SMALL, method=config.method, evaluate_every=config.evaluate_every)
        assert str(folder).endswith(f"evaluate_every={config.evaluate_every}/{config.method.name}-seeds-0-1")
    rows = Results.load(tmp_path / "sweep" / "curves.csv").rows
    assert len(rows) == 4 * 2 * 2 and {row["setting"] for row in rows} == {"evaluate_every=1", "evaluate_every=2"}

    assert call(monkeypatch, "plot", *map(str, folders), "--out", str(tmp_path / "plot.png")) == 0
    drawn, plotted = (matplotlib.image.imread(path) for path in (tmp_path / "sweep" / "curves.png", tmp_path / "plot.png"))
    np.testing.assert_array_equal(drawn, plotted)

    capsys.readouterr()
    monkeypatch.setattr(InThisProcess, "run", lambda self, missing, *_: dict.fromkeys(missing, "begun again"))
    assert call(monkeypatch, "sweep", *args) == 0
    assert "4 batches, 4 finished" in capsys.readouterr().out


def test_command_reports_what_there_is_after_an_interrupt_and_failures(in_this_process, monkeypatch, tmp_path, capsys):
    args = ["pendulum-gp", "--method", "random", "--seeds", "2", "--rounds", "2", *TINY_SETTINGS, "--set", "evaluate_every=0"]
    args += ["--out", str(tmp_path)]

    def interrupt(self, batches, callbacks, watch):
        raise KeyboardInterrupt

    monkeypatch.setattr(InThisProcess, "run", interrupt)
    assert call(monkeypatch, "sweep", *args) == 130
    said = "".join(capsys.readouterr())
    assert "the same command continues" in said and "No round is finished yet" in said
    monkeypatch.setattr(InThisProcess, "run", lambda self, batches, *_: {batches[0].folder: "out of luck"})
    assert call(monkeypatch, "sweep", *args) == 1
    assert "random seeds 0-1 failed: out of luck" in capsys.readouterr().out


def chosen(*args: str, start=SMALL) -> dict:
    """The configs that options stand for."""
    options, parts = command.tyro.cli(command.SweepArguments, args=args, return_unknown_args=True)
    return command.combinations(start, options, parts)


def test_every_combination_of_values_and_methods_is_a_config():
    configs = chosen("--method", "opax", "mean-ae", "--set", "model.steps=3,4", "--set", "horizon=5,6", "--set", "rollouts=2")
    assert list(configs) == [
        f"model.steps={steps},horizon={horizon}/{method}"
        for steps in (3, 4)
        for horizon in (5, 6)
        for method in ("opax", "mean-ae")
    ]
    last = configs["model.steps=4,horizon=6/mean-ae"]
    assert (last.model.steps, last.horizon, last.rollouts, last.method.name) == (4, 6, 2, "mean-ae")
    assert to_json(chosen()["opax"]) == to_json(SMALL)


def test_values_are_read_by_the_type_of_their_field():
    configs = chosen(
        *(
            "--set",
            "model.kernel=rbf,matern52",
            "--set",
            "method.imagination.beta=1,2.5",
            "--set",
            "method.imagination.noise=true",
        ),
        *("--set", "model.input_scales=(1, 2, 0.5, 1)", "--set", "capacity=none", "--set", "until=uncertainty<0.3"),
    )
    assert {(type(c.model.kernel), c.method.imagination.beta) for c in configs.values()} == {
        (kernel, beta) for kernel in (RBF, Matern52) for beta in (1.0, 2.5)
    }
    config = configs["model.kernel=matern52,method.imagination.beta=2.5/opax"]
    assert config.model.input_scales == (1.0, 2.0, 0.5, 1.0) and config.capacity is None and config.until == "uncertainty<0.3"
    assert config.method.imagination.noise is True
    (config,) = chosen("--model", "pe", "--set", "model.width=8", "--set", "confidence.beta_rule=none").values()
    assert config.model.width == 8 and config.confidence.beta_rule is None


def test_exploration_task_goes_to_methods_that_need_one():
    configs = chosen("--method", "h-ucrl", "opax", "--exploration-task", "swing-up")
    assert [config.exploration_task for config in configs.values()] == ["swing-up", None]
    configs = chosen("--method", "h-ucrl", "random", start=SMALL.with_method("h-ucrl", "keep-down"))
    assert [config.exploration_task for config in configs.values()] == ["keep-down", None]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--set", "model.steps"], "expected PATH=VALUE or PATH=V1,V2"),
        (["--set", "model.steps="], "expected PATH=VALUE"),
        (["--set", "model.widht=64"], "GaussianProcess has no 'widht'; it has kernel, hyperparameters"),
        (["--set", "method.imagination.beta=1", "--method", "random"], r"method.imagination \(None\) has no 'beta'"),
        (["--set", "modell.steps=3"], r"the config has no 'modell'; did you mean 'model'\? it has world, model"),
        (["--set", "horizon.steps=3"], r"horizon \(6\) has no 'steps'; it has no fields"),
        (["--set", "model.steps=few,3"], r"--set model.steps=few: model: steps: expected int, got 'few'"),
        (["--set", "model.steps=2.5"], "expected int, got 2.5"),
        (["--set", "solver.elites=100"], "elites must not exceed samples, got 100 and 16"),
        (["--set", "model.kernel=rbff"], r"unknown model.kernel 'rbff'; did you mean 'rbf'\? expected one of"),
        (["--set", "rounds=2,3", "--set", "rounds=4"], "each path is given once"),
        (["--set", "horizon=5,5"], "two combinations are called 'horizon=5/opax'"),
        (["--method", "opaxx"], "unknown method 'opaxx'"),
        (["--method", "h-ucrl"], "name it with --exploration-task"),
        (["--seeds", "0"], "seeds must be a whole number"),
        (["--horizon", "5"], "unknown option --horizon; give settings as --set"),
    ],
)
def test_options_that_make_no_sense_are_rejected(args, message):
    with pytest.raises(SondeError, match=message):
        chosen(*args)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["pendulumm"], "unknown preset 'pendulumm'"),
        (["--seeds", "3"], "name a preset first"),
        (["pendulum-gp", "--gpus", "0.5"], "--address and --gpus are for Ray"),
        (["pendulum-gp", "--workers", "0"], "workers must be a whole number"),
    ],
)
def test_command_rejects_what_it_cannot_run(args, message, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch, "sweep", *args) == 2
    assert message in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_backend_is_chosen_by_name():
    assert command.backend_named("ray", None, "here:1", 0.5) == RayBackend("here:1", 0.5)
    assert command.backend_named("local", 3, None, 0.0) == LocalBackend(3)


def test_subclasses_of_batches_keep_their_kind_and_are_known_by_their_folder(tmp_path):
    batch = Batch("", "opax", SMALL, tmp_path)
    assert batch == replace(batch, config=replace(SMALL, rounds=9)) and len({batch, replace(batch, folder=tmp_path / "x")}) == 2
