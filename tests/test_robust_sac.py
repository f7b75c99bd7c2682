"""Soft actor-critic against an adversary, on zero-sum problems with known solutions."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sonde import ICEM, SAC, Learned, TaskSetup
from sonde._internal.randomness import round_keys
from sonde.data import Data
from sonde.evaluation import plan_robust_task, plan_task, run_task, score_on_model
from sonde.imagination import Pessimistic
from sonde.models import Posterior, Prediction
from sonde.models._network import Network
from sonde.models._normaliser import Normaliser
from sonde.objectives import TaskReward
from sonde.solvers import ControlProblem
from sonde.solvers._actor import ActorPolicy, squashed_gaussian
from sonde.solvers.adversarial import most_robust
from sonde.solvers.adversarial._guarantees import PolicyPerSeed
from sonde.worlds import JaxWorld

DISCOUNT = 0.9
SMALL = SAC(
    training_steps=15,
    gradient_steps=100,
    starts=64,
    horizon=2,
    batch_size=64,
    discount=DISCOUNT,
    actor=(32, 32),
    critic=(32, 32),
    actor_learning_rate=3e-3,
    critic_learning_rate=3e-3,
    temperature_learning_rate=1e-2,
    tau=0.05,
)
PLACES = (-0.8, -0.4, 0.0, 0.4, 0.8)


def visited(states):
    return Data(states, jnp.zeros((len(states), 1)), states, jnp.asarray(len(states)))


class ZeroSum(Posterior):
    """Three zero-sum problems in one, told apart by the second state, which is certain."""

    def predict(self, x, u):
        force = u[0]
        kind = x[1].astype(int)
        mean = jnp.stack([force, x[0], x[0] + 0.5 * force])[kind]
        std = jnp.stack([force**2, 1 + 0 * force, 0.3 + 0 * force])[kind]
        return Prediction(jnp.stack([mean, x[1]]), jnp.stack([std, 0 * std]), 0 * x)


def zero_sum_reward(x, u, x_next):
    rewards = [
        x[0],  # x' = u + u^2 eta, and the reward comes a step later
        u[0] * (x_next[0] - x[0] + 0.5),  # x' = x + eta: the adversary must see u, or both would cycle; x does not matter
        -(x_next[0] ** 2),  # x' = x + u / 2 + 0.3 eta: both corners hurt, and the worse one depends on x
    ]
    return jnp.stack(rewards)[x[1].astype(int)]


@pytest.fixture(scope="module")
def trained():
    with jax.enable_x64(True):
        line = jnp.linspace(-1, 1, 40)
        data = jax.vmap(lambda kind: visited(jnp.stack([line, jnp.full(40, kind)], axis=1)))(jnp.arange(3.0))
        problem = ControlProblem(ZeroSum(), Pessimistic(beta=1.0), TaskReward(zero_sum_reward), 2, 1)
        keys = jax.random.split(jax.random.key(0), 3)
        return jax.jit(jax.vmap(lambda data, key: SMALL.train(problem, data, key)))(data, keys)


def both_players(trained, kind):
    """Actions and adversary's choices without noise, and the critics' value of them, as functions of the state."""
    one = jax.tree.map(lambda leaf: leaf[kind], trained)
    policy = ActorPolicy(one.learner.actor, one.normaliser, 1, one.learner.adversary.network)
    at = lambda x: jnp.asarray([x, float(kind)])
    action = lambda x: float(policy.act(None, at(x), jax.random.key(0))[0][0])
    eta = lambda x: float(policy.adversary_controls(at(x))[0])
    value = lambda x: float(one.value(at(x), jnp.asarray([action(x)])))
    return action, eta, value


@pytest.mark.slow
def test_actor_avoids_actions_that_the_adversary_can_exploit(trained, x64):
    """Max over u of u - u^2 is 1 / 4 at u = 1 / 2, where the mean alone would have u = 1."""
    action, eta, value = both_players(trained, 0)
    for x in PLACES:
        assert action(x) == pytest.approx(0.5, abs=0.1) and eta(x) == pytest.approx(-1.0, abs=0.1)
        assert value(x) == pytest.approx(x + 0.25 * DISCOUNT / (1 - DISCOUNT), abs=0.3)


def test_adversary_depends_on_the_action(trained, x64):
    """Max over u of u / 2 - |u| is at u = 0, where the mean alone would have u = 1; eta is minus the sign of u."""
    action, _, value = both_players(trained, 1)
    for x in PLACES:
        assert abs(action(x)) < 0.2
        assert -2 < value(x) < 0, "only the cost of entropy: the critics do not extrapolate beyond imagined states"
    one = jax.tree.map(lambda leaf: leaf[1], trained)
    for u in (-0.5, 0.5):
        seen = jnp.concatenate([one.normaliser(jnp.asarray([0.0, 1.0])), jnp.asarray([u])])
        assert jnp.tanh(one.learner.adversary.network(seen[None]))[0, 0] == pytest.approx(-np.sign(u), abs=0.1)


def test_adversary_finds_the_corner_that_depends_on_the_state(trained, x64):
    """The best u brings x + u / 2 to zero, and the adversary costs 0.09 at every step; without it the return would be 0."""
    action, eta, value = both_players(trained, 2)
    for x in PLACES:
        assert action(x) == pytest.approx(np.clip(-2 * x, -1, 1), abs=0.15)
    assert eta(0.8) == pytest.approx(1.0, abs=0.1) and eta(-0.8) == pytest.approx(-1.0, abs=0.1)
    # the rest is the cost of both players' entropy
    assert -0.09 / (1 - DISCOUNT) - 1.0 < value(0.0) < -0.09 / (1 - DISCOUNT) + 0.1


@pytest.mark.slow
def test_adversary_maintains_its_entropy(trained, x64):
    one = jax.tree.map(lambda leaf: leaf[0], trained)
    states = one.normaliser(jnp.stack([jnp.linspace(-1, 1, 2000), jnp.zeros(2000)], axis=1))
    noise = jax.random.normal(jax.random.key(1), (2000, 2), jnp.float32)
    seen = jnp.concatenate([states, jnp.full((2000, 1), 0.5)], axis=1)
    _, density = squashed_gaussian(one.learner.adversary.network(seen), noise)
    assert -jnp.mean(density) / 2 == pytest.approx(SMALL.target_entropy, abs=0.5)


def constant(inputs, output):
    """A network with a constant output."""
    return Network((jnp.zeros((inputs, 2), jnp.float32),), (jnp.asarray([output, 0.0], jnp.float32),))


class Shaken(Posterior):
    """x' = eta."""

    def predict(self, x, u):
        return Prediction(0 * x, 1 + 0 * x, 0 * x)


