"""Actions by a deadline. Slow planning is simulated with locks, not with the clock: it waits until it is released."""

import concurrent.futures
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from control_problems import Linear, problem_of
from sonde import (
    ICEM,
    METHODS,
    Controller,
    Experiment,
    Explorer,
    GaussianProcess,
    OwnSystem,
    RunConfig,
    SondeError,
    SystemSpec,
)
from sonde.control import Timing, _deadline
from sonde.control._deadline import DeadlineRunner, SearchResult, seconds_per_action
from sonde.objectives import TaskReward
from sonde.solvers import AnytimePolicy, PlanningPolicy

FAR = 1e9  # seconds until a deadline that is always met
SOLVER = ICEM(horizon=4, samples=8, elites=2, iterations=3)
SOON = 0.05  # seconds until a deadline that is missed


def goal(x, u, x_next):
    return -((x_next[0] - 0.7) ** 2) - 0.1 * u[0] ** 2


def plan_of(step: int) -> np.ndarray:
    """Two seeds, three steps; every number shows where it comes from."""
    return np.array([[[100.0 * step + 10 * ahead + seed] for ahead in range(3)] for seed in range(2)])


INITIAL = SearchResult(plan_of(-1), 0, "nothing", 0, 0)


class FakeSearch:
    """A search that returns at once, except at the steps in `locks`: there it waits until they are released."""

    def __init__(self, *slow_steps: int):
        self.locks = {step: threading.Event() for step in slow_steps}
        self.calls: list[tuple[int, int]] = []  # the step, and the step that the latest result was ready for

    def __call__(self, latest: SearchResult, states: np.ndarray, step: int, deadline: float) -> SearchResult:
        self.calls.append((step, latest.next_step))
        if step in self.locks:
            assert self.locks[step].wait(60)
        self.states = states.tolist()
        if np.isnan(states).any():
            raise SondeError("no such state")
        return SearchResult(plan_of(step), step, f"after {step}", step + 1, 4)


def ask(runner: DeadlineRunner, step: int, seconds: float) -> tuple[np.ndarray, bool]:
    return runner(np.zeros((2, 1)), step, time.perf_counter() + seconds)


def test_action_in_time_is_the_first_of_the_new_plan():
    search = FakeSearch()
    runner = DeadlineRunner(search, INITIAL)
    for step in range(3):
        actions, new = ask(runner, step, FAR)
        assert new and np.array_equal(actions, plan_of(step)[:, 0])
    assert search.calls == [(0, 0), (1, 1), (2, 2)] and runner.latest.iterations == 4


def test_late_action_is_the_next_of_the_latest_plan_and_comes_at_the_deadline():
    search = FakeSearch(1)
    runner = DeadlineRunner(search, INITIAL)
    ask(runner, 0, FAR)
    began = time.perf_counter()
    actions, new = ask(runner, 1, SOON)  # it does not wait for the lock, which is released below
    assert time.perf_counter() - began > 0.9 * SOON, "it waits until the deadline"
    assert not new and np.array_equal(actions, plan_of(0)[:, 1])
    search.locks[1].set()
    actions, new = ask(runner, 2, FAR)
    assert new and np.array_equal(actions, plan_of(2)[:, 0])
    assert search.calls == [(0, 0), (1, 1), (2, 2)], "the search continues from the late result"


def test_a_late_plan_becomes_the_latest_plan():
    search = FakeSearch(1, 2)
    runner = DeadlineRunner(search, INITIAL)
    ask(runner, 0, FAR)
    ask(runner, 1, SOON)
    search.locks[1].set()
    assert runner.drain().first_step == 1
    actions, new = ask(runner, 2, SOON)
    assert not new and np.array_equal(actions, plan_of(1)[:, 1])
    search.locks[2].set()


