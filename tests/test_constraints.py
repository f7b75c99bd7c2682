"""Constraints: the worst case of a plan, admissible plans first, fallbacks, safe starts, and runs with them."""

import itertools
import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from control_problems import Linear, of_action
from sonde import ICEM, METHODS, SAC, Experiment, Explorer, GaussianProcess, OwnSystem, RunConfig, SondeError, SystemSpec
from sonde.cli._explore import with_constraints
from sonde.control import Controller, rollout
from sonde.data import Data, Trajectory
from sonde.evaluation import Learned, TaskSetup, TrueDynamics, evaluate
from sonde.evaluation._constraints import box_constraint, constraint_metrics, constraint_named, safety_named
from sonde.imagination import Mean
from sonde.models import Confidence, KnownPhysics
from sonde.runs import preset
from sonde.runs._config import with_absolute_paths
from sonde.runs._run import restore_explorer, run
from sonde.runs._store import RunStore
from sonde.solvers import Constraint, ControlProblem, PlanningPolicy, Safety, SafetySettings
from sonde.solvers._fallback import admissible_or_fallback, initial_safe_state
from sonde.solvers._icem import _at_once, _in_turn
from sonde.solvers._safety import corner_sequences
from sonde.worlds import Cheetah, GymWorld, MountainCar, Pendulum
from tiny import TINY

STD, BETA, LIMIT = 0.05, 2.0, 1.0
ROTATION = np.array([[0.8, 0.6], [-0.6, 0.8]])
PLANNER = ICEM(horizon=6, samples=40, elites=6, iterations=4)


def problem_with(constraint, matrix=None, std=STD, objective=None, **settings) -> ControlProblem:
    """A linear system of two states, of which the action moves the first."""
    posterior = Linear(jnp.asarray(np.eye(2) if matrix is None else matrix), jnp.asarray([[0.3], [0.0]]), std, 0.01)
    safety = Safety(constraints=(Constraint("limit", constraint),), beta=BETA, **settings)
    return ControlProblem(posterior, Mean(), objective or of_action(lambda u: u), 2, 1, safety=safety)


first_below = box_constraint(0, -np.inf, LIMIT)


def by_brute_force(problem: ControlProblem, x: np.ndarray, plan: np.ndarray) -> float:
    """The smallest margin over all sequences of corners."""
    a, b = np.asarray(problem.posterior.a), np.asarray(problem.posterior.b)
    constraint, worst = problem.safety.constraints[0].function, np.inf
    for corners in itertools.product(itertools.product((-1, 1), repeat=2), repeat=len(plan)):
        state = x
        for u, corner in zip(plan, corners, strict=True):
            after = a @ state + b @ u + BETA * STD * np.array(corner)
            worst, state = min(worst, float(constraint(state, u, after))), after
    return worst


def test_worst_margin_of_a_coordinate_is_that_over_all_corner_sequences(x64):
    problem = problem_with(first_below)
    x, plan = np.array([0.2, 0.5]), np.array([[0.5], [-1.0], [0.7], [0.1]])
    found = float(problem.worst_margin(jnp.asarray(x), jnp.asarray(plan)))
    assert found == pytest.approx(by_brute_force(problem, x, plan), abs=1e-12)


def test_gradient_search_finds_a_worst_case_that_constant_corners_miss(x64):
    # in a system that turns, the corner that hurts most turns too
    x, plan = np.zeros(2), np.zeros((5, 1))
    truth = by_brute_force(problem_with(first_below, ROTATION), x, plan)
    particles, adversary = (
        float(problem_with(first_below, ROTATION, search=search, corners=4).worst_margin(jnp.asarray(x), jnp.asarray(plan)))
        for search in ("particles", "adversary")
    )
    assert truth <= adversary + 1e-12 and adversary == pytest.approx(truth, abs=1e-9) and particles > truth + 0.01


