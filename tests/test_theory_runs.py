"""Theory in runs: what is noted after each episode, that uncertainty only shrinks, the figure, and `sonde analyse`."""

import json
from dataclasses import replace

import numpy as np
import pytest

from command_line import call
from sonde import (
    ICEM,
    Explorer,
    GaussianProcess,
    OwnSystem,
    Pendulum,
    ProbabilisticEnsemble,
    RunConfig,
    Trajectory,
    preset,
)
from sonde._internal.errors import SondeError
from sonde._internal.lockstep import one_seed
from sonde.evaluation._decay import fit_decay
from sonde.models._prior import Prior
from sonde.runs._analysis import refitted
from sonde.runs._presets import FIXED_GP
from sonde.runs._run import restore_explorer, run
from sonde.runs._store import RunStore
from sonde.runs._theory_metrics import theory_metrics
from sonde.runs.figures._curves import draw_theory
from sonde.runs.figures._theory import theory_figure
from sonde.theory import (
    bound_exponent,
    exact_information_gain,
    greedy_information,
    information_exponent,
    information_growth,
    theorem_bound,
)
from tiny import TINY


def done(folder, config: RunConfig) -> RunStore:
    store = RunStore.create(folder, config)
    run(store, lambda *_: None)
    return store


@pytest.fixture(scope="module")
def fixed(tmp_path_factory) -> RunStore:
    """Ten seeds, the exact posterior, a given norm; planned for information."""
    model = replace(FIXED_GP, rank=0)
    config = replace(TINY, model=model, seeds=10, rounds=5, horizon=15, evaluate_every=0, norm_bound=2.0, delta=0.2)
    return done(tmp_path_factory.mktemp("theory") / "run", config)


@pytest.fixture(scope="module")
def learned(tmp_path_factory) -> RunStore:
    """Two seeds that learn their hyper-parameters."""
    config = replace(TINY, method="random", seeds=2, rounds=1, horizon=20, evaluate_every=0)
    return done(tmp_path_factory.mktemp("learned") / "run", config)


def column(store: RunStore, key: str) -> np.ndarray:
    """A metric as [seeds, episodes]."""
    rows, config = store.load_metrics(), store.config
    return np.array([[r[key] for r in rows if r["seed"] == seed] for seed in config.seed_list])


def test_uncertainty_never_grows_when_nothing_is_fitted(fixed):
    for key in ("max_epistemic", "theory/uncertainty"):
        values = column(fixed, key)
        assert (np.diff(values, axis=1) <= 1e-9 * values[:, :-1]).all(), key
        assert (values[:, -1] < 0.98 * values[:, 0]).all(), key
    # the left-hand side of Theorem 2 is the same posterior's
    np.testing.assert_allclose(column(fixed, "theory/uncertainty"), 0.5 * column(fixed, "max_epistemic") ** 2, rtol=1e-6)


def test_what_a_run_notes_is_what_theory_says(fixed):
    explorer, config = restore_explorer(fixed, 5), fixed.config
    reachable = np.concatenate(Pendulum().reachable()[:2], axis=1)
    for seed in (0, 7):
        prior = Prior.of(one_seed(explorer.posterior, seed))
        points = np.concatenate([explorer.data.states[seed], explorer.data.actions[seed]], axis=-1)
        information, gamma = exact_information_gain(prior, points), greedy_information(prior, reachable, 75)[-1]
        beta = 2.0 + np.sqrt(2 * (information + 1 + np.log(3 / 0.2))).max()
        np.testing.assert_allclose(column(fixed, "theory/information_gain")[seed, -1], information.sum(), rtol=1e-8)
        np.testing.assert_allclose(column(fixed, "theory/gamma")[seed, -1], gamma.sum(), rtol=1e-8)
        np.testing.assert_allclose(column(fixed, "theory/beta")[seed, -1], beta, rtol=1e-8)
        bound = beta * config.horizon**1.5 * np.sqrt(gamma[0] / 5)
        np.testing.assert_allclose(column(fixed, "theory/bound")[seed, -1], bound, rtol=1e-8)
    information, gamma = column(fixed, "theory/information_gain"), column(fixed, "theory/gamma")
    assert (np.diff(information, axis=1) > 0).all() and (np.diff(column(fixed, "theory/beta"), axis=1) > 0).all()
    # the chain rule and Lemma 1, over whole episodes
    assert (information <= np.cumsum(column(fixed, "realised_information_gain"), axis=1) * (1 + 1e-9)).all()
    assert (information < gamma).all()


