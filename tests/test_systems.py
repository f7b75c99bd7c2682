"""Small plants for judging models: equations, data, peers, and `python -m benchmarks.systems` with sizes that mean nothing."""

import io
import json
import math
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tyro
from jaxtyping import Array, Float
from rich.console import Console
from scipy.integrate import solve_ivp

from benchmarks.systems import cells
from benchmarks.systems.__main__ import Arguments, main
from benchmarks.systems.cells import Cell, Results, Suite
from benchmarks.systems.development import DEVELOPMENT
from benchmarks.systems.learning import explored, settings
from benchmarks.systems.peers import FLOOR, PEERS, fitted, peer
from benchmarks.systems.plant import EXCITATIONS, HOLDS, NOISE, Plant, collect, excite, rollouts
from benchmarks.systems.plants import SYSTEMS
from benchmarks.systems.report import counts, data_table, figure_of, main_table, ratio
from benchmarks.systems.scoring import LARGEST, Windows, coverage, errors
from sonde._internal.errors import SondeError
from sonde.data import Trajectory
from sonde.models import Posterior, Prediction
from sonde.runs import default_config
from sonde.worlds import JaxWorld
from tiny import TINY

PLANTS = {**SYSTEMS, **DEVELOPMENT}
G = 9.81

# ---- equations, written a second time in NumPy and where possible from another formulation ---------------------------------


def pendulum(x, u):
    inertia = 0.5 * 0.4**2
    return [x[1], (0.9 * u[0] - 0.12 * x[1]) / inertia - G / 0.4 * np.sin(x[0])]


def cart_pole(x, u):
    """Lagrange: mass matrix of a uniform pole, whose inertia about its middle is m l^2 / 3 with half-length l."""
    m, half = 0.2, 0.5
    mass = np.array([[1.0 + m, m * half * np.cos(x[1])], [m * half * np.cos(x[1]), m * half**2 * 4 / 3]])
    forces = [6 * u[0] - 0.5 * x[2] + m * half * np.sin(x[1]) * x[3] ** 2, m * G * half * np.sin(x[1]) - 0.01 * x[3]]
    return [x[2], x[3], *np.linalg.solve(mass, forces)]


def two_masses(x, u):
    d = x[0] - x[1]
    pull = 2 * d + 6 * d**3 + 0.2 * (x[2] - x[3])
    return [x[2], x[3], 4 * u[0] - 4 * x[0] - 0.4 * x[2] - pull, pull / 0.5]


def duffing(x, u):
    return [x[1], 0.8 * u[0] - 0.3 * x[1] + x[0] * (1 - x[0] ** 2)]


def van_der_pol(x, u):
    return [x[1], 1.5 * u[0] - x[0] - 1.5 * (x[0] ** 2 - 1) * x[1]]


def tanks(x, u):
    out = np.sqrt(2 * 981 * np.asarray(x)) * [0.45, 0.4, 0.38]
    return np.array([55 + 40 * u[0] - out[0], out[0] - out[1], out[1] - out[2]]) / 30


def motor(x, u):
    torque = 0.05 * x[1] - 1e-4 * x[0] - 0.04 * np.tanh(x[0] / 3)
    return [torque / 5e-5, (12 * u[0] - 2 * x[1] - 0.05 * x[0]) / 0.01]


def quadrotor(x, u):
    """Forces in the body's frame, turned into the world's."""
    turned = np.array([[np.cos(x[2]), -np.sin(x[2])], [np.sin(x[2]), np.cos(x[2])]])
    velocity = np.asarray(x[3:5])
    force = turned @ [0, 4.905 + 2 * u[0]] - 0.1 * np.sqrt(velocity @ velocity + 1e-6) * velocity
    return [*x[3:], *(force / 0.5 - [0, G]), 10 * u[1]]


