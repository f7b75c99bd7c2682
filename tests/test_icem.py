"""iCEM: against the exact optimum of a linear-quadratic problem, and each of its parts on a problem of its own."""

import itertools
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from control_problems import Linear, clock, midnight, of_action, problem_of
from sonde import ICEM, Controller, SondeError, rollout
from sonde.imagination import Mean, MemberTrajectories, Optimistic
from sonde.models import Posterior, Prediction
from sonde.objectives import TaskReward
from sonde.solvers import ControlProblem, PlanningPolicy
from sonde.solvers._base import planned_actions
from sonde.solvers._icem import ICEMState
from sonde.worlds import Pendulum


@eqx.filter_jit
def plan(solver, problem, state, x, key):
    return solver.plan(problem, state, x, key)


# ---- the optimum -------------------------------------------------------------------------------------------------------------

A, B = np.array([[1.0, 0.1], [0.0, 1.0]]), np.array([[0.005], [0.1]])
Q, R, H = np.diag([1.0, 0.1]), np.array([[0.3]]), 20


def exact_cost(x, controls):
    cost = 0.0
    for u in controls:
        x_next = A @ x + B @ u
        cost += x_next @ Q @ x_next + u @ R @ u
        x = x_next
    return cost


def riccati(x):
    """The smallest cost over H steps, and the controls that achieve it."""
    p, gains = np.zeros((2, 2)), []
    for _ in range(H):
        m = p + Q
        gain = np.linalg.solve(R + B.T @ m @ B, B.T @ m @ A)
        p = A.T @ m @ (A - B @ gain)
        gains.insert(0, gain)
    controls, start = [], x
    for gain in gains:
        controls.append(-gain @ x)
        x = A @ x + B @ controls[-1]
    return start @ p @ start, np.array(controls)


def quadratic(x, u, x_next):
    return -(x_next @ jnp.asarray(Q) @ x_next + u @ jnp.asarray(R) @ u)


@pytest.mark.slow
@pytest.mark.parametrize("start, decay", [((0.5, 0.0), 1.0), ((-0.3, 0.6), 1.0), ((0.2, -0.5), 1.0), ((0.5, 0.0), 2.0)])
def test_cost_is_within_two_percent_of_the_linear_quadratic_optimum(x64, start, decay):
    start = np.array(start)
    least, best_controls = riccati(start)
    assert np.isclose(exact_cost(start, best_controls), least) and np.abs(best_controls).max() < 0.9
    problem = problem_of(Linear(jnp.asarray(A), jnp.asarray(B)), TaskReward(quadratic))
    solver = ICEM(horizon=H, decay=decay)
    costs = []
    for seed in range(3):
        found, _ = plan(solver, problem, solver.initial_state(problem), jnp.asarray(start), jax.random.key(seed))
        costs.append(exact_cost(start, np.asarray(found)))
    assert least <= min(costs)
    assert max(costs) <= 1.02 * least, f"gaps {np.array(costs) / least - 1}"


@pytest.mark.slow
def test_receding_horizon_follows_the_optimal_controller(x64):
    """Closed loop for 15 steps: each plan starts from the last, so the controls stay near the infinite-horizon gain's."""
    problem = problem_of(Linear(jnp.asarray(A), jnp.asarray(B)), TaskReward(quadratic))
    solver = ICEM(horizon=H, iterations=4)
    x, state = np.array([0.5, 0.0]), solver.initial_state(problem)
    cost = optimum = 0.0
    best = x
    for step in range(15):
        found, state = plan(solver, problem, state, jnp.asarray(x), jax.random.key(step))
        u = np.asarray(planned_actions(problem, found)[0])
        x = A @ x + B @ u
        cost += x @ Q @ x + u @ R @ u
        u = riccati(best)[1][0]
        best = A @ best + B @ u
        optimum += best @ Q @ best + u @ R @ u
    assert abs(cost / optimum - 1) < 0.02


# ---- from step to step -------------------------------------------------------------------------------------------------------


def tracking(x, u, x_next):
    """Best is to do sin(time)."""
    return -((u[0] - jnp.sin(x[0])) ** 2)


@pytest.mark.slow
def test_mean_and_elites_are_passed_on_shifted_by_one(x64):
    problem = problem_of(clock(), TaskReward(tracking))
    solver = ICEM(horizon=6, iterations=30)
    found, state = plan(solver, problem, solver.initial_state(problem), midnight(), jax.random.key(0))
    wanted = np.sin(np.arange(6))
    np.testing.assert_allclose(found[:, 0], wanted, atol=0.01)
    shifted = np.append(wanted[1:], wanted[-1])
    np.testing.assert_allclose(state.mean[:, 0], shifted, atol=0.02)
    assert state.kept.shape == (15, 6, 1)
    np.testing.assert_allclose(state.kept[:, :, 0], np.broadcast_to(shifted, (15, 6)), atol=0.05)


