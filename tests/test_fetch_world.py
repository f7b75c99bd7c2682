"""The Fetch arm with blocks, against MuJoCo's own quantities, SciPy's rotations, and hand-written scripts."""

import mujoco
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from sonde._internal.errors import SondeError
from sonde.worlds import FetchConstruction
from sonde.worlds.fetch._interaction import interaction
from sonde.worlds.fetch._layout import GRIP_HOME, REST_HEIGHT, block_angles, block_positions, finger_positions, grip_position
from sonde.worlds.fetch._scene import load_scene
from sonde.worlds.fetch._script import carry, pick_place, tip
from sonde.worlds.fetch._tasks import PickPlace
from sonde.worlds.fetch._world import FetchSimulators, euler_angles, nearest_angles, scatter_blocks
from world_helpers import opengl_works, printed_by

WORLD = FetchConstruction()
STEP = 0.04


def lift_blocks(copies, states, blocks, height=0.15, steps=40):
    """Lift a block in each copy with the script; all states [S, steps + 1, dx]."""
    places = [block_positions(x)[block] + [0.0, 0.0, height] for x, block in zip(states, blocks, strict=True)]
    visited = [states]
    for _ in range(steps):
        actions = [carry(x, block, place) for x, block, place in zip(visited[-1], blocks, places, strict=True)]
        visited.append(copies.step(np.array(actions)).next_states)
    return np.stack(visited, axis=1)


@pytest.mark.parametrize("blocks", [1, 4, 6])
def test_state_has_the_documented_layout(blocks):
    world = FetchConstruction(blocks=blocks)
    assert world.state_dim == len(set(world.state_names)) == 10 + 12 * blocks
    assert world.action_dim == len(set(world.action_names)) == 4
    copies = world.open(1)
    x = copies.reset([0])[0]
    assert x.shape == (world.state_dim,)
    named = dict(zip(world.state_names, x, strict=True))
    data, last = copies.data[0], blocks - 1
    assert (named["grip x"], named["grip z"]) == (data.site("robot0:grip").xpos[0], data.site("robot0:grip").xpos[2])
    assert named["right finger"] == data.joint("robot0:r_gripper_finger_joint").qpos[0]
    assert named["left finger"] == data.joint("robot0:l_gripper_finger_joint").qpos[0]
    assert named[f"block {last} y"] == data.body(f"block{last}").xpos[1]
    assert x.dtype == np.float64 and world.seconds_per_step == 20 * copies.model.opt.timestep == STEP


def test_invalid_settings_are_rejected():
    for wrong in (
        {"blocks": 0},
        {"blocks": 7},
        {"blocks": True},
        {"spacing": 0.0},
        {"spacing": 0.2},
        {"spacing": float("nan")},
    ):
        with pytest.raises(SondeError, match=f"fetch-construction: {next(iter(wrong))} must be"):
            FetchConstruction(**wrong)
    world = FetchConstruction()
    object.__setattr__(world, "angles", "wrapped")  # bypasses the type checks, which only tests have
    with pytest.raises(SondeError, match="world's angles 'wrapped'; expected one of: bounded, continuous"):
        world.__post_init__()