def test_corner_sequences_come_in_opposite_pairs_and_cover_all_constant_corners():
    found = corner_sequences(16, 5, 3)
    assert found.shape == (16, 5, 3) and set(np.unique(found)) == {-1.0, 1.0}
    np.testing.assert_array_equal(found[:8], -found[8:])
    constant = {tuple(each[0]) for each in found if (each == each[0]).all()}
    assert len(constant) == 8, "all corners of three dimensions"


def test_plan_that_is_not_finite_is_not_admissible(x64):
    problem = problem_with(first_below)
    assert problem.worst_margin(jnp.zeros(2), jnp.full((3, 1), jnp.nan)) == -np.inf
    never = problem_with(lambda x, u, x_next: jnp.nan * x_next[0])
    assert never.worst_margin(jnp.zeros(2), jnp.zeros((3, 1))) == -np.inf


@pytest.mark.parametrize("constrained", [True, False])
def test_planner_takes_the_best_admissible_plan(x64, constrained):
    problem = problem_with(first_below)
    problem = problem if constrained else replace(problem, safety=None)
    plan, _ = PLANNER.plan(problem, PLANNER.initial_state(problem), jnp.zeros(2), jax.random.key(0))
    # the sum of actions is maximised; the worst case of step 6 is 0.3 sum(u) + 6 * 0.1 <= 1
    worst = 0.3 * np.cumsum(np.asarray(plan)[:, 0]) + BETA * STD * np.arange(1, 7)
    if constrained:
        assert worst.max() <= LIMIT + 1e-9 and float(plan.sum()) > 0.8, "at most 4 / 3"
    else:
        assert worst.max() > LIMIT


def test_without_an_admissible_plan_the_violation_is_smallest(x64):
    problem = problem_with(box_constraint(0, -np.inf, -5.0))
    plan, _ = PLANNER.plan(problem, PLANNER.initial_state(problem), jnp.zeros(2), jax.random.key(0))
    assert float(plan[0, 0]) < -0.5, "although a larger action has a larger value"


def test_violations_add_up_over_the_steps(x64):
    # beyond the limit the margin says nothing more: the plan that gets there later is better
    problem = problem_with(lambda x, u, x_next: jnp.where(x_next[0] > LIMIT, -1.0, 1.0))
    plans = jnp.asarray([[[1.0]] * 6, [[0.5]] * 6, [[-1.0]] * 6])  # worst cases 0.4, 0.25 and at most 0 per step
    found = problem.violations(jnp.zeros(2), plans, jnp.ones((3, 1, 2)))
    thorough = jax.vmap(lambda plan: problem.worst_violation(jnp.zeros(2), plan))(plans)
    assert found.tolist() == thorough.tolist() == [4.0, 2.0, 0.0]  # from steps 3 and 5 on
    assert problem.worst_violation(jnp.zeros(2), jnp.full((3, 1), jnp.nan)) == np.inf


def test_plans_are_judged_alike_on_processors_and_accelerators(x64):
    problem, x = problem_with(first_below), jnp.zeros(2)
    plans = jnp.asarray(np.random.default_rng(0).uniform(-1, 1, (40, 6, 1))) + 0.4
    ranks = jnp.sum(plans, axis=(1, 2)).astype(jnp.float32).at[7].set(-jnp.inf)
    corners = problem.random_corners(40, jax.random.key(0))
    (pool, found), (others, expected) = (check(problem, x, 20, plans, ranks, corners) for check in (_in_turn, _at_once))
    np.testing.assert_array_equal(pool, others)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    # for a limit on one state that nothing turns, opposite corners are everything: the thorough check finds nothing worse
    thorough = jax.vmap(lambda plan: problem.worst_violation(x, plan))(plans[pool])
    np.testing.assert_allclose(found, thorough, atol=1e-6)
    assert 7 not in pool and 0 < (found == 0).sum() < 20


