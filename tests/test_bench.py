"""Benchmarks: counts of work, rows, and `python -m benchmarks` with sizes that mean nothing."""

import io
import json
from dataclasses import replace
from importlib.util import find_spec
from types import SimpleNamespace
from typing import cast

import jax
import jax.numpy as jnp
import matplotlib.image
import numpy as np
import pytest
from matplotlib.colors import to_hex

from benchmarks import (
    ensembles,
    measuring,
    peer_figure,
    peer_posterior,
    processes,
    real_time,
    rollouts,
    runner,
    time_to_task,
    work,
)
from benchmarks.__main__ import main
from benchmarks.figure import figure_of
from benchmarks.measuring import Plan
from benchmarks.rows import Row
from benchmarks.table import in_short, main_table
from sonde.data import Data
from sonde.explorer import Explorer
from sonde.imagination import Mean
from sonde.models import ProbabilisticEnsemble
from sonde.models._network import Network
from sonde.objectives import InformationGain
from sonde.runs import preset
from sonde.solvers import ICEM, SAC, ControlProblem
from sonde.solvers._learner import Batch

MODEL = ProbabilisticEnsemble(members=2, layers=1, width=4, batch_size=8)


def call(*args: str) -> int:
    """The exit code of `python -m benchmarks ARGS` in this process with tiny sizes."""
    try:
        return main(args, effort="tiny")
    except SystemExit as end:
        return int(end.code or 0)


@pytest.fixture(params=["cpu", "gpu"])
def device(request, monkeypatch):
    """Both kinds of devices, as far as clocks and limits depend on them."""
    monkeypatch.setattr(measuring, "on_cpu", lambda: request.param == "cpu")
    return request.param


def operations(function, *args) -> float:
    """Operations counted by XLA, element-wise ones included."""
    return jax.jit(function).lower(*args).compile().cost_analysis()["flops"]


# --- work


def test_work_of_ensembles_is_the_count_by_hand():
    # 3 inputs, 4 neurons, means and noises of 2 states: 12 and 16 multiplications
    assert work.member_layers(MODEL, 2, 1) == [12, 16]
    assert work.ensemble_queries(MODEL, 2, 1, 10) == 2 * 10 * 2 * 28
    assert work.ensemble_training(MODEL, 2, 1, 5) == 2 * 5 * 8 * 2 * (28 + 28 + 16)
    assert work.member_layers(replace(MODEL, noise="fixed"), 2, 1) == [12, 8]


def test_imagined_transitions_are_the_count_by_hand():
    solver = ICEM(samples=100, elites=10, iterations=4, horizon=7, keep_fraction=0.3)
    assert work.imagined_transitions(solver, 5) == 4 * (100 + 3) * 7 * 5


def test_work_of_gaussian_processes_is_the_count_by_hand():
    # per output of m centres: m distances of (4 + 2) products, m products for the mean, m (m + 1) / 2 for the variance
    assert work.gp_query(4, [10, 3]) == 2 * (60 + 10 + 55) + 2 * (18 + 3 + 6)
    assert work.gp_fit(10, 4, 2, 3) == 2 * 3 * (1000 + 2 * 600)
    assert work.gp_condition(20, [5]) == 2 * 20 * 25 + 125


def test_work_of_a_rollout_uses_the_centres_of_each_seed(monkeypatch):
    config, used = preset("pendulum-gp-lite"), {0: [10, 20, 30], 1: [7, 8, 9]}
    monkeypatch.setattr(rollouts, "centres", lambda posterior, seed: used[seed])
    config = replace(config, horizon=100, solver=ICEM(replan_every=3))
    queries = 34 * work.imagined_transitions(ICEM(), 1)  # the last search is for a single step
    expected = queries * (work.gp_query(4, used[0]) + work.gp_query(4, used[1]))
    assert rollouts._flop(config, cast(Explorer, SimpleNamespace(num_seeds=2, posterior=None))) == expected


def test_particles_are_those_of_the_preset_unless_the_name_says_otherwise():
    particles = {s.name: s.particles for s in (ensembles.PENDULUM, ensembles.PENDULUM_WITH_NOISE, ensembles.CHEETAH)}
    assert particles == {"pendulum": 1, "pendulum, 10 particles": 10, "cheetah": 1}
    assert ensembles.with_particles(ensembles.PENDULUM, 1).name == "pendulum, 1 particle"


