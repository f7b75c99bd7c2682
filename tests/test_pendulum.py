"""The pendulum against Gymnasium's Pendulum-v1 and closed forms."""

from dataclasses import dataclass, replace

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sonde._internal.errors import SondeError
from sonde.worlds import Pendulum, _pendulum

WORLD = Pendulum()
TRANSITIONS = 1000


@pytest.fixture(scope="module")
def transitions():
    """States and actions, many of them at the limits, and Gymnasium's next states, angles and rewards."""
    rng = np.random.default_rng(0)
    theta = rng.uniform(-np.pi, np.pi, TRANSITIONS)
    speed = rng.uniform(-8, 8, TRANSITIONS)
    speed[:100] = np.sign(speed[:100]) * rng.uniform(7.8, 8, 100)
    action = rng.uniform(-1, 1, TRANSITIONS)
    action[100:200] = rng.uniform(-3, 3, 100)
    env = gymnasium.make("Pendulum-v1", disable_env_checker=True).unwrapped
    env.reset(seed=0)
    observations, angles, rewards = [], [], []
    for th, thdot, u in zip(theta, speed, action, strict=True):
        env.state = np.array([th, thdot])
        observation, reward, *_ = env.step(np.array([2 * u]))
        observations.append(observation)
        angles.append(env.state)
        rewards.append(reward)
    env.close()
    states = np.stack([np.cos(theta), np.sin(theta), speed], axis=-1)
    return states, action[:, None], np.array(observations), np.array(angles), np.array(rewards)


def ours(function, *arrays):
    return np.asarray(jax.jit(jax.vmap(function))(*(jnp.asarray(a) for a in arrays)))


def test_transitions_equal_gymnasium(transitions, x64):
    states, actions, observations, angles, _ = transitions
    next_states = ours(WORLD.dynamics, states, actions)
    assert (np.abs(observations[:, 2]) == 8).sum() > 20, "some transitions reach the speed limit"
    assert (np.abs(actions) > 1).sum() > 20, "some torques lie outside the limits"
    np.testing.assert_allclose(next_states, observations, atol=1e-5)
    # Gymnasium's internal state is in double precision
    exact = np.stack([np.cos(angles[:, 0]), np.sin(angles[:, 0]), angles[:, 1]], axis=-1)
    np.testing.assert_allclose(next_states, exact, atol=1e-12)


def test_single_precision_transitions_equal_gymnasium(transitions):
    states, actions, observations, *_ = transitions
    np.testing.assert_allclose(ours(WORLD.dynamics, states, actions), observations, atol=1e-5)


def test_swing_up_equals_gymnasiums_reward(transitions, x64):
    states, actions, observations, _, rewards = transitions
    inside = np.abs(actions[:, 0]) <= 1
    assert inside.sum() > 800
    reward = ours(WORLD.tasks["swing-up"], states, actions, observations)
    np.testing.assert_allclose(reward[inside], rewards[inside], atol=1e-10)


def test_keep_down_is_the_same_reward_relative_to_hanging(transitions, x64):
    states, actions, observations, *_ = transitions
    theta = np.arctan2(states[:, 1], states[:, 0])
    from_hanging = np.pi - np.abs(theta)
    expected = -(from_hanging**2 + 0.1 * states[:, 2] ** 2 + 0.001 * (2 * actions[:, 0]) ** 2)
    np.testing.assert_allclose(ours(WORLD.tasks["keep-down"], states, actions, observations), expected, atol=1e-12)


def test_rewards_are_zero_at_their_best_states():
    zero, up, down = jnp.zeros(1), jnp.array([1.0, 0.0, 0.0]), jnp.array([-1.0, 0.0, 0.0])
    swing_up, keep_down = WORLD.tasks["swing-up"], WORLD.tasks["keep-down"]
    assert swing_up(up, zero, up) == 0 and keep_down(down, zero, down) == 0
    assert np.isclose(swing_up(down, zero, down), -(np.pi**2)) and np.isclose(keep_down(up, zero, up), -(np.pi**2))


