"""Reacher, swimmer and cheetah against the DeepMind control suite's own environments."""

import threading
import warnings
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # on import the suite looks for a screen
    pytest.importorskip("mujoco")
    suite = pytest.importorskip("dm_control.suite")

from dm_control.rl import control

from sonde._internal.errors import SondeError
from sonde._internal.randomness import for_purpose, rollout_keys, round_keys
from sonde.control import rollout
from sonde.evaluation import Learned, TaskSetup, evaluate
from sonde.evaluation._tasks import goals_for, task_named
from sonde.explorer import Explorer
from sonde.methods import METHODS
from sonde.models import Prediction, ProbabilisticEnsemble
from sonde.objectives import Imagined, TaskReward
from sonde.solvers import ICEM
from sonde.worlds import (
    WORLDS,
    Cheetah,
    HostWorld,
    Reacher,
    Simulators,
    Stepped,
    Swimmer,
    _mujoco_renderer,
    _mujoco_simulators,
    _sampling,
)
from sonde.worlds._mujoco import ignore_mujoco_warnings, load_mujoco
from sonde.worlds._mujoco_simulators import MujocoSimulators
from world_helpers import opengl_works, printed_by

# raised by named indexing in the suite's own physics, which only these tests use
pytestmark = pytest.mark.filterwarnings("ignore:Setting the shape on a NumPy array has been deprecated:DeprecationWarning")

TRANSITIONS = 1000
WORLDS_HERE = [Reacher(), Swimmer(), Cheetah()]
by_name = pytest.mark.parametrize("world", WORLDS_HERE, ids=lambda world: world.domain)


def suite_environment(world, seed=0):
    """The suite's environment, without its time limit."""
    if world.domain == "reacher":
        physics = suite.reacher.Physics.from_xml_string(*suite.reacher.get_model_and_assets())
        return control.Environment(physics, suite.reacher.Reacher(target_size=0.03, random=seed))
    task = {"swimmer": "swimmer6", "cheetah": "run"}[world.domain]
    return suite.load(world.domain, task, task_kwargs={"random": seed, "time_limit": float("inf")})


def suite_state(world, env, observation):
    """The suite's observation in our order; it leaves out the cheetah's horizontal position."""
    if world.domain == "reacher":
        return np.concatenate([observation[name] for name in ("position", "velocity", "to_target")])
    if world.domain == "swimmer":
        return np.concatenate([observation[name] for name in ("joints", "body_velocities", "to_target")])
    return np.concatenate([env.physics.data.qpos[:1], observation["position"], observation["velocity"]])


def suite_target(world, env):
    return np.empty(0) if world.domain == "cheetah" else np.array(env.physics.named.model.geom_pos["target"])


def assert_same_physics(world, data, theirs):
    for name in ("qpos", "qvel", "qacc_warmstart"):
        np.testing.assert_array_equal(getattr(data, name), getattr(theirs, name), err_msg=name)
    # the swimmer's sensors 3 to 5 are the target's position, which our copies keep outside the model
    kept = np.setdiff1d(np.arange(len(data.sensordata)), [3, 4, 5] if world.domain == "swimmer" else [])
    np.testing.assert_array_equal(data.sensordata[kept], theirs.sensordata[kept])


