"""Stopping rules: a run stops at the first round below the tolerance and says why, however it was interrupted."""

import io
import math
import shutil
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

from control_problems import Linear
from experiments.scripts import stopping
from sonde import METHODS, SAC, Experiment, OwnSystem, ProbabilisticEnsemble, RunConfig, SondeError
from sonde.cli import _resume
from sonde.evaluation._metrics import prediction_errors
from sonde.runs import ProgressDisplay
from sonde.runs._codec import from_json, to_json
from sonde.runs._run import run
from sonde.runs._store import RunStore
from sonde.runs._summary import how_it_ended
from sonde.worlds import GymWorld
from test_own_system import CONFIG as OWN
from test_own_system import measured
from test_runs import contents, without_times
from tiny import TINY

ROUNDS = 5
BASE = replace(TINY, rounds=ROUNDS, seeds=2, evaluate_every=0)
QUANTITIES = ("uncertainty", "information")


def judged(row: dict, quantity: str) -> float:
    """What a rule compares with its tolerance in one seed; infinite where it is not known."""
    if quantity == "information":
        return row["planned_information_gain"]
    if row["overconfidence"] is None:
        return math.inf
    own = row["max_epistemic"] * max(1.0, row["overconfidence"])
    return max(own, 2 * row["max_epistemic_common"], row["prediction_error"])


def worst(rows: list[dict], quantity: str) -> list[float]:
    """Of each round, the largest over seeds."""
    return [max(judged(row, quantity) for row in rows if row["round"] == n) for n in range(1, rows[-1]["round"] + 1)]


@pytest.fixture(scope="module")
def endless(tmp_path_factory) -> RunStore:
    """The same run without a rule."""
    store = RunStore.create(tmp_path_factory.mktemp("stopping") / "endless", BASE)
    run(store)
    return store


def crossing(values: list[float]) -> tuple[float, int]:
    """A tolerance that the values fall below for the first time in the middle of the run, and when."""
    lowest = [min(values[: n + 1]) for n in range(ROUNDS)]
    when = next(n for n in range(1, ROUNDS - 1) if lowest[n] < lowest[n - 1])
    return (lowest[when] * 1.001 if math.isinf(lowest[when - 1]) else math.sqrt(lowest[when - 1] * lowest[when])), when + 1


@pytest.mark.slow
@pytest.mark.parametrize("quantity", QUANTITIES)
def test_run_stops_at_the_first_round_below_the_tolerance(endless, tmp_path, quantity):
    rows = endless.load_metrics()
    tolerance, when = crossing(worst(rows, quantity))
    store = RunStore.create(tmp_path / "run", replace(BASE, until=f"{quantity}<{tolerance!r}", evaluate_every=ROUNDS))
    run(store)
    stopped = store.load_metrics()
    assert stopped[-1]["round"] == when < ROUNDS
    shared = [{k: v for k, v in row.items() if k != "stopped" and "/" not in k} for row in stopped]
    assert shared == [{k: v for k, v in row.items() if "/" not in k} for row in rows if row["round"] <= when]
    reason = store.why_stopped()
    assert reason is not None and reason.startswith(f"Stopped after round {when} of at most {ROUNDS}: ")
    assert f"in the worst of 2 seeds, {'all below' if quantity == 'uncertainty' else 'below'} {tolerance:g}" in reason
    assert [row["round"] for row in stopped if "return/swing-up" in row] == [when, when], (
        "tasks are evaluated after the last round"
    )
    assert [row.get("stopped") for row in stopped[-2:]] == [reason, reason]


@pytest.mark.slow
def test_interrupted_run_stops_at_the_same_round(endless, tmp_path, capsys):
    tolerance, when = crossing(worst(endless.load_metrics(), "uncertainty"))
    whole = RunStore.create(tmp_path / "whole", replace(BASE, until=f"uncertainty<{tolerance!r}"))
    run(whole)
    shutil.copytree(whole.folder, tmp_path / "again")
    again = RunStore.open(tmp_path / "again")
    run(again, from_round=when - 1)
    assert contents(again.folder) == contents(whole.folder)
    assert without_times(again.load_metrics()) == without_times(whole.load_metrics())
    _resume.main([str(again.folder)])
    printed = capsys.readouterr().out
    assert "finished before" in printed and f"Stopped after round {when} of at most {ROUNDS}" in printed
    assert contents(again.folder) == contents(whole.folder)


@pytest.mark.slow
def test_tolerance_that_was_not_reached_is_reported(tmp_path):
    store = RunStore.create(tmp_path / "run", replace(BASE, rounds=1, until="uncertainty<1e-9"))
    run(store)
    value = 2 * max(row["max_epistemic_common"] for row in store.load_metrics())
    told = (
        "All 1 rounds are done, and uncertainty<1e-9 was not reached: twice the largest uncertainty under the common kernel is "
    )
    assert store.why_stopped() is None and how_it_ended(store) == f"{told}{value:.3g} in the worst of 2 seeds."


