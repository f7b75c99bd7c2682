"""Planners distilled into networks: reported returns equal an independent evaluation, and the network is better than chance."""

import re
from dataclasses import replace

import numpy as np
import pytest

from command_line import call
from sonde import METHODS, Controller, Explorer, SondeError, explore, load_policy, rollout
from sonde._internal.past import Past
from sonde._internal.precision import double_precision
from sonde._internal.randomness import for_purpose, rollout_keys
from sonde.evaluation import Distillation, Learned, TaskSetup, distil, plan_task
from sonde.runs._presets import FIXED_GP
from sonde.solvers import ICEM, SAC, SafetySettings
from sonde.worlds import GoalTask, Pendulum
from tiny import TINY

WORLD, HORIZON, STARTS = Pendulum(), 25, 3
PLANNER = ICEM(samples=40, elites=6, iterations=3, horizon=10)
SETTINGS = Distillation(iterations=2, rollouts=4, layers=(24,), gradient_steps=600, batch_size=64)
SETUP = replace(TaskSetup.named(WORLD, "swing-up", PLANNER, HORIZON), rollouts=STARTS)


@pytest.fixture(scope="module")
def explorer() -> Explorer:
    """What two hundred random measurements of the pendulum tell a process with fixed hyper-parameters."""
    model = replace(FIXED_GP, rank=32)
    explorer = Explorer(METHODS["random"], model, PLANNER, WORLD.spec, capacity=200)
    explorer.tell(rollout(WORLD, explorer.ask(), 200))
    return explorer


@pytest.fixture(scope="module")
def distilled(explorer):
    return distil(SETUP, Learned(explorer.posterior, explorer.recent), explorer.keys(), SETTINGS)


SAFE = replace(TINY, constraints=("speed",), safety=SafetySettings(start="0.1"))


def returns_by_hand(explorer, act, starts) -> list[float]:
    """Returns on the learned model, one step at a time; `act` is given the states of all rollouts."""
    x, total = np.array(starts), np.zeros(len(starts))
    for _ in range(HORIZON):
        u = act(x)
        x_next = explorer.predict(x[None], u[None]).mean[0]
        total -= np.arctan2(x[:, 1], x[:, 0]) ** 2 + 0.1 * x[:, 2] ** 2 + 0.001 * (2 * u[:, 0]) ** 2  # Gymnasium's cost
        # the unit circle and the speed limit
        x = np.c_[x_next[:, :2] / np.hypot(*x_next[:, :2].T)[:, None], np.clip(x_next[:, 2], -8, 8)]
    return total.tolist()


@pytest.mark.slow
def test_the_reported_returns_are_those_of_an_independent_evaluation(explorer, distilled, tmp_path):
    path = tmp_path / "swing-up.safetensors"
    path.write_bytes(distilled.policy.to_bytes())
    network = load_policy(path)
    by_hand = returns_by_hand(explorer, lambda x: np.stack([network(row) for row in x]), distilled.starts[0])
    np.testing.assert_allclose(distilled.network[0], by_hand, rtol=1e-4)

    @double_precision
    def controller():
        policy = plan_task(SETUP, Learned(explorer.posterior, explorer.recent), for_purpose(explorer.keys(), "distil/swing-up"))
        keys = for_purpose(for_purpose(explorer.keys(), "distil/swing-up"), "judge")
        return Controller(policy, rollout_keys(keys, range(STARTS)), 3)

    np.testing.assert_allclose(distilled.planner[0], returns_by_hand(explorer, controller(), distilled.starts[0]), rtol=1e-6)
    np.testing.assert_allclose(distilled.lost, np.mean(distilled.planner - distilled.network, axis=1))


@pytest.mark.slow
def test_the_network_is_far_better_than_random_actions(explorer, distilled):
    rng = np.random.default_rng(0)
    random = [returns_by_hand(explorer, lambda x: rng.uniform(-1, 1, (len(x), 1)), distilled.starts[0]) for _ in range(5)]
    chance, planner, network = np.mean(random), distilled.planner.mean(), distilled.network.mean()
    assert planner > chance + 10
    assert network > chance + 0.5 * (planner - chance)


@pytest.mark.slow
def test_starts_are_states_of_the_system_around_its_own(distilled):
    starts = distilled.starts[0]
    np.testing.assert_allclose(starts[0], [-1, 0, 0])
    np.testing.assert_allclose(np.hypot(starts[:, 0], starts[:, 1]), 1.0)
    assert len(np.unique(starts[:, 2])) == STARTS


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"solver": SAC()}, "SAC trains a network already"),
        ({"task": GoalTask(lambda x, u, x_next, goal: 0.0, lambda rng: np.zeros(1))}, "another goal in each rollout"),
        (
            {"safety": replace(TINY, constraints=("speed",), safety=SafetySettings(start="0.1")).resolved_safety},
            "a network has none",
        ),
    ],
)
def test_tasks_that_a_network_cannot_solve_are_refused(change, message, explorer):
    with pytest.raises(SondeError, match=message):
        distil(replace(SETUP, **change), Learned(explorer.posterior, explorer.recent), explorer.keys(), SETTINGS)


def test_measurements_are_needed(explorer):
    with pytest.raises(SondeError, match="pass Learned"):
        distil(SETUP, Learned(explorer.posterior), explorer.keys(), SETTINGS)