def arm(x, u):
    """Positions of both masses: M = sum m J^T J, and forces from the change of J along the motion."""
    a, b, w1, w2 = x
    first, second = np.array([0.4 * np.cos(a), 0.4 * np.sin(a)]), np.array([0.3 * np.cos(a + b), 0.3 * np.sin(a + b)])
    zero = np.zeros(2)
    jacobians = np.stack([first, zero], 1), np.stack([first + second, second], 1)
    turn = lambda v: np.array([-v[1], v[0]])
    drift = turn(first) * w1**2, turn(first) * w1**2 + turn(second) * (w1 + w2) ** 2
    mass = sum(m * j.T @ j for m, j in zip((1.0, 0.6), jacobians, strict=True))
    forces = np.array([3 * u[0] - 0.5 * w1, u[1] - 0.2 * w2])
    for m, j, d in zip((1.0, 0.6), jacobians, drift, strict=True):
        forces = forces + m * j.T @ (np.array([0, -G]) - d)
    return [w1, w2, *np.linalg.solve(mass, forces)]


def predator_prey(x, u):
    meals = 0.6 * x[0] / (3 + x[0])
    prey = x[0] * (0.5 - 0.05 * x[0] - 0.075 * (1 + u[0])) - meals * x[1] + 0.05
    return [prey, x[1] * (0.5 * meals - 0.15)]


def reactor(x, u):
    rate = np.exp(24.98 - 8750 / x[1]) * x[0]
    return [1 - x[0] - rate, 350 - x[1] + 209.2 * rate - 2.09 * (x[1] - 290 - 10 * u[0])]


def levitation(x, u):
    volts = 10 + 2 * (x[0] - 10) + 0.08 * x[1] + 2.5 * u[0]
    return [x[1], 9810 * (1 - (10 * x[2] / x[0]) ** 2), (volts - 10 * x[2]) / 0.2]


def mathieu(x, u):
    return [x[1], 1.5 - 0.5 * x[1] - x[0] * (4 + 3 * u[0] + 0.5 * x[0] ** 2)]


EQUATIONS: dict[str, Callable] = {
    "pendulum": pendulum,
    "cart-pole": cart_pole,
    "two-masses": two_masses,
    "duffing": duffing,
    "van-der-pol": van_der_pol,
    "tanks": tanks,
    "motor": motor,
    "quadrotor": quadrotor,
    "arm": arm,
    "predator-prey": predator_prey,
    "reactor": reactor,
    "levitation": levitation,
    "mathieu": mathieu,
}


@pytest.mark.parametrize("name", PLANTS)
def test_a_step_agrees_with_an_independent_solution(name):
    plant = PLANTS[name]
    windows = rollouts(plant, 6, 1, seed=5)
    for x, u, found in zip(windows.states[:, 0], windows.actions[:, 0], windows.next_states[:, 0], strict=True):
        right_side = lambda t, x, u=u: EQUATIONS[name](x, u)
        exact = solve_ivp(right_side, (0, plant.sample_time), x, method="DOP853", rtol=1e-11, atol=1e-12).y[:, -1]
        assert np.abs((found - exact) / plant.spreads).max() < 1e-4


def test_there_are_enough_plants_and_both_groups_differ():
    assert len(SYSTEMS) >= 8 and len(DEVELOPMENT) >= 4
    assert not {type(plant) for plant in SYSTEMS.values()} & {type(plant) for plant in DEVELOPMENT.values()}
    assert all(isinstance(plant, JaxWorld) and not plant.process_noise for plant in PLANTS.values())


# ---- data ------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTS)
def test_measurements_are_bounded_and_noise_is_small_beside_the_spread(name):
    plant = PLANTS[name]
    spread = rollouts(plant, 200, 20, seed=0).next_states.std((0, 1))
    assert np.all(np.abs(np.log(spread / plant.spreads)) < 0.2)
    for kind in EXCITATIONS:
        noisy = collect(replace(plant, process_noise=NOISE), kind, 1000, seed=1)
        centred = noisy.next_states - noisy.next_states.mean(0)
        assert np.all(np.abs(centred) < 8 * np.array(plant.spreads))
        noisy.checked(1, plant.spec)