def after(uncertainty: float | None, error: float | None = 0.0, factor: float | None = 0.5, common: float = 0.0) -> dict:
    """Metrics of one seed after a round."""
    factor = None if error is None else factor
    own = {"max_epistemic": uncertainty, "max_epistemic_common": common}
    return {**own, "prediction_error": error, "overconfidence": factor}


def test_reported_value_is_not_rounded_across_the_tolerance():
    rule = RunConfig(until="uncertainty<0.05").stopping_rule
    reason = rule.why_stop([after(0.0499996, 0.0312), after(0.01, common=0.02)], 6, 20)
    assert (
        "is 0.0499996, twice the largest uncertainty under the common kernel is 0.04 and the round's predictions were off by "
        "0.0312 beyond noise in the worst of 2 seeds, all below 0.05." in reason
    )
    assert rule.why_stop([after(0.0241, factor=1.5)], 6, 20) == (
        "Stopped after round 6 of at most 20: the largest uncertainty, corrected for overconfidence, is 0.0362, twice the "
        "largest uncertainty under the common kernel is 0 and the round's predictions were off by 0 beyond noise, all below "
        "0.05."
    )
    assert rule.why_stop([after(0.05)], 6, 20) is None, "not below"
    assert rule.why_stop([after(0.01), after(None)], 6, 20) is None, "not known for all"


def test_rule_does_not_stop_while_predictions_are_wrong():
    """Metrics of seed 0 of pendulum-gp-lite: far too certain after its first round, as the second one shows."""
    course = [after(0.205, None), after(1.315, 0.538), after(0.586, 0.061), after(0.535, 0.004), after(0.336, 0.02)]
    stops = lambda text: [n for n, row in enumerate(course, 1) if RunConfig(until=text).stopping_rule.why_stop([row], n, 9)]
    assert stops("uncertainty<0.3") == [] and stops("uncertainty<0.6")[0] == 3 and stops("uncertainty<0.5")[0] == 5
    rule = RunConfig(until="uncertainty<0.3").stopping_rule
    assert rule.why_stop([after(0.2, 0.31)], 2, 9) is None, "certain, and wrong"
    assert rule.why_stop([after(0.2, 0.29)], 2, 9) is not None
    assert rule.why_stop([after(0.2, 0.1), after(0.2, 0.31)], 2, 9) is None, "one of two is wrong"


def test_rule_does_not_reward_ignorance():
    """Random actions on a pendulum that hangs: the model is certain and right there, and off by 0.45 in reach."""
    rule = RunConfig(until="uncertainty<0.3").stopping_rule
    assert rule.why_stop([after(0.224, 0.0, 0.24, common=0.35)], 4, 9) is None, "most of what can be reached was not visited"
    assert rule.why_stop([after(0.224, 0.0, 0.24, common=0.14)], 4, 9) is not None
    assert rule.why_stop([after(0.224, 0.1, 1.4, common=0.14)], 4, 9) is None, "1.4 times as wrong as it promised"
    assert rule.why_stop([after(0.224, 0.1, None, common=0.14)], 4, 9) is None, "promises that were never tested"


@pytest.mark.slow
def test_random_actions_do_not_stop_while_the_true_error_is_above_the_tolerance(tmp_path):
    """A pendulum that is pushed at random hangs near its rest: the model's own uncertainty is below its error in reach."""
    config = replace(TINY, rounds=4, horizon=40, method=METHODS["random"], evaluate_every=0, until="uncertainty<0.3")
    store = RunStore.create(tmp_path / "run", config)
    run(store)
    rows = store.load_metrics()
    told = lambda row: row["max_epistemic"] < 0.3 and (row["prediction_error"] or 1.0) < 0.3
    assert any(told(row) and row["model_rmse"] > 0.3 for row in rows), "the model's word alone would have stopped it"
    assert rows[-1]["round"] == 4 and store.why_stopped() is None


def test_script_that_measures_stops_tells_the_rule_from_the_models_word_alone(x64):
    rows = [{"round": n, **after(*row)} for n, row in enumerate([(0.2, None), (0.2, 0.1, 0.5, 0.3), (0.2, 0.1, 0.5, 0.1)], 1)]
    config = stopping.light(stopping.VanDerPol(), "random")
    assert stopping.stopped_before(rows, config, 0.3) == 1 and stopping.stops_now(rows, config, 0.3) == 2
    assert stopping.stops_now(rows, config, 0.05) is None is stopping.stopped_before(rows, config, 0.05)
    states, actions, next_states = stopping.VanDerPol().reachable()
    assert states.shape == next_states.shape == (2000, 2) and actions.shape == (2000, 1)
    np.testing.assert_allclose(next_states[:, 0] - states[:, 0], 0.1 * states[:, 1], atol=0.15)  # x' = x + h v, to first order


