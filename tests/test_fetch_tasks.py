"""Rewards, goals and success of the Fetch tasks, against cases computed by hand."""

from math import exp, pi

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sonde.worlds.fetch._interaction import interaction
from sonde.worlds.fetch._layout import GRIP_HOME, REST_HEIGHT, block_angles, block_positions
from sonde.worlds.fetch._tasks import FETCH_TASKS, Flip, PickPlace, Throw

U = jnp.zeros(4)


def state(positions, rolls=None, grip=GRIP_HOME):
    """A state with blocks at the given positions, turned by the given angles about x."""
    blocks = np.zeros((len(positions), 12))
    blocks[:, :3] = positions
    blocks[:, 3] = 0.0 if rolls is None else rolls
    blocks[:, 4] = 1.5  # the angle about y does not matter
    blocks[:, 5:] = 9.0  # not used by any task
    return np.concatenate([grip, np.full(7, 9.0), blocks.ravel()])


def reward(task, x_next, goal):
    nothing = jnp.full(len(x_next), jnp.nan)  # only the next state matters
    return float(task.reward(nothing, U, jnp.asarray(x_next), jnp.asarray(goal)))


def test_block_positions_and_angles_are_at_the_documented_indices():
    x = np.arange(58.0)
    np.testing.assert_array_equal(block_positions(x)[:, 0], [10, 22, 34, 46])
    np.testing.assert_array_equal(block_angles(x)[1], [25, 26, 27])
    assert block_positions(np.zeros((3, 5, 34))).shape == (3, 5, 2, 3)


def test_pick_place_reward_and_success(x64):
    task, goal = PickPlace(2), np.array([1.0, 1.0, 0.4, 2.0, 2.0, 0.6])
    x = state([[1.03, 1.0, 0.44], [2.0, 2.0, 0.61]])
    assert reward(task, x, goal) == pytest.approx(-(0.05 + 0.025), rel=1e-12)
    assert reward(task, state([[1.0, 1.0, 0.4], [2.3, 2.0, 0.2]]), goal) == pytest.approx(-(0.025 + 0.5), rel=1e-12)

    inside, outside = [1.0, 1.049, 0.4], [1.0, 1.05, 0.4]
    other = [2.0, 2.0, 0.6]
    counts = {0: [outside, [0, 0, 0]], 1: [inside, [0, 0, 0]], 2: [inside, other]}
    played = lambda *steps: np.array([state(counts[count]) for count, number in steps for _ in range(number)])
    assert task.success(played((0, 20)), goal) == 0.0
    assert task.success(played((0, 20), (1, 5)), goal) == 0.0, "more than five steps are needed"
    assert task.success(played((0, 20), (1, 3), (0, 4), (1, 3)), goal) == 0.5, "steps need not be consecutive"
    assert task.success(played((1, 6), (2, 6), (0, 50)), goal) == 1.0, "blocks may leave their goals again"
    assert task.success(played((0, 9), (1, 5), (2, 5)), goal) == 0.0, "each number of blocks is counted separately"
    assert task.success(played((2, 2)), goal) == 0.0


def test_throw_reward_and_success(x64):
    task, goal = Throw(2), np.array([1.5, 0.2, REST_HEIGHT, 1.5, 1.3, REST_HEIGHT])
    there = np.add(goal.reshape(2, 3), [[0.05, -0.09, 0.3], [0.0, 0.0, 0.0]])
    least = np.mean([1 - exp(-0.05), 1 - exp(-0.05), 1 - exp(-0.5 * REST_HEIGHT)])
    assert reward(task, state(there), goal) == pytest.approx(-1e-3 * 2 * least, rel=1e-12)
    missed = np.add(goal.reshape(2, 3), [[0.05, 0.0, 0.0], [0.0, -0.4, 0.5]])
    far = np.mean([1 - exp(-0.05), 1 - exp(-0.2), 1 - exp(-0.25)])
    assert reward(task, state(missed), goal) == pytest.approx(-(1 + 1e-3 * (least + far)), rel=1e-12)
    too_high = np.add(goal.reshape(2, 3), [[0.0, 0.0, 0.0], [0.0, 0.0, 0.5]])
    assert -1.01 < reward(task, state(too_high), goal) < -1.0, "the reward depends on height"
    rollout = np.array([state(missed), state(there), state(missed)])
    assert task.success(rollout, goal) == 0.5 and task.success(rollout[:2], goal) == 1.0, "success depends on the last state"
    assert task.success(np.array([state(too_high)]), goal) == 1.0, "success does not depend on height"


def test_flip_reward_and_success(x64):
    task, nothing = Flip(3), np.empty(0)
    positions, grip = np.zeros((3, 3)), np.add(GRIP_HOME, [0.3, 0.0, 0.4])
    x = state(positions, [pi / 2 + 0.08, pi / 2 - 0.09, -pi / 2], grip)
    assert reward(task, x, nothing) == pytest.approx(-(2 + 0.001 * 0.5), rel=1e-12)
    flipped = state(positions, [pi / 2 + 0.08, pi / 2, pi / 2 - 0.08])
    assert reward(task, flipped, nothing) == pytest.approx(0.0, abs=1e-12)
    assert task.success(np.array([flipped, x]), nothing) == pytest.approx(1 / 3)
    assert task.success(np.array([x, flipped]), nothing) == 1.0
    assert task.sample_goal(np.random.default_rng(0)).shape == (0,)


