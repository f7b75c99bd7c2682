"""Scripted play of the Fetch arm, and how the ceiling of models on it is measured."""

import numpy as np
import pytest

from experiments.scripted_play import KINDS, places, play, skills
from experiments.scripts.fetch_ceiling import kinds_of_errors, model_named
from sonde.models import RelationalEnsemble
from sonde.worlds import FetchConstruction
from sonde.worlds.fetch._layout import GRIP_HOME, HALF_SIZE, REST_HEIGHT

WORLD = FetchConstruction(blocks=2, angles="continuous")


@pytest.fixture(scope="module")
def played():
    """One episode of each kind, long enough for the first block."""
    return play(WORLD, len(KINDS), 50, seed=0, workers=1)


@pytest.mark.slow
def test_play_shows_the_skills(played):
    assert played.states.shape == (len(KINDS), 51, 34) and played.actions.shape == (len(KINDS), 50, 4)
    assert np.isfinite(played.states).all() and np.abs(played.actions).max() <= 1
    lifted = [skills(type(played)(*(array[i : i + 1] for array in played)))["lifted"] for i in range(len(KINDS))]
    assert lifted[KINDS.index("noise")] == 0
    assert all(lifted[KINDS.index(kind)] for kind in ("carry", "throw", "stack"))
    tipped = played.states[KINDS.index("tip"), :, [13, 25]]  # the first angles of both blocks
    assert np.abs(tipped - np.pi / 2).min() < 0.087


@pytest.mark.slow
def test_play_is_the_same_with_the_same_seed(played):
    again = play(WORLD, len(KINDS), 3, seed=0, workers=1)
    np.testing.assert_array_equal(again.states[:, 0], played.states[:, 0])
    assert not np.array_equal(play(WORLD, len(KINDS), 1, seed=1, workers=1).states[:, 0], played.states[:, 0])


def test_blocks_that_are_stacked_stand_on_each_other():
    goals = places("stack", 3, np.array([2, 0]), np.random.default_rng(0))
    np.testing.assert_allclose(goals[[2, 0], 2], [REST_HEIGHT, REST_HEIGHT + 2 * HALF_SIZE])
    np.testing.assert_allclose(goals[2, :2], goals[0, :2])


def test_errors_are_those_of_blocks_that_moved_and_of_the_others():
    """Two starts, three steps: the first block goes 1 cm in the first one; by hand."""
    x = np.zeros((2, 34))
    x[:, :3] = GRIP_HOME
    truth = np.repeat(x[:, None], 3, axis=1)
    truth[0, 1:, 10] = 0.01
    predicted = truth.copy()
    predicted[0, :, 10] += 0.3  # the block that is touched
    predicted[1, :, 22] -= 0.6  # one that is not
    predicted[0, :, 13] += np.pi / 2  # a turn of the first block
    after_one, after_three = (kinds_of_errors(x, truth, predicted, ahead) for ahead in (1, 3))
    assert np.isnan(after_one["touched position"])
    np.testing.assert_allclose(after_one["untouched position"], np.sqrt((0.3**2 + 0.6**2) / 12))
    np.testing.assert_allclose(after_three["touched position"], np.sqrt(0.3**2 / 3))
    np.testing.assert_allclose(after_three["untouched position"], np.sqrt(0.6**2 / 9))
    np.testing.assert_allclose([after_three["touched turn"], after_three["untouched turn"]], [np.pi / 2, 0])
    assert after_three["grip"] == 0


def test_models_are_named_with_other_settings():
    mlp, smooth = model_named("mlp", [], 1.0), model_named("smooth", ["width=32", "learning_rate=1e-3"], 0.1)
    assert not isinstance(mlp, RelationalEnsemble) and mlp.width == 256
    assert isinstance(smooth, RelationalEnsemble) and (smooth.width, smooth.learning_rate) == (32, 1e-3)
    bound = smooth.for_system(WORLD.spec)
    ((first, *_, last),) = bound.network_sizes(34, 4)
    assert (first, last) == (bound.inputs_size(34, 4), 34) and first == 10 + 4 + 2 * 18
