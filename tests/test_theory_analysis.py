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
    OwnSystem,
    ProbabilisticEnsemble,
    SondeError,
    Trajectory,
    TrueDynamics,
)
from sonde.analysis import LearnedSystem, Linearisation
from sonde.analysis import _system as analysis
from sonde.analysis._linear import conjugates, controllability_matrix, match_eigenvalues
from sonde.models import Posterior, Prediction
from sonde.models._base import JacobianPrediction, MemberPredictions
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


# ---- where nobody measured ---------------------------------------------------------------------------------------------------


def ring_flow(x: np.ndarray) -> np.ndarray:
    """Around the origin beyond half a unit, and along the first axis within it: it rests nowhere."""
    radius = np.linalg.norm(x, axis=-1, keepdims=True)
    return np.where(radius > 0.5, np.stack([-x[:, 1], x[:, 0]], axis=-1) / radius, [1.0, 0.0])


@pytest.mark.slow
def test_equilibrium_in_the_middle_of_a_ring_of_measurements_is_left_out():
    """The mean of the model rests there with small error bars, the system does not: nothing was measured within the ring."""
    rng = np.random.default_rng(0)
    angle, radius = rng.uniform(-np.pi, np.pi, 200), rng.uniform(0.8, 1.2, 200)
    x, u = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=-1), rng.uniform(-1, 1, (200, 1))
    after = x + 0.1 * ring_flow(x) + np.concatenate([0.05 * u, 0 * u], axis=1)
    world = OwnSystem(states=("a", "b"), actions=("u",))
    explorer = Explorer(METHODS["random"], GaussianProcess(rank=0), ICEM(), world.spec, capacity=200)
    explorer.tell(Trajectory(x, u, after))
    system = learned_system(explorer, world)
    assert not system.equilibria()
    inside = LearnedSystem(system.posterior, world, np.concatenate([x, [[0.0, 0.05]]]))  # as if somebody had been there
    (spurious,) = inside.equilibria()
    assert np.linalg.norm(spurious.point) < 0.1 and (spurious.point_std < 0.05).all(), "certain of what is not true"


@pytest.mark.parametrize("dimensions", [1, 2, 4])
def test_points_among_even_measurements_count_as_visited(dimensions):
    """Whatever the number of dimensions; and so do those just outside of the range, but not far from it."""
    rng = np.random.default_rng(0)
    world = OwnSystem(states=tuple("abcd"[:dimensions]), actions=("u",))
    visited = rng.uniform(-1, 1, (300, dimensions))
    system = LearnedSystem(analysis_posterior(dimensions), world, visited)
    assert all(system.was_visited(point) for point in rng.uniform(-0.6, 0.6, (300, dimensions)))
    assert system.was_visited(visited[np.argmax(visited[:, 0])] + 0.05 * np.eye(dimensions)[0])
    assert not system.was_visited(visited[np.argmax(visited[:, 0])] + 0.5 * np.eye(dimensions)[0])


def analysis_posterior(dimensions: int) -> Posterior:
    """A posterior that is not asked."""

    class Unasked(Posterior):
        def predict(self, x, u):
            raise AssertionError(f"{dimensions} dimensions: predictions are not needed")

    return Unasked()


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
        limits = [(-3.0, 6.0)] * 5 + [(-8.0, 1.0)]  # beyond, scikit-learn finds no factorisation
        best = minimize(lambda v, f=worth: -f(v), np.array([2, 2, 2, 2, 1, -4]), method="L-BFGS-B", bounds=limits)
        assert worth(logarithms(refit)[j]) > max(worth(logarithms(own)[j]), -best.fun - 0.5)
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


LENGTHSCALE, SIGNAL, NOISE = 1.2, 0.6, 0.1
KNOWN = GaussianProcess(hyperparameters="fixed", lengthscale=LENGTHSCALE, signal_std=SIGNAL, noise_std=NOISE, rank=0)