def test_a_trajectory_is_continuous_within_episodes_and_its_noise_has_the_std_it_says():
    plant = replace(SYSTEMS["cart-pole"], process_noise=NOISE)
    data = collect(plant, "prbs", 1000, seed=2)
    assert data.truncated is not None
    goes_on = ~data.truncated[:-1]
    np.testing.assert_array_equal(data.next_states[:-1][goes_on], data.states[1:][goes_on])
    assert not np.any(np.all(data.next_states[:-1] == data.states[1:], axis=1)[~goes_on])
    with jax.enable_x64(True):
        mean = np.asarray(jax.jit(jax.vmap(plant.dynamics))(data.states, data.actions))
    np.testing.assert_allclose((data.next_states - mean).std(0) / plant.spreads, NOISE, rtol=0.1)


def test_the_last_of_the_measurements_ends_an_episode():
    data = collect(SYSTEMS["duffing"], "random", 130, seed=0)
    assert data.truncated is not None and np.flatnonzero(data.truncated).tolist() == [99, 129]


def test_data_depend_on_the_seed_only_and_tests_are_not_the_training_data():
    plant = SYSTEMS["duffing"]
    first, again, other = (collect(plant, "random", 200, seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first.next_states, again.next_states)
    assert not np.isin(first.actions, other.actions).any()
    windows = rollouts(plant, 20, 20, seed=3)
    np.testing.assert_array_equal(windows.next_states, rollouts(plant, 20, 20, seed=3).next_states)
    assert not np.isin(windows.states, first.states).any() and not np.isin(windows.actions[:10], first.actions).any()


def test_noisy_and_noise_free_windows_have_the_same_inputs():
    plant = SYSTEMS["duffing"]
    clean, noisy = rollouts(plant, 20, 20, seed=1), rollouts(replace(plant, process_noise=NOISE), 20, 20, seed=1)
    np.testing.assert_array_equal(clean.actions, noisy.actions)
    assert np.abs(clean.next_states - noisy.next_states).max() > 0


def test_inputs_are_uniform_or_binary_with_hold_times():
    rng = np.random.default_rng(0)
    random, binary = (excite(kind, (20, 100, 2), rng) for kind in EXCITATIONS)
    assert abs(random.std() - 3**-0.5) < 0.02 and np.abs(random).max() <= 1
    assert set(np.unique(binary)) == {-1.0, 1.0} and not np.array_equal(binary[..., 0], binary[..., 1])
    # a level stays on average for the mean hold time, twice that since every other draw repeats the level
    changes = (np.diff(binary, axis=1) != 0).mean()
    assert abs(1 / changes / (2 * np.mean(HOLDS)) - 1) < 0.15


def test_what_cannot_be_measured_is_rejected():
    plant = SYSTEMS["cart-pole"]
    with pytest.raises(SondeError, match="at most 30 steps"):
        rollouts(plant, 2, 31, seed=0)
    with pytest.raises(SondeError, match="excitation"):
        collect(plant, "sine", 10, seed=0)
    with pytest.raises(SondeError, match="process_noise"):
        replace(plant, process_noise=-1.0)


def test_reachable_points_cover_both_kinds_of_inputs():
    plant: Plant = SYSTEMS["motor"]
    found = plant.reachable()
    assert (
        found.states.shape == (2000, 2) and np.abs(found.actions[:1000]).max() < 1 and np.all(np.abs(found.actions[1000:]) == 1)
    )


# ---- peers -----------------------------------------------------------------------------------------------------------------


def from_map(function: Callable[[np.ndarray], np.ndarray], noise: float = 0.0) -> Trajectory:
    """Measurements of a system with two states and one action, of which `function` gives the change."""
    rng = np.random.default_rng(0)
    states, actions = rng.uniform(-2, 2, (200, 2)) * [1.0, 30.0], rng.uniform(-1, 1, (200, 1))
    change = function(np.concatenate([states, actions], axis=1))
    return Trajectory(states, actions, states + change + noise * rng.standard_normal(change.shape))


def cubic_map(z: np.ndarray) -> np.ndarray:
    return np.stack([0.1 * z[:, 0] - 0.3 * z[:, 0] ** 3 + z[:, 2], 5 + z[:, 0] * z[:, 1] * z[:, 2]], axis=1)


def largest_error(name: str, data: Trajectory) -> float:
    """Of the mean after a fit, beside the spread of the changes, on the points themselves."""
    found = fitted(name, SYSTEMS["duffing"], data, seed=0)(data.states, data.actions)
    return float(np.abs((found - data.next_states) / (data.next_states - data.states).std(0)).max())


def test_affine_peer_recovers_an_affine_system_and_no_cubic_one():
    affine = from_map(lambda z: z @ np.array([[0.2, 3.0], [-0.01, -0.2], [1.0, 0.0]]) + [4.0, -7.0])
    assert largest_error("affine", affine) < 1e-10
    assert largest_error("affine", from_map(cubic_map)) > 0.5


@pytest.mark.slow
def test_cubic_peer_recovers_a_cubic_system_and_is_not_misled_by_noise():
    pytest.importorskip("pysindy")
    assert largest_error("cubic", from_map(cubic_map)) < 1e-3
    clean = from_map(cubic_map)
    predict = fitted("cubic", SYSTEMS["duffing"], from_map(cubic_map, noise=0.3), seed=0)
    error = (predict(clean.states, clean.actions) - clean.next_states) / (clean.next_states - clean.states).std(0)
    assert np.sqrt(np.mean(error**2)) < 0.1  # the noise alone is about 0.3


@pytest.mark.slow
def test_gaussian_process_peer_learns_a_smooth_system():
    pytest.importorskip("sklearn")
    smooth = lambda z: np.stack([np.sin(2 * z[:, 0]) + z[:, 2], 10 * np.cos(z[:, 1] / 20)], axis=1)
    assert largest_error("sklearn-gp", from_map(smooth)) < 0.01 < largest_error("affine", from_map(smooth))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["duffing", "cart-pole", "motor", "levitation"])