@pytest.mark.slow
@by_name
def test_transitions_equal_the_suites_bit_for_bit(world):
    """The whole physics state, over several episodes, with some actions beyond the limits."""
    env, ours, rng = suite_environment(world), world.open(1), np.random.default_rng(1)
    moved = 0.0
    for episode in range(4):
        observation = env.reset().observation
        ours.reset([episode])
        data, theirs = ours.data[0], env.physics
        for name in ("qpos", "qvel", "qacc_warmstart"):
            getattr(data, name)[:] = getattr(theirs.data, name)
        ours.targets[0] = suite_target(world, env)
        load_mujoco().mj_forward(ours.model, data)
        x = suite_state(world, env, observation)
        observed = world.observe(ours.model, ours.data, ours.targets, ours.memory)
        np.testing.assert_array_equal(observed.states, [x])
        assert observed.memory.shape == (1, 0), "these worlds remember nothing"
        for _ in range(TRANSITIONS // 4):
            action = rng.uniform(-1.2, 1.2, world.action_dim)
            for _ in range(world.action_repeat):
                observation = env.step(action).observation
            after = ours.step(action[None])
            x_next = suite_state(world, env, observation)
            np.testing.assert_array_equal(after.next_states[0], x_next)
            assert_same_physics(world, data, theirs.data)
            assert not after.terminated.any() and not after.truncated.any() and not after.ended.any()
            moved, x = max(moved, np.abs(x_next - x).min()), x_next
        assert np.isclose(data.time, theirs.data.time)
    assert moved > 0, "every state dimension changes"


@pytest.mark.slow
@by_name
def test_starts_equal_the_suites_bit_for_bit(world):
    """From the same random numbers: joints, settling, targets and the solver's warm start."""
    world = replace(world, target_box=2.0) if world.domain == "swimmer" else world
    for seed in range(5):
        env = suite_environment(world, seed)
        theirs = suite_state(world, env, env.reset().observation)
        ours = world.open(1)
        ours.reset([0])
        ours._rngs = [np.random.Generator(np.random.RandomState(seed)._bit_generator)]
        np.testing.assert_array_equal(ours.restart(np.array([True]))[0], theirs)
        np.testing.assert_array_equal(ours.targets[0], suite_target(world, env))
        world.show_target(ours.model, ours.targets[0])
        for name in ("geom_pos", "geom_size", "light_pos"):
            np.testing.assert_array_equal(getattr(ours.model, name), getattr(env.physics.model, name))
        assert_same_physics(world, ours.data[0], env.physics.data)


@by_name
def test_action_range_and_time_step_equal_the_suites(world):
    env, model = suite_environment(world), world.open(1).model
    spec = env.action_spec()
    assert spec.shape == (world.action_dim,)
    assert (spec.minimum == -1).all() and (spec.maximum == 1).all(), "actions are not rescaled"
    assert np.isclose(world.seconds_per_step, env.control_timestep() * world.action_repeat)
    assert (model.nu, len(world.state_names)) == (world.action_dim, world.state_dim)
    assert len(set(world.state_names)) == world.state_dim and len(set(world.action_names)) == world.action_dim


@by_name
def test_starts_depend_only_on_their_seeds(world):
    copies = world.open(3)
    first = copies.reset([7, 8, 7])
    np.testing.assert_array_equal(first[0], first[2])
    assert (first[0] != first[1]).any()
    copies.step(np.ones((3, world.action_dim)))
    later = copies.restart(np.array([True, False, True]))
    np.testing.assert_array_equal(later[0], later[2])
    assert (later[0] != first[0]).any(), "a restart draws a new start"
    again = world.open(3)
    np.testing.assert_array_equal(again.reset([7, 8, 7]), first)
    stepped = again.step(np.ones((3, world.action_dim))).next_states
    restarted = again.restart(np.array([True, False, True]))
    np.testing.assert_array_equal(restarted, later)
    np.testing.assert_array_equal(restarted[1], stepped[1])
    np.testing.assert_array_equal(copies.reset([7, 8, 7]), first)


def test_reacher_and_swimmer_starts_have_the_documented_range():
    reacher = Reacher().open(200)
    states = reacher.reset(range(200))
    targets = np.linalg.norm(np.array(reacher.targets)[:, :2], axis=1)
    assert 0.05 <= targets.min() < 0.06 and 0.19 < targets.max() <= 0.2
    assert np.abs(states[:, 0]).max() > 3.0 and 2.7 < np.abs(states[:, 1]).max() <= np.deg2rad(160)
    assert (states[:, 2:4] == 0).all()
    fingers = np.array([data.geom("finger").xpos[:2] for data in reacher.data])
    np.testing.assert_allclose(np.linalg.norm(fingers + states[:, 4:], axis=1), targets, atol=1e-12)

    swimmer = Swimmer().open(400)
    states = swimmer.reset(range(400))
    targets = np.abs(np.array(swimmer.targets)[:, :2]).max(axis=1)
    assert 0.95 < targets.max() <= 1.0
    assert 0.2 < np.mean(targets <= 0.3) < 0.4, "a fifth is drawn from the near box, and 9 % of the others fall into it"
    assert np.pi / 3 - 0.02 < np.abs(states[:, :5]).max() <= np.pi / 3, "sixty degrees"
    # the distance does not depend on the frame
    noses = np.array([data.geom("nose").xpos for data in swimmer.data])
    np.testing.assert_allclose(
        np.linalg.norm(states[:, -2:], axis=1), np.linalg.norm((swimmer.targets - noses)[:, :2], axis=1), atol=1e-12
    )


def test_cheetah_starts_at_rest():
    states = Cheetah().open(30).reset(range(30))
    assert np.abs(states[:, 9:]).max() < 0.5 and np.median(np.abs(states[:, 9:])) < 0.05, "at rest"
    assert np.abs(states[:, 1:9]).max() < 1.0 and (states[:, 0].std() > 1e-4), "on its feet, at various positions"


@by_name
def test_results_do_not_depend_on_the_number_of_threads(world):
    actions = np.random.default_rng(0).uniform(-1, 1, (5, 7, world.action_dim))

    def visited(threads):
        copies = MujocoSimulators(world, 7, threads)
        states = [copies.reset(range(7)), *(copies.step(u).next_states for u in actions)]
        states.append(copies.restart(np.arange(7) % 2 == 0))
        assert (copies._pool is not None) == (threads > 1)
        copies.close()
        return np.stack(states)

    alone = visited(1)
    assert len(np.unique(alone[0], axis=0)) == 7
    np.testing.assert_array_equal(visited(3), alone)


def test_threads_are_used_only_where_they_pay_off(monkeypatch):
    monkeypatch.setattr(_mujoco_simulators.os, "cpu_count", lambda: 8)
    num_threads = _mujoco_simulators.num_threads
    assert num_threads(1, 60) == num_threads(10, 4) == 1
    assert num_threads(1000, 1) == 1, "a single physics step is mostly Python"
    assert num_threads(50, 4) == 4 and num_threads(50, 60) == 8
    assert num_threads(10, 80) == 5, "with three more, some threads would still have two copies"


@by_name
def test_restored_copy_continues_bit_for_bit(world):
    copies, actions = world.open(2), np.random.default_rng(0).uniform(-1, 1, (20, 2, world.action_dim))
    actions[:, 1] = actions[:, 0]
    copies.reset([3, 4])
    for action in actions[:10]:
        state = copies.step(action).next_states[0]
    saved = copies.save(0)
    after = [copies.step(action).next_states[0] for action in actions[10:]]
    np.testing.assert_array_equal([copies.restore(copy, saved) for copy in (0, -1)], [state, state])
    for action, expected in zip(actions[10:], after, strict=True):
        np.testing.assert_array_equal(copies.step(action).next_states, [expected, expected])


@by_name
def test_divergence_and_misuse_are_rejected(world):
    copies = world.open(2)
    with pytest.raises(SondeError, match="reset the copies"):
        copies.step(np.zeros((2, world.action_dim)))
    with pytest.raises(SondeError, match="one seed for each of 2 copies, got 1"):
        copies.reset([1])
    copies.reset([0, 1])
    for wrong in (np.zeros((1, world.action_dim)), np.full((2, world.action_dim), np.nan)):
        with pytest.raises(SondeError, match="finite numbers of shape"):
            copies.step(wrong)
    copies.data[1].qvel[:] = 1e12
    with pytest.raises(SondeError, match=r"copy 1 diverged .*BAD"):
        copies.step(np.zeros((2, world.action_dim)))
    assert np.isfinite(copies.reset([0, 1])).all(), "a reset recovers from divergence"
    copies.step(np.zeros((2, world.action_dim)))


def test_invalid_settings_are_rejected():
    for wrong in (lambda: Reacher(action_repeat=0), lambda: Swimmer(target_box=0.0), lambda: Cheetah(control_cost=-1.0)):
        with pytest.raises(SondeError, match="must be"):
            wrong()


@pytest.mark.slow
def test_mujoco_is_imported_only_when_a_world_is_opened():
    code = (
        "import sys, sonde, sonde.worlds as worlds;"
        "worlds.Cheetah().tasks; worlds.Swimmer().plane(); sonde.RunConfig(world=worlds.Reacher());"
        "assert not {'mujoco', 'dm_control'} & set(sys.modules);"
        "sys.modules['mujoco'] = sys.modules['dm_control'] = None\n"
        "try: worlds.Cheetah().open(1)\n"
        "except sonde.SondeError as error: print(error)"
    )
    assert "pip install '.[mujoco]'" in printed_by(code)


def reward_from_suite(world, task, action, env):
    """The reward of the next state, from the suite's own quantities."""
    physics = env.physics
    if world.domain == "reacher":
        return 100.0 * (physics.finger_to_target_dist() <= 0.05)
    if world.domain == "swimmer":
        return {"go-to": -1, "go-away": 1}[task] * physics.nose_to_target_dist()
    speed, fallen = physics.named.data.qvel["rootx"], abs(physics.named.data.qpos["rooty"]) > np.pi / 2
    bonus = speed - world.fall_penalty * fallen if task == "forward" else -speed
    return bonus - world.control_cost * np.sum(action**2)


@pytest.mark.slow
@pytest.mark.parametrize("world", [*WORLDS_HERE, Cheetah(control_cost=0.1, fall_penalty=10.0)], ids=str)
def test_rewards_agree_with_the_suites_quantities(world, x64):
    env, rng, rewards = suite_environment(world), np.random.default_rng(0), {task: [] for task in world.tasks}
    for episode in range(2):
        x = suite_state(world, env, env.reset().observation)
        if episode and world.domain == "reacher":  # move the target to the finger, since random actions rarely reach it
            env.physics.named.model.geom_pos["target", :2] = env.physics.named.data.geom_xpos["finger", :2] + 0.02
        if episode and world.domain == "cheetah":  # start on its back
            with env.physics.reset_context():
                env.physics.named.data.qpos["rooty"], env.physics.named.data.qpos["rootz"] = 3.0, 0.5
        for _ in range(20):
            action = rng.uniform(-1, 1, world.action_dim)
            x_next = suite_state(world, env, env.step(action).observation)
            for task, reward in world.tasks.items():
                ours = float(reward(*map(jnp.asarray, (x, action, x_next))))
                assert np.isclose(ours, reward_from_suite(world, task, action, env), atol=1e-12), task
                rewards[task].append(ours)
            x = x_next
    assert all(len(set(values)) > 1 for values in rewards.values()), "rewards differ between steps"
    if world.domain == "cheetah" and world.fall_penalty:
        assert min(rewards["forward"]) < -5 < min(rewards["backward"]), "only the forward task penalises falling"


def test_cheetahs_with_equal_costs_share_task_functions():
    assert Cheetah().tasks["forward"] is Cheetah(action_repeat=2).tasks["forward"]
    assert Cheetah(control_cost=0.1).tasks["forward"] is Cheetah(control_cost=0.1).tasks["forward"]
    assert Cheetah(control_cost=0.1).tasks["forward"] is not Cheetah().tasks["forward"]


WITH_TASKS = [(name, task) for name, kind in WORLDS.items() if name not in ("gym", "own") for task in kind().tasks]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "task"), WITH_TASKS)
def test_imagined_reward_equals_the_evaluated_return(name, task, x64):
    """A planner that imagines exactly what happened computes exactly the return of the evaluation."""
    world, keys = WORLDS[name](), round_keys((0, 1), 1)
    played, asked = evaluate(TaskSetup.named(world, task, ICEM(), 6), None, keys), task_named(world, task)
    goals = goals_for(asked, rollout_keys(for_purpose(keys, f"evaluate/{task}"), range(1)))
    states, actions, next_states = (
        jnp.asarray(getattr(played.trajectory, name)) for name in ("states", "actions", "next_states")
    )
    for s in range(2):
        nothing = jnp.zeros_like(next_states[s])[None]
        goal = None if goals is None else jnp.asarray(goals[s, 0])
        imagined = Imagined(states[s][None], actions[s], next_states[s][None], Prediction(nothing, nothing, nothing), goal)
        rewards = TaskReward(asked.reward).rewards(imagined)
        np.testing.assert_allclose(float(jnp.sum(rewards)), played.returns[s], rtol=1e-12)


