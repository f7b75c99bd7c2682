"""Linear tools: operating points, regulators and what they promise, gain schedules, responses, python-control."""

import json
import subprocess
import sys
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from scipy import signal
from scipy.interpolate import RegularGridInterpolator
from scipy.linalg import solve_discrete_lyapunov
from scipy.optimize import minimize, minimize_scalar
from scipy.stats import binomtest, t

from sonde import SondeError, TrueDynamics
from sonde.analysis import (
    LearnedSystem,
    Linearisation,
    OperatingPoint,
    Promise,
    Weights,
    _plausible,
    frequency_response,
    gain_schedule,
    hold,
    lqr,
    robust_lqr,
    step_response,
    to_control,
)
from sonde.analysis._lqr import riccati
from sonde.analysis._plausible import Plausible, at_least, plausible, stabilised
from sonde.analysis._robust import robust_gain
from sonde.cli._linear_report import matrix, number, point_report, regulator_report
from sonde.control import GainSchedule, LinearFeedback
from sonde.runs._analysis import AnalysisRequest, _regulators
from sonde.runs._linear_tools import LinearRequest, described_point, numbers_in, place_in, weights_in
from sonde.worlds import JaxWorld, Pendulum

control = pytest.importorskip("control", reason="needs the extra control")

A, B = np.array([[1.04, 0.05], [0.75, 1.0]]), np.array([[0.015], [0.3]])
WEIGHTS = Weights.of([1.0, 0.2], [0.5])


def uncertain(A_std: float, B_std: float, count: int = 600, seed: int = 0) -> Linearisation:
    """The unstable system above, with independent normal errors."""
    rng = np.random.default_rng(seed)
    A_samples = A + A_std * rng.normal(size=(count, 2, 2))
    B_samples = B + B_std * rng.normal(size=(count, 2, 1))
    return Linearisation(A, B, A_samples.std(axis=0), B_samples.std(axis=0), A_samples, B_samples)


def place_of(linear: Linearisation) -> OperatingPoint:
    zeros = np.zeros(2)
    return OperatingPoint(zeros, zeros, np.zeros(1), zeros, zeros, linear)


@dataclass(frozen=True)
class Line(JaxWorld):
    """x' = M x + N u + c, unstable."""

    state_names = ("a", "b")
    action_names = ("u",)
    M, N, c = A, B, np.array([0.01, -0.02])

    def reset(self, key):
        return jnp.zeros(2)

    def dynamics(self, x, u):
        return self.M @ x + self.N @ u + self.c

    def step(self, x, u, key):
        return self.dynamics(x, u)

    def reachable_points(self):
        return np.zeros((1, 2)), np.zeros((1, 1))


@pytest.fixture(scope="module")
def line() -> LearnedSystem:
    return LearnedSystem(TrueDynamics(Line()), Line(), np.array([[-1.0, -2.0], [1.0, 2.0]]))


@pytest.fixture(scope="module")
def pendulum() -> LearnedSystem:
    angles = np.linspace(-np.pi, np.pi, 9)
    visited = np.stack([np.cos(angles), np.sin(angles), np.linspace(-4, 4, 9)], axis=-1)
    return LearnedSystem(TrueDynamics(Pendulum()), Pendulum(), visited)


UPRIGHT = np.array([1.0, 0.0, 0.0])


# ---- regulators --------------------------------------------------------------------------------------------------------------


def test_gain_is_that_of_python_control_and_of_value_iteration():
    gain, cost = riccati(A, B, WEIGHTS)
    expected, P, _ = control.dlqr(A, B, WEIGHTS.states, WEIGHTS.actions)
    np.testing.assert_allclose(gain, expected, rtol=1e-8)
    np.testing.assert_allclose(cost, P, rtol=1e-8)
    iterated = WEIGHTS.states
    for _ in range(2000):
        K = np.linalg.solve(WEIGHTS.actions + B.T @ iterated @ B, B.T @ iterated @ A)
        iterated = WEIGHTS.states + A.T @ iterated @ (A - B @ K)
    np.testing.assert_allclose(cost, iterated, rtol=1e-8)


