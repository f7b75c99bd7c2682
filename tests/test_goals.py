"""Tasks with a goal that is not part of the state: a point in the plane, which is to move to a given place."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from command_line import call
from sonde import (
    ICEM,
    SAC,
    Experiment,
    GoalTask,
    Learned,
    OwnSystem,
    ProbabilisticEnsemble,
    RunConfig,
    SondeError,
    Task,
    TaskSetup,
    Trajectory,
    TrueDynamics,
    evaluate,
)
from sonde._internal.randomness import for_purpose, rollout_keys, round_keys
from sonde.control import Controller, RolloutSettings, run_rollouts
from sonde.evaluation import _evaluate
from sonde.evaluation._tasks import goals_for, task_named
from sonde.imagination import Mean
from sonde.objectives import TaskReward
from sonde.runs._run import run
from sonde.runs._store import RunStore
from sonde.runs.figures._curves import drawn_metrics, grouped
from sonde.solvers import ControlProblem, PlanningPolicy
from sonde.worlds import HostWorld, JaxWorld, Simulators, Stepped, World
from tiny import TINY


def nearness(x, u, x_next, goal):
    del x, u
    return -jnp.linalg.norm(x_next - goal)


def anywhere(rng):
    return rng.uniform(-0.8, 0.8, 2)


def arrived(next_states, goal):
    return float(np.linalg.norm(next_states[-1] - goal) < 0.1)


def far_out(next_states):
    return min(1.0, float(np.abs(next_states).max()))


GO = GoalTask(nearness, anywhere, arrived)


class Plane(World):
    """x' = x + 0.2 u, from the origin."""

    @property
    def state_names(self):
        return ("a", "b")

    @property
    def action_names(self):
        return ("right", "up")

    @property
    def tasks(self):
        return {"go": GO, "leave": Task(lambda x, u, x_next: jnp.linalg.norm(x_next), far_out)}


@dataclass(frozen=True)
class InJax(Plane, JaxWorld):
    def reset(self, key):
        return jnp.zeros(2)

    def dynamics(self, x, u):
        return x + 0.2 * jnp.clip(u, -1, 1)

    def step(self, x, u, key):
        return self.dynamics(x, u)

    def reachable_points(self):
        return np.zeros((3, 2)), np.zeros((3, 2))


class Points(Simulators):
    def reset(self, seeds):
        self.places = np.zeros((len(seeds), 2))
        return self.places

    def step(self, actions):
        self.places = self.places + 0.2 * actions
        never = np.zeros(len(actions), bool)
        return Stepped(self.places, never, never)

    def restart(self, which):
        raise AssertionError


@dataclass(frozen=True)
class OnHost(Plane, HostWorld):
    def reachable(self):
        return None

    def open(self, num_copies):
        return Points()


SOLVER = ICEM(samples=40, elites=8, iterations=4, horizon=4)
STEPS = 8


@pytest.fixture
def keys(x64):
    return round_keys([3, 4], 0)


ORACLE = Learned(TrueDynamics(InJax()))


def evaluated(world, learned, task, solver, horizon, keys, rollouts=1):
    """The evaluation of a task by its name."""
    return evaluate(replace(TaskSetup.named(world, task, solver, horizon), rollouts=rollouts), learned, keys)


def play(world, keys, goals, max_copies=100):
    """Next states [R, S, T, 2] of three rollouts per seed with a planner that knows the true dynamics."""
    problem = ControlProblem(TrueDynamics(InJax()), Mean(), TaskReward(GO.reward), 2, 2)
    policy = PlanningPolicy(problem, SOLVER, reports_information=False)
    parts = run_rollouts(world, Controller(policy, keys, 2), RolloutSettings(STEPS, 3, max_copies), goals=goals)
    return np.stack([part.next_states for part in parts])


@pytest.mark.slow
def test_planner_reaches_the_goal_of_each_rollout(keys):
    goals = goals_for(GO, rollout_keys(keys, range(3)))
    assert goals.shape == (2, 3, 2) and len(np.unique(goals)) == goals.size
    places = play(InJax(), keys, goals)
    assert np.linalg.norm(np.moveaxis(places[:, :, -1], 0, 1) - goals, axis=-1).max() < 0.05
    np.testing.assert_allclose(play(OnHost(), keys, goals), places, atol=1e-9, err_msg="stepped outside of JAX")
    np.testing.assert_allclose(play(InJax(), keys, goals, max_copies=1), places, atol=1e-9, err_msg="one after the other")


