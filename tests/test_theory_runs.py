"""Theory in runs: metrics after each round, uncertainty that only shrinks, the figure, and `sonde analyse`."""

import json
from dataclasses import dataclass, replace

import numpy as np
import pytest

from command_line import call
from sonde import (
    ICEM,
    METHODS,
    Confidence,
    Explorer,
    GaussianProcess,
    OwnSystem,
    ProbabilisticEnsemble,
    RunConfig,
    SondeError,
    Trajectory,
    preset,
)
from sonde._internal.lockstep import one_seed
from sonde.control import LinearFeedback
from sonde.evaluation import fit_power_law
from sonde.models import RBF, Kernel, Linear, Matern32, Matern52, Prior, RKHSBeta
from sonde.runs._analysis import refitted
from sonde.runs._presets import FIXED_GP
from sonde.runs._run import restore_explorer, run
from sonde.runs._store import RunStore
from sonde.runs._theory_metrics import theory_metrics
from sonde.runs.figures import draw_theory
from sonde.runs.figures._theory import theory_figure
from sonde.theory import (
    bound_exponent,
    exact_information_gain,
    greedy_information,
    information_exponent,
    information_growth,
    theorem_bound,
)
from sonde.worlds import Pendulum
from tiny import TINY


def done(folder, config: RunConfig) -> RunStore:
    store = RunStore.create(folder, config)
    run(store)
    return store


@pytest.fixture(scope="module")
def fixed(tmp_path_factory) -> RunStore:
    """Ten seeds that explore with the exact posterior and a given norm bound."""
    model = replace(FIXED_GP, rank=0)
    config = replace(TINY, model=model, seeds=10, rounds=5, horizon=15, evaluate_every=0)
    config = replace(config, confidence=Confidence(beta_rule=RKHSBeta(delta=0.2, norm_bound=2.0)))
    return done(tmp_path_factory.mktemp("theory") / "run", config)


@pytest.fixture(scope="module")
def learned(tmp_path_factory) -> RunStore:
    """Two seeds that learn their hyper-parameters."""
    config = replace(TINY, method=METHODS["random"], seeds=2, evaluate_every=0)
    return done(tmp_path_factory.mktemp("learned") / "run", config)


def column(store: RunStore, key: str) -> np.ndarray:
    """A metric as [seeds, rounds]."""
    rows, config = store.load_metrics(), store.config
    return np.array([[r[key] for r in rows if r["seed"] == seed] for seed in config.seed_list])


@pytest.mark.slow
def test_uncertainty_never_grows_with_fixed_hyper_parameters(fixed):
    for key in ("max_epistemic", "theory/uncertainty"):
        values = column(fixed, key)
        assert (np.diff(values, axis=1) <= 1e-9 * values[:, :-1]).all(), key
        assert (values[:, -1] < 0.98 * values[:, 0]).all(), key
    # the left-hand side of Theorem 2 is the same posterior's
    np.testing.assert_allclose(column(fixed, "theory/uncertainty"), 0.5 * column(fixed, "max_epistemic") ** 2, rtol=1e-6)


@pytest.mark.slow
def test_metrics_of_a_run_are_the_quantities_of_the_theory(fixed):
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
    assert all(config.schema.spec(key).meaning for row in fixed.load_metrics() for key in row), "every metric is in the schema"
    information, gamma = column(fixed, "theory/information_gain"), column(fixed, "theory/gamma")
    assert (np.diff(information, axis=1) > 0).all() and (np.diff(column(fixed, "theory/beta"), axis=1) > 0).all()
    # the chain rule and Lemma 1, over whole rounds
    assert (information <= np.cumsum(column(fixed, "realised_information_gain"), axis=1) * (1 + 1e-9)).all()
    assert (information < gamma).all()


def test_figure_shows_the_metrics(fixed, tmp_path):
    assert draw_theory(fixed, tmp_path / "theory.png") and (tmp_path / "theory.png").stat().st_size > 10_000
    uncertainty, information, beta = theory_figure(fixed.load_metrics(), RBF(), 4).axes
    line = lambda ax, word: next(line for line in ax.get_lines() if word in str(line.get_label()))
    measured = column(fixed, "theory/uncertainty").mean(axis=0)
    np.testing.assert_allclose(line(uncertainty, "measured").get_ydata(), measured)
    bound = np.asarray(line(uncertainty, "bound").get_ydata())
    assert (bound >= measured * (1 - 1e-12)).all() and np.isclose(bound, measured).any(), "the bound holds, and touches"
    exponent = fit_power_law(range(1, 6), measured).exponent
    assert f"{exponent:.2f}" in str(line(uncertainty, "fitted").get_label())
    np.testing.assert_allclose(line(information, "gained").get_ydata(), column(fixed, "theory/information_gain").mean(axis=0))
    np.testing.assert_allclose(line(beta, "theory").get_ydata(), column(fixed, "theory/beta").mean(axis=0))


