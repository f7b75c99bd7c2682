"""Tiny runs of free play with the Fetch arm and its tasks, and scripts that show that the tasks can be solved."""

from dataclasses import replace

import numpy as np
import pytest

from sonde.data import Trajectory
from sonde.imagination import Mean, MemberTrajectories, TrajectorySampling
from sonde.models import ProbabilisticEnsemble
from sonde.objectives import InformationGain, LogUncertainty
from sonde.runs import RunConfig
from sonde.runs._codec import from_json, to_json
from sonde.runs._config import TaskSettings
from sonde.runs._presets import FETCH_ENSEMBLE, FETCH_SOLVER, FETCH_TASK_SETTINGS, preset
from sonde.runs._round_metrics import episode_metrics
from sonde.runs._run import run
from sonde.runs._store import RunStore
from sonde.solvers import ICEM
from sonde.worlds import FetchConstruction, GoalTask
from sonde.worlds.fetch._interaction import interaction
from sonde.worlds.fetch._layout import block_positions
from sonde.worlds.fetch._script import flip, pick_place, throw
from sonde.worlds.fetch._tasks import FETCH_TASKS
from sonde.worlds.fetch._world import FetchSimulators

SOLVER = ICEM(samples=6, elites=3, iterations=2, horizon=3)
TINY = replace(
    preset("fetch-construction-lite"),
    world=FetchConstruction(blocks=1),
    rounds=1,
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
    "pick-place": lambda x, goal: pick_place(x, goal.reshape(-1, 3)),
    "throw": lambda x, goal: throw(x, goal.reshape(-1, 3)),
    "flip": lambda x, goal: flip(x),
}


def run_script(name, blocks, rollouts, steps):
    """Solve a task with a script: success of each rollout, and all next states [T, S, dx]."""
    world, task = FetchConstruction(blocks=blocks).for_task(name), FETCH_TASKS[name](blocks)
    copies, rng = world.open(rollouts), np.random.default_rng(0)
    goals, x, visited = [task.sample_goal(rng) for _ in range(rollouts)], copies.reset(range(rollouts)), []
    for _ in range(steps):
        x = copies.step(np.array([SCRIPTS[name](s, goal) for s, goal in zip(x, goals, strict=True)])).next_states
        visited.append(x)
    visited = np.array(visited)
    return [task.success(visited[:, i], goal) for i, goal in enumerate(goals)], visited


@pytest.mark.slow
@pytest.mark.parametrize(("name", "steps"), [("pick-place", 60), ("throw", 60), ("flip", 60)])
def test_scripts_solve_each_task_with_one_block(name, steps):
    successes, _ = run_script(name, 1, 6, steps)
    assert np.mean(successes) > 0.8


@pytest.mark.slow
@pytest.mark.parametrize(("name", "steps"), [("throw", 160), ("flip", 140)])
def test_scripts_throw_and_flip_most_of_four_blocks_reproducibly(name, steps):
    successes, visited = run_script(name, 4, 4, steps)
    assert np.mean(successes) > 0.6
    again, repeated = run_script(name, 4, 4, steps)
    assert again == successes
    np.testing.assert_array_equal(repeated, visited)


def test_worlds_with_equally_many_blocks_share_task_functions():
    one, other = FetchConstruction(blocks=2), FetchConstruction(blocks=2, spacing=0.07)
    assert list(one.tasks) == ["pick-place", "throw", "flip"] and all(isinstance(t, GoalTask) for t in one.tasks.values())
    assert all(one.tasks[name].reward is other.tasks[name].reward for name in one.tasks)
    assert one.tasks["throw"].sample_goal(np.random.default_rng(0)).shape == (6,)
    assert FetchConstruction(blocks=3).tasks["throw"].sample_goal(np.random.default_rng(0)).shape == (9,)


def test_blocks_start_farther_apart_for_the_throw_task():
    world = FetchConstruction()
    assert world.for_task("flip") == world.for_task("pick-place") == world
    assert world.for_task("throw") == FetchConstruction(spacing=0.08)
    assert FetchConstruction(spacing=0.09).for_task("throw").spacing == 0.09


