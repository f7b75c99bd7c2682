"""Exploring for one task with a bonus for what is not known: its weight, and what depends on it."""

import math
import shutil
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from sonde import (
    ICEM,
    METHODS,
    SAC,
    Experiment,
    GoalTask,
    Method,
    OwnSystem,
    ProbabilisticEnsemble,
    SondeError,
    Trajectory,
    rollout,
)
from sonde._internal.randomness import round_keys
from sonde.data import Data
from sonde.imagination import Mean
from sonde.models import Posterior, Prediction
from sonde.objectives import Imagined, TaskPlusInformation, TaskPlusUncertainty, TaskReward
from sonde.runs._run import build_explorer, run
from sonde.runs._store import RunStore
from sonde.solvers import ControlProblem
from sonde.solvers._round_problem import _spread, round_problem
from sonde.worlds import Pendulum
from tiny import TINY

BONUSES = {"sombrl": TaskPlusUncertainty, "opax-task": TaskPlusInformation}
SHORT = replace(TINY, seeds=2, evaluate_every=0)


def config_of(method, **changes):
    return replace(SHORT, method=METHODS[method] if isinstance(method, str) else method, exploration_task="swing-up", **changes)


# ---- objectives --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind, bonus", [(TaskPlusUncertainty, math.hypot(3.0, 4.0)), (TaskPlusInformation, 0.5 * math.log(10.0 * 17.0))]
)
def test_bonus_is_what_its_formula_says(kind, bonus):
    """Epistemic stds of 3 and 4 times the noise, in dimensions of different scale."""
    epistemic, aleatoric = jnp.array([0.3, 40.0]), jnp.array([0.1, 10.0])
    prediction = Prediction(*(jnp.broadcast_to(part, (2, 3, 2)) for part in (jnp.zeros(2), epistemic, aleatoric)))
    states = jnp.arange(12.0).reshape(2, 3, 2)
    imagined = Imagined(states, jnp.ones((3, 1)), states + 1, prediction)
    objective = kind(reward=lambda x, u, x_next: x[0] * u[0] - x_next[1], weight=0.25)
    task = states[..., 0] - (states[..., 1] + 1)
    np.testing.assert_allclose(objective.rewards(imagined), task + 0.25 * bonus, rtol=1e-6)
    np.testing.assert_allclose(objective.rewards(replace(imagined, bonus_weight=jnp.asarray(2.0))), task + 2 * bonus, rtol=1e-6)


@pytest.mark.parametrize("settings", [{"weight": -1.0}, {"weight": math.nan}, {"half_life": 0.0}])
@pytest.mark.parametrize("kind", BONUSES.values())
def test_settings_that_cannot_work_are_rejected(kind, settings):
    with pytest.raises(SondeError, match=f"objective: {next(iter(settings))}"):
        kind(**settings)


def test_only_methods_with_a_task_take_one():
    assert METHODS["sombrl"].for_task(len).objective == TaskPlusUncertainty(len)
    assert METHODS["h-ucrl"].for_task(len, str).objective == TaskReward(len, str)
    with pytest.raises(SondeError, match="method 'opax' explores without any task: use one of h-ucrl, sombrl, opax-task"):
        METHODS["opax"].for_task(len)


# ---- lambda ------------------------------------------------------------------------------------------------------------------


class Sloped(Posterior):
    """x' = x + u, with an epistemic std of |x|."""

    noise: Float[Array, ""]

    def predict(self, x, u):
        return Prediction(x + u, jnp.abs(x), jnp.broadcast_to(self.noise, x.shape))


def weights(reward, states, round_number=0, **settings):
    """The weights of two seeds with the same visited states and the noise stds 0.1 and 1."""
    objective = TaskPlusUncertainty(reward=reward, **settings)
    problem = ControlProblem(Sloped(jnp.array([0.1, 1.0])), Mean(), objective, 1, 1)
    rows = jnp.broadcast_to(jnp.asarray(states)[:, None], (2, len(states), 1))
    data = Data(rows, rows, rows, jnp.full(2, len(states)))
    found = round_problem(problem, data, round_keys((0, 1), 0), round_number).bonus_weight
    assert found is not None
    return np.asarray(found)