@pytest.mark.slow
@by_name
def test_reachable_transitions_follow_the_physics_and_cover_random_play(world):
    """Checked with the suite's physics set to a state; and they are the same at every call."""
    found = world.reachable()
    assert found is world.reachable() and found.states.shape == (2000, world.state_dim)
    assert np.isfinite(found.next_states).all() and np.abs(found.actions).max() == 1.0
    if world.domain == "cheetah":
        env = suite_environment(world)
        for i in range(3):
            env.reset()
            with env.physics.reset_context():
                env.physics.data.qpos[:], env.physics.data.qvel[:] = np.split(found.states[i], 2)
            for _ in range(world.action_repeat):
                env.step(found.actions[i])
            # the solver's warm start is not part of the state: they agree up to its tolerance
            after = np.concatenate([env.physics.data.qpos, env.physics.data.qvel])
            np.testing.assert_allclose(after, found.next_states[i], rtol=1e-3, atol=1e-3)
    copies, rng = world.open(4), np.random.default_rng(3)
    x, low, high = copies.reset(range(4)), found.states.min(axis=0), found.states.max(axis=0)
    inside = []
    for _ in range(30):
        inside.append((x >= low) & (x <= high))
        x = copies.step(rng.uniform(-1, 1, (4, world.action_dim))).next_states
    assert np.mean(inside) > 0.98