def test_systems_that_no_gain_stabilises_are_refused():
    for A_wrong, weights in [(np.diag([1.1, 0.5]), WEIGHTS), (np.diag([1.1, 1.2]), WEIGHTS)]:
        with pytest.raises(SondeError, match="no gain stabilises the linearised system"):
            riccati(A_wrong, np.array([[0.0], [1.0]]), weights)
    with pytest.raises(SondeError, match="expected weights for 2 coordinates and 1 actions, got 3 and 1"):
        riccati(A, B, Weights.of([1, 1, 1], [1]))


@pytest.mark.parametrize("states, actions", [([1, -1], [1]), ([[1, 2], [0, 1]], [1]), ([1, 1], [0]), ([1, np.nan], [1])])
def test_weights_that_are_none_are_refused(states, actions):
    with pytest.raises(SondeError, match=r"lqr: the weights of (states|actions) must be a diagonal, or a symmetric"):
        Weights.of(states, actions)


def test_default_weights_follow_brysons_rule(line):
    weights = Weights.by_range(line)
    np.testing.assert_allclose(weights.states, np.diag([1.0, 0.25]))  # half ranges 1 and 2
    np.testing.assert_allclose(weights.actions, [[1.0]])


def test_regulator_away_from_an_equilibrium_holds_the_cheapest_one(line):
    """The system drifts at the origin; of all points that an action holds, the regulator's has the least weighted distance."""
    place = line.at(np.zeros(2))
    np.testing.assert_allclose(place.drift, Line.c)
    np.testing.assert_allclose(place.next_point, Line.c)
    regulator = lqr(line, place, WEIGHTS)
    rest = lambda u: np.linalg.solve(np.eye(2) - A, B[:, 0] * u + Line.c)
    price = lambda u: rest(u) @ WEIGHTS.states @ rest(u) + WEIGHTS.actions[0, 0] * u**2
    best = minimize_scalar(price, bounds=(-1, 1), method="bounded", options={"xatol": 1e-12}).x
    point, action = regulator.target
    np.testing.assert_allclose(action, [best], atol=1e-6)
    np.testing.assert_allclose(point, rest(best), atol=1e-6)
    feedback, x = regulator.feedback, np.array([0.05, -0.05])
    for _ in range(300):
        x = A @ x + B @ feedback(x) + Line.c
    np.testing.assert_allclose(x, point, atol=1e-9)


def test_cost_matrix_is_the_cost_of_a_simulation(line):
    regulator = lqr(line, line.at(np.zeros(2)), WEIGHTS)
    q = np.array([0.3, -0.2])
    expected, total = q @ regulator.cost @ q, 0.0
    for _ in range(400):
        u = -regulator.gain @ q
        total += q @ WEIGHTS.states @ q + u @ WEIGHTS.actions @ u
        q = A @ q + B @ u
    np.testing.assert_allclose(total, expected, rtol=1e-9)
    np.testing.assert_allclose(
        np.sort_complex(regulator.closed_loop.eigenvalues), np.sort_complex(np.linalg.eigvals(A - B @ regulator.gain))
    )
    assert regulator.promise.systems == 0 and "known exactly, and is stabilised" in str(regulator.promise)


@pytest.mark.slow
def test_regulator_balances_the_pendulum_by_cosine_and_sine(pendulum):
    """The gain is designed for angle and speed, and acts on the state."""
    regulator = lqr(pendulum, pendulum.at(UPRIGHT), Weights.of([1.0, 0.1], [1.0]))
    dt, pull = 0.05, 15 * 0.05
    A_true, B_true = np.array([[1 + dt * pull, dt], [pull, 1.0]]), np.array([[6 * dt**2], [6 * dt]])
    K = control.dlqr(A_true, B_true, np.diag([1.0, 0.1]), np.eye(1))[0]
    np.testing.assert_allclose(regulator.gain, K, rtol=1e-6)
    np.testing.assert_allclose(regulator.state_gain, [[0.0, *K[0]]], rtol=1e-6)
    theta, speed, feedback = 0.2, 0.0, regulator.feedback
    for _ in range(200):
        (u,) = feedback(np.array([np.cos(theta), np.sin(theta), speed]))
        speed += dt * (15 * np.sin(theta) + 6 * u)
        theta += dt * speed
    assert abs(theta) < 1e-6 and abs(speed) < 1e-6


