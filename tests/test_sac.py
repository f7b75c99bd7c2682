"""Soft actor-critic on problems with known solutions."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from sonde import (
    METHODS,
    SAC,
    Controller,
    Explorer,
    Learned,
    ProbabilisticEnsemble,
    RunConfig,
    SondeError,
    TaskSetup,
    TrueDynamics,
    evaluate,
    load_policy,
    preset,
    rollout,
)
from sonde._internal.randomness import for_purpose, round_keys
from sonde.data import Data, SystemSpec
from sonde.imagination import Mean, Optimistic
from sonde.models import Posterior, Prediction
from sonde.objectives import TaskReward
from sonde.runs._run import run
from sonde.runs._store import RunStore
from sonde.solvers import ControlProblem, solve
from sonde.solvers._actor import squashed_gaussian
from sonde.worlds import MountainCar, Pendulum

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


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def visited(states):
    return Data(states, jnp.zeros((len(states), 1)), states, jnp.asarray(len(states)))


class Known(Posterior):
    """Five small worlds in one, told apart by the second state; each isolates one thing that can go wrong."""

    def predict(self, x, u):
        after = jnp.stack([x[0], x[0], -x[0], -x[0], u[0]])[x[1].astype(int)]
        mean = jnp.stack([after, x[1]])
        return Prediction(mean, 0 * mean, 0 * mean)


def known_reward(x, u, x_next):
    del x_next
    rewards = [
        jnp.ones(()),  # constant: do the critics learn a number at all
        x[0],  # of the state, which is constant: do they depend on the state
        jnp.where(x[0] > 0, 1.0, 0.0),  # at every other step: do they discount
        -((u[0] - 0.5 * x[0]) ** 2),  # of the action, given the state: does the actor follow the critics
        -((x[0] - 0.5) ** 2),  # of the state that the previous action chose: does the actor look ahead
    ]
    return jnp.stack(rewards)[x[1].astype(int)]


@pytest.fixture(scope="module")
def trained():
    with jax.enable_x64(True):
        signs = jnp.where(jnp.arange(40) % 2 == 0, 1.0, -1.0)
        states = jnp.stack([jnp.stack([signs, jnp.full(40, float(kind))], axis=1) for kind in range(5)])
        data = jax.vmap(visited)(states)
        problem = ControlProblem(Known(), Mean(), TaskReward(known_reward), 2, 1)
        keys = jax.random.split(jax.random.key(0), 5)
        return jax.jit(jax.vmap(lambda data, key: SMALL.train(problem, data, key)))(data, keys)


def values_and_actions(trained, kind):
    """What was learned in one of the five worlds, as functions of the state."""
    one = jax.tree.map(lambda leaf: leaf[kind], trained)
    value = lambda x, u=0.0: float(one.value(jnp.asarray([x, float(kind)]), jnp.asarray([u])))

    def action(x):
        state = one.normaliser(jnp.asarray([x, float(kind)]))[None]
        return float(jnp.tanh(one.learner.actor(state)[0, 0]))

    return value, action


@pytest.mark.slow
def test_world_1_value_of_a_constant_reward(trained):
    value, _ = values_and_actions(trained, 0)
    assert value(1.0) == pytest.approx(1 / (1 - DISCOUNT), rel=0.05)


def test_world_2_value_of_a_reward_that_depends_on_the_state(trained):
    value, _ = values_and_actions(trained, 1)
    assert value(1.0) == pytest.approx(1 / (1 - DISCOUNT), rel=0.05)
    assert value(-1.0) == pytest.approx(-1 / (1 - DISCOUNT), rel=0.05)


def test_world_3_later_rewards_are_discounted(trained):
    value, _ = values_and_actions(trained, 2)
    assert value(1.0) == pytest.approx(1 / (1 - DISCOUNT**2), rel=0.05)
    assert value(-1.0) == pytest.approx(DISCOUNT / (1 - DISCOUNT**2), rel=0.05)
    assert value(1.0) - value(-1.0) == pytest.approx(1 / (1 + DISCOUNT), rel=0.2)


def test_world_4_actions_maximise_a_reward_that_depends_on_the_state(trained):
    value, action = values_and_actions(trained, 3)
    assert action(1.0) == pytest.approx(0.5, abs=0.1) and action(-1.0) == pytest.approx(-0.5, abs=0.1)
    # the policy keeps some entropy, so the value of the best action is slightly below 0; that of the wrong one is 1 lower
    assert value(1.0, 0.5) == pytest.approx(0.0, abs=0.3)
    assert value(1.0, 0.5) - value(1.0, -0.5) == pytest.approx(1.0, abs=0.2)


def test_world_5_actions_maximise_a_later_reward(trained):
    value, action = values_and_actions(trained, 4)
    assert action(1.0) == pytest.approx(0.5, abs=0.1) and action(-1.0) == pytest.approx(0.5, abs=0.1)
    assert value(-1.0, 0.5) == pytest.approx(-2.25, abs=0.3)


class Uncertain(Posterior):
    """x' = x, with a large epistemic std."""

    scale: jax.Array

    def predict(self, x, u):
        return Prediction(x, self.scale * jnp.ones_like(x), 0 * x)


