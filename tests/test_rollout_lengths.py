"""Rounds of any length: nothing compiles for a new one, and the results are those of the whole round at once."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sonde import Experiment, Trajectory
from sonde._internal.blocks import BLOCK, in_blocks
from sonde.data import Data
from sonde.worlds import OwnSystem
from tiny import TINY


def told(steps: int) -> Trajectory:
    rng = np.random.default_rng(steps)
    states = np.cumsum(rng.normal(size=(1, steps + 1, 2)), axis=1)
    return Trajectory(states[:, :-1], rng.uniform(-1, 1, (1, steps, 1)), states[:, 1:])


@pytest.mark.slow
def test_new_rollout_length_compiles_nothing(tmp_path):
    compiled = []
    listen = lambda event, _, **__: compiled.append(event) if "backend_compile" in event else None
    jax.monitoring.register_event_duration_secs_listener(listen)
    system = OwnSystem(states=("angle", "speed"), actions=("torque",))
    with Experiment(tmp_path / "run", replace(TINY, world=system, rounds=5)) as experiment:
        experiment.tell(told(12))
        experiment.tell(told(11))  # the first round has nothing to predict with, and leaves out what that needs
        before = len(compiled)
        for steps in (7, 10, 3):
            experiment.tell(told(steps))
    assert before > 0, "the listener must have seen the first rounds compile"
    assert len(compiled) == before, "lengths of rollouts that were new"


def test_blocks_give_what_the_whole_gives():
    arrays = (np.random.default_rng(0).normal(size=(2, 2 * BLOCK + 3, 4)), np.arange(2.0 * (2 * BLOCK + 3)).reshape(2, -1))
    lengths = []

    def work(a, b):
        lengths.append(a.shape[1])
        return {"sum": jnp.sum(a, axis=-1) + b}

    with jax.enable_x64(True):
        found = in_blocks(work, *arrays)["sum"]
    np.testing.assert_allclose(found, arrays[0].sum(axis=-1) + arrays[1], rtol=1e-12)
    assert lengths == [BLOCK] * 3


def test_appended_rows_come_after_the_earlier_ones_for_all_seeds():
    empty = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (3, *leaf.shape)), Data.empty(10, 2, 1))
    rows = lambda start, steps, dim: np.broadcast_to(np.arange(start, start + steps)[None, :, None], (3, steps, dim)).astype(
        float
    )
    first = empty.append(rows(1, 4, 2), rows(1, 4, 1), rows(2, 4, 2))
    both = first.append(rows(5, 2, 2), rows(5, 2, 1), rows(6, 2, 2))
    np.testing.assert_array_equal(both.count, [6, 6, 6])
    np.testing.assert_array_equal(both.states[1, :, 0], [1, 2, 3, 4, 5, 6, 0, 0, 0, 0])
    np.testing.assert_array_equal(both.next_states[2, :, 1], [2, 3, 4, 5, 6, 7, 0, 0, 0, 0])
    np.testing.assert_array_equal(first.count, [4, 4, 4])  # the earlier buffer is as it was
    assert float(first.states[0, 4, 0]) == 0