@pytest.mark.slow
def test_search_starts_at_the_mean_of_the_previous_step(x64):
    problem = problem_of(clock(), TaskReward(tracking))
    mean = jnp.linspace(-0.9, 0.9, 5)[:, None]
    solver = ICEM(horizon=5, samples=20, elites=5, iterations=2, initial_std=1e-9, keep_fraction=0.0)
    found, state = plan(solver, problem, ICEMState(mean, jnp.zeros((0, 5, 1))), midnight(), jax.random.key(0))
    np.testing.assert_allclose(found, mean, atol=1e-7)
    np.testing.assert_allclose(state.mean, np.append(mean[1:], mean[-1:], axis=0), atol=1e-7)


@pytest.mark.slow
def test_kept_elites_compete_in_every_iteration(x64):
    """The samples stay near zero; only a plan that was kept can be better, and it survives all iterations."""
    problem = problem_of(clock(), of_action(lambda u: jnp.abs(u)))
    kept = jnp.zeros((3, 4, 1)).at[1].set(jnp.array([0.2, 0.4, 0.6, 0.8])[:, None])
    solver = ICEM(horizon=4, samples=30, elites=10, iterations=3, initial_std=1e-6, momentum=0.0)
    assert solver.kept_elites == 3
    state = ICEMState(jnp.zeros((4, 1)), kept)
    found, after = plan(solver, problem, state, midnight(), jax.random.key(0))
    np.testing.assert_array_equal(found, kept[1])
    np.testing.assert_allclose(after.kept[0], np.array([0.4, 0.6, 0.8, 0.8])[:, None])


@pytest.mark.slow
def test_a_new_episode_starts_from_the_initial_state(x64):
    problem = problem_of(clock(), TaskReward(tracking))
    solver = ICEM(horizon=5, samples=50, elites=10, iterations=2)
    policy = PlanningPolicy(problem, solver)
    before = policy.initial_state()
    act = eqx.filter_jit(policy.act)
    first, state, _ = act(before, midnight(), jax.random.key(0))
    for step in range(3):
        _, state, _ = act(state, midnight(), jax.random.key(step))
    after = policy.initial_state()
    np.testing.assert_array_equal(before.mean, after.mean)
    assert not np.any(after.mean) and np.isnan(after.kept).all()
    again, _, _ = act(after, midnight(), jax.random.key(0))
    np.testing.assert_array_equal(first, again)


# ---- within a step -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("aggregate, winner", [("sum", 0), ("best", 1)])
def test_aggregate_decides_which_plan_is_best(x64, aggregate, winner):
    """Plan 0 earns 1 at every step, plan 1 earns 5 once and -10 otherwise, as everything near zero does."""
    problem = problem_of(clock(), of_action(lambda u: jnp.where(u > 0.8, 5.0, jnp.where(u > 0.4, 1.0, -10.0))))
    plans = jnp.stack([jnp.full((6, 1), 0.5), jnp.zeros((6, 1)).at[3].set(0.9)])
    solver = ICEM(horizon=6, samples=20, elites=4, iterations=1, initial_std=1e-3, keep_fraction=0.5, aggregate=aggregate)
    found, _ = plan(solver, problem, ICEMState(jnp.zeros((6, 1)), plans), midnight(), jax.random.key(0))
    np.testing.assert_array_equal(found, plans[winner])


class TwoClocks(Posterior):
    """Two members: after an action u > 0.5 the first state is 10 u at step 1 (member 0) or 3 (member 1), else -10."""

    member_index: Array | None = None

    @property
    def ensemble_size(self):
        return 2

    def member(self, index):
        return TwoClocks(index % 2)

    def predict(self, x, u):
        alarm = jnp.where(self.member_index == 0, 1.0, 3.0)
        value = jnp.where((x[1] == alarm) & (u[0] > 0.5), 10 * u[0], jnp.where(u[0] > 0.5, -10.0, 6 * u[0]))
        mean = jnp.stack([value, x[1] + 1])
        return Prediction(mean, jnp.zeros(2), jnp.zeros(2))