def test_overconfidence_is_the_error_over_the_promised_std(x64):
    """Promised: epistemic 0.3 and aleatoric 0.4, so 0.5 together; errors of one and of two such stds."""
    posterior = jax.tree.map(
        lambda leaf: jnp.stack([leaf, leaf]), Linear(jnp.eye(2), jnp.eye(2), jnp.array(0.3), jnp.array(0.4))
    )
    x, u = np.random.default_rng(0).normal(size=(2, 2, 4, 2))
    errors = np.stack([np.full((4, 2), 0.5), np.full((4, 2), -1.0)])
    found = prediction_errors(posterior, x, u, x + u + errors)
    np.testing.assert_allclose(found["overconfidence"], [1.0, 2.0])
    certain = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), Linear(jnp.eye(2), jnp.eye(2), jnp.array(0.0), jnp.array(0.0)))
    found = prediction_errors(certain, x, u, x + u + errors * [[[0.0]], [[1.0]]])
    assert found["overconfidence"].tolist() == [0.0, math.inf], "no error is no overconfidence"


def test_run_does_not_stop_before_a_learned_model_has_predicted_a_round(endless, tmp_path):
    rows = endless.load_metrics()
    assert [row["prediction_error"] is None for row in rows] == [row["round"] == 1 for row in rows]
    store = RunStore.create(tmp_path / "run", replace(BASE, until="uncertainty<1e9"))
    run(store)
    assert store.load_metrics()[-1]["round"] == 2 and "the round's predictions were off by" in store.why_stopped()


def test_prediction_error_counts_only_errors_beyond_the_noise(x64):
    """x' = x + u with a noise std of 0.1: errors up to 0.3 count as noise."""
    rng = np.random.default_rng(0)
    posterior = jax.tree.map(
        lambda leaf: jnp.stack([leaf, leaf]), Linear(jnp.eye(2), jnp.eye(2), jnp.array(0.5), jnp.array(0.1))
    )
    x, u = rng.normal(size=(2, 2, 4, 2))
    errors = np.zeros((2, 4, 2))
    errors[0] = rng.uniform(-0.3, 0.3, (4, 2))
    errors[1, 2] = 0.6, -0.7  # 0.3 and 0.4 beyond it, in one step of four
    np.testing.assert_allclose(prediction_errors(posterior, x, u, x + u + errors)["prediction_error"], [0, 0.5 / 2], atol=1e-12)


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_estimate_is_exact_for_powers_of_the_round(power):
    rule = RunConfig(until="uncertainty<0.048").stopping_rule
    first = next(n for n in range(1, 10_000) if n**-power < 0.048)
    for done in (3, 4):
        history = [(n, float(n**-power)) for n in range(1, done + 1)]
        left = max(1, first - done)
        assert rule.rounds_left(history) == left
        assert rule.outlook(history, 1000) == f"about {left} more round{'s' if left > 1 else ''} until uncertainty<0.048"
    assert rule.outlook([(n, 1 / n) for n in range(1, 5)], 6) == "at this rate uncertainty<0.048 is not reached by round 6"


@pytest.mark.parametrize("sure", [2, 4])
def test_estimate_ignores_rounds_before_the_highest_value(sure):
    """A model that is too certain at first, then falls as 1/n: below 0.048 at round 21."""
    rule = RunConfig(until="uncertainty<0.048").stopping_rule
    history = [(n, 0.001 if n <= sure else 1 / n) for n in range(1, sure + 4)]
    assert rule.rounds_left(history) == 21 - (sure + 3)
    assert rule.rounds_left(history[:-1]) is None, "two values are too few"
    assert math.isinf(rule.rounds_left(history[:-2])), "it has only risen"