@pytest.mark.slow
def test_place_that_no_action_holds_has_a_gain_but_no_feedback(pendulum):
    steep = np.array([np.cos(1.5), np.sin(1.5), 0.0])  # gravity is 2.5 times the largest torque
    regulator = lqr(pendulum, pendulum.at(steep), Weights.of([100.0, 1.0], [1e-3]))
    assert np.isfinite(regulator.gain).all()
    with pytest.raises(SondeError, match=r"no action holds the system near .*, and actions lie in \[-1, 1\]"):
        _ = regulator.feedback


@pytest.mark.slow
def test_hold_finds_the_action_that_holds_the_pendulum(pendulum):
    place = hold(pendulum, np.array([np.cos(0.2), np.sin(0.2), 0.0]))
    np.testing.assert_allclose(place.action, [-15 * np.sin(0.2) / 6], rtol=1e-9)
    np.testing.assert_allclose(place.drift, 0, atol=1e-12)
    np.testing.assert_allclose(hold(pendulum, np.array([np.cos(1.5), np.sin(1.5), 0.0])).action, [-1.0])


# ---- what is promised --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("successes, trials", [(0, 10), (10, 10), (951, 1000), (600, 600)])
def test_lower_bound_is_that_of_scipys_exact_test(successes, trials):
    exact = binomtest(successes, trials, alternative="greater").proportion_ci(0.95, "exact").low
    np.testing.assert_allclose(at_least(successes, trials, 0.95), exact, atol=1e-12)


def test_systems_with_the_moments_of_few_members_follow_students_t(monkeypatch):
    """For one number: what the next member would be, if the members were drawn from a normal distribution."""
    monkeypatch.setattr(_plausible, "DRAWS", 40_000)
    members = np.array([0.9, 1.0, 1.3, 0.7, 1.2])
    linear = Linearisation(
        np.array([[1.0]]), np.ones((1, 1)), np.ones((1, 1)), np.zeros((1, 1)), members[:, None, None], np.ones((5, 1, 1))
    )
    drawn = plausible(linear)
    assert len(drawn.A) == 40_000 and "moments of 5" in drawn.source and (drawn.B == 1).all()
    scale = members.std(ddof=1) * np.sqrt(1 + 1 / 5)
    shares = [0.1, 0.25, 0.5, 0.75, 0.9]
    expected = t.ppf(shares, df=4, loc=members.mean(), scale=scale)
    np.testing.assert_allclose(np.quantile(drawn.A[:, 0, 0], shares), expected, atol=0.04 * scale)
    promise = Promise.of(np.array([[0.9]]), drawn, linear, 0.95)
    assert promise.members == (5, 5) and "Of those 5 themselves, 5 are stabilised" in str(promise)


def test_robust_gain_has_the_least_mean_cost():
    """Against a general optimiser on costs by SciPy's Lyapunov equations."""
    linear, start = uncertain(0.01, 0.02, 40), np.diag([0.25, 1.0])
    systems = Plausible(linear.A_samples, linear.B_samples, "")

    def mean_cost(gain: np.ndarray) -> float:
        K, total = gain.reshape(1, 2), 0.0
        for A_i, B_i in zip(linear.A_samples, linear.B_samples, strict=True):
            closed = A_i - B_i @ K
            if np.abs(np.linalg.eigvals(closed)).max() >= 1:
                return 1e9
            total += np.trace(start @ solve_discrete_lyapunov(closed.T, WEIGHTS.states + K.T @ WEIGHTS.actions @ K))
        return total / len(systems.A)

    found = robust_gain(systems, linear, WEIGHTS, start)
    best = minimize(mean_cost, np.array([6.0, 1.7]), method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-10})
    assert mean_cost(found.ravel()) <= best.fun * (1 + 1e-3)
    assert mean_cost(found.ravel()) < mean_cost(riccati(A, B, WEIGHTS)[0].ravel())


