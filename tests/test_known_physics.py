"""Known physics around a model: what it predicts, what it learns, and unknown parameters against SciPy and brute force."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from sonde import (
    METHODS,
    Experiment,
    Explorer,
    GaussianProcess,
    OwnSystem,
    ProbabilisticEnsemble,
    SondeError,
    SystemSpec,
    Trajectory,
)
from sonde._internal.consent import allow_code
from sonde.cli._choices import with_parts
from sonde.control import rollout
from sonde.data import Data
from sonde.models import Auto, Confidence, KnownPhysics, RKHSBeta
from sonde.models._physics import checked_ranges
from sonde.models._physics_fit import NOISE_FLOOR, estimate
from sonde.models._physics_posterior import standard_draws
from sonde.runs import RunConfig
from sonde.runs._codec import from_json, to_json
from sonde.runs._run import restore_explorer, run
from sonde.runs._store import RunStore
from sonde.solvers import ICEM
from sonde.worlds import GymWorld, MountainCar, Pendulum
from tiny import TINY

GP = GaussianProcess(steps=5, rank=32)
PE = ProbabilisticEnsemble(members=3, layers=1, width=8, max_steps=20)
RANGES = {"mass": (0.5, 2.0), "friction": (0.0, 0.5)}
TRUE = Pendulum(friction=0.1)


def unchanged(x, u):
    """The prior that every model has: nothing changes."""
    return x


def cart(x, u, gain=1.0, drag=0.0):
    """A cart: position and speed."""
    return jnp.stack([x[0] + 0.1 * x[1], (1 - drag) * x[1] + gain * u[0]])


def nan_at_zero(x, u, gain=1.0):
    return x + gain * u[0] / jnp.sum(x**2)


@dataclass(frozen=True)
class Branching:
    gain: float = 1.0

    def dynamics(self, x, u):
        return x * self.gain if self.gain > 0 else x


def measured(world, count: int = 60, seed: int = 0, noise: float = 0.0) -> Trajectory:
    """Separate transitions of a pendulum, for one seed."""
    rng = np.random.default_rng(seed)
    angle = rng.uniform(-np.pi, np.pi, count)
    states = np.stack([np.cos(angle), np.sin(angle), rng.uniform(-4, 4, count)], axis=-1)
    actions = rng.uniform(-1, 1, (count, 1))
    with jax.enable_x64(True):
        following = np.asarray(jax.vmap(world.dynamics)(states, actions))
    return Trajectory(states, actions, following + noise * rng.standard_normal(following.shape))


def explorer_of(model, spec=TRUE.spec, capacity=80, seeds=(0,), **more):
    return Explorer(METHODS["opax"], model, ICEM(), spec, capacity=capacity, seeds=seeds, **more)


def buffer(trajectory: Trajectory, empty: int = 20) -> Data:
    rows = [np.pad(a, ((0, empty), (0, 0))) for a in (trajectory.states, trajectory.actions, trajectory.next_states)]
    return Data(*map(jnp.asarray, rows), jnp.asarray(len(trajectory.states)))


X, U = np.array([[0.6, 0.8, 1.0]]), np.array([[0.5]])


def following(world: Pendulum) -> np.ndarray:
    """The state after X."""
    return np.asarray(world.dynamics(jnp.asarray(X[0]), jnp.asarray(U[0])))


@pytest.mark.slow
@pytest.mark.parametrize("model", [GP, PE], ids=["gp", "pe"])
def test_a_prior_without_change_is_no_prior(model):
    plain, informed = explorer_of(model), explorer_of(KnownPhysics(model, unchanged))
    for explorer in (plain, informed):
        explorer.tell(measured(TRUE))
    one, other = (explorer.predict(X, U) for explorer in (plain, informed))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-12)


@pytest.mark.slow
def test_without_data_the_prior_is_predicted_with_the_models_own_uncertainty():
    prior = Pendulum(mass=1.3)
    explorer = explorer_of(KnownPhysics(GP, prior))
    found = explorer.predict(X, U)
    np.testing.assert_allclose(found.mean[0], following(prior), atol=1e-6)
    np.testing.assert_allclose(found.epistemic_std, explorer_of(GP).predict(X, U).epistemic_std)
    assert explorer.model.informed and not GP.informed


@pytest.mark.slow
@pytest.mark.parametrize("model", [GP, PE], ids=["gp", "pe"])
def test_a_perfect_prior_leaves_a_model_that_is_right_and_not_certain(model):
    explorer = explorer_of(KnownPhysics(model, TRUE))
    explorer.tell(measured(TRUE))
    found = explorer.predict(X, U)
    np.testing.assert_allclose(found.mean[0], following(TRUE), atol=0.02)
    assert np.all(np.isfinite(found.epistemic_std)) and np.all(found.epistemic_std > 0)
    assert np.all(found.aleatoric_std > 1e-9)


def test_parameters_are_those_of_scipy():
    rng = np.random.default_rng(3)
    states, actions = rng.normal(size=(80, 2)), rng.uniform(-1, 1, (80, 1))
    truth = np.stack([states[:, 0] + 0.1 * states[:, 1], 0.8 * states[:, 1] + 0.7 * actions[:, 0]], axis=-1)
    following = truth + rng.normal(size=truth.shape) * [0.01, 0.05]
    limits = np.array([[0.0, 2.0], [0.0, 0.5]])
    with jax.enable_x64(True):
        model = KnownPhysics(GP, cart, {"gain": (0.0, 2.0), "drag": (0.0, 0.5)})
        values, covariance = jax.jit(lambda data: estimate(model.next_state, model.limits, jnp.asarray([1.0, 0.25]), data))(
            buffer(Trajectory(states, actions, following))
        )
    scale, spread = (following - states).std(axis=0), (limits[:, 1] - limits[:, 0]) / np.sqrt(12)

    def loss(theta):
        predicted = np.stack([states[:, 0] + 0.1 * states[:, 1], (1 - theta[1]) * states[:, 1] + theta[0] * actions[:, 0]], -1)
        variance = np.mean(((following - predicted) / scale) ** 2, axis=0) + NOISE_FLOOR**2
        return 40 * np.sum(np.log(variance)) + 0.5 * np.sum(((theta - limits.mean(axis=1)) / spread) ** 2)

    found = scipy.optimize.minimize(loss, [1.0, 0.2], method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-9})
    np.testing.assert_allclose(values, found.x, atol=2e-4)
    # the posterior of a linear regression with known noise
    noise = np.std(following[:, 1] - (1 - found.x[1]) * states[:, 1] - found.x[0] * actions[:, 0])
    slopes = np.stack([actions[:, 0], -states[:, 1]], axis=-1)
    expected = np.linalg.inv(slopes.T @ slopes / noise**2 + np.diag(1 / spread**2))
    np.testing.assert_allclose(covariance, expected, rtol=0.02, atol=1e-8)


@pytest.mark.slow
def test_bars_cover_the_truth_under_noise():
    with jax.enable_x64(True):
        model = KnownPhysics(GP, Pendulum(mass=1.3), RANGES)
        parts = [buffer(measured(TRUE, 40, seed, noise=0.02)) for seed in range(100)]
        fit = jax.jit(jax.vmap(lambda data: estimate(model.next_state, model.limits, jnp.asarray([1.25, 0.25]), data)))
        values, covariance = fit(jax.tree.map(lambda *leaves: jnp.stack(leaves), *parts))
    stds = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    inside = np.mean(np.abs(np.asarray(values) - [1.0, 0.1]) <= 2 * stds, axis=0)
    assert np.all(inside >= 0.88)


@pytest.mark.slow
def test_parameters_at_the_end_of_a_range_and_without_data():
    with jax.enable_x64(True):
        model = KnownPhysics(GP, Pendulum(), RANGES)
        fit = jax.jit(lambda data: estimate(model.next_state, model.limits, jnp.asarray([1.25, 0.25]), data))
        data = buffer(measured(Pendulum()))
        values, covariance = fit(data)
        np.testing.assert_allclose(values, [1.0, 0.0], atol=1e-4)
        assert values[1] >= 0
        values, covariance = fit(replace(data, count=jnp.asarray(0)))
    np.testing.assert_allclose(values, [1.25, 0.25])
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), np.array([1.5, 0.5]) / np.sqrt(12))


@pytest.mark.slow
def test_empty_rows_at_which_the_physics_is_not_defined_do_no_harm():
    rng = np.random.default_rng(0)
    states, actions = 1 + rng.uniform(size=(30, 2)), rng.uniform(-1, 1, (30, 1))
    following = np.asarray(states + 0.5 * actions / np.sum(states**2, axis=1, keepdims=True))
    model = KnownPhysics(GP, nan_at_zero, {"gain": (0.0, 1.0)})
    explorer = explorer_of(model, SystemSpec.of_size(2, 1))
    explorer.tell(Trajectory(states, actions, following))
    value, std = model.estimates(explorer.params)["gain"]
    assert abs(value[0] - 0.5) <= 2 * std[0] < 0.01


@pytest.mark.slow
def test_uncertain_parameters_widen_predictions_of_every_kind_of_model():
    for model in (GP, PE, Auto((GP, PE))):
        explorer = explorer_of(KnownPhysics(model, Pendulum(), {"mass": (0.5, 2.0)}))
        inside = explorer_of(model).predict(X, U)
        found = explorer.predict(X, U)
        # the speed after a step has 0.15 u 2 / mass
        steps = 0.3 * U[0, 0] / np.array([0.5, 2.0])
        assert np.all(found.epistemic_std >= 0.9 * inside.epistemic_std) or model is PE
        if model is GP:
            added = np.sqrt(found.epistemic_std[0, 2] ** 2 - inside.epistemic_std[0, 2] ** 2)
            np.testing.assert_allclose(added, 0.3 * U[0, 0] / 1.25**2 * 1.5 / np.sqrt(12), rtol=1e-3)
        if model is PE:
            with jax.enable_x64(True):
                x, u = jnp.asarray(X[0]), jnp.asarray(U[0])
                posterior = jax.tree.map(lambda leaf: leaf[0], explorer.posterior)
                alone = [posterior.member(jnp.asarray(i)).predict(x, u).mean for i in range(3)]
            np.testing.assert_allclose(found.members.means[0], alone, rtol=1e-6)
            np.testing.assert_allclose(found.epistemic_std[0], np.std(alone, axis=0), rtol=1e-6)
            assert np.ptp(np.asarray(alone)[:, 2] - inside.members.means[0, :, 2]) < steps[0] - steps[1]


@pytest.mark.slow
@pytest.mark.parametrize("ranges", [{}, {"mass": (0.5, 2.0)}], ids=["known", "unknown"])
@pytest.mark.parametrize("model", [GP, PE], ids=["gp", "pe"])
def test_jacobians_are_those_of_predictions(model, ranges):
    explorer = explorer_of(KnownPhysics(model, Pendulum(mass=1.3), ranges))
    explorer.tell(measured(TRUE))
    with jax.enable_x64(True):
        x, u = jnp.asarray(X[0]), jnp.asarray(U[0])
        posterior = jax.tree.map(lambda leaf: leaf[0], explorer.posterior.differentiable())
        mean = lambda z: posterior.predict(jnp.asarray(z[:3]), jnp.asarray(z[3:])).mean
        z, steps = np.concatenate([X[0], U[0]]), 1e-3 * np.eye(4)
        expected = np.stack([(mean(z + step) - mean(z - step)) / 2e-3 for step in steps], axis=-1)
        np.testing.assert_allclose(posterior.mean_jacobian(x, u), expected, atol=2e-3)
        found = posterior.predict_jacobian(x, u, jax.random.key(0), 4000)
    np.testing.assert_allclose(found.mean, expected, atol=2e-3)
    np.testing.assert_allclose(np.std(np.asarray(found.samples), axis=0), found.std, rtol=0.1, atol=1e-6)


def test_draws_of_members_have_the_covariance():
    draws = standard_draws(5, 2)
    np.testing.assert_allclose(draws.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(draws.T @ draws / 5, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(np.mean(standard_draws(2, 3) ** 2, axis=0), 1)


@pytest.mark.slow
def test_rkhs_beta_is_that_of_the_difference():
    fixed = GaussianProcess(hyperparameters="fixed", rank=16, lengthscale=2.0)
    widths = []
    for model in (fixed, KnownPhysics(fixed, unchanged), KnownPhysics(fixed, TRUE)):
        explorer = explorer_of(model, confidence=Confidence(beta_rule=RKHSBeta()))
        explorer.tell(measured(TRUE))
        widths.append(explorer.predict(X, U).beta[0])
    np.testing.assert_allclose(widths[0], widths[1])
    assert np.all(widths[2] <= widths[0])
    with pytest.raises(SondeError, match="leave out --prior-range"):
        explorer_of(KnownPhysics(fixed, TRUE, {"mass": (0.5, 2.0)}), confidence=Confidence(beta_rule=RKHSBeta()))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: KnownPhysics(GP, Pendulum), "an object with dynamics"),
        (lambda: KnownPhysics(GP, 3), "expected a function"),
        (lambda: KnownPhysics(GP, "pendulum"), "FILE.py:NAME"),
        (lambda: KnownPhysics(KnownPhysics(GP, TRUE), TRUE), "without a prior of its own"),
        (lambda: KnownPhysics(GP, TRUE, {"mass": (2.0, 0.5)}), "a smaller and a larger number"),
        (lambda: checked_ranges({"mass": 2.0}), "ranges must be like"),
        (lambda: explorer_of(KnownPhysics(GP, TRUE, {"weight": (0.5, 2.0)})), "has no parameter 'weight'"),
        (lambda: explorer_of(KnownPhysics(GP, cart, {"gian": (0.5, 2.0)})), "did you mean 'gain'"),
        (lambda: explorer_of(KnownPhysics(GP, cart)), r"shape \[3\]"),
        (lambda: explorer_of(KnownPhysics(GP, MountainCar())), "MountainCar"),
        (lambda: explorer_of(KnownPhysics(GP, Branching(), {"gain": (0.5, 2.0)})), "jnp.where"),
    ],
)
def test_bad_priors_are_rejected(make, message):
    with pytest.raises(SondeError, match=message):
        make()


def test_the_command_line_makes_priors_that_configs_keep(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("def f(x, u, mass=1.0):\n    return x\n")
    words = {
        KnownPhysics(TINY.model, Pendulum(mass=1.3), RANGES): [
            "pendulum:mass=1.3",
            "--prior-range",
            "mass=0.5:2",
            "friction=0:0.5",
        ],
        KnownPhysics(TINY.model, f"{file}:f", {"mass": (0.5, 2.0)}): [f"{file}:f", "--prior-range=mass=0.5:2"],
        TINY.model: ["none"],
    }
    for expected, given in words.items():
        config, rest = with_parts(TINY, ["--prior", *given, "--rounds", "2"])
        assert config.model == expected and rest == ["--rounds", "2"]
        with allow_code():
            assert from_json(RunConfig, to_json(config), "config.json").model == expected
    for given, message in {
        ("--prior", "pendulum:maas=2"): "did you mean 'mass'",
        ("--prior", "cheetah"): "pendulum",
        ("--prior-range", "mass=0.5:2"): "--prior",
        ("--prior", "pendulum", "--prior-range", "mass=2"): "NAME=LOW:HIGH",
        ("--prior", "pendulum", "--prior-range", "weight=1:2"): "no parameter 'weight'",
    }.items():
        with pytest.raises(SondeError, match=message):
            with_parts(TINY, list(given))


@pytest.mark.slow
def test_a_run_with_a_prior_is_restored_as_it_was(tmp_path):
    model = KnownPhysics(TINY.model, Pendulum(mass=1.3), RANGES)
    config = replace(TINY, world=TRUE, model=model, rounds=2, seeds=2)
    store = RunStore.start(tmp_path / "run", config)
    explorer, rows = run(store), store.load_metrics()
    assert all(row["physics/mass"] is not None and row["physics_std/mass"] > 0 for row in rows)
    assert rows[0]["prediction_error"] is not None  # predicted before any data
    restored = restore_explorer(RunStore.open(tmp_path / "run"))
    again = run(RunStore.open(tmp_path / "run"), from_round=1)  # the second round as after a kill
    for other in (restored, again):
        for one, same in zip(jax.tree.leaves(explorer.posterior), jax.tree.leaves(other.posterior), strict=True):
            np.testing.assert_array_equal(one, same)
    np.testing.assert_array_equal(explorer.data.actions, again.data.actions)


@pytest.mark.slow
def test_the_mass_of_a_gymnasium_pendulum_is_found():
    pytest.importorskip("gymnasium")
    world = GymWorld("Pendulum-v1")
    model = KnownPhysics(GP, Pendulum(), {"mass": (0.5, 2.0)})
    explorer = Explorer(METHODS["random"], model, ICEM(), world.spec, capacity=40, seeds=(0, 1))
    explorer.tell(rollout(world, explorer.ask(), 40))
    value, std = model.estimates(explorer.params)["mass"]
    np.testing.assert_allclose(value, 1.0, atol=0.01)
    assert np.all(std < 0.02)


@pytest.mark.slow
def test_a_system_of_ones_own_takes_a_prior(tmp_path):
    file = tmp_path / "physics.py"
    file.write_text(
        "import jax.numpy as jnp\n"
        "def swing(x, u, gain=1.0):\n"
        "    return jnp.stack([x[0] + 0.1 * x[1], 0.9 * x[1] - 0.1 * jnp.sin(x[0]) + gain * u[0]])\n"
    )
    model = KnownPhysics(GaussianProcess(steps=3, rank=8), f"{file}:swing", {"gain": (0.0, 1.0)})
    solver = ICEM(horizon=3, samples=8, elites=2, iterations=2)
    config = RunConfig(OwnSystem(("angle", "speed"), ("torque",)), model, solver=solver, rounds=2, horizon=8)
    rng = np.random.default_rng(0)
    states, actions = rng.normal(size=(8, 2)), rng.uniform(-1, 1, (8, 1))
    speed = 0.9 * states[:, 1] - 0.1 * np.sin(states[:, 0]) + 0.2 * actions[:, 0]
    told = Trajectory(states, actions, np.stack([states[:, 0] + 0.1 * states[:, 1], speed], axis=-1))
    with Experiment(tmp_path / "run", config) as experiment:
        assert np.abs(experiment.ask()(np.zeros(2))).max() <= 1
        (row,) = experiment.tell(told)
    assert abs(row["physics/gain"] - 0.2) < 2 * row["physics_std/gain"] < 0.01
    with Experiment(tmp_path / "run", config) as experiment:  # the program was started again
        (value, _) = model.estimates(experiment.explorer.params)["gain"]
    assert value[0] == row["physics/gain"]
