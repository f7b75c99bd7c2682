"""Models that forget at the alarm of a change: each seed as if its run had begun with the round in which the alarm rang."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from command_line import call
from sonde import load
from sonde._internal.errors import SondeError
from sonde._internal.precision import double_precision
from sonde.data import Data, SystemSpec, Trajectory
from sonde.explorer import Explorer, Told, fit_together
from sonde.methods import METHODS
from sonde.models import Auto, Confidence, GaussianProcess, ProbabilisticEnsemble
from sonde.models._drift import CHANGED
from sonde.runs import Experiment
from sonde.runs._analysis import theory_of
from sonde.runs._store import RunStore
from sonde.runs._summary import how_it_ended
from sonde.solvers import ICEM
from sonde.worlds import OwnSystem
from tiny import TINY, TINY_LENGTHS, TINY_SOLVER

SPEC = SystemSpec.of_size(2, 1)
FORGETS = Confidence(forget_at_alarm=True)
STEPS = 24
GP = GaussianProcess(steps=3, rank=16)
# of two gradient steps: an ensemble that forgets takes as many steps as for all its measurements, and others than with fewer
ENSEMBLE = ProbabilisticEnsemble(members=2, width=8, layers=1, batch_size=8, max_steps=2, patience=0, noise="fixed")
CHANGES = 3, 4
"""The first round on the new system, for each seed."""


def measured(number, seeds=(0, 1), steps=STEPS):
    """A round of x' = x + a u with the slope a, which changes in another round for each seed."""
    rng = np.random.default_rng(number)
    states, actions = rng.uniform(-1, 1, (2, steps, 2)), rng.uniform(-1, 1, (2, steps, 1))
    slopes = np.array([1.0 if number < change else 0.2 for change in CHANGES])[:, None, None]
    part = list(seeds)
    return Trajectory(states[part], actions[part], (states + slopes * actions)[part])


def explorer(model=GP, confidence=FORGETS, seeds=(0, 1), capacity=6 * STEPS):
    return Explorer(METHODS["random"], model, ICEM(), SPEC, capacity=capacity, seeds=seeds, confidence=confidence)


def told(it, *numbers):
    for number in numbers:
        it.tell(measured(number, it.seeds))
    return it


@double_precision
def begun_with(round_number, model, seed, confidence):
    """An explorer of one seed whose run begins with a round."""
    it = explorer(model, confidence, (seed,))
    it.round = round_number - 1
    it.params = it._new_params()
    return it


def predicted(it, seed):
    """Predictions of one seed at some points."""
    queries = measured(9)
    found = it.predict(queries.states[list(it.seeds)], queries.actions[list(it.seeds)])
    return jax.tree.leaves(jax.tree.map(lambda leaf: leaf[it.seeds.index(seed)], found))


def same_params(one, other):
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one.params), jax.tree.leaves(other.params), strict=True))


def test_measurements_after_some_are_as_if_the_others_had_never_been():
    states = np.arange(12.0).reshape(2, 6, 1)
    data = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (2, *leaf.shape)), Data.empty(8, 1, 1))
    data = data.append(states, states, states + 1).after(np.array([0, 4]))
    np.testing.assert_array_equal(data.states[..., 0], [[0, 1, 2, 3, 4, 5, 0, 0], [10, 11, 0, 0, 0, 0, 0, 0]])
    np.testing.assert_array_equal(data.next_states[1, :, 0], [11, 12, 0, 0, 0, 0, 0, 0])
    assert data.count.tolist() == [6, 2] and data.forgotten is None
    latest = data.latest(3)
    np.testing.assert_array_equal(latest.states[..., 0], [[3, 4, 5], [10, 11, 0]])
    assert (latest.count.tolist(), latest.total.tolist()) == ([3, 2], [6, 2])


HELD_OUT = Confidence(forget_at_alarm=True, holdout=0.4, recalibrate=True)
BOTH = Confidence(forget_at_alarm=True, window=30)