def uncertain_problem(objective=None):
    objective = objective or TaskReward(lambda x, u, x_next: x_next[0] - x_next[1] - x[0] + x[1] - u[0] ** 2)
    return ControlProblem(Uncertain(jnp.ones(1)), Optimistic(beta=1.0), objective, 2, 1)


def some_data(num_seeds=1):
    states = jax.random.normal(jax.random.key(1), (num_seeds, 30, 2))
    return jax.vmap(visited)(states)


@pytest.mark.slow
def test_eta_is_part_of_the_policy(tmp_path):
    problem, data = uncertain_problem(), some_data()
    policy = solve(SMALL, problem, data, jax.random.split(jax.random.key(3), 1))
    outputs = policy.network.weights[-1].shape[-1] // 2
    assert outputs == problem.control_dim == 3
    one = jax.tree.map(lambda leaf: leaf[0], policy)
    controls = jnp.tanh(one.network(one.normaliser(data.states[0]))[:, :3])
    assert np.all(controls[:, 1] > 0.5) and np.all(controls[:, 2] < -0.5), "eta maximises the reward"
    assert np.all(np.abs(controls[:, 0]) < 0.3), "actions have a cost"

    path = tmp_path / "policy.safetensors"
    path.write_bytes(policy.to_bytes())
    deployed = load_policy(path)
    for x in np.asarray(data.states[0, :5]):
        expected = one.act(None, jnp.asarray(x), jax.random.key(0))[0]
        np.testing.assert_allclose(deployed(x), expected, atol=1e-5)


def drawn_actions(policy, x, count):
    """Actions [count, S] of a policy in one state, each with a key of its own."""
    act = lambda one, key: one.act(None, x, key)[0][0]
    keys = jax.random.split(jax.random.key(5), count)
    return np.asarray(jax.jit(jax.vmap(jax.vmap(act, in_axes=(0, None)), in_axes=(None, 0)))(policy, keys))


@pytest.mark.slow
def test_exploration_samples_the_actor_and_tasks_use_its_mean():
    """Samples follow the actor's squashed Gaussian (Kolmogorov-Smirnov), and both policies have the same network."""
    small = dataclasses.replace(SMALL, training_steps=1, gradient_steps=5)
    problem, data, keys = uncertain_problem(), some_data(), jax.random.split(jax.random.key(3), 1)
    task, explore = (solve(small, problem, data, keys, purpose) for purpose in ("policy", "exploration_policy"))
    for a, b in zip(jax.tree.leaves(task), jax.tree.leaves(explore), strict=True):
        np.testing.assert_array_equal(a, b)
    x = data.states[0, 0]
    one = jax.tree.map(lambda leaf: leaf[0], task)
    output = np.asarray(one.network(one.normaliser(x)[None])[0], np.float64)
    mean, std = output[0], np.exp(-5 + 3.5 * (np.tanh(output[3]) + 1))
    np.testing.assert_allclose(drawn_actions(task, x, 3), np.tanh(mean), rtol=1e-5)
    before_tanh = np.arctanh(drawn_actions(explore, x, 2000)[:, 0])
    assert stats.kstest(before_tanh, stats.norm(mean, std).cdf).pvalue > 1e-3