def test_robust_gain_stabilises_nearly_as_many_systems_as_any_gain_of_a_fine_grid():
    linear = uncertain(0.02, 0.04, 200)
    systems = Plausible(linear.A_samples, linear.B_samples, "")
    share = lambda gain: stabilised(systems, gain).mean()
    grid = np.stack(np.meshgrid(np.linspace(0, 24, 49), np.linspace(0, 6, 31)), axis=-1).reshape(-1, 1, 2)
    best, plain = max(map(share, grid)), share(riccati(A, B, WEIGHTS)[0])
    found = share(robust_gain(systems, linear, WEIGHTS, np.eye(2)))
    assert plain < best - 0.05, "the regulator of the mean leaves much to be gained"
    assert found >= best - 0.02


def test_robust_regulator_promises_what_fresh_systems_confirm(line):
    linear = uncertain(0.01, 0.02)
    plain, robust = lqr(line, place_of(linear), WEIGHTS), robust_lqr(line, place_of(linear), WEIGHTS, share=0.95)
    fresh = uncertain(0.01, 0.02, 4000, seed=1)
    share = lambda gain: stabilised(Plausible(fresh.A_samples, fresh.B_samples, ""), gain).mean()
    assert robust.promise.kept and robust.promise.systems == 360, "those that it was not designed on"
    assert share(robust.gain) >= robust.promise.bound and share(plain.gain) >= plain.promise.bound
    assert "Promised: stabilises at least" in str(robust.promise)
    closed = A - B @ robust.gain
    total = WEIGHTS.states + robust.gain.T @ WEIGHTS.actions @ robust.gain
    np.testing.assert_allclose(robust.cost, solve_discrete_lyapunov(closed.T, total), rtol=1e-6)


def test_robust_regulator_refuses_to_promise_what_no_gain_can_keep(line):
    """Where even the sign of the action's effect is uncertain."""
    promise = robust_lqr(line, place_of(uncertain(0.05, 0.3, 200)), WEIGHTS, share=0.95).promise
    assert not promise.kept and promise.bound < 0.95
    assert "No promise: 0.95 was asked for" in str(promise)
    with pytest.raises(SondeError, match="share must lie between 0 and 1, got 1"):
        robust_lqr(line, place_of(uncertain(0.01, 0.01, 200)), share=1.0)


# ---- continuous time, responses, python-control ------------------------------------------------------------------------------


def test_system_in_continuous_time_becomes_the_discrete_one():
    found = uncertain(0.001, 0.001, 20).continuous(0.05)
    A_back, B_back, *_ = signal.cont2discrete((found.A, found.B, np.eye(2), np.zeros((2, 1))), 0.05)
    np.testing.assert_allclose(A_back, A, rtol=1e-9)
    np.testing.assert_allclose(B_back, B, rtol=1e-9)
    np.testing.assert_allclose(found.A_std, found.A_samples.std(axis=0))
    flipped = Linearisation(-A, B, A, B, -A[None], B[None])
    with pytest.raises(SondeError, match="no system in continuous time becomes this one"):
        flipped.continuous(0.05)


def test_python_control_has_the_same_system():
    linear = uncertain(0.01, 0.01, 5)
    system = to_control(linear, 0.05, states=("th", "thdot"), inputs=("torque",))
    np.testing.assert_array_equal(system.A, A)
    assert system.dt == 0.05 and system.state_labels == ["th", "thdot"] and system.input_labels == ["torque"]
    assert to_control(linear).dt is True
    assert to_control(linear.continuous(0.05), 0.0).isctime()


def test_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "control", None)
    with pytest.raises(SondeError, match=r"pip install 'sonde\[control\]'"):
        to_control(uncertain(0.01, 0.01, 5))


