"""Gymnasium environments as worlds: equal to the environment stepped by hand, and clear about what cannot be used."""

import json
import re
import subprocess
import sys
from pathlib import Path

import gymnasium
import jax
import numpy as np
import pytest

from command_line import call
from sonde._internal.errors import SondeError
from sonde._internal.user_code import load_from_file
from sonde.cli import _explore
from sonde.evaluation._tasks import reward_named
from sonde.models import GaussianProcess
from sonde.runs import PRESETS, RunConfig
from sonde.runs._codec import from_json, to_json
from sonde.runs._store import RunStore
from sonde.worlds import WORLDS, GymWorld

DOC = (Path(__file__).parent.parent / "docs" / "gymnasium.md").read_text()
FILES = {}
for code in re.findall(r"```python\n(.*?)```", DOC, flags=re.DOTALL):
    name = re.match(r"# (\w+\.py)\n", code)
    FILES[name[1] if name else "example"] = code

TOYS = """
import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Text, Tuple

numbers, motors = Box(-np.inf, np.inf, (2,), np.float64), Box(-1, 1, (1,))


class Toy(gymnasium.Env):
    def __init__(self, observations=numbers, actions=motors):
        self.observation_space, self.action_space = observations, actions

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


class OldStep(Toy):
    def step(self, action):
        return np.zeros(2), 0.0, False, {}


class WrongShape(Toy):
    def reset(self, *, seed=None, options=None):
        return np.zeros(3), {}


class Broken(Toy):
    def step(self, action):
        raise RuntimeError("the arm is stuck")


class Unmakeable(Toy):
    def __init__(self):
        raise RuntimeError("no licence")


arm = Dict({"angle": Box(-1, 1, ()), "frame": Box(0, 1, (2, 2), np.float64)})
nested = Dict({"arm": arm, "legs": Tuple((motors, numbers))})
discrete = lambda: Toy(actions=Discrete(3))
several = lambda: Toy(actions=MultiDiscrete([2, 2]))
whole = lambda: Toy(actions=Box(0, 5, (1,), int))
unbounded = lambda: Toy(actions=Box(-np.inf, 1, (1,)))
text = lambda: Toy(Text(5))
partly = lambda: Toy(Dict({"place": numbers, "gear": Discrete(4)}))
image = lambda: Toy(Box(0, 255, (96, 96, 3), np.uint8))
nest = lambda: Toy(nested)
nothing = lambda: None

import jax.numpy as jnp
numpy_reward = lambda x, u, x_next: -float(np.sum(x_next**2))
wide_reward = lambda x, u, x_next: -(x_next**2)
good_reward = lambda x, u, x_next: -jnp.sum(x_next**2)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A user's folder: the files of the documentation, and environments that each have one fault."""
    folder = tmp_path_factory.mktemp("own")
    for name, code in {**FILES, "toys.py": TOYS}.items():
        (folder / name).write_text(code)
    return folder


# The world equals the environment