def test_bytes_that_fit_the_caches_are_not_counted():
    assert work.gp_condition_bytes(1000, [500], 1) is None
    # 500 choices from 20,000 points: the k-th reads k - 1 numbers of 8 bytes per point
    assert work.gp_condition_bytes(20_000, [500], 1) == 20_000 * 8 * sum(range(500))
    large = ProbabilisticEnsemble(members=5, layers=4, width=256)
    weights = 5 * sum(work.member_layers(large, 18, 6))
    assert work.ensemble_training_bytes(large, 18, 6, 7, 1) is None
    assert work.ensemble_training_bytes(large, 18, 6, 7, 50) == 7 * 50 * weights * 3 * 2 * 4


@pytest.mark.slow
def test_network_counts_agree_with_the_compiler():
    model = ProbabilisticEnsemble(members=2, layers=2, width=64, batch_size=32)
    network = Network.init((6, 64, 64, 8), jax.random.key(0))
    z, y = jnp.ones((32, 6), jnp.float32), jnp.ones((32, 4), jnp.float32)
    forward, gradient = operations(lambda n, z: n(z), network, z), operations(jax.grad(model._loss), network, z, y)
    assert work.ensemble_queries(model, 4, 2, 32) / 2 == pytest.approx(forward, rel=0.1)
    assert work.ensemble_training(model, 4, 2, 1) / 2 == pytest.approx(gradient, rel=0.1)
    assert work.ensemble_training(model, 4, 2, 1) / 2 < gradient


@pytest.mark.slow
def test_soft_actor_critic_counts_agree_with_the_compiler():
    solver = SAC(batch_size=256, actor=(64, 64), critic=(128, 128))
    posterior = MODEL.condition(MODEL.init(3, 2, jax.random.key(0)), Data.empty(1, 3, 2))
    problem = ControlProblem(posterior, Mean(), InformationGain(), 3, 2)
    learner = solver._init(problem, jax.random.key(0))
    ones = lambda *shape: jnp.ones((256, *shape), jnp.float32)
    batch, noise = Batch(ones(3), ones(2), ones(), ones(3)), jnp.ones((2, 256, 2))
    step = operations(lambda *its: solver._gradient_step(its[0], None, *its[1:], None), learner, batch, noise)
    assert work.sac_gradient_step(solver, 3, 2) == pytest.approx(step, rel=0.15)


# --- rows and clocks


def test_the_bound_of_a_row_is_the_limit_that_takes_longest():
    row = Row("pe-training", "cheetah", 50, 2.0, 2.0, flop=8e9, bytes=1e9, products="f32")
    assert (row.bound, row.rate, row.ratio) == (None, None, None)  # nothing to compare with yet
    by_products = row.against({"f32": 8e9, "copy": 4e9, "f64": 1.0})
    assert (by_products.bound, by_products.rate, by_products.ratio) == ("f32", 4e9, 0.5)
    by_memory = row.against({"f32": 80e9, "copy": 4e9})
    assert (by_memory.bound, by_memory.rate, by_memory.limit, by_memory.ratio) == ("copy", 5e8, 4e9, 0.125)
    assert json.loads(json.dumps(by_memory.as_dict()))["limits"] == {"f32": 80e9, "copy": 4e9}


def test_long_work_is_measured_once(monkeypatch):
    calls = []
    measuring.measure(lambda: calls.append(1), 3)
    assert len(calls) == 4  # the first is a warm-up
    monkeypatch.setattr(measuring, "LONG", 0.0)
    measuring.measure(lambda: calls.append(1), 3)
    assert len(calls) == 5


@pytest.mark.parametrize(("program", "kind"), [("_chain", "f32"), ("_negate", "copy")])
def test_limits_do_not_include_compilation(monkeypatch, program, kind):
    events, run = [], getattr(measuring, program)
    monkeypatch.setattr(measuring, program, lambda *args: (events.append("run"), run(*args))[1])
    timed = measuring.timed
    monkeypatch.setattr(measuring, "timed", lambda call: (events.append("clock"), timed(call))[1])
    measuring.Limits("tiny").measure([kind])
    assert events[:3] == ["run", "clock", "run"]


def test_predictions_are_compared_with_the_products_that_compute_them(monkeypatch, device):
    monkeypatch.setattr(measuring, "kernel_runs_on", lambda array: False)
    assert measuring.prediction_products() == measuring.network_products() == {"cpu": "f32", "gpu": "tf32"}[device]
    monkeypatch.setattr(measuring, "kernel_runs_on", lambda array: True)
    assert measuring.prediction_products() == "bf16"