@pytest.mark.slow
@pytest.mark.parametrize("aggregate, winner", [("sum", 0), ("best", 1)])
def test_the_best_step_of_a_plan_is_taken_for_each_particle(x64, aggregate, winner):
    """Plan 1 has a reward of 9 for either member, but never at the same step: its mean over members is below 0 at every step.

    Plan 0 has 6 * 0.4 = 2.4 at every step. Sums are 4 * 2.4 and 9 - 3 * 10; the best steps have 2.4 and 9, but the best steps
    of the mean over members would have 2.4 and (9 - 10) / 2.
    """
    objective = TaskReward(lambda x, u, x_next: x_next[0])
    problem = ControlProblem(TwoClocks(jnp.asarray(0)), MemberTrajectories(particles=1), objective, 2, 1)
    plans = jnp.stack([jnp.full((4, 1), 0.4), jnp.full((4, 1), 0.9)])
    solver = ICEM(horizon=4, samples=20, elites=4, iterations=1, initial_std=1e-3, keep_fraction=0.5, aggregate=aggregate)
    found, _ = plan(solver, problem, ICEMState(jnp.zeros((4, 1)), plans), midnight() - jnp.array([0.0, 1.0]), jax.random.key(0))
    np.testing.assert_array_equal(found, plans[winner])


class Counting(ControlProblem):
    """Records how many plans are evaluated at once when the program is traced."""

    counts = []

    def rewards(self, x, plans, key):
        self.counts.append(plans.shape[0])
        return super().rewards(x, plans, key)


def test_sample_counts_decay_to_twice_the_elites(x64):
    solver = ICEM(horizon=3, samples=100, elites=10, iterations=5, decay=2.0)
    assert solver.sample_counts() == [100, 50, 25, 20, 20]
    assert ICEM(samples=500, elites=50, iterations=4, decay=1.25).sample_counts() == [500, 400, 320, 256]
    assert ICEM(samples=30, elites=20, iterations=3, decay=2.0).sample_counts() == [30, 30, 30]
    assert ICEM(samples=30, elites=5, iterations=3).sample_counts() == [30, 30, 30]
    problem = problem_of(clock(), of_action(lambda u: u), kind=Counting)
    Counting.counts.clear()
    eqx.filter_eval_shape(solver.plan, problem, solver.initial_state(problem), midnight(), jax.random.key(0))
    assert set(Counting.counts) == {103, 53, 28, 23}  # with the three elites that are kept


@pytest.mark.slow
@pytest.mark.parametrize("iterations, use_mean, found_it", [(1, True, True), (2, True, False), (1, False, False)])
def test_the_mean_itself_is_evaluated_in_the_last_iteration_only(x64, iterations, use_mean, found_it):
    """Only the initial mean, to the last bit, has a reward; one iteration later the mean has changed."""
    problem = problem_of(clock(), of_action(lambda u: jnp.where(u == 0.25, 1.0, 0.0)))
    solver = ICEM(horizon=4, samples=20, elites=5, iterations=iterations, keep_fraction=0.0, use_mean=use_mean)
    state = ICEMState(jnp.full((4, 1), 0.25), jnp.zeros((0, 4, 1)))
    found, _ = plan(solver, problem, state, midnight(), jax.random.key(0))
    assert np.all(np.asarray(found) == 0.25) == found_it


@pytest.mark.slow
def test_mean_moves_towards_the_elites_with_momentum(x64):
    """With a single elite, the best plan: momentum times the old mean, plus the rest times that plan."""
    problem = problem_of(clock(), of_action(lambda u: u))
    solver = ICEM(horizon=4, samples=50, elites=1, iterations=1, initial_std=0.1, momentum=0.4, keep_fraction=0.0)
    state = ICEMState(jnp.full((4, 1), 0.5), jnp.zeros((0, 4, 1)))
    found, state = plan(solver, problem, state, midnight(), jax.random.key(0))
    assert not np.any(found == 0.5)
    np.testing.assert_allclose(state.mean[:-1], 0.4 * 0.5 + 0.6 * found[1:], atol=1e-12)


@pytest.mark.slow
def test_controls_stay_within_their_limits(x64):
    problem = problem_of(clock(), of_action(lambda u: u))
    solver = ICEM(horizon=5, samples=200, elites=20, initial_std=2.0)
    found, state = plan(solver, problem, solver.initial_state(problem), midnight(), jax.random.key(0))
    for controls in (found, state.mean, state.kept):
        assert np.abs(controls).max() <= 1
    np.testing.assert_allclose(found, 1.0, atol=1e-6)
    assert np.abs(planned_actions(problem, 3 * jnp.ones((5, 1)))[0]) == 1