def test_scene_has_the_published_parameters():
    scene = load_scene(4)
    model = scene.model
    for i in range(4):
        geom, joint = model.geom(f"block{i}"), model.joint(f"block{i}")
        assert (geom.size == 0.025).all() and model.body(f"block{i}").mass == 2.0 and geom.condim == 3
        np.testing.assert_array_equal(geom.friction, [1.0, 0.005, 0.0001])
        assert (model.dof_damping[joint.dofadr[0] + np.arange(6)] == 0.01).all()
    for side in ("r", "l"):
        pad = model.geom(f"robot0:{side}_gripper_finger_link")
        np.testing.assert_array_equal(pad.friction, [1.0, 0.05, 0.01])
        assert pad.condim == 4 and pad.margin == 0.001
        assert (model.joint(f"robot0:{side}_gripper_finger_joint").range == [0.0, 0.05]).all()
    np.testing.assert_array_equal(model.actuator_gainprm[:, 0], [30000, 30000])
    np.testing.assert_array_equal(model.actuator_ctrlrange, [[0.0, 0.2]] * 2)
    np.testing.assert_array_equal(model.eq_data[0, :10], [0, 0, 0, 0, 0, 0, 1, 0, 0, 0])
    np.testing.assert_array_equal(model.eq_solref[0], [0.02, 1])
    np.testing.assert_array_equal(model.eq_solimp[0, :3], [0.9, 0.95, 0.001])
    assert model.geom("table").type == mujoco.mjtGeom.mjGEOM_PLANE and model.opt.timestep == 0.002
    # the published home and height come from the same procedure, but with the base touching the table
    data = mujoco.MjData(model)
    mujoco.mj_setState(model, data, scene.settled, mujoco.mjtState.mjSTATE_INTEGRATION)
    mujoco.mj_forward(model, data)
    np.testing.assert_allclose(data.site("robot0:grip").xpos, GRIP_HOME, atol=1e-3)
    assert np.isclose(data.body("block0").xpos[2], REST_HEIGHT, atol=2e-5)
    assert data.geom("table").xpos[2] == 0.4
    on_table = [c for c in data.contact if model.geom("table").id in (c.geom1, c.geom2)]
    assert len(on_table) == 4 and all(model.geom("block0").id in (c.geom1, c.geom2) for c in on_table)


def test_euler_angles_equal_scipys():
    turns = Rotation.random(500, random_state=0)
    angles = euler_angles(turns.as_matrix())
    np.testing.assert_allclose(angles, turns.as_euler("XYZ"), atol=1e-12)
    np.testing.assert_allclose(euler_angles(np.eye(3)), 0.0)
    upside_down = Rotation.from_euler("X", np.pi).as_matrix()
    assert np.isclose(euler_angles(np.round(upside_down))[0], np.pi)
    for pitch in (np.pi / 2, -np.pi / 2):  # two of the angles are not unique
        turn = np.round(Rotation.from_euler("XYZ", [0.0, pitch, 0.0]).as_matrix()) @ Rotation.from_euler("Z", 0.7).as_matrix()
        angles = euler_angles(turn)
        assert angles[0] == 0.0 and np.isclose(angles[1], pitch)
        np.testing.assert_allclose(Rotation.from_euler("XYZ", angles).as_matrix(), turn, atol=1e-12)


def test_nearest_angles_are_the_same_rotations_near_the_given_angles():
    rng = np.random.default_rng(0)
    before = rng.uniform(-9.0, 9.0, (500, 3))  # beyond a full turn, on both sides of a right angle
    turns = Rotation.from_euler("XYZ", before + 0.01 * rng.standard_normal(before.shape))
    angles = nearest_angles(euler_angles(turns.as_matrix()), before)
    np.testing.assert_allclose(Rotation.from_euler("XYZ", angles).as_matrix(), turns.as_matrix(), atol=1e-9)
    assert np.abs(angles - before).max() < 0.06


def test_continuous_angles_do_not_jump_where_bounded_ones_do():
    """A block is tipped over several times; all other state dimensions are equal bit for bit."""
    found = {}
    for kind in ("bounded", "continuous"):
        copies = FetchConstruction(blocks=1, angles=kind).open(1)
        visited = [copies.reset([3])]
        for _ in range(150):
            visited.append(copies.step(tip(visited[-1][0], 0)[None]).next_states)
        found[kind] = np.concatenate(visited)
        saved = copies.save(0)
        np.testing.assert_array_equal(copies.restore(0, saved), visited[-1][0])
    one, other = (block_angles(found[kind])[:, 0] for kind in ("bounded", "continuous"))
    turn = lambda angles: Rotation.from_euler("XYZ", angles).as_matrix()
    np.testing.assert_allclose(turn(one), turn(other), atol=1e-9)
    assert np.abs(np.diff(one, axis=0)).max() > 6.0 > 1.5 > np.abs(np.diff(other, axis=0)).max()
    assert np.abs(other).max() > np.pi
    others = np.delete(np.arange(22), [13, 14, 15])
    np.testing.assert_array_equal(found["bounded"][:, others], found["continuous"][:, others])


