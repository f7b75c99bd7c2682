"""Planning within a time budget. No real time is measured: a simulated clock says how long each computation takes."""

import concurrent.futures
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from control_problems import Linear, clock, midnight, of_action, problem_of
from sonde import ICEM, Controller, SondeError, rollout
from sonde.control import _anytime, _controller, _deadline
from sonde.objectives import TaskReward
from sonde.solvers import Planner, PlanningPolicy, RandomPolicy
from sonde.solvers._icem import ICEMState
from sonde.worlds import Pendulum

CONSTANT = ICEM(horizon=4, samples=8, elites=2, iterations=9)  # iterations of one size
DECAYING = ICEM(horizon=4, samples=8, elites=2, iterations=3, decay=2.0)


def goal(x, u, x_next):
    return -((x_next[0] - 0.7) ** 2) - 0.1 * u[0] ** 2


def controller(num_seeds=1, solver: Planner = CONSTANT, budget=None) -> Controller:
    with jax.enable_x64(True):
        a = jnp.asarray([[1.0, 0.1], [0.0, 1.0]]) + 0.01 * jnp.arange(num_seeds)[:, None, None]
        b = jnp.broadcast_to(jnp.asarray([[0.0], [0.5]]), (num_seeds, 2, 1))
        known = Linear(a, b, jnp.zeros(num_seeds), jnp.zeros(num_seeds))
        policy = PlanningPolicy(problem_of(known, TaskReward(goal)), solver)
        return Controller(policy, jax.random.split(jax.random.key(3), num_seeds), 2, budget)


def actions_of(policy: Controller) -> np.ndarray:
    """Actions in four states, [4, S, du]."""
    states = np.linspace(-1.0, 1.0, 4 * policy.num_seeds * 2).reshape(4, policy.num_seeds, 2)
    return np.stack([policy(x) for x in states])


@pytest.mark.slow
@pytest.mark.parametrize(("num_seeds", "solver"), [(1, CONSTANT), (2, DECAYING)])
def test_a_sufficient_budget_changes_nothing(num_seeds, solver):
    free, timed = controller(num_seeds, solver), controller(num_seeds, solver, budget=1e6)
    np.testing.assert_allclose(actions_of(timed), actions_of(free), atol=1e-12)
    assert (timed.iterations, timed.late) == (solver.iterations, 0) and (free.iterations, free.late) == (0, 0)


class Clock:
    """Time passes only during computations; `durations` are those of the iterations (the last one: of all that follow)."""

    def __init__(self, monkeypatch, durations, finish=0.003, per_plan=0.0):
        self.now, self.lasts, self.durations, self.sizes = 0.0, [], list(durations), []
        improve, end = _anytime._improve, _anytime._finish

        def timed_improve(policy, search, x, keys, iteration, size):
            self.now += self.durations.pop(0) if len(self.durations) > 1 else self.durations[0]
            self.now += per_plan * size
            self.lasts.append(iteration.last)
            self.sizes.append(size)
            return improve(policy, search, x, keys, iteration, size=size)

        def timed_finish(*arguments):
            self.now += finish
            return end(*arguments)

        def done_by(deadline, work):
            concurrent.futures.wait([work])
            return self.now <= deadline

        for module in (_controller, _anytime):
            monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: self.now))
        monkeypatch.setattr(_deadline, "done_by", done_by)
        monkeypatch.setattr(_anytime, "_improve", timed_improve)
        monkeypatch.setattr(_anytime, "_finish", timed_finish)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("budget", "iterations"),
    [(0.0131, 1), (0.0231, 2), (0.0329, 2), (0.0331, 3), (0.0631, 6), (0.0931, 9), (5.0, 9), (0.001, 1)],
)
def test_iterations_continue_while_they_fit_and_the_last_one_is_marked(monkeypatch, budget, iterations):
    own = Clock(monkeypatch, [0.01])
    policy = controller(budget=budget)
    own.lasts.clear()
    began = own.now
    policy(np.zeros(2))
    assert own.lasts == [False] * (iterations - 1) + [True]
    assert own.now - began == pytest.approx(0.01 * iterations + 0.003)
    late = budget < 0.013
    assert policy.late == late and policy.iterations == (0 if late else iterations)