def test_starts_hanging_down_at_rest():
    for seed in range(3):
        np.testing.assert_array_equal(WORLD.reset(jax.random.key(seed)), [-1, 0, 0])
    hanging = WORLD.dynamics(WORLD.reset(jax.random.key(0)), jnp.zeros(1))
    np.testing.assert_allclose(hanging, [-1, 0, 0], atol=1e-6)


@pytest.mark.slow
def test_process_noise_has_zero_mean_and_the_given_std(x64):
    draws, std = 50_000, 0.3
    x, u = jnp.array([np.cos(0.4), np.sin(0.4), 1.5]), jnp.array([0.7])
    keys = jax.random.split(jax.random.key(5), draws)
    noisy = np.asarray(jax.jit(jax.vmap(lambda key: Pendulum(process_noise=std).step(x, u, key)))(keys))
    noise = noisy - np.asarray(WORLD.dynamics(x, u))
    assert np.abs(noise.mean(axis=0)).max() < 5 * std / np.sqrt(draws)
    np.testing.assert_allclose(noise.std(axis=0), std, rtol=5 / np.sqrt(2 * draws))
    correlation = np.corrcoef(noise.T)
    assert np.abs(correlation - np.eye(3)).max() < 5 / np.sqrt(draws)


def test_step_without_noise_equals_dynamics():
    x, u = jnp.array([np.cos(2.0), np.sin(2.0), -3.0]), jnp.array([-0.2])
    np.testing.assert_array_equal(WORLD.step(x, u, jax.random.key(0)), WORLD.dynamics(x, u))


def test_reachable_set_covers_the_system():
    states, actions = WORLD.reachable_points()
    assert states.shape == (2000, 3) and actions.shape == (2000, 1)
    assert np.isfinite(states).all() and np.abs(actions).max() <= 1
    np.testing.assert_allclose(np.linalg.norm(states[:, :2], axis=1), 1, atol=1e-12)
    counts, _ = np.histogram(np.arctan2(states[:, 1], states[:, 0]), bins=36, range=(-np.pi, np.pi))
    assert counts.min() >= 5, "all angles are covered, in bins of ten degrees"
    assert 7.5 < states[:, 2].max() <= 8 and -8 <= states[:, 2].min() < -7.5
    upright = states[:, 0] > 0.9
    assert np.abs(states[upright, 2]).min() < 0.5, "upright and slow is covered"
    assert np.abs(states[upright, 2]).max() > 6, "upright and fast is covered"
    assert actions.min() < -0.99 and actions.max() > 0.99


def test_reachable_set_is_reproducible():
    states, actions = Pendulum(process_noise=0.5).reachable_points()
    same_states, same_actions = _pendulum._reachable.__wrapped__(WORLD)
    np.testing.assert_array_equal(states, same_states)
    np.testing.assert_array_equal(actions, same_actions)


def test_narrow_box_has_all_angles_and_slow_speeds():
    states, actions = WORLD.narrow_box()
    np.testing.assert_allclose(np.linalg.norm(states[:, :2], axis=1), 1, atol=1e-12)
    counts, _ = np.histogram(np.arctan2(states[:, 1], states[:, 0]), bins=36, range=(-np.pi, np.pi))
    assert counts.min() >= 20
    assert np.abs(states[:, 2]).max() <= 1 and np.abs(actions).max() <= 1


# ---- other physics -----------------------------------------------------------------------------------------------------------

HEAVY = Pendulum(gravity=9.81, mass=1.7, length=0.6, friction=0.05, max_torque=3.0, max_speed=5.0, time_step=0.02)


def test_other_physics_follow_gymnasium_with_the_same_numbers(transitions, x64):
    """Gymnasium has no friction: it is a torque of its own, which no limit applies to."""
    states, actions, *_ = transitions
    env = gymnasium.make("Pendulum-v1", disable_env_checker=True).unwrapped
    env.g, env.m, env.l, env.max_speed, env.dt, env.max_torque = 9.81, 1.7, 0.6, 5.0, 0.02, 100.0
    env.reset(seed=0)
    expected, rewards = [], []
    for (cosine, sine, speed), u in zip(states, actions[:, 0], strict=True):
        env.state = np.array([np.arctan2(sine, cosine), speed])
        torque = 3.0 * np.clip(u, -1, 1)
        env.step(np.array([torque - 0.05 * speed]))
        theta, after = env.state
        expected.append([np.cos(theta), np.sin(theta), after])
        rewards.append(-(np.arctan2(sine, cosine) ** 2 + 0.1 * speed**2 + 0.001 * (3.0 * u) ** 2))
    env.close()
    np.testing.assert_allclose(ours(HEAVY.dynamics, states, actions), expected, atol=1e-12)
    np.testing.assert_allclose(ours(HEAVY.tasks["swing-up"], states, actions, states), rewards, atol=1e-12)
    assert (np.abs(np.array(expected)[:, 2]) == 5).sum() > 20, "some transitions reach the speed limit"


