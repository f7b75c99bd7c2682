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

from sonde import PRESETS, GaussianProcess, cli
from sonde._internal.errors import SondeError
from sonde._internal.user_code import load_from_file
from sonde.evaluation._tasks import reward_named
from sonde.runs._config import from_json, to_json
from sonde.runs._store import RunStore
from sonde.worlds import WORLDS, GymWorld
from test_cli import call

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
    """A person's folder: the files of the documentation, and toys that each have one thing wrong."""
    folder = tmp_path_factory.mktemp("own")
    for name, code in {**FILES, "toys.py": TOYS}.items():
        (folder / name).write_text(code)
    return folder


# The world is the environment


def by_hand(make, to_own, actions, seed):
    """The plain environment, stepped one action at a time, restarted where it ends."""
    env, rows = make(), []
    flat = lambda observation: gymnasium.spaces.utils.flatten(env.observation_space, observation)
    x = flat(env.reset(seed=seed)[0])
    for action in actions:
        observation, _, terminated, truncated, _ = env.step(to_own(action).astype(env.action_space.dtype))
        rows.append((x, flat(observation), terminated, terminated or truncated))
        x = flat(env.reset()[0]) if terminated or truncated else flat(observation)
    return [np.array(column) for column in zip(*rows, strict=True)]