def test_memory_of_continuous_angles_is_saved_restored_and_restarted():
    """The previous angles of each copy are its memory: they travel with saved states and are zero in a new episode."""
    copies = FetchConstruction(blocks=1, angles="continuous").open(2)
    x = copies.reset([3, 4])
    for _ in range(150):
        x = copies.step(np.stack([tip(x[0], 0), np.zeros(4)])).next_states
    angles = block_angles(x)[:, 0]
    np.testing.assert_array_equal(copies.memory, angles)
    assert np.abs(angles[0]).max() > np.pi > 0.1 > np.abs(angles[1]).max()
    saved = copies.save(0)
    np.testing.assert_array_equal(saved[-3:], angles[0])
    np.testing.assert_array_equal(copies.restore(1, saved), x[0])
    np.testing.assert_array_equal(copies.memory, angles[[0, 0]])
    both = np.stack([tip(x[0], 0)] * 2)
    np.testing.assert_array_equal(*copies.step(both).next_states)
    before = copies.memory.copy()
    restarted = copies.restart(np.array([False, True]))
    np.testing.assert_array_equal(copies.memory[0], before[0])
    assert np.abs(block_angles(restarted)[1]).max() < 0.01, "a new episode starts from zero"
    memory = copies.memory + 2 * np.pi
    given = memory.copy()
    observed = copies.world.observe(copies.model, copies.data, copies.targets, memory)
    np.testing.assert_array_equal(memory, given, err_msg="observing changes nothing in place")
    np.testing.assert_allclose(observed.memory, copies.memory + 2 * np.pi, atol=1e-12)
    assert copies.targets.shape == (2, 0)


def test_bounded_angles_need_no_memory():
    copies = WORLD.open(1)
    copies.reset([0])
    assert copies.memory.shape == copies.targets.shape == (1, 0)


def test_observations_equal_mujocos_quantities():
    """While a block is lifted, swung around and dropped, so that everything moves and turns."""
    copies, rng = WORLD.open(1), np.random.default_rng(0)
    model, data = copies.model, copies.data[0]
    x, fastest = lift_blocks(copies, copies.reset([1]), [0], steps=20)[0, -1], np.zeros(12)
    for step in range(30):
        action = [*np.where(rng.uniform(size=3) < 0.5, -1.0, 1.0), -1.0 if step < 8 else 1.0]
        x = copies.step(np.array([action])).next_states[0]
        jacobian, velocity = np.empty((3, model.nv)), np.empty(6)
        mujoco.mj_jacSite(model, data, jacobian, None, model.site("robot0:grip").id)
        np.testing.assert_array_equal(x[:3], data.site("robot0:grip").xpos)
        np.testing.assert_allclose(x[5:8], STEP * jacobian @ data.qvel, atol=1e-9)
        for column, side in enumerate(("r", "l")):
            finger = data.joint(f"robot0:{side}_gripper_finger_joint")
            np.testing.assert_allclose(x[[3 + column, 8 + column]], [finger.qpos[0], STEP * finger.qvel[0]], rtol=1e-15)
        for i, block in enumerate(x[10:].reshape(4, 12)):
            body = data.body(f"block{i}")
            mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_BODY, body.id, velocity, 0)
            np.testing.assert_array_equal(block[:3], body.xpos)
            turn = Rotation.from_euler("XYZ", block[3:6]).as_matrix()
            np.testing.assert_allclose(turn, body.xmat.reshape(3, 3), atol=1e-9)
            np.testing.assert_allclose(block[6:9], STEP * velocity[3:], atol=1e-9)
            np.testing.assert_allclose(block[9:], STEP * velocity[:3], atol=1e-9)
            fastest = np.maximum(fastest, np.abs(block))
    assert (fastest[3:] > 1e-3).all(), "blocks moved along and turned about every axis"


