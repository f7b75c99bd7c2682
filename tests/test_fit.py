"""A run from logs alone: the held-out part, errors against closed forms, and a folder that everything else can use."""

import csv
import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sonde
from command_line import call
from sonde import Experiment, GaussianProcess, OwnSystem, RunConfig, SondeError, Trajectory
from sonde._internal.past import NO_PAST, Past
from sonde.models import Posterior, Prediction
from sonde.runs import Judgement, fit
from sonde.runs._folder import RunFolder
from sonde.runs._judgement import AFFINE, BAND, MODEL, NOTHING, HeldOut, Judge, episode_begins, last_share
from sonde.runs._run import build_explorer
from sonde.runs._simulation import simulated
from sonde.solvers import ICEM

A, B = np.array([[1.0, 0.1], [-0.2, 0.9]]), np.array([[0.0], [0.1]])
SYSTEM = OwnSystem(states=("q", "v"), actions=("u",))


def episodes(count: int, steps: int, noise: float = 0.0, delay: int = 0) -> Trajectory:
    """Episodes [N, ...] of x' = A x + B u, whose actions act late."""
    rng, rows = np.random.default_rng(0), []
    for _ in range(count):
        x, u = rng.uniform(-1, 1, 2), np.concatenate([np.zeros((delay, 1)), rng.uniform(-1, 1, (steps, 1))])
        for t in range(steps):
            x_next = A @ x + B @ u[t] + noise * rng.normal(size=2)
            rows.append((x, u[t + delay], x_next))
            x = x_next
    return Trajectory(*map(np.array, zip(*rows, strict=True)))


def given(measured: Trajectory) -> HeldOut:
    return HeldOut(measured.states, measured.actions, measured.next_states)


class Exact(Posterior):
    """The linear system, with noise of a known std."""

    noise: float

    def predict(self, x, u):
        mean = jnp.asarray(A) @ x + jnp.asarray(B) @ u
        return Prediction(mean, jnp.zeros(2), jnp.full(2, self.noise))


# ---- the held-out part -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lengths", "share", "first", "words"),
    [
        ([10, 10, 10, 10, 10], 0.2, 40, "the last of 5 episodes"),
        ([10, 10, 10, 10, 10], 0.25, 30, "the last 2 of 5 episodes"),
        ([50], 0.2, 40, "20 % of the rows"),
        ([25, 25], 0.2, 40, "20 % of the rows"),
        ([5, 45], 0.2, 40, "20 % of the rows"),
        ([1] * 50, 0.1, 45, "the last 5 of 50 episodes"),
    ],
)
def test_whole_episodes_are_held_out_if_they_are_not_far_more_than_the_share(lengths, share, first, words):
    starts = np.concatenate([100 * number + np.arange(length) for number, length in enumerate(lengths)])[:, None] * 1.0
    measured = Trajectory(starts, 0 * starts, starts + 1)
    assert episode_begins(measured.states, measured.next_states).sum() == len(lengths)
    found, said = last_share(measured, share)
    assert found == first and words in said


@pytest.mark.parametrize("share", [0.0, 1.0, 1e-6, 0.999999, np.nan])
def test_share_that_leaves_nothing_is_rejected(share):
    with pytest.raises(SondeError, match="holdout must be a share"):
        last_share(episodes(1, 10), share)


# ---- errors ------------------------------------------------------------------------------------------------------------------


def test_windows_never_cross_the_end_of_an_episode():
    held = given(episodes(3, 10))
    starts = held.windows(8, 1000)
    np.testing.assert_array_equal(starts, [0, 1, 2, 10, 11, 12, 20, 21, 22])
    assert len(held.windows(8, 4)) == 4 and not len(held.windows(11, 10))


