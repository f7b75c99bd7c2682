"""Analysis of learned systems: against the pendulum's closed form, linear systems, and rollouts with small deviations."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from gp_reference import condition, data_of, log_posterior
from sonde import (
    ICEM,
    METHODS,
    Confidence,
    Explorer,
    GaussianProcess,
    ProbabilisticEnsemble,
    SondeError,
    Trajectory,
    TrueDynamics,
)
from sonde.analysis import LearnedSystem, Linearisation
from sonde.analysis import _system as analysis
from sonde.analysis._linear import controllability_matrix, match_eigenvalues
from sonde.runs._analysis import REFIT_PRIOR, learned_system, refitted
from sonde.theory import one_seed
from sonde.worlds import JaxWorld, Pendulum

DT = 0.05


def closed_form(theta: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A, B and eigenvalues of thdot' = thdot + dt (15 sin th + 6 u), th' = th + dt thdot'."""
    pull = 15 * np.cos(theta) * DT
    A, B = np.array([[1 + DT * pull, DT], [pull, 1.0]]), np.array([[6 * DT**2], [6 * DT]])
    root = np.sqrt(np.trace(A) ** 2 - 4 + 0j)  # the determinant is 1
    return A, B, np.array([np.trace(A) + root, np.trace(A) - root]) / 2


def turned(a: float, b: float) -> float:
    """The angle between two angles."""
    return abs(np.angle(np.exp(1j * (a - b))))


def nearest(equilibria, theta: float):
    return min(equilibria, key=lambda found: turned(found.point[0], theta))


def swings(count: int = 7) -> np.ndarray:
    angles, speeds = np.meshgrid(np.linspace(-np.pi, np.pi, 9), np.linspace(-6, 6, count))
    return np.stack([np.cos(angles), np.sin(angles), speeds], axis=-1).reshape(-1, 3)


@pytest.fixture(scope="module")
def true_pendulum() -> LearnedSystem:
    return LearnedSystem(TrueDynamics(Pendulum()), Pendulum(), swings())


@pytest.mark.slow
@pytest.mark.parametrize("u", [0.0, 0.5])
def test_equilibria_of_the_true_pendulum_agree_with_the_closed_form(true_pendulum, u):
    """Under a constant torque they are tilted."""
    equilibria = true_pendulum.equilibria([u])
    assert len(equilibria) == 2
    tilt = np.arcsin(6 * u / 15)
    for theta in (-tilt, np.pi + tilt):
        found, (A, B, eigenvalues) = nearest(equilibria, theta), closed_form(theta)
        np.testing.assert_allclose(found.state, [np.cos(theta), np.sin(theta), 0], atol=1e-6)
        assert turned(found.point[0], theta) < 1e-6 and abs(found.point[0]) <= np.pi
        np.testing.assert_allclose(found.linearisation.A, A, atol=1e-6)
        np.testing.assert_allclose(found.linearisation.B, B, atol=1e-6)
        np.testing.assert_allclose(found.linearisation.eigenvalues, eigenvalues, atol=1e-6)
        assert not found.point_std.any() and not found.linearisation.A_std.any()
        control = found.linearisation.controllability
        singular = np.linalg.svd(np.concatenate([B, A @ B], axis=1), compute_uv=False)
        np.testing.assert_allclose(control.smallest, singular[-1], rtol=1e-5)
        assert control.rank == 2 and control.std == 0
    assert nearest(equilibria, 0.0).linearisation.stability == "unstable"
    assert nearest(equilibria, np.pi).linearisation.stability == "undecided", "without friction it swings forever"


def test_linearisation_at_any_state_agrees_with_the_closed_form(true_pendulum):
    theta, speed = 0.7, -2.0
    linear = true_pendulum.linearise(np.array([np.cos(theta), np.sin(theta), speed]), [0.3])
    A, B, _ = closed_form(theta)
    np.testing.assert_allclose(linear.A, A, atol=1e-9)
    np.testing.assert_allclose(linear.B, B, atol=1e-9)


