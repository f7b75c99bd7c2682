"""Plans that survive the model's errors, against closed forms and brute force."""

import itertools
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from command_line import call
from control_problems import Linear
from sonde import ICEM, Prediction, Pendulum, Posterior, SondeError, evaluate
from sonde.imagination import Mean, Pessimistic
from sonde.objectives import TaskReward
from sonde.runs._run import restore_explorer, run
from sonde.runs._store import RunStore
from sonde.solvers import ControlProblem
from sonde.solvers._base import PlanningPolicy
from sonde.solvers._policy import Policy
from sonde.solvers.adversarial._guarantees import ImaginedReturns, most_robust, with_share
from sonde.solvers._worst_case import worst_case
from tiny import TINY


def problem_of(posterior, reward, imagination, state_dim=1):
    return ControlProblem(posterior, imagination, TaskReward(reward), state_dim, 1, 1)


# ---- the adversary ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 3])
def test_a_linear_return_is_lowest_in_a_corner(x64, steps):
    slope = jax.random.normal(jax.random.key(0), (7, 3))
    response, left = worst_case(lambda eta: jnp.sum(slope * eta, axis=1)[None], jnp.zeros((7, 3)), steps)
    np.testing.assert_array_equal(response, -np.sign(slope))
    assert left.shape == (1, 7)
    np.testing.assert_allclose(np.sum(left), -np.abs(slope).sum())


def test_a_cliff_behind_the_optimum_is_found(x64):
    """The slope points to the left, and the harm is on the right."""
    rewards = lambda eta: -jnp.where(eta > 0.5, 100.0, 0.1 * (eta - 0.2) ** 2).T
    response, left = worst_case(rewards, jnp.zeros((1, 1)), 1)
    assert float(response[0, 0]) == 1.0 and float(left[0, 0]) == -100.0


def test_doing_nothing_is_an_answer_too(x64):
    response, left = worst_case(lambda eta: jnp.sum(eta**2, axis=1)[None], jnp.zeros((2, 2)), 3)
    np.testing.assert_array_equal(response, 0)
    assert np.sum(left) == 0


def test_not_a_number_is_the_worst_of_all(x64):
    _, left = worst_case(lambda eta: jnp.where(eta > 0.9, jnp.nan, eta).T, jnp.zeros((1, 1)), 1)
    assert np.isnan(left).all()


A, B, STD, H = np.array([[1.0, 0.1], [-0.2, 0.98]]), np.array([[0.0], [0.1]]), 0.03, 4


def brute_force(x, plan):
    """The least return over all corners; it is concave in eta, so none is lower inside."""
    lowest = np.inf
    for corner in itertools.product((-1.0, 1.0), repeat=2 * H):
        state, value = x, 0.0
        for u, eta in zip(plan, np.reshape(corner, (H, 2)), strict=True):
            state = A @ state + B @ u + 2.0 * STD * eta
            value -= state @ state
        lowest = min(lowest, value)
    return lowest


def test_close_to_the_worst_of_all_corners(x64):
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
        assert np.all(found >= exact - 1e-12), "nothing is worse than the worst"
        share_found.append(np.mean(np.isclose(found, exact)))
        assert np.median(np.asarray(found) / exact) > 0.97
    assert share_found[0] > 0.4 and share_found[1] > 0.8


# ---- plans -------------------------------------------------------------------------------------------------------------------


def beside_a_cliff(x, u, x_next):
    """Best at 0.3; errors to the right cost nine times as much as those to the left."""
    error = x_next[0] - 0.3
    return -jnp.where(error > 0, 9.0, 1.0) * error**2


@pytest.mark.parametrize(
    "imagination, best",
    # at worst 0.2 to either side: 9 (u + 0.2 - 0.3)^2 = (0.3 - u + 0.2)^2
    [(Mean(), 0.3), (Pessimistic(beta=2.0), 0.2), (Pessimistic(beta=0.0), 0.3)],
)
def test_icem_keeps_its_distance_from_a_cliff(x64, imagination, best):
    posterior = Linear(jnp.zeros((1, 1)), jnp.ones((1, 1)), epistemic=0.1)
    problem = problem_of(posterior, beside_a_cliff, imagination)
    solver = ICEM(horizon=1, samples=100, elites=10, iterations=8)
    assert problem.control_dim == 1, "the planner chooses the action alone"
    plan, _ = eqx.filter_jit(solver.plan)(problem, solver.start(problem), jnp.zeros(1), jax.random.key(0))
    assert float(plan[0, 0]) == pytest.approx(best, abs=0.01)