@pytest.mark.parametrize(
    ("change", "message"), [({"iterations": 0}, "iterations"), ({"layers": (0,)}, "layers"), ({"noise": -1.0}, "noise")]
)
def test_settings_that_cannot_work_are_refused(change, message):
    with pytest.raises(SondeError, match=message):
        Distillation(**change)


# ---- the command line --------------------------------------------------------------------------------------------------------

FAST = ["--iterations", "1", "--rollouts", "2", "--starts", "2", "--gradient-steps", "20", "--layers", "8"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of two seeds whose actions are late by a step."""
    folder = tmp_path_factory.mktemp("runs") / "late"
    config = replace(TINY, rounds=1, delay=1, seeds=2, evaluate_every=0)
    explore(config, folder)
    return folder


@pytest.mark.slow
def test_commands_turn_a_planner_into_files(run, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch, "deploy", str(run), "--task", "swing-up", "--out", "a.h") == 2
    assert "sonde distil" in capsys.readouterr().err
    assert call(monkeypatch, "distil", str(run), "--task", "swing-up", *FAST) == 0
    shown = capsys.readouterr().out
    assert "planner, true" in shown
    rows = re.findall(r"│\s+(\d)\s+│\s+(\S+)\s+│\s+(\S+)\s+│\s+(\S+)\s+│", shown)
    assert [row[0] for row in rows] == ["0", "1"]
    for _, planner, network, lost in rows:
        assert float(lost) == pytest.approx(float(planner) - float(network), abs=0.02)
    policies = [load_policy(run / "policies" / "swing-up.safetensors", seed) for seed in (0, 1)]
    assert policies[1].past == Past(delay=1)
    for name, words in {"a.onnx": ["--batch", "1"], "a.h": ["--name", "act"], "b.safetensors": []}.items():
        assert call(monkeypatch, "deploy", str(run), "--task", "swing-up", "--seed", "1", "--out", name, *words) == 0
    x = np.array([0.5, 0.5, 1.0])
    np.testing.assert_array_equal(load_policy("b.safetensors")(x), policies[1](x))
    assert "act_reset" in (tmp_path / "a.h").read_text()
    assert call(monkeypatch, "deploy", "b.safetensors", "--out", "c.h") == 0
    assert "static inline int c_act(" in (tmp_path / "c.h").read_text()


@pytest.mark.slow
def test_the_command_writes_the_model_of_a_seed(run, monkeypatch, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch, "deploy", str(run), "--model", "--out", "model.onnx") == 0
    assert call(monkeypatch, "deploy", str(run), "--model", "--out", "model.h") == 0
    graph = onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
    assert [each.name for each in graph.get_outputs()] == ["mean", "epistemic_std", "aleatoric_std"]
    mean = graph.run(["mean"], {"x": np.array([[-1.0, 0.0, 0.0]]), "u": np.zeros((1, 2))})[0]
    assert mean.shape == (1, 3) and np.isfinite(mean).all()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["deploy", "DIR", "--out", "a.onnx"], "name what to write"),
        (["deploy", "DIR", "--task", "swing-up", "--model", "--out", "a.onnx"], "ask for one at a time"),
        (["deploy", "DIR", "--model", "--out", "a.safetensors"], "a model can be written to .onnx, .h, got 'a.safetensors'"),
        (["deploy", "DIR", "--task", "swing-up", "--out", "a.txt"], "a controller can be written to"),
        (["deploy", "DIR", "--model", "--seed", "7", "--out", "a.h"], "has no seed 7"),
        (["deploy", "gains.safetensors", "--task", "swing-up", "--out", "a.h"], "one controller already"),
        (["distil", "DIR", "--task", "swing-up", "--out", "a.h"], "end its name in .safetensors"),
        (["distil", "DIR", "--task", "swing-up", "--starts", "0"], "starts must be a whole number above 0"),
    ],
)
@pytest.mark.slow
def test_commands_refuse_what_cannot_be_meant(words, message, run, monkeypatch, capsys):
    assert call(monkeypatch, *(str(run) if word == "DIR" else word for word in words)) == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_gains_are_deployed_from_their_file(monkeypatch, capsys, tmp_path):
    from sonde.control import LinearFeedback

    monkeypatch.chdir(tmp_path)
    LinearFeedback(np.ones((1, 2)), np.zeros(2), np.zeros(1)).save("gains.safetensors")
    for words in (["--out", "gains.h"], ["--out", "gains.onnx"], ["--out", "copy.safetensors"]):
        assert call(monkeypatch, "deploy", "gains.safetensors", *words) == 0
    assert load_policy("copy.safetensors")(np.array([0.25, 0.5])) == [-0.75]
    assert call(monkeypatch, "deploy", "gains.safetensors", "--out", "gains.h", "--batch", "2") == 2
    assert call(monkeypatch, "deploy", "gains.safetensors", "--out", "gains.onnx", "--name", "k") == 2
    capsys.readouterr()
    for words, message in {
        ("gains.safetensors", "--out", "1.h"): "begin with a letter, and 1.h does not: give them one with --name",
        ("gains.safetensors", "--out", "none/a.h"): "none does not exist; make it first",
        ("gains.h", "--out", "a.h"): "expected the folder of a run, or FILE.safetensors",
    }.items():
        assert call(monkeypatch, "deploy", *words) == 2
        assert message in capsys.readouterr().err
