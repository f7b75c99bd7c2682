"""Free play of the Fetch arm, from the first rollout to the tasks, at sizes that mean nothing; and what the tasks allow."""

from dataclasses import replace

import numpy as np
import pytest

from sonde import FetchConstruction, GoalTask
from sonde.data import Trajectory
from sonde.models._ensemble import ProbabilisticEnsemble
from sonde.runs._config import TaskSettings, from_json, to_json
from sonde.runs._presets import FETCH_ENSEMBLE, FETCH_SOLVER, FETCH_TASK_SETTINGS, preset
from sonde.runs._run import episode_metrics, run
from sonde.runs._store import RunStore
from sonde.solvers._icem import ICEM
from sonde.worlds.fetch._interaction import interaction
from sonde.worlds.fetch._layout import block_positions
from sonde.worlds.fetch._script import arrange, throw, turn
from sonde.worlds.fetch._tasks import FETCH_TASKS
from sonde.worlds.fetch._world import FetchSimulators

SOLVER = ICEM(samples=6, elites=3, iterations=2, horizon=3)
TINY = replace(
    preset("fetch-construction-lite"),
    world=FetchConstruction(blocks=1),
    episodes=1,
    rollouts=2,
    horizon=4,
    evaluation_rollouts=2,
    evaluate_every=1,
    model=ProbabilisticEnsemble(members=2, layers=1, width=8, noise="fixed", epochs=2),
    solver=SOLVER,
    task_settings=(TaskSettings("throw", 3, replace(SOLVER, horizon=2)), TaskSettings("flip", 2, SOLVER)),
    evaluation_horizon=5,
)
SCRIPTS = {
    "pick-place": lambda x, goal: arrange(x, goal.reshape(-1, 3)),
    "throw": lambda x, goal: throw(x, goal.reshape(-1, 3)),
    "flip": lambda x, goal: turn(x),
}


def scripted(name, blocks, rollouts, steps):
    """What a script makes of a task: success of each rollout, and all states that followed an action [T, S, dx]."""
    world, task = FetchConstruction(blocks=blocks).for_task(name), FETCH_TASKS[name](blocks)
    copies, rng = world.open(rollouts), np.random.default_rng(0)
    goals, x, visited = [task.sample_goal(rng) for _ in range(rollouts)], copies.reset(range(rollouts)), []
    for _ in range(steps):
        x = copies.step(np.array([SCRIPTS[name](s, goal) for s, goal in zip(x, goals, strict=True)])).next_states
        visited.append(x)
    visited = np.array(visited)
    return [task.success(visited[:, i], goal) for i, goal in enumerate(goals)], visited


@pytest.mark.parametrize(("name", "steps"), [("pick-place", 60), ("throw", 60), ("flip", 60)])
def test_each_task_can_be_solved_with_one_block(name, steps):
    successes, _ = scripted(name, 1, 6, steps)
    assert np.mean(successes) > 0.8


@pytest.mark.parametrize(("name", "steps"), [("throw", 160), ("flip", 140)])
def test_most_of_four_blocks_can_be_thrown_and_turned(name, steps):
    successes, visited = scripted(name, 4, 4, steps)
    assert np.mean(successes) > 0.6
    again, repeated = scripted(name, 4, 4, steps)
    assert again == successes
    np.testing.assert_array_equal(repeated, visited)


def test_tasks_are_the_same_functions_each_time():
    one, other = FetchConstruction(blocks=2), FetchConstruction(blocks=2, spacing=0.07)
    assert list(one.tasks) == ["pick-place", "throw", "flip"] and all(isinstance(t, GoalTask) for t in one.tasks.values())
    assert all(one.tasks[name].reward is other.tasks[name].reward for name in one.tasks)
    assert one.tasks["throw"].sample_goal(np.random.default_rng(0)).shape == (6,)
    assert FetchConstruction(blocks=3).tasks["throw"].sample_goal(np.random.default_rng(0)).shape == (9,)


def test_blocks_that_are_to_be_thrown_start_further_apart():
    world = FetchConstruction()
    assert world.for_task("flip") == world.for_task("pick-place") == world
    assert world.for_task("throw") == FetchConstruction(spacing=0.08)
    assert FetchConstruction(spacing=0.09).for_task("throw").spacing == 0.09


def test_what_became_of_blocks_is_counted_rollout_by_rollout():
    _, visited = scripted("pick-place", 1, 2, 30)
    rollouts = np.moveaxis(visited, 1, 0)
    part = lambda x: Trajectory(x[None, :-1], np.zeros((1, 29, 4)), x[None, 1:])
    world, joined = FetchConstruction(blocks=1), part(rollouts[0]).joined(part(rollouts[1]))
    found, each = episode_metrics(world, joined), interaction(rollouts[:, :-1], rollouts[:, 1:])
    assert {name: values.shape for name, values in found.items()} == dict.fromkeys(
        ("interaction/moving", "interaction/blocks_moved", "interaction/highest_lift"), (1,)
    )
    for name, values in each._asdict().items():
        assert found[f"interaction/{name}"][0] == pytest.approx(np.mean(values), rel=1e-12)
    # as one rollout, the block would seem to have been carried to where the second one has it
    apart = np.linalg.norm(block_positions(rollouts[0, 0]) - block_positions(rollouts[1, 0]))
    assert apart > 0.025 and episode_metrics(world, part(rollouts[0]))["interaction/moving"][0] == each.moving[0]


def test_the_presets_numbers():
    paper, lite = preset("fetch-construction"), preset("fetch-construction-lite")
    assert (paper.method, paper.rollouts, paper.horizon, paper.holdout) == ("opax-heuristic", 20, 100, 0.0)
    assert paper.world == FetchConstruction(blocks=4) and paper.world.state_dim == 58
    assert (paper.model, paper.solver, paper.task_settings) == (FETCH_ENSEMBLE, FETCH_SOLVER, FETCH_TASK_SETTINGS)
    assert paper.evaluation_members == 5 and lite.world == FetchConstruction(blocks=2, angles="continuous")
    for config in (paper, lite):
        assert from_json(to_json(config), "here") == config


@pytest.fixture
def shown(monkeypatch):
    """The goals that pictures would show."""
    goals = []
    monkeypatch.setattr(FetchSimulators, "show_goal", lambda self, goal: goals.append(goal))
    return goals


def test_a_run_explores_learns_and_tries_the_tasks(tmp_path, shown):
    store = RunStore.create(tmp_path / "run", TINY)
    run(store, lambda *_: None)
    (row,) = store.load_metrics()
    assert row["transitions"] == 8 and 0 <= row["interaction/moving"] <= 1 and row["max_epistemic"] > 0
    for task in ("pick-place", "throw", "flip"):
        assert 0 <= row[f"success/{task}"] <= 1 and row[f"return/{task}"] < 0
    assert shown[0] is None and [goal.shape for goal in shown[1:]] == [(3,), (3,), (0,)]


@pytest.mark.parametrize("method", ["cee-us", "pets-ae", "mean-ae", "random", "opax"])
def test_every_method_plays(method, tmp_path):
    store = RunStore.create(tmp_path / "run", replace(TINY, method=method, evaluate_every=0))
    explorer = run(store, lambda *_: None)
    assert explorer.transitions == 8 and "interaction/highest_lift" in store.load_metrics()[0]
