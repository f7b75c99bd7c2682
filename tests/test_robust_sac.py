"""Soft actor-critic against an adversary, on games whose solution is known."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sonde import ICEM, evaluate
from sonde._internal.randomness import round_keys
from sonde.data import Data
from sonde.imagination import Pessimistic
from sonde.models._base import Prediction, Posterior
from sonde.models._network import Network
from sonde.models._normaliser import Normaliser
from sonde.objectives import TaskReward
from sonde.solvers._actor import ActorPolicy, squashed
from sonde.solvers._base import ControlProblem
from sonde.solvers._sac import SAC
from sonde.solvers.adversarial._guarantees import OneOf, most_robust
from sonde.worlds._base import JaxWorld

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


class Games(Posterior):
    """Three games in one, told apart by the second number of the state, of which there is no doubt."""

    def predict(self, x, u):
        force = u[0]
        kind = x[1].astype(int)
        mean = jnp.stack([force, x[0], x[0] + 0.5 * force])[kind]
        std = jnp.stack([force**2, 1 + 0 * force, 0.3 + 0 * force])[kind]
        return Prediction(jnp.stack([mean, x[1]]), jnp.stack([std, 0 * std]), 0 * x)


def game_reward(x, u, x_next):
    rewards = [
        x[0],  # x' = u + u^2 eta, and the reward comes a step later
        u[0] * (x_next[0] - x[0] + 0.5),  # x' = x + eta: it must know u, or the players chase each other, and x does not matter
        -(x_next[0] ** 2),  # x' = x + u / 2 + 0.3 eta: both corners hurt, and which one more depends on x
    ]
    return jnp.stack(rewards)[x[1].astype(int)]


@pytest.fixture(scope="module")
def trained():
    with jax.enable_x64(True):
        line = jnp.linspace(-1, 1, 40)
        data = jax.vmap(lambda kind: visited(jnp.stack([line, jnp.full(40, kind)], axis=1)))(jnp.arange(3.0))
        problem = ControlProblem(Games(), Pessimistic(beta=1.0), TaskReward(game_reward), 2, 1, 1)
        keys = jax.random.split(jax.random.key(0), 3)
        return jax.jit(jax.vmap(lambda data, key: SMALL.train(problem, data, key)))(data, keys)


def learned(trained, kind):
    """What the players do without draws, and what the critics expect of that."""
    one = jax.tree.map(lambda leaf: leaf[kind], trained)
    policy = ActorPolicy(one.learner.actor, one.normaliser, 1, one.learner.adversary.network)
    at = lambda x: jnp.asarray([x, float(kind)])
    action = lambda x: float(policy.act(None, at(x), jax.random.key(0))[0][0])
    response = lambda x: float(policy.response(at(x))[0])
    value = lambda x: float(one.value(at(x), jnp.asarray([action(x)])))
    return action, response, value


def test_the_actor_forgoes_what_an_opponent_can_take(trained, x64):
    """Max over u of u - u^2 is 1 / 4 at u = 1 / 2, where the mean alone would have u = 1."""
    action, response, value = learned(trained, 0)
    for x in PLACES:
        assert action(x) == pytest.approx(0.5, abs=0.1) and response(x) == pytest.approx(-1.0, abs=0.1)
        assert value(x) == pytest.approx(x + 0.25 * DISCOUNT / (1 - DISCOUNT), abs=0.3)


def test_the_opponent_sees_the_action(trained, x64):
    """Max over u of u / 2 - |u| is at u = 0, where the mean alone would have u = 1; eta is minus the sign of u."""
    action, _, value = learned(trained, 1)
    for x in PLACES:
        assert abs(action(x)) < 0.2
        assert -2 < value(x) < 0, "nothing but what randomness costs: where no step was imagined, nothing worse is feared"
    one = jax.tree.map(lambda leaf: leaf[1], trained)
    for u in (-0.5, 0.5):
        seen = jnp.concatenate([one.normaliser(jnp.asarray([0.0, 1.0])), jnp.asarray([u])])
        assert jnp.tanh(one.learner.adversary.network(seen[None]))[0, 0] == pytest.approx(-np.sign(u), abs=0.1)


def test_the_opponent_finds_the_corner_that_depends_on_the_state(trained, x64):
    """The best u brings x + u / 2 to zero, and the adversary takes 0.09 at every step; without it nothing would be lost."""
    action, response, value = learned(trained, 2)
    for x in PLACES:
        assert action(x) == pytest.approx(np.clip(-2 * x, -1, 1), abs=0.15)
    assert response(0.8) == pytest.approx(1.0, abs=0.1) and response(-0.8) == pytest.approx(-1.0, abs=0.1)
    # the rest is what the players' own randomness costs
    assert -0.09 / (1 - DISCOUNT) - 1.0 < value(0.0) < -0.09 / (1 - DISCOUNT) + 0.1


def test_the_opponent_keeps_its_entropy(trained, x64):
    one = jax.tree.map(lambda leaf: leaf[0], trained)
    states = one.normaliser(jnp.stack([jnp.linspace(-1, 1, 2000), jnp.zeros(2000)], axis=1))
    noise = jax.random.normal(jax.random.key(1), (2000, 2), jnp.float32)
    seen = jnp.concatenate([states, jnp.full((2000, 1), 0.5)], axis=1)
    _, density = squashed(one.learner.adversary.network(seen), noise)
    assert -jnp.mean(density) / 2 == pytest.approx(SMALL.target_entropy, abs=0.5)


def constant(inputs, output):
    """The network that says `output`, whatever it sees."""
    return Network((jnp.zeros((inputs, 2), jnp.float32),), (jnp.asarray([output, 0.0], jnp.float32),))


class Shaken(Posterior):
    """x' = eta."""

    def predict(self, x, u):
        return Prediction(0 * x, 1 + 0 * x, 0 * x)