def test_estimate_is_right_within_a_factor_of_two_for_a_staircase():
    """Falls as 1/sqrt(n), but only every fourth round, and is below 0.2 at round 28."""
    rule = RunConfig(until="uncertainty<0.2").stopping_rule
    stairs = [(n, (4 * (n // 4)) ** -0.5) for n in range(4, 29)]
    assert [n for n, value in stairs if value < 0.2] == [28]
    for done in range(6, len(stairs)):
        left = rule.rounds_left(stairs[:done])
        assert 0.5 <= (left + stairs[done - 1][0]) / 28 <= 2


def test_estimate_says_when_it_is_too_early_or_not_falling():
    rule = RunConfig(until="information<2").stopping_rule
    assert rule.outlook([], 10) == "too early to say when information<2"
    assert rule.outlook([(1, 9.0), (2, 5.0)], 10) == "too early to say when information<2"
    assert rule.outlook([(1, 5.0), (2, 6.0), (3, 7.0)], 10) == "not falling yet towards information<2"
    assert math.isinf(rule.rounds_left([(1, 5.0), (2, 5.0 - 1e-9), (3, 5.0 - 2e-9)]))
    assert math.isinf(rule.rounds_left([(1, 5.0), (2, 3.0), (3, 4.9), (4, 5.0)])), "fell, and rose again"
    assert rule.rounds_left([(1, 9.0), (2, 0.0), (3, 6.0)]) is None, "zero has no logarithm"


def test_progress_shows_how_many_more_rounds_are_expected():
    text = io.StringIO()
    config = replace(TINY, rounds=20, until="uncertainty<0.099")
    row = lambda n: {"seed": 0, "round": n, "transitions": 12 * n, **after(1 / n, 0.125, common=0.05)}
    progress = ProgressDisplay(Console(file=text, width=200))
    progress.on_run_start(config, [row(n) for n in (1, 2, 3)])
    progress.on_round_end(4, [row(4)])
    progress.on_run_end()
    printed = text.getvalue()
    assert "opax: until uncertainty<0.099, at most 20 rounds" in printed
    assert "uncertainty 0.2500, common kernel 0.0500, model error -" in printed
    assert "corrected uncertainty 0.25, twice the common kernel's 0.1, prediction error on new data 0.125" in printed
    assert "about 7 more rounds until uncertainty<0.099" in printed


@pytest.mark.parametrize("model", [TINY.model, ProbabilisticEnsemble()], ids=["gp", "ensemble"])
def test_progress_shows_the_models_uncertainty_beside_that_under_the_common_kernel(model):
    text = io.StringIO()
    row = {"seed": 0, "round": 1, "transitions": 12, "max_epistemic_common": 0.5, "max_epistemic": 0.25}
    progress = ProgressDisplay(Console(file=text, width=200))
    progress.on_run_start(replace(TINY, model=model), [])
    progress.on_round_end(1, [row])
    progress.on_run_end()
    assert ", uncertainty 0.2500, common kernel 0.5000, " in text.getvalue()


@pytest.mark.parametrize("until", ["soon", "uncertainty", "uncertainty<", "uncertainty<0", "information<nan", "information<=2"])
def test_text_that_is_not_a_rule_is_rejected(until):
    with pytest.raises(SondeError, match=r"expected 'uncertainty<NUMBER' or 'information<NUMBER'.*got"):
        RunConfig(until=until)


def test_rules_that_a_run_cannot_follow_are_rejected(tmp_path):
    with pytest.raises(SondeError, match="random actions have no planned information gain"):
        RunConfig(method=METHODS["random"], until="information<2")
    with pytest.raises(SondeError, match="the reachable set of a system of your own is not known"):
        replace(OWN, until="uncertainty<1")
    config = replace(TINY, world=GymWorld("Pendulum-v1", reachable_steps=0), evaluate_every=0, until="uncertainty<1")
    with pytest.raises(SondeError, match="expected a world whose reachable set is known, got GymWorld"):
        RunStore.create(tmp_path / "run", config)
    assert not (tmp_path / "run").exists()


def test_policy_that_does_not_plan_is_judged_by_what_it_visits():
    assert RunConfig(until="information<2").stopping_rule.quantity.key == "planned_information_gain"
    for config in (RunConfig(solver=SAC()), RunConfig(world=OwnSystem(states=("x",), actions=("u",)))):
        assert replace(config, until="information<2").stopping_rule.quantity.key == "realised_information_gain"


def test_rule_is_read_back_from_json():
    for until in ("uncertainty<0.05", None):
        config = replace(TINY, until=until)
        assert from_json(RunConfig, to_json(config), "here") == config


@pytest.mark.slow
def test_run_on_a_system_of_ones_own_stops_too(tmp_path):
    with Experiment(tmp_path / "endless", OWN) as experiment:
        gains = [experiment.tell(measured(n))[0]["realised_information_gain"] for n in (1, 2)]
    config = replace(OWN, until=f"information<{max(gains) * 1.01}")
    with Experiment(tmp_path / "run", config) as experiment:
        assert experiment.stopped is None and not experiment.finished
        experiment.tell(measured(1))
        assert experiment.finished and "information gain of its measurements is at most" in experiment.stopped
        with pytest.raises(SondeError, match=r"Stopped after round 1 of at most 3.*solve tasks"):
            experiment.ask()
    with Experiment(tmp_path / "run", config) as experiment:
        assert experiment.finished and experiment.round == 1
    assert np.isfinite(gains).all()