@pytest.mark.parametrize("past", [NO_PAST, Past(delay=2)], ids=["state", "delayed"])
def test_affine_least_squares_is_exact_on_a_linear_system(past):
    """Also where actions act late; predicting no change is off by what the system moves."""
    measured = episodes(6, 40, delay=past.delay)
    if past:
        ends = np.append(episode_begins(measured.states, measured.next_states)[1:], True)
        batched = [array[None] for array in (measured.states, measured.actions, measured.next_states)]
        full = Trajectory(*batched, truncated=ends[None]).with_past(past)
        measured = Trajectory(full.states[0], full.actions[0], full.next_states[0])
    known, hidden = given(measured), given(measured)
    judge = Judge(known, hidden, past, 20)
    found = judge.of_baselines()
    assert judge.steps == (1, 20) and (found[AFFINE] < 1e-9).all()
    rows = hidden.windows(20, 100)
    moved = (hidden.next_states[rows + 19] - hidden.states[rows]) / hidden.states.std(axis=0)
    np.testing.assert_allclose(found[NOTHING][1], np.sqrt((moved**2).mean(axis=0)))


def test_steps_are_those_of_the_longest_stretch_where_it_is_shorter():
    assert Judge(given(episodes(3, 10)), given(episodes(3, 10)), NO_PAST, 20).steps == (1, 10)
    alone = given(episodes(30, 1))
    assert Judge(alone, alone, NO_PAST, 20).steps == (1,)


def test_the_right_model_has_the_error_of_the_noise_and_covers_nine_tenths(x64):
    noise = 0.05
    known, hidden = given(episodes(2, 50, noise)), given(episodes(150, 21, noise))
    judge = Judge(known, hidden, NO_PAST, 20)
    errors, inside = judge.of_model(Exact(noise))
    np.testing.assert_allclose(errors[0], noise / known.states.std(axis=0), rtol=0.05)
    covariance = sum(np.linalg.matrix_power(A, k) @ np.linalg.matrix_power(A, k).T for k in range(20)) * noise**2
    # windows of one episode overlap, and the mean is that of 59 particles
    np.testing.assert_allclose(errors[1], np.sqrt(np.diag(covariance)) / known.states.std(axis=0), rtol=0.25)
    assert BAND == 0.9
    np.testing.assert_allclose(inside[0], 0.9, atol=0.02)
    np.testing.assert_allclose(inside[1], 0.9, atol=0.1)


def test_limits_of_a_band_are_those_of_the_normal_distribution(x64):
    """With many particles; their mean is the simulation without noise."""
    starts, actions = np.array([[0.5, 0.0], [-0.2, 0.3]]), np.full((2, 7, 1), 0.4)
    found = simulated(Exact(0.1), starts, actions, particles=1999, coverage=0.8)
    x, covariance = starts, np.zeros((2, 2))
    for t in range(7):
        x, covariance = x @ A.T + actions[:, t] @ B.T, A @ covariance @ A.T + 0.01 * np.eye(2)
        half = 1.2815515655446004 * np.sqrt(np.diag(covariance))
        np.testing.assert_allclose(found.mean[:, t], x, atol=0.15 * half.max())
        np.testing.assert_allclose(found.high[:, t] - x, np.broadcast_to(half, (2, 2)), rtol=0.15)
        np.testing.assert_allclose(x - found.low[:, t], np.broadcast_to(half, (2, 2)), rtol=0.15)


def test_simulations_that_leave_all_numbers_count_as_infinite_errors(x64):
    class Explodes(Exact):
        def predict(self, x, u):
            return Prediction(1e200 * (x + 1.0) ** 3, jnp.zeros(2), jnp.zeros(2))

    judge = Judge(given(episodes(2, 30)), given(episodes(2, 30)), NO_PAST, 20)
    errors, inside = judge.of_model(Explodes(0.0))
    assert np.isinf(errors[1]).all() and (inside[1] == 0).all()


# ---- the run -----------------------------------------------------------------------------------------------------------------

CONFIG = RunConfig(
    world=SYSTEM,
    model=GaussianProcess(hyperparameters="fixed", rank=0),
    solver=ICEM(samples=8, elites=3, iterations=1, horizon=3),
    rounds=2,
    horizon=5,
    evaluation_horizon=5,
)


def write_log(path, measured: Trajectory) -> None:
    begins = np.cumsum(episode_begins(measured.states, measured.next_states))
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["episode", "q", "v", "u", "next q", "next v"])
        for row in zip(begins, measured.states, measured.actions, measured.next_states, strict=True):
            writer.writerow([row[0], *(repr(float(x)) for part in row[1:] for x in part)])


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("logs") / "log.csv"
    write_log(path, episodes(5, 24))
    return path