def test_episode_metrics_are_means_over_rollouts():
    _, visited = run_script("pick-place", 1, 2, 30)
    rollouts = np.moveaxis(visited, 1, 0)
    part = lambda x: Trajectory(x[None, :-1], np.zeros((1, 29, 4)), x[None, 1:])
    world, joined = FetchConstruction(blocks=1), part(rollouts[0]).joined(part(rollouts[1]))
    found, each = episode_metrics(world, joined), interaction(rollouts[:, :-1], rollouts[:, 1:])
    assert {name: values.shape for name, values in found.items()} == dict.fromkeys(
        ("interaction/moving", "interaction/blocks_moved", "interaction/highest_lift"), (1,)
    )
    for name, values in each._asdict().items():
        assert found[f"interaction/{name}"][0] == pytest.approx(np.mean(values), rel=1e-12)
    # as one rollout, the block would seem to have moved to its start in the second one
    apart = np.linalg.norm(block_positions(rollouts[0, 0]) - block_positions(rollouts[1, 0]))
    assert apart > 0.025 and episode_metrics(world, part(rollouts[0]))["interaction/moving"][0] == each.moving[0]


@pytest.mark.parametrize("name", ["fetch-construction", "fetch-construction-lite"])
def test_active_methods_maximise_the_same_intrinsic_reward(name):
    """Only what they imagine differs; from one baseline to the other it stays so, and elsewhere it is the information gain."""
    config = preset(name)
    assert config.method.name == "opax-heuristic" and isinstance(config.method.objective, LogUncertainty)
    for method, imagination in (("pets-ae", TrajectorySampling), ("mean-ae", Mean)):
        chosen = config.with_method(method)
        assert chosen.method.objective == config.method.objective
        assert isinstance(chosen.method.imagination, imagination) and chosen.method.name == method
        assert chosen.with_method("mean-ae").method.objective == config.method.objective
        assert preset("cheetah").with_method(method).method.objective == InformationGain()
        assert from_json(RunConfig, to_json(chosen), "config.json") == chosen
    assert config.with_method("opax").method.objective == InformationGain()


def test_presets_have_the_papers_numbers():
    paper, lite = preset("fetch-construction"), preset("fetch-construction-lite")
    numbers = (paper.method.name, paper.rollouts, paper.horizon, paper.confidence.holdout)
    assert numbers == ("opax-heuristic", 20, 100, 0.0)
    assert paper.world == FetchConstruction(blocks=4) and paper.world.state_dim == 58
    assert (paper.model, paper.solver, paper.task_settings) == (FETCH_ENSEMBLE, FETCH_SOLVER, FETCH_TASK_SETTINGS)
    assert paper.evaluation_imagination == MemberTrajectories() and paper.model.ensemble_size == 5
    assert lite.world == FetchConstruction(blocks=2, angles="continuous")
    for config in (paper, lite):
        assert from_json(RunConfig, to_json(config), "here") == config


@pytest.fixture
def shown_goals(monkeypatch):
    """The goals that images would show."""
    goals = []
    monkeypatch.setattr(FetchSimulators, "show_goal", lambda self, goal: goals.append(goal))
    return goals


@pytest.mark.slow
def test_run_explores_learns_and_evaluates_the_tasks(tmp_path, shown_goals):
    store = RunStore.create(tmp_path / "run", TINY)
    run(store)
    (row,) = store.load_metrics()
    assert row["transitions"] == 8 and 0 <= row["interaction/moving"] <= 1 and row["max_epistemic"] > 0
    for task in ("pick-place", "throw", "flip"):
        assert 0 <= row[f"success/{task}"] <= 1 and row[f"return/{task}"] < 0
    assert shown_goals[0] is None and [goal.shape for goal in shown_goals[1:]] == [(3,), (3,), (0,)]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["cee-us", "pets-ae", "mean-ae", "random", "opax"])
def test_every_method_explores(method, tmp_path):
    store = RunStore.create(tmp_path / "run", replace(TINY.with_method(method), evaluate_every=0))
    explorer = run(store)
    assert explorer.transitions == 8 and "interaction/highest_lift" in store.load_metrics()[0]