def by_hand(make, to_own, actions, seed):
    """The plain environment, stepped one action at a time and reset where an episode ends."""
    env, rows = make(), []
    flat = lambda observation: gymnasium.spaces.utils.flatten(env.observation_space, observation)
    x = flat(env.reset(seed=seed)[0])
    for action in actions:
        observation, _, terminated, truncated, _ = env.step(to_own(action).astype(env.action_space.dtype))
        rows.append((x, flat(observation), terminated, terminated or truncated, truncated))
        x = flat(env.reset()[0]) if terminated or truncated else flat(observation)
    return [np.array(column) for column in zip(*rows, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env", "to_own", "steps", "processes"),
    [
        ("Pendulum-v1", lambda a: 2 * a, 210, False),  # never terminates, but is truncated after 200 steps
        ("InvertedPendulum-v5", lambda a: 3 * a, 60, False),
        ("Hopper-v5", lambda a: a, 80, False),
        ("Hopper-v5", lambda a: a, 80, True),
        ("cart.py:Cart", lambda a: 4 * a + 1, 80, False),
    ],
)
def test_copies_equal_the_plain_environment(env, to_own, steps, processes, folder, monkeypatch):
    monkeypatch.chdir(folder)
    world, seeds = GymWorld(env, processes=processes), [7, 2**32 - 1]
    actions = np.random.default_rng(0).uniform(-1, 1, (2, steps, world.action_dim))
    copies, rows = world.open(2), []
    try:
        x = copies.reset(seeds)
        for t in range(steps):
            after = copies.step(actions[:, t])
            rows.append((x, after.next_states, after.terminated, after.ended, after.truncated))
            x = copies.restart(after.ended) if after.ended.any() else after.next_states
        assert np.array_equal(copies.reset(seeds), rows[0][0])  # all randomness derives from the seeds
    finally:
        copies.close()
    ours = [np.stack(column, axis=1) for column in zip(*rows, strict=True)]
    make = (lambda: load_from_file(env)()) if ".py" in env else (lambda: gymnasium.make(env))
    for i, seed in enumerate(seeds):
        for got, wanted in zip(ours, by_hand(make, to_own, actions[i], seed), strict=True):
            np.testing.assert_array_equal(got[i], wanted)
    assert ours[3].any(axis=1).all() and ours[2].any() == (env != "Pendulum-v1")
    assert not np.array_equal(ours[3][0], ours[3][1]) or env == "Pendulum-v1"  # some restarts were of a single copy


def test_nested_observations_are_flattened_in_gymnasiums_order(folder):
    world = GymWorld(f"{folder}/toys.py:nest")
    angle, frame = ["arm.angle"], [f"arm.frame[{i},{j}]" for i in range(2) for j in range(2)]
    assert list(world.state_names) == [*angle, *frame, "legs.0[0]", "legs.1[0]", "legs.1[1]"]
    copies, toy = world.open(1), load_from_file(f"{folder}/toys.py:nest")()
    wanted = gymnasium.spaces.utils.flatten(toy.observation_space, toy.reset(seed=3)[0])
    np.testing.assert_array_equal(copies.reset([3]), wanted[None])
    assert world.action_names == ("u0",)


def test_reachable_transitions_follow_the_environments_equations(folder):
    """The cart in closed form."""
    world = GymWorld(f"{folder}/cart.py:Cart", reachable_steps=130)
    points = world.reachable()
    assert points is not None and len(points.states) == 120  # 20 kinds of noise, 6 steps of each
    velocity = points.states[:, 1] + 0.05 * (1 + 4 * points.actions[:, 0])
    np.testing.assert_allclose(points.next_states[:, 1], velocity, atol=1e-12)
    np.testing.assert_allclose(points.next_states[:, 0], points.states[:, 0] + 0.05 * velocity, atol=1e-12)
    assert GymWorld(f"{folder}/cart.py:Cart", reachable_steps=0).reachable() is None


def test_first_copy_is_rendered(folder):
    cart = GymWorld(f"{folder}/cart.py:Cart")
    copies = cart.open(2)
    position = copies.reset([0, 1])[0, 0]
    image = copies.render()
    assert image.shape == (64, 256, 3) and image.dtype == np.uint8
    assert np.argwhere(image[32, :, 0] == 0).mean() == int(128 + 100 * position) - 0.5
    with pytest.raises(SondeError, match="must offer render_mode 'rgb_array'"):
        GymWorld(f"{folder}/toys.py:Toy").open(1).render()


def test_time_step_and_plane_come_from_the_environment(folder):
    times = {"Pendulum-v1": 0.05, "Hopper-v5": 0.008, f"{folder}/cart.py:Cart": 1 / 20, f"{folder}/toys.py:Toy": None}
    assert {env: GymWorld(env).seconds_per_step for env in times} == times
    plane = GymWorld("Hopper-v5").plane()
    assert plane is not None and plane.from_state(np.arange(22.0).reshape(2, 11))[1].tolist() == [1.0, 12.0]


# Environments and options that are rejected


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ("CartPole-v1", "its actions are Discrete"),
        ("{}/toys.py:discrete", "Sonde plans continuous actions"),
        ("{}/toys.py:several", "its actions are MultiDiscrete"),
        ("{}/toys.py:whole", "a Box of real numbers"),
        ("{}/toys.py:unbounded", "RescaleAction or ClipAction"),
        ("{}/toys.py:text", "its observations are Text"),
        ("{}/toys.py:partly", "part 'gear' of its observations is Discrete"),
        ("{}/toys.py:image", "got 27648"),
        ("{}/toys.py:nothing", "must create a gymnasium.Env, got NoneType"),
        ("{}/toys.py:Unmakeable", "RuntimeError: no licence"),
        ("{}/toys.py:Missing", "has no 'Missing'; it has: Box"),
        ("{}/nowhere.py:Toy", "there is no file"),
        ("Hoper-v5", "did you mean 'Hopper-v5'?"),
        ("not an id", "FILE.py:NAME"),
        ("no_such_module:Env-v0", "No module named 'no_such_module'"),
    ],
)
def test_unusable_environments_are_rejected_and_write_no_files(env, message, folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch, "explore", f"gym:{env.format(folder)}") == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--evaluation-tasks", "{}/toys.py:numpy_reward"], "write it with jax.numpy"),
        (["--evaluation-tasks", "{}/toys.py:wide_reward"], "must return one real number per transition"),
        (["--evaluation-tasks", "{}/toys.py:good_reward", "{}/toys.py:good_reward"], "tasks need different names"),
        (["--evaluation-tasks", "{}/nowhere.py:reward"], "there is no file"),
        (["--evaluation-tasks", "{}/toys.py:missing"], "has no 'missing'"),
        (["--evaluation-tasks", "upright"], "this world has no tasks of its own"),
        (["--method", "h-ucrl"], "name it with --exploration-task"),
        (["--model", "tree"], "unknown model 'tree'; expected one of: auto, gp, pe"),
        (["--solver"], "unknown solver ''"),
        (["--world.options", "[1]"], "options must be a JSON object"),
        (["--world.options", "nonsense"], "options must be a JSON object"),
        (["--world.options", '{"speed": 3}'], "speed"),
        (["--world.reachable-steps", "-1"], "reachable_steps must be 0 (none) or above"),
        (["--world.env", "CartPole-v1"], "its actions are Discrete"),
    ],
)
def test_unusable_options_are_rejected_and_write_no_files(options, message, folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    options = [option.replace("{}", str(folder)) for option in options]
    assert call(monkeypatch, "explore", "gym:Pendulum-v1", *options) == 2
    assert message in re.sub(r"\s*│\n│\s*", " ", "".join(capsys.readouterr()))
    assert list(tmp_path.iterdir()) == []


def test_reward_written_with_numpy_is_rejected_with_a_hint(folder):
    with pytest.raises(SondeError, match=r"numpy_reward is not a reward.*write it with jax.numpy for one transition"):
        reward_named(GymWorld("Pendulum-v1"), f"{folder}/toys.py:numpy_reward")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("OldStep", "its step failed: ValueError: not enough values to unpack"),
        ("WrongShape", r"expected an observation of shape \[2\], as its space says, got \[3\]"),
        ("Broken", r"its step failed: RuntimeError: the arm is stuck \(.*toys.py, line 3\d\)"),
    ],
)
def test_errors_of_environments_are_named(name, message, folder):
    copies = GymWorld(f"{folder}/toys.py:{name}").open(1)
    with pytest.raises(SondeError, match=f"{name}: {message}"):
        copies.reset([0])
        copies.step(np.zeros((1, 1)))