def test_a_cpu_does_not_run_the_fused_kernel(cpu):
    assert measuring.prediction_products() == measuring.network_products()


def test_peers_are_measured_in_turns():
    calls = []
    timings = measuring.in_turns({"ours": lambda: calls.append("ours"), "theirs": lambda: calls.append("theirs")}, 2)
    assert calls == ["ours", "theirs"] * 3  # the first of each is a warm-up
    assert timings.keys() == {"ours", "theirs"}


def test_limits_are_the_mean_of_before_and_after(monkeypatch):
    limits, answers = measuring.Limits("tiny"), iter([10.0, 20.0, 40.0])
    monkeypatch.setattr(limits, "_products", lambda name: next(answers))
    limits.measure(["f32"])
    assert limits.around(["f32"]) == {"f32": 15.0}
    assert limits.around(["f32"]) == {"f32": 30.0}


# --- the command


@pytest.mark.slow
def test_the_command_prints_and_saves(capsys, tmp_path):
    assert call("pe-training", "--seeds", "2", "--out", str(tmp_path / "new" / "folder")) == 0
    printed = capsys.readouterr()
    assert "pe-training" in printed.out
    assert "2 gradient steps" in printed.out
    assert "of the machine's limit" in printed.err  # results appear as they come
    saved = json.loads((tmp_path / "new" / "folder" / "bench.json").read_text())
    assert saved["machine"]["limits"].keys() >= {measuring.network_products(), "f64", "copy"}
    (row,) = saved["rows"]
    assert (row["path"], row["setting"], row["num_seeds"]) == ("pe-training", "tiny", 2)
    # two seeds, two steps of 64 points, two members of 4 x 8 and 8 x 6 weights
    assert row["flop"] == 2 * 2 * 64 * 2 * 2 * (3 * (32 + 48) - 32)
    assert row["rate"] == pytest.approx(row["flop"] / row["seconds"])
    assert row["ratio"] == pytest.approx(row["rate"] / row["limits"][measuring.network_products()])
    picture = matplotlib.image.imread(io.BytesIO((tmp_path / "new" / "folder" / "bench.png").read_bytes()))
    assert picture.std() > 0.01


def test_bad_input_is_rejected(capsys, tmp_path):
    assert call("gp-planing") == 2
    error = capsys.readouterr().err
    assert all(name in error for name in ("gp-planing", "gp-planning", "pe-training", "memory"))
    assert call("pe-training", "--seeds", "0") == 2
    (tmp_path / "file").touch()
    assert call("pe-training", "--out", str(tmp_path / "file")) == 2


def test_help_lists_the_paths(capsys):
    assert call("--help") == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in runner.PATHS)


def a_row(path: str) -> Row:
    return Row(path, "so large", 1, 2.0, 1.0, flop=1e9, products="f32")


def test_an_interrupt_keeps_the_results_so_far(monkeypatch, capsys, tmp_path):
    def interrupted(plan):
        yield a_row("sac")
        raise KeyboardInterrupt

    monkeypatch.setitem(runner.PATHS, "sac", interrupted)
    assert call("sac", "import", "--out", str(tmp_path)) == 130
    assert "so large" in capsys.readouterr().out
    assert [row["path"] for row in json.loads((tmp_path / "bench.json").read_text())["rows"]] == ["sac"]


def test_a_path_that_fails_does_not_stop_the_others(monkeypatch, capsys, tmp_path):
    def fails(plan):
        raise RuntimeError("out of memory\nand a long text")
        yield

    monkeypatch.setitem(runner.PATHS, "sac", fails)
    monkeypatch.setitem(runner.PATHS, "rollout", lambda plan: iter([a_row("rollout")]))
    assert call("sac", "rollout", "--out", str(tmp_path)) == 1
    assert "sac was not measured to the end: out of memory" in capsys.readouterr().out
    saved = json.loads((tmp_path / "bench.json").read_text())
    assert saved["failures"] == {"sac": "out of memory"}
    assert [row["path"] for row in saved["rows"]] == ["rollout"]