def pit(x, u, x_next):
    """It is downhill to the left, but there is a deep pit on the right, where no corner is."""
    return x_next[0] - 5 * jnp.exp(-(((x_next[0] - 0.5) / 0.1) ** 2))


@pytest.mark.parametrize(
    "adversary, lowest", [(None, -1), (-0.5, -1), (np.arctanh(0.5), 0.5 - 5)], ids=["none", "weak", "strong"]
)
def test_the_guarantee_is_against_the_stronger_opponent(adversary, lowest, x64):
    problem = ControlProblem(Shaken(), Pessimistic(beta=1.0), TaskReward(pit), 1, 1, 1)
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


class Doubtful(Posterior):
    """Knows weak throws well, and strong ones badly; or is sure of its mean, if `doubt` is 0."""

    doubt: jax.Array

    def predict(self, x, u):
        return Prediction(u, self.doubt * u**2, 0 * u)


@pytest.mark.parametrize("solver", [SMALL, ICEM(horizon=2, samples=64, elites=8, iterations=4)], ids=["sac", "icem"])
def test_a_robust_policy_is_worth_more_at_worst_than_one_that_trusts_the_mean(solver):
    """At worst a force u brings u - u^2, and none brings more than 1 / 4; the mean promises u."""
    with jax.enable_x64(True):
        data = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), visited(jnp.linspace(-1, 1, 40)[:, None]))
        posterior, keys = Doubtful(jnp.asarray([1.0, 0.0])), round_keys([0, 1], 0)
    found = evaluate(Throw(), posterior, "far", solver, 5, keys, data, adversary=Pessimistic(beta=1.0), robust=True)
    assert found.imagined is not None
    nominal, guaranteed = found.imagined.nominal, found.imagined.guaranteed
    assert 5 * 0.23 < guaranteed[0] <= 5 * 0.25 + 1e-6
    assert nominal[0] == pytest.approx(5 * 0.5, abs=0.5)
    assert guaranteed[1] == nominal[1] > 5 * 0.8, "an adversary can do nothing where there is no doubt"
    forces = found.trajectory.actions[1, :, 0]
    assert np.sum(forces - forces**2) < guaranteed[0] / 2, "yet if there was reason to doubt"
    np.testing.assert_allclose(found.returns, nominal, err_msg="the mean is the truth here")
    if isinstance(solver, ICEM):  # the plain plan where there is no doubt, another where there is
        assert isinstance(found.policy, OneOf) and list(np.asarray(found.policy.number) > 0) == [True, False]