class Drifting(Posterior):
    """x' = x, as far as is known."""

    std: Float[Array, "*seeds"]

    def predict(self, x, u):
        return Prediction(x, jnp.full_like(x, self.std), jnp.zeros_like(x))


class Resting(Policy):
    """Does nothing."""

    def start(self):
        return None

    def act(self, state, x, key):
        return jnp.zeros(1, x.dtype), None, jnp.asarray(jnp.nan, x.dtype)


@pytest.mark.parametrize("planned", [False, True])
def test_the_values_of_a_policy_on_the_model(x64, planned):
    """x' = x + beta std eta with reward x': the adversary takes 0.2 per step from it, the longer ago the more often."""
    problem = problem_of(Drifting(jnp.array([0.1, 0.1])), lambda x, u, x_next: x_next[0], Pessimistic(beta=2.0))
    policy = PlanningPolicy(problem, ICEM(horizon=3, samples=4, elites=2, iterations=1)) if planned else Resting()
    keys, starts = jax.random.split(jax.random.key(0), (2, 3)), jnp.arange(6.0).reshape(2, 3, 1)
    _, found = most_robust([policy], problem, starts, 5, keys)
    np.testing.assert_allclose(found.nominal, [5.0, 20.0])  # five steps of (0 + 1 + 2) / 3 and of (3 + 4 + 5) / 3
    np.testing.assert_allclose(found.guaranteed, found.nominal - 0.2 * (1 + 2 + 3 + 4 + 5))


class Constant(Policy):
    """Always the same action, each run its own."""

    action: Float[Array, "*seeds"]

    def start(self):
        return None

    def act(self, state, x, key):
        return self.action[None], None, jnp.asarray(jnp.nan, x.dtype)


class Doubted(Posterior):
    """x' = u, where the doubt about u = 1, 2, 3 ... is given in turn."""

    doubts: Float[Array, "*seeds actions"]

    def predict(self, x, u):
        return Prediction(u, self.doubts[u.astype(int) - 1], jnp.zeros_like(x))


# what they leave of u in three steps is 3 (u - doubt): the runs' best is the first, the third and, of equals, the second policy
DOUBTS = np.array([[0.1, 1.5, 2.9], [2.0, 4.0, 0.5], [5.0, 1.0, 2.0], [np.nan, 4.0, np.nan]])
BEST, LEFT = [1, 3, 2, 2], [3 * 0.9, 3 * 2.5, 3 * 1.0, 3 * -2.0]


def test_each_run_takes_the_policy_that_guarantees_most(x64):
    problem = problem_of(Doubted(jnp.asarray(DOUBTS)), lambda x, u, x_next: x_next[0], Pessimistic(beta=1.0))
    keys, starts = jax.random.split(jax.random.key(0), (4, 1)), jnp.zeros((4, 1, 1))
    policies = [Constant(jnp.full(4, float(u))) for u in (1, 2, 3)]
    policy, value = most_robust(policies, problem, starts, 3, keys)
    act = lambda policy: policy.act(policy.start(), jnp.zeros(1), jax.random.key(0))[0][0]
    np.testing.assert_array_equal(jax.vmap(act)(policy), BEST)
    np.testing.assert_allclose(value.nominal, 3 * np.array(BEST))
    np.testing.assert_allclose(value.guaranteed, LEFT)
    for i, best in enumerate(BEST):  # a single run is the policy itself
        one = jax.tree.map(lambda leaf, i=i: leaf[i : i + 1], (policies, problem, starts))
        policy, value = most_robust(*one, 3, keys[i : i + 1])
        np.testing.assert_array_equal(policy.action, [best])
        np.testing.assert_allclose([value.nominal, value.guaranteed], [[3 * best], [LEFT[i]]])