def test_plans_with_nonfinite_rewards_are_never_chosen(x64):
    bad = lambda u: jnp.where(u > 0.6, jnp.nan, jnp.where(u > 0.3, jnp.inf, -jnp.inf))
    problem = problem_of(clock(), of_action(lambda u: jnp.where(u > 0, bad(u), -((u + 0.5) ** 2))))
    solver = ICEM(horizon=2, samples=400, elites=20)
    found, state = plan(solver, problem, solver.initial_state(problem), midnight(), jax.random.key(1))
    np.testing.assert_allclose(found, -0.5, atol=0.05)
    assert np.isfinite(state.mean).all() and np.isfinite(state.kept).all()


def test_missing_elites_are_never_chosen_though_a_comparison_gives_them_a_finite_reward(x64):
    problem = problem_of(clock(), of_action(lambda u: jnp.where(jnp.abs(u) > 0.1, -1.0, 0.0)))  # of NaN: 0, the best
    solver = ICEM(horizon=3, samples=20, elites=20)  # every plan is an elite; missing ones would be too, if they could
    found, state = plan(solver, problem, solver.initial_state(problem), midnight(), jax.random.key(1))
    assert np.isfinite(found).all() and np.isfinite(state.mean).all() and np.isfinite(state.kept).all()


def test_without_finite_rewards_the_plan_is_the_old_mean(x64):
    problem = problem_of(clock(), of_action(lambda u: u * jnp.nan))
    solver = ICEM(horizon=3, samples=20, elites=5, iterations=2, keep_fraction=0.0)
    mean = jnp.array([[0.1], [0.2], [0.3]])
    found, state = plan(solver, problem, ICEMState(mean, jnp.zeros((0, 3, 1))), midnight(), jax.random.key(1))
    np.testing.assert_array_equal(found, mean)
    assert np.isfinite(state.mean).all()


def test_settings_that_cannot_work_are_rejected():
    for wrong in (
        {"elites": 600},
        {"keep_fraction": 1.5},
        {"momentum": 1.0},
        {"decay": 0.5},
        {"exponent": -1.0},
        {"horizon": 0},
        {"initial_std": 0.0},
        {"initial_std": float("nan")},
        {"iterations": 0},
    ):
        with pytest.raises(SondeError, match=next(iter(wrong))):
            ICEM(**wrong)


@pytest.mark.slow
def test_eta_is_chosen_to_maximise_the_objective(x64):
    """Optimism: eta moves a state that actions cannot move."""
    objective = TaskReward(lambda x, u, x_next: x_next[0])
    problem = problem_of(clock(epistemic=0.5), objective, Optimistic(beta=2.0))
    solver = ICEM(horizon=4, samples=100, elites=10)
    found, _ = plan(solver, problem, solver.initial_state(problem), midnight(), jax.random.key(0))
    np.testing.assert_allclose(found[:, 1], 1.0, atol=0.02)
    states = eqx.filter_jit(problem.imagine)(midnight(), found, jax.random.key(0)).next_states[0]
    assert states[-1, 0] > 4 + 3.9  # four steps, and four times beta * epistemic = 1


# ---- long plans: controls that are held, and plans that are carried on -------------------------------------------------------


@pytest.mark.slow
def test_held_controls_find_the_best_of_all_held_plans(x64):
    """The reward is convex in the controls, so the best plan is one of the 16 with four held controls of -1 or 1."""
    problem = problem_of(Linear(jnp.asarray(A), jnp.asarray(B)), TaskReward(lambda x, u, x_next: (x_next[0] + 0.1) ** 2))
    start, solver = jnp.array([0.0, -0.2]), ICEM(horizon=H, samples=60, elites=6, iterations=6, initial_std=1.0, hold=5)
    found, _ = plan(solver, problem, solver.initial_state(problem), start, jax.random.key(0))
    corners = np.repeat(np.array(list(itertools.product((-1.0, 1.0), repeat=4))), 5, axis=1)[:, :, None]
    values = jax.vmap(lambda controls: jnp.sum(problem.objective.rewards(problem.imagine(start, controls, jax.random.key(0)))))
    np.testing.assert_allclose(values(found[None])[0], values(corners).max(), rtol=0.01)
    np.testing.assert_array_equal(found[0::5], found[4::5])


