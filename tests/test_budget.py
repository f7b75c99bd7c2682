"""Planning against the clock: no real time is measured here, a clock of our own says what everything takes."""

import concurrent.futures
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from control_problems import Linear, clock, midnight, of_action, problem_of
from sonde import ICEM, Controller, Planner, SondeError, policies, realtime, rollout, planning
from sonde.objectives import TaskReward
from sonde.solvers._base import PlanningPolicy
from sonde.solvers._icem import ICEMState
from sonde.solvers._policy import RandomPolicy
from sonde.worlds import Pendulum

CONSTANT = ICEM(horizon=4, samples=8, elites=2, iterations=9)  # turns of one size: warming up takes three
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


def round_number(policy: Controller) -> np.ndarray:
    states = np.linspace(-1.0, 1.0, 4 * policy.num_seeds * 2).reshape(4, policy.num_seeds, 2)
    return np.stack([policy(x) for x in states])


@pytest.mark.parametrize(("runs", "solver"), [(1, CONSTANT), (2, DECAYING)])
def test_with_time_enough_a_budget_changes_nothing(num_seeds, solver):
    free, timed = controller(num_seeds, solver), controller(num_seeds, solver, budget=1e6)
    np.testing.assert_allclose(round_number(timed), round_number(free), atol=1e-12)
    assert (timed.iterations, timed.late) == (solver.iterations, 0) and (free.iterations, free.late) == (0, 0)


class Clock:
    """Time passes only while something is computed; `turns` says how long each turn takes (the last entry: all that follow)."""

    def __init__(self, monkeypatch, iteration_sizes, finish=0.003, per_plan=0.0):
        self.now, self.lasts, self.iteration_sizes, self.sizes = 0.0, [], list(iteration_sizes), []
        improve, end = planning._improve, planning._finish

        def timed_improve(*arguments, size):
            self.now += self.iteration_sizes.pop(0) if len(self.iteration_sizes) > 1 else self.iteration_sizes[0]
            self.now += per_plan * size
            self.lasts.append(bool(arguments[6]))
            self.sizes.append(size)
            return improve(*arguments, size=size)

        def timed_finish(*arguments):
            self.now += finish
            return end(*arguments)

        def done_by(deadline, work):
            concurrent.futures.wait([work])
            return self.now <= deadline

        for module in (policies, planning):
            monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: self.now))
        monkeypatch.setattr(realtime, "done_by", done_by)
        monkeypatch.setattr(planning, "_improve", timed_improve)
        monkeypatch.setattr(planning, "_finish", timed_finish)


@pytest.mark.parametrize(
    ("budget", "turns"), [(0.0131, 1), (0.0231, 2), (0.0329, 2), (0.0331, 3), (0.0631, 6), (0.0931, 9), (5.0, 9), (0.001, 1)]
)
def test_turns_go_on_while_they_fit_and_the_last_one_knows_it(monkeypatch, budget, iteration_sizes):
    own = Clock(monkeypatch, [0.01])
    policy = controller(budget=budget)
    own.lasts.clear()
    began = own.now
    policy(np.zeros(2))
    assert own.lasts == [False] * (iteration_sizes - 1) + [True]
    assert own.now - began == pytest.approx(0.01 * iteration_sizes + 0.003)
    late = budget < 0.013
    assert policy.late == late and policy.iterations == (0 if late else iteration_sizes)


@pytest.mark.parametrize(("budget", "size", "turns"), [(0.0521, 8, 3), (0.0331, 4, 3), (0.0281, 4, 3), (0.0201, 4, 2)])
def test_a_small_budget_gets_several_small_turns(monkeypatch, budget, size, iteration_sizes):
    """Turns of 8 plans take 16 ms, and 4 plans are the fewest that make sense of two elites."""
    own = Clock(monkeypatch, [0.0], per_plan=0.002)
    policy = controller(budget=budget)
    own.sizes.clear()
    policy(np.zeros(2))
    assert own.sizes == [size] * iteration_sizes and (policy.late, policy.iterations) == (0, iteration_sizes)


def test_compilation_does_not_count_and_a_slow_turn_is_remembered(monkeypatch):
    # the first rounds of the warm-up "compile" for 9 s; in the first call one turn takes 25 ms
    own = Clock(monkeypatch, [9.0, 9.0, 0.01, 0.01, 0.01, 0.01, 0.025, 0.01])
    policy = controller(budget=0.0431)
    policy(np.zeros(2))
    assert policy.iterations == 2 and policy.late == 0
    policy(np.zeros(2))
    assert policy.iterations == 1, "two turns of 25 ms do not fit"
    for _ in range(20):
        policy(np.zeros(2))
    assert policy.iterations == 4, "it is forgotten in the end"
    own.iteration_sizes = [0.1]
    policy(np.zeros(2))
    assert policy.late == 1
    policy.reset()
    assert (policy.late, policy.iterations) == (0, 0)


def test_nothing_compiles_after_the_policy_was_made():
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, _, **__: compiled.append(event) if "backend_compile" in event else None
    )
    solver = ICEM(horizon=3, samples=8, elites=2, iterations=2, decay=2.0)  # as no other test has it
    policy = controller(solver=solver, budget=1e6)
    before = len(compiled)
    assert before > 0, "the listener must have seen the policy being compiled"
    round_number(policy)
    policy.reset()
    round_number(policy)
    assert len(compiled) == before


def test_a_search_that_is_cut_after_one_turn_still_tries_its_mean(x64):
    problem = problem_of(clock(), of_action(lambda u: -((u - 0.3) ** 2)))
    mean = jnp.full((4, 1), 0.3)  # the optimum, which no draw hits
    search = CONSTANT.begin(problem, ICEMState(mean, jnp.full((CONSTANT.kept_elites, 4, 1), jnp.nan)))
    key, first = jax.random.key(0), jnp.asarray(0)
    iteration = jax.jit(lambda last: CONSTANT.finish(CONSTANT.improve(problem, search, midnight(), key, first, last, 8))[0])
    found = [iteration(jnp.asarray(last)) for last in (True, False)]
    assert np.array_equal(found[0], mean) and not np.array_equal(found[1], mean)


class Whole(Planner):
    """Plans in one piece."""

    def start(self, problem):
        return jnp.zeros(())

    def plan(self, problem, state, x, key):
        return jnp.zeros((3, problem.control_dim)), state


def test_a_planner_in_one_piece_refuses_a_budget():
    assert controller(solver=Whole())(np.zeros(2)) == 0
    with pytest.raises(SondeError, match="Whole plans in one piece and cannot keep a budget"):
        controller(solver=Whole(), budget=0.1)


def test_a_budget_changes_nothing_for_a_policy_that_does_not_plan():
    keys = jax.random.split(jax.random.key(0), 2)
    free, timed = (Controller(RandomPolicy(1), keys, 2, budget) for budget in (None, 1e6))
    assert np.array_equal(round_number(free), round_number(timed))
    assert (timed.iterations, timed.late) == (0, 0)


@pytest.mark.parametrize("budget", [0.0, -1.0, float("nan"), float("inf")])
def test_a_budget_is_a_time(budget):
    with pytest.raises(SondeError, match="budget must be above 0"):
        controller(budget=budget)


def test_a_compiled_episode_refuses_a_budget():
    keys = jax.random.split(jax.random.key(0), 1)
    with pytest.raises(SondeError, match="Pendulum waits for its planner"):
        rollout(Pendulum(), Controller(RandomPolicy(1), keys, 3, 0.1), 5)
