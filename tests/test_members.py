"""Imaginations, objectives and methods on an ensemble of two members whose predictions can be worked out by hand."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import trapezoid
from scipy.stats import norm

from sonde import METHODS, Explorer, GaussianProcess, RunConfig, SondeError
from sonde.data import SystemSpec
from sonde.imagination import Mean, MemberChoice, MemberTrajectories, NoiseDraws, Optimistic, TrajectorySampling
from sonde.models import MemberPredictions, Posterior, Prediction
from sonde.objectives import (
    Imagined,
    InformationGain,
    JensenRenyi,
    LogUncertainty,
    TaskPlusInformation,
    TaskPlusUncertainty,
    TaskReward,
    TrajectoryDisagreement,
    UncertaintySum,
    jensen_renyi,
)
from sonde.solvers import ControlProblem
from tiny import TINY


def predictions(x, u) -> MemberPredictions:
    """Member 0 predicts (x0 + u, 2 x1) with noise (1, 14 |x1|), member 1 predicts (x0 + 3u, 4 x1) with noise (7, 2 |x1|)."""
    means = jnp.stack([jnp.stack([x[0] + u[0], 2 * x[1]]), jnp.stack([x[0] + 3 * u[0], 4 * x[1]])])
    height = jnp.abs(x[1])
    return MemberPredictions(
        means, jnp.stack([jnp.stack([1 + 0 * height, 14 * height]), jnp.stack([7 + 0 * height, 2 * height])])
    )


class Two(Posterior):
    """Mean and std of the two means are (x0 + 2u, 3 x1) and (|u|, |x1|); sqrt((1 + 49) / 2) = 5, sqrt((196 + 4) / 2) = 10."""

    @property
    def ensemble_size(self):
        return 2

    def predict(self, x, u):
        height = jnp.abs(x[1])
        mean = jnp.stack([x[0] + 2 * u[0], 3 * x[1]])
        aleatoric = jnp.stack([5 + 0 * height, 10 * height])
        return Prediction(mean, jnp.stack([jnp.abs(u[0]), height]), aleatoric, predictions(x, u))

    def member(self, index):
        return Alone(index % 2)


class Alone(Posterior):
    """One of the two."""

    index: jax.Array

    def predict(self, x, u):
        members = predictions(x, u)
        return Prediction(members.means[self.index], jnp.zeros(2), members.stds[self.index])


# at x = (10, -2), u = 0.5: means (10.5, -4) and (11.5, -8), stds (1, 28) and (7, 4), together (11, -6), (0.5, 2), (5, 20)
X, U = np.array([10.0, -2.0]), np.array([0.5])
MEANS, STDS = np.array([[10.5, -4.0], [11.5, -8.0]]), np.array([[1.0, 28.0], [7.0, 4.0]])
# draws of the aleatoric and the epistemic kind, as numbers that are exact in binary
NOISE, EPISTEMIC = np.array([2.0, -0.5]), np.array([-1.0, 3.0])


def next_state(imagination, extra=(), member=0.0, particle=0, posterior=None) -> np.ndarray:
    """One step of one particle, with the draws above."""
    adopted = imagination.adopt(posterior or Two(), jnp.asarray(particle))
    draws = NoiseDraws(jnp.asarray(NOISE), jnp.asarray(EPISTEMIC), jnp.asarray(member))
    return np.asarray(imagination.next_state(adopted.predict(jnp.asarray(X), jnp.asarray(U)), jnp.array(extra, float), draws))


def plan(imagination, actions, *, extras=None, particles=3, seed=0, x=(0.0, 1.0)) -> Imagined:
    """An imagined plan from `x`."""
    problem = ControlProblem(Two(), replace(imagination, particles=particles), InformationGain(), 2, 1)
    controls = np.asarray(actions, float)[:, None]
    if extras is not None:
        controls = np.concatenate([controls, extras], axis=1)
    return eqx.filter_jit(problem.imagine)(jnp.array(x), jnp.asarray(controls), jax.random.key(seed))


def test_predictions_of_the_toy_ensemble_are_consistent(x64):
    """All tests below depend on it."""
    prediction = Two().predict(jnp.asarray(X), jnp.asarray(U))
    np.testing.assert_array_equal(prediction.members.means, MEANS)
    np.testing.assert_array_equal(prediction.members.stds, STDS)
    np.testing.assert_array_equal(prediction.mean, MEANS.mean(axis=0))
    np.testing.assert_array_equal(prediction.epistemic_std, MEANS.std(axis=0))
    np.testing.assert_array_equal(prediction.aleatoric_std, np.sqrt((STDS**2).mean(axis=0)))


# ---- one step ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beta, expected", [(0.0, [11.0, -6.0]), (1.0, [10.75, -4.0]), (2.0, [10.5, -2.0])])
def test_optimistic_moves_from_the_mean_along_eta(x64, beta, expected):
    """(11, -6) + beta (0.5, 2) (-0.5, 1); noise is that of the whole ensemble, (5, 20) (2, -0.5) = (10, -10)."""
    np.testing.assert_array_equal(next_state(Optimistic(beta=beta), (-0.5, 1.0)), expected)
    noisy = next_state(Optimistic(beta=beta, noise=True), (-0.5, 1.0))
    np.testing.assert_array_equal(noisy, np.add(expected, [10, -10]))


def test_mean_ignores_disagreement_of_the_members(x64):
    np.testing.assert_array_equal(next_state(Mean(), member=0.9), [11, -6])
    np.testing.assert_array_equal(next_state(Mean(noise=True), member=0.9), [21, -16])


@pytest.mark.parametrize("member, chosen", [(0.0, 0), (0.49, 0), (0.5, 1), (0.999, 1)])
def test_trajectory_sampling_follows_the_member_that_is_drawn(x64, member, chosen):
    """With the noise of that member: (1, 28) or (7, 4), times (2, -0.5)."""
    np.testing.assert_array_equal(next_state(TrajectorySampling(), member=member), MEANS[chosen])
    noisy = next_state(TrajectorySampling(noise=True), member=member)
    np.testing.assert_array_equal(noisy, [[12.5, -18], [25.5, -10]][chosen])


def test_trajectory_sampling_without_members_draws_from_the_gaussian(x64):
    """(11, -6) + (0.5, 2) (-1, 3) = (10.5, 0); with the noise of the whole ensemble."""

    class WithoutMembers(Posterior):
        def predict(self, x, u):
            prediction = Two().predict(x, u)
            return Prediction(prediction.mean, prediction.epistemic_std, prediction.aleatoric_std)

    np.testing.assert_array_equal(next_state(TrajectorySampling(), posterior=WithoutMembers()), [10.5, 0])
    np.testing.assert_array_equal(next_state(TrajectorySampling(noise=True), posterior=WithoutMembers()), [20.5, -10])


@pytest.mark.parametrize("particle", range(4))
def test_particles_of_member_trajectories_follow_members_in_turn(x64, particle):
    """Whatever member is drawn; with the noise of their own member."""
    for member in (0.0, 0.9):
        np.testing.assert_array_equal(next_state(MemberTrajectories(), member=member, particle=particle), MEANS[particle % 2])
        noisy = next_state(MemberTrajectories(noise=True), member=member, particle=particle)
        np.testing.assert_array_equal(noisy, [[12.5, -18], [25.5, -10]][particle % 2])


@pytest.mark.parametrize("choice, chosen", [(-1.0, 0), (-0.01, 0), (0.0, 1), (0.6, 1), (1.0, 1)])
def test_extra_control_of_member_choice_chooses_the_member(x64, choice, chosen):
    """[-1, 0) is member 0 and [0, 1] is member 1."""
    np.testing.assert_array_equal(next_state(MemberChoice(), (choice,), member=0.2), MEANS[chosen])
    np.testing.assert_array_equal(next_state(MemberChoice(noise=True), (choice,)), [[12.5, -18], [25.5, -10]][chosen])


def test_member_choice_divides_the_control_evenly_among_members(x64):
    """Five members predict 0 ... 4: one fifth of [-1, 1] each."""
    means = jnp.arange(5.0)[:, None]
    prediction = Prediction(jnp.zeros(1), jnp.ones(1), jnp.ones(1), MemberPredictions(means, jnp.ones((5, 1))))
    draws = NoiseDraws(jnp.zeros(1), jnp.zeros(1), jnp.asarray(0.0))
    choices = [-1.0, -0.61, -0.59, -0.21, -0.19, 0.0, 0.19, 0.21, 0.59, 0.61, 1.0]
    chosen = [float(MemberChoice().next_state(prediction, jnp.array([choice]), draws)[0]) for choice in choices]
    assert chosen == [0, 0, 1, 1, 2, 2, 2, 3, 3, 4, 4]


# ---- whole plans -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "imagination, extras, expected",
    [
        # from (0, 1) with u = 1, then -0.5
        (Mean(), None, [[2, 3], [1, 9]]),
        # eta (1, -1), then (0, 0.5): (2 + 2, 3 - 2), then (4 - 1, 3 + 2 * 1 * 0.5)
        (Optimistic(beta=2.0), [[1, -1], [0, 0.5]], [[4, 1], [3, 4]]),
        # member 1, then 0
        (MemberChoice(), [[0.3], [-0.3]], [[3, 4], [2.5, 8]]),
    ],
)
def test_plan_of_two_steps_by_hand(x64, imagination, extras, expected):
    imagined = plan(imagination, [1, -0.5], extras=extras)
    np.testing.assert_array_equal(imagined.next_states, [expected])
    np.testing.assert_array_equal(imagined.states, [[[0, 1], expected[0]]])
    np.testing.assert_array_equal(imagined.actions, [[1], [-0.5]])


def test_trajectory_sampling_draws_a_member_per_step_and_particle(x64):
    """All 2^3 sequences of members occur equally often, and no other trajectory does: it is TS-1, not TS-inf or an average."""
    count, actions = 4000, np.array([1.0, -0.5, 0.25])
    imagined = plan(TrajectorySampling(), actions, particles=count)
    states, next_states = np.asarray(imagined.states), np.asarray(imagined.next_states)
    assert next_states.shape == (count, 3, 2)
    by_0 = states * [1, 2] + np.stack([actions, 0 * actions], axis=1)
    by_1 = states * [1, 4] + np.stack([3 * actions, 0 * actions], axis=1)
    is_0, is_1 = (next_states == by_0).all(axis=-1), (next_states == by_1).all(axis=-1)
    assert np.all(is_0 ^ is_1)
    sequences = np.bincount(is_1 @ [4, 2, 1], minlength=8)
    assert np.all(np.abs(sequences - count / 8) < 5 * np.sqrt(count / 8))


@pytest.mark.parametrize(
    "particles, ensemble_size, noiseless, noisy", [(3, 2, 2, 4), (4, 2, 2, 4), (1, 2, 2, 2), (10, 5, 5, 10), (11, 5, 5, 15)]
)
def test_number_of_simulated_particles(particles, ensemble_size, noiseless, noisy):
    """Member trajectories follow all members equally often; where all particles would agree, one is simulated."""
    assert MemberTrajectories(particles=particles).simulated_particles(ensemble_size) == noiseless
    assert MemberTrajectories(noise=True, particles=particles).simulated_particles(ensemble_size) == noisy
    assert TrajectorySampling(particles=particles).simulated_particles(ensemble_size) == particles
    assert MemberChoice(particles=particles).simulated_particles(ensemble_size) == 1
    assert MemberChoice(noise=True, particles=particles).simulated_particles(ensemble_size) == particles


def test_particle_follows_its_member_through_the_whole_plan(x64):
    imagined = plan(MemberTrajectories(), [1, -0.5, 0.25], particles=1)
    np.testing.assert_array_equal(
        imagined.next_states, [[[1, 2], [0.5, 4], [0.75, 8]], [[3, 4], [1.5, 16], [2.25, 64]]], err_msg="0, 0, 0 and 1, 1, 1"
    )
    # the objective gets the prediction of the whole ensemble in the states of each particle
    np.testing.assert_array_equal(imagined.predictions.epistemic_std[:, 1], [[0.5, 2], [0.5, 4]])
    np.testing.assert_array_equal(imagined.predictions.mean[:, 1], [[0, 6], [2, 12]])


@pytest.mark.slow
def test_particles_have_the_noise_of_their_members(x64):
    """First step from (0, 1), u = 1: means (1, 2) and (3, 4), stds (1, 14) and (7, 2)."""
    count = 20_000
    imagined = plan(MemberTrajectories(noise=True), [1], particles=count)
    next_states = np.asarray(imagined.next_states)[:, 0]
    assert next_states.shape == (count, 2)
    for member, mean, std in [(0, [1, 2], [1, 14]), (1, [3, 4], [7, 2])]:
        own = next_states[member::2]
        np.testing.assert_allclose(own.std(axis=0), std, rtol=5 / np.sqrt(count))
        assert np.all(np.abs(own.mean(axis=0) - mean) < 5 * np.array(std) / np.sqrt(count / 2))


# ---- objectives --------------------------------------------------------------------------------------------------------------


def test_objectives_of_a_plan_by_hand(x64):
    """TS-inf from (0, 1) with u = 1, then -0.5: particle 0 is at (1, 2), particle 1 at (3, 4) at the start of the second step.

    Epistemic stds (|u|, |x1|): (1, 1), then (0.5, 2) and (0.5, 4). Aleatoric stds (5, 10 |x1|): (5, 10), then (5, 20) and
    (5, 40). The next states are (1, 2) and (3, 4), then (0.5, 4) and (1.5, 16).
    """
    imagined = plan(MemberTrajectories(), [1, -0.5])

    def rewards(objective):
        return np.asarray(jax.jit(objective.rewards)(imagined))

    information = [0.5 * (np.log(1 + 1 / 25) + np.log(1.01)), 0.5 * (np.log(1 + 0.25 / 25) + np.log(1.01))]
    np.testing.assert_allclose(rewards(InformationGain()), [information, information], rtol=1e-12)
    np.testing.assert_allclose(rewards(UncertaintySum()), [[2, 0.25 + 4], [2, 0.25 + 16]], rtol=1e-12)
    logarithms = [[2 * np.log(5), np.log(4.25) + np.log(8)], [2 * np.log(5), np.log(4.25) + np.log(20)]]
    np.testing.assert_allclose(rewards(LogUncertainty(epsilon=2.0)), logarithms, rtol=1e-12)
    # |a - b| / sqrt(2) is the unbiased std of two numbers: of (1, 3) and (2, 4), then of (0.5, 1.5) and (4, 16)
    np.testing.assert_allclose(rewards(TrajectoryDisagreement()), [np.array([2 + 2, 1 + 12]) / np.sqrt(2)], rtol=1e-12)
    # x1 u + x0', from x1 = 1, then 2 and 4
    task = TaskReward(lambda x, u, x_next: x[1] * u[0] + x_next[0])
    np.testing.assert_allclose(rewards(task), [[1 + 1, -1 + 0.5], [1 + 3, -2 + 1.5]], rtol=1e-12)


def test_disagreement_is_between_members_and_not_between_particles(x64):
    """Four particles of two members, (1, 5) and (5, 11): the means 3 and 8 have an unbiased std of 5 / sqrt(2)."""
    next_states = jnp.asarray([[[1.0]], [[5.0]], [[5.0]], [[11.0]]])  # members 0, 1, 0, 1
    nothing = jnp.zeros((4, 1, 1))
    predictions = Prediction(nothing, nothing, nothing, MemberPredictions(jnp.zeros((4, 1, 2, 1)), jnp.zeros((4, 1, 2, 1))))
    imagined = Imagined(nothing, jnp.zeros((1, 1)), next_states, predictions)
    np.testing.assert_allclose(TrajectoryDisagreement().rewards(imagined), [[5 / np.sqrt(2)]], rtol=1e-12)


def test_information_gain_uses_the_noise_of_each_state(x64):
    """Two states with the same epistemic std: the noisier one gives less information."""
    shape = lambda *rows: jnp.array(rows)[None]
    prediction = Prediction(jnp.zeros((1, 2, 2)), shape([3.0, 1.0], [3.0, 1.0]), shape([1.0, 1.0], [3.0, 0.5]))
    imagined = Imagined(jnp.zeros((1, 2, 2)), jnp.zeros((2, 1)), jnp.zeros((1, 2, 2)), prediction)
    np.testing.assert_allclose(
        InformationGain().rewards(imagined), [[0.5 * (np.log(10) + np.log(2)), 0.5 * (np.log(2) + np.log(5))]], rtol=1e-12
    )


def test_jensen_renyi_objective_by_hand(x64):
    """Two members with equal stds s and means d apart, per dimension: log 2 - log(1 + exp(-sum d^2 / 4 s^2))."""
    means = np.array([[[[0.0, 1.0], [2.0, 1.0]]], [[[0.0, 0.0], [1.0, 4.0]]]])  # [K = 2, H = 1, E = 2, dx = 2]
    stds = np.broadcast_to([0.5, 2.0], means.shape)
    members = MemberPredictions(jnp.asarray(means), jnp.asarray(stds))
    zeros = jnp.zeros((2, 1, 2))
    imagined = Imagined(zeros, jnp.zeros((1, 1)), zeros, Prediction(zeros, zeros, zeros, members))
    # particle 0: 4 / (4 * 0.25) = 4; particle 1: 1 / (4 * 0.25) + 16 / (4 * 4) = 2
    expected = [[np.log(2) - np.log(1 + np.exp(-4))], [np.log(2) - np.log(1 + np.exp(-2))]]
    np.testing.assert_allclose(jax.jit(JensenRenyi().rewards)(imagined), expected, rtol=1e-12)


@pytest.mark.parametrize(
    "means, stds",
    [
        ([[0.0], [1.5]], [[0.7], [0.4]]),
        ([[0.0], [1.5], [-2.0]], [[0.7], [0.4], [1.1]]),
        ([[0.0, 1.0], [1.2, -0.5]], [[0.6, 0.9], [1.0, 0.5]]),
        ([[0.0, 1.0], [1.2, -0.5], [0.4, 0.3]], [[0.6, 0.9], [1.0, 0.5], [0.8, 0.7]]),
    ],
)
def test_jensen_renyi_agrees_with_numerical_integration(x64, means, stds):
    means, stds = np.array(means), np.array(stds)
    axis, dims = np.linspace(-8, 8, 401), means.shape[1]
    points = np.stack(np.meshgrid(*[axis] * dims, indexing="ij"), axis=-1)
    densities = [norm.pdf(points, mean, std).prod(axis=-1) for mean, std in zip(means, stds, strict=True)]

    def entropy(density) -> float:
        """Renyi entropy of order 2; the trapezoidal rule is exact for smooth functions that vanish at the ends."""
        integral = density**2
        for _ in range(dims):
            integral = trapezoid(integral, axis, axis=-1)
        return -np.log(integral)

    expected = entropy(np.mean(densities, axis=0)) - np.mean([entropy(density) for density in densities])
    assert expected > 0.05
    np.testing.assert_allclose(
        jax.jit(jensen_renyi)(MemberPredictions(jnp.asarray(means), jnp.asarray(stds))), expected, rtol=1e-10
    )


def test_jensen_renyi_of_equal_members_is_zero(x64):
    members = MemberPredictions(
        jnp.broadcast_to(jnp.array([1.0, -2.0]), (4, 2)), jnp.broadcast_to(jnp.array([0.3, 5.0]), (4, 2))
    )
    np.testing.assert_allclose(jax.jit(jensen_renyi)(members), 0, atol=1e-14)


def test_jensen_renyi_is_at_most_the_logarithm_of_the_number_of_members(x64):
    """Also for members very far apart: nothing overflows."""
    members = MemberPredictions(jnp.array([[0.0], [1e3], [-1e6]]), jnp.full((3, 1), 1e-3))
    np.testing.assert_allclose(jax.jit(jensen_renyi)(members), np.log(3), rtol=1e-12)


# ---- recalibration -----------------------------------------------------------------------------------------------------------


def test_rescaled_members_agree_with_the_rescaled_prediction(x64):
    """Mean and std of the members stay those of the prediction, and the order of the members does not change."""
    rng = np.random.default_rng(0)
    means, stds = rng.normal(size=(6, 4, 3)), rng.uniform(0.1, 1, (6, 4, 3))
    whole = (means.mean(axis=1), means.std(axis=1), np.sqrt((stds**2).mean(axis=1)))
    prediction = Prediction(*map(jnp.asarray, whole), MemberPredictions(jnp.asarray(means), jnp.asarray(stds)))
    epistemic, aleatoric = np.array([0.5, 1.0, 3.0]), np.array([2.0, 0.1, 1.0])
    rescaled = prediction.rescaled(jnp.asarray(epistemic), jnp.asarray(aleatoric))
    assert rescaled.members is not None
    np.testing.assert_array_equal(rescaled.mean, whole[0])
    np.testing.assert_allclose(rescaled.epistemic_std, epistemic * whole[1], rtol=1e-12)
    np.testing.assert_allclose(rescaled.aleatoric_std, aleatoric * whole[2], rtol=1e-12)
    np.testing.assert_allclose(np.mean(rescaled.members.means, axis=1), rescaled.mean, atol=1e-12)
    np.testing.assert_allclose(np.std(rescaled.members.means, axis=1), rescaled.epistemic_std, rtol=1e-12)
    np.testing.assert_allclose(np.sqrt(np.mean(np.square(rescaled.members.stds), axis=1)), rescaled.aleatoric_std, rtol=1e-12)
    np.testing.assert_array_equal(np.argsort(rescaled.members.means, axis=1), np.argsort(means, axis=1))


def test_prediction_without_members_is_rescaled_too(x64):
    prediction = Prediction(jnp.array([1.0, 2.0]), jnp.array([0.5, 1.0]), jnp.array([4.0, 8.0]))
    rescaled = prediction.rescaled(jnp.array([2.0, 3.0]), jnp.array([0.5, 0.25]))
    assert rescaled.members is None
    np.testing.assert_array_equal(rescaled.mean, [1, 2])
    np.testing.assert_array_equal(rescaled.epistemic_std, [1, 3])
    np.testing.assert_array_equal(rescaled.aleatoric_std, [2, 2])


# ---- methods -----------------------------------------------------------------------------------------------------------------

# imagination, objective, and extra controls for a state of 3 dimensions; the paper's, and two later ones for a task
PAIRS = {
    "opax": (Optimistic, InformationGain, 3),
    "opax-sum": (Optimistic, UncertaintySum, 3),
    "opax-heuristic": (MemberChoice, LogUncertainty, 1),
    "mean-ae": (Mean, InformationGain, 0),
    "pets-ae": (TrajectorySampling, InformationGain, 0),
    "h-ucrl": (Optimistic, TaskReward, 3),
    "sombrl": (Mean, TaskPlusUncertainty, 0),
    "opax-task": (Optimistic, TaskPlusInformation, 3),
    "cee-us": (MemberTrajectories, TrajectoryDisagreement, 0),
    "max": (TrajectorySampling, JensenRenyi, 0),
    "plan2explore": (Mean, UncertaintySum, 0),
    "random": (None, None, None),
}


def test_all_methods_are_in_the_table():
    assert set(METHODS) == set(PAIRS)


@pytest.mark.parametrize("name", list(PAIRS))
def test_methods_are_the_pairs_that_their_papers_describe(name):
    method, (imagination, objective, extra) = METHODS[name], PAIRS[name]
    assert method.name == name
    parts = [part for part in (method.imagination, method.objective) if part is not None]
    assert [type(part) for part in parts] == [part for part in (imagination, objective) if part is not None]
    if method.imagination is not None:
        assert method.imagination.extra_controls(3) == extra
    assert any(part.needs_members for part in parts) == (name in ("opax-heuristic", "cee-us", "max"))
    assert method.needs_task == (name in ("h-ucrl", "sombrl", "opax-task"))


@pytest.mark.parametrize("name", ["opax-heuristic", "cee-us", "max"])
def test_methods_that_need_members_reject_a_model_without(name):
    message = f"method '{name}' compares the members of an ensemble, and GaussianProcess has none; use the model pe"
    with pytest.raises(SondeError, match=message):
        Explorer(METHODS[name], GaussianProcess(), TINY.solver, SystemSpec.of_size(3, 1), capacity=10)
    with pytest.raises(SondeError, match=message):
        RunConfig(method=METHODS[name], model=GaussianProcess())


def test_posterior_without_members_rejects_a_request_for_one(x64):
    with pytest.raises(SondeError, match="Alone has no members"):
        Alone(jnp.asarray(0)).member(jnp.asarray(0))