def test_sensitivity_agrees_with_rollouts_from_neighbouring_states(true_pendulum):
    """Rollouts that start a small distance apart, in angle and in speed."""
    rng, step = np.random.default_rng(0), jax.jit(Pendulum().dynamics)
    actions = rng.uniform(-1, 1, (30, 1))

    def rolled(theta, speed):
        states = [np.array([np.cos(theta), np.sin(theta), speed])]
        with jax.enable_x64(True):
            for u in actions:
                states.append(np.asarray(step(jnp.asarray(states[-1]), jnp.asarray(u))))
        return np.stack(states)

    coordinates = lambda states: np.stack([np.unwrap(np.arctan2(states[:, 1], states[:, 0])), states[:, 2]], axis=-1)
    centre, eps = rolled(2.0, 1.0), 1e-6
    moved = [rolled(2.0 + eps * a, 1.0 + eps * b) for a, b in np.eye(2)]
    deviations = [(coordinates(states) - coordinates(centre)) / eps for states in moved]
    grown = true_pendulum.sensitivity(centre[:-1], actions)
    for t in (1, 10, 30):
        product = np.stack([deviation[t] for deviation in deviations], axis=1)
        np.testing.assert_allclose(grown.growth[t - 1], np.linalg.svd(product, compute_uv=False), rtol=1e-4)
    np.testing.assert_allclose(grown.rate, np.log(grown.growth[-1, 0]) / 30)


# ---- learned systems ---------------------------------------------------------------------------------------------------------


def explorer_of(model, count: int = 250, confidence: Confidence | None = None) -> Explorer:
    """An explorer that was told random transitions of the pendulum."""
    rng, world = np.random.default_rng(1), Pendulum()
    theta, speed = rng.uniform(-np.pi, np.pi, count), rng.uniform(-5, 5, count)
    x, u = np.stack([np.cos(theta), np.sin(theta), speed], axis=-1), rng.uniform(-1, 1, (count, 1))
    with jax.enable_x64(True):
        after = np.asarray(jax.jit(jax.vmap(world.dynamics))(jnp.asarray(x), jnp.asarray(u)))
    explorer = Explorer(METHODS["random"], model, ICEM(), world.spec, capacity=count, confidence=confidence)
    explorer.tell(Trajectory(x, u, after))
    return explorer


@pytest.mark.slow
def test_learned_pendulum_has_the_equilibria_of_the_true_one():
    system = learned_system(explorer_of(GaussianProcess(rank=256)), Pendulum())
    equilibria = system.equilibria()
    assert len(equilibria) == 2
    for theta in (0.0, np.pi):
        found, (A, _, eigenvalues) = nearest(equilibria, theta), closed_form(theta)
        assert turned(found.point[0], theta) < 0.02
        np.testing.assert_allclose(found.linearisation.eigenvalues, eigenvalues, rtol=0.05)
        # the stds cover the errors, and are not much larger than necessary
        assert turned(found.point[0], theta) < 3 * found.point_std[0] < 0.3
        misses = np.abs(found.linearisation.eigenvalues - eigenvalues) / found.linearisation.eigenvalue_std
        assert (misses < 3).all() and (found.linearisation.eigenvalue_std < 0.1).all()
        assert (np.abs(found.linearisation.A - A) < 4 * found.linearisation.A_std).all()
    assert nearest(equilibria, 0.0).linearisation.stability == "unstable"


@pytest.mark.slow
def test_refit_uses_all_measurements_and_is_as_good_as_scipy(x64):
    """Held-out measurements too; the explorer itself is not changed."""
    explorer = explorer_of(GaussianProcess(rank=128), 80, Confidence(holdout=0.3, recalibrate=True))
    own, refit, data = one_seed(explorer.posterior).posterior, refitted(explorer), one_seed(explorer.data)
    wide = GaussianProcess(lengthscale_prior=(10.0, REFIT_PRIOR), signal_prior=(3.0, REFIT_PRIOR))
    z, changes = np.asarray(data.inputs()), np.asarray(data.targets())

    def logarithms(posterior) -> np.ndarray:
        """Logarithms of length-scales, signal std and the learned part of the noise std [dx, dz + 2]."""
        free_noise = jnp.sqrt(posterior.noise_std**2 - wide.noise_floor**2)
        return np.log(np.c_[posterior.lengthscales, posterior.signal_std, free_noise])

    for j, target in enumerate(changes.T):
        worth = lambda v, t=target: log_posterior(wide, (v[None, :4], v[4:5], v[5:]), z, t[:, None])[0]
        best = minimize(lambda v, f=worth: -f(v), np.zeros(6) - [0, 0, 0, 0, 0, 4], method="L-BFGS-B")
        assert worth(logarithms(refit)[j]) > max(worth(logarithms(own)[j]) + 5, -best.fun - 0.5)
    np.testing.assert_allclose(refit.targets.shift, changes.mean(axis=0))


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [GaussianProcess(hyperparameters="fixed"), ProbabilisticEnsemble(members=2, layers=1, width=4, epochs=1)],
    ids=["fixed", "ensemble"],
)
def test_refit_of_other_models_is_rejected(model):
    with pytest.raises(SondeError, match=r"only Gaussian processes with learned hyper-parameters .*; leave out refit"):
        learned_system(explorer_of(model, 20), Pendulum(), refit=True)


