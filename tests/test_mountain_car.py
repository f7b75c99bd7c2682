"""The mountain car against Gymnasium's MountainCarContinuous-v0."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sonde._internal.errors import SondeError
from sonde.worlds import WORLDS, MountainCar, _mountain_car

WORLD = MountainCar()
TRANSITIONS = 1000


@pytest.fixture(scope="module")
def transitions():
    """States and actions, some at the walls, the speed limit or the goal, and Gymnasium's next states, rewards and goals."""
    rng = np.random.default_rng(0)
    position, velocity = rng.uniform(-1.2, 0.6, TRANSITIONS), rng.uniform(-0.07, 0.07, TRANSITIONS)
    position[:100], velocity[:100] = rng.uniform(-1.2, -1.15, 100), rng.uniform(-0.07, -0.01, 100)
    position[100:200] = rng.uniform(0.4, 0.6, 100)
    velocity[200:300] = np.sign(velocity[200:300]) * rng.uniform(0.0695, 0.07, 100)
    position[300:310], velocity[300:310] = -1.2, 0.0  # resting at the wall
    position[310:360], velocity[310:360] = rng.uniform(0.55, 0.6, 50), rng.uniform(0.02, 0.07, 50)
    action = rng.uniform(-1, 1, TRANSITIONS)
    action[400:500] = rng.uniform(-3, 3, 100)
    env = gymnasium.make("MountainCarContinuous-v0", disable_env_checker=True).unwrapped
    env.reset(seed=0)
    found = []
    for x, v, u in zip(position, velocity, action, strict=True):
        env.state = np.array([x, v])
        observation, reward, terminated, *_ = env.step(np.array([u]))
        found.append((observation, reward, terminated))
    env.close()
    next_states, rewards, goals = map(np.array, zip(*found, strict=True))
    return np.stack([position, velocity], axis=-1), action[:, None], next_states, rewards, goals


def ours(function, *arrays):
    return np.asarray(jax.jit(jax.vmap(function))(*(jnp.asarray(a) for a in arrays)))


def test_transitions_equal_gymnasium(transitions, x64):
    states, actions, expected, *_ = transitions
    next_states = ours(WORLD.dynamics, states, actions)
    stopped = (expected[:, 0] == np.float32(-1.2)) & (expected[:, 1] == 0)
    assert stopped.sum() > 20 and (expected[:, 0] == np.float32(0.6)).sum() > 20, "some transitions reach the walls"
    assert (np.abs(expected[:, 1]) == np.float32(0.07)).sum() > 20, "some reach the speed limit"
    assert (np.abs(actions) > 1).sum() > 20, "some forces lie outside the limits"
    np.testing.assert_allclose(next_states, expected, rtol=0, atol=1e-7)  # Gymnasium rounds to single precision


def test_single_precision_transitions_equal_gymnasium(transitions):
    states, actions, expected, *_ = transitions
    np.testing.assert_allclose(ours(WORLD.dynamics, states, actions), expected, rtol=0, atol=1e-6)


def test_reward_and_goal_equal_gymnasium(transitions, x64):
    states, actions, _, rewards, goals = transitions
    next_states = ours(WORLD.dynamics, states, actions)
    assert 50 < goals.sum() < 500
    np.testing.assert_array_equal(ours(_mountain_car.in_goal, next_states), goals)
    ended_there = next_states[:, 0] >= 0.45
    assert (ended_there & ~goals).sum() > 10, "some move back through the goal"
    np.testing.assert_allclose(ours(WORLD.tasks["reach-goal"], states, actions, next_states), rewards, rtol=0, atol=1e-12)


def test_reward_depends_on_the_next_state_and_includes_the_goals_boundary():
    reward, zero = WORLD.tasks["reach-goal"], jnp.zeros(1)
    far, at_goal, back = jnp.array([0.0, 0.0]), jnp.array([0.45, 0.0]), jnp.array([0.5, -1e-4])
    assert reward(far, zero, at_goal) == 100 and reward(at_goal, zero, far) == 0 and reward(at_goal, zero, back) == 0
    np.testing.assert_allclose(reward(far, jnp.array([-0.5]), far), -0.025, rtol=1e-6)


def test_episodes_start_in_the_valley_at_rest():
    starts = np.asarray(jax.vmap(WORLD.reset)(jax.random.split(jax.random.key(0), 2000)))
    assert (starts[:, 1] == 0).all()
    assert -0.6 <= starts[:, 0].min() < -0.598 and -0.402 < starts[:, 0].max() < -0.4
    np.testing.assert_allclose(starts[:, 0].mean(), -0.5, atol=5 * 0.2 / np.sqrt(12 * 2000))


def test_full_force_does_not_reach_the_goal_but_rocking_does():
    def visited(rule):
        step = lambda x, _: (WORLD.dynamics(x, rule(x)),) * 2
        return np.asarray(jax.lax.scan(step, jnp.array([-0.5, 0.0]), None, 200)[1])

    assert visited(lambda x: jnp.ones(1))[:, 0].max() < 0.2
    rocking = visited(lambda x: jnp.where(x[1] >= 0, 1.0, -1.0)[None])
    assert rocking[:, 0].max() >= 0.45
    assert len(rocking) == 200, "the episode does not end at the goal"