@pytest.mark.parametrize(
    "model, confidence",
    [
        (GP, FORGETS),
        pytest.param(GP, HELD_OUT, marks=pytest.mark.slow),
        pytest.param(GP, BOTH, marks=pytest.mark.slow),
        pytest.param(replace(GP, rank=0), FORGETS, marks=pytest.mark.slow),
    ],
    ids=["gp", "held-out", "window", "exact"],
)
def test_each_seed_that_forgets_is_one_whose_run_begins_with_the_round_of_the_alarm(model, confidence):
    it = told(explorer(model, confidence), 1, 2, 3, 4, 5)
    assert it.forgotten.tolist() == [2 * STEPS, 3 * STEPS] and it.transitions == 5 * STEPS
    for seed, change in enumerate(CHANGES):
        other = told(begun_with(change, model, seed, replace(confidence, forget_at_alarm=False)), *range(change, 6))
        assert int(it.recent.count[seed]) == int(other.recent.count[0])
        for one, same in zip(predicted(it, seed), predicted(other, seed), strict=True):
            np.testing.assert_allclose(one, same, rtol=1e-5, atol=1e-9)  # two programs, which round differently
    slopes = [np.ptp(it.predict(np.zeros((2, 2)), np.full((2, 1), u)).mean) for u in (0.0, 0.5)]
    np.testing.assert_allclose(slopes, 0, atol=0.02)
    ends = [it.predict(np.zeros((2, 2)), np.full((2, 1), u)).mean[:, 0] for u in (-0.8, 0.8)]
    np.testing.assert_allclose((ends[1] - ends[0]) / 1.6, 0.2, atol=0.02)


def always_rings(monkeypatch, seed):
    """The alarm rings for one seed in each round."""
    rung = lambda errors, *_: np.where(np.arange(len(errors)) == seed, 2 * CHANGED, np.nan)
    monkeypatch.setattr("sonde.explorer.median_known_error", rung)


@pytest.mark.slow
@pytest.mark.parametrize("model", [ENSEMBLE, replace(ENSEMBLE, keep_optimiser_state=True, new_share=0.5)], ids=["plain", "all"])
def test_ensemble_that_forgets_starts_from_new_weights(model, monkeypatch):
    always_rings(monkeypatch, 1)
    it = told(explorer(model), 1, 2, 3)
    assert it.forgotten.tolist() == [0, 2 * STEPS]
    other = told(begun_with(3, model, 1, Confidence()), 3)
    for one, same in zip(predicted(it, 1), predicted(other, 1), strict=True):
        np.testing.assert_allclose(one, same, rtol=1e-4, atol=1e-6)
    kept = told(explorer(model, Confidence()), 1, 2, 3)
    for leaf, alone in zip(jax.tree.leaves(it.params), jax.tree.leaves(kept.params), strict=True):
        np.testing.assert_array_equal(leaf[0], alone[0])  # the other seed has not noticed
    assert not same_params(it, kept)


@pytest.mark.slow
def test_candidates_of_auto_start_over_with_their_comparison(monkeypatch):
    model = Auto((GP, ENSEMBLE))
    always_rings(monkeypatch, 1)
    it = told(explorer(model), 1, 2, 3)
    other = told(begun_with(3, model, 1, Confidence()), 3)
    np.testing.assert_allclose(np.asarray(it.params.errors)[1], np.asarray(other.params.errors)[0], rtol=1e-3)


def test_nothing_changes_while_no_alarm_rings():
    it, other = told(explorer(), 1, 2), told(explorer(confidence=Confidence()), 1, 2)
    assert same_params(it, other) and it.forgotten.tolist() == [0, 0]


def test_nothing_is_compiled_again_when_an_alarm_rings():
    compiled = []
    listen = lambda event, _, **about: compiled.append(about.get("fun_name")) if "backend_compile" in event else None
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        it = told(explorer(capacity=5 * STEPS), 1, 2)
        assert compiled, "no compilation is seen, also not that of the first rounds"
        compiled.clear()
        told(it, 3, 4, 5)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert compiled == [] and it.forgotten.tolist() == [2 * STEPS, 3 * STEPS]


@pytest.mark.parametrize("forgotten", [[5 * STEPS, 0], [-1, 0], [0], 3])
def test_what_cannot_have_been_forgotten_is_rejected(forgotten):
    it = told(explorer(), 1, 2)
    with pytest.raises(SondeError, match="for each of 2 seeds how many of its 48 measurements"):
        explorer().restore([measured(1), measured(2)], it.params, forgotten=np.asarray(forgotten))


