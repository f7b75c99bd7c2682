"""Robust plans and guaranteed returns, against closed forms and brute force."""

import itertools
import re
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from command_line import call
from control_problems import Linear
from sonde import ICEM, Learned, SondeError
from sonde.evaluation import plan_robust_task, plan_task, score_on_model
from sonde.imagination import Mean, Pessimistic
from sonde.models import Posterior, Prediction
from sonde.objectives import TaskReward
from sonde.runs._run import restore_explorer, run
from sonde.runs._store import RunStore
from sonde.solvers import ControlProblem, PlanningPolicy, Policy
from sonde.solvers._worst_case import worst_case
from sonde.solvers.adversarial import ModelReturns, most_robust, with_region_share
from tiny import TINY


def problem_of(posterior, reward, imagination, state_dim=1):
    return ControlProblem(posterior, imagination, TaskReward(reward), state_dim, 1)


# ---- the adversary -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 3])
def test_worst_case_of_a_linear_return_is_a_corner(x64, steps):
    slope = jax.random.normal(jax.random.key(0), (7, 3))
    eta, rewards = worst_case(lambda eta: jnp.sum(slope * eta, axis=1)[None], jnp.zeros((7, 3)), steps)
    np.testing.assert_array_equal(eta, -np.sign(slope))
    assert rewards.shape == (1, 7)
    np.testing.assert_allclose(np.sum(rewards), -np.abs(slope).sum())


@pytest.mark.slow
def test_corner_opposite_to_the_gradient_is_tried_too(x64):
    """By the gradient the left corner is worst, but the right one is."""
    eta, rewards = worst_case(lambda eta: -jnp.where(eta > 0.5, 100.0, 0.1 * (eta - 0.2) ** 2).T, jnp.zeros((1, 1)), 1)
    assert float(eta[0, 0]) == 1.0 and float(rewards[0, 0]) == -100.0


@pytest.mark.slow
def test_worst_case_may_be_zero(x64):
    eta, rewards = worst_case(lambda eta: jnp.sum(eta**2, axis=1)[None], jnp.zeros((2, 2)), 3)
    np.testing.assert_array_equal(eta, 0)
    assert np.sum(rewards) == 0


def test_nan_counts_as_the_worst_case(x64):
    _, rewards = worst_case(lambda eta: jnp.where(eta > 0.9, jnp.nan, eta).T, jnp.zeros((1, 1)), 1)
    assert np.isnan(rewards).all()


A, B, STD, H = np.array([[1.0, 0.1], [-0.2, 0.98]]), np.array([[0.0], [0.1]]), 0.03, 4


def brute_force(x, plan):
    """The smallest return over all corners; it is concave in eta, so none is smaller inside."""
    lowest = np.inf
    for corner in itertools.product((-1.0, 1.0), repeat=2 * H):
        state, value = x, 0.0
        for u, eta in zip(plan, np.reshape(corner, (H, 2)), strict=True):
            state = A @ state + B @ u + 2.0 * STD * eta
            value -= state @ state
        lowest = min(lowest, value)
    return lowest


@pytest.mark.slow
def test_worst_case_is_close_to_that_of_all_corners(x64):
    posterior = Linear(jnp.asarray(A), jnp.asarray(B), epistemic=STD)
    rng = np.random.default_rng(0)
    states, plans = rng.normal(size=(40, 2)) * rng.choice([0.02, 1.0], (40, 1)), rng.uniform(-1, 1, (40, H, 1))
    exact = np.array([brute_force(x, plan) for x, plan in zip(states, plans, strict=True)])
    share_found = []
    for steps in (1, 3):
        problem = problem_of(posterior, lambda x, u, x_next: -x_next @ x_next, Pessimistic(beta=2.0, adversary_steps=steps), 2)
        worst_case_rewards = eqx.filter_jit(
            jax.vmap(lambda x, plan, problem=problem: problem.worst_case_rewards(x, plan, jax.random.key(0))[1].sum())
        )
        found = worst_case_rewards(jnp.asarray(states), jnp.asarray(plans))
        assert np.all(found >= exact - 1e-12), "no case is worse than the worst corner"
        share_found.append(np.mean(np.isclose(found, exact)))
        assert np.median(np.asarray(found) / exact) > 0.97
    assert share_found[0] > 0.4 and share_found[1] > 0.8


# ---- plans -------------------------------------------------------------------------------------------------------------------


def beside_a_cliff(x, u, x_next):
    """Best at 0.3; errors to the right cost nine times as much as errors to the left."""
    error = x_next[0] - 0.3
    return -jnp.where(error > 0, 9.0, 1.0) * error**2