class Counter(Simulators):
    """Counts steps since its last start, and ends its episode at 3 or at 5."""

    def __init__(self, num_seeds):
        self.count, self.closed = np.zeros(num_seeds), False
        self.ends = np.where(np.arange(num_seeds) % 2, 3, 5)

    def reset(self, seeds):
        assert len(set(seeds)) == len(self.count)
        self.count[:] = 0
        return self.count[:, None].copy()

    def step(self, actions):
        self.count += 1
        ended = self.count == self.ends
        return Stepped(self.count[:, None].copy(), ended, np.zeros_like(ended))

    def restart(self, which):
        self.count[which] = 0
        return self.count[:, None].copy()

    def close(self):
        self.closed = True


class Counted(HostWorld):
    state_names, action_names = ("count",), ("nothing",)

    def open(self, num_seeds):
        self.copies = Counter(num_seeds)
        return self.copies

    def reachable(self):
        return _sampling.visited_by_noise(self, 4, 15, points=60)


def test_reachable_rollouts_restart_episodes_that_end():
    world = Counted()
    found = world.reachable()
    assert world.copies.closed
    np.testing.assert_array_equal(found.next_states, found.states + 1)
    counts = np.unique(found.states, return_counts=True)[1]
    np.testing.assert_array_equal(counts, [16, 16, 16, 6, 6])
    with pytest.raises(SondeError, match="cannot be sampled"):
        _sampling.visited_by_noise(world, 2, 3, points=7)