def test_a_process_that_fails_does_not_stop_the_other_paths(monkeypatch, capfd, tmp_path):
    def of_another_version(plan):
        raise AttributeError("no such function")
        yield

    def fails(plan):
        processes.in_fresh_process("raise ImportError('nothing to import')")
        yield

    monkeypatch.setitem(runner.PATHS, "memory", fails)
    monkeypatch.setitem(runner.PATHS, "peers", of_another_version)
    monkeypatch.setitem(runner.PATHS, "rollout", lambda plan: iter([a_row("rollout")]))
    assert call("memory", "peers", "rollout", "--out", str(tmp_path)) == 1
    assert "nothing to import" in capfd.readouterr().err
    saved = json.loads((tmp_path / "bench.json").read_text())
    assert "exit code 1" in saved["failures"]["memory"] and saved["failures"]["peers"] == "no such function"
    assert [row["path"] for row in saved["rows"]] == ["rollout"]


def test_fresh_processes_do_not_preallocate_device_memory(monkeypatch):
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "true")
    code = "import os; result = {name: os.environ[name] for name in ('XLA_PYTHON_CLIENT_PREALLOCATE', 'ASKED')}"
    assert processes.in_fresh_process(code, {"ASKED": "1"})[0] == {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "ASKED": "1"}


def test_the_remark_says_whether_a_task_was_solved(monkeypatch, device):
    returns = iter([[-1500.0, -300.0], [-1500.0, -1400.0, -1300.0]])

    def child(code, settings):
        return {"returns": next(returns), "seconds_after_rounds": [4.0, 5.0], "cpu_seconds": 9.0}, 6.0

    monkeypatch.setattr(time_to_task, "_limits", lambda seed: (-1600.0, -200.0))
    monkeypatch.setattr(time_to_task, "in_fresh_process", child)
    solved, unsolved = rollouts.to_a_solved_task(Plan("quick"))
    assert (solved.seconds, solved.wall_seconds) == ({"cpu": 9.0, "gpu": 6.0}[device], 6.0)
    assert solved.extra["wanted"] == pytest.approx(-1600 + 0.85 * 1400)
    assert in_short(solved).endswith("solved after 2 rounds") and "not" not in in_short(solved)
    assert in_short(unsolved).endswith("not solved in 3 rounds")


def test_actions_at_a_rate_have_no_cpu_seconds(monkeypatch, device):
    result = {"rate": 50.0, "actions": 200, "late": 3, "p50_ms": 17.0, "p99_ms": 19.0, "return_lost": 0.012}
    monkeypatch.setattr(real_time, "benchmark", lambda quick: {"pendulum-gp-lite": result})
    (row,) = rollouts.at_a_rate(Plan("quick"))
    seconds = {"cpu": "", "gpu": "17 ms, "}[device]
    assert in_short(row) == f"{seconds}wall 17 ms p99 19 ms, 3 of 200 late, 1.2% of the return lost"
    cells = {str(column.header): list(column.cells) for column in main_table([row], "clock").columns}
    assert (cells["clock"], cells["wall"]) == ([{"cpu": "-", "gpu": "17 ms"}[device]], ["17 ms"])


def test_the_figure_shows_every_share():
    rows = [a_row("sac").against({"f32": 1e9}), a_row("rollout").against({"f32": 5e9}), Row("import", "import", 1, 1.0, 1.0)]
    (axes,) = figure_of(rows, "a machine", "CPU-seconds").axes
    assert [bar.get_width() for bar in axes.patches] == [0.5, 0.1]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["sac:  so large", "rollout:  so large"]


@pytest.mark.slow
@pytest.mark.parametrize("path", [path for path in runner.PATHS if path not in runner.ON_DEMAND])
def test_every_default_path_can_be_measured(path):
    """In the smallest size."""
    results = runner.Results()
    runner.run([path], Plan("tiny"), results)
    assert results.failures == {} and results.rows
    assert {row.path for row in results.rows} == {path}
    assert all(row.wall_seconds > 0 and (row.flop is None or (row.ratio or 0) > 0) for row in results.rows)


def test_importing_initialises_no_device():
    row, *commands = processes.importing(Plan("tiny"))
    assert row.extra["initialises_device"] is False
    assert [command.setting for command in commands] == list(processes.COMMANDS)
    assert all((each.seconds or 0) > 0 and each.wall_seconds > 0 for each in (row, *commands))