@pytest.mark.slow
def test_return_and_success_use_the_goal_of_each_rollout(keys):
    played = evaluated(InJax(), ORACLE, "go", SOLVER, STEPS, keys, rollouts=3)
    own = for_purpose(keys, "evaluate/go")
    goals = goals_for(GO, rollout_keys(own, range(3)))
    places = play(InJax(), own, goals)
    distances = np.linalg.norm(places - np.moveaxis(goals, 1, 0)[:, :, None], axis=-1)
    np.testing.assert_allclose(played.returns, -distances.sum(axis=2).mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(played.rewards, -distances[0], rtol=1e-9)
    np.testing.assert_array_equal(played.success, [1, 1])
    short = evaluated(InJax(), None, "go", SOLVER, STEPS, keys, rollouts=5)  # random actions rarely arrive
    assert short.success.max() < 1 and np.all(short.returns < played.returns)


@pytest.mark.slow
def test_goals_depend_on_the_keys_of_their_rollouts_only(keys):
    few, many = (goals_for(GO, rollout_keys(keys, range(count))) for count in (1, 4))
    np.testing.assert_array_equal(few[:, 0], many[:, 0])
    np.testing.assert_array_equal(many, goals_for(GO, rollout_keys(keys, range(4))))
    later = goals_for(GO, rollout_keys(round_keys([3, 4], 1), range(4)))
    assert len(np.unique(np.concatenate([many, later]))) == 2 * many.size
    assert goals_for(Task(lambda x, u, x_next: x[0]), rollout_keys(keys, range(2))) is None


@pytest.mark.slow
def test_another_goal_does_not_recompile(x64):
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, _, **__: compiled.append(event) if "backend_compile" in event else None
    )
    counts, returns = [], []
    for world in (InJax(), OnHost()):
        for round_number in range(3):
            keys = round_keys([5, 6, 7], round_number)
            returns.append(evaluated(world, ORACLE, "go", SOLVER, 5, keys, rollouts=2).returns)
            counts.append(len(compiled))
    assert counts[0] > 0, "the listener must have seen the first evaluation compile"
    assert counts[2] == counts[0] and counts[5] == counts[3], f"compilations after each evaluation: {counts}"
    assert len(np.unique(returns[:3])) == 9, "the goals differ"


@pytest.mark.slow
def test_goal_may_be_empty(keys, monkeypatch):
    reward = lambda x, u, x_next, goal: -jnp.sum(x_next**2) - jnp.sum(goal)
    home = GoalTask(reward, lambda rng: np.empty(0), lambda next_states, goal: 0.5)
    monkeypatch.setattr(Plane, "tasks", {"home": home})
    played = evaluated(InJax(), ORACLE, "home", SOLVER, 3, keys, rollouts=2)
    assert np.abs(played.returns).max() < 0.01 and np.all(played.success == 0.5)


@pytest.mark.slow
def test_task_without_a_goal_may_define_success(keys):
    played = evaluated(InJax(), ORACLE, "leave", SOLVER, 3, keys)
    np.testing.assert_allclose(played.success, np.abs(played.trajectory.next_states).max(axis=(1, 2)))
    assert played.success.max() <= 0.6 + 1e-9


def test_success_is_that_of_the_first_episode(keys):
    class Short(Points):
        """Terminates after two steps; what follows must not count."""

        def step(self, actions):
            self.places = self.places + 1
            return Stepped(self.places, self.places[:, 0] == 2, np.zeros(len(actions), bool))

        def restart(self, which):
            return self.places

    @dataclass(frozen=True)
    class Ending(OnHost):
        @property
        def tasks(self):
            return {"seen": Task(lambda x, u, x_next: x_next[0], lambda states: states.max() / 10)}

        def open(self, num_copies):
            return Short()

    played = evaluated(Ending(), None, "seen", SOLVER, 6, keys)
    np.testing.assert_allclose(played.success, 0.2)
    np.testing.assert_allclose(played.returns, 1 + 2)


@pytest.mark.parametrize(
    "task, message",
    [
        (GoalTask(nearness, anywhere, lambda states, goal: 1.5), "success must be a number from 0 to 1, got 1.5"),
        (GoalTask(nearness, anywhere, lambda states, goal: np.nan), "success must be a number from 0 to 1, got nan"),
        (GoalTask(nearness, lambda rng: np.zeros((2, 2))), "sample_goal must return finite numbers"),
        (GoalTask(nearness, lambda rng: np.array([np.nan])), "sample_goal must return finite numbers"),
        (GoalTask(nearness, lambda rng: np.zeros(rng.integers(1, 9))), "sample_goal must always return the same number"),
    ],
)
def test_invalid_goals_and_success_are_rejected(keys, monkeypatch, task, message):
    monkeypatch.setattr(Plane, "tasks", {"odd": task})
    with pytest.raises(SondeError, match=message):
        evaluated(InJax(), None, "odd", SOLVER, 2, keys, rollouts=3)