def test_velocities_are_per_step():
    """A block that falls and spins freely, against the closed forms."""
    copies = FetchConstruction(blocks=1).open(1)
    copies.reset([0])
    joint = copies.data[0].joint("block0")
    joint.qpos[2] = 2.0
    joint.qvel[:] = [0.0, 0.0, 0.0, 0.0, 0.0, 0.5]
    visited = [copies.step(np.zeros((1, 4))).next_states[0] for _ in range(5)]
    steps = np.arange(1, 6)
    named = dict(zip(FetchConstruction(blocks=1).state_names, np.transpose(visited), strict=True))
    np.testing.assert_allclose(named["block 0 vz"], -9.81 * STEP**2 * steps, rtol=2e-3)
    np.testing.assert_allclose(named["block 0 z"], 2.0 - 9.81 / 2 * (STEP * steps) ** 2, rtol=2e-3)
    rate = 0.01 / (2.0 * 0.05**2 / 6)  # damping over the inertia of a cube
    left = np.exp(-rate * STEP * steps)
    np.testing.assert_allclose(named["block 0 spin z"], 0.5 * STEP * left, rtol=0.05)
    np.testing.assert_allclose(named["block 0 angle z"], 0.5 / rate * (1 - left), rtol=0.05)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_action_moves_the_grip_along_its_axis(axis):
    copies, sign = WORLD.open(1), -1.0 if axis == 0 else 1.0
    x = copies.reset([0])[0]
    for _ in range(4):
        before, x = x, copies.step(sign * np.eye(4)[axis : axis + 1]).next_states[0]
    moved = (x - before)[:3]
    assert np.isclose(sign * moved[axis], 0.033, atol=0.002)
    assert np.abs(np.delete(moved, axis)).max() < 0.004
    beyond = WORLD.open(1)
    beyond.reset([0])
    for _ in range(4):
        far = beyond.step(7.0 * sign * np.eye(4)[axis : axis + 1]).next_states[0]
    np.testing.assert_array_equal(far, x, err_msg="actions are clipped")


def test_fingers_open_and_close():
    copies = WORLD.open(1)
    copies.reset([0])

    def sum_after(action, steps):
        for _ in range(steps):
            x = copies.step(np.array([[0.0, 0.0, 0.0, action]])).next_states[0]
        return finger_positions(x).sum()

    assert sum_after(1.0, 3) == pytest.approx(0.1, abs=0.003)
    assert sum_after(-1.0, 4) == pytest.approx(0.0, abs=0.003)


@pytest.mark.parametrize("world", [WORLD, FetchConstruction(spacing=0.08), FetchConstruction(blocks=6, spacing=0.1)], ids=str)
def test_starts_have_the_documented_distribution(world):
    copies = world.open(1)
    starts = np.array([copies.reset([seed])[0] for seed in range(150)])
    np.testing.assert_array_equal(
        starts[:, :10], np.broadcast_to(starts[0, :10], (150, 10)), err_msg="the robot always starts in the same state"
    )
    np.testing.assert_allclose(starts[0, :3], GRIP_HOME, atol=1e-3)
    places = block_positions(starts)
    assert (places[..., 2] == REST_HEIGHT).all()
    offsets = places[..., :2] - np.array(GRIP_HOME[:2])
    assert 0.148 < np.abs(offsets).max() <= 0.15
    assert 0.1 <= np.linalg.norm(offsets, axis=-1).min() < 0.102
    apart = np.linalg.norm(places[:, :, None, :2] - places[:, None, :, :2], axis=-1)
    nearest = apart[:, ~np.eye(world.blocks, dtype=bool)].min()
    assert world.spacing <= nearest < world.spacing + 0.003
    np.testing.assert_array_equal(scatter_blocks(np.random.default_rng(4), world.blocks, world.spacing), places[4, :, :2])


def test_reset_restores_the_full_state():
    copies, rng = WORLD.open(2), np.random.default_rng(0)
    first, saved = copies.reset([5, 6]), [copies.save(i) for i in range(2)]
    for _ in range(20):
        copies.step(rng.uniform(-1, 1, (2, 4)))
    np.testing.assert_array_equal(copies.reset([5, 6]), first)
    for i in range(2):
        np.testing.assert_array_equal(copies.save(i), saved[i])
    again = copies.restart(np.array([True, False]))
    assert (again[0] != first[0]).any()
    np.testing.assert_array_equal(again[1], first[1])


