"""A run as an object: what it holds without its code, predictions, simulations, tasks and earlier rounds; chosen starts."""

import json
import shutil
from dataclasses import dataclass, replace

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sonde
from command_line import call
from sonde import SAC, SondeError, TaskSetup
from sonde.evaluation import _evaluate
from sonde.evaluation._robust import returns_on_mean
from sonde.imagination import Optimistic
from sonde.methods import Method
from sonde.objectives import InformationGain
from sonde.runs._folder import RunFolder
from sonde.runs._run import restore_explorer
from sonde.runs._saved import MEASURED, measurements_to_bytes, saved_spec
from sonde.solvers import ICEM, RandomPolicy
from sonde.worlds import Delayed, GymWorld, Observed, OwnSystem, Pendulum, Simulators, Stepped
from sonde.worlds._base import HostWorld
from tiny import TINY

TWO_SEEDS = replace(TINY, seeds=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("loaded") / "run"
    sonde.explore(TWO_SEEDS, path)
    return path


@pytest.fixture(scope="module")
def run(folder):
    return sonde.load(folder)


# ---- without code ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def foreign(folder, tmp_path, monkeypatch):
    """A copy of the run whose method, model, world and a task are in a file that is gone."""
    monkeypatch.chdir(tmp_path)
    copied = shutil.copytree(folder, tmp_path / "copied")
    entries = json.loads((copied / "config.json").read_text())
    gone = tmp_path / "gone.py"
    for part in ("method", "model", "world"):
        entries[part]["class"] = f"{gone}:Mine"
    entries["evaluation_tasks"] = [f"{gone}:reward"]
    (copied / "config.json").write_text(json.dumps(entries))
    from hashlib import sha256

    for note in (copied / "checkpoints").glob("*.json"):  # as if it had begun with this config
        facts = json.loads(note.read_text())
        facts["config"] = sha256((copied / "config.json").read_bytes()).hexdigest()
        note.write_text(json.dumps(facts))
    return copied


def test_measurements_and_metrics_need_no_code(foreign, run):
    found = sonde.load(foreign)
    assert found.rounds == run.rounds and found.seeds == (0, 1) and found.metrics == run.metrics
    assert found.data.spec.state_names == Pendulum().state_names
    for one, other in zip(found.data.rounds, run.data.rounds, strict=True):
        np.testing.assert_array_equal(one.states, other.states)
    with pytest.raises(SondeError, match=r"gone\.py"):
        _ = found.config
    with pytest.raises(SondeError, match=r"gone\.py"):
        found.predict(np.zeros(3), np.zeros(1))


@pytest.mark.parametrize("out", ["measured.csv", "measured.npz"])
def test_export_needs_no_code(foreign, folder, out, monkeypatch, tmp_path):
    assert call(monkeypatch, "export", str(foreign), "--seed", "1", "--out", out) == 0
    assert call(monkeypatch, "export", str(folder), "--seed", "1", "--out", f"with-{out}") == 0
    if out.endswith(".csv"):
        assert (tmp_path / out).read_text() == (tmp_path / f"with-{out}").read_text()
        assert (tmp_path / out).read_text().startswith("episode,cos th,sin th,thdot,torque,next cos th")
    else:
        with np.load(out) as one, np.load(f"with-{out}") as other:
            assert all(np.array_equal(one[name], other[name]) for name in other)


def test_names_in_a_file_of_measurements_are_checked():
    arrays = {name: np.zeros((1, 3, 2)) for name in MEASURED} | {"actions": np.zeros((1, 3, 1))}
    system = OwnSystem(states=("a", "b"), actions=("c",))
    assert saved_spec(measurements_to_bytes(arrays, system.spec), "file") == system.spec
    other = OwnSystem(states=("a", "b", "d"), actions=("c",)).spec
    with pytest.raises(SondeError, match="expected 2 names of states"):
        saved_spec(measurements_to_bytes(arrays, other), "file")
    assert measurements_to_bytes(arrays, system.spec) == measurements_to_bytes(dict(reversed(arrays.items())), system.spec)


def test_older_files_without_names_take_them_from_the_world(folder, tmp_path):
    import safetensors.numpy

    copied = shutil.copytree(folder, tmp_path / "older")
    path = copied / "data" / "0001.safetensors"
    path.write_bytes(safetensors.numpy.save(safetensors.numpy.load(path.read_bytes())))
    assert RunFolder.open(copied).spec == Pendulum().spec


# ---- data and metrics --------------------------------------------------------------------------------------------------------


def test_columns_have_the_numbers_of_all_rows(run):
    found = run.columns()
    np.testing.assert_array_equal(found["round"], [1, 2, 3])
    for row in run.metrics:
        assert found["max_epistemic"][run.seeds.index(row["seed"]), row["round"] - 1] == row["max_epistemic"]
    assert found["transitions"].shape == (2, 3)


def test_transitions_are_those_of_all_rounds_of_a_seed(run):
    found = run.data.transitions(1)
    np.testing.assert_array_equal(found.states, np.concatenate([part.states[1] for part in run.data.rounds]))
    assert found.states.shape == (36, 3) and found.ended.sum() == 3
    with pytest.raises(SondeError, match="no seed 7"):
        run.data.transitions(7)


# ---- the model ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 31, 33, 1500])
def test_any_number_of_points_is_predicted_as_one_by_one(run, count):
    rng = np.random.default_rng(0)
    x, u = rng.normal(size=(count, 3)), rng.uniform(-1, 1, (count, 1))
    found = run.predict(x, u, seed=1)
    assert found.mean.shape == found.epistemic_std.shape == (count, 3)
    for row in {0, count // 2, count - 1}:
        both = np.stack([x[row], x[row]]), np.stack([u[row], u[row]])
        alone = run.explorer.predict(*both)
        np.testing.assert_allclose(found.mean[row], alone.mean[1], atol=1e-9)
        np.testing.assert_allclose(found.epistemic_std[row], alone.epistemic_std[1], atol=1e-9)
    np.testing.assert_array_equal(run.predict(x[0], u[0], seed=1).mean.shape, (3,))


def test_points_of_a_wrong_shape_are_rejected(run):
    for x, u in (((3, 2), (3, 1)), ((3, 3), (2, 1)), ((3,), (3, 1)), ((2, 2, 3), (2, 2, 1))):
        with pytest.raises(SondeError, match="expected"):
            run.predict(np.zeros(x), np.zeros(u))
    with pytest.raises(SondeError, match="finite"):
        run.predict(np.full(3, np.nan), np.zeros(1))


def test_simulations_do_not_depend_on_how_many_there_are(run):
    rng = np.random.default_rng(0)
    x, u = np.array([[1.0, 0.0, 0.2]]).repeat(3, axis=0), rng.uniform(-1, 1, (3, 6, 1))
    many, one = run.simulate(x, u, particles=59), run.simulate(x[0], u[0], particles=59)
    assert many.mean.shape == (3, 6, 3) and one.mean.shape == (6, 3)
    assert (many.low <= many.high).all() and (one.low <= one.mean).all() and (one.mean <= one.high).all()
    for x0, actions in ((x[:, :2], u), (x, u[:2]), (x[0], u), (x, u[:, :0])):
        with pytest.raises(SondeError, match="expected"):
            run.simulate(x0, actions)
    with pytest.raises(SondeError, match="at least 19 particles"):
        run.simulate(x, u, particles=10)


@pytest.mark.slow
def test_learned_system_is_that_of_the_seed(run):
    state = np.array([1.0, 0.0, 0.0])
    np.testing.assert_allclose(run.linear(state, seed=1).A, run.system(1).linearise(state).A)


def test_earlier_rounds_are_as_they_were(run, folder):
    assert run.rounds == (2, 3) and run.round == 3
    earlier = run.at(2)
    assert earlier.round == 2 and earlier.explorer.transitions == 24 and run.explorer.transitions == 36
    x, u = np.tile([1.0, 0.0, 0.0], (2, 1)), np.zeros((2, 1))
    assert len(earlier.data.rounds) == 2 and earlier.columns()["round"].tolist() == [1, 2]
    same = restore_explorer(earlier._store, 2).predict(x, u)
    np.testing.assert_array_equal(earlier.predict(x[0], u[0]).mean, earlier.predict(x, u).mean[0])
    np.testing.assert_allclose(earlier.predict(x, u).mean[0], same.mean[0], atol=1e-12)
    with pytest.raises(SondeError, match="keeps those of round 2, 3"):
        run.at(1)


@pytest.mark.slow
def test_any_solver_solves_tasks(run):
    x = np.tile([1.0, 0.0, 0.0], (2, 1))
    small = SAC(training_steps=2, gradient_steps=2, starts=8, actor=(8,), critic=(8,))
    for controller in (run.solve("swing-up"), run.solve("swing-up", small), run.solve(lambda x, u, after: -(after[2] ** 2))):
        actions = controller(x)
        assert actions.shape == (2, 1) and (np.abs(actions) <= 1).all()
    policy = sonde.load_policy(run.folder / "policies" / "swing-up.safetensors", seed_index=1)
    np.testing.assert_allclose(policy(x[1]), run.solve("swing-up", small)(x)[1], atol=1e-6)
    with pytest.raises(SondeError, match="without a goal"):
        run.solve("swing-up", goal=np.zeros(1))


# ---- chosen starts -----------------------------------------------------------------------------------------------------------

STARTS = ((1.0, 0.0, 0.5), (-1.0, 0.0, 0.0), (0.0, 1.0, -1.0))


def played(monkeypatch, setup: TaskSetup, seeds: int = 2) -> list:
    """The trajectories of an evaluation with random actions."""
    found, original = [], _evaluate.run_rollouts
    monkeypatch.setattr(_evaluate, "run_rollouts", lambda *a, **k: found.extend(original(*a, **k)) or found)
    keys = jax.random.split(jax.random.key(0), seeds)
    with jax.enable_x64(True):
        sonde.evaluate(setup, None, keys)
    return found


@pytest.mark.parametrize("copies", [100, 2])
@pytest.mark.parametrize("world", [Pendulum(), Delayed(Pendulum())], ids=["jax", "host"])
def test_rollouts_start_where_they_are_told(world, copies, monkeypatch):
    setup = TaskSetup.named(world, "swing-up", ICEM(), 3)
    setup = replace(setup, rollouts=3, starts=STARTS, max_copies=copies)
    for trajectory, start in zip(played(monkeypatch, setup), STARTS, strict=True):
        np.testing.assert_allclose(trajectory.states[:, 0], np.tile(start, (2, 1)))


def test_promised_returns_begin_at_the_same_starts(run):
    """A policy that does nothing, on the true equations: a sum that can be computed by hand."""
    setup = replace(TaskSetup.named(Pendulum(), "swing-up", ICEM(), 1), rollouts=2, starts=STARTS[:2])
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(0), 2)
        promised = returns_on_mean(setup, run.explorer.posterior, keys, RandomPolicy(1))
        again = returns_on_mean(replace(setup, starts=STARTS[1::-1]), run.explorer.posterior, keys, RandomPolicy(1))
    assert promised.shape == (2,) and np.isfinite(promised).all() and again.shape == (2,)


class Told(gymnasium.Env):
    """An environment that starts where the options of its reset say."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = np.array([float((options or {}).get("at", 0.0))])
        return self.x, {}

    def step(self, action):
        self.x = self.x + action
        return self.x, 0.0, False, False, {}


def stay(x, u, x_next):
    return -(x_next[0] ** 2)


def test_options_of_a_reset_reach_the_environment(monkeypatch):
    world = GymWorld(f"{__file__}:Told", reachable_steps=0)
    setup = TaskSetup(world, sonde.Task(stay), "stay", ICEM(), 2, rollouts=2, starts=('{"at": 3}', '{"at": -1.5}'))
    first, second = played(monkeypatch, setup)
    assert (first.states[:, 0] == 3).all() and (second.states[:, 0] == -1.5).all()


@dataclass(frozen=True)
class Elsewhere(HostWorld):
    """A system that draws its own starts."""

    state_names = ("x",)
    action_names = ("u",)

    def reachable(self):
        return None

    def open(self, num_copies):
        return Still()


class Still(Simulators):
    """Copies that stay at 0."""

    def reset(self, seeds):
        return np.zeros((len(seeds), 1))

    def step(self, actions):
        never = np.zeros(len(actions), bool)
        return Stepped(np.zeros((len(actions), 1)), never, never)

    def restart(self, which):
        return np.zeros((len(which), 1))


@pytest.mark.parametrize(
    ("world", "start", "message"),
    [
        (Pendulum(), (1.0, 0.0), "expected 3 finite numbers"),
        (Pendulum(), (3.0, 0.0, 0.0), "the nearest is 1 0 0"),
        (Pendulum(), '{"at": 1}', "no options of a reset"),
        (GymWorld(f"{__file__}:Told"), (1.0,), "options of its reset as a JSON object"),
        (GymWorld(f"{__file__}:Told"), "[1]", "options of its reset as a JSON object"),
        (Elsewhere(), (1.0,), "draws its own starts"),
        (Observed(Pendulum()), (1.0, 0.0), "draws its own starts"),
        (Delayed(Pendulum()), (1.0,), "expected 3 finite numbers"),
    ],
)
def test_starts_that_cannot_be_are_rejected(world, start, message):
    with pytest.raises(SondeError, match=message):
        TaskSetup(world, sonde.Task(stay), "stay", ICEM(), 2, starts=(start,))
    with pytest.raises(SondeError, match="a start for each of 2"):
        TaskSetup(Pendulum(), sonde.Task(stay), "stay", ICEM(), 2, rollouts=2, starts=STARTS[:1])


# ---- the command line --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_evaluate_takes_any_solver_and_starts(folder, monkeypatch, capsys):
    small = ("--solver.training-steps", "2", "--solver.gradient-steps", "2", "--solver.starts", "8")
    networks = ("--solver.actor", "8", "--solver.critic", "8")
    task = ("evaluate", str(folder), "--task", "swing-up")
    assert call(monkeypatch, *task, "--solver", "sac", *small, *networks, "--start", "1 0 0", "--start=-1,0,0.5") == 0
    said = capsys.readouterr().out
    assert "swing-up.safetensors" in said and "start 1: 1, 0, 0" in said and "start 2: -1, 0, 0.5" in said
    assert call(monkeypatch, *task, "--solver.samples", "8", "--solver.iterations", "1") == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--solver", "sack"), "did you mean 'sac'"),
        (("--solver", "sac", "--solver.samples", "8"), "SAC has no option --solver.samples"),
        (("--start", "here"), "expected numbers such as"),
        (("--start", "1 0 0", "--rollouts", "2"), "leave --rollouts out"),
        (("--start", "2 0 0"), "the nearest is"),
    ],
)
def test_what_evaluate_cannot_do_is_said_before_anything_is_computed(words, message, folder, monkeypatch, capsys):
    monkeypatch.setattr("sonde.runs._run.restore_explorer", lambda store: pytest.fail("something was computed"))
    assert call(monkeypatch, "evaluate", str(folder), "--task", "swing-up", *words) == 2
    assert message in capsys.readouterr().err


def test_oracle_is_refused_before_anything_is_computed(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sonde.runs._run.restore_explorer", lambda store: pytest.fail("something was computed"))
    sonde.runs._store.RunStore.create(tmp_path / "late", replace(TINY, world=Delayed(Pendulum()), delay=2))
    assert call(monkeypatch, "evaluate", str(tmp_path / "late"), "--task", "swing-up", "--oracle") == 2
    assert "Delayed is not written in JAX" in capsys.readouterr().err


def test_method_of_a_run_is_read_as_it_was_written(tmp_path):
    method = Method(Optimistic(particles=2), InformationGain(), label="mine")
    sonde.runs._store.RunStore.create(tmp_path / "run", replace(TINY, method=method))
    assert sonde.load(tmp_path / "run").config.method == method
    assert jnp.isfinite(sonde.load(tmp_path / "run").config.horizon)