@pytest.mark.parametrize(("budget", "size", "iterations"), [(0.0521, 8, 3), (0.0331, 4, 3), (0.0281, 4, 3), (0.0201, 4, 2)])
def test_a_small_budget_gets_several_small_iterations(monkeypatch, budget, size, iterations):
    """Iterations with 8 plans take 16 ms, and 4 plans are the minimum with two elites."""
    own = Clock(monkeypatch, [0.0], per_plan=0.002)
    policy = controller(budget=budget)
    own.sizes.clear()
    policy(np.zeros(2))
    assert own.sizes == [size] * iterations and (policy.late, policy.iterations) == (0, iterations)


def test_compilation_does_not_count_and_a_slow_iteration_does(monkeypatch):
    # the first iterations of the warm-up "compile" for 9 s; in the first call one iteration takes 25 ms
    own = Clock(monkeypatch, [9.0, 9.0, 0.01, 0.01, 0.01, 0.01, 0.025, 0.01])
    policy = controller(budget=0.0431)
    policy(np.zeros(2))
    assert policy.iterations == 2 and policy.late == 0
    policy(np.zeros(2))
    assert policy.iterations == 1, "two iterations of 25 ms do not fit"
    for _ in range(20):
        policy(np.zeros(2))
    assert policy.iterations == 4, "only recent iterations count"
    own.durations = [0.1]
    policy(np.zeros(2))
    assert policy.late == 1
    policy.reset()
    assert (policy.late, policy.iterations) == (0, 0)


@pytest.mark.slow
def test_nothing_compiles_after_the_controller_was_created():
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, _, **__: compiled.append(event) if "backend_compile" in event else None
    )
    solver = ICEM(horizon=3, samples=8, elites=2, iterations=2, decay=2.0)  # as no other test has it
    policy = controller(solver=solver, budget=1e6)
    before = len(compiled)
    assert before > 0, "the listener must have seen the compilation"
    actions_of(policy)
    policy.reset()
    actions_of(policy)
    assert len(compiled) == before


def test_interrupted_search_evaluates_its_mean(x64):
    problem = problem_of(clock(), of_action(lambda u: -((u - 0.3) ** 2)))
    mean = jnp.full((4, 1), 0.3)  # the optimum, which no sample hits
    search = CONSTANT.begin(problem, ICEMState(mean, jnp.full((CONSTANT.kept_elites, 4, 1), jnp.nan)))
    key, first = jax.random.key(0), jnp.asarray(0)
    iteration = jax.jit(lambda last: CONSTANT.finish(CONSTANT.improve(problem, search, midnight(), key, first, last, 8))[0])
    found = [iteration(jnp.asarray(last)) for last in (True, False)]
    assert np.array_equal(found[0], mean) and not np.array_equal(found[1], mean)


class Whole(Planner):
    """A planner without iterations."""

    def initial_state(self, problem):
        return jnp.zeros(())

    def plan(self, problem, state, x, key):
        return jnp.zeros((3, problem.control_dim)), state


def test_planner_without_iterations_rejects_a_budget():
    assert controller(solver=Whole())(np.zeros(2)) == 0
    with pytest.raises(SondeError, match="a budget needs an AnytimePlanner, and Whole cannot be interrupted"):
        controller(solver=Whole(), budget=0.1)


def test_a_budget_changes_nothing_for_a_policy_that_does_not_plan():
    keys = jax.random.split(jax.random.key(0), 2)
    free, timed = (Controller(RandomPolicy(1), keys, 2, budget) for budget in (None, 1e6))
    assert np.array_equal(actions_of(free), actions_of(timed))
    assert (timed.iterations, timed.late) == (0, 0)


@pytest.mark.parametrize("budget", [0.0, -1.0, float("nan"), float("inf")])
def test_budget_must_be_positive_and_finite(budget):
    with pytest.raises(SondeError, match="budget must be above 0"):
        controller(budget=budget)


def test_compiled_rollout_rejects_a_budget():
    keys = jax.random.split(jax.random.key(0), 1)
    with pytest.raises(SondeError, match="Pendulum is simulated"):
        rollout(Pendulum(), Controller(RandomPolicy(1), keys, 3, 0.1), 5)