@pytest.mark.slow
@pytest.mark.parametrize(
    "imagination, best",
    # in the worst case 0.2 to either side: 9 (u + 0.2 - 0.3)^2 = (0.3 - u + 0.2)^2
    [(Mean(), 0.3), (Pessimistic(beta=2.0), 0.2), (Pessimistic(beta=0.0), 0.3)],
)
def test_icem_keeps_its_distance_from_large_costs(x64, imagination, best):
    posterior = Linear(jnp.zeros((1, 1)), jnp.ones((1, 1)), epistemic=0.1)
    problem = problem_of(posterior, beside_a_cliff, imagination)
    solver = ICEM(horizon=1, samples=100, elites=10, iterations=8)
    assert problem.control_dim == 1, "the planner chooses only the action"
    plan, _ = eqx.filter_jit(solver.plan)(problem, solver.initial_state(problem), jnp.zeros(1), jax.random.key(0))
    assert float(plan[0, 0]) == pytest.approx(best, abs=0.01)


class Drifting(Posterior):
    """x' = x, with a constant epistemic std."""

    std: Float[Array, "*seeds"]

    def predict(self, x, u):
        return Prediction(x, jnp.full_like(x, self.std), jnp.zeros_like(x))


class Zero(Policy):
    """Always the action 0."""

    def initial_state(self):
        return None

    def act(self, state, x, key):
        return jnp.zeros(1, x.dtype), None, jnp.asarray(jnp.nan, x.dtype)


@pytest.mark.slow
@pytest.mark.parametrize("planned", [False, True])
def test_nominal_and_guaranteed_returns_of_a_policy(x64, planned):
    """x' = x + beta std eta with reward x': at step t, the adversary has lowered the state t times by 0.2."""
    problem = problem_of(Drifting(jnp.array([0.1, 0.1])), lambda x, u, x_next: x_next[0], Pessimistic(beta=2.0))
    policy = PlanningPolicy(problem, ICEM(horizon=3, samples=4, elites=2, iterations=1)) if planned else Zero()
    keys, starts = jax.random.split(jax.random.key(0), (2, 3)), jnp.arange(6.0).reshape(2, 3, 1)
    _, found = most_robust([policy], problem, starts, 5, keys)
    np.testing.assert_allclose(found.nominal, [5.0, 20.0])  # five steps of (0 + 1 + 2) / 3 and of (3 + 4 + 5) / 3
    np.testing.assert_allclose(found.guaranteed, found.nominal - 0.2 * (1 + 2 + 3 + 4 + 5))


class Constant(Policy):
    """A constant action for each seed."""

    action: Float[Array, "*seeds"]

    def initial_state(self):
        return None

    def act(self, state, x, key):
        return self.action[None], None, jnp.asarray(jnp.nan, x.dtype)


class UncertainActions(Posterior):
    """x' = u, with a given epistemic std for each of u = 1, 2, 3 ..."""

    stds: Float[Array, "*seeds actions"]

    def predict(self, x, u):
        return Prediction(u, self.stds[u.astype(int) - 1], jnp.zeros_like(x))


# the guaranteed return of u in three steps is 3 (u - std): best are the first, the third and, of equals, the second policy
STDS = np.array([[0.1, 1.5, 2.9], [2.0, 4.0, 0.5], [5.0, 1.0, 2.0], [np.nan, 4.0, np.nan]])
BEST, GUARANTEED = [1, 3, 2, 2], [3 * 0.9, 3 * 2.5, 3 * 1.0, 3 * -2.0]


@pytest.mark.slow
def test_each_seed_follows_the_policy_with_the_best_guaranteed_return(x64):
    problem = problem_of(UncertainActions(jnp.asarray(STDS)), lambda x, u, x_next: x_next[0], Pessimistic(beta=1.0))
    keys, starts = jax.random.split(jax.random.key(0), (4, 1)), jnp.zeros((4, 1, 1))
    policies = [Constant(jnp.full(4, float(u))) for u in (1, 2, 3)]
    policy, returns = most_robust(policies, problem, starts, 3, keys)
    act = lambda policy: policy.act(policy.initial_state(), jnp.zeros(1), jax.random.key(0))[0][0]
    np.testing.assert_array_equal(jax.vmap(act)(policy), BEST)
    np.testing.assert_allclose(returns.nominal, 3 * np.array(BEST))
    np.testing.assert_allclose(returns.guaranteed, GUARANTEED)
    for i, best in enumerate(BEST):  # for a single seed it is the policy itself
        one = jax.tree.map(lambda leaf, i=i: leaf[i : i + 1], (policies, problem, starts))
        policy, returns = most_robust(*one, 3, keys[i : i + 1])
        np.testing.assert_array_equal(policy.action, [best])
        np.testing.assert_allclose([returns.nominal, returns.guaranteed], [[3 * best], [GUARANTEED[i]]])