@pytest.mark.parametrize(
    ("env", "to_own", "steps", "processes"),
    [
        ("Pendulum-v1", lambda a: 2 * a, 210, False),  # never falls, but its time is up after 200
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
            rows.append((x, after.next_states, after.terminated, after.over))
            x = copies.restart(after.over) if after.over.any() else after.next_states
        assert np.array_equal(copies.reset(seeds), rows[0][0])  # all draws comes from the seeds
    finally:
        copies.close()
    ours = [np.stack(column, axis=1) for column in zip(*rows, strict=True)]
    make = (lambda: load_from_file(env)()) if ".py" in env else (lambda: gymnasium.make(env))
    for i, seed in enumerate(seeds):
        for got, wanted in zip(ours, by_hand(make, to_own, actions[i], seed), strict=True):
            np.testing.assert_array_equal(got[i], wanted)
    assert ours[3].any(axis=1).all() and ours[2].any() == (env != "Pendulum-v1")
    assert not np.array_equal(ours[3][0], ours[3][1]) or env == "Pendulum-v1"  # some restarts were of one copy alone


def test_nested_observations_are_flattened_in_gymnasiums_order(folder):
    world = GymWorld(f"{folder}/toys.py:nest")
    angle, frame = ["arm.angle"], [f"arm.frame[{i},{j}]" for i in range(2) for j in range(2)]
    assert list(world.state_names) == [*angle, *frame, "legs.0[0]", "legs.1[0]", "legs.1[1]"]
    copies, toy = world.open(1), load_from_file(f"{folder}/toys.py:nest")()
    wanted = gymnasium.spaces.utils.flatten(toy.observation_space, toy.reset(seed=3)[0])
    np.testing.assert_array_equal(copies.reset([3]), wanted[None])
    assert world.action_names == ("u0",)


def test_what_models_are_judged_by_is_the_system(folder):
    """The cart in closed form: nothing but its own transitions, and all of them within the walls."""
    world = GymWorld(f"{folder}/cart.py:Cart", judge_steps=130)
    points = world.reachable()
    assert points is not None and len(points.states) == 120  # 20 kinds of noise, 6 steps of each
    velocity = points.states[:, 1] + 0.05 * (1 + 4 * points.actions[:, 0])
    np.testing.assert_allclose(points.next_states[:, 1], velocity, atol=1e-12)
    np.testing.assert_allclose(points.next_states[:, 0], points.states[:, 0] + 0.05 * velocity, atol=1e-12)
    assert GymWorld(f"{folder}/cart.py:Cart", judge_steps=0).reachable() is None


def test_pictures(folder):
    cart = GymWorld(f"{folder}/cart.py:Cart")
    copies = cart.open(2)
    position = copies.reset([0, 1])[0, 0]
    image = copies.picture()
    assert image.shape == (64, 256, 3) and image.dtype == np.uint8
    assert np.argwhere(image[32, :, 0] == 0).mean() == int(128 + 100 * position) - 0.5
    with pytest.raises(SondeError, match="must offer render_mode 'rgb_array'"):
        GymWorld(f"{folder}/toys.py:Toy").open(1).picture()


def test_time_steps_and_plane(folder):
    times = {"Pendulum-v1": 0.05, "Hopper-v5": 0.008, f"{folder}/cart.py:Cart": 1 / 20, f"{folder}/toys.py:Toy": None}
    assert {env: GymWorld(env).seconds_per_step for env in times} == times
    plane = GymWorld("Hopper-v5").plane()
    assert plane is not None and plane.from_state(np.arange(22.0).reshape(2, 11))[1].tolist() == [1.0, 12.0]


# What cannot be used


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ("CartPole-v1", "its actions are Discrete"),
        ("{}/toys.py:discrete", "Sonde plans continuous actions"),
        ("{}/toys.py:several", "its actions are MultiDiscrete"),
        ("{}/toys.py:whole", "a Box of real numbers"),
        ("{}/toys.py:unbounded", "RescaleAction or ClipAction"),
        ("{}/toys.py:text", "its observations are Text"),
        ("{}/toys.py:partly", "the part 'gear' of its observations is Discrete"),
        ("{}/toys.py:image", "hold 27648 numbers"),
        ("{}/toys.py:nothing", "must make a gymnasium.Env, got NoneType"),
        ("{}/toys.py:Unmakeable", "RuntimeError: no licence"),
        ("{}/toys.py:Missing", "has no 'Missing'; it has: "),
        ("{}/nowhere.py:Toy", "there is no file"),
        ("Hoper-v5", "Did you mean: `Hopper`"),
        ("not an id", "FILE.py:NAME"),
        ("no_such_module:Env-v0", "No module named 'no_such_module'"),
    ],
)
def test_unusable_environments_are_refused_and_leave_nothing(env, message, folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch, "explore", f"gym:{env.format(folder)}") == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tasks", "{}/toys.py:numpy_reward"], "write it with jax.numpy"),
        (["--tasks", "{}/toys.py:wide_reward"], "must return one real number per transition"),
        (["--tasks", "{}/toys.py:good_reward", "{}/toys.py:good_reward"], "tasks need different names"),
        (["--tasks", "{}/nowhere.py:reward"], "there is no file"),
        (["--tasks", "{}/toys.py:missing"], "has no 'missing'"),
        (["--tasks", "upright"], "this world has no task of its own"),
        (["--method", "h-ucrl"], "name it with --task"),
        (["--model", "tree"], "unknown model 'tree'; expected one of: gp, pe"),
        (["--solver"], "unknown solver ''"),
        (["--world.options", "[1]"], "options must be a JSON object"),
        (["--world.options", "nonsense"], "options must be a JSON object"),
        (["--world.options", '{"speed": 3}'], "speed"),
        (["--world.judge-steps", "-1"], "judge_steps must be 0 (none) or above"),
        (["--world.env", "CartPole-v1"], "its actions are Discrete"),
    ],
)
def test_unusable_options_are_refused_and_leave_nothing(options, message, folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    options = [option.replace("{}", str(folder)) for option in options]
    assert call(monkeypatch, "explore", "gym:Pendulum-v1", *options) == 2
    assert message in re.sub(r"\s*│\n│\s*", " ", "".join(capsys.readouterr()))
    assert list(tmp_path.iterdir()) == []


def test_a_reward_that_numpy_wrote_is_refused_in_words(folder):
    with pytest.raises(SondeError, match=r"numpy_reward is not a reward.*write it with jax.numpy for one transition"):
        reward_named(GymWorld("Pendulum-v1"), f"{folder}/toys.py:numpy_reward")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("OldStep", "its step failed: ValueError: not enough values to unpack"),
        ("WrongShape", r"an observation of shape \[3\] came, its space promises \[2\]"),
        ("Broken", r"its step failed: RuntimeError: the arm is stuck \(.*toys.py, line 3\d\)"),
    ],
)
def test_environments_that_fail_are_named(name, message, folder):
    copies = GymWorld(f"{folder}/toys.py:{name}").open(1)
    with pytest.raises(SondeError, match=f"{name}: {message}"):
        copies.reset([0])
        copies.step(np.zeros((1, 1)))


def test_without_mujoco_the_extra_is_named():
    code = "import sys; sys.modules['mujoco'] = None\nfrom sonde.worlds import GymWorld\nGymWorld('Hopper-v5').state_dim"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "SondeError" in done.stderr and "pip install '.[mujoco]'" in done.stderr


# The command line

SMALL = ["--episodes", "2", "--horizon", "40", "--evaluation-horizon", "5", "--holdout", "0", "--no-calibrated"]
SMALL += ["--model.members", "2", "--model.layers", "1", "--model.width", "8", "--model.epochs", "2"]
SMALL += ["--solver.samples", "8", "--solver.elites", "2", "--solver.iterations", "1", "--solver.horizon", "3"]
COMMANDS = [line.split() for block in re.findall(r"```sh\n(.*?)```", DOC, flags=re.DOTALL) for line in block.splitlines()]


@pytest.fixture(scope="module")
def documented(folder):
    """Every command of the documentation, in its order; explorations are made small, and only the cart is judged."""
    optimised = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)  # nothing here runs for long, and all of it compiles
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for command in COMMANDS:
            assert command[0] == "sonde"
            unjudged = [] if "cart" in command[2] else ["--world.judge-steps", "0"]
            small = [*SMALL, *(unjudged or ["--world.judge-steps", "100", "--seeds", "2"])] if command[1] == "explore" else []
            assert call(patch, *command[1:], *small) == 0, command
    yield folder
    jax.config.update("jax_disable_most_optimizations", optimised)


