"""Overconfidence that stalls exploration: the rank correlation behind it, the rule, and where it is said."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console
from scipy.stats import spearmanr

from sonde import METHODS, GaussianProcess, ProbabilisticEnsemble, RunConfig
from sonde.evaluation._metrics import prediction_errors, rank_correlation
from sonde.evaluation._stalling import stall_warning
from sonde.models import Posterior, Prediction
from sonde.runs._progress import ProgressDisplay
from sonde.runs._store import RunStore
from sonde.runs._summary import how_it_ended
from sonde.runs.figures._curves import _warnings, grouped

LEARNED, FIXED = ProbabilisticEnsemble(), ProbabilisticEnsemble(noise="fixed")


def test_rank_correlation_is_spearmans():
    rng = np.random.default_rng(0)
    one = rng.normal(size=200)
    for other in (rng.normal(size=200), one**3 + 0.5 * rng.normal(size=200), np.round(one), -np.exp(one)):
        assert rank_correlation(one, other) == pytest.approx(spearmanr(one, other).statistic, abs=1e-12)
    assert np.isnan(rank_correlation(one, np.ones(200)))


class Varying(Posterior):
    """Predicts that nothing changes, with an epistemic std that is the first action, and little noise."""

    sign: jax.Array

    def predict(self, x, u):
        return Prediction(x, jnp.full_like(x, 1.5 + self.sign * u[0]), jnp.full_like(x, 0.01))


def test_errors_are_compared_with_information_gains(x64):
    """Errors grow with the first action: one seed's epistemic std does so too, and the other's falls. The second state changes
    a thousand times as much as the first, which must not matter, and in the same way; the third never does."""
    rng = np.random.default_rng(0)
    states, actions = rng.normal(size=(2, 50, 3)), rng.uniform(-1, 1, (2, 50, 1))
    change = (2 + actions) * np.sign(rng.normal(size=(2, 50, 3))) * [1.0, 1000.0, 0.0]
    posterior = Varying(jnp.array([1.0, -1.0]))
    found = prediction_errors(posterior, states, actions, states + change)["information_rank"]
    np.testing.assert_allclose(found, [1.0, -1.0], atol=1e-12)


def rows(*seeds, number=3):
    return [{"seed": n, "round": number, "overconfidence": c, "information_rank": r} for n, (c, r) in enumerate(seeds)]


STALLED, FINE = (4.0, -0.3), (1.5, 0.13)


@pytest.mark.parametrize(
    "seeds, said",
    [
        ([STALLED], True),
        ([FINE], False),
        ([(4.0, 0.2)], False),  # too certain, but it knows where
        ([(1.2, -0.3)], False),  # errors are as promised: nothing is hidden
        ([(None, None)], False),
        ([(4.0, None)], False),
        ([STALLED, STALLED, FINE], True),
        ([STALLED, FINE], False),  # not most of the seeds
    ],
)
def test_exploration_stalls_where_the_model_is_too_certain_and_errs_where_it_promises_little(seeds, said):
    assert (stall_warning(rows(*seeds), METHODS["opax"], LEARNED) is not None) == said


def test_sentence_has_the_numbers_and_what_to_change():
    sentence = stall_warning(rows(STALLED, (6.0, -0.5), FINE), METHODS["opax"], LEARNED)
    assert sentence is not None and sentence.startswith(
        "Exploration stalls after round 3: on its new data the model erred 5.0 times"
    )
    assert "(rank correlation -0.40) in 2 of 3 seeds; if the system has no noise" in sentence
    assert "--model.noise fixed --model.noise-std 0.01" in sentence
    for model, advice in ((FIXED, "train the model longer"), (GaussianProcess(), "--recalibrate")):
        assert advice in str(stall_warning(rows(STALLED), METHODS["opax"], model))


@pytest.mark.parametrize("method", ["random", "h-ucrl", "sombrl", "opax-task"])
def test_methods_that_do_not_seek_information_do_not_stall(method):
    assert stall_warning(rows(STALLED), METHODS[method], LEARNED) is None


@pytest.mark.parametrize("seeds", [[STALLED], [FINE]])
def test_progress_report_and_figure_say_it(tmp_path, seeds):
    config = replace(RunConfig(), model=FIXED, rounds=3)
    store = RunStore.create(tmp_path / "run", config)
    store.load_metrics = lambda: [*rows(FINE, number=1), *rows(*seeds)]
    sentence = stall_warning(rows(*seeds), config.method, config.model)
    assert how_it_ended(store) == sentence

    console = Console(record=True, width=1000, force_terminal=False)
    display = ProgressDisplay(console)
    display.on_run_start(config, [])
    display.on_phase(3, "plan", "")
    display.on_round_end(3, rows(*seeds))
    display.on_run_end()
    assert (str(sentence) in console.export_text()) == (sentence is not None)

    drawn = " ".join(_warnings(grouped([store], lambda each: each.load_metrics())))
    assert drawn == (f"opax (1 seed): {sentence}" if sentence else "")