def test_solvers_that_cannot_use_goals_are_rejected(keys):
    with pytest.raises(SondeError, match="SAC trains one policy for one reward, and go has another goal in each rollout"):
        RunConfig(world=InJax(), solver=SAC())
    with pytest.raises(SondeError, match="use the solver icem"):
        evaluated(InJax(), ORACLE, "go", SAC(), 5, keys)
    assert RunConfig(world=InJax(), solver=SAC(), evaluation_tasks=("leave",)).task_names == ("leave",)
    assert RunConfig(world=InJax(), solver=SAC(), evaluate_every=0).solver == SAC()


# ---- in a user's own file ----------------------------------------------------------------------------------------------------

OWN = """
import jax.numpy as jnp
import numpy as np
from sonde import GoalTask

def near(x, u, x_next, goal):
    return -jnp.abs(x_next[0] - goal[0])

def sample(rng):
    return rng.uniform(-1, 1, 1)

reach = GoalTask(near, sample)
wrong = GoalTask(lambda x, u, x_next: x[0], sample)
beyond = GoalTask(lambda x, u, x_next, goal: goal[7], sample)
"""


@pytest.fixture
def file(tmp_path) -> Path:
    (tmp_path / "own.py").write_text(OWN)
    return tmp_path / "own.py"


def test_goal_task_may_come_from_a_file(file):
    assert isinstance(task_named(InJax(), f"{file}:reach"), GoalTask)
    with pytest.raises(SondeError, match=r"called as reward\(x, u, x_next, goal\) .* TypeError"):
        task_named(InJax(), f"{file}:wrong")
    with pytest.raises(SondeError, match="reads an entry that does not exist"):
        task_named(InJax(), f"{file}:beyond")


@pytest.mark.slow
def test_own_system_is_solved_for_a_given_goal(file, tmp_path):
    config = replace(TINY, world=OwnSystem(("position",), ("force",)), rounds=1, horizon=20)
    with Experiment(tmp_path / "run", config) as experiment:
        rng = np.random.default_rng(0)
        states, actions = rng.uniform(-1, 1, (20, 1)), rng.uniform(-1, 1, (20, 1))
        experiment.tell(Trajectory(states, actions, states + 0.3 * actions))
        for settings in ({}, {"budget": 5.0}):
            left, right = (experiment.solve(f"{file}:reach", goal=np.array([place]), **settings) for place in (-0.5, 0.5))
            assert left(np.zeros(1))[0] < -0.5 < 0.5 < right(np.zeros(1))[0]
        for goal in (None, np.zeros(2), np.array([np.nan])):
            with pytest.raises(SondeError, match=r"reach is solved for a goal: give goal=, finite numbers such as \["):
                experiment.solve(f"{file}:reach", goal=goal)
        with pytest.raises(SondeError, match="is a task without a goal"):
            experiment.solve(lambda x, u, x_next: x[0], goal=np.zeros(1))


# ---- runs on disk ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_success_is_recorded_printed_and_drawn(tmp_path, monkeypatch, capsys):
    model = ProbabilisticEnsemble(members=2, layers=1, width=8, epochs=2)
    config = replace(TINY, world=InJax(), model=model, rounds=1, horizon=20, evaluation_rollouts=3)
    store = RunStore.create(tmp_path / "run", config)
    run(store)
    (row,) = store.load_metrics()
    assert 0 <= row["success/go"] <= 1 and 0 < row["success/leave"] <= 1 and row["return/go"] < 0
    titles = [spec.title_of(key) for key, spec in drawn_metrics(grouped([store])).items()]
    assert titles[-2:] == ["Success on go", "Success on leave"]
    assert call(monkeypatch, "evaluate", str(store.folder), "--task", "go", "--oracle") == 0
    printed = capsys.readouterr().out
    assert printed.count("success") == 3, "of the learned model, of the oracle, and of random actions"
    tried = []

    def watched(world, controller, rollouts, **options):
        tried.append(rollouts.count)
        return run_rollouts(world, controller, rollouts, **options)

    monkeypatch.setattr(_evaluate, "run_rollouts", watched)
    for options in ([], ["--rollouts", "5"]):
        assert call(monkeypatch, "evaluate", str(store.folder), "--task", "go", *options) == 0
    assert tried == [3, 5]
    saved = json.loads((store.folder / "config.json").read_text())["world"]
    assert saved == {"class": f"{Path(__file__).resolve()}:InJax"}