@pytest.mark.slow
def test_first_round_samples_an_untrained_actor():
    """Training settings that would diverge do not matter, and the actions vary."""
    wild = dataclasses.replace(SMALL, actor_learning_rate=1e30)
    model = ProbabilisticEnsemble(members=2, layers=1, width=8, epochs=2)
    explorer = Explorer(METHODS["opax"], model, wild, SystemSpec.of_size(2, 1), capacity=10)
    policy = explorer.ask().policy
    untrained = wild._init(uncertain_problem(), jax.random.split(for_purpose(round_keys([0], 0), "solve")[0])[0]).actor
    for a, b in zip(jax.tree.leaves(policy.network), jax.tree.leaves(untrained), strict=True):
        np.testing.assert_allclose(a[0], b, atol=1e-6)
    assert drawn_actions(policy, jnp.zeros(2), 500).std() > 0.1


@pytest.mark.slow
def test_policy_can_be_trained_without_measurements():
    data = jax.tree.map(lambda leaf: leaf[None], Data.empty(10, 2, 1))
    small = dataclasses.replace(SMALL, training_steps=1, gradient_steps=2)
    policy = solve(small, uncertain_problem(), data, jax.random.split(jax.random.key(2), 1))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(policy))


@pytest.mark.slow
def test_seeds_in_lockstep_equal_single_seeds():
    small = dataclasses.replace(SMALL, training_steps=2, gradient_steps=5)
    problem = ControlProblem(Uncertain(jnp.ones((2, 1))), Optimistic(beta=1.0), uncertain_problem().objective, 2, 1)
    keys, data = jax.random.split(jax.random.key(3), 2), some_data(2)
    together = solve(small, problem, data, keys)
    for index in range(2):
        pick = lambda tree, i=index: jax.tree.map(lambda leaf: leaf[i : i + 1], tree)
        alone = solve(small, pick(problem), pick(data), keys[index : index + 1])
        for a, b in zip(jax.tree.leaves(pick(together)), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-4)


@pytest.mark.slow
def test_imagined_steps_with_nonfinite_rewards_are_replaced():
    def reward(x, u, x_next):
        return jnp.where(x[0] > 0, jnp.nan, 1.0)

    small = dataclasses.replace(SMALL, training_steps=2, gradient_steps=5)
    policy = solve(small, uncertain_problem(objective=TaskReward(reward)), some_data(), jax.random.split(jax.random.key(2), 1))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(policy))


def test_density_of_squashed_controls_integrates_to_one():
    output = jnp.asarray([0.3, -0.1], jnp.float32)  # mean, raw log std
    noise = jnp.linspace(-9, 9, 40_001, dtype=jnp.float32)[:, None]
    controls, log_density = squashed_gaussian(jnp.broadcast_to(output, (len(noise), 2)), noise)
    u, density = np.asarray(controls[:, 0], np.float64), np.exp(np.asarray(log_density, np.float64))
    assert integrate.trapezoid(density, u) == pytest.approx(1.0, abs=2e-3)
    std = np.exp(-5 + 3.5 * (np.tanh(-0.1) + 1))
    at = np.searchsorted(u, 0.2)
    expected = stats.norm.pdf(np.arctanh(u[at]), 0.3, std) / (1 - u[at] ** 2)
    assert density[at] == pytest.approx(expected, rel=1e-3)


def test_objectives_that_compare_particles_are_rejected():
    with pytest.raises(SondeError, match="use the solver icem"):
        preset("mountain-car-lite").with_method("cee-us")