@pytest.mark.slow
def test_linearisation_of_an_ensemble_has_one_sample_per_member():
    model = ProbabilisticEnsemble(members=3, layers=2, width=32, epochs=300, learning_rate=3e-3, noise="fixed")
    system = learned_system(explorer_of(model), Pendulum())
    linear = system.linearise(np.array([-1.0, 0.0, 0.0]))
    assert linear.A_samples.shape == (3, 2, 2)
    np.testing.assert_allclose(linear.A, closed_form(np.pi)[0], atol=0.15)
    np.testing.assert_allclose(linear.A_std, linear.A_samples.std(axis=0))
    assert (linear.A_std > 0).all()


@pytest.mark.slow
def test_equilibria_far_from_all_measurements_are_left_out(monkeypatch):
    """Far from its data a Gaussian process predicts that the state stays, so every state would be an equilibrium."""
    rng, world = np.random.default_rng(2), Pendulum()
    theta, speed = np.pi + rng.uniform(-0.5, 0.5, 80), rng.uniform(-1, 1, 80)
    x, u = np.stack([np.cos(theta), np.sin(theta), speed], axis=-1), rng.uniform(-1, 1, (80, 1))
    with jax.enable_x64(True):
        after = np.asarray(jax.vmap(world.dynamics)(jnp.asarray(x), jnp.asarray(u)))
    model = GaussianProcess(hyperparameters="fixed", rank=0, noise_std=0.001)
    explorer = Explorer(METHODS["random"], model, ICEM(), world.spec, capacity=80)
    explorer.tell(Trajectory(x, u, after))
    system = learned_system(explorer, world)
    (hanging,) = system.equilibria(starts=swings())
    assert turned(hanging.point[0], np.pi) < 0.02
    monkeypatch.setattr(analysis, "MAX_POINT_STD", np.inf)
    monkeypatch.setattr(analysis, "RANGE_MARGIN", np.inf)
    others = [found for found in system.equilibria(starts=swings()) if turned(found.point[0], np.pi) > 0.02]
    assert others and all((found.point_std > system.spread).any() for found in others)


@dataclass(frozen=True)
class Line(JaxWorld):
    """x' = M x + N u + c."""

    state_names = ("a", "b")
    action_names = ("u",)
    M, N, c = np.array([[0.8, 0.3], [-0.1, 0.7]]), np.array([[0.0], [1.0]]), np.array([0.2, -0.1])

    def reset(self, key):
        return jnp.zeros(2)

    def dynamics(self, x, u):
        return self.M @ x + self.N @ u + self.c

    def step(self, x, u, key):
        return self.dynamics(x, u)

    def reachable_points(self):
        return np.zeros((1, 2)), np.zeros((1, 1))


@pytest.mark.slow
def test_equilibrium_and_growth_of_a_linear_system():
    system = LearnedSystem(TrueDynamics(Line()), Line(), np.array([[-3.0, -3.0], [3.0, 3.0]]))
    (found,) = system.equilibria([0.5])
    np.testing.assert_allclose(found.point, np.linalg.solve(np.eye(2) - Line.M, Line.N @ [0.5] + Line.c), atol=1e-9)
    np.testing.assert_allclose(found.linearisation.A, Line.M, atol=1e-12)
    assert found.linearisation.stability == "stable"
    grown = system.sensitivity(np.zeros((6, 2)), np.zeros((6, 1)))
    for t in range(6):
        expected = np.linalg.svd(np.linalg.matrix_power(Line.M, t + 1), compute_uv=False)
        np.testing.assert_allclose(grown.growth[t], expected, rtol=1e-9)


