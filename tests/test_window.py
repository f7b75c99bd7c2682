"""Models that learn from the latest measurements only."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from sonde._internal.errors import SondeError
from sonde.data import Data, SystemSpec, Trajectory
from sonde.explorer import Explorer, Told, fit_together
from sonde.methods import METHODS
from sonde.models import Confidence, GaussianProcess, ProbabilisticEnsemble
from sonde.models._drift import CHANGED
from sonde.runs import Experiment, explore
from sonde.runs._memory import memory_need
from sonde.runs._run import restore_explorer
from sonde.runs._store import RunStore
from sonde.runs._summary import how_it_ended
from sonde.solvers import ICEM
from sonde.worlds import OwnSystem
from tiny import TINY

SPEC = SystemSpec.of_size(2, 1)
GP = GaussianProcess(steps=3, rank=16)
ENSEMBLE = ProbabilisticEnsemble(members=2, width=8, layers=1, batch_size=8, epochs=3, patience=0)


def rounds(number, seeds=2, steps=12):
    rng = np.random.default_rng(number)
    draw = lambda dim: rng.uniform(-1, 1, (seeds, steps, dim))
    return Trajectory(draw(2), draw(1), draw(2))


def explorer(model, window=None, capacity=60):
    confidence = Confidence(window=window)
    return Explorer(METHODS["random"], model, ICEM(), SPEC, capacity=capacity, seeds=(0, 1), confidence=confidence)


def told(it, *numbers):
    for number in numbers:
        it.tell(rounds(number))
    return it


def data_of(rows, capacity):
    states = np.arange(rows)[:, None] * np.ones(2)
    return Data.empty(capacity, 2, 1).append(states, np.zeros((rows, 1)), states + 1)


def test_latest_measurements_come_first_and_the_others_are_gone():
    found = data_of(17, 40).latest(5)
    np.testing.assert_array_equal(found.states[:, 0], [12, 13, 14, 15, 16])
    np.testing.assert_array_equal(found.next_states[:, 0], [13, 14, 15, 16, 17])
    assert (int(found.count), int(found.total), found.mask().all()) == (5, 17, True)
    few = data_of(3, 40).latest(5)
    assert (few.capacity, int(few.count), int(few.total)) == (5, 3, 3)
    np.testing.assert_array_equal(few.mask(), [True, True, True, False, False])


def test_rows_that_are_held_out_stay_held_out_as_the_window_moves():
    with jax.enable_x64(True):
        everything = data_of(400, 400)
        hidden = set(np.asarray(everything.states[everything.held_out(0.3)][:, 0]))
        for count in range(130, 400, 37):
            view = data_of(count, 400).latest(100)
            seen = set(np.asarray(view.states[view.without(0.3).mask()][:, 0]))
            assert not seen & hidden
            assert seen | (hidden & set(range(count - 100, count))) == set(range(count - 100, count))


@pytest.mark.parametrize("model", [GP, pytest.param(ENSEMBLE, marks=pytest.mark.slow)], ids=["gp", "pe"])
def test_model_learns_as_if_the_forgotten_rounds_had_never_been(model):
    it = told(explorer(model, window=24), 1, 2, 3)
    other = told(explorer(model, capacity=24), 2)
    # what the third fit starts from, with the random numbers of the third round
    other.params, other.round = told(explorer(model, window=24), 1, 2).params, 2
    other.tell(rounds(3))
    queries = rounds(9)
    found, expected = (each.predict(queries.states, queries.actions) for each in (it, other))
    for one, same in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, same, rtol=1e-6)  # two programs, which round differently
    assert it.transitions == 36 and int(it.recent.count[0]) == 24


def test_window_that_forgets_nothing_changes_nothing():
    it, other = told(explorer(GP, window=60), 1, 2), told(explorer(GP), 1, 2)
    for one, same in zip(jax.tree.leaves(it.params), jax.tree.leaves(other.params), strict=True):
        np.testing.assert_array_equal(one, same)


def test_model_follows_a_system_that_changes():
    """x' = x + a u, where a becomes another one: with a window of the last round, only the new one is known."""

    def measured(slope, number):
        given = rounds(number)
        change = np.concatenate([slope * given.actions, np.zeros_like(given.actions)], axis=-1)
        return replace(given, next_states=given.states + change)

    slopes = {}
    for window in (12, None):
        it = explorer(GaussianProcess(), window)
        for number, slope in enumerate((1.0, 1.0, 0.5), 1):
            it.tell(measured(slope, number))
        ends = [it.predict(np.zeros((2, 2)), np.full((2, 1), u)).mean[:, 0] for u in (-0.8, 0.8)]
        slopes[window] = (ends[1] - ends[0]) / 1.6
    np.testing.assert_allclose(slopes[12], 0.5, atol=0.02)
    assert (slopes[None] > 0.6).all()


