"""The alarm that a system has changed: errors where the model was certain, and nowhere else."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chi

from sonde.data import SystemSpec, Trajectory
from sonde.evaluation._drift import drift_warning, has_changed
from sonde.evaluation._metrics import prediction_errors
from sonde.explorer import Explorer
from sonde.methods import METHODS
from sonde.models import Confidence, GaussianProcess
from sonde.models._drift import CHANGED, FEWEST, median_known_error
from sonde.runs import RunConfig
from sonde.runs._store import RunStore
from sonde.runs._summary import how_it_ended
from sonde.runs.report._advice import warnings_of
from sonde.runs.report._subjects import opened, subjects
from sonde.solvers import ICEM

DIM = 3


def drawn(factor=1.0, known=50, unknown=50, seeds=4):
    """Errors that are `factor` times the promised stds where the model is certain, and 30 times elsewhere."""
    rng = np.random.default_rng(0)
    epistemic = np.concatenate([np.full((seeds, known, DIM), 0.05), np.full((seeds, unknown, DIM), 0.5)], axis=1)
    aleatoric = np.full_like(epistemic, 0.1)
    sizes = np.where(epistemic < aleatoric, factor, 30.0)
    return np.abs(rng.normal(size=epistemic.shape)) * np.hypot(epistemic, aleatoric) * sizes, epistemic, aleatoric


def test_errors_that_are_as_promised_have_the_median_of_the_chi_distribution():
    found = median_known_error(*drawn(known=4000))
    np.testing.assert_allclose(found, chi(DIM).median() / DIM**0.5, atol=0.03)


def test_errors_where_the_model_was_uncertain_do_not_count():
    assert (median_known_error(*drawn(1.0, known=10)) < CHANGED).all()
    assert (median_known_error(*drawn(5.0, known=10, unknown=500)) > CHANGED).all()
    assert np.isnan(median_known_error(*drawn(5.0, known=FEWEST - 1))).all()


def test_no_error_and_no_noise_are_no_change():
    nothing = np.zeros((1, 10, DIM))
    assert median_known_error(nothing, nothing, nothing) == 0
    assert np.isnan(median_known_error(nothing + 1, nothing + 1, nothing))  # without noise, nothing is known


def measured(slope, number, steps=40):
    rng = np.random.default_rng(number)
    states, actions = rng.uniform(-1, 1, (2, steps, 2)), rng.uniform(-1, 1, (2, steps, 1))
    noise = 0.01 * rng.normal(size=states.shape)
    return Trajectory(states, actions, states + np.sin(states) + slope * actions + noise)


@pytest.mark.parametrize("slope, changed", [(1.0, False), (0.5, True)])
def test_gaussian_process_tells_a_system_that_changed_from_one_that_did_not(slope, changed):
    it = Explorer(METHODS["random"], GaussianProcess(), ICEM(), SystemSpec.of_size(2, 1), capacity=200, seeds=(0, 1))
    for number in range(3):
        it.tell(measured(1.0, number))
    new = measured(slope, 9)
    found = prediction_errors(it.posterior, new.states, new.actions, new.next_states)["drift"]
    assert ((found > CHANGED) == changed).all() and np.isfinite(found).all()


def rows(number, *values):
    return [{"seed": seed, "round": number, "drift": value} for seed, value in enumerate(values)]


@pytest.mark.parametrize(
    "values, changed",
    [([9.0], True), ([0.5], False), ([None], False), ([9.0, 9.0, 0.5], True), ([9.0, 0.5], False), ([9.0, None], True)],
)
def test_most_of_the_seeds_that_can_tell_decide(values, changed):
    assert has_changed(rows(1, *values)) == changed


def test_sentence_names_the_round_of_the_change_and_what_to_do():
    history = [*rows(3, 0.2, 0.3), *rows(4, 14.0, 16.0), *rows(5, 3.0, None), *rows(6, 0.1, 0.1)]
    assert drift_warning(history, Confidence()) == (
        "The system seems to have changed in round 4, and in 1 later round: where the model was certain, it erred 15.0 times "
        "as much as it promised in 2 of 2 seeds; let the model forget what came before (--forget-at-alarm, or "
        "--window N), or start over."
    )
    assert "once 200 measurements were made after the change" in str(drift_warning(history, Confidence(window=200)))
    assert drift_warning(rows(3, 0.2, 0.3), Confidence()) is None


def test_sentence_of_a_run_that_forgets_speaks_of_every_seed_that_did():
    history = [*rows(3, 0.2, 0.3, None), *rows(4, 14.0, 0.3, 0.2), *rows(5, 0.3, 9.0, None)]
    assert drift_warning(history, Confidence(forget_at_alarm=True)) == (
        "The system seems to have changed in round 4, and in 1 later round: where the model was certain, it erred 14.0 times "
        "as much as it promised in 1 of 3 seeds; what was measured before is forgotten."
    )
    assert drift_warning(history, Confidence()) is None  # most seeds do not say so
    assert drift_warning(rows(3, 0.2, None), Confidence(forget_at_alarm=True)) is None


@pytest.mark.parametrize("value, said", [(9.0, True), (0.5, False)])
def test_summary_and_report_say_it(tmp_path, value, said, monkeypatch):
    config = replace(RunConfig(), rounds=3)
    history = [dict(row, transitions=100 * row["round"]) for number in (1, 2, 3) for row in rows(number, value)]
    store = RunStore.create(tmp_path / "run", config)
    monkeypatch.setattr(RunStore, "load_metrics", lambda self: history)
    assert how_it_ended(store) == drift_warning(history, Confidence())
    (subject,) = subjects([opened(tmp_path / "run")])
    assert any(finding.kind == "The system changed" for finding in warnings_of(subject)) == said