@pytest.mark.slow
def test_only_runs_that_keep_their_prior_have_theory_metrics(learned, tmp_path):
    recalibrated = replace(learned.config, model=FIXED_GP, confidence=Confidence(holdout=0.3, recalibrate=True))
    for store in (learned, done(tmp_path / "recalibrated", recalibrated)):
        assert not any(key.startswith("theory/") for row in store.load_metrics() for key in row)
        assert not draw_theory(store, tmp_path / "theory.png")


@pytest.mark.slow
def test_beta_is_that_of_the_exact_posterior_whatever_the_rank():
    """Also in the confidence region of an explorer, and where the norm is estimated."""
    rng = np.random.default_rng(0)
    states, found = rng.normal(size=(12, 1)), []
    for rank in (0, 2):
        model = replace(FIXED_GP, rank=rank, input_scales=(), target_scales=())
        config = RunConfig(model=model, world=OwnSystem(states=("x",), actions=("u",)))
        confidence = Confidence(beta_rule=RKHSBeta())
        explorer = Explorer(METHODS["random"], model, ICEM(), config.world.spec, capacity=14, confidence=confidence)
        explorer.tell(Trajectory(states, np.zeros((12, 1)), states + np.sin(3 * states)))
        found.append([theory_metrics(explorer, config)["theory/beta"], explorer.predict(states[0], np.zeros(1)).beta])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-9)
    np.testing.assert_allclose(found[0][0], found[0][1], rtol=1e-9)


@pytest.mark.slow
def test_without_a_reachable_set_there_is_no_bound():
    config = RunConfig(world=OwnSystem(states=("a",), actions=("u",)), model=GaussianProcess(hyperparameters="fixed"))
    explorer = Explorer(METHODS["random"], config.model, ICEM(), config.world.spec, capacity=6)
    rng = np.random.default_rng(0)
    explorer.tell(Trajectory(rng.normal(size=(4, 1)), np.zeros((4, 1)), rng.normal(size=(4, 1))))
    assert theory_metrics(explorer, config).keys() == {"theory/information_gain", "theory/beta"}


def test_preset_of_the_theory_keeps_its_prior():
    config = preset("pendulum-gp-theory")
    assert isinstance(config.model, GaussianProcess) and config.model.hyperparameters == "fixed"
    assert not config.confidence.recalibrate


# ---- rates -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Unrated(Kernel):
    """A kernel whose information gain grows at a rate that is not known."""

    def cross(self, a, b):
        return RBF().cross(a, b)

    def diagonal(self, a):
        return RBF().diagonal(a)


def test_rates_are_those_of_the_paper():
    n = np.array([10.0, 1000.0])
    np.testing.assert_allclose(information_growth(Linear(), n, 4), 4 * np.log(n))
    np.testing.assert_allclose(information_growth(RBF(), n, 4), np.log(n) ** 5)
    np.testing.assert_allclose(information_growth(Matern52(), n, 4), n ** (4 / 9) * np.log(n) ** (5 / 9))
    np.testing.assert_allclose(information_growth(Matern32(), n, 2), n ** (2 / 5) * np.log(n) ** (3 / 5))
    assert information_exponent(RBF(), 9) == 0 and information_exponent(Matern32(), 2) == 0.4
    assert bound_exponent(RBF(), 4) == -0.5 and bound_exponent(Matern52(), 4) == pytest.approx(4 / 9 - 0.5)
    assert bound_exponent(Matern32(), 4) > 0, "no rate is promised"
    assert bound_exponent(Matern32(), 4, constant_beta=True) == pytest.approx(2 / 7 - 0.5)
    assert theorem_bound(3.0, 4, 2.0, 8) == 3 * 8 * 0.5
    with pytest.raises(SondeError, match="implement its information_exponent"):
        information_growth(Unrated(), n, 4)
    with pytest.raises(SondeError, match="implement its information_exponent"):
        bound_exponent(Unrated(), 4)


def test_fit_decay_recovers_exponent_and_error():
    n = np.arange(1, 21)
    exact = fit_power_law(n, 3 * n**-0.7)
    np.testing.assert_allclose(exact, [-0.7, 3.0, 0.0], atol=1e-9)
    rng = np.random.default_rng(0)
    fits = [fit_power_law(n, 3 * n**-0.7 * np.exp(0.2 * rng.normal(size=20))) for _ in range(400)]
    np.testing.assert_allclose(np.std([fit.exponent for fit in fits]), np.mean([fit.error for fit in fits]), rtol=0.1)
    for wrong in ([1.0, 0.0, 2.0], [1.0, 2.0]):
        with pytest.raises(SondeError, match="positive values of three or more rounds"):
            fit_power_law(range(1, len(wrong) + 1), wrong)