def test_what_is_known_is_not_found_again(x64):
    problem = problem_of(Doubted(jnp.asarray(DOUBTS[:2])), lambda x, u, x_next: x_next[0], Pessimistic(beta=1.0))
    keys, starts = jax.random.split(jax.random.key(0), (2, 1)), jnp.zeros((2, 1, 1))
    policies = [Constant(jnp.full(2, float(u))) for u in (1, 3)]
    told = ImaginedReturns(np.array([[[7.0], [800.0]], *[[[-100.0], [100.0]]] * 3]))
    _, value = most_robust(policies, problem, starts, 3, keys, None, told)
    np.testing.assert_allclose(value.nominal, [9.0, 800.0])
    np.testing.assert_allclose(value.guaranteed, [3 * (3 - 2.9), 100.0])


def test_planning_for_a_share_of_the_region(x64):
    solver = ICEM(horizon=1, samples=100, elites=10, iterations=8)

    def keeps_distance(posterior):
        problem = problem_of(posterior, beside_a_cliff, Pessimistic(beta=7.0))  # the posterior's own beta counts
        plan, _ = eqx.filter_jit(solver.plan)(problem, solver.start(problem), jnp.zeros(1), jax.random.key(0))
        return float(plan[0, 0])

    linear = Linear(jnp.zeros((1, 1)), jnp.ones((1, 1)), epistemic=0.1)
    half = with_share(linear, jnp.array([2.0]), 0.5)
    # at worst 0.1 to either side: 9 (u + 0.1 - 0.3)^2 = (0.3 - u + 0.1)^2
    assert keeps_distance(half) == pytest.approx(0.25, abs=0.01)
    assert keeps_distance(with_share(half, jnp.array([9.0]), 0.0)) == pytest.approx(0.3, abs=0.01)


# ---- from end to end ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def explored(tmp_path_factory):
    """The folder of a run with little data."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    run(RunStore.create(folder, replace(TINY, rounds=1, seeds=2, evaluate_every=0)), lambda *_: None)
    return folder


def test_a_certain_opponent_changes_nothing(explored):
    store = RunStore.open(explored)
    explorer = restore_explorer(store, 1)
    arguments = (Pendulum(), explorer.posterior, "keep-down", TINY.solver, 10, explorer.keys())
    found = evaluate(*arguments, adversary=Pessimistic(beta=0.0), robust=True)
    np.testing.assert_allclose(found.promised.guaranteed, found.promised.nominal)
    with pytest.raises(SondeError, match="was not run on the model"):
        _ = replace(found, imagined=None).promised
    with pytest.raises(SondeError, match="needs an adversary"):
        evaluate(*arguments, robust=True)


def test_the_command_line_compares_both_plans(explored, monkeypatch, capsys):
    ask = ("evaluate", str(explored), "--task", "swing-up")
    assert call(monkeypatch, *ask, "--robust", "--beta", "1") == 0
    printed = capsys.readouterr().out
    for part in ("true system", "robust plan: the true system brought at least", "1 epistemic stds"):
        assert part in printed
    rows = [line.split() for line in printed.splitlines() if " plain  │" in line or " robust │" in line]
    numbers = [[float(word) for word in row if word.replace(".", "").lstrip("-").isdigit()] for row in rows]
    assert [len(row) for row in numbers] == [4] * 4  # two seeds, two plans: seed, nominal, guaranteed, true
    assert all(guaranteed < nominal for _, nominal, guaranteed, _ in numbers)
    same = sum(numbers[row] == numbers[row + 1] for row in (0, 2))
    assert (f"in {same} of 2 the robust plan is the plain one" in printed) == (same > 0)


@pytest.mark.parametrize(
    "wrong, message",
    [
        (["--robust", "--oracle"], "two reports"),
        (["--beta", "1"], "give --robust as well"),
        (["--robust", "--beta", "-1"], "--beta must be 0 or above"),
    ],
)
def test_what_makes_no_sense_is_refused(explored, monkeypatch, capsys, wrong, message):
    assert call(monkeypatch, "evaluate", str(explored), "--task", "swing-up", *wrong) == 2
    assert message in capsys.readouterr().err


def test_an_opponent_that_never_answers_is_refused():
    with pytest.raises(SondeError, match="adversary_steps must be a whole number above 0"):
        Pessimistic(adversary_steps=0)
