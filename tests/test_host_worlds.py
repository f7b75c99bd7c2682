"""Systems that are stepped outside of JAX: early ends, restarts, several rollouts, returns, and open simulators."""

from dataclasses import dataclass, field, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sonde._internal.errors import SondeError
from sonde._internal.randomness import rollout_keys, round_keys
from sonde.control import RolloutSettings, SimulatorPool, rollout, run_rollouts, start_states
from sonde.control._simulators import MAX_OPEN
from sonde.data import Data, SystemSpec, Trajectory
from sonde.evaluation import TaskSetup, evaluate
from sonde.evaluation._tasks import reward_named
from sonde.explorer import Explorer
from sonde.methods import METHODS
from sonde.models._normaliser import Normaliser
from sonde.runs._run import build_explorer, collect
from sonde.solvers import Planner
from sonde.worlds import HostWorld, OwnSystem, Simulators, Stepped
from tiny import TINY


def reached(x, u, x_next):
    del x, u
    return x_next[0]


class Counters(Simulators):
    """Each copy counts its steps and episodes; its episodes have its own length and alternately terminate or are truncated."""

    def __init__(self, num_copies):
        self.limits, self.closed = np.arange(num_copies) + 3, False

    def reset(self, seeds):
        self.steps, self.episodes = np.zeros(len(seeds)), np.zeros(len(seeds))
        return self._states()

    def _states(self):
        return np.stack([self.steps, self.episodes], axis=1)

    def step(self, actions):
        self.steps = self.steps + 1
        ended, even = self.steps >= self.limits, self.episodes % 2 == 0
        return Stepped(self._states(), ended & even, ended & ~even)

    def restart(self, which):
        self.steps, self.episodes = np.where(which, 0, self.steps), self.episodes + which
        return self._states()

    def close(self):
        assert not self.closed
        self.closed = True


@dataclass(frozen=True)
class Counting(HostWorld):
    @property
    def state_names(self):
        return ("step", "episode")

    @property
    def action_names(self):
        return ("u",)

    @property
    def tasks(self):
        return {"count": reached}

    def reachable(self):
        return None

    def open(self, num_copies):
        return Counters(num_copies)


@dataclass(frozen=True)
class StepCounter(Planner):
    """Its action is the number of steps that it has seen in the episode, over 100."""

    def initial_state(self, problem):
        return jnp.zeros(())

    def plan(self, problem, state, x, key):
        return jnp.full((1, problem.control_dim), state / 100), state + 1


def explorer(num_seeds):
    seeds = tuple(range(num_seeds))
    return Explorer(METHODS["mean-ae"], TINY.model, StepCounter(), SystemSpec.of_size(2, 1), capacity=50, seeds=seeds)


@pytest.mark.slow
def test_rollout_restarts_episodes_that_end_early():
    trajectory = rollout(Counting(), explorer(2).ask(), 8)
    np.testing.assert_array_equal(trajectory.states[0, :, 0], [0, 1, 2, 0, 1, 2, 0, 1])
    np.testing.assert_array_equal(trajectory.states[1, :, 0], [0, 1, 2, 3, 0, 1, 2, 3])
    np.testing.assert_array_equal(trajectory.next_states[0, :, 0], [1, 2, 3, 1, 2, 3, 1, 2])
    np.testing.assert_array_equal(np.flatnonzero(trajectory.ended[0]), [2, 5])
    np.testing.assert_array_equal(np.flatnonzero(trajectory.terminated[0]), [2])
    np.testing.assert_array_equal(np.flatnonzero(trajectory.truncated[0]), [5])


def test_planner_state_is_reset_with_each_episode():
    actions = rollout(Counting(), explorer(2).ask(), 8).actions[..., 0] * 100
    np.testing.assert_allclose(actions, [[0, 1, 2, 0, 1, 2, 0, 1], [0, 1, 2, 3, 0, 1, 2, 3]], atol=1e-9)


def test_return_of_a_task_ends_with_the_first_episode():
    with jax.enable_x64(True):
        played = evaluate(TaskSetup.named(Counting(), "count", StepCounter(), 8), None, round_keys([0, 1], 0))
    np.testing.assert_array_equal(played.returns, [1 + 2 + 3, 1 + 2 + 3 + 4])


@pytest.mark.slow
def test_several_rollouts_are_joined_into_one_round():
    config = replace(TINY, rollouts=3, horizon=5, seeds=2)
    it = build_explorer(config)
    _, trajectory = collect(config, it)
    assert trajectory.states.shape == (2, 15, 3)
    np.testing.assert_array_equal(np.flatnonzero(trajectory.ended[0]), [4, 9, 14])
    np.testing.assert_array_equal(trajectory.states[:, ::5], np.broadcast_to([-1.0, 0.0, 0.0], (2, 3, 3)))
    it.tell(trajectory)
    assert it.transitions == 15
    assert not np.array_equal(trajectory.actions[:, :5], trajectory.actions[:, 5:10]), "each rollout has its own randomness"


@pytest.mark.slow
def test_evaluation_averages_returns_over_rollouts():
    setup, keys = TaskSetup.named(TINY.world, "keep-down", TINY.solver, 10), round_keys([0], 0)
    with jax.enable_x64(True):
        one = evaluate(setup, None, keys)
        three = evaluate(replace(setup, rollouts=3), None, keys)
    assert three.returns != one.returns
    np.testing.assert_array_equal(three.trajectory.actions, one.trajectory.actions)