def test_weight_is_the_ratio_of_the_spreads_of_reward_and_bonus(x64):
    """Visited states are 1 and 3, so the bonus is 1 or 3 in units of the noise; actions are uniform."""
    states = np.tile([1.0, 3.0], 50)
    reward = lambda x, u, x_next: 7.0 + 2.0 * u[0]  # std 2 / sqrt(3)
    np.testing.assert_allclose(weights(reward, states), [0.1 * 2 / 3**0.5, 2 / 3**0.5], rtol=0.1)
    large = lambda x, u, x_next: 1e3 * reward(x, u, x_next)
    np.testing.assert_allclose(weights(large, states), 1e3 * weights(reward, states))
    np.testing.assert_allclose(weights(reward, states, weight=5.0), 5 * weights(reward, states))
    of_next = lambda x, u, x_next: x_next[0]  # as the model predicts it: x + u, with variance 1 + 1/3
    np.testing.assert_allclose(weights(of_next, states)[1], (4 / 3) ** 0.5, rtol=0.1)


def test_weight_falls_from_round_to_round_as_its_half_life_says(x64):
    reward, states = (lambda x, u, x_next: u[0]), np.linspace(0, 1, 9)
    first = weights(reward, states, half_life=4.0)
    for number, share in ((1, 0.8), (4, 0.5), (12, 0.25)):
        np.testing.assert_allclose(weights(reward, states, number, half_life=4.0), share * first)
        np.testing.assert_allclose(weights(reward, states, number, half_life=None), first)


def test_bonus_keeps_its_weight_where_no_reward_was_seen_yet(x64):
    """A car that stands still and never saw the goal: nothing but the cost of forces that it does not use."""
    still = np.full(20, -0.5)
    goal = lambda x, u, x_next: jnp.where(x_next[0] > 5, 100.0, 0.0) - 0.1 * u[0] ** 2
    force_cost = 0.1 * (1 / 5 - 1 / 9) ** 0.5
    moving = np.tile([-0.9, -0.1], 10)  # bonuses with a spread of 0.4 over the noise
    np.testing.assert_allclose(weights(goal, moving)[1], force_cost / 0.4, rtol=0.15)
    assert np.isfinite(weights(goal, still)).all() and (weights(goal, still) > 0).all()
    for constant in (0.0, -1.0):
        found = weights(lambda x, u, x_next, constant=constant: jnp.asarray(constant) + 0 * u[0], moving)
        assert np.isfinite(found).all() and (found > 0).all()


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_spread_is_the_std_of_the_finite_values(x64, scale):
    values = np.random.default_rng(0).normal(3, 2, 100)
    some = np.insert(values * scale, 7, [np.nan, np.inf])
    np.testing.assert_allclose(_spread(jnp.asarray(some)[None]), scale * values.std())
    np.testing.assert_allclose(_spread(jnp.full((1, 5), -scale)), 0.01 * scale)  # alike: a small share of their size
    assert _spread(jnp.zeros((1, 5))) == 1.0


# ---- exploring ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=BONUSES)
def finished(request, tmp_path_factory) -> RunStore:
    store = RunStore.create(tmp_path_factory.mktemp("runs") / request.param, config_of(request.param))
    run(store)
    return store


def recorded(store, key):
    return np.array([row[key] for row in store.load_metrics()]).reshape(-1, 2)


@pytest.mark.slow
def test_weights_and_collected_rewards_are_recorded(finished):
    found = recorded(finished, "bonus_weight")
    assert np.isfinite(found).all() and (found > 0).all() and len(np.unique(found)) == 6
    for trajectory, row in zip(finished.load_data(3), recorded(finished, "exploration_return"), strict=True):
        (cos, sin, speed), (torque,) = np.moveaxis(trajectory.states, -1, 0), np.moveaxis(trajectory.actions, -1, 0)
        costs = np.arctan2(sin, cos) ** 2 + 0.1 * speed**2 + 0.001 * (2 * torque) ** 2  # Gymnasium's
        np.testing.assert_allclose(row, -costs.sum(axis=1), rtol=1e-6)
    assert "bonus_weight" not in finished.config.schema.drawn(["bonus_weight"])


@pytest.mark.slow
def test_resumed_run_is_bit_identical(finished, tmp_path):
    shutil.copytree(finished.folder, tmp_path / "again")
    again = RunStore.open(tmp_path / "again")
    run(again, from_round=2)
    assert recorded(again, "bonus_weight").tolist() == recorded(finished, "bonus_weight").tolist()
    for one, other in zip(again.load_data(3), finished.load_data(3), strict=True):
        np.testing.assert_array_equal(one.next_states, other.next_states)


@pytest.mark.slow
def test_weight_zero_explores_exactly_as_the_task_alone():
    def explored(objective):
        explorer = build_explorer(config_of(Method(Mean(), objective)))
        for _ in range(3):
            explorer.tell(rollout(Pendulum(), explorer.ask(), 12))
        return np.asarray(explorer.data.actions)

    without = explored(TaskPlusUncertainty(weight=0.0))
    np.testing.assert_array_equal(without, explored(TaskReward()))
    assert not np.array_equal(without, explored(TaskPlusUncertainty(weight=1.0)))