@pytest.mark.slow
def test_error_without_mujoco_names_the_extra():
    code = "import sys; sys.modules['mujoco'] = None\nfrom sonde.worlds import GymWorld\nGymWorld('Hopper-v5').state_dim"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "SondeError" in done.stderr and "pip install '.[mujoco]'" in done.stderr


# The command line

SMALL = ["--rounds", "2", "--horizon", "40", "--evaluation-horizon", "5", "--holdout", "0", "--no-recalibrate"]
SMALL_ENSEMBLE = ["--model.members", "2", "--model.layers", "1", "--model.width", "8", "--model.epochs", "2"]
SMALL_GP = ["--model.rank", "16", "--model.steps", "3"]  # the cart has few dimensions
SMALL += ["--solver.samples", "8", "--solver.elites", "2", "--solver.iterations", "1", "--solver.horizon", "3"]
COMMANDS = [line.split() for block in re.findall(r"```sh\n(.*?)```", DOC, flags=re.DOTALL) for line in block.splitlines()]


@pytest.fixture(scope="module")
def documented(folder):
    """Run every command of the documentation in order, with small explorations; only the cart has a reachable set."""
    optimised = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)  # compiling takes longer than running here
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for command in COMMANDS:
            assert command[0] == "sonde"
            skip, model = ([], SMALL_GP) if "cart" in command[2] else (["--world.reachable-steps", "0"], SMALL_ENSEMBLE)
            whole = [*SMALL, *model, *(skip or ["--world.reachable-steps", "100", "--seeds", "2"])]
            small = whole if command[1] == "explore" else []
            assert call(patch, *command[1:], *small) == 0, command
    yield folder
    jax.config.update("jax_disable_most_optimizations", optimised)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dim"), [("gym-InvertedPendulum-v5", 4), ("gym-cart-Cart", 2), ("gym-Hopper-v5", 11)])