def test_noise_actions_have_all_colours_and_amplitudes():
    actions = _sampling.noise_actions(np.random.default_rng(0), 40, 200, 2)
    assert actions.shape == (40, 200, 2) and np.abs(actions).max() == 1.0
    steps = np.abs(np.diff(actions, axis=1)).mean(axis=(1, 2)) / actions.std(axis=(1, 2))
    assert steps[0] > 5 * steps[15], "white noise changes faster than slow noise"
    size = np.abs(actions).mean(axis=(1, 2))
    assert size[0] < 0.25 and size[4] > 0.8


@pytest.mark.slow
@by_name
def test_rendering_shows_motion_and_does_not_change_the_simulation(world):
    copies = world.open(2)
    copies.reset([0, 1])
    if not opengl_works():
        with pytest.raises(SondeError, match="libegl1"):
            copies.render()
        pytest.skip("this machine has no OpenGL without a screen; the error was tested instead")
    before = copies.render()
    assert before.shape == (480, 480, 3) and before.dtype == np.uint8
    assert before.std() > 5, "the image is not uniform"
    for _ in range(10):
        seen = copies.step(np.ones((2, world.action_dim))).next_states
        image = copies.render()
    changed = np.abs(image.astype(int) - before).max(axis=-1) > 20
    assert 0.001 < changed.mean() < 0.9, "the image changes"
    copies.close()
    copies.reset([0, 1])
    for _ in range(10):
        unseen = copies.step(np.ones((2, world.action_dim))).next_states
    np.testing.assert_array_equal(seen, unseen, err_msg="rendering does not change the simulation")