def test_the_figure_shows_the_metrics(fixed, tmp_path):
    assert draw_theory(fixed, tmp_path / "theory.png") and (tmp_path / "theory.png").stat().st_size > 10_000
    uncertainty, information, beta = theory_figure(fixed.load_metrics(), "rbf", 4).axes
    line = lambda ax, word: next(line for line in ax.get_lines() if word in str(line.get_label()))
    measured = column(fixed, "theory/uncertainty").mean(axis=0)
    np.testing.assert_allclose(line(uncertainty, "measured").get_ydata(), measured)
    bound = np.asarray(line(uncertainty, "bound").get_ydata())
    assert (bound >= measured * (1 - 1e-12)).all() and np.isclose(bound, measured).any(), "it touches, and holds"
    exponent = fit_decay(range(1, 6), measured).exponent
    assert f"{exponent:.2f}" in str(line(uncertainty, "fitted").get_label())
    np.testing.assert_allclose(line(information, "told").get_ydata(), column(fixed, "theory/information_gain").mean(axis=0))
    np.testing.assert_allclose(line(beta, "theory").get_ydata(), column(fixed, "theory/beta").mean(axis=0))


def test_only_what_keeps_its_prior_has_theory(learned, tmp_path):
    recalibrate = replace(learned.config, model=FIXED_GP, holdout=0.3, recalibrate=True)
    for store in (learned, done(tmp_path / "calibrated", recalibrate)):
        assert not any(key.startswith("theory/") for row in store.load_metrics() for key in row)
        assert not draw_theory(store, tmp_path / "theory.png")


def test_where_nobody_knows_what_can_be_reached_there_is_no_bound():
    config = RunConfig(world=OwnSystem(states=("a",), actions=("u",)), model=GaussianProcess(hyperparameters="fixed"))
    explorer = Explorer("random", config.model, ICEM(), state_dim=1, action_dim=1, capacity=6)
    rng = np.random.default_rng(0)
    explorer.tell(Trajectory(rng.normal(size=(4, 1)), np.zeros((4, 1)), rng.normal(size=(4, 1))))
    assert theory_metrics(explorer, config).keys() == {"theory/information_gain", "theory/beta"}


def test_the_preset_is_the_setting_of_the_theory():
    config = preset("pendulum-gp-theory")
    assert isinstance(config.model, GaussianProcess) and config.model.hyperparameters == "fixed" and not config.recalibrate


# ---- rates -------------------------------------------------------------------------------------------------------------------


def test_rates_of_the_papers_table():
    n = np.array([10.0, 1000.0])
    np.testing.assert_allclose(information_growth("linear", n, 4), 4 * np.log(n))
    np.testing.assert_allclose(information_growth("rbf", n, 4), np.log(n) ** 5)
    np.testing.assert_allclose(information_growth("matern52", n, 4), n ** (4 / 9) * np.log(n) ** (5 / 9))
    np.testing.assert_allclose(information_growth("matern32", n, 2), n ** (2 / 5) * np.log(n) ** (3 / 5))
    assert information_exponent("rbf", 9) == 0 and information_exponent("matern32", 2) == 0.4
    assert bound_exponent("rbf", 4) == -0.5 and bound_exponent("matern52", 4) == pytest.approx(4 / 9 - 0.5)
    assert bound_exponent("matern32", 4) > 0, "nothing is promised"
    assert bound_exponent("matern32", 4, constant_beta=True) == pytest.approx(2 / 7 - 0.5)
    assert theorem_bound(3.0, 4, 2.0, 8) == 3 * 8 * 0.5
    with pytest.raises(SondeError, match="unknown kernel"):
        information_growth("cubic", n, 4)