def test_documented_commands_make_complete_runs(name, dim, documented):
    store = RunStore.open(documented / "runs" / f"{name}-opax")
    rows = [row for row in store.load_metrics() if row["seed"] == 0]
    assert [row["transitions"] for row in rows] == [40, 80]
    for trajectory in store.load_data(2):
        assert trajectory.states.shape == (store.config.seeds, 40, dim)
        # the next row continues from the next state exactly where no episode ended
        follows = (trajectory.next_states[:, :-1] == trajectory.states[:, 1:]).all(axis=-1)
        assert trajectory.ended is not None
        np.testing.assert_array_equal(follows, ~trajectory.ended[:, :-1])
    ends = sum(np.sum(trajectory.terminated) for trajectory in store.load_data(2))
    assert ends > 0
    assert (store.folder / "figures" / "states.png").stat().st_size > 10_000


def test_cart_has_a_model_error_and_its_task_is_evaluated(documented, monkeypatch, capsys):
    store = RunStore.open(documented / "runs" / "gym-cart-Cart-opax")
    assert store.config.evaluation_tasks == (f"{documented}/rewards.py:stay_home",)
    assert isinstance(store.config.world, GymWorld) and store.config.world.env == f"{documented}/cart.py:Cart"
    for row in store.load_metrics():
        assert np.isfinite([row["model_rmse"], row["return/stay_home"]]).all()
    assert (documented / "cart.gif").stat().st_size > 1000


@pytest.mark.slow
def test_resuming_from_another_folder_repeats_the_run(documented, tmp_path, monkeypatch):
    """Repeating a round gives the same measurements, early ends included; paths in the config are absolute."""
    store = RunStore.open(documented / "runs" / "gym-cart-Cart-opax")
    before, numbers = store.load_data(2)[1], store.load_metrics()
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch, "resume", str(store.folder), "--from-round", "1") == 0
    after = store.load_data(2)[1]
    for name in ("states", "actions", "next_states", "terminated", "truncated"):
        np.testing.assert_array_equal(getattr(after, name), getattr(before, name))
    assert [row["return/stay_home"] for row in store.load_metrics()] == [row["return/stay_home"] for row in numbers]


@pytest.mark.slow
def test_config_keeps_tasks_options_and_parts(folder, tmp_path, monkeypatch):
    """What the command line names relative to a folder is in the run's config.json, with absolute paths."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(_explore, "run_and_draw", lambda store, *_, **__: store.publish())
    options = [
        "--method",
        "h-ucrl",
        "--exploration-task",
        "rewards.py:go_right",
        "--world.options",
        '{"wall": 2.0}',
        "--world.processes",
    ]
    options += ["--model=gp", "--model.rank", "16", "--solver", "icem", "--out", str(tmp_path / "run")]
    assert call(monkeypatch, "explore", "gym:cart.py:Cart", *options) == 0
    config = RunStore.open(tmp_path / "run").config
    assert config.exploration_task == f"{folder}/rewards.py:go_right"
    assert config.world == GymWorld(f"{folder}/cart.py:Cart", options='{"wall": 2.0}', processes=True)
    assert config.model == GaussianProcess(rank=16)
    assert config.solver == PRESETS["pendulum-pe-lite"].solver  # the same kind of solver keeps its settings
    assert from_json(RunConfig, to_json(config), "here") == config
    assert json.loads(to_json(config))["world"]["class"] == "sonde.worlds:GymWorld"


def test_worlds_can_be_explored_by_name(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_explore, "run_and_draw", lambda store, *_, **__: store.publish())
    assert call(monkeypatch, "explore", "mountain-car", "--model", "gp") == 0
    config = RunStore.open(tmp_path / "runs" / "mountain-car-opax").config
    assert (config.world, config.model) == (WORLDS["mountain-car"](), GaussianProcess())
    assert call(monkeypatch, "explore", "own") == 2
    assert "only you can run" in capsys.readouterr().err
    assert call(monkeypatch, "explore", "gym:Hopper-v5", "--help") == 0
    printed = capsys.readouterr().out
    assert "--model NAME" in printed and "--world.processes" in printed
    assert call(monkeypatch, "list") == 0
    printed = " ".join(capsys.readouterr().out.split())  # lines are as long as the terminal is wide
    assert "gym:ENV" in printed and "gym:FILE.py:NAME" in printed
    assert re.search(r"tasks of your own, as FILE\.py:NAME: reward\(x, u, x_next\)", printed)


def test_python_example_of_the_documentation(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    names = {}
    exec(FILES["example"], names)
    assert capsys.readouterr().out == "('position[0]', 'velocity[0]')\n"
    assert names["config"].task_names == ("rewards.py:stay_home",)