# ---- the command line --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_analyse_prints_and_writes_the_analysis(fixed, monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("COLUMNS", "200")
    out = tmp_path / "found.json"
    assert call(monkeypatch, "analyse", str(fixed.folder), "--truth", "--theory", "--seed", "3", "--out", str(out)) == 0
    printed, found = capsys.readouterr().out, json.loads(out.read_text())
    assert "Equilibria of the true system at action 0" in printed and "0.9813" in printed and "Greedy maximum" in printed
    assert found["seed"] == 3 and found["transitions"] == 75 and found["coordinates"] == ["th", "thdot"]
    assert found["truth"][0]["state"] == pytest.approx([-1, 0, 0], abs=1e-6) and found["sensitivity"]["steps"] == 15
    assert found["theory"]["beta"] == pytest.approx([column(fixed, "theory/beta")[3, -1]] * 3)
    assert sum(found["theory"]["gamma"]) == pytest.approx(column(fixed, "theory/gamma")[3, -1])


@pytest.mark.slow
def test_analyse_studies_any_point_within_80_columns_and_saves_a_gain(fixed, monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("COLUMNS", "80")
    out, gain, figure = tmp_path / "found.json", tmp_path / "gain.safetensors", tmp_path / "bode.png"
    point = ["--at", "th=3.1,thdot=0.2;torque=0.1", "--samples", "200", "--truth"]
    options = ["--robust", "0.5", "--weights", "th=1,thdot=0.1;torque=1", "--save-gain", str(gain)]
    more = ["--out", str(out), "--frequency-response", str(figure)]
    assert call(monkeypatch, "analyse", str(fixed.folder), *point, *options, *more) == 0
    printed, found = capsys.readouterr().out, json.loads(out.read_text())
    analysis = printed.split("Analysis:")[0]
    assert max(map(len, analysis.splitlines())) <= 80 and "In continuous time" in analysis and "gain K" in analysis
    assert found["at"]["action"] == [0.1] and found["at"]["point"] == pytest.approx([3.1, 0.2])
    assert np.shape(found["at"]["A"]) == np.shape(found["at"]["A_std"]) == (2, 2)
    true_drift = 0.05 * (0.2 + 0.05 * (15 * np.sin(3.1) + 6 * 0.1))  # a semi-implicit step
    assert found["truth"]["drift"][0] == pytest.approx(true_drift, abs=1e-9)
    assert found["at"]["continuous"]["dt"] == 0.05 and figure.stat().st_size > 10_000
    saved, said = LinearFeedback.load(gain), found["at"]["lqr"]
    np.testing.assert_allclose(saved.gain, said["feedback"]["gain"])
    assert said["promise"]["wanted"] == 0.5 and said["promise"]["systems"] == 120
    assert call(monkeypatch, "analyse", str(fixed.folder), "--lqr", "--samples", "100") == 0
    assert max(map(len, capsys.readouterr().out.split("Along the last")[0].splitlines())) <= 80


@pytest.mark.slow
def test_analyse_reports_refitted_hyper_parameters(learned, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")
    assert call(monkeypatch, "analyse", str(learned.folder), "--seed", "1", "--refit", "--theory") == 0
    printed = capsys.readouterr().out
    assert "(seed 1, after 36 transitions, hyper-parameters refitted)" in printed
    assert "Theory, for the hyper-parameters of the run itself:\nInformation gain" in printed
    explorer = restore_explorer(learned, 3)
    np.testing.assert_allclose(refitted(explorer, 1).inputs.shift[:3], np.asarray(explorer.data.states[1]).mean(axis=0))


@pytest.mark.slow
def test_analyse_rejects_bad_input(fixed, monkeypatch, capsys, tmp_path):
    RunStore.create(tmp_path / "new", TINY)
    small = ProbabilisticEnsemble(members=2, layers=1, width=4, epochs=1)
    ensemble = done(tmp_path / "pe", replace(TINY, model=small, method=METHODS["random"], rounds=1, evaluate_every=0))
    for args, message in [
        (["nowhere"], "nowhere is not the folder of a run"),
        ([str(tmp_path / "new")], "no finished round yet"),
        ([str(fixed.folder), "--seed", "11"], "has no seed 11; it has 0, 1, 2"),
        ([str(fixed.folder), "--out", "found.txt"], "end its name in .json"),
        ([str(fixed.folder), "--save-gain", "gain.safetensors"], "add --lqr or --robust, and --at"),
        ([str(fixed.folder), "--frequency-response", "bode.png"], "responses are those of one point: add --at"),
        ([str(fixed.folder), "--at", "0,0", "--weights", "1,1;1"], "weights are those of a regulator: add --lqr"),
        ([str(fixed.folder), "--at", "0,0", "--robust", "95"], "the share must lie between 0 and 1, got 95"),
        ([str(fixed.folder), "--at", "0,0", "--dt", "0"], "expected seconds per step above 0, got 0"),
        ([str(fixed.folder), "--action", "0", "0"], "action must be 1 numbers in [-1, 1], got [0.0, 0.0]"),
        ([str(fixed.folder), "--refit"], "only Gaussian processes with learned hyper-parameters can be refitted"),
        ([str(ensemble.folder), "--theory"], "exist for Gaussian processes that are not recalibrated, got EnsemblePosterior"),
    ]:
        assert call(monkeypatch, "analyse", *args) == 2, args
        assert message in "".join(capsys.readouterr()), args
    assert call(monkeypatch, "analyse", str(ensemble.folder)) == 0