def test_a_decay_is_fitted_on_logarithmic_axes():
    n = np.arange(1, 21)
    exact = fit_decay(n, 3 * n**-0.7)
    np.testing.assert_allclose(exact, [-0.7, 3.0, 0.0], atol=1e-9)
    rng = np.random.default_rng(0)
    fits = [fit_decay(n, 3 * n**-0.7 * np.exp(0.2 * rng.normal(size=20))) for _ in range(400)]
    np.testing.assert_allclose(np.std([fit.exponent for fit in fits]), np.mean([fit.error for fit in fits]), rtol=0.1)
    for wrong in ([1.0, 0.0, 2.0], [1.0, 2.0]):
        with pytest.raises(SondeError, match="positive values of three or more episodes"):
            fit_decay(range(1, len(wrong) + 1), wrong)


# ---- the command line --------------------------------------------------------------------------------------------------------


def test_analyse_prints_and_writes(fixed, monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("COLUMNS", "200")
    out = tmp_path / "found.json"
    assert call(monkeypatch, "analyse", str(fixed.folder), "--truth", "--theory", "--seed", "3", "--out", str(out)) == 0
    printed, found = capsys.readouterr().out, json.loads(out.read_text())
    assert "Equilibria of the true system at action 0" in printed and "0.9813" in printed and "Greedy maximum" in printed
    assert found["seed"] == 3 and found["transitions"] == 75 and found["coordinates"] == ["th", "thdot"]
    assert found["truth"][0]["state"] == pytest.approx([-1, 0, 0], abs=1e-6) and found["sensitivity"]["steps"] == 15
    assert found["theory"]["beta"] == pytest.approx([column(fixed, "theory/beta")[3, -1]] * 3)
    assert sum(found["theory"]["gamma"]) == pytest.approx(column(fixed, "theory/gamma")[3, -1])


def test_analyse_says_what_was_fitted_anew(learned, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")
    assert call(monkeypatch, "analyse", str(learned.folder), "--seed", "1", "--refit", "--theory") == 0
    printed = capsys.readouterr().out
    assert "(seed 1, after 20 transitions, hyper-parameters fitted anew)" in printed
    assert "Theory, for the hyper-parameters that the run itself had:\nInformation gain" in printed
    explorer = restore_explorer(learned, 1)
    np.testing.assert_allclose(refitted(explorer, 1).inputs.shift[:3], np.asarray(explorer.data.states[1]).mean(axis=0))


def test_analyse_refuses_what_it_cannot_do(fixed, monkeypatch, capsys, tmp_path):
    RunStore.create(tmp_path / "new", TINY)
    small = ProbabilisticEnsemble(members=2, layers=1, width=4, epochs=1)
    ensemble = done(tmp_path / "pe", replace(TINY, model=small, method="random", rounds=1, evaluate_every=0))
    for args, message in [
        (["nowhere"], "nowhere is not the folder of a run"),
        ([str(tmp_path / "new")], "no finished episode yet"),
        ([str(fixed.folder), "--seed", "11"], "has no seed 11; it has 0, 1, 2"),
        ([str(fixed.folder), "--out", "found.txt"], "end its name in .json"),
        ([str(fixed.folder), "--action", "0", "0"], "action must be 1 numbers in [-1, 1], got [0.0, 0.0]"),
        ([str(fixed.folder), "--refit"], "only Gaussian processes with learned hyper-parameters can be fitted anew"),
        ([str(ensemble.folder), "--theory"], "exist for Gaussian processes that are not recalibrated, got EnsemblePosterior"),
    ]:
        assert call(monkeypatch, "analyse", *args) == 2, args
        assert message in "".join(capsys.readouterr()), args
    assert call(monkeypatch, "analyse", str(ensemble.folder)) == 0