@pytest.mark.slow
def test_process_noise_has_zero_mean_and_the_given_std():
    x, u = jnp.array([-0.3, 0.02]), jnp.array([0.7])
    keys = jax.random.split(jax.random.key(5), 20_000)
    noise = np.asarray(jax.vmap(lambda key: MountainCar(process_noise=0.01).step(x, u, key))(keys)) - WORLD.dynamics(x, u)
    np.testing.assert_allclose(noise.std(axis=0), 0.01, rtol=0.03)
    assert np.abs(noise.mean(axis=0)).max() < 5 * 0.01 / np.sqrt(20_000)
    np.testing.assert_array_equal(WORLD.step(x, u, keys[0]), WORLD.dynamics(x, u))
    with pytest.raises(SondeError, match="process_noise"):
        MountainCar(process_noise=-1.0)


def test_reachable_set_covers_the_system():
    states, actions, next_states = WORLD.reachable()
    assert states.shape == next_states.shape == (2000, 2) and actions.shape == (2000, 1)
    counts, _ = np.histogram(states[:, 0], bins=18, range=(-1.2, 0.6))
    assert counts.min() >= 15, "all of the track is covered, in tenths"
    assert np.abs(actions).max() <= 1 and actions.min() < -0.99 and actions.max() > 0.99
    assert states[:, 1].max() > 0.065 and states[:, 1].min() < -0.065
    assert ((states[:, 0] >= 0.45) & (states[:, 1] >= 0)).sum() > 100, "the goal is covered"
    assert ((states[:, 0] > 0) & (states[:, 1] < -0.01)).sum() > 20, "the way back is covered"
    assert (next_states[:, 0] == -1.2).sum() > 3 and (states[:, 0] == -1.2).sum() > 3, "the left wall is covered"


def test_reachable_set_is_reproducible():
    for one, other in zip(
        MountainCar(process_noise=0.5).reachable_points(), _mountain_car._reachable.__wrapped__(WORLD), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_plane_is_invertible():
    plane = WORLD.plane()
    position, velocity = np.meshgrid(np.linspace(*plane.x_range, 7), np.linspace(*plane.y_range, 5))
    states = plane.to_state(position, velocity)
    assert states.shape == (5, 7, 2)
    np.testing.assert_array_equal(plane.from_state(states), (position, velocity))


def test_mountain_car_is_registered():
    assert WORLDS["mountain-car"] is MountainCar
    assert WORLD.state_dim == 2 and WORLD.action_dim == 1 and list(WORLD.tasks) == ["reach-goal"]


# ---- other physics -----------------------------------------------------------------------------------------------------------

STRONG = MountainCar(power=0.004, gravity=0.002, max_speed=0.05)


def test_other_physics_follow_gymnasium_with_the_same_numbers(transitions, x64):
    """Gymnasium's gravity is written into its step as 0.0025, so both sides keep it; friction is compared by hand."""
    states, actions, *_ = transitions
    env = gymnasium.make("MountainCarContinuous-v0", disable_env_checker=True).unwrapped
    env.power, env.max_speed = 0.004, 0.05
    env.reset(seed=0)
    expected = []
    for state, u in zip(states, actions, strict=True):
        env.state = state.copy()
        expected.append(env.step(u)[0])
    env.close()
    world = MountainCar(power=0.004, max_speed=0.05)
    np.testing.assert_allclose(ours(world.dynamics, states, actions), expected, rtol=0, atol=1e-7)
    assert (np.abs(np.array(expected)[:, 1]) == np.float32(0.05)).sum() > 20, "some reach the speed limit"


def test_gravity_and_friction_by_hand(x64):
    position, velocity, u = -0.3, 0.02, 0.5
    after = 0.9 * velocity + 0.0015 * u - 0.002 * np.cos(3 * position)
    found = MountainCar(gravity=0.002, friction=0.1).dynamics(jnp.asarray([position, velocity]), jnp.asarray([u]))
    np.testing.assert_allclose(found, [position + after, after], rtol=1e-12)


@pytest.mark.slow
def test_limits_and_reachable_set_follow_the_physics():
    np.testing.assert_allclose(STRONG.project(jnp.asarray([0.0, 0.07])), [0, 0.05])
    assert STRONG.plane().y_range == (-0.05, 0.05)
    states, _ = STRONG.reachable_points()
    assert 0.049 < states[:, 1].max() <= 0.05
    weak, _ = MountainCar(power=0.0001, friction=0.05).reachable_points()
    assert weak[:, 0].max() < 0, "it does not leave its valley"


@pytest.mark.parametrize("name", ["power", "gravity", "max_speed"])
def test_impossible_physics_are_rejected(name):
    with pytest.raises(SondeError, match=f"mountain-car: {name} must be above 0, got 0"):
        MountainCar(**{name: 0.0})
    with pytest.raises(SondeError, match="friction must be 0 or above and finite, got -1"):
        MountainCar(friction=-1.0)