def fallback_of(name: str, left: int, feedback=None):
    problem = problem_with(box_constraint(0, 5.0, np.inf), fallback=name, fallback_feedback=feedback)
    rest = jnp.asarray([[0.1], [0.2], [0.3]])
    before = replace(
        initial_safe_state(problem, None, 3), rest=rest, left=jnp.asarray(left, jnp.int32), last=jnp.asarray([0.7])
    )
    actions, after = admissible_or_fallback(problem, before, None, jnp.asarray([0.5, 0.0]), jnp.full((3, 1), 0.9))
    assert after.checked.fallback and np.isfinite(float(after.checked.margin)) and after.last == actions[0]
    return np.asarray(actions)[:, 0].tolist(), int(after.left), np.asarray(after.rest)[:, 0].tolist()


@pytest.mark.parametrize(
    ("name", "left", "expected"),
    [
        ("last-plan", 2, [0.1, 0.2, 0.3]),
        ("last-plan", 0, [0.9, 0.9, 0.9]),  # the plan of least violation
        ("hold", 2, [0.7, 0.7, 0.7]),
        ("zero", 2, [0.0, 0.0, 0.0]),
        ("brake", 2, [-0.5, -0.5, -0.5]),
    ],
)
def test_fallback_acts_where_no_plan_is_admissible(x64, name, left, expected):
    actions, still_left, rest = fallback_of(name, left, lambda x: -x[:1])
    assert actions == pytest.approx(expected)
    assert still_left == max(left - 1, 0) and rest == pytest.approx([0.2, 0.3, 0.3])


def test_admissible_plan_is_followed_and_its_rest_kept(x64):
    problem = problem_with(first_below, horizon=2)
    before = initial_safe_state(problem, None, 3)
    plan = jnp.asarray([[0.1], [0.2], [5.0]])
    actions, after = admissible_or_fallback(problem, before, None, jnp.zeros(2), plan)
    assert np.asarray(actions)[:, 0].tolist() == [0.1, 0.2, 1.0] and not after.checked.fallback
    assert int(after.left) == 1, "two steps are checked, and one of them is taken now"
    assert float(after.checked.margin) == pytest.approx(LIMIT - 0.3 * 0.3 - 2 * BETA * STD)


def test_compiled_rollout_and_steps_one_by_one_agree(x64):
    world = Pendulum()
    safety = safety_named(world, ("thdot=-1:1",), SafetySettings(fallback="brake"))
    problem = ControlProblem(TrueDynamics(world), Mean(), of_action(lambda u: u), 3, 1, safety=safety)
    policy = jax.tree.map(lambda leaf: leaf[None], PlanningPolicy(problem, replace(PLANNER, horizon=4, samples=20)))
    controllers = [Controller(policy, jax.random.split(jax.random.key(0), 1), 3) for _ in range(2)]
    whole, x = rollout(world, controllers[0], 8), np.array([-1.0, 0.0, 0.0])
    for step in range(8):
        u = controllers[1](x)
        np.testing.assert_allclose(u, whole.actions[0, step], atol=1e-9)
        x = np.asarray(world.dynamics(jnp.asarray(x), jnp.asarray(u)))
    assert whole.fallback.shape == whole.planned_margin.shape == (1, 8)
    assert [bool(each.fallback[0]) for each in controllers[1].checks] == whole.fallback[0].tolist()
    assert np.abs(whole.next_states[0, :, 2]).max() <= 1 + 1e-9, "the model is exact"


# ---- names and errors --------------------------------------------------------------------------------------------------------


def test_box_on_a_state():
    both, low = (constraint_named(Pendulum(), text) for text in ("thdot=-5:4", "thdot=-5:"))
    x = np.array([1.0, 0.0, 3.0])
    assert both.name == "thdot" and both.function(x, 0, x) == 1.0 and low.function(x, 0, x) == 8.0
    assert constraint_named(Pendulum(), "thdot=-5:4").function is both.function, "one program for equal boxes"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("sped", r"unknown constraint 'sped'; did you mean 'speed'"),
        ("thdt=-1:1", r"no state 'thdt'; did you mean 'thdot'"),
        ("thdot=5:-5", r"LOW below HIGH"),
        ("thdot=:", r"LOW below HIGH"),
        ("thdot=5", r"expected thdot=LOW:HIGH"),
    ],
)
def test_unusable_constraint_is_rejected(name, message):
    with pytest.raises(SondeError, match=message):
        RunConfig(constraints=(name,), safety=SafetySettings(start="0.1"))