def test_friction_takes_energy_away_as_the_closed_form_says(x64):
    """Small swings about hanging with the damping rate 3 c / (2 m l^2): their envelope falls as exp(-rate t)."""
    world = Pendulum(friction=0.1, time_step=0.001)
    step = lambda x, _: (world.dynamics(x, jnp.zeros(1)),) * 2
    start = jnp.asarray([-np.cos(0.01), np.sin(0.01), 0.0])
    _, states = jax.lax.scan(step, start, None, 8000)
    swings = np.abs(np.arctan2(np.asarray(states)[:, 1], -np.asarray(states)[:, 0]))
    rate = 3 * 0.1 / 2
    np.testing.assert_allclose(swings[6000:].max(), 0.01 * np.exp(-rate * 6.0), rtol=0.1)
    assert swings[6000:].max() < 0.9 * swings[:2000].max()


def test_limits_of_all_parts_follow_the_physics():
    np.testing.assert_allclose(HEAVY.project(jnp.asarray([2.0, 0.0, 7.0])), [1, 0, 5])
    assert HEAVY.plane().y_range == (-5, 5) and HEAVY.seconds_per_step == 0.02
    states, _ = Pendulum(max_speed=0.5).narrow_box()
    assert 0.49 < np.abs(states[:, 2]).max() <= 0.5
    assert HEAVY.tasks is replace(HEAVY, mass=2.0).tasks, "compiled programs are shared where the reward is the same"


@pytest.mark.slow
def test_reachable_set_follows_the_physics(x64):
    states, _ = HEAVY.reachable_points()
    assert 4.8 < np.abs(states[:, 2]).max() <= 5, "the speed limit of this pendulum"
    weak, _ = Pendulum(max_torque=0.2, friction=1.0).reachable_points()
    assert weak[:, 0].max() < 0, "it cannot be swung up"
    fast, _ = Pendulum(max_speed=20.0).reachable_points()
    assert np.abs(fast[:, 2]).max() > 15
    next_states = HEAVY.reachable().next_states
    np.testing.assert_array_equal(next_states, ours(HEAVY.dynamics, *HEAVY.reachable_points()))


@dataclass(frozen=True)
class Stuck(Pendulum):
    """A pendulum whose bearing does not let it rise above a quarter turn: dynamics of its own."""

    def dynamics(self, x, u):
        """The pendulum's step, stopped at the horizontal."""
        after = super().dynamics(x, u)
        return jnp.where(after[0] > 0, jnp.array([0.0, 1.0, 0.0]) * jnp.sign(after[1]), after)


def test_reachable_set_of_a_subclass_is_that_of_its_own_dynamics():
    assert WORLD.reachable_points()[0][:, 0].max() > 0.99
    assert Stuck().reachable_points()[0][:, 0].max() <= 0


@pytest.mark.parametrize(
    ("physics", "message"),
    [
        ({"mass": 0.0}, "pendulum: mass must be above 0, got 0"),
        ({"length": -1.0}, "length must be above 0"),
        ({"gravity": float("nan")}, "gravity must be above 0, got nan"),
        ({"max_torque": float("inf")}, "max_torque must be above 0, got inf"),
        ({"max_speed": 0.0}, "max_speed must be above 0"),
        ({"time_step": 0.0}, "time_step must be above 0"),
        ({"friction": -0.1}, "friction must be 0 or above and finite, got -0.1"),
        ({"process_noise": -0.1}, "process_noise must be 0 or above and finite, got -0.1"),
    ],
)
def test_impossible_physics_are_rejected(physics, message):
    with pytest.raises(SondeError, match=message):
        Pendulum(**physics)