@pytest.mark.slow
def test_states_that_are_not_finite_are_rejected():
    class Broken(Counters):
        def _states(self):
            return super()._states() * (np.nan if self.steps[0] == 2 else 1)

    @dataclass(frozen=True)
    class BrokenWorld(Counting):
        def open(self, num_copies):
            return Broken(num_copies)

    with pytest.raises(SondeError, match="NaN or infinity at step 1"):
        rollout(BrokenWorld(), explorer(1).ask(), 4)


def test_rollout_rejects_a_system_without_a_simulator():
    with pytest.raises(SondeError, match="ask and tell"):
        rollout(OwnSystem(("a", "b"), ("u",)), explorer(1).ask(), 4)


@dataclass(frozen=True)
class Recorded(Counting):
    """Remembers the simulators that it opened."""

    fails: bool = False
    opened: list = field(default_factory=list, compare=False)

    def open(self, num_copies):
        copies = Counters(num_copies)
        if self.fails:
            copies.step = lambda actions: 1 / 0
        self.opened.append(copies)
        return copies


@pytest.mark.slow
def test_no_simulator_stays_open_after_rollouts_without_a_pool():
    world, keys = Recorded(), round_keys([0, 1], 0)
    with jax.enable_x64(True):
        rollout(world, explorer(2).ask(), 4)
        run_rollouts(world, explorer(2).ask(), RolloutSettings(4, count=3, max_copies=2))
        start_states(world, rollout_keys(keys, range(2)))
        evaluate(TaskSetup.named(world, "count", StepCounter(), 4), None, keys)
        assert len(world.opened) == 4 and all(copies.closed for copies in world.opened)
        failing = Recorded(fails=True)
        with pytest.raises(ZeroDivisionError):
            rollout(failing, explorer(2).ask(), 4)
    assert len(failing.opened) == 1 and failing.opened[0].closed


def test_pool_reuses_simulators_and_closes_them():
    world = Recorded()
    with SimulatorPool() as pool:
        first = rollout(world, explorer(2).ask(), 4, pool=pool)
        again = rollout(world, explorer(2).ask(), 4, pool=pool)
        assert len(world.opened) == 1 and not world.opened[0].closed and pool.seconds > 0
        np.testing.assert_array_equal(first.next_states, again.next_states)
        rollout(world, explorer(1).ask(), 4, pool=pool)
        assert len(world.opened) == 2, "another number of copies needs other simulators"
        assert not any(copies.closed for copies in world.opened)
    assert all(copies.closed for copies in world.opened)


def test_full_pool_closes_the_simulators_that_were_not_used_for_longest():
    world = Recorded()
    with SimulatorPool() as pool:
        for num_copies in range(1, MAX_OPEN + 1):
            pool.get(world, num_copies)
        assert pool.get(world, 1) is world.opened[0]
        pool.get(world, MAX_OPEN + 1)
        assert [copies.closed for copies in world.opened] == [False, True, *[False] * (MAX_OPEN - 1)]


def test_pool_does_not_reuse_simulators_that_failed():
    world = Recorded(fails=True)
    with SimulatorPool() as pool:
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                rollout(world, explorer(1).ask(), 4, pool=pool)
        assert len(world.opened) == 2 and all(copies.closed for copies in world.opened)


def test_action_scale_is_at_least_a_tenth():
    states = jnp.arange(10.0)[:, None] * 1e-3
    data = Data(states, 1 - 1e-6 * jnp.arange(10.0)[:, None], states, jnp.asarray(10))
    scale = np.asarray(Normaliser.of_inputs(data).scale)
    assert scale[0] == pytest.approx(np.std(np.arange(10) * 1e-3), rel=1e-3), "states keep their own units"
    assert scale[1] == pytest.approx(0.1)


def test_joined_trajectories_are_truncated_where_parts_end():
    part = Trajectory(np.zeros((1, 2, 1)), np.zeros((1, 2, 1)), np.ones((1, 2, 1)))
    whole = part.joined(part).joined(part)
    np.testing.assert_array_equal(whole.ended, [[False, True, False, True, False, True]])
    np.testing.assert_array_equal(whole.truncated, whole.ended)
    assert not whole.terminated.any()


def test_user_files_may_import_their_neighbours_and_share_names(tmp_path):
    for folder, sign in (("a", 1), ("b", -1)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"helper_{folder}.py").write_text(f"SIGN = {sign}\n")
        text = f"from helper_{folder} import SIGN\n\ndef go(x, u, x_next):\n    return SIGN * x[0]\n"
        (tmp_path / folder / "rewards.py").write_text(text)
    x, u = jnp.asarray([2.0, 0.0]), jnp.zeros(1)
    values = [float(reward_named(Counting(), f"{tmp_path}/{folder}/rewards.py:go")(x, u, x)) for folder in "ab"]
    assert values == [2.0, -2.0]


def test_reward_that_fails_without_a_message_is_named(tmp_path):
    (tmp_path / "bare.py").write_text("def bare(x, u, x_next):\n    raise NotImplementedError\n")
    with pytest.raises(SondeError, match="failed with NotImplementedError"):
        reward_named(Counting(), f"{tmp_path}/bare.py:bare")


def test_reward_that_reads_a_missing_dimension_is_rejected(tmp_path):
    (tmp_path / "far.py").write_text("def far(x, u, x_next):\n    return x_next[7]\n")
    with pytest.raises(SondeError, match=r"does not exist .* x has 2 numbers \(step, episode\)"):
        reward_named(Counting(), f"{tmp_path}/far.py:far")