def test_new_measurements_are_those_since_the_last_fit_also_where_others_are_forgotten():
    """With all of a batch's new rows from one round and a window of two, the third fit trains on the third round most."""
    model = replace(ENSEMBLE, new_share=0.75, epochs=60)
    it = told(explorer(model, window=24), 1, 2)
    assert np.asarray(it.params.told).tolist() == [24, 24]
    it.tell(rounds(3))
    assert np.asarray(it.params.told).tolist() == [36, 36]

    def error(number):
        seen = rounds(number)
        return float(np.mean((it.predict(seen.states, seen.actions).mean - seen.next_states) ** 2))

    assert error(3) < error(2)


def test_nothing_is_compiled_again_as_the_window_moves():
    it, compiled = told(explorer(GP, window=24), 1, 2, 3), []
    listen = lambda event, _, **about: compiled.append(about.get("fun_name")) if "backend_compile" in event else None
    jax.monitoring.register_event_duration_secs_listener(listen)
    told(it, 4, 5)
    jax.monitoring.unregister_event_duration_listener(listen)
    assert compiled == []


def test_explorers_with_and_without_a_window_are_not_fitted_together():
    one, other = explorer(GP, window=24, capacity=24 * 2), explorer(GP, capacity=24)
    with pytest.raises(SondeError, match="window"):
        fit_together([Told.of(one, rounds(1)), Told.of(other, rounds(1))])


@pytest.mark.slow
def test_run_with_a_window_is_resumed_bit_for_bit_and_keeps_all_measurements(tmp_path):
    config = replace(TINY, evaluate_every=0, confidence=Confidence(window=18, holdout=0.2))
    whole = explore(config, tmp_path / "whole")
    it = restore_explorer(RunStore.open(tmp_path / "whole"), 2)
    it.tell(RunStore.open(tmp_path / "whole").load_data(3)[-1])
    for one, same in zip(jax.tree.leaves(it.params), jax.tree.leaves(whole.params), strict=True):
        np.testing.assert_array_equal(one, same)
    assert it.transitions == 36 and it.recent.capacity == 18


def test_window_must_be_a_whole_number():
    with pytest.raises(SondeError, match="window must be a whole number above 0, got 0"):
        replace(TINY, confidence=Confidence(window=0))
    with pytest.raises(SondeError, match="window"):
        explorer(GP, window=-1)


def test_memory_of_a_fit_is_that_of_the_window():
    config = replace(TINY, rounds=1000, horizon=100, model=replace(TINY.model, rank=0))
    need = lambda window: memory_need(replace(config, confidence=Confidence(window=window))).bytes
    assert need(1000) < need(None) / 100


@pytest.mark.slow
def test_experiment_with_a_window_and_without_resets_goes_on_after_an_interruption(tmp_path):
    """The system is another one in the third round, which the alarm and the run's last line say."""
    world = OwnSystem(states=("a", "b"), actions=("u",))
    config = replace(TINY, world=world, model=GP, reset=False, confidence=Confidence(window=24)).with_method("random")

    def measured(number):
        given = replace(rounds(number, seeds=1), planned_information=None)
        return replace(given, next_states=given.states + (1.0 if number < 3 else 0.2) * given.actions)

    with Experiment(tmp_path / "run", config) as experiment:
        for number in (1, 2):
            experiment.ask()
            experiment.tell(measured(number))
    with Experiment(tmp_path / "run", config) as experiment:
        (row,) = experiment.tell(measured(3))
        assert int(experiment.explorer.recent.count[0]) == 24 and experiment.explorer.transitions == 36
    assert row["drift"] > CHANGED
    assert "changed in round 3" in str(how_it_ended(RunStore.open(tmp_path / "run")))
    expected = told(Explorer(METHODS["random"], GP, ICEM(), SPEC, capacity=36, confidence=config.confidence))
    for number in (1, 2, 3):
        expected.tell(measured(number))
    with Experiment(tmp_path / "run", config) as experiment:
        for one, same in zip(jax.tree.leaves(experiment.explorer.params), jax.tree.leaves(expected.params), strict=True):
            np.testing.assert_array_equal(one, same)
