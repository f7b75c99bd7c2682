"""Plants of other tools: an FMU steps like its own equation, is restarted as it allows, and says what cannot be used."""

import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from command_line import call
from fmu_plants import cart, described, pendulum
from sonde._internal.errors import SondeError
from sonde.cli._answers import answer
from sonde.runs import RunConfig, default_config
from sonde.runs._codec import code_of, from_json, to_json
from sonde.runs._config import check_same_config, with_absolute_paths, world_label
from sonde.runs._store import RunStore
from sonde.worlds import FmuWorld

pytest.importorskip("fmpy")
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="the plant is compiled with cc")
TORQUE = "torque=-2:2"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with an FMU by pythonfmu."""
    folder = tmp_path_factory.mktemp("plants")
    pendulum(folder)
    return folder


@pytest.fixture(scope="module")
def carts(tmp_path_factory):
    """FMUs in C, by their version of FMI."""
    folder = tmp_path_factory.mktemp("carts")
    return {version: str(cart(folder, version)) for version in (2, 3)}


def swing(folder: Path, **settings) -> FmuWorld:
    return FmuWorld(str(folder / "Pendulum.fmu"), **({"ranges": (TORQUE,)} | settings))


def stepped(world: FmuWorld, actions: np.ndarray) -> np.ndarray:
    """States of one copy [T + 1, dx]."""
    copies = world.open(1)
    try:
        return np.array([copies.reset([0])[0], *(copies.step(u[None].copy()).next_states[0] for u in actions)])
    finally:
        copies.close()


# ---- equal to the plant ------------------------------------------------------------------------------------------------------


def test_steps_solve_the_differential_equation(folder):
    world = swing(folder, start_values=("gravity=7.5", "angle0=-0.8"), dt=0.08)
    actions = np.random.default_rng(0).uniform(-1, 1, (40, 1))
    states = stepped(world, actions)
    x = np.array([-0.8, 0.0])
    for t, u in enumerate(actions[:, 0]):
        np.testing.assert_allclose(states[t], x, atol=1e-7)
        slope = lambda _, y, u=u: (y[1], -7.5 * np.sin(y[0]) - 0.3 * y[1] + 2 * u)
        x = solve_ivp(slope, (0, 0.08), x, rtol=1e-10, atol=1e-12).y[:, -1]
    assert (world.state_names, world.action_names, world.seconds_per_step) == (("angle", "speed"), ("torque",), 0.08)
    assert swing(folder).seconds_per_step == 0.05  # the FMU's own


@needs_compiler
@pytest.mark.parametrize("version", [2, 3])
def test_both_versions_of_the_standard_move_a_mass_exactly(version, carts):
    """The range of the input is the one that the FMU declares."""
    actions = np.random.default_rng(1).uniform(-1, 1, (30, 1))
    states = stepped(FmuWorld(carts[version], start_values=("mass=4",)), actions)
    speeds = np.concatenate([[0], np.cumsum(0.1 * 2 * actions[:, 0] / 4)])
    np.testing.assert_allclose(states[:, 1], speeds, atol=1e-12)
    np.testing.assert_allclose(states[1:, 0], np.cumsum(0.1 * (speeds[1:] + speeds[:-1]) / 2), atol=1e-12)


def test_start_values_are_drawn_for_each_episode_and_repeat_with_the_seed(folder):
    world = swing(folder, start_values=("angle0=-1:0.5",))
    copies = world.open(2)
    try:
        first = copies.reset([3, 4])
        after = copies.step(np.ones((2, 1))).next_states
        again = copies.restart(np.array([True, False]))
        assert np.array_equal(again[1], after[1]) and len({*first[:, 0], again[0, 0]}) == 3
        assert (np.abs(np.append(first[:, 0], again[0, 0]) + 0.25) <= 0.75).all() and (again[0, 1], first[0, 1]) == (0, 0)
        assert np.array_equal(copies.reset([3, 4]), first)
        np.testing.assert_array_equal(copies.step(np.ones((2, 1))).next_states, after)
    finally:
        copies.close()


@needs_compiler
@pytest.mark.parametrize("version", [2, 3])
def test_an_fmu_that_cannot_be_reset_is_made_again(version, carts):
    world = FmuWorld(carts[version], start_values=("fault=5",))
    copies = world.open(1)
    try:
        copies.reset([0])
        assert copies.step(np.ones((1, 1))).next_states[0, 0] > 0
        assert not copies.restart(np.array([True])).any()
    finally:
        copies.close()


def test_any_real_variable_may_be_measured(folder):
    world = swing(folder, outputs=("speed", "gravity"))
    assert stepped(world, np.zeros((1, 1)))[0].tolist() == [0.0, 9.81]
    plane = swing(folder).plane()
    assert plane is not None and plane.x_label == "angle" and swing(folder, outputs=("angle",)).plane() is None


def test_reachable_transitions_are_steps_of_the_plant(folder):
    assert swing(folder).reachable() is None
    points = swing(folder, reachable_steps=40).reachable()
    assert points is not None and points.states.shape == (40, 2)
    x, u = points.states[0], points.actions[0, 0]
    slope = lambda _, y: (y[1], -9.81 * np.sin(y[0]) - 0.3 * y[1] + 2 * u)
    np.testing.assert_allclose(
        points.next_states[0], solve_ivp(slope, (0, 0.05), x, rtol=1e-10, atol=1e-12).y[:, -1], atol=1e-7
    )


@needs_compiler
@pytest.mark.slow
def test_one_instance_per_process_is_kept_to(tmp_path):
    """The library gives out one instance only; each copy has a process of its own."""
    world = FmuWorld(str(cart(tmp_path, once=True)))
    copies = world.open(2)
    try:
        copies.reset([0, 1])
        states = copies.step(np.array([[1.0], [-1.0]])).next_states
        np.testing.assert_allclose(states, [[0.01, 0.2], [-0.01, -0.2]], atol=1e-12)
        assert not copies.restart(np.array([True, True])).any()
    finally:
        copies.close()


# ---- what ends an episode, and what fails ------------------------------------------------------------------------------------


@needs_compiler
@pytest.mark.parametrize("version", [2, 3])
def test_a_model_that_ends_after_a_whole_step_ends_its_episode(version, carts):
    world = FmuWorld(carts[version], start_values=("fault=1",))
    copies = world.open(1)
    try:
        copies.reset([0])
        ends = []
        for _ in range(7):
            after = copies.step(np.ones((1, 1)))
            ends.append(bool(after.terminated[0]))
            if ends[-1]:
                np.testing.assert_allclose(after.next_states, [[0.09, 0.6]], atol=1e-12)
                copies.restart(after.ended)
        assert ends == [False, False, True] * 2 + [False]
    finally:
        copies.close()


@needs_compiler
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (2, r"its step from 0.2 s with force=2 failed: the model stopped at 0.25 s, within the step"),
        (3, r"its step from 0.2 s with force=2 failed: fmi.DoStep failed with status 3 \(error\); keep it away"),
        (4, r"at 0.3 s its outputs are not finite: position=nan, speed=0.6"),
    ],
)
def test_what_fails_is_named_with_its_time(fault, message, version, carts):
    with pytest.raises(SondeError, match=f"cart{version}.fmu: {message}"):
        stepped(FmuWorld(carts[version], start_values=(f"fault={fault}",)), np.ones((4, 1)))


def test_a_discarded_step_is_no_measurement(folder):
    with pytest.raises(SondeError, match=r"its step from 0 s with torque=2 failed: .*fmi2DoStep|the model stopped at 0 s"):
        stepped(swing(folder, start_values=("locked=true",)), np.ones((1, 1)))


CHANGES = {
    "exchange": ("(?s)<CoSimulation (.*?)/>", r'<ModelExchange modelIdentifier="Pendulum"/>'),
    "old": ('fmiVersion="2.0"', 'fmiVersion="1.0"'),
    "no-step": ("<DefaultExperiment.*?/>", ""),
    "integer": ('(?s)(name="torque".*?)<Real start="0"/>', r'\1<Integer start="0"/>'),
    "half-bounded": ('<Real start="0"/>', '<Real start="0" min="-1"/>'),
    "bounded": ('<Real start="0"/>', '<Real start="0" min="-3" max="1"/>'),
    "damaged": ("<ModelVariables>", "<ModelVariables"),
    "no-input": ('causality="input"', 'causality="local"'),
}


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("exchange", {}, "is not for co-simulation.*export it for co-simulation"),
        ("old", {}, "is an FMU of FMI 1.0; expected FMI 2 or 3"),
        ("no-step", {}, "suggests no step size: give the seconds per action with --world.dt"),
        ("integer", {}, "torque is Integer; expected real numbers: name the inputs to use with --world.inputs"),
        (
            "half-bounded",
            {"ranges": ()},
            r"torque has no finite range \(min -1, max inf\): give one with --world.ranges torque=",
        ),
        ("damaged", {}, "is no FMU: its modelDescription.xml cannot be read"),
        ("no-input", {}, "has no variable of causality input: name some with --world.inputs; it has torque, angle"),
        ("", {"ranges": ("torqe=-1:1",)}, "has no input 'torqe'.*did you mean 'torque'"),
        ("", {"outputs": ("angel",)}, r"has no variable 'angel' \(--world.outputs\); did you mean 'angle'"),
        ("", {"start_values": ("speed=1",)}, "speed takes no start value; variables that do: torque, gravity, angle0, locked"),
        ("", {"start_values": ("mass=1",)}, "has no variable 'mass'"),
    ],
)
def test_unusable_fmus_and_settings_are_rejected(name, settings, message, folder):
    world = swing(folder, **settings)
    if name:
        fmu = described(folder / "Pendulum.fmu", folder / f"{name}.fmu", CHANGES[name])
        world = FmuWorld(str(fmu), **({"ranges": (TORQUE,)} | settings))
    with pytest.raises(SondeError, match=message):
        _ = world.spec, world.seconds_per_step


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"file": "plant.zip"}, "expected a FILE.fmu, got 'plant.zip'"),
        ({"dt": 0.0}, "dt must be a number of seconds above 0"),
        ({"ranges": ("torque",)}, "ranges: expected NAME=VALUE"),
        ({"ranges": ("torque=2:-2",)}, "LOW must be below HIGH"),
        ({"ranges": ("torque=-inf:2",)}, "expected NAME=LOW:HIGH with two numbers"),
        ({"reachable_steps": -1}, "reachable_steps must be 0"),
    ],
)
def test_settings_that_fit_no_fmu_are_rejected_at_once(settings, message):
    with pytest.raises(SondeError, match=message):
        FmuWorld(**settings)


def test_a_start_value_of_another_type_is_rejected(folder):
    with pytest.raises(SondeError, match="it cannot be started: gravity is of type Real, and 'heavy' is not"):
        stepped(swing(folder, start_values=("gravity=heavy",)), np.ones((1, 1)))


def test_files_that_are_no_fmus_are_rejected(folder, tmp_path):
    (tmp_path / "text.fmu").write_text("not an archive")
    with zipfile.ZipFile(folder / "Pendulum.fmu") as old, zipfile.ZipFile(tmp_path / "win.fmu", "w") as new:
        for name in [name for name in old.namelist() if "linux" not in name]:
            new.writestr(name, old.read(name))
    for name, message in (
        ("text", "cannot be unpacked"),
        ("win", "it has win64: export it for linux64"),
        ("none", "cannot be read"),
    ):
        with pytest.raises(SondeError, match=f"{name}.fmu.*{message}"):
            _ = FmuWorld(str(tmp_path / f"{name}.fmu"), ranges=(TORQUE,)).spec


@pytest.mark.slow
def test_error_without_fmpy_names_the_extra(folder, tmp_path):
    code = "import sys; sys.modules['fmpy'] = None\nfrom sonde.worlds import FmuWorld\nFmuWorld(sys.argv[1]).state_dim"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    words = [sys.executable, "-c", code, folder / "Pendulum.fmu"]
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    assert "SondeError" in done.stderr and "pip install '.[fmu]'" in done.stderr
    assert list(tmp_path.iterdir()) == [], "what was unpacked is removed"


# ---- runs --------------------------------------------------------------------------------------------------------------------


def test_a_config_keeps_the_checksum_and_a_changed_file_is_noticed(folder, tmp_path, monkeypatch):
    shutil.copy(folder / "Pendulum.fmu", tmp_path / "plant.fmu")
    monkeypatch.chdir(tmp_path)
    config = RunConfig(world=FmuWorld("plant.fmu", ranges=(TORQUE,)))
    saved = with_absolute_paths(config)
    world = saved.world
    assert isinstance(world, FmuWorld) and world.file == f"{tmp_path}/plant.fmu" and len(world.sha256) == 64
    assert code_of(saved) == [world.file] and world_label(world) == "plant"
    with pytest.raises(SondeError, match=r"names code that would run.*plant\.fmu, SHA-256.*--allow-code"):
        from_json(RunConfig, to_json(saved), "config.json")
    check_same_config(saved, config, tmp_path)
    described(folder / "Pendulum.fmu", tmp_path / "plant.fmu", ('start="9.81"', 'start="1.62"'))
    with pytest.raises(SondeError, match=r"plant\.fmu has changed: the run began with the SHA-256"):
        world.open(1)
    with pytest.raises(SondeError, match=r"was begun with another config: world\.sha256 is"):
        check_same_config(saved, config, tmp_path)


def test_completion_offers_fmus(folder, monkeypatch):
    (folder / "more").mkdir(exist_ok=True)
    monkeypatch.chdir(folder)
    assert set(answer(["explore", "f"]).words) >= {"fmu:"}
    assert {"fmu:Pendulum.fmu", "fmu:more/"} <= set(answer(["explore", "fmu:"]).words)
    assert "--world.start-values" in answer(["explore", "fmu:Pendulum.fmu", "--"]).words


def test_what_an_fmu_leaves_open_may_be_given_as_an_option(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    fmu = described(folder / "Pendulum.fmu", tmp_path / "open.fmu", CHANGES["no-step"])
    for options, message in (([], "no step size"), (["--world.dt", "0.1"], "no finite range")):
        assert call(monkeypatch, "explore", "fmu:open.fmu", *options) == 2
        assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [fmu]


def test_default_settings_are_those_of_any_system(folder):
    config = default_config(swing(folder))
    assert type(config.model).__name__ == "GaussianProcess" and config.task_names == ()


def test_a_forgotten_prefix_is_mentioned(folder, monkeypatch, capsys):
    assert call(monkeypatch, "explore", f"{folder}/Pendulum.fmu") == 2
    assert "for a plant of another tool: fmu:" in capsys.readouterr().err


SMALL = ["--world.ranges", TORQUE, "--world.start-values", "angle0=-1:1", "--rounds", "2", "--horizon", "15"]
SMALL += ["--evaluation-horizon", "5", "--model.rank", "16", "--model.steps", "3", "--holdout", "0", "--no-recalibrate"]
SMALL += ["--solver.samples", "8", "--solver.elites", "2", "--solver.iterations", "1", "--solver.horizon", "3"]
REWARD = "def calm(x, u, x_next):\n    return -(x_next[0] ** 2) - 0.1 * x_next[1] ** 2\n"


def contents(run: Path) -> dict[str, bytes]:
    return {path.name + path.parent.name: path.read_bytes() for path in sorted(run.glob("[dc]*/*.safetensors"))}


@pytest.mark.slow
@pytest.mark.parametrize("reset", [True, False])
def test_exploring_killed_resumed_evaluated_and_exported(reset, folder, tmp_path, monkeypatch):
    """A run that is killed in its second round gives the same bytes as one that is not, with resets and without."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tasks.py").write_text(REWARD)
    shutil.copy(folder / "Pendulum.fmu", "plant.fmu")
    options = [*SMALL, *([] if reset else ["--no-reset"]), "--evaluation-tasks", "tasks.py:calm"]
    assert call(monkeypatch, "explore", "fmu:plant.fmu", *options, "--out", "whole") == 0
    words = [sys.executable, "-m", "sonde", "explore", "fmu:plant.fmu", *options, "--out", "killed"]
    program = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ)
    while not (tmp_path / "killed" / "checkpoints" / "0001.json").exists():
        assert program.poll() is None, program.communicate()[0]
        time.sleep(0.01)
    program.send_signal(signal.SIGKILL)
    program.communicate()
    assert program.returncode == -signal.SIGKILL and not (tmp_path / "killed" / "checkpoints" / "0002.json").exists()
    assert call(monkeypatch, "resume", "killed") == 0
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole") != {}
    rows = RunStore.open(tmp_path / "killed").load_metrics()
    assert [row["round"] for row in rows] == [1, 2] and all(np.isfinite(row["return/calm"]) for row in rows)
    assert call(monkeypatch, "evaluate", "killed", "--task", "tasks.py:calm") == 0
    assert call(monkeypatch, "export", "killed", "--out", "measured.npz") == 0
    with np.load("measured.npz") as measured:
        assert any(array.shape[-1:] == (2,) and 30 in array.shape for array in measured.values())
    with zipfile.ZipFile("plant.fmu", "a") as archive:
        archive.writestr("resources/more.txt", "changed")
    assert call(monkeypatch, "resume", "killed", "--allow-code") == 2