def test_steps_that_pass_during_a_search_are_skipped():
    search = FakeSearch(1)
    runner = DeadlineRunner(search, INITIAL)
    ask(runner, 0, FAR)
    answers = [ask(runner, step, SOON)[0] for step in (1, 2, 3)]
    for answer, ahead in zip(answers, (1, 2, 2), strict=True):  # after the end of the plan, its last action is repeated
        assert np.array_equal(answer, plan_of(0)[:, ahead])
    search.locks[1].set()
    actions, new = ask(runner, 4, FAR)
    assert new and np.array_equal(actions, plan_of(4)[:, 0])
    assert search.calls == [(0, 0), (1, 1), (4, 2)], "the search is told that two steps passed"


def test_late_first_action_is_that_of_the_initial_plan():
    search = FakeSearch(0)
    runner = DeadlineRunner(search, INITIAL)
    actions, new = ask(runner, 0, SOON)
    assert not new and np.array_equal(actions, plan_of(-1)[:, 0])
    search.locks[0].set()


def test_caller_may_reuse_arrays_during_a_search():
    search = FakeSearch(0)
    runner = DeadlineRunner(search, INITIAL)
    buffer = np.ones((2, 1))
    actions, _ = runner(buffer, 0, time.perf_counter() + SOON)
    actions += 5.0
    buffer[:] = 7.0
    search.locks[0].set()
    runner.drain()
    assert search.states == [[1.0], [1.0]] and np.array_equal(INITIAL.plan, plan_of(-1))


def test_restart_discards_the_running_search():
    search = FakeSearch(0)
    runner = DeadlineRunner(search, INITIAL)
    ask(runner, 0, SOON)
    threading.Timer(SOON, search.locks[0].set).start()
    runner.restart(INITIAL)
    assert search.locks[0].is_set() and runner.drain() is INITIAL
    ask(runner, 0, FAR)
    assert search.calls == [(0, 0), (0, 0)]


def test_exception_in_the_thread_is_raised_in_the_caller_and_the_next_call_works():
    runner = DeadlineRunner(FakeSearch(), INITIAL)
    with pytest.raises(SondeError, match="no such state"):
        runner(np.full((2, 1), np.nan), 0, time.perf_counter() + FAR)
    assert ask(runner, 0, FAR)[1]


def test_seconds_per_action_come_from_a_budget_or_a_rate():
    assert seconds_per_action(None, None) is None and seconds_per_action(0.3, None) == 0.3
    assert seconds_per_action(None, 50) == pytest.approx(0.018)
    with pytest.raises(SondeError, match=r"budget \(seconds\) or a rate \(Hz\), got both, 0.02 and 50"):
        seconds_per_action(0.02, 50)
    for rate in (0, -1.0, float("nan"), float("inf")):
        with pytest.raises(SondeError, match="rate must be above 0"):
            seconds_per_action(None, rate)


@pytest.mark.slow
def test_explorer_and_experiment_take_a_budget_or_a_rate(tmp_path):
    explorer = Explorer(METHODS["random"], GaussianProcess(), SOLVER, SystemSpec.of_size(2, 1), capacity=10)
    assert explorer.ask(rate=20).budget == pytest.approx(0.045) and explorer.ask(0.1).budget == 0.1
    world = OwnSystem(states=("position", "speed"), actions=("push",))
    config = RunConfig(world=world, method=METHODS["random"], model=GaussianProcess(), solver=SOLVER)
    with Experiment(tmp_path / "run", config) as experiment:
        assert experiment.ask(rate=20).budget == pytest.approx(0.045)
        assert experiment.solve(goal, rate=20).budget == pytest.approx(0.045)
        for ask_both in (explorer.ask, experiment.ask, lambda **both: experiment.solve(goal, **both)):
            with pytest.raises(SondeError, match="got both"):
                ask_both(budget=0.1, rate=20)