@pytest.mark.slow
def test_a_plan_is_carried_on_until_the_next_is_due(x64):
    """Its next actions follow, and the search that comes then is the one that starts at the shifted mean and elites."""
    problem = problem_of(clock(), TaskReward(tracking))
    every = ICEM(horizon=6, samples=20, elites=5, iterations=2)
    rare, keys = replace(every, replan_every=3), jax.random.split(jax.random.key(0), 4)
    x, state = midnight(), rare.initial_state(problem)
    plans = []
    for key in keys:
        found, state = plan(rare, problem, state, x, key)
        plans.append(found)
    first, passed_on = plan(every, problem, every.initial_state(problem), x, keys[0])
    shift = lambda array: jnp.concatenate([array[..., 1:, :], array[..., -1:, :]], axis=-2)
    np.testing.assert_array_equal(jnp.stack(plans[:3]), jnp.stack([first, shift(first), shift(shift(first))]))
    passed_on = jax.tree.map(lambda array: shift(shift(array)), passed_on)  # `plan` has shifted it once
    np.testing.assert_array_equal(plans[3], plan(every, problem, passed_on, x, keys[3])[0])


@pytest.mark.slow
def test_copies_that_restart_plan_while_the_others_carry_on(x64):
    known = jax.tree.map(lambda array: jnp.stack([array, array]), clock(epistemic=jnp.zeros(()), aleatoric=jnp.zeros(())))
    solver = ICEM(horizon=6, samples=20, elites=5, iterations=2, replan_every=3)
    policy = PlanningPolicy(problem_of(known, TaskReward(tracking)), solver)

    def actions(restart_at=None):
        controller, taken = Controller(policy, jax.random.split(jax.random.key(0), 2), 2), []
        for step in range(4):
            if step == restart_at:
                controller.restart_episodes(np.array([False, True]))
            taken.append(controller(np.tile(np.asarray(midnight()), (2, 1))))
        return np.stack(taken)[..., 0]

    straight, restarted = actions(), actions(restart_at=2)
    np.testing.assert_array_equal(restarted[:, 0], straight[:, 0])
    assert restarted[2, 1] != straight[2, 1]  # a search at the start of an episode, instead of the third action of a plan
    assert np.abs(restarted[2, 1]) < 0.4 < straight[2, 1]  # the best actions are 0 there, and sin(2)


@pytest.mark.slow
@pytest.mark.parametrize("host", [True, False], ids=["host", "compiled"])
def test_plans_that_are_carried_on_are_not_searched_for(x64, host):
    """Two seeds in lockstep, six steps: with a search every third step, a third of the rewards is computed."""
    world, counts = Pendulum(), []

    def counted(x, u, x_next):
        jax.debug.callback(lambda: counts.append(1))
        return u[0]

    def searched(replan_every):
        counts.clear()
        known = Linear(jnp.zeros((2, 3, 3)), jnp.zeros((2, 3, 1)), jnp.zeros(2), jnp.zeros(2))
        problem = ControlProblem(known, Mean(), TaskReward(counted), 3, 1)
        policy = PlanningPolicy(problem, ICEM(horizon=4, samples=6, elites=2, iterations=2, replan_every=replan_every))
        controller = Controller(policy, jax.random.split(jax.random.key(0), 2), 3)
        if host:
            for _ in range(6):
                controller(np.zeros((2, 3)))
        else:
            rollout(world, controller, 6)
        jax.effects_barrier()
        return len(counts)

    assert 0 < 3 * searched(3) == searched(1)


@pytest.mark.slow
def test_with_a_budget_every_step_is_planned(x64):
    known = jax.tree.map(lambda array: array[None], clock(epistemic=jnp.zeros(()), aleatoric=jnp.zeros(())))
    policy = PlanningPolicy(problem_of(known, TaskReward(tracking)), ICEM(horizon=4, samples=20, elites=5, iterations=3))
    carried = replace(policy, planner=replace(policy.planner, replan_every=2))
    both = [Controller(each, jax.random.split(jax.random.key(0), 1), 2, budget=1e6) for each in (policy, carried)]
    for _ in range(3):
        np.testing.assert_array_equal(*[controller(np.asarray(midnight())) for controller in both])
        assert [controller.iterations for controller in both] == [3, 3]


@pytest.mark.parametrize("setting", [{"hold": 0}, {"hold": 21}, {"replan_every": 0}, {"replan_every": 21}])
def test_steps_must_lie_within_the_horizon(setting):
    (name,) = setting
    with pytest.raises(SondeError, match=f"{name} must lie in \\[1, horizon\\], and the horizon is 20; got"):
        ICEM(**setting)