def test_frequency_response_and_its_band_agree_with_python_control():
    linear = uncertain(0.01, 0.01, 120).closed(riccati(A, B, WEIGHTS)[0])
    found = frequency_response(linear, 0.05, np.array([0.5, 5.0, 50.0]), share=0.8)
    expected = control.frequency_response(to_control(linear, 0.05), found.frequencies)
    np.testing.assert_allclose(found.magnitude[:, :, 0].T, expected.magnitude[:, 0], rtol=1e-8)
    np.testing.assert_allclose(np.exp(1j * found.phase[:, :, 0].T), np.exp(1j * expected.phase[:, 0]), rtol=1e-8)
    each = [
        abs(control.ss(A_i, B_i, np.eye(2)[:1], 0, 0.05)(np.exp(0.5j * 0.05)))
        for A_i, B_i in zip(linear.A_samples, linear.B_samples, strict=True)
    ]
    np.testing.assert_allclose(found.magnitude_band[:, 0, 0, 0], np.quantile(each, [0.1, 0.9]), rtol=1e-8)
    assert (found.phase_band[0] <= found.phase).all() and (found.phase <= found.phase_band[1]).all()
    with pytest.raises(SondeError, match="frequencies must lie between 0 and pi / dt"):
        frequency_response(linear, 0.05, np.array([100.0]))


def test_step_response_and_its_band_agree_with_scipy():
    linear = uncertain(0.01, 0.01, 120).closed(riccati(A, B, WEIGHTS)[0])
    found = step_response(linear, 30, 0.05, share=0.8)
    dstep = lambda A, B: signal.dstep((A, B, np.eye(2), np.zeros((2, 1)), 0.05), n=31)
    times, (expected,) = dstep(linear.A, linear.B)
    np.testing.assert_allclose(found.times, times)
    np.testing.assert_allclose(found.mean[..., 0], expected, atol=1e-12)
    each = [dstep(A_i, B_i)[1][0] for A_i, B_i in zip(linear.A_samples, linear.B_samples, strict=True)]
    np.testing.assert_allclose(found.band[..., 0], np.quantile(each, [0.1, 0.9], axis=0), atol=1e-12)


@pytest.mark.slow
def test_responses_are_drawn_with_names_and_a_diverging_band_does_not_hide_the_mean(tmp_path):
    from sonde.runs.figures import draw_frequency_response, draw_step_response

    linear = uncertain(0.05, 0.05, 120).closed(riccati(A, B, WEIGHTS)[0])
    draw_frequency_response(frequency_response(linear, 0.05), ("th", "thdot"), ("torque",), tmp_path / "bode.svg")
    response = step_response(linear, 200, 0.05)
    assert np.abs(response.band).max() > 1e3 * np.abs(response.mean).max()
    draw_step_response(response, ("th", "thdot"), ("torque",), tmp_path / "step.svg")
    for name in ("bode", "step"):
        assert (tmp_path / f"{name}.svg").read_text().count("torque to thdot") >= 1


# ---- schedules and files -----------------------------------------------------------------------------------------------------


def table(**changes) -> GainSchedule:
    rng = np.random.default_rng(0)
    arrays = {
        "gains": rng.normal(size=(3, 4, 1, 2)),
        "states": rng.normal(size=(3, 4, 2)),
        "actions": rng.uniform(-0.1, 0.1, (3, 4, 1)),
    }
    axes = (np.array([-1.0, 0.0, 2.0]), np.array([0.0, 1.0, 2.0, 5.0]))
    return GainSchedule(axes, **arrays, **changes)


def test_schedule_interpolates_as_scipy_does():
    schedule, rng = table(), np.random.default_rng(1)
    for place in rng.uniform([-1, 0], [2, 5], (20, 2)):
        found = schedule.at(place)
        for name, array in (("gain", schedule.gains), ("state", schedule.states), ("action", schedule.actions)):
            np.testing.assert_allclose(
                getattr(found, name), RegularGridInterpolator(schedule.axes, array)(place)[0], atol=1e-12
            )


def test_schedule_by_entries_of_the_state_reads_them_from_the_state():
    schedule, given, x = table(scheduled=(1, 0)), table(), np.array([1.5, 0.25])
    np.testing.assert_array_equal(schedule(x), given(x, np.array([0.25, 1.5])))
    with pytest.raises(SondeError, match="leave them out"):
        schedule(x, x)
    with pytest.raises(SondeError, match="as the second argument"):
        given(x)