def test_timing_counts_calls_and_keeps_recent_durations(monkeypatch):
    timing = Timing()
    assert np.isnan(timing.quantile(0.5))
    for milliseconds in range(1, 102):
        timing.add(milliseconds / 1e3, late=milliseconds > 99)
    assert (timing.calls, timing.late, timing.worst) == (101, 2, 0.101)
    assert timing.quantile(0.5) == pytest.approx(0.051) and timing.quantile(0.99) == pytest.approx(0.1)
    assert str(timing) == "101 actions, 2 late; median 51.0 ms, p99 100.0 ms, worst 101.0 ms"
    monkeypatch.setattr(_deadline, "RECENT_CALLS", 2)
    short = Timing()
    for seconds in (9.0, 1.0, 2.0):
        short.add(seconds, late=False)
    assert (short.calls, short.worst, short.quantile(1.0)) == (3, 9.0, 2.0)


# ---- a controller with a planner ---------------------------------------------------------------------------------------------

STATES = np.linspace(-1.0, 1.0, 12).reshape(6, 1, 2)


def policy_for(num_seeds: int) -> PlanningPolicy:
    with jax.enable_x64(True):
        a = jnp.asarray([[1.0, 0.1], [0.0, 1.0]]) + 0.01 * jnp.arange(num_seeds)[:, None, None]
        b = jnp.broadcast_to(jnp.asarray([[0.0], [0.5]]), (num_seeds, 2, 1))
        return PlanningPolicy(problem_of(Linear(a, b, jnp.zeros(num_seeds), jnp.zeros(num_seeds)), TaskReward(goal)), SOLVER)


def controller(num_seeds: int = 1, budget: float | None = FAR) -> Controller:
    return Controller(policy_for(num_seeds), jax.random.split(jax.random.key(3), num_seeds), 2, budget)


def scripted(monkeypatch, *answers: bool) -> None:
    """All planning finishes at once; whether it was in time is read from a script."""
    script = list(answers)

    def done_by(deadline: float, work: concurrent.futures.Future) -> bool:
        concurrent.futures.wait([work])
        return script.pop(0)

    monkeypatch.setattr(_deadline, "done_by", done_by)


class Reference:
    """The planner of a single seed, step by step and without a clock: what a controller is compared with."""

    def __init__(self, timed: Controller):
        with jax.enable_x64(True):
            self.policy = jax.tree.map(lambda leaf: leaf[0], timed.policy)
            self.key, self.state = timed._plan_keys[0, 0], self.policy.initial_state()
            self.improve = jax.jit(lambda *arguments: self.policy.improve(*arguments, SOLVER.samples))

    def step(self, number: int, plans: bool = True) -> np.ndarray:
        """The plan [H, du] of this step; without planning, the rest of the previous one."""
        with jax.enable_x64(True), jax.default_matmul_precision("highest"):
            search, key = self.policy.begin(self.state), jax.random.fold_in(self.key, number)
            for iteration in range(SOLVER.iterations if plans else 0):
                last = jnp.asarray(iteration == SOLVER.iterations - 1)
                x = jnp.asarray(STATES[number, 0])
                search = self.improve(search, x, key, jnp.asarray(iteration), last)
            plan, self.state = self.policy.finish(search)
            return np.asarray(plan)


@pytest.mark.slow
def test_after_a_missed_deadline_planning_continues_from_the_late_plan(monkeypatch):
    scripted(monkeypatch, True, False, True, True)  # step 0; step 1 is late; step 2 finds it finished, and is in time itself
    timed = controller()
    reference = Reference(timed)
    plans = [reference.step(number) for number in range(3)]
    answers, iterations = [], []
    for x in STATES[:3]:
        answers.append(timed(x)[0])
        iterations.append(timed.iterations)
    np.testing.assert_allclose(answers, [plans[0][0], plans[0][1], plans[2][0]], atol=1e-12)
    assert iterations == [3, 0, 3] and timed.late == 1 and timed.timing.calls == 3


def test_plan_is_shifted_over_steps_without_a_search(monkeypatch):
    # step 1 is late and still running at steps 2 and 3
    scripted(monkeypatch, True, False, False, False, True, True)
    timed = controller()
    reference = Reference(timed)
    plans = [reference.step(number, plans=number not in (2, 3)) for number in range(5)]
    answers = [timed(x)[0] for x in STATES[:5]]
    np.testing.assert_allclose(answers, [plans[0][0], plans[0][1], plans[0][2], plans[0][3], plans[4][0]], atol=1e-12)
    assert timed.late == 3