def test_grey_box_finds_the_true_system_from_wrong_parameters(name):
    plant = PLANTS[name]
    predict = fitted(FLOOR, plant, collect(plant, "random", 300, seed=1), seed=1)
    assert errors(predict, Windows.of(plant))["twenty_step"] < 1e-6


def test_unknown_peer_is_rejected():
    with pytest.raises(SondeError, match="unknown peer"):
        peer("oracle", SYSTEMS["duffing"], 0)


# ---- scores ----------------------------------------------------------------------------------------------------------------


class Truth(Posterior):
    """The plant itself as a posterior, with a factor on its noise."""

    plant: Plant = eqx.field(static=True)
    factor: Float[Array, "*seeds"]

    def predict(self, x, u):
        std = self.factor * self.plant.process_noise * jnp.asarray(self.plant.spreads)
        return Prediction(self.plant.dynamics(x, u), 0 * std, std)


@pytest.mark.slow
def test_coverage_of_the_true_system_is_90_percent_and_that_of_half_its_noise_is_less():
    plant = replace(SYSTEMS["quadrotor"], process_noise=NOISE)
    tests = Windows.of(plant)
    of = lambda factor: coverage(Truth(plant, jnp.full((1,), factor)), tests, seed=0)
    exact, half = of(1.0), of(0.5)
    assert abs(exact["one_step_coverage"] - 0.9) < 0.01 and abs(exact["twenty_step_coverage"] - 0.9) < 0.05
    # erf(0.5 * 1.645 / sqrt(2))
    assert abs(half["one_step_coverage"] - math.erf(0.5 * 1.6448536 / math.sqrt(2))) < 0.02
    assert half["twenty_step_coverage"] < 0.7