@pytest.mark.parametrize(
    ("world", "name", "index", "values"),
    [
        (Pendulum(), "speed", 2, {0.0: 5.0, 5.5: -0.5, -6.0: -1.0}),
        (MountainCar(), "left-end", 0, {-1.2: -0.1, -1.0: 0.1}),
        (Cheetah(), "torso", 2, {0.25: 0.75, 1.5: -0.5, -1.5: -0.5}),
    ],
)
def test_constraints_of_worlds(world, name, index, values):
    function, x = constraint_named(world, name).function, jnp.zeros(world.state_dim)
    for value, margin in values.items():
        assert float(function(x, jnp.zeros(world.action_dim), x.at[index].set(value))) == pytest.approx(margin, abs=1e-6)


def test_constraints_on_the_command_line_may_be_named_one_by_one():
    words = ["pendulum-gp-lite", "--constraint", "speed", "--rounds", "2", "--constraint=thdot=:4"]
    assert with_constraints(words) == ["pendulum-gp-lite", "--rounds", "2", "--constraints", "speed", "thdot=:4"]
    words = ["--constraints", "speed", "a.py:g", "--constraint", "thdot=:4", "stray", "--safety.start", "0.3"]
    assert with_constraints(words) == ["stray", "--safety.start", "0.3", "--constraints", "speed", "a.py:g", "thdot=:4"]
    assert with_constraints(["--constraint", "--rounds", "2"]) == ["--constraint", "--rounds", "2"]


def test_function_in_a_file(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "def slow(x, u, x_next):\n    return 5 - x_next[2] ** 2\n"
        "def two(x, u, x_next):\n    return x_next[:2]\n"
        "def calm(x):\n    return -0.1 * x[2:]\n"
    )
    config = RunConfig(constraints=(f"{file}:slow",), safety=SafetySettings(fallback=f"{file}:calm", start=f"{file}:calm"))
    safety = with_absolute_paths(config).resolved_safety
    assert safety == config.resolved_safety and safety.constraints[0].name == "slow" and safety.starts_cautiously
    with pytest.raises(SondeError, match=r"must give real numbers of shape \[\]"):
        _ = replace(config, constraints=(f"{file}:two",)).resolved_safety
    with pytest.raises(SondeError, match=r"failed with TypeError"):
        _ = replace(config, constraints=(f"{file}:calm",)).resolved_safety


def test_nothing_is_safe_before_anything_is_known():
    with pytest.raises(SondeError, match=r"nothing is known.*--data FILE.*--safety\.start"):
        RunConfig(constraints=("speed",))
    safety = Safety(constraints=(Constraint("speed", Pendulum().constraints["speed"]),))
    explorer = Explorer(METHODS["opax"], GaussianProcess(steps=3, rank=8), PLANNER, Pendulum().spec, capacity=20)
    with pytest.raises(SondeError, match="nothing is known"):
        explorer.constrain(safety).ask()
    RunConfig(constraints=("speed",), data="measured.csv")


@pytest.mark.slow
def test_known_physics_is_a_start_too(x64):
    model = KnownPhysics(GaussianProcess(steps=3, rank=8), Pendulum(mass=1.3))
    RunConfig(constraints=("speed",), model=model)
    safety = Safety(constraints=(Constraint("speed", Pendulum().constraints["speed"]),))
    explorer = Explorer(METHODS["opax"], model, PLANNER, Pendulum().spec, capacity=20)
    found = rollout(Pendulum(), explorer.constrain(safety).ask(), 3)
    assert found.fallback.shape == (1, 3), "its first round is planned and checked"