@pytest.mark.slow
def test_known_returns_are_not_computed_again(x64):
    problem = problem_of(UncertainActions(jnp.asarray(STDS[:2])), lambda x, u, x_next: x_next[0], Pessimistic(beta=1.0))
    keys, starts = jax.random.split(jax.random.key(0), (2, 1)), jnp.zeros((2, 1, 1))
    policies = [Constant(jnp.full(2, float(u))) for u in (1, 3)]
    known = ModelReturns(np.array([[[7.0], [800.0]], *[[[-100.0], [100.0]]] * 3]))
    _, returns = most_robust(policies, problem, starts, 3, keys, None, known)
    np.testing.assert_allclose(returns.nominal, [9.0, 800.0])
    np.testing.assert_allclose(returns.guaranteed, [3 * (3 - 2.9), 100.0])


@pytest.mark.slow
def test_plan_is_less_cautious_against_a_share_of_the_region(x64):
    solver = ICEM(horizon=1, samples=100, elites=10, iterations=8)

    def best_action(posterior):
        problem = problem_of(posterior, beside_a_cliff, Pessimistic(beta=7.0))  # the posterior's own beta is used
        plan, _ = eqx.filter_jit(solver.plan)(problem, solver.initial_state(problem), jnp.zeros(1), jax.random.key(0))
        return float(plan[0, 0])

    linear = Linear(jnp.zeros((1, 1)), jnp.ones((1, 1)), epistemic=0.1)
    half = with_region_share(linear, jnp.array([2.0]), 0.5)
    # in the worst case 0.1 to either side: 9 (u + 0.1 - 0.3)^2 = (0.3 - u + 0.1)^2
    assert best_action(half) == pytest.approx(0.25, abs=0.01)
    assert best_action(with_region_share(half, jnp.array([9.0]), 0.0)) == pytest.approx(0.3, abs=0.01)


# ---- from end to end ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def explored(tmp_path_factory):
    """The folder of a run with few measurements."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    run(RunStore.create(folder, replace(TINY, seeds=2, evaluate_every=0)))
    return folder


@pytest.mark.slow
def test_adversary_with_beta_zero_has_no_effect(explored):
    store = RunStore.open(explored)
    explorer = restore_explorer(store, 3)
    setup, adversary, keys = store.config.task_setup("swing-up"), Pessimistic(beta=0.0), explorer.keys()
    learned = Learned(explorer.posterior, explorer.data)
    plain = score_on_model(setup, learned.posterior, keys, plan_task(setup, learned, keys), adversary)
    robust = plan_robust_task(setup, learned, keys, adversary, plain)
    for returns in (plain.returns, robust.returns):
        np.testing.assert_allclose(returns.guaranteed, returns.nominal)


@pytest.mark.slow
def test_command_line_compares_plain_and_robust_plans(explored, monkeypatch, capsys):
    ask = ("evaluate", str(explored), "--task", "swing-up")
    assert call(monkeypatch, *ask, "--robust", "--beta", "1") == 0
    printed = capsys.readouterr().out
    for part in ("true system", "robust plan: the true system returned at least", "1 epistemic stds"):
        assert part in printed
    rows = [line.split() for line in printed.splitlines() if " plain  │" in line or " robust │" in line]
    numbers = [[float(word) for word in row if word.replace(".", "").lstrip("-").isdigit()] for row in rows]
    assert [len(row) for row in numbers] == [4] * 4  # two seeds, two plans: seed, nominal, guaranteed, true
    assert all(guaranteed < nominal for _, nominal, guaranteed, _ in numbers)
    same = sum(numbers[row] == numbers[row + 1] for row in (0, 2))  # as printed; the last digits may differ
    said = re.search(r"for (\d) of 2 seeds the robust plan is the plain one", printed)
    assert (int(said[1]) if said else 0) <= same


@pytest.mark.parametrize(
    "wrong, message",
    [
        (["--robust", "--oracle"], "two reports"),
        (["--beta", "1"], "give --robust as well"),
        (["--robust", "--beta", "-1"], "--beta must be 0 or above"),
    ],
)
def test_options_that_contradict_each_other_are_rejected(explored, monkeypatch, capsys, wrong, message):
    assert call(monkeypatch, "evaluate", str(explored), "--task", "swing-up", *wrong) == 2
    assert message in capsys.readouterr().err


def test_adversary_without_steps_is_rejected():
    with pytest.raises(SondeError, match="adversary_steps must be a whole number above 0"):
        Pessimistic(adversary_steps=0)