def test_errors_are_those_of_means_in_spreads_against_the_plant_without_noise():
    plant = replace(SYSTEMS["duffing"], process_noise=NOISE)
    tests = Windows.of(plant)
    assert not np.array_equal(tests.real.next_states, tests.clean.next_states)
    with jax.enable_x64(True):
        step = jax.jit(jax.vmap(plant.dynamics))
        true = lambda states, actions: np.asarray(step(states, actions))
        exact = errors(true, tests)
        shifted = errors(lambda states, actions: true(states, actions) + 0.5 * tests.spread, tests)
    assert exact["one_step"] < 1e-12 and exact["twenty_step"] < 1e-12 and exact["diverged"] == 0
    assert abs(shifted["one_step"] - 0.5) < 1e-12
    mean = lambda states, actions: np.broadcast_to(tests.clean.next_states.mean((0, 1)), states.shape)
    assert abs(errors(mean, tests)["one_step"] - 1) < 1e-6


def test_a_model_that_diverges_has_the_largest_error():
    tests = Windows.of(SYSTEMS["duffing"])
    for diverging in (lambda x, u: 1e3 * x**3, lambda x, u: np.full_like(x, np.nan) if np.abs(x).max() > 1e4 else 9e9 * x):
        found = errors(diverging, tests)
        assert np.isfinite(found["twenty_step"]) and found["twenty_step"] <= LARGEST and found["diverged"] > 0


# ---- the command -----------------------------------------------------------------------------------------------------------

SUITE = Suite(("duffing", "motor"), ("random", "opax"), (False,), 1, 40, ("gp",))


def made_up(gp: float) -> Results:
    """Results in which a peer's 20-step error is 0.1 and affine's 1; OpAx's data halve the model's error."""
    results = Results()
    for cell in SUITE.cells:
        for by in SUITE.learners:
            error = {"affine": 1.0, "gp": gp if cell.data == "random" else gp / 2}.get(by, 0.1)
            scores = {"one_step": error / 10, "twenty_step": error, "fit_seconds": 1.0}
            results.add(cell, by, {**scores, "one_step_coverage": 0.91, "twenty_step_coverage": 0.82})
    return results


def test_report_compares_with_the_best_peer_and_with_affine():
    found = list(made_up(0.24).of(SUITE))
    assert ratio(found[0][1], "gp", "twenty_step") == pytest.approx(2.4)
    assert ratio(found[0][1], "gp", "one_step", "affine") == pytest.approx(0.24)
    _, twenty = counts(SUITE, found)
    assert twenty == (
        "gp, 20-step: of 4 cells, 2 within 1.3x of the best peer, 2 above 2x, 0 worse than affine by more than 5 %; "
        "in 0 the error is below 1% of the spread"
    )
    assert "in 4 the error" in counts(SUITE, list(made_up(0.009).of(SUITE)))[1]
    assert "4 worse than affine" in counts(SUITE, list(made_up(2.2).of(SUITE)))[0]
    table = data_table(SUITE, found)
    assert table is not None and list(table.columns[1].cells) == ["0.50", "0.50"]
    console = Console(width=220, record=True, file=io.StringIO())
    console.print(main_table(SUITE, found))
    assert re.search(r"duffing.*random.*no.*gp.*0\.24.*cubic 0\.1.*2\.40.*0\.24.*0\.82", console.export_text())
    assert len(figure_of(SUITE, found).axes) == 4


def test_only_finished_cells_are_reported():
    results = made_up(0.2)
    del results.lines[SUITE.cells[0], "cubic"]
    assert [cell for cell, _ in results.of(SUITE)] == SUITE.cells[1:]


