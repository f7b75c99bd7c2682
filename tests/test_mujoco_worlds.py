"""Reacher, swimmer and cheetah against the DeepMind control suite's own environments."""

import subprocess
import sys
import warnings
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the suite looks for a screen
    pytest.importorskip("mujoco")
    suite = pytest.importorskip("dm_control.suite")

from dm_control.rl import control

from sonde import ICEM, WORLDS, Cheetah, Explorer, ProbabilisticEnsemble, Reacher, SondeError, Swimmer, evaluate, rollout
from sonde._internal.randomness import round_keys, for_purpose, rollout_keys
from sonde.evaluation._tasks import goals_for, task_named
from sonde.models._base import Prediction
from sonde.objectives import Imagined, TaskReward
from sonde.worlds import mujoco_simulators, sampling
from sonde.worlds._base import HostWorld, Simulators, Stepped
from sonde.worlds._mujoco import engine
from sonde.worlds._mujoco_simulators import MujocoSimulators

TRANSITIONS = 1000
WORLDS_HERE = [Reacher(), Swimmer(), Cheetah()]
by_name = pytest.mark.parametrize("world", WORLDS_HERE, ids=lambda world: world.domain)


def suites_own(world, seed=0):
    """The suite's environment, without its time limit."""
    if world.domain == "reacher":
        physics = suite.reacher.Physics.from_xml_string(*suite.reacher.get_model_and_assets())
        return control.Environment(physics, suite.reacher.Reacher(target_size=0.03, random=seed))
    task = {"swimmer": "swimmer6", "cheetah": "run"}[world.domain]
    return suite.load(world.domain, task, task_kwargs={"random": seed, "time_limit": float("inf")})


def suites_state(world, env, observation):
    """What the suite observes, in our order; of the cheetah it leaves out the place."""
    if world.domain == "reacher":
        return np.concatenate([observation[name] for name in ("position", "velocity", "to_target")])
    if world.domain == "swimmer":
        return np.concatenate([observation[name] for name in ("joints", "body_velocities", "to_target")])
    return np.concatenate([env.physics.data.qpos[:1], observation["position"], observation["velocity"]])


def suites_target(world, env):
    return np.empty(0) if world.domain == "cheetah" else np.array(env.physics.named.model.geom_pos["target"])


def assert_same_physics(world, data, theirs):
    for name in ("qpos", "qvel", "qacc_warmstart"):
        np.testing.assert_array_equal(getattr(data, name), getattr(theirs, name), err_msg=name)
    # the swimmer's sensors 3 to 5 tell where the target is, which our copies keep beside the model
    kept = np.setdiff1d(np.arange(len(data.sensordata)), [3, 4, 5] if world.domain == "swimmer" else [])
    np.testing.assert_array_equal(data.sensordata[kept], theirs.sensordata[kept])