def test_error_without_opengl_names_what_to_install(monkeypatch):
    monkeypatch.setattr(_mujoco_renderer, "_backend", lambda: "mujoco.no_such_thing")
    copies = Reacher().open(1)
    copies.reset([0])
    with pytest.raises(SondeError, match=r"libegl1.*MUJOCO_GL=osmesa"):
        copies.render()


@by_name
def test_plane_maps_states_into_its_range(world):
    plane, states = world.plane(), world.reachable().states
    a, b = plane.from_state(states.reshape(50, 40, -1))
    assert a.shape == b.shape == (50, 40) and a.std() > 0 and b.std() > 0
    for values, limits in ((a, plane.x_range), (b, plane.y_range)):
        assert limits is None or (limits[0] <= values.min() and values.max() <= limits[1])


@pytest.mark.slow
@by_name
def test_world_is_explored_and_evaluated(world):
    model = ProbabilisticEnsemble(members=2, layers=1, width=8, epochs=1)
    solver = ICEM(samples=8, elites=2, iterations=1, horizon=3)
    explorer = Explorer(METHODS["random"], model, solver, world.spec, capacity=5, seeds=(0, 1))
    trajectory = rollout(world, explorer.ask(), 5)
    assert trajectory.states.shape == (2, 5, world.state_dim)
    np.testing.assert_array_equal(trajectory.states[:, 1:], trajectory.next_states[:, :-1])
    assert (trajectory.states[0, 0] != trajectory.states[1, 0]).any(), "seeds start differently"
    explorer.tell(trajectory)
    for task in world.tasks:
        learned = Learned(explorer.posterior, explorer.data)
        played = evaluate(TaskSetup.named(world, task, solver, 3), learned, explorer.keys())
        assert np.isfinite(played.returns).all()
        expected = jax.vmap(jax.vmap(world.tasks[task]))(
            *(jnp.asarray(getattr(played.trajectory, name)) for name in ("states", "actions", "next_states"))
        ).sum(axis=1)
        np.testing.assert_allclose(played.returns, expected, rtol=1e-5)


# ---- other physics -----------------------------------------------------------------------------------------------------------

FACTORS = {"gravity_scale": 0.7, "mass_scale": 1.6, "friction_scale": 0.5, "damping_scale": 1.3, "torque_scale": 2.0}


