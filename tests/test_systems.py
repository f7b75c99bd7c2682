"""Small plants for judging models: equations, data, peers, and `python -m benchmarks.systems` with sizes that mean nothing."""

from collections.abc import Callable
from dataclasses import replace

import jax
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from benchmarks.systems.development import DEVELOPMENT
from benchmarks.systems.plant import EXCITATIONS, HOLDS, NOISE, Plant, collect, excite, rollouts
from benchmarks.systems.plants import SYSTEMS
from sonde._internal.errors import SondeError
from sonde.worlds import JaxWorld

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