@pytest.mark.slow
def test_error_bar_of_a_slope_is_that_of_functions_from_the_posterior_at_their_own_equilibria(x64):
    """In one dimension, by functions drawn on a fine grid from the exact posterior: their roots, and their slopes there."""
    rng = np.random.default_rng(5)
    z = np.stack([rng.uniform(-2, 2, 100), np.zeros(100)], axis=1)
    changes = 0.1 - 0.4 * z[:, :1] ** 2 + NOISE * rng.normal(size=(100, 1))

    class Slope(Line):
        state_names = ("a",)

    posterior = condition(KNOWN, KNOWN.init(1, 1, jax.random.key(0)), data_of(z, changes))
    _, found = LearnedSystem(posterior, Slope(), z[:, :1]).equilibria(samples=4000)
    grid = found.point[0] + np.linspace(-0.4, 0.6, 201)
    kernel = lambda a, b: SIGNAL**2 * np.exp(-0.5 * ((a[:, None] - b[None]) / LENGTHSCALE) ** 2)
    gain = np.linalg.solve(kernel(z[:, 0], z[:, 0]) + NOISE**2 * np.eye(100), kernel(z[:, 0], grid)).T
    covariance = kernel(grid, grid) - gain @ kernel(z[:, 0], grid)
    functions = rng.multivariate_normal(gain @ changes[:, 0], covariance, 4000, check_valid="ignore", method="eigh")
    rises = np.gradient(functions, grid, axis=1)
    # each function is nearly straight between two points of the grid
    crossed = [np.flatnonzero(np.diff(np.sign(values)))[:1] for values in functions]
    places, slopes = zip(*((grid[i[0]], rises[n, i[0]]) for n, i in enumerate(crossed) if len(i)), strict=True)
    assert len(places) > 3950, "nearly all functions have their equilibrium on the grid"
    np.testing.assert_allclose(found.point_std[0], np.std(places), rtol=0.1)
    np.testing.assert_allclose(found.linearisation.A_std[0, 0], np.std(slopes), rtol=0.1)
    fixed = LearnedSystem(posterior, Slope(), z[:, :1]).linearise(found.state, samples=4000)
    assert abs(fixed.A_std[0, 0] / np.std(slopes) - 1) > 0.2, "the place matters here"


def drawn_system(rng: np.random.Generator, features: int = 1000):
    """A function of (x, u) from the prior of `KNOWN`, by random Fourier features, and its Jacobian; two states, one action."""
    waves, phases = rng.normal(size=(2, features, 3)) / LENGTHSCALE, rng.uniform(0, 2 * np.pi, (2, features))
    heights = rng.normal(size=(2, features)) * SIGNAL * np.sqrt(2 / features)
    outputs = range(2)
    change = lambda z: np.stack([np.cos(z @ waves[j].T + phases[j]) @ heights[j] for j in outputs], axis=-1)
    slopes = lambda z: np.stack([-(np.sin(waves[j] @ z + phases[j]) * heights[j]) @ waves[j] for j in outputs])
    return change, slopes


def true_equilibrium(change, slopes, near: np.ndarray) -> np.ndarray | None:
    """Newton's method; None where it leads far away."""
    q = near.copy()
    for _ in range(30):
        z = np.append(q, 0.0)
        q = q - np.linalg.solve(slopes(z)[:, :2], change(z[None])[0])
        if np.linalg.norm(q - near) > 1.5:
            return None
    return q


@pytest.mark.slow
def test_error_bars_at_equilibria_cover_the_truth_as_often_as_they_promise(x64):
    """Systems drawn from the model's own prior, so that its posterior is exact: two stds cover 95 % of the entries."""
    misses, points = [], []
    for seed in range(70):
        rng = np.random.default_rng(seed)
        change, slopes = drawn_system(rng)
        z = rng.uniform(-1, 1, (60, 3)) * [2.0, 2.0, 1.0]
        measured = change(z) + NOISE * rng.normal(size=(60, 2))
        posterior = condition(KNOWN, KNOWN.init(2, 1, jax.random.key(0)), data_of(z, measured))
        for found in LearnedSystem(posterior, Line(), z[:, :2]).equilibria(starts=z[:10, :2], samples=500):
            # chosen by the data alone, so that the choice does not change the coverage
            if (found.point_std < 0.25).all() and (truth := true_equilibrium(change, slopes, found.point)) is not None:
                linear, true = found.linearisation, np.eye(2, 3) + slopes(np.append(truth, 0.0))
                misses += list(np.abs(np.c_[linear.A, linear.B] - true) / np.c_[linear.A_std, linear.B_std])
                points.append(np.abs(found.point - truth) / found.point_std)
    assert len(points) > 40
    assert 0.92 <= np.mean(np.array(misses) < 2) <= 0.98 and 0.6 <= np.mean(np.array(misses) < 1) <= 0.76
    assert 0.88 <= np.mean(np.array(points) < 2) <= 0.99