def test_schedule_outside_its_table_refuses_or_holds_the_boundary():
    x = np.zeros(2)
    with pytest.raises(SondeError, match=r"scheduling variable 1 is 6, outside the table's 0 to 5"):
        table()(x, np.array([0.0, 6.0]))
    np.testing.assert_array_equal(table(outside="hold")(x, np.array([0.0, 6.0])), table()(x, np.array([0.0, 5.0])))


@pytest.mark.parametrize(
    "change, message",
    [
        ({"axes": (np.array([0.0, 0.0, 1.0]), np.arange(4.0))}, "increasing numbers"),
        ({"gains": np.zeros((3, 4, 2, 2))}, r"gains must be finite, of shape \[3, 4, 1, 2\], got \[3, 4, 2, 2\]"),
        ({"scheduled": (0, 2)}, "must name 2 entries of the state"),
    ],
)
def test_schedule_that_does_not_fit_together_is_refused(change, message):
    good = table()
    arrays = {name: getattr(good, name) for name in ("axes", "gains", "states", "actions")}
    with pytest.raises(SondeError, match=message):
        GainSchedule(**{**arrays, **change})


@pytest.mark.slow
def test_schedule_follows_the_pendulum_over_a_range_of_angles(pendulum):
    """Held by scheduled gains and actions at angles between those of the table."""
    angles = np.linspace(-0.35, 0.35, 5)
    places = [hold(pendulum, np.array([np.cos(q), np.sin(q), 0.0])) for q in angles]
    regulators = [lqr(pendulum, place, Weights.of([1.0, 0.1], [1.0])) for place in places]
    schedule = gain_schedule([angles], regulators)
    for wanted in (-0.3, 0.1, 0.26):
        theta, speed = wanted + 0.03, 0.0
        for _ in range(300):
            (u,) = schedule(np.array([np.cos(theta), np.sin(theta), speed]), wanted)
            speed += 0.05 * (15 * np.sin(theta) + 6 * u)
            theta += 0.05 * speed
        assert abs(theta - wanted) < 0.01
    with pytest.raises(SondeError, match="a grid of 2 x 3 points has as many regulators, got 5"):
        gain_schedule([angles[:2], angles[:3]], regulators)


def test_gains_survive_a_file_and_damaged_files_are_refused(tmp_path):
    feedback = LinearFeedback(np.array([[1.0, 2.0]]), np.array([0.1, 0.2]), np.array([0.3]))
    schedule, x = table(scheduled=(0, 1), outside="hold"), np.array([0.4, 0.7])
    feedback.save(tmp_path / "gain.safetensors")
    schedule.save(tmp_path / "schedule.safetensors")
    np.testing.assert_array_equal(LinearFeedback.load(tmp_path / "gain.safetensors")(x), feedback(x))
    loaded = GainSchedule.load(tmp_path / "schedule.safetensors")
    assert loaded.scheduled == (0, 1) and loaded.outside == "hold"
    np.testing.assert_array_equal(loaded(x), schedule(x))
    with pytest.raises(SondeError, match="expected the format sonde-linear-feedback-1, got 'sonde-gain-schedule-1'"):
        LinearFeedback.load(tmp_path / "schedule.safetensors")
    with pytest.raises(SondeError, match=r"end its name in \.safetensors"):
        feedback.save(tmp_path / "gain.npz")
    wrong = {"gain": np.ones((1, 2)), "state": np.ones(3), "action": np.ones(1)}
    for arrays, message in [(wrong, "gain must have shape"), ({"gain": np.ones((1, 2))}, "is damaged: expected the arrays")]:
        safetensors.numpy.save_file(arrays, tmp_path / "bad.safetensors", {"format": "sonde-linear-feedback-1"})
        with pytest.raises(SondeError, match=message):
            LinearFeedback.load(tmp_path / "bad.safetensors")
    (tmp_path / "bad.safetensors").write_bytes(b"nonsense")
    with pytest.raises(SondeError, match="cannot be read as a policy"):
        GainSchedule.load(tmp_path / "bad.safetensors")