@pytest.mark.slow
def test_reset_after_a_missed_deadline_starts_a_new_episode(monkeypatch):
    scripted(monkeypatch, True, False, *[True] * 6)
    timed = controller()
    timed(STATES[0])
    timed(STATES[1])
    assert timed.late == 1
    timed.reset()
    assert (timed.late, timed.iterations, timed.timing.calls) == (0, 0, 0)
    again = [timed(x) for x in STATES]
    free = controller(budget=None)
    np.testing.assert_allclose(again, [free(x) for x in STATES], atol=1e-12)


@pytest.mark.slow
def test_restarted_episodes_are_the_same_with_and_without_a_budget():
    free, timed = controller(num_seeds=2, budget=None), controller(num_seeds=2)
    states = np.concatenate([STATES, -STATES], axis=1)
    for number, x in enumerate(states):
        np.testing.assert_allclose(timed(x), free(x), atol=1e-12)
        if number in (1, 3):
            for each in (free, timed):
                each.restart_episodes(np.array([number == 1, number == 3]))


def test_seed_with_a_restarted_episode_has_no_latest_plan(monkeypatch):
    scripted(monkeypatch, True, False, False)
    timed = controller(num_seeds=2)
    x = np.concatenate([STATES[0], -STATES[0]])
    timed(x)
    plan = timed._runner.latest.plan
    timed.restart_episodes(np.array([False, True]))
    np.testing.assert_array_equal(timed(x), [plan[0, 1], [0.0]])
    np.testing.assert_array_equal(timed(x), [plan[0, 2], [0.0]])


def test_late_first_action_is_zero(monkeypatch):
    scripted(monkeypatch, False)
    timed = controller()
    assert timed(STATES[0]) == 0 and (timed.late, timed.iterations) == (1, 0)


def test_thread_ends_with_its_controller():
    before = set(threading.enumerate())
    timed = controller()
    timed(STATES[0])
    (thread,) = set(threading.enumerate()) - before
    del timed
    thread.join(30)
    assert not thread.is_alive()


class Waiting(AnytimePolicy):
    """Counts up from 0.1, in compiled code that waits outside of JAX until it is released."""

    count: Float[Array, ""]

    def initial_state(self):
        return self.count

    def act(self, state, x, key):
        pytest.fail("a policy with a budget plans in iterations")

    def iteration_sizes(self, share=1.0):
        return (1,)

    def begin(self, state):
        return state

    def improve(self, search, x, key, iteration, last, size):
        return jax.pure_callback(Waiting.wait, jax.ShapeDtypeStruct((), search.dtype), search)

    def finish(self, search):
        return search + 0.1 * jnp.arange(5.0)[:, None], search + 0.1

    go = threading.Event()

    @staticmethod
    def wait(search):
        assert Waiting.go.wait(60)
        return np.asarray(search)


def test_caller_does_not_wait_for_compiled_code_that_hangs(monkeypatch):
    # only the second call, which hangs, reaches its deadline; the third one collects its result first
    patience, done_by = iter([FAR, SOON, FAR, FAR]), _deadline.done_by
    monkeypatch.setattr(_deadline, "done_by", lambda _, work: done_by(time.perf_counter() + next(patience), work))
    Waiting.go.set()
    with jax.enable_x64(True):
        timed = Controller(Waiting(jnp.asarray([0.1])), jax.random.split(jax.random.key(0), 1), 2, FAR)
    x = np.zeros(2)
    assert timed(x) == pytest.approx(0.1)
    Waiting.go.clear()
    assert timed(x) == pytest.approx(0.2) and timed.late == 1
    Waiting.go.set()
    assert timed(x) == pytest.approx(0.3) and (timed.late, timed.iterations) == (1, 1)