@pytest.mark.slow
def test_a_small_comparison_is_not_computed_twice(tmp_path, capsys, monkeypatch):
    pytest.importorskip("pysindy")
    words = ["--systems", "duffing", "--data", "random", "--noise", "no", "--measurements", "40", "--models", "gp"]
    words += ["--out", str(tmp_path)]
    assert main(words) == 0
    first = capsys.readouterr()
    assert "1/1 duffing-random-clean-0-40: 20-step errors gp" in first.err
    assert (tmp_path / "systems.png").read_bytes().startswith(b"\x89PNG")
    rows = [json.loads(line) for line in (tmp_path / "cells.jsonl").read_text().splitlines()]
    assert [row["by"] for row in rows] == ["gp", *PEERS, FLOOR]
    assert all(0 < row["one_step"] < 1 for row in rows[:-1]) and 0 <= rows[0]["twenty_step_coverage"] <= 1
    # without the line of the model, the model alone is computed again, with the same result
    (tmp_path / "cells.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[1:]))
    assert main(words) == 0
    again = json.loads((tmp_path / "cells.jsonl").read_text().splitlines()[-1])
    assert {**again, "fit_seconds": 0} == {**rows[0], "fit_seconds": 0}
    monkeypatch.setattr(cells, "score", lambda *given: pytest.fail("computed twice"))
    capsys.readouterr()
    assert main(words) == 0
    assert "of 1 cells" in capsys.readouterr().out


def test_an_interrupt_leaves_the_results_so_far(tmp_path, capsys, monkeypatch):
    pytest.importorskip("pysindy")

    def stop(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(cells, "score", stop)
    assert main(["--systems", "duffing", "--data", "random", "--out", str(tmp_path)]) == 130
    assert "No cell is finished" in capsys.readouterr().out


@pytest.mark.slow
def test_opax_measures_whole_experiments_and_depends_on_the_seed_only(tmp_path, monkeypatch):
    plant = SYSTEMS["cart-pole"]
    config = replace(TINY, world=plant)
    data, again = (explored(plant, 80, seed=0, config=config) for _ in range(2))
    assert data.truncated is not None and np.flatnonzero(data.truncated).tolist() == [29, 59, 79]
    np.testing.assert_array_equal(data.next_states, again.next_states)
    goes_on = ~data.truncated[:-1]
    np.testing.assert_array_equal(data.next_states[:-1][goes_on], data.states[1:][goes_on])
    # a cell keeps them in a file
    monkeypatch.setattr(cells, "explored", lambda *given: data)
    cell = Cell("cart-pole", "opax", False, 0, 80)
    cells.measure(cell, tmp_path)
    monkeypatch.setattr(cells, "explored", lambda *given: pytest.fail("measured twice"))
    loaded = cells.measure(cell, tmp_path).checked(1, plant.spec)
    np.testing.assert_array_equal(loaded.states[0], data.states)


def test_the_default_model_is_the_one_of_a_system_without_a_preset():
    plant = SYSTEMS["tanks"]
    config = default_config(plant)
    assert settings("default", plant) == (config.model, config.confidence)
    with pytest.raises(SondeError, match="unknown model"):
        settings("transformer", plant)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--systems", "rocket"], "unknown system 'rocket'"),
        (["--data", "sine"], "unknown kind of data 'sine'"),
        (["--models", "transformer"], "unknown model 'transformer'"),
        (["--measurements", "0"], "whole number above 0"),
        (["--seeds", "0"], "whole number above 0"),
        (["--models"], "at least one"),
    ],
)
def test_wrong_arguments_are_rejected(words, message, capsys):
    assert main(words) == 2
    assert message in capsys.readouterr().err


def test_a_broken_line_of_results_is_named(tmp_path, capsys):
    pytest.importorskip("pysindy")
    (tmp_path / "cells.jsonl").write_text('{"cell": {"system": "duff')
    assert main(["--systems", "duffing", "--out", str(tmp_path)]) == 2
    assert "line 1 is not a result" in capsys.readouterr().err


def test_development_stands_for_the_plants_on_which_settings_may_be_chosen():
    assert Arguments(systems=("development", "motor", "arm")).suite().systems == (*DEVELOPMENT, "motor")


def test_commands_in_the_readme_parse():
    text = (Path(__file__).parent.parent / "benchmarks" / "README.md").read_text()
    commands = re.findall(r"^python -m benchmarks\.systems(.*)$", text, re.MULTILINE)
    assert len(commands) >= 3
    for rest in commands:
        tyro.cli(Arguments, args=shlex.split(re.split(r"\s{2,}|#", rest)[0])).suite()