@pytest.mark.slow
def test_controllers_run_without_jax_and_scipy():
    code = (
        "import sys, json; from sonde.control import GainSchedule, LinearFeedback; "
        "print(json.dumps([name for name in ('jax', 'scipy') if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


# ---- words -------------------------------------------------------------------------------------------------------------------


def test_points_are_read_with_names_and_without(pendulum):
    by_name, plain = (place_in(text, pendulum, (), 1) for text in ("thdot=-1,th=0.1;torque=0.5", "0.1,-1;0.5"))
    as_state = place_in(f"{np.cos(0.1)},{np.sin(0.1)},-1", pendulum, (0.5,), 1)
    for place in (by_name, plain, as_state):
        np.testing.assert_allclose(place.point, [0.1, -1.0])
        assert place.action == [0.5]


@pytest.mark.parametrize(
    "text, message",
    [
        ("th=1", "at: thdot is missing from 'th=1'"),
        ("th=1,th=2,thdot=0", "at: expected each name once, got 'th=1,th=2,thdot=0'"),
        ("th=1,thdto=2", "at: unknown name 'thdto'; did you mean 'thdot'"),
        ("1", "at: expected 2 finite numbers, for th, thdot, got '1'"),
        ("1,x", "at: expected numbers for th, thdot, got '1,x'"),
        ("1,nan", "at: expected 2 finite numbers"),
        ("1,2;3;4", "at most one ';'"),
        ("1,2;0.1", "the action is given twice"),
    ],
)
def test_points_that_cannot_be_read_are_refused(pendulum, text, message):
    with pytest.raises(SondeError, match=message):
        place_in(text, pendulum, (0.2,), 1)


def test_weights_are_read(pendulum):
    weights = weights_in("th=10,thdot=1;0.5", pendulum)
    np.testing.assert_array_equal(np.diagonal(weights.states), [10, 1])
    np.testing.assert_array_equal(weights.actions, [[0.5]])
    with pytest.raises(SondeError, match="weights of the coordinates, ';' and weights of the actions"):
        weights_in("10,1", pendulum)
    assert list(numbers_in("1, 2", ("a", "b"), "x")) == [1, 2]


def test_one_equilibrium_without_a_regulator_does_not_hide_those_of_others(line):
    stuck = place_of(Linearisation(A, 0 * B, 0 * A, 0 * B, A[None], 0 * B[None]))
    request, parts = AnalysisRequest(linear=LinearRequest(regulator=True)), [{}, {}]
    (regulator,) = _regulators(line, (stuck, line.at(np.zeros(2))), parts, request)
    assert parts[1]["lqr"]["gain"] == regulator.gain.tolist()
    said = " ".join(regulator_report({}, parts[0]["lqr"], 80))
    assert "No regulator: lqr: no gain stabilises" in said
    with pytest.raises(SondeError, match="no gain stabilises"):
        _regulators(line, (stuck,), [{}], AnalysisRequest(at="0,0", linear=LinearRequest(regulator=True)))


@pytest.mark.parametrize("visited", [True, False])
def test_a_point_that_was_never_visited_is_called_a_guess(line, visited):
    found = {"coordinates": ["a", "b"], "actions": ["u"]}
    place = described_point(line.at(np.zeros(2)), LinearRequest()) | {"visited": visited}
    assert ("what follows is a guess" in " ".join(point_report(found, place, 80))) is not visited


def test_wide_matrices_are_printed_in_blocks_that_fit():
    names = [f"coordinate{i}" for i in range(9)]
    cells = [[number(i + j / 10, 0.0123) for j in range(9)] for i in range(9)]
    lines = list(matrix("A", names, names, cells, 80))
    assert max(map(len, lines)) <= 80 and len(lines) % 10 == 0
    assert all(sum(cell in line for line in lines) for row in cells for cell in row)
    assert number(1.23456, 0.0123) == "1.235 ± 0.012" and number(0.5) == "0.5"