@pytest.mark.slow
def test_nothing_compiles_after_the_first_round():
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, _, **__: compiled.append(event) if "backend_compile" in event else None
    )
    explorer, counts = build_explorer(config_of("opax-task", rounds=4, horizon=13)), []
    for _ in range(4):
        explorer.tell(rollout(Pendulum(), explorer.ask(), 13))
        counts.append(len(compiled))
    assert 0 < counts[0] == counts[-1]


@pytest.mark.slow
def test_soft_actor_critic_on_an_ensemble_gets_the_weight():
    solver = SAC(training_steps=2, gradient_steps=4, starts=8, actor=(8,), critic=(8,))
    model = ProbabilisticEnsemble(members=3, layers=1, width=8, epochs=2)
    explorer = build_explorer(config_of("opax-task", solver=solver, model=model))
    for _ in range(2):
        explorer.tell(rollout(Pendulum(), explorer.ask(), 12))
    problem = explorer.problem()
    assert problem is not None and problem.bonus_weight is not None and (np.asarray(problem.bonus_weight) > 0).all()


# ---- goals -------------------------------------------------------------------------------------------------------------------

FAR = GoalTask(lambda x, u, x_next, goal: -jnp.abs(x_next[0] - goal[0]), lambda rng: rng.uniform(-1, 1, 1))


@dataclass(frozen=True)
class Reaching(Pendulum):
    @property
    def tasks(self):
        return {"go": FAR}


@pytest.mark.slow
def test_each_seed_and_round_has_a_goal_of_its_own(tmp_path):
    config = replace(SHORT, world=Reaching(), method=METHODS["sombrl"], exploration_task="go", rounds=2, rollouts=2)
    store = RunStore.create(tmp_path / "run", config)
    run(store)
    explorer, goals = build_explorer(config), []
    for trajectory, collected in zip(store.load_data(2), recorded(store, "exploration_return"), strict=True):
        problem, again = explorer.problem(), explorer.problem()
        assert problem is not None and again is not None and problem.goal is not None
        np.testing.assert_array_equal(problem.goal, again.goal)
        goals.append(np.asarray(problem.goal))
        rewards = -np.abs(trajectory.next_states[..., 0] - goals[-1])
        np.testing.assert_allclose(rewards.sum(axis=1) / 2, collected, rtol=1e-6)
        explorer.tell(trajectory)
    assert goals[0].shape == (2, 1) and len(np.unique(goals)) == 4


def test_goals_that_cannot_be_are_rejected():
    uneven = lambda rng: np.zeros(rng.integers(1, 9))
    for sampler in (uneven, lambda rng: np.zeros((2, 2)), lambda rng: np.array([np.nan])):
        explorer = build_explorer(replace(SHORT, seeds=6, method=METHODS["h-ucrl"].for_task(FAR.reward, sampler)))
        with pytest.raises(SondeError, match="sample_goal must always return the same number of finite numbers"):
            explorer.problem()


# ---- systems of one's own ----------------------------------------------------------------------------------------------------


def near_start(x, u, x_next):
    return -jnp.abs(x_next[0]) - 0.1 * u[0] ** 2


@pytest.mark.slow
def test_own_system_explores_for_a_task_and_continues(tmp_path):
    task = tmp_path / "tasks.py"
    name = f"{task}:near_start"
    task.write_text("def near_start(x, u, x_next):\n    return -abs(x_next[0]) - 0.1 * u[0] ** 2\n")
    world = OwnSystem(states=("place",), actions=("push",))
    solver = ICEM(samples=8, elites=2, iterations=1, horizon=3)
    config = replace(SHORT, world=world, seeds=1, solver=solver, method=METHODS["sombrl"], exploration_task=name)
    rng, rows = np.random.default_rng(0), []
    for _ in range(2):  # the program is started twice
        with Experiment(tmp_path / "run", config) as experiment:
            policy, states, actions = experiment.ask(), [np.zeros(1)], []
            for _ in range(5):
                actions.append(policy(states[-1]))
                states.append(0.9 * states[-1] + 0.3 * actions[-1] + 0.01 * rng.normal(size=1))
            trajectory = Trajectory(np.array(states[:-1]), np.array(actions), np.array(states[1:]))
            rows += experiment.tell(trajectory)
            rewards = [near_start(x, u, y) for x, u, y in zip(states[:-1], actions, states[1:], strict=True)]
            assert rows[-1]["exploration_return"] == pytest.approx(float(sum(rewards)), rel=1e-5)
    assert [row["round"] for row in rows] == [1, 2] and rows[0]["bonus_weight"] != rows[1]["bonus_weight"]