def test_explorers_of_which_one_forgets_are_fitted_together_as_alone():
    both, alone = [[told(explorer(seeds=(seed,)), 1, 2) for seed in (0, 1)] for _ in range(2)]
    third = [Told.of(it, measured(3, it.seeds)) for it in both]
    for each, params in zip(third, fit_together(third), strict=True):
        each.learn(params)
    assert [it.forgotten.tolist() for it in both] == [[2 * STEPS], [0]]
    for one, other in zip(both, alone, strict=True):
        for found, same in zip(predicted(one, one.seeds[0]), predicted(told(other, 3), one.seeds[0]), strict=True):
            np.testing.assert_allclose(found, same, rtol=1e-5, atol=1e-9)


def test_initial_data_are_forgotten_too():
    it = explorer(seeds=(0,))
    before = measured(1, (0,))
    it.start_from(Trajectory(before.states[0], before.actions[0], before.next_states[0]))
    it.tell(measured(3, (0,)))
    assert it.forgotten.tolist() == [STEPS] and int(it.recent.count[0]) == STEPS


def test_theory_is_refused_for_a_run_that_may_forget():
    fixed = replace(GP, hyperparameters="fixed", affine_std=0.0)
    with pytest.raises(SondeError, match="forgets at the alarm; leave out --theory"):
        theory_of(told(explorer(fixed), 1), replace(TINY, model=fixed), 0)


@pytest.mark.slow
def test_experiment_that_forgot_goes_on_bit_for_bit_after_an_interruption(tmp_path):
    world = OwnSystem(states=("a", "b"), actions=("u",))
    config = replace(TINY, world=world, model=GP, rounds=5, horizon=STEPS, seeds=2, confidence=FORGETS).with_method("random")

    def run(folder, *parts):
        for numbers in parts:
            with Experiment(folder, config) as experiment:
                for number in numbers:
                    experiment.ask()
                    rows = experiment.tell(measured(number))
        return rows

    whole, parts = tmp_path / "whole", tmp_path / "parts"
    run(whole, (1, 2, 3, 4, 5))
    # a kill after the measurements of the fourth round are on disk, before they are learned from
    run(parts, (1, 2, 3))
    with Experiment(parts, config) as experiment:
        assert experiment.explorer.forgotten.tolist() == [2 * STEPS, 0]
        experiment._parts()[0].save_data(4, measured(4).checked(2, SPEC), {})
    rows = run(parts, (5,))
    assert [row["forgotten"] for row in rows] == [2 * STEPS, 3 * STEPS]
    one, other = load(whole), load(parts)
    assert same_params(one.explorer, other.explorer)
    for a, b in zip(jax.tree.leaves(one.explorer.posterior), jax.tree.leaves(other.explorer.posterior), strict=True):
        np.testing.assert_array_equal(a, b)
    assert one.explorer.recent.count.tolist() == [3 * STEPS, 2 * STEPS] == other.explorer.recent.count.tolist()
    assert [row["drift"] for row in one.metrics] == [row["drift"] for row in other.metrics]
    assert str(how_it_ended(RunStore.open(parts))).endswith("in 1 of 2 seeds; what was measured before is forgotten.")
    assert len(other.data.transitions(0).states) == 5 * STEPS  # on disk is everything


@pytest.mark.slow
def test_command_line_forgets_and_says_what_does_not_go_with_it(tmp_path, monkeypatch, capsys):
    folder = str(tmp_path / "run")
    options = ["pendulum-gp-theory", *TINY_LENGTHS, *TINY_SOLVER, "--evaluate-every", "0", "--out", folder]
    assert call(monkeypatch, "explore", *options, "--forget-at-alarm", "yes") == 2
    assert "yes" in capsys.readouterr().err and not (tmp_path / "run").exists()
    assert call(monkeypatch, "explore", *options, "--forget-at-alarm") == 0
    rows = RunStore.open(tmp_path / "run").load_metrics()
    assert [row["forgotten"] for row in rows] == [0, 0, 0]
    assert not any(key.startswith("theory/") for row in rows for key in row)
    capsys.readouterr()
    assert call(monkeypatch, "analyse", folder, "--theory") == 2
    assert "forgets at the alarm" in " ".join(capsys.readouterr().err.split())