def pit(x, u, x_next):
    """It falls to the left, but has a deep minimum on the right, which is no corner."""
    return x_next[0] - 5 * jnp.exp(-(((x_next[0] - 0.5) / 0.1) ** 2))


@pytest.mark.slow
@pytest.mark.parametrize(
    "adversary, lowest", [(None, -1), (-0.5, -1), (np.arctanh(0.5), 0.5 - 5)], ids=["none", "weak", "strong"]
)
def test_guaranteed_return_is_against_the_strongest_adversary(adversary, lowest, x64):
    problem = ControlProblem(Shaken(), Pessimistic(beta=1.0), TaskReward(pit), 1, 1)
    trained = None if adversary is None else constant(2, adversary)
    policy = jax.tree.map(lambda leaf: leaf[None], ActorPolicy(constant(1, 0.0), Normaliser.identity(1), 1, trained))
    starts, keys = jnp.zeros((1, 2, 1)), jax.random.split(jax.random.key(0), (1, 2))
    _, found = most_robust([policy], problem, starts, 3, keys)
    np.testing.assert_allclose(found.nominal, [0.0], atol=1e-6)
    np.testing.assert_allclose(found.guaranteed, [3 * lowest], atol=1e-4)


@dataclass(frozen=True)
class Throw(JaxWorld):
    """x' = u, far or near."""

    state_names, action_names = ("distance",), ("force",)
    tasks = {"far": lambda x, u, x_next: x_next[0]}

    def reset(self, key):
        return jax.random.uniform(key, (1,), minval=-1.0)

    def dynamics(self, x, u):
        return u

    def step(self, x, u, key):
        return self.dynamics(x, u)

    def reachable_points(self):
        return np.linspace(-1, 1, 40)[:, None], np.zeros((40, 1))


class UncertainThrow(Posterior):
    """More uncertain the stronger the throw; certain where `scale` is 0."""

    scale: jax.Array

    def predict(self, x, u):
        return Prediction(u, self.scale * u**2, 0 * u)


@pytest.mark.slow
@pytest.mark.parametrize("solver", [SMALL, ICEM(horizon=2, samples=64, elites=8, iterations=4)], ids=["sac", "icem"])
def test_robust_policy_has_a_better_worst_case_than_the_plain_one(solver):
    """In the worst case a force u returns u - u^2, which is at most 1 / 4; on the mean it returns u."""
    with jax.enable_x64(True):
        data = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), visited(jnp.linspace(-1, 1, 40)[:, None]))
        learned, keys = Learned(UncertainThrow(jnp.asarray([1.0, 0.0])), data), round_keys([0, 1], 0)
    setup, adversary = TaskSetup.named(Throw(), "far", solver, 5), Pessimistic(beta=1.0)
    plain = score_on_model(setup, learned.posterior, keys, plan_task(setup, learned, keys), adversary)
    policy, returns = plan_robust_task(setup, learned, keys, adversary, plain)
    found = run_task(setup, policy, keys)
    nominal, guaranteed = returns.nominal, returns.guaranteed
    assert 5 * 0.23 < guaranteed[0] <= 5 * 0.25 + 1e-6
    assert nominal[0] == pytest.approx(5 * 0.5, abs=0.5)
    assert guaranteed[1] == nominal[1] > 5 * 0.8, "an adversary has no effect where the model is certain"
    forces = found.trajectory.actions[1, :, 0]
    assert np.sum(forces - forces**2) < guaranteed[0] / 2, "the same forces would be worse if the model were uncertain"
    np.testing.assert_allclose(found.returns, nominal, rtol=1e-6, err_msg="the mean is the truth here")
    if isinstance(solver, ICEM):  # the plain plan where the model is certain, another one where it is not
        assert isinstance(found.policy, PolicyPerSeed) and list(np.asarray(found.policy.index) > 0) == [True, False]
