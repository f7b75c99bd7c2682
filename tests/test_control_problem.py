"""What a plan is made of: controls, particles, draws and rewards."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from control_problems import clock, midnight, problem_of
from sonde import ICEM, METHODS, Pendulum
from sonde.imagination import Mean, Optimistic, TrajectorySampling
from sonde.objectives import InformationGain, TaskReward
from sonde.solvers import ControlProblem


@pytest.mark.parametrize(
    "name, controls", [("opax", 4), ("opax-sum", 4), ("h-ucrl", 4), ("mean-ae", 1), ("pets-ae", 1), ("random", None)]
)
def test_only_methods_with_eta_plan_over_it(name, controls):
    imagination, world = METHODS[name].imagination, Pendulum()
    if controls is None:
        assert imagination is None
        return
    problem = ControlProblem(clock(), imagination(), InformationGain(), world.state_dim, world.action_dim, 10)
    assert problem.control_dim == controls
    assert ICEM(horizon=7).start(problem).mean.shape == (7, controls)


@pytest.mark.parametrize(
    "imagination, particles",
    [(Mean(), 1), (Optimistic(), 1), (Mean(noise=True), 10), (Optimistic(noise=True), 10), (TrajectorySampling(), 10)],
)
def test_only_as_many_particles_as_can_differ(x64, imagination, particles):
    problem = problem_of(clock(epistemic=0.5, aleatoric=0.1), InformationGain(), imagination, particles=10)
    assert problem.simulated_particles == particles
    controls = jnp.zeros((4, problem.control_dim))
    imagined = eqx.filter_jit(problem.imagine)(midnight(), controls, jax.random.key(0))
    assert imagined.next_states.shape == (particles, 4, 2)
    assert len(np.unique(imagined.next_states[:, 0, 0])) == particles
    np.testing.assert_array_equal(imagined.states[:, 1:], imagined.next_states[:, :-1])
    np.testing.assert_array_equal(imagined.states[:, 0], np.broadcast_to(midnight(), (particles, 2)))


def test_trajectory_sampling_meets_other_chance_in_every_plan_and_key(x64):
    problem = problem_of(clock(epistemic=0.5), TaskReward(lambda x, u, x_next: x_next[0]), TrajectorySampling(), particles=5)
    same_plan_twice = jnp.zeros((2, 4, 1))
    evaluate = jax.jit(lambda key: problem.rewards(midnight(), same_plan_twice, key))
    rewards = evaluate(jax.random.key(0))
    assert rewards.shape == (2, 5, 4)
    assert np.all(rewards[0] != rewards[1])
    other = evaluate(jax.random.key(1))
    assert np.all(np.asarray(rewards) != np.asarray(other))
    np.testing.assert_array_equal(rewards, evaluate(jax.random.key(0)))


def test_particles_earn_what_the_belief_makes_likely(x64):
    """First step: mean 1, epistemic 0.5, over many particles."""
    particles = 20_000
    problem = problem_of(
        clock(epistemic=0.5), TaskReward(lambda x, u, x_next: x_next[0] ** 2), TrajectorySampling(), particles=particles
    )
    rewards = eqx.filter_jit(problem.rewards)(midnight(), jnp.zeros((1, 1, 1)), jax.random.key(0))
    variance_of_square = 2 * 0.5**4 + 4 * 0.5**2
    assert abs(np.mean(rewards) - (1 + 0.5**2)) < 5 * np.sqrt(variance_of_square / particles)