def rewritten(world):
    """The suite's model with other physics, written into its description and compiled by MuJoCo."""
    mujoco, (xml, assets) = load_mujoco(), world.model_and_assets()
    spec = mujoco.MjSpec.from_string(xml if isinstance(xml, str) else xml.decode(), include=assets)
    original = mujoco.MjModel.from_xml_string(xml, assets)
    spec.compiler.settotalmass = -1
    spec.option.gravity = 0.7 * np.array(spec.option.gravity)
    spec.option.density *= 1.3
    for number, geom in enumerate(spec.geoms):
        geom.friction = 0.5 * original.geom_friction[number]
    for body in spec.bodies[1:]:
        number = original.body(body.name).id
        body.explicitinertial, body.mass = True, 1.6 * original.body_mass[number]
        body.inertia, body.ipos = 1.6 * original.body_inertia[number], original.body_ipos[number]
        body.iquat = original.body_iquat[number]
    for actuator, of_joint in zip(spec.actuators, original.actuator_gear, strict=True):
        actuator.gear = 2.0 * of_joint
    model = spec.compile()
    model.dof_damping[:] = 1.3 * original.dof_damping
    return model


@pytest.mark.slow
@by_name
def test_scaled_physics_equal_those_of_a_rewritten_description(world):
    world = replace(world, **FACTORS)
    (copy,) = world.open(1).data
    expected, found = rewritten(world), world.load_model()
    names = (
        "body_mass",
        "body_inertia",
        "body_subtreemass",
        "dof_invweight0",
        "body_invweight0",
        "geom_friction",
        "dof_damping",
    )
    for name in names:
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-6, atol=1e-12, err_msg=name)
    rng, theirs = np.random.default_rng(0), load_mujoco().MjData(expected)
    copy.qpos[:] = theirs.qpos[:] = 0.1 * rng.standard_normal(found.nq)
    for model, data in ((found, copy), (expected, theirs)):
        load_mujoco().mj_forward(model, data)
    for _ in range(5):
        copy.ctrl[:] = theirs.ctrl[:] = rng.uniform(-1, 1, found.nu)
        world.advance(found, copy)
        world.advance(expected, theirs)
        np.testing.assert_allclose(copy.qpos, theirs.qpos, atol=1e-6)
        np.testing.assert_allclose(copy.qvel, theirs.qvel, atol=1e-4)


@pytest.mark.slow
def test_reachable_set_follows_the_physics():
    plain, weak = Reacher().reachable(), Reacher(torque_scale=0.1).reachable()
    assert np.abs(weak.states[:, 2]).max() < 0.3 * np.abs(plain.states[:, 2]).max()
    assert weak is Reacher(torque_scale=0.1).reachable(), "sampled once"


@by_name
def test_each_factor_changes_the_model_and_none_of_them_by_default_does(world):
    read = lambda model: [
        getattr(model, name).copy() for name in ("body_mass", "geom_friction", "dof_damping", "actuator_gainprm")
    ]
    plain = world.load_model()
    for array, again in zip(read(plain), read(replace(world, **dict.fromkeys(FACTORS, 1.0)).load_model()), strict=True):
        np.testing.assert_array_equal(array, again)
    for name, (position, factor) in {"mass_scale": (0, 3.0), "friction_scale": (1, 2.0), "torque_scale": (3, 0.5)}.items():
        changed = read(replace(world, **{name: factor}).load_model())
        np.testing.assert_array_equal(changed[position], factor * read(plain)[position])
        assert all((a == b).all() for i, (a, b) in enumerate(zip(changed, read(plain), strict=True)) if i != position)


@pytest.mark.parametrize("name", list(FACTORS))
def test_impossible_factors_are_rejected(name):
    with pytest.raises(SondeError, match=f"cheetah: {name} must be"):
        Cheetah(**{name: -1.0})


def test_threads_silence_mujoco_one_after_the_other():
    """MuJoCo has one handler of warnings, and ended the process when a thread replaced it during the warning of another."""
    entered = threading.Event()

    def compile_too():
        with ignore_mujoco_warnings():
            entered.set()

    other = threading.Thread(target=compile_too)
    with ignore_mujoco_warnings():
        other.start()
        assert not entered.wait(0.2), "the other thread must wait"
    other.join()
    assert entered.is_set()