@by_name
def test_transitions_are_the_suites_to_the_last_bit(world):
    """All of the physics, over several episodes, with actions of which some lie beyond the limits."""
    env, ours, rng = suites_own(world), world.open(1), np.random.default_rng(1)
    moved = 0.0
    for round_number in range(4):
        observation = env.reset().observation
        ours.reset([round_number])
        data, theirs = ours.data[0], env.physics
        for name in ("qpos", "qvel", "qacc_warmstart"):
            getattr(data, name)[:] = getattr(theirs.data, name)
        ours.targets[0] = suites_target(world, env)
        engine().mj_forward(ours.model, data)
        x = suites_state(world, env, observation)
        np.testing.assert_array_equal(world.observe(ours.model, ours.data, ours.targets), [x])
        for _ in range(TRANSITIONS // 4):
            action = rng.uniform(-1.2, 1.2, world.action_dim)
            for _ in range(world.action_repeat):
                observation = env.step(action).observation
            after = ours.step(action[None])
            x_next = suites_state(world, env, observation)
            np.testing.assert_array_equal(after.next_states[0], x_next)
            assert_same_physics(world, data, theirs.data)
            assert not after.terminated.any() and not after.over.any()
            moved, x = max(moved, np.abs(x_next - x).min()), x_next
        assert np.isclose(data.time, theirs.data.time)
    assert moved > 0, "every number of the state moves"


@by_name
def test_starts_are_the_suites_to_the_last_bit(world):
    """From the same random numbers: joints, settling, targets, warm start and all."""
    world = replace(world, target_box=2.0) if world.domain == "swimmer" else world
    for seed in range(5):
        env = suites_own(world, seed)
        theirs = suites_state(world, env, env.reset().observation)
        ours = world.open(1)
        ours.reset([0])
        ours._rngs = [np.random.Generator(np.random.RandomState(seed)._bit_generator)]
        np.testing.assert_array_equal(ours.restart(np.array([True]))[0], theirs)
        np.testing.assert_array_equal(ours.targets[0], suites_target(world, env))
        world.show_target(ours.model, ours.targets[0])
        for name in ("geom_pos", "geom_size", "light_pos"):
            np.testing.assert_array_equal(getattr(ours.model, name), getattr(env.physics.model, name))
        assert_same_physics(world, ours.data[0], env.physics.data)


@by_name
def test_control_is_in_the_suites_range_and_time_is_the_suites(world):
    env, model = suites_own(world), world.open(1).model
    spec = env.action_spec()
    assert spec.shape == (world.action_dim,)
    assert (spec.minimum == -1).all() and (spec.maximum == 1).all(), "our actions are theirs"
    assert np.isclose(world.seconds_per_step, env.control_timestep() * world.action_repeat)
    assert (model.nu, len(world.state_names)) == (world.action_dim, world.state_dim)
    assert len(set(world.state_names)) == world.state_dim and len(set(world.action_names)) == world.action_dim


@by_name
def test_starts_come_from_their_seeds(world):
    copies = world.open(3)
    first = copies.reset([7, 8, 7])
    np.testing.assert_array_equal(first[0], first[2])
    assert (first[0] != first[1]).any()
    copies.step(np.ones((3, world.action_dim)))
    later = copies.restart(np.array([True, False, True]))
    np.testing.assert_array_equal(later[0], later[2])
    assert (later[0] != first[0]).any(), "a restart is a new start"
    again = world.open(3)
    np.testing.assert_array_equal(again.reset([7, 8, 7]), first)
    stepped = again.step(np.ones((3, world.action_dim))).next_states
    restarted = again.restart(np.array([True, False, True]))
    np.testing.assert_array_equal(restarted, later)
    np.testing.assert_array_equal(restarted[1], stepped[1])
    np.testing.assert_array_equal(copies.reset([7, 8, 7]), first)


def test_range_of_the_reachers_and_swimmers_starts():
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
    assert 0.2 < np.mean(targets <= 0.3) < 0.4, "a fifth of them is near on purpose, and 9 % of the others by draws"
    assert np.pi / 3 - 0.02 < np.abs(states[:, :5]).max() <= np.pi / 3, "sixty degrees"
    # the distance does not depend on the frame
    noses = np.array([data.geom("nose").xpos for data in swimmer.data])
    np.testing.assert_allclose(
        np.linalg.norm(states[:, -2:], axis=1), np.linalg.norm((swimmer.targets - noses)[:, :2], axis=1), atol=1e-12
    )


def test_the_cheetah_has_settled():
    states = Cheetah().open(30).reset(range(30))
    assert np.abs(states[:, 9:]).max() < 0.5 and np.median(np.abs(states[:, 9:])) < 0.05, "it stands still"
    assert np.abs(states[:, 1:9]).max() < 1.0 and (states[:, 0].std() > 1e-4), "on its feet, not always in the same place"


@by_name
def test_threads_change_nothing(world):
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


def test_threads_are_used_only_where_they_pay(monkeypatch):
    monkeypatch.setattr(mujoco_simulators.os, "cpu_count", lambda: 8)
    assert mujoco_simulators.workers(1, 60) == mujoco_simulators.workers(10, 4) == 1
    assert mujoco_simulators.workers(1000, 1) == 1, "a single physics step is mostly Python"
    assert mujoco_simulators.workers(50, 4) == 4 and mujoco_simulators.workers(50, 60) == 8
    assert mujoco_simulators.workers(10, 80) == 5, "three more would still wait for two copies"


@by_name
def test_a_restored_copy_goes_on_to_the_last_bit(world):
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
def test_divergence_and_misuse_are_errors(world):
    copies = world.open(2)
    with pytest.raises(SondeError, match="reset the copies"):
        copies.step(np.zeros((2, world.action_dim)))
    with pytest.raises(SondeError, match="as many seeds"):
        copies.reset([1])
    copies.reset([0, 1])
    for wrong in (np.zeros((1, world.action_dim)), np.full((2, world.action_dim), np.nan)):
        with pytest.raises(SondeError, match="finite numbers of shape"):
            copies.step(wrong)
    copies.data[1].qvel[:] = 1e12
    with pytest.raises(SondeError, match=r"copy 1 diverged .*BAD"):
        copies.step(np.zeros((2, world.action_dim)))
    assert np.isfinite(copies.reset([0, 1])).all(), "a new episode heals it"
    copies.step(np.zeros((2, world.action_dim)))


def test_settings_that_mean_nothing_are_refused():
    for wrong in (lambda: Reacher(action_repeat=0), lambda: Swimmer(target_box=0.0), lambda: Cheetah(control_cost=-1.0)):
        with pytest.raises(SondeError, match="must be"):
            wrong()


def test_mujoco_is_imported_by_opening_a_world_only():
    code = (
        "import sys, sonde; sonde.Cheetah().tasks; sonde.Swimmer().plane(); sonde.RunConfig(world=sonde.Reacher());"
        "assert not {'mujoco', 'dm_control'} & set(sys.modules);"
        "sys.modules['mujoco'] = sys.modules['dm_control'] = None\n"
        "try: sonde.Cheetah().open(1)\n"
        "except sonde.SondeError as error: print(error)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True)
    assert "pip install '.[mujoco]'" in found.stdout


def by_the_suite(world, task, action, env):
    """What the next state is worth, from the suite's own quantities."""
    physics = env.physics
    if world.domain == "reacher":
        return 100.0 * (physics.finger_to_target_dist() <= 0.05)
    if world.domain == "swimmer":
        return {"go-to": -1, "go-away": 1}[task] * physics.nose_to_target_dist()
    speed, fallen = physics.named.data.qvel["rootx"], abs(physics.named.data.qpos["rooty"]) > np.pi / 2
    bonus = speed - world.fall_penalty * fallen if task == "forward" else -speed
    return bonus - world.control_cost * np.sum(action**2)


@pytest.mark.parametrize("world", [*WORLDS_HERE, Cheetah(control_cost=0.1, fall_penalty=10.0)], ids=str)
def test_rewards_are_those_of_the_suites_quantities(world, x64):
    env, rng, rewards = suites_own(world), np.random.default_rng(0), {task: [] for task in world.tasks}
    for round_number in range(2):
        x = suites_state(world, env, env.reset().observation)
        if round_number and world.domain == "reacher":  # bring the target to the finger: else it is hardly ever reached
            env.physics.named.model.geom_pos["target", :2] = env.physics.named.data.geom_xpos["finger", :2] + 0.02
        if round_number and world.domain == "cheetah":  # throw it on its back
            with env.physics.reset_context():
                env.physics.named.data.qpos["rooty"], env.physics.named.data.qpos["rootz"] = 3.0, 0.5
        for _ in range(20):
            action = rng.uniform(-1, 1, world.action_dim)
            x_next = suites_state(world, env, env.step(action).observation)
            for task, reward in world.tasks.items():
                ours = float(reward(*map(jnp.asarray, (x, action, x_next))))
                assert np.isclose(ours, by_the_suite(world, task, action, env), atol=1e-12), task
                rewards[task].append(ours)
            x = x_next
    assert all(len(set(values)) > 1 for values in rewards.values()), "the cases differ"
    if world.domain == "cheetah" and world.fall_penalty:
        assert min(rewards["forward"]) < -5 < min(rewards["backward"]), "only the forward task minds falling"


def test_options_of_the_cheetah_keep_tasks_the_same_functions():
    assert Cheetah().tasks["forward"] is Cheetah(action_repeat=2).tasks["forward"]
    assert Cheetah(control_cost=0.1).tasks["forward"] is Cheetah(control_cost=0.1).tasks["forward"]
    assert Cheetah(control_cost=0.1).tasks["forward"] is not Cheetah().tasks["forward"]


WITH_TASKS = [(name, task) for name, kind in WORLDS.items() if name not in ("gym", "own") for task in kind().tasks]


@pytest.mark.parametrize(("name", "task"), WITH_TASKS)
def test_imagined_reward_is_the_real_one(name, task, x64):
    """A planner that imagines exactly what happened expects exactly the return that was counted."""
    world, keys = WORLDS[name](), round_keys((0, 1), 1)
    played, asked = evaluate(world, None, task, ICEM(), 6, keys), task_named(world, task)
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


@by_name
def test_reachable_transitions_are_the_systems_own(world):
    """Checked by setting the suite's physics to a state; fixed; and they cover what random actions visit."""
    found = world.reachable()
    assert found is world.reachable() and found.states.shape == (2000, world.state_dim)
    assert np.isfinite(found.next_states).all() and np.abs(found.actions).max() == 1.0
    if world.domain == "cheetah":
        env = suites_own(world)
        for i in range(3):
            env.reset()
            with env.physics.reset_context():
                env.physics.data.qpos[:], env.physics.data.qvel[:] = np.split(found.states[i], 2)
            for _ in range(world.action_repeat):
                env.step(found.actions[i])
            # the solver's warm start is not part of the state: equal up to its tolerance
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
        over = self.count == self.ends
        return Stepped(self.count[:, None].copy(), over, over)

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
        return sampling.reachable_by_noise(self, 4, 15, points=60)


def test_episodes_that_end_are_restarted():
    world = Counted()
    found = world.reachable()
    assert world.copies.closed
    np.testing.assert_array_equal(found.next_states, found.states + 1)
    counts = np.unique(found.states, return_counts=True)[1]
    np.testing.assert_array_equal(counts, [16, 16, 16, 6, 6])
    with pytest.raises(SondeError, match="cannot be chosen"):
        sampling.reachable_by_noise(world, 2, 3, points=7)


def test_noise_has_all_colours_and_amplitudes():
    actions = sampling.noise_actions(np.random.default_rng(0), 40, 200, 2)
    assert actions.shape == (40, 200, 2) and np.abs(actions).max() == 1.0
    steps = np.abs(np.diff(actions, axis=1)).mean(axis=(1, 2)) / actions.std(axis=(1, 2))
    assert steps[0] > 5 * steps[15], "white noise jumps, slow noise does not"
    size = np.abs(actions).mean(axis=(1, 2))
    assert size[0] < 0.25 and size[4] > 0.8


def opengl_works() -> bool:
    code = "from mujoco.egl import GLContext; context = GLContext(8, 8); context.make_current(); context.free()"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


@by_name
def test_pictures(world):
    copies = world.open(2)
    copies.reset([0, 1])
    if not opengl_works():  # asked of MuJoCo itself, so that a fault of ours is not skipped
        with pytest.raises(SondeError, match="libegl1"):
            copies.picture()
        pytest.skip("this machine has no OpenGL without a screen; the refusal was tested instead")
    before = copies.picture()
    assert before.shape == (480, 480, 3) and before.dtype == np.uint8
    assert before.std() > 5, "it shows something"
    for _ in range(10):
        seen = copies.step(np.ones((2, world.action_dim))).next_states
        picture = copies.picture()
    changed = np.abs(picture.astype(int) - before).max(axis=-1) > 20
    assert 0.001 < changed.mean() < 0.9, "it moved"
    copies.close()
    copies.reset([0, 1])
    for _ in range(10):
        unseen = copies.step(np.ones((2, world.action_dim))).next_states
    np.testing.assert_array_equal(seen, unseen, err_msg="to be seen changes nothing")


def test_without_opengl_it_says_what_to_install(monkeypatch):
    from sonde.worlds import mujoco_picture

    monkeypatch.setattr(mujoco_picture, "_backend", lambda: "mujoco.no_such_thing")
    copies = Reacher().open(1)
    copies.reset([0])
    with pytest.raises(SondeError, match=r"libegl1.*MUJOCO_GL=osmesa"):
        copies.picture()


@by_name
def test_plane_shows_states(world):
    plane, states = world.plane(), world.reachable().states
    a, b = plane.from_state(states.reshape(50, 40, -1))
    assert a.shape == b.shape == (50, 40) and a.std() > 0 and b.std() > 0
    for values, limits in ((a, plane.x_range), (b, plane.y_range)):
        assert limits is None or (limits[0] <= values.min() and values.max() <= limits[1])


@by_name
def test_explores_and_is_evaluated(world):
    model = ProbabilisticEnsemble(members=2, layers=1, width=8, epochs=1)
    solver = ICEM(samples=8, elites=2, iterations=1, horizon=3)
    explorer = Explorer(
        "random", model, solver, state_dim=world.state_dim, action_dim=world.action_dim, capacity=5, seeds=(0, 1)
    )
    trajectory = rollout(world, explorer.ask(), 5)
    assert trajectory.states.shape == (2, 5, world.state_dim)
    np.testing.assert_array_equal(trajectory.states[:, 1:], trajectory.next_states[:, :-1])
    assert (trajectory.states[0, 0] != trajectory.states[1, 0]).any(), "seeds start differently"
    explorer.tell(trajectory)
    for task in world.tasks:
        played = evaluate(world, explorer.posterior, task, solver, 3, explorer.keys(), explorer.data)
        assert np.isfinite(played.returns).all()
        expected = jax.vmap(jax.vmap(world.tasks[task]))(
            *(jnp.asarray(getattr(played.trajectory, name)) for name in ("states", "actions", "next_states"))
        ).sum(axis=1)
        np.testing.assert_allclose(played.returns, expected, rtol=1e-5)