@pytest.fixture(scope="module")
def config(log) -> RunConfig:
    return replace(CONFIG, data=str(log))


@pytest.fixture(scope="module")
def fitted(tmp_path_factory, config):
    return fit(config, tmp_path_factory.mktemp("runs") / "fitted", steps=10)


def test_run_is_judged_on_what_it_has_not_seen(fitted):
    judgement = fitted.judgement
    assert (judgement.fitted, judgement.held_out, judgement.steps) == (96, 24, (1, 10))
    assert judgement.split == "the last of 5 episodes" and judgement.final == "all measurements"
    assert (np.array(judgement.errors[AFFINE]) < 1e-9).all()
    assert (np.array(judgement.errors[MODEL][0]) < 0.3 * np.array(judgement.errors[NOTHING][0])).all()
    assert (fitted.folder / "figures" / "fit.png").stat().st_size > 10_000


def test_deviations_are_followed_along_the_last_episode_of_a_log(fitted):
    last = RunFolder.open(fitted.folder).load_last()
    np.testing.assert_array_equal(last.states[0], fitted.data.initial.states[96:])
    np.testing.assert_array_equal(last.next_states[0], fitted.data.initial.next_states[96:])


def test_checkpoint_holds_what_fitting_all_measurements_gives(fitted, config):
    """Bit for bit, as a run with the same initial data begins."""
    assert fitted.rounds == (0,) and fitted.round == 0 and fitted.data.rounds == ()
    explorer = build_explorer(config, fitted.data.initial)
    explorer.start_from(fitted.data.initial)
    x, u = np.array([0.3, -0.2]), np.array([0.5])
    one, other = fitted.explorer.predict(x, u), explorer.predict(x, u)
    np.testing.assert_array_equal(one.mean, other.mean)
    np.testing.assert_array_equal(one.epistemic_std, other.epistemic_std)
    np.testing.assert_allclose(one.mean, A @ x + B @ u, atol=0.02)


@pytest.mark.slow
def test_without_refit_the_model_never_sees_the_held_out_part(config, tmp_path):
    run = fit(config, tmp_path / "run", steps=10, refit=False)
    assert len(run.data.initial.states) == 96 and "without the held-out ones" in run.judgement.final
    assert run.explorer.transitions == 96


@pytest.mark.slow
def test_exploration_continues_a_fitted_run(config, tmp_path):
    run = fit(config, tmp_path / "run", steps=10)
    with Experiment(run.folder, run.config) as experiment:
        controller, x, rows = experiment.ask(), np.zeros(2), []
        for _ in range(5):
            u = controller(x)
            x_next = A @ x + B @ u
            rows.append((x, u, x_next))
            x = x_next
        experiment.tell(Trajectory(*map(np.array, zip(*rows, strict=True))))
    again = sonde.load(run.folder)
    assert again.rounds == (0, 1) and len(again.data.rounds) == 1 and again.judgement == run.judgement
    assert again.explorer.transitions == 125 and again.at(0).explorer.transitions == 120
    assert len(again.data.transitions().states) == 125
    np.testing.assert_array_equal(again.at(0).predict(x, u).mean, run.predict(x, u).mean)


@pytest.mark.slow
def test_past_belongs_to_the_state_in_judgement_and_run(tmp_path):
    write_log(tmp_path / "late.csv", episodes(5, 24, delay=1))
    run = fit(replace(CONFIG, data=str(tmp_path / "late.csv"), delay=1), tmp_path / "run", steps=10)
    assert (np.array(run.judgement.errors[AFFINE]) < 1e-9).all()
    found = run.simulate(np.zeros(2), np.array([[1.0], [0.0]]), past=np.array([-1.0]))
    np.testing.assert_allclose(found.mean[0], B[:, 0] * -1.0, atol=0.05)
    np.testing.assert_allclose(found.mean[1], A @ (B[:, 0] * -1.0) + B[:, 0], atol=0.05)