def test_settings_that_cannot_work_are_rejected():
    with pytest.raises(SondeError, match="no constraints"):
        RunConfig(safety=SafetySettings(beta=3.0))
    with pytest.raises(SondeError, match="does not plan"):
        RunConfig(constraints=("speed",), safety=SafetySettings(start="0.1"), method=METHODS["random"])
    with pytest.raises(SondeError, match="different names"):
        RunConfig(constraints=("thdot=-1:", "thdot=:1"), safety=SafetySettings(start="0.1"))
    with pytest.raises(SondeError, match="brake of its own"):
        safety_named(OwnSystem(states=("x",)), ("x=:1",), SafetySettings(fallback="brake"))
    for settings in ({"start": "2"}, {"start": "fast"}, {"fallback": "run"}, {"corners": 3}, {"beta": -1.0}, {"horizon": -1}):
        with pytest.raises(SondeError):
            SafetySettings(**settings)


def test_cautious_start_is_small_or_the_feedback(x64):
    safety = Safety(constraints=(Constraint("speed", Pendulum().constraints["speed"]),), start="0.2")
    explorer = Explorer(METHODS["opax"], GaussianProcess(steps=3, rank=8), PLANNER, Pendulum().spec, capacity=20, seeds=(0, 1))
    found = rollout(Pendulum(), explorer.constrain(safety).ask(), 20)
    assert 0.15 < np.abs(found.actions).max() <= 0.2 and found.fallback is None
    assert not np.array_equal(found.actions[0], found.actions[1])
    braking = replace(safety, start="brake", start_feedback=Pendulum().brake)
    found = rollout(Pendulum(), explorer.constrain(braking).ask(), 5)
    np.testing.assert_allclose(found.actions[..., 0], np.clip(-found.states[..., 2], -1, 1))


# ---- metrics -----------------------------------------------------------------------------------------------------------------


def test_metrics_of_a_round():
    safety = safety_named(OwnSystem(states=("a", "b")), ("a=-1:1", "b=:2"), SafetySettings())
    after = np.array([[[0.0, 0.0], [1.5, 1.0], [0.5, 2.5], [-3.0, 3.0]]])
    trajectory = Trajectory(after, np.zeros((1, 4, 1)), after, planned_margin=np.array([[0.5, 0.2, -1.0, -2.0]]))
    trajectory = replace(trajectory, fallback=np.array([[False, False, True, True]]))
    found = {key: float(value[0]) for key, value in constraint_metrics(safety, trajectory).items()}
    assert found == {
        **{"planned_margin": 0.2, "fallback": 0.5, "violations": 0.75},
        **{"margin/a": -2.0, "violations/a": 0.5, "violation_depth/a": 2.0},
        **{"margin/b": -1.0, "violations/b": 0.5, "violation_depth/b": 1.0},
    }
    assert constraint_metrics(None, trajectory) == {}


# ---- runs --------------------------------------------------------------------------------------------------------------------

SAFE = replace(TINY, constraints=("thdot=-3:3",), safety=SafetySettings(start="0.3"), evaluation_tasks=("swing-up",))


def without_times(rows):
    return [{key: value for key, value in row.items() if not key.startswith("seconds")} for row in rows]