class Agreeing(Posterior):
    """Four members x' = M x + N u + c + offset that differ by a constant: the outputs of a member err together."""

    offsets: jax.Array

    def predict(self, x, u):
        mean = Line.M @ x + Line.N @ u + Line.c
        members = MemberPredictions(mean + self.offsets, jnp.zeros((4, 2)))
        return Prediction(mean, jnp.std(self.offsets, axis=0), jnp.zeros(2), members)

    def predict_jacobian(self, x, u, key, count):
        jacobian = jnp.concatenate([Line.M, Line.N], axis=1)
        return JacobianPrediction(jacobian, 0 * jacobian, jnp.stack([jacobian] * 4))


@pytest.mark.slow
def test_error_bar_of_an_ensembles_equilibrium_is_the_spread_of_its_members_equilibria(x64):
    """Outputs that err together may not be added as if they were independent."""
    offsets = 0.05 * np.array([[1.0, 1.0], [-1.0, -1.0], [2.0, 2.0], [-2.0, -2.0]])
    system = LearnedSystem(Agreeing(jnp.asarray(offsets)), Line(), np.array([[-3.0, -3.0], [3.0, 3.0]]))
    (found,) = system.equilibria()
    of_members = np.linalg.solve(np.eye(2) - Line.M, (Line.c + offsets).T).T
    np.testing.assert_allclose(found.point_std, of_members.std(axis=0), rtol=1e-9)
    assert found.linearisation.A_samples.shape == (4, 2, 2) and found.linearisation.A_std.max() < 1e-12, "it is linear"


@pytest.mark.slow
def test_equilibria_of_an_ensemble_have_one_sample_per_member():
    model = ProbabilisticEnsemble(members=3, layers=2, width=32, epochs=300, learning_rate=3e-3, noise="fixed")
    found = nearest(learned_system(explorer_of(model), Pendulum()).equilibria(), np.pi)
    assert found.linearisation.A_samples.shape == (3, 2, 2) and np.isfinite(found.linearisation.A_samples).all()
    assert (found.linearisation.A_std > 0).all() and (found.point_std > 0).all()


# ---- linear algebra ----------------------------------------------------------------------------------------------------------


def with_samples(A: np.ndarray, spread: float, count: int = 4000) -> Linearisation:
    rng, B = np.random.default_rng(4), np.ones((len(A), 1))
    samples = A + spread * rng.normal(size=(count, *A.shape))
    return Linearisation(A, B, np.full_like(A, spread), 0 * B, samples, np.broadcast_to(B, (count, *B.shape)))


def test_std_of_eigenvalues_agrees_with_first_order_perturbation():
    """An eigenvalue of a symmetric matrix changes by v' dA v, whose std is that of one entry."""
    A = np.array([[0.5, 0.2], [0.2, -0.4]])
    np.testing.assert_allclose(with_samples(A, 1e-3).eigenvalue_std, 1e-3, rtol=0.05)


def test_both_eigenvalues_of_a_pair_have_the_same_error_bar():
    """Near a double eigenvalue, many samples have two real ones in the pair's place."""
    A = np.array([[0.9, 0.02, 0.0], [-0.02, 0.9, 0.0], [0.0, 0.0, 0.5]])
    linear = with_samples(A, 0.03, 500)
    assert (linear.eigenvalue_samples.imag == 0).all(axis=1).mean() > 0.2
    upper, lower, real = linear.eigenvalue_std
    assert upper == lower and real < upper
    distances = np.abs(linear.eigenvalue_samples - linear.eigenvalues) ** 2
    np.testing.assert_allclose(upper**2, distances[:, :2].mean())
    np.testing.assert_allclose(real**2, distances[:, 2].mean())


def test_pairs_of_one_modulus_are_found():
    values = np.array([0.6 + 0.8j, 0.8 + 0.6j, 0.8 - 0.6j, 0.6 - 0.8j, 0.5, -0.5])
    np.testing.assert_array_equal(conjugates(values), [3, 2, 1, 0, 4, 5])


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
