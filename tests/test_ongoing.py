"""Exploration without resets: rounds are cuts of one long trajectory, also after an interruption."""

import itertools
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sonde._internal.errors import SondeError
from sonde.control import Controller, Ongoing, rollout
from sonde.runs import explore
from sonde.runs._run import build_explorer, restore_explorer, run
from sonde.runs._store import RunStore
from sonde.solvers import RandomPolicy
from sonde.worlds import GymWorld, HostWorld, MountainCar, Pendulum, Reacher, Simulators
from test_host_worlds import Counters, Counting
from tiny import TINY

RANDOM = replace(TINY.with_method("random"), evaluate_every=0)


def controller(world, seeds=2, number=0):
    keys = build_explorer(replace(RANDOM, seeds=seeds)).keys()
    folded = jax.vmap(lambda key: jax.random.fold_in(key, number))(keys) if number else keys
    return Controller(RandomPolicy(world.action_dim), folded, world.state_dim)


def three_rounds(world, seeds=2):
    with Ongoing(world, controller(world, seeds).keys) as system:
        return [system.rollout(controller(world, seeds, number), 7) for number in range(3)]


@pytest.mark.parametrize("world", [MountainCar(), GymWorld("Pendulum-v1"), Reacher()], ids=lambda world: type(world).__name__)
def test_round_starts_where_the_last_one_ended_and_the_first_as_ever(world):
    first, second, third = three_rounds(world)
    np.testing.assert_array_equal(second.states[:, 0], first.next_states[:, -1])
    np.testing.assert_array_equal(third.states[:, 0], second.next_states[:, -1])
    expected = rollout(world, controller(world), 7)
    np.testing.assert_allclose(first.states, expected.states, rtol=1e-12)


def test_rounds_in_jax_are_one_rollout_of_the_equations():
    world, rounds = Pendulum(), three_rounds(Pendulum(), seeds=1)
    actions, states = (np.concatenate([getattr(part, name)[0] for part in rounds]) for name in ("actions", "next_states"))
    with jax.enable_x64(True):
        x = jnp.array([-1.0, 0.0, 0.0])
        for u, measured in zip(jnp.asarray(actions), states, strict=True):
            x = world.dynamics(x, u)
            np.testing.assert_allclose(x, measured, atol=1e-12)


def test_episodes_that_a_system_ends_are_restarted_also_at_a_cut():
    """Copy 0 ends every third step: with rounds of six steps, at the end of each round."""
    with Ongoing(Counting(), controller(Counting()).keys) as system:
        parts = [system.rollout(controller(Counting(), number=number), 6) for number in range(2)]
    steps = np.concatenate([part.states[..., 0] for part in parts], axis=1)
    np.testing.assert_array_equal(steps[0], [0, 1, 2] * 4)
    np.testing.assert_array_equal(steps[1], [0, 1, 2, 3] * 3)
    np.testing.assert_array_equal(
        np.concatenate([part.states[..., 1] for part in parts], axis=1)[0], np.repeat([0, 1, 2, 3], 3)
    )


@pytest.mark.parametrize(
    "world", [Counting(), GymWorld("Pendulum-v1"), Reacher(), MountainCar()], ids=lambda w: type(w).__name__
)
def test_new_process_goes_on_bit_for_bit(world):
    whole = three_rounds(world)
    with Ongoing(world, controller(world).keys, whole[:2]) as system:
        again = system.rollout(controller(world, number=2), 7)
    for name in ("states", "actions", "next_states"):
        np.testing.assert_array_equal(getattr(again, name), getattr(whole[2], name))


def test_system_that_does_not_repeat_itself_is_rejected():
    world, changed = GymWorld("Pendulum-v1"), GymWorld("Pendulum-v1", options='{"g": 9.0}')
    past = three_rounds(world)
    with (
        Ongoing(changed, controller(world).keys, past) as system,
        pytest.raises(SondeError, match=r"after step 0 of round 1 the state must be .* as measured"),
    ):
        system.rollout(controller(world, number=3), 7)


class Failing(Counters):
    fails_at: int | None = None

    def step(self, actions):
        if self.fails_at is not None and self.steps.sum() >= self.fails_at:
            raise SondeError("broken")
        return super().step(actions)


@dataclass(frozen=True)
class Broken(Counting, HostWorld):
    def open(self, num_copies) -> Simulators:
        return Failing(num_copies)


def test_system_goes_on_from_the_same_place_after_a_round_that_failed(monkeypatch):
    whole = three_rounds(Broken())
    with Ongoing(Broken(), controller(Broken()).keys) as system:
        system.rollout(controller(Broken()), 7)
        monkeypatch.setattr(Failing, "fails_at", 3)
        with pytest.raises(SondeError, match="broken"):
            system.rollout(controller(Broken(), number=1), 7)
        monkeypatch.setattr(Failing, "fails_at", None)
        again = system.rollout(controller(Broken(), number=1), 7)
    np.testing.assert_array_equal(again.states, whole[1].states)


@pytest.mark.slow
@pytest.mark.parametrize("world", [Pendulum(), GymWorld("Pendulum-v1")], ids=["jax", "gym"])
def test_run_without_resets_is_resumed_bit_for_bit(world, tmp_path):
    tasks = ("swing-up",) if isinstance(world, Pendulum) else ()
    config = replace(TINY, world=world, reset=False, seeds=2, evaluation_tasks=tasks, evaluate_every=len(tasks))
    whole = explore(config, tmp_path / "run")
    rounds = RunStore.open(tmp_path / "run").load_data(3)
    for one, following in itertools.pairwise(rounds):
        np.testing.assert_array_equal(following.states[:, 0], one.next_states[:, -1])
    resumed = run(RunStore.open(tmp_path / "run"), from_round=2)
    np.testing.assert_array_equal(resumed.data.states, whole.data.states)
    for one, same in zip(jax.tree.leaves(resumed.params), jax.tree.leaves(whole.params), strict=True):
        np.testing.assert_array_equal(one, same)
    assert restore_explorer(RunStore.open(tmp_path / "run")).round == 3


def test_several_rollouts_without_resets_are_rejected():
    with pytest.raises(SondeError, match="without resets a round is one rollout, got rollouts 2"):
        replace(TINY, reset=False, rollouts=2)
    policy = controller(Pendulum()).for_rollouts(range(2))
    with Ongoing(Pendulum(), policy.keys[:, 0]) as system, pytest.raises(SondeError, match="one rollout per seed"):
        system.rollout(policy, 3)