def test_restored_copy_continues_bit_for_bit():
    """From the middle of a lift, with contacts, in the same copy and in one with another history."""
    copies, rng = WORLD.open(2), np.random.default_rng(0)
    states = lift_blocks(copies, copies.reset([1, 2]), [0, 1], steps=14)[:, -1]
    assert block_positions(states[0])[0, 2] > REST_HEIGHT + 0.03, "the block is in the air"
    saved, actions = copies.save(0), rng.uniform(-1, 1, (15, 2, 4))
    actions[:, 1] = actions[:, 0]
    after = [copies.step(action).next_states[0] for action in actions]
    for copy in range(2):
        np.testing.assert_array_equal(copies.restore(copy, saved), states[0])
        np.testing.assert_array_equal(copies.save(copy), saved)
    for action, expected in zip(actions, after, strict=True):
        np.testing.assert_array_equal(copies.step(action).next_states, [expected, expected])
    with pytest.raises(SondeError, match="restore what save"):
        copies.restore(0, saved[:-1])
    with pytest.raises(SondeError, match="restore what save"):
        copies.restore(0, saved * np.nan)
    with pytest.raises(SondeError, match="reset the copies"):
        WORLD.open(1).save(0)


def play_randomly(threads, num_seeds=8, steps=1000):
    """States of random actions, with a new episode every hundred steps."""
    copies, rng, visited = FetchSimulators(WORLD, num_seeds, threads), np.random.default_rng(0), []
    visited.append(copies.reset(range(num_seeds)))
    for step in range(1, steps + 1):
        visited.append(copies.step(rng.uniform(-1, 1, (num_seeds, 4))).next_states)
        if step % 100 == 0:
            visited.append(copies.restart(np.ones(num_seeds, bool)))
    warnings = sum(int(data.warning.number.sum()) for data in copies.data)
    copies.close()
    return np.stack(visited), warnings


@pytest.mark.slow
def test_random_play_is_stable_and_independent_of_the_number_of_threads():
    played, warnings = play_randomly(1)
    assert warnings == 0 and np.isfinite(played).all()
    assert np.linalg.norm(np.diff(block_positions(played), axis=0), axis=-1)[:100].max() > 0.005, "blocks were hit"
    np.testing.assert_array_equal(play_randomly(2)[0], played)


def test_divergence_is_rejected_and_a_reset_recovers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # MuJoCo writes a file of warnings
    copies = WORLD.open(2)
    copies.reset([0, 1])
    copies.data[1].qvel[:] = 1e12
    with pytest.raises(SondeError, match=r"fetch-construction: .*copy 1 diverged .*BAD"):
        copies.step(np.zeros((2, 4)))
    np.testing.assert_array_equal(copies.reset([0, 1]), WORLD.open(2).reset([0, 1]))


def test_script_grasps_and_lifts_a_block_from_every_start():
    copies = WORLD.open(20)
    states = copies.reset(range(20))
    blocks = [seed % 4 for seed in range(20)]
    visited = lift_blocks(copies, states, blocks)
    lifts = [block_positions(visited[i, -1])[b, 2] - REST_HEIGHT for i, b in enumerate(blocks)]
    np.testing.assert_allclose(lifts, 0.15, atol=0.01)
    found = interaction(visited[:, :-1], visited[:, 1:])
    assert (found.blocks_moved >= 1).all() and (found.moving > 0.1).all() and (found.highest_lift > 0.14).all()
    left = interaction(states[:, None], states[:, None])
    assert (left.moving == 0).all() and (left.blocks_moved == 0).all() and (left.highest_lift < 1e-3).all()


@pytest.mark.slow
def test_script_solves_pick_place():
    copies, rng, task = WORLD.open(8), np.random.default_rng(0), PickPlace()
    goals = np.array([task.sample_goal(rng) for _ in range(8)])
    x, visited = copies.reset(range(8)), []
    for _ in range(200):
        x = copies.step(np.array([pick_place(s, g.reshape(4, 3)) for s, g in zip(x, goals, strict=True)])).next_states
        visited.append(x)
    successes = [task.success(np.array(visited)[:, i], goals[i]) for i in range(8)]
    assert np.mean(successes) > 0.8 and successes.count(1.0) >= 4, (
        "fingers and neighbouring blocks sometimes obstruct each other"
    )