@pytest.mark.slow
def test_interrupted_run_ends_with_the_same_bits(tmp_path):
    config = replace(SAFE, seeds=2, rollouts=2)
    whole, parts = (RunStore.create(tmp_path / name, config) for name in ("whole", "parts"))
    run(whole)
    run(RunStore.open(whole.folder), from_round=2)  # as after a kill in the third round
    run(parts)
    assert without_times(whole.load_metrics()) == without_times(parts.load_metrics())
    for one, other in zip(whole.load_data(3), parts.load_data(3), strict=True):
        for name in ("states", "planned_margin", "fallback"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    rows = whole.load_metrics()
    assert rows[0]["fallback"] is None and rows[-1]["fallback"] is not None, "the first round is cautious"
    assert all(row["violations"] == row["violations/thdot"] and "task_violations/swing-up" in row for row in rows)
    first = whole.load_data(3)[0]
    assert np.abs(first.actions).max() <= 0.3 and first.fallback is None
    assert restore_explorer(whole).safety == config.resolved_safety


@pytest.mark.slow
def test_constraint_that_cannot_be_met_gives_the_fallback_and_no_nan(tmp_path):
    config = replace(SAFE, rounds=2, constraints=("thdot=100:",), safety=SafetySettings(start="0.3", fallback="brake"))
    store = RunStore.create(tmp_path / "run", config)
    run(store)
    row = store.load_metrics()[-1]
    assert row["fallback"] == row["violations"] == row["task_violations/swing-up"] == 1.0
    assert row["planned_margin"] is None and np.isfinite(row["margin/thdot"])
    data = store.load_data(2)[1]
    np.testing.assert_allclose(data.actions[..., 0], np.clip(-data.states[..., 2], -1, 1), atol=1e-12)


OWN = RunConfig(
    world=OwnSystem(states=("angle", "speed"), actions=("torque",)),
    rounds=2,
    horizon=8,
    model=GaussianProcess(steps=3, rank=8),
    solver=ICEM(horizon=3, samples=8, elites=2, iterations=2),
    constraints=("speed=-2:2",),
    safety=SafetySettings(start="0.5", fallback="hold"),
)


@pytest.mark.slow
@pytest.mark.parametrize("rate", [None, 2.0])
def test_own_system_keeps_what_was_checked(tmp_path, rate):
    with Experiment(tmp_path / "run", OWN) as experiment:
        for _ in range(2):
            policy, x, rows = experiment.ask(rate=rate), np.zeros(2), []
            for _ in range(5):
                u = policy(x)
                rows.append((x, u, np.array([x[0] + 0.1 * x[1], 0.9 * x[1] + 0.2 * u[0]])))
                x = rows[-1][-1]
            told = experiment.tell(Trajectory(*map(np.array, zip(*rows, strict=True))))
        assert len(policy.checks) == 5 and 0 <= told[0]["fallback"] <= 1 and told[0]["violations"] == 0
        saved = RunStore.open(tmp_path / "run").load_data(2)[1]
        assert saved.fallback.shape == saved.planned_margin.shape == (1, 5)
        assert np.isfinite(experiment.solve(lambda x, u, x_next: -(x_next[0] ** 2), rate=rate)(x)).all()


PHYSICS = "def swing(x, u, gain=0.3):\n    return x + 0.1 * x[::-1] + gain * u[0]\n"
SETS = {
    "physics": {"model": ("swing", {"gain": (0.0, 1.0)}), "method": "sombrl"},
    "past": {"delay": 1, "history": 2, "method": "opax-task"},
}


def config_with(name, tmp_path):
    """A system of one's own with many options at once."""
    (tmp_path / "mine.py").write_text(PHYSICS + "def slow(x, u, x_next):\n    return -x_next[1] ** 2\n")
    given, config = dict(SETS[name]), replace(OWN, horizon=10, rounds=3, confidence=Confidence(window=15))
    function, ranges = given.pop("model", (None, None))
    if function is not None:
        config = replace(config, model=KnownPhysics(OWN.model, f"{tmp_path}/mine.py:{function}", ranges))
    return replace(config, method=METHODS[given.pop("method")], exploration_task=f"{tmp_path}/mine.py:slow", **given)


def measured(policy, steps=10):
    x, rows = np.zeros(2), []
    for _ in range(steps):
        u = policy(x)
        rows.append((x, u, np.array([x[0] + 0.1 * x[1], 0.9 * x[1] + 0.2 * u[0]])))
        x = rows[-1][-1]
    return Trajectory(*map(np.array, zip(*rows, strict=True)))


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_options_together_go_on_bit_for_bit_after_an_interruption(tmp_path, name):
    config, params = config_with(name, tmp_path), {}
    for label, ends in (("whole", (3,)), ("parts", (1, 2, 3))):  # each end is a process of its own
        for end in ends:
            with Experiment(tmp_path / label, config) as experiment:
                while experiment.explorer.round < end:
                    experiment.tell(measured(experiment.ask()))
                params[label] = experiment.explorer.params
    for one, other in zip(*(jax.tree.leaves(params[label]) for label in ("whole", "parts")), strict=True):
        np.testing.assert_array_equal(one, other)
    whole, parts = (RunStore.open(tmp_path / label).load_data(3) for label in ("whole", "parts"))
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(one.actions, other.actions)


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_options_together_keep_a_rate(tmp_path, name):
    with Experiment(tmp_path / "run", config_with(name, tmp_path)) as experiment:
        for number in range(2):
            policy = experiment.ask(rate=5.0)
            (row,) = experiment.tell(measured(policy))
            assert np.isfinite(row["bonus_weight"]) and (row["fallback"] is None) == (number == 0 and name == "past")
            assert len(policy.checks) == (10 if row["fallback"] is not None else 0)


@pytest.mark.slow
def test_gymnasium_world_with_a_box(tmp_path):
    world = GymWorld("Pendulum-v1", reachable_steps=0)
    config = replace(SAFE, world=world, constraints=("x2=-4:4",), rounds=2, evaluation_tasks=(), rollouts=2)
    store = RunStore.create(tmp_path / "run", config)
    run(store)
    second = store.load_data(2)[1]
    assert second.fallback.shape == second.planned_margin.shape == (1, 24)
    assert store.load_metrics()[-1]["fallback"] == pytest.approx(second.fallback.mean())


@pytest.mark.slow
def test_multiplier_keeps_a_trained_policy_within_limits(x64):
    # it is paid for large actions, and steps beyond 0.5 are risky
    solver = SAC(training_steps=30, gradient_steps=60, starts=32, horizon=3, batch_size=64, discount=0.5, actor=(16, 16))
    solver = replace(
        solver, critic=(32, 32), actor_learning_rate=3e-3, critic_learning_rate=3e-3, temperature_learning_rate=1e-2
    )
    data = Data.empty(16, 2, 1).append(np.zeros((16, 2)), np.zeros((16, 1)), np.zeros((16, 2)))
    limited = problem_with(lambda x, u, x_next: 0.5 - x_next[0], np.zeros((2, 2)), std=0.01)
    limited = replace(limited, posterior=replace(limited.posterior, b=jnp.asarray([[1.0], [0.0]])))
    act = lambda problem: float(
        solver.policy(problem, data, jax.random.key(0)).act(None, jnp.zeros(2), jax.random.key(0))[0][0]
    )
    assert act(replace(limited, safety=None)) > 0.8 and 0 < act(limited) < 0.55


@pytest.mark.slow
def test_oracle_keeps_the_constraint_in_a_task():
    world = MountainCar()
    setup = TaskSetup.named(world, "reach-goal", replace(PLANNER, horizon=30), 60)
    setup = replace(setup, safety=safety_named(world, ("position=-0.7:",), SafetySettings()))
    found = evaluate(setup, Learned(TrueDynamics(world)), jax.random.split(jax.random.key(0), 2))
    assert found.violations.shape == (2,) and (found.violations == 0).all()


def test_config_with_constraints_goes_to_json_and_back(tmp_path):
    store = RunStore.create(tmp_path / "run", replace(preset("pendulum-gp-lite"), constraints=("speed",), safety=SAFE.safety))
    assert RunStore.open(store.folder).config == store.config
    assert json.loads((store.folder / "config.json").read_text())["constraints"] == ["speed"]


def test_method_of_a_spec_without_a_world(x64):
    safety = Safety(constraints=(Constraint("first", first_below),), start="0.1")
    explorer = Explorer(METHODS["opax"], GaussianProcess(steps=3, rank=8), PLANNER, SystemSpec.of_size(2, 1), capacity=8)
    assert np.abs(explorer.constrain(safety).ask()(np.zeros(2))).max() <= 0.1
