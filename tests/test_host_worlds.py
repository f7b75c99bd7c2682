"""Systems that are stepped outside of JAX: early ends, restarts, several rollouts, and what counts as return."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sonde import Explorer, SondeError, evaluate, rollout
from sonde._internal.randomness import round_keys
from sonde.data import Data, Trajectory
from sonde.evaluation._tasks import reward_named
from sonde.models._normaliser import Normaliser
from sonde.runs._run import build_explorer, experiment
from sonde.solvers._base import Planner
from sonde.worlds import HostWorld, OwnSystem, Simulators, Stepped
from tiny import TINY


def reached(x, u, x_next):
    del x, u
    return x_next[0]


class Counters(Simulators):
    """Each copy counts its steps, from 10 times its seed's last digit on, and ends after its own number of steps."""

    def __init__(self, num_seeds):
        self.limits = np.arange(num_seeds) + 3

    def reset(self, seeds):
        self.steps, self.rounds = np.zeros(len(seeds)), np.zeros(len(seeds))
        return self._states()

    def _states(self):
        return np.stack([self.steps, self.rounds], axis=1)

    def step(self, actions):
        self.steps = self.steps + 1
        over = self.steps >= self.limits
        return Stepped(self._states(), over & (self.rounds % 2 == 0), over)

    def restart(self, which):
        self.steps, self.rounds = np.where(which, 0, self.steps), self.rounds + which
        return self._states()


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

    def open(self, num_seeds):
        return Counters(num_seeds)


@dataclass(frozen=True)
class Remembering(Planner):
    """Its action says how many steps of the episode it has seen."""

    def start(self, problem):
        return jnp.zeros(())

    def plan(self, problem, state, x, key):
        return jnp.full((1, problem.control_dim), state / 100), state + 1


def explorer(num_seeds):
    seeds = tuple(range(num_seeds))
    return Explorer("mean-ae", TINY.model, Remembering(), state_dim=2, action_dim=1, capacity=50, seeds=seeds)


def test_an_episode_that_ends_early_is_followed_by_the_next():
    trajectory = rollout(Counting(), explorer(2).ask(), 8)
    np.testing.assert_array_equal(trajectory.states[0, :, 0], [0, 1, 2, 0, 1, 2, 0, 1])
    np.testing.assert_array_equal(trajectory.states[1, :, 0], [0, 1, 2, 3, 0, 1, 2, 3])
    np.testing.assert_array_equal(trajectory.next_states[0, :, 0], [1, 2, 3, 1, 2, 3, 1, 2])
    np.testing.assert_array_equal(np.flatnonzero(trajectory.over[0]), [2, 5])
    np.testing.assert_array_equal(np.flatnonzero(trajectory.terminated[0]), [2])


def test_the_planner_begins_anew_where_an_episode_does():
    actions = rollout(Counting(), explorer(2).ask(), 8).actions[..., 0] * 100
    np.testing.assert_allclose(actions, [[0, 1, 2, 0, 1, 2, 0, 1], [0, 1, 2, 3, 0, 1, 2, 3]], atol=1e-9)


def test_the_return_of_a_task_ends_with_the_episode():
    with jax.enable_x64(True):
        played = evaluate(Counting(), None, "count", Remembering(), 8, round_keys([0, 1], 0))
    np.testing.assert_array_equal(played.returns, [1 + 2 + 3, 1 + 2 + 3 + 4])


def test_several_rollouts_are_one_experiment():
    config = replace(TINY, rollouts=3, horizon=5, seeds=2)
    it = build_explorer(config)
    _, trajectory = experiment(config, it)
    assert trajectory.states.shape == (2, 15, 3)
    np.testing.assert_array_equal(np.flatnonzero(trajectory.over[0]), [4, 9, 14])
    np.testing.assert_array_equal(trajectory.states[:, ::5], np.broadcast_to([-1.0, 0.0, 0.0], (2, 3, 3)))
    it.tell(trajectory)
    assert it.transitions == 15
    assert not np.array_equal(trajectory.actions[:, :5], trajectory.actions[:, 5:10]), "each has draws of its own"


def test_several_rollouts_of_an_evaluation_are_averaged():
    world, keys = TINY.world, round_keys([0], 0)
    with jax.enable_x64(True):
        one = evaluate(world, None, "keep-down", TINY.solver, 10, keys)
        three = evaluate(world, None, "keep-down", TINY.solver, 10, keys, rollouts=3)
    assert three.returns != one.returns
    np.testing.assert_array_equal(three.trajectory.actions, one.trajectory.actions)


def test_a_system_that_delivers_nonsense_is_refused():
    class Broken(Counters):
        def _states(self):
            return super()._states() * (np.nan if self.steps[0] == 2 else 1)

    @dataclass(frozen=True)
    class BrokenWorld(Counting):
        def open(self, num_seeds):
            return Broken(num_seeds)

    with pytest.raises(SondeError, match="NaN or infinity at step 1"):
        rollout(BrokenWorld(), explorer(1).ask(), 4)


def test_a_system_without_simulator_is_run_by_its_owner():
    with pytest.raises(SondeError, match="ask and tell"):
        rollout(OwnSystem(("a", "b"), ("u",)), explorer(1).ask(), 4)


def test_actions_that_hardly_vary_do_not_make_others_look_far():
    states = jnp.arange(10.0)[:, None] * 1e-3
    data = Data(states, 1 - 1e-6 * jnp.arange(10.0)[:, None], states, jnp.asarray(10))
    scale = np.asarray(Normaliser.of_inputs(data).scale)
    assert scale[0] == pytest.approx(np.std(np.arange(10) * 1e-3), rel=1e-3), "states keep their own units"
    assert scale[1] == pytest.approx(0.1)


def test_joining_marks_where_rollouts_end():
    part = Trajectory(np.zeros((1, 2, 1)), np.zeros((1, 2, 1)), np.ones((1, 2, 1)), world_seconds=1.0)
    whole = part.joined(part).joined(part)
    np.testing.assert_array_equal(whole.over, [[False, True, False, True, False, True]])
    assert not whole.terminated.any() and whole.world_seconds == 3.0


def test_a_persons_file_may_import_its_neighbours_and_share_its_name_with_another(tmp_path):
    for folder, sign in (("a", 1), ("b", -1)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"helper_{folder}.py").write_text(f"SIGN = {sign}\n")
        text = f"from helper_{folder} import SIGN\n\ndef go(x, u, x_next):\n    return SIGN * x[0]\n"
        (tmp_path / folder / "rewards.py").write_text(text)
    x, u = jnp.asarray([2.0, 0.0]), jnp.zeros(1)
    values = [float(reward_named(Counting(), f"{tmp_path}/{folder}/rewards.py:go")(x, u, x)) for folder in "ab"]
    assert values == [2.0, -2.0]


def test_a_reward_that_fails_without_a_word_is_refused_in_words(tmp_path):
    (tmp_path / "bare.py").write_text("def bare(x, u, x_next):\n    raise NotImplementedError\n")
    with pytest.raises(SondeError, match="failed with NotImplementedError"):
        reward_named(Counting(), f"{tmp_path}/bare.py:bare")


def test_a_reward_of_an_entry_that_is_not_there_is_refused(tmp_path):
    (tmp_path / "far.py").write_text("def far(x, u, x_next):\n    return x_next[7]\n")
    with pytest.raises(SondeError, match=r"not there .* x has 2 numbers \(step, episode\)"):
        reward_named(Counting(), f"{tmp_path}/far.py:far")