@pytest.mark.slow
def test_peak_memory_is_that_of_the_process_alone():
    code = """
import numpy
from benchmarks.processes import peak_of_this_process
held = numpy.ones(%d)
result = {"peak": peak_of_this_process()}
"""
    small = processes.in_fresh_process(code % 1)[0]["peak"]
    ours = np.ones(2**24)  # twice as much here must not count there
    large = processes.in_fresh_process(code % 2**23)[0]["peak"]
    assert large - small == pytest.approx(ours.nbytes / 2, rel=0.25)


# --- peers


@pytest.fixture
def question():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(30, 4))
    targets = np.stack([np.sin(points[:, 0]), points[:, 1] * points[:, 2]], axis=1)
    hyperparameters = rng.uniform(0.5, 2.0, (2, 4)), np.asarray([1.0, 2.0]), np.asarray([0.1, 0.05])
    return peer_posterior.Question(points, targets, *hyperparameters, rng.normal(size=(200, 4)))


def test_the_reference_agrees_with_scikit_learn(question):
    np.testing.assert_allclose(peer_posterior.by_scikit_learn(question)()[1], peer_posterior.exact_std(question), atol=1e-9)


@pytest.mark.parametrize("fast_variances", [False, True])
def test_gpytorch_answers_the_same_question(question, fast_variances):
    pytest.importorskip("gpytorch")
    mean, std = peer_posterior.by_gpytorch(question, fast_variances)()
    np.testing.assert_allclose(std, peer_posterior.exact_std(question), atol=1e-5)
    np.testing.assert_allclose(mean, peer_posterior.by_scikit_learn(question)()[0], atol=1e-5)


def test_pytorch_icem_imagines_as_many_transitions_as_ours():
    torch, icem = (pytest.importorskip(name) for name in ("torch", "pytorch_icem"))
    from benchmarks.ensembles import TINY
    from benchmarks.peer_planning import TorchEnsemble, _planner

    setting = replace(TINY, solver=ICEM(samples=40, horizon=5, elites=10, iterations=3, keep_fraction=0.3))
    ensemble = TorchEnsemble(torch, setting)
    step = _planner(torch, icem, ensemble)
    for _ in range(2):  # the first step has no plans of an earlier one
        ensemble.transitions = 0
        step()
        assert ensemble.transitions == work.imagined_transitions(setting.solver, setting.particles)


def test_mbrl_lib_imagines_as_many_transitions_as_ours_but_for_the_last_plans_that_it_does_not_keep():
    torch = pytest.importorskip("torch")
    pytest.importorskip("mbrl.planning", exc_type=Exception)  # its pinned hydra-core raises a ValueError in Python 3.11
    from benchmarks.ensembles import TINY
    from benchmarks.peer_mbrl import planner

    setting = replace(TINY, solver=ICEM(samples=40, horizon=5, elites=10, iterations=3, keep_fraction=0.3))
    ensemble, step = planner(torch, setting)
    step()  # the first step has no plans of an earlier one
    ensemble.transitions = 0
    assert step().shape == (5, 4)
    fewer = (setting.solver.kept_elites - 1) * 5 * setting.particles  # the mean takes their place
    assert ensemble.transitions + fewer == (3 * (40 + 3)) * 5 * setting.particles


def test_the_figure_of_peers_shows_times_as_multiples_of_ours_and_marks_wrong_answers():
    row = lambda by, seconds, **extra: Row("peers", "planning", 1, seconds, 1.0, extra={"by": by, **extra})
    rows = [row("sonde", 2.0, std_error=1e-5), row("fast", 1.0, std_error=0.3), row("slow", 6.0, std_error=1e-12)]
    (axes,) = peer_figure.figure_of(rows, "a machine", "CPU-seconds").axes
    assert [bar.get_width() for bar in axes.patches] == [1.0, 0.5, 3.0]
    assert [to_hex(bar.get_facecolor()).upper() for bar in axes.patches] == [
        peer_figure.OURS,
        peer_figure.INACCURATE,
        peer_figure.THEIRS,
    ]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["sonde", "fast", "slow"]


def test_a_missing_peer_is_left_out(monkeypatch, capsys):
    monkeypatch.setattr(measuring, "find_spec", lambda name: None if name == "torch" else find_spec(name))
    assert measuring.installed("sklearn")
    assert not measuring.installed("torch", "sklearn")
    assert "torch not installed" in capsys.readouterr().err


def test_a_row_without_the_kind_of_its_products_is_rejected():
    with pytest.raises(ValueError, match="which products"):
        Row("sac", "large", 1, 1.0, 1.0, flop=1.0).against({})