@pytest.mark.parametrize(("angles", "turned"), [((pi / 2, 0.3), True), ((-pi / 2, 0.3), False)])
def test_flip_does_not_depend_on_which_angles_represent_the_rotation(angles, turned, x64):
    """Full turns of an angle, and half turns of two with the other one mirrored, give the same rotation."""
    first, second = angles
    for e0, e1 in [(first, second), (first + 2 * pi, second), (first - 4 * pi, second - 2 * pi), (first - pi, pi - second)]:
        x = state([[1.3, 0.7, REST_HEIGHT]], [e0])
        x[14] = e1
        assert Flip(1).success(x[None], np.empty(0)) == float(turned)
        assert reward(Flip(1), x, np.empty(0)) == pytest.approx(0.0 if turned else -1.0, abs=1e-12)


def test_pick_place_goals_have_the_documented_distribution():
    rng, task = np.random.default_rng(0), PickPlace(4)
    goals = np.array([task.sample_goal(rng) for _ in range(1000)]).reshape(1000, 4, 3)
    offsets = goals[..., :2] - np.array(GRIP_HOME[:2])
    assert 0.148 < np.abs(offsets[:, :3]).max() <= 0.15
    assert -0.2 <= offsets[:, 3, 0].min() < -0.198 and 0.098 < offsets[:, 3, 0].max() <= 0.1
    assert 0.148 < np.abs(offsets[:, 3, 1]).max() <= 0.15
    assert (goals[:, :3, 2] == REST_HEIGHT).all()
    lift = goals[:, 3, 2] - REST_HEIGHT
    assert 0.45 < np.mean(lift > 0) < 0.55 and 0.1 <= lift[lift > 0].min() < 0.105 and 0.445 < lift.max() <= 0.45
    apart = np.linalg.norm(goals[:, :, None, :2] - goals[:, None, :, :2], axis=-1)[:, ~np.eye(4, dtype=bool)]
    assert 0.071 < apart.min() < 0.073
    assert all(PickPlace(blocks).sample_goal(rng).shape == (3 * blocks,) for blocks in range(1, 7))


def test_throw_goals_have_the_documented_distribution():
    rng, task = np.random.default_rng(0), Throw(4)
    goals = np.array([task.sample_goal(rng) for _ in range(500)]).reshape(500, 4, 3)
    offsets = goals[..., :2] - [0.6919, 0.7441]
    angles, radii = np.rad2deg(np.arctan2(offsets[..., 0], offsets[..., 1])), np.linalg.norm(offsets, axis=-1)
    even = 50 + 80 / 3 * np.arange(4)
    np.testing.assert_allclose(np.sort(angles, axis=1), np.broadcast_to(even, (500, 4)))
    np.testing.assert_allclose([np.mean(np.isclose(angles[:, 0], angle)) for angle in even], 0.25, atol=0.07)
    assert 1.0131 <= radii.min() < 1.0135 and 1.0527 < radii.max() <= 1.0531
    assert (goals[..., 2] == REST_HEIGHT).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", FETCH_TASKS)
def test_rewards_can_be_vmapped_and_stay_in_single_precision(name):
    task, rng = FETCH_TASKS[name](4), np.random.default_rng(0)
    goals = jnp.asarray([task.sample_goal(rng) for _ in range(3)], jnp.float32)
    states = jnp.asarray(rng.normal(size=(3, 58)), jnp.float32)
    rewards = jax.jit(jax.vmap(task.reward, in_axes=(None, None, 0, 0)))(states[0], U.astype(jnp.float32), states, goals)
    assert rewards.shape == (3,) and rewards.dtype == jnp.float32 and (rewards < 0).all()
    one_by_one = [task.reward(states[0], U, x, goal) for x, goal in zip(states, goals, strict=True)]
    np.testing.assert_allclose(rewards, one_by_one, rtol=1e-6)
    assert 0.0 <= task.success(np.asarray(states, np.float64), np.asarray(goals[0], np.float64)) <= 1.0


def test_interaction_counts_motion_blocks_and_height():
    still = np.array([[1.0, 1.0, REST_HEIGHT], [2.0, 2.0, REST_HEIGHT]])
    ways = np.array([[0, 0, 0], [0, 0.02, 0], [0, 0.0205, 0], [0, 0.03, 0.2], [0, 0.03, 0.2]])
    visited = np.array([state(np.add(still, [way, [0, 0, 0]])) for way in ways])
    first, second = visited[:-1], visited[1:]
    found = interaction(np.stack([first, first]), np.stack([second, first]))
    np.testing.assert_allclose(found.moving, [0.5, 0.0], err_msg="half a millimetre does not count as motion")
    np.testing.assert_array_equal(found.blocks_moved, [1, 1])
    np.testing.assert_allclose(found.highest_lift, [0.2, 0.2], atol=1e-12)