@pytest.mark.parametrize(("name", "dim"), [("gym-InvertedPendulum-v5", 4), ("gym-cart-Cart", 2), ("gym-Hopper-v5", 11)])
def test_the_documented_commands_make_whole_runs(name, dim, documented):
    store = RunStore.open(documented / "runs" / f"{name}-opax")
    rows = [row for row in store.load_metrics() if row["seed"] == 0]
    assert [row["transitions"] for row in rows] == [40, 80]
    for trajectory in store.load_data(2):
        assert trajectory.states.shape == (store.config.seeds, 40, dim)
        # where no episode ended, what followed is where the next step begins; elsewhere it is not
        follows = (trajectory.next_states[:, :-1] == trajectory.states[:, 1:]).all(axis=-1)
        assert trajectory.over is not None
        np.testing.assert_array_equal(follows, ~trajectory.over[:, :-1])
    ends = sum(np.sum(trajectory.terminated) for trajectory in store.load_data(2))
    assert ends > 0
    assert (store.folder / "figures" / "states.png").stat().st_size > 10_000


def test_the_cart_is_judged_and_its_task_evaluated(documented, monkeypatch, capsys):
    store = RunStore.open(documented / "runs" / "gym-cart-Cart-opax")
    assert store.config.tasks == (f"{documented}/rewards.py:stay_home",)
    assert isinstance(store.config.world, GymWorld) and store.config.world.env == f"{documented}/cart.py:Cart"
    for row in store.load_metrics():
        assert np.isfinite([row["model_rmse"], row["return/stay_home"]]).all()
    assert (documented / "cart.gif").stat().st_size > 1000


def test_resuming_from_elsewhere_repeats_the_run(documented, tmp_path, monkeypatch):
    """Going back by one episode brings the same measurements again, early ends included; paths hold from any folder."""
    store = RunStore.open(documented / "runs" / "gym-cart-Cart-opax")
    before, numbers = store.load_data(2)[1], store.load_metrics()
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch, "resume", str(store.folder), "--from-episode", "1") == 0
    after = store.load_data(2)[1]
    for name in ("states", "actions", "next_states", "terminated", "over"):
        np.testing.assert_array_equal(getattr(after, name), getattr(before, name))
    assert [row["return/stay_home"] for row in store.load_metrics()] == [row["return/stay_home"] for row in numbers]


def test_tasks_options_and_kinds_are_kept_in_the_config(folder, tmp_path, monkeypatch):
    """What is asked for by words, relative to a folder, is what the run's config.json says, for good."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(cli, "_run", lambda *_: None)
    options = ["--method", "h-ucrl", "--task", "rewards.py:go_right", "--world.options", '{"wall": 2.0}', "--world.processes"]
    options += ["--model=gp", "--model.rank", "16", "--solver", "icem", "--out", str(tmp_path / "run")]
    assert call(monkeypatch, "explore", "gym:cart.py:Cart", *options) == 0
    config = RunStore.open(tmp_path / "run").config
    assert config.task == f"{folder}/rewards.py:go_right"
    assert config.world == GymWorld(f"{folder}/cart.py:Cart", options='{"wall": 2.0}', processes=True)
    assert config.model == GaussianProcess(rank=16)
    assert config.solver == PRESETS["pendulum-pe-lite"].solver  # the same kind keeps its settings
    assert from_json(to_json(config), "here") == config
    assert json.loads(to_json(config))["world"]["kind"] == "gym"


def test_worlds_can_be_explored_by_name(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "_run", lambda *_: None)
    assert call(monkeypatch, "explore", "mountain-car", "--model", "gp") == 0
    config = RunStore.open(tmp_path / "runs" / "mountain-car-opax").config
    assert (config.world, config.model) == (WORLDS["mountain-car"](), GaussianProcess())
    assert call(monkeypatch, "explore", "own") == 2
    assert "only you can run" in capsys.readouterr().err
    assert call(monkeypatch, "explore", "gym:Hopper-v5", "--help") == 0
    printed = capsys.readouterr().out
    assert "--model NAME" in printed and "--world.processes" in printed
    assert call(monkeypatch, "list") == 0
    printed = capsys.readouterr().out
    assert "gym:ENV" in printed and "gym:FILE.py:NAME" in printed and "FILE.py:FUNCTION" in printed


def test_the_python_example(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    names = {}
    exec(FILES["example"], names)
    assert capsys.readouterr().out == "('position[0]', 'velocity[0]')\n"
    assert names["config"].task_names == ("rewards.py:stay_home",)