@pytest.mark.slow
def test_std_of_an_equilibrium_by_hand(x64):
    """In one dimension: the std of the change there, divided by its slope."""
    rng = np.random.default_rng(3)
    z = np.stack([rng.uniform(-2, 2, 15), np.zeros(15)], axis=1)
    changes = 0.3 - 0.5 * z[:, :1] + 0.05 * np.sin(3 * z[:, :1])
    model = GaussianProcess(hyperparameters="fixed", noise_std=0.1, rank=0)
    posterior = condition(model, model.init(1, 1, jax.random.key(0)), data_of(z, changes))

    class Slope(Line):
        state_names = ("a",)

    (found,) = LearnedSystem(posterior, Slope(), z[:, :1]).equilibria()
    predict = jax.jit(lambda x: posterior.predict(x, jnp.zeros(1)))
    prediction = predict(jnp.asarray(found.state))
    np.testing.assert_allclose(prediction.mean, found.state, atol=1e-6)
    slope = (predict(jnp.asarray(found.state + 1e-4)).mean - predict(jnp.asarray(found.state - 1e-4)).mean) / 2e-4 - 1
    np.testing.assert_allclose(found.point_std, np.abs(prediction.epistemic_std / slope), rtol=1e-5)


# ---- linear algebra ----------------------------------------------------------------------------------------------------------


def with_samples(A: np.ndarray, spread: float, count: int = 4000) -> Linearisation:
    rng, B = np.random.default_rng(4), np.ones((len(A), 1))
    samples = A + spread * rng.normal(size=(count, *A.shape))
    return Linearisation(A, B, np.full_like(A, spread), 0 * B, samples, np.broadcast_to(B, (count, *B.shape)))


def test_std_of_eigenvalues_agrees_with_first_order_perturbation():
    """An eigenvalue of a symmetric matrix changes by v' dA v, whose std is that of one entry."""
    A = np.array([[0.5, 0.2], [0.2, -0.4]])
    np.testing.assert_allclose(with_samples(A, 1e-3).eigenvalue_std, 1e-3, rtol=0.05)


@pytest.mark.parametrize(("largest", "verdict"), [(0.9, "stable"), (0.99, "undecided"), (1.01, "undecided"), (1.1, "unstable")])
def test_stability_is_decided_only_if_nearly_all_samples_agree(largest, verdict):
    assert with_samples(np.diag([largest, 0.3]), 0.03).stability == verdict


def test_controllability_of_a_system_with_an_unreachable_direction():
    A, B = np.diag([0.5, 0.8, 0.2]), np.array([[1.0], [1.0], [0.0]])
    zeros = np.zeros_like
    control = Linearisation(A, B, zeros(A), zeros(B), A[None], B[None]).controllability
    assert control.rank == 2 and control.smallest < 1e-12
    np.testing.assert_array_equal(controllability_matrix(A, B), [[1, 0.5, 0.25], [1, 0.8, 0.8**2], [0, 0, 0]])


def test_eigenvalues_are_matched_to_the_nearest():
    reference = np.array([1.0, 0.5 + 0.5j, 0.5 - 0.5j])
    values = np.array([0.4 - 0.6j, 1.1, 0.6 + 0.4j])
    np.testing.assert_array_equal(match_eigenvalues(reference, values), [1.1, 0.6 + 0.4j, 0.4 - 0.6j])


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (lambda s: s.equilibria([2.0]), r"action must be 1 numbers in \[-1, 1\], got \[2.0\]"),
        (lambda s: s.equilibria(starts=np.zeros((3, 2))), r"starts must be finite, of shape \[N, 3\], got shape \[3, 2\]"),
        (lambda s: s.linearise(np.array([np.nan, 0, 0])), "state must be finite"),
        (lambda s: s.linearise(np.zeros(3), samples=0), "samples must be a whole number above 0"),
        (lambda s: s.sensitivity(np.ones((3, 3)), np.zeros((2, 1))), r"actions must be finite, of shape \[3, 1\]"),
        (lambda s: LearnedSystem(s.posterior, s.world, np.zeros((0, 3))), "visited states must be finite"),
    ],
)
def test_invalid_input_is_rejected(true_pendulum, work, message):
    with pytest.raises(SondeError, match=message):
        work(true_pendulum)


@pytest.mark.slow
def test_explorer_without_measurements_is_rejected():
    explorer = Explorer(METHODS["random"], GaussianProcess(), ICEM(), Pendulum().spec, capacity=5)
    with pytest.raises(SondeError, match="no measurements yet"):
        learned_system(explorer, Pendulum())