@pytest.mark.slow
def test_reachable_set_contains_moved_and_lifted_blocks():
    found = WORLD.reachable()
    assert found is WORLD.reachable() and found.states.shape == (2000, 58) and np.abs(found.actions).max() <= 1.0
    moves = np.linalg.norm(block_positions(found.next_states) - block_positions(found.states), axis=-1) > 1e-3
    assert 0.2 < moves.any(axis=-1).mean() < 0.9 and (moves.mean(axis=0) > 0.05).all(), "every block is moved"
    heights = block_positions(found.states)[..., 2] - REST_HEIGHT
    assert (heights.max(axis=-1) > 0.05).mean() > 0.05, "blocks are lifted"
    held = np.linalg.norm(block_positions(found.states) - grip_position(found.states)[:, None], axis=-1).min(axis=-1) < 0.02
    assert 0.05 < held.mean() < 0.6
    a, b = WORLD.plane().from_state(found.states.reshape(50, 40, -1))
    assert a.shape == b.shape == (50, 40) and a.min() > 0 and np.isclose(b.max(), heights.max())


@pytest.mark.slow
def test_gymnasium_robotics_is_found_but_not_imported():
    code = (
        "import sys, sonde; from sonde.worlds import FetchConstruction;"
        "world = FetchConstruction(); world.state_names; sonde.RunConfig(world=world);"
        "assert not {'mujoco', 'gymnasium_robotics'} & set(sys.modules);"
        "world.open(1); assert 'mujoco' in sys.modules and 'gymnasium_robotics' not in sys.modules;"
        "sys.modules['gymnasium_robotics'] = None\n"
        "try: FetchConstruction(blocks=2).open(1)\n"
        "except sonde.SondeError as error: print(error)"
    )
    assert "gymnasium-robotics is not installed: pip install '.[fetch]'" in printed_by(code)


@pytest.mark.slow
def test_images_show_blocks_and_goals_and_do_not_change_the_simulation():
    if not opengl_works():
        pytest.skip("this machine has no OpenGL without a screen; the error is tested with the other worlds")
    copies = WORLD.open(1)
    copies.reset([0])
    before, plain = copies.save(0), copies.render()
    assert plain.shape == (480, 480, 3) and plain.dtype == np.uint8
    red, green = (plain[..., channel].astype(int) for channel in (0, 1))
    assert ((red - green > 80).sum() > 50) and ((green - red > 80).sum() > 50), "blocks have colours"
    copies.show_goal(PickPlace().sample_goal(np.random.default_rng(0)))
    marked = copies.render()
    changed = (np.abs(marked.astype(int) - plain).max(axis=-1) > 20).mean()
    assert 0.001 < changed < 0.1
    copies.show_goal(None)
    np.testing.assert_array_equal(copies.render(), plain)
    np.testing.assert_array_equal(copies.save(0), before)
    copies.close()


@pytest.mark.slow
def test_other_physics_change_how_blocks_move():
    """A block that is let go falls by g t^2 / 2; a heavier one is a heavier body of the same arm."""
    plain, moon = load_scene(1), FetchConstruction(blocks=1, gravity_scale=0.1, mass_scale=3.0, friction_scale=0.5)
    copies = moon.open(1)
    copies.reset([0])
    model, data, scene = copies.model, copies.data[0], moon._scene()
    assert model.body("block0").mass == 3 * plain.model.body("block0").mass and scene is not plain
    arm = np.setdiff1d(np.arange(model.nbody), scene.bodies)
    np.testing.assert_array_equal(model.body_mass[arm], plain.model.body_mass[arm])
    np.testing.assert_array_equal(model.geom_friction, 0.5 * plain.model.geom_friction)
    data.qpos[scene.block_positions[0, 2]] += 0.3
    mujoco.mj_forward(model, data)
    height = data.qpos[scene.block_positions[0, 2]]
    copies.step(np.zeros((1, 4)))
    copies.step(np.zeros((1, 4)))
    fallen = height - data.qpos[scene.block_positions[0, 2]]
    np.testing.assert_allclose(fallen, 0.5 * 0.981 * 0.08**2, rtol=0.05)


def test_impossible_factors_are_rejected():
    with pytest.raises(SondeError, match="fetch-construction: mass_scale must be above 0, got 0"):
        FetchConstruction(mass_scale=0.0)