def test_rewards_of_any_size_are_scaled_to_the_same_unit():
    """The unit of returns follows the rewards, however small they are; without rewards it is 0."""
    unit = 1 / (1 - SMALL.discount) ** 0.5
    rewards = jnp.zeros((2, 128), jnp.float32)
    assert float(SMALL._return_scale(rewards, jnp.asarray(2))) == 0
    for size in (1e-30, 1.0, 1e20):
        scale = SMALL._return_scale(rewards.at[0].set(size), jnp.asarray(1))
        assert float(scale) == pytest.approx(size * unit, rel=1e-5)


@pytest.mark.slow
def test_diverged_policy_is_rejected():
    wild = dataclasses.replace(SMALL, training_steps=1, gradient_steps=20, actor_learning_rate=1e30)
    with pytest.raises(SondeError, match="lower its learning rates"):
        solve(wild, uncertain_problem(), some_data(), jax.random.split(jax.random.key(2), 1))


@pytest.mark.parametrize(
    "change",
    [
        {"training_steps": 0},
        {"discount": 1.0},
        {"discount": float("nan")},
        {"actor": ()},
        {"critic": (64, 0)},
        {"tau": 0.0},
        {"critic_learning_rate": -1.0},
        {"target_entropy": float("inf")},
    ],
)
def test_settings_that_cannot_work_are_rejected(change):
    with pytest.raises(SondeError, match=next(iter(change))):
        dataclasses.replace(SMALL, **change)


@pytest.mark.slow
def test_run_saves_its_policies_and_resumes_bit_for_bit(tmp_path):
    small = dataclasses.replace(SMALL, training_steps=1, gradient_steps=3)
    model = ProbabilisticEnsemble(members=2, layers=1, width=8, epochs=2)
    config = RunConfig(world=MountainCar(), model=model, solver=small, rounds=2, horizon=10, evaluation_horizon=10)
    store = RunStore.create(tmp_path / "run", config)
    explorer = run(store)
    files = {path: path.read_bytes() for path in store.folder.rglob("*.safetensors")}
    assert {path.stem for path in files if path.parent.name == "policies"} == {"explore", "reach-goal"}
    assert load_policy(store.folder / "policies" / "reach-goal.safetensors")(np.zeros(2)).shape == (1,)

    again = run(RunStore.open(store.folder), from_round=1)
    assert again.round == explorer.round == 2
    assert {path: path.read_bytes() for path in store.folder.rglob("*.safetensors")} == files


def on_true_dynamics(world, solver, rollouts):
    """Returns [S] of one policy and trajectories from other starts, trained on the true dynamics from reachable states."""
    states, actions, next_states = map(jnp.asarray, world.reachable())
    data = jax.tree.map(lambda leaf: leaf[None], Data(states, actions, next_states, jnp.asarray(len(states))))
    setup, keys = TaskSetup.named(world, next(iter(world.tasks)), solver, 200), round_keys([0], 0)
    played = evaluate(setup, Learned(TrueDynamics(world), data), keys)
    starts = [Controller(played.policy, for_purpose(keys, f"start/{n}"), world.state_dim) for n in range(rollouts)]
    return played.returns, [rollout(world, controller, 200) for controller in starts]


@pytest.mark.slow
def test_policy_trained_on_the_true_dynamics_solves_mountain_car():
    _, trajectories = on_true_dynamics(MountainCar(), preset("mountain-car-lite").solver, 10)
    reached = [bool(np.any((t.next_states[..., 0] >= 0.45) & (t.next_states[..., 1] >= 0))) for t in trajectories]
    assert sum(reached) == 10
    assert len({t.states[0, 0, 0] for t in trajectories}) == 10, "each starts in another state"


@pytest.mark.slow
def test_policy_trained_on_the_true_dynamics_swings_up_the_pendulum():
    returns, _ = on_true_dynamics(Pendulum(), preset("mountain-car").solver, 0)
    assert returns[0] > -450, "iCEM on the true dynamics gets about -370, random actions less than -1000"