def test_nothing_is_kept_of_a_fit_that_cannot_be(config, tmp_path):
    for changed, options, message in (
        (replace(config, data=None), {}, "nothing to fit"),
        (config, {"holdout": 2.0}, "holdout must be a share"),
        (config, {"steps": 0}, "steps"),
    ):
        with pytest.raises(SondeError, match=message):
            fit(changed, tmp_path / "run", **options)
    assert not any(tmp_path.iterdir())


def test_damaged_judgement_is_rejected(fitted):
    text = (fitted.folder / "fit.json").read_text()
    assert Judgement.from_json(text, "fit.json") == fitted.judgement
    entries = json.loads(text)
    for wrong in ({**entries, "format": 9}, {**entries, "errors": 3}, {**entries, "steps": [1]}, [], {"format": 1}):
        with pytest.raises(SondeError, match="not the judgement of a fit"):
            Judgement.from_json(json.dumps(wrong), "fit.json")


# ---- the command line --------------------------------------------------------------------------------------------------------

FIXED = ["--model.hyperparameters", "fixed", "--model.rank", "0", "--steps", "10"]
OPTIONS = [*FIXED, "--rounds", "2", "--horizon", "5", "--evaluation-horizon", "5"]
PLANNER = ["--solver.samples", "8", "--solver.elites", "3", "--solver.iterations", "1", "--solver.horizon", "3"]
REWARD = "def stay(x, u, x_next):\n    return -(x_next[0] ** 2)\n"


@pytest.mark.slow
def test_command_fits_and_the_others_use_the_run(log, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    named = ("--states", "q", "v", "--actions", "u")
    assert call(monkeypatch, "fit", str(log), *named, "--dt", "0.1", "--out", "run", *OPTIONS, *PLANNER) == 0
    said = capsys.readouterr().out
    assert "the last of 5 episodes (24 transitions)" in said and "Simulated 10 steps ahead" in said
    assert call(monkeypatch, "analyse", "run", "--samples", "20") == 0
    assert call(monkeypatch, "analyse", "run", "--at", "0,0", "--samples", "20", "--out", "at.json") == 0
    point = json.loads((tmp_path / "at.json").read_text())["at"]
    assert point["continuous"]["dt"] == 0.1 and point["visited"]
    assert call(monkeypatch, "analyse", "run", "--out", "none/at.json") == 2
    assert "none does not exist; make it first" in capsys.readouterr().err
    assert call(monkeypatch, "report", "run", "--out", "report.html") == 0
    page = (tmp_path / "report.html").read_text()
    assert "120 measurements from logs were learned" in page and "Simulated 10 steps ahead" in page
    assert "data:image/png;base64" in page
    (tmp_path / "rewards.py").write_text(REWARD)
    evaluate = ("evaluate", "run", "--task", "rewards.py:stay")
    assert call(monkeypatch, *evaluate) == 0
    assert "on the model" in capsys.readouterr().out
    for refused, words in (("--oracle", "there is no oracle"), ("--robust", "needs a system to run the plans on")):
        assert call(monkeypatch, *evaluate, refused) == 2
        assert words in capsys.readouterr().err
    assert call(monkeypatch, "export", "run", "--out", "again.csv", "--initial-data") == 0
    assert call(monkeypatch, "export", "run", "--out", "other.csv") == 2
    assert "add --initial-data" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "name the logs first"),
        (("log.csv", "--states", "q", "v"), "--states and --actions belong together"),
        (("log.csv", "--system", "pendulum", "--states", "q"), "leave out --states"),
        (("log.csv", "--states", "q", "w", "--actions", "u"), "missing column"),
        (("none.csv", "--states", "q", "v", "--actions", "u"), "no such file"),
    ],
)
def test_command_says_what_is_missing(words, message, log, monkeypatch, capsys):
    monkeypatch.chdir(log.parent)
    assert call(monkeypatch, "fit", *words) == 2
    assert message in capsys.readouterr().err
    assert not (log.parent / "runs").exists()


def test_double_precision_is_not_left_on(fitted):
    fitted.predict(np.zeros(2), np.zeros(1))
    assert not jax.config.jax_enable_x64
