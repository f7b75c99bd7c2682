"""Parts of an imagined plan: controls, particles, noise draws and rewards; and a planner of a user's own."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from control_problems import clock, midnight, problem_of
from sonde import ICEM, METHODS, Explorer, rollout
from sonde._internal.lockstep import one_seed
from sonde._internal.randomness import for_purpose
from sonde.imagination import Mean, Optimistic, TrajectorySampling
from sonde.objectives import InformationGain, TaskReward
from sonde.solvers import ControlProblem, Planner
from sonde.solvers._base import planned_actions
from sonde.worlds import Pendulum
from tiny import TINY


@pytest.mark.parametrize(
    "name, controls", [("opax", 4), ("opax-sum", 4), ("h-ucrl", 4), ("mean-ae", 1), ("pets-ae", 1), ("random", None)]
)
def test_only_methods_with_eta_plan_over_it(name, controls):
    imagination, world = METHODS[name].imagination, Pendulum()
    if controls is None:
        assert imagination is None
        return
    problem = ControlProblem(clock(), imagination, InformationGain(), world.state_dim, world.action_dim)
    assert problem.control_dim == controls
    assert ICEM(horizon=7).initial_state(problem).mean.shape == (7, controls)


@pytest.mark.slow
@pytest.mark.parametrize(
    "imagination, particles",
    [(Mean(), 1), (Optimistic(), 1), (Mean(noise=True), 10), (Optimistic(noise=True), 10), (TrajectorySampling(), 10)],
)
def test_only_particles_that_can_differ_are_simulated(x64, imagination, particles):
    problem = problem_of(clock(epistemic=0.5, aleatoric=0.1), InformationGain(), imagination, particles=10)
    assert problem.simulated_particles == particles
    controls = jnp.zeros((4, problem.control_dim))
    imagined = eqx.filter_jit(problem.imagine)(midnight(), controls, jax.random.key(0))
    assert imagined.next_states.shape == (particles, 4, 2)
    assert len(np.unique(imagined.next_states[:, 0, 0])) == particles
    np.testing.assert_array_equal(imagined.states[:, 1:], imagined.next_states[:, :-1])
    np.testing.assert_array_equal(imagined.states[:, 0], np.broadcast_to(midnight(), (particles, 2)))


@pytest.mark.slow
def test_trajectory_sampling_draws_other_noise_for_every_plan_and_key(x64):
    problem = problem_of(clock(epistemic=0.5), TaskReward(lambda x, u, x_next: x_next[0]), TrajectorySampling(), particles=5)
    same_plan_twice = jnp.zeros((2, 4, 1))
    evaluate = jax.jit(lambda key: problem.rewards(midnight(), same_plan_twice, key))
    rewards = evaluate(jax.random.key(0))
    assert rewards.shape == (2, 5, 4)
    assert np.all(rewards[0] != rewards[1])
    other = evaluate(jax.random.key(1))
    assert np.all(np.asarray(rewards) != np.asarray(other))
    np.testing.assert_array_equal(rewards, evaluate(jax.random.key(0)))


@pytest.mark.slow
def test_mean_reward_of_particles_agrees_with_the_prediction(x64):
    """First step: mean 1, epistemic 0.5, over many particles."""
    particles = 20_000
    problem = problem_of(
        clock(epistemic=0.5), TaskReward(lambda x, u, x_next: x_next[0] ** 2), TrajectorySampling(), particles=particles
    )
    rewards = eqx.filter_jit(problem.rewards)(midnight(), jnp.zeros((1, 1, 1)), jax.random.key(0))
    variance_of_square = 2 * 0.5**4 + 4 * 0.5**2
    assert abs(np.mean(rewards) - (1 + 0.5**2)) < 5 * np.sqrt(variance_of_square / particles)


@dataclass(frozen=True)
class RandomShooting(Planner):
    """Samples plans uniformly and takes the best one."""

    samples: int = 8
    horizon: int = 3

    def initial_state(self, problem):
        return None

    def plan(self, problem, state, x, key):
        plan_key, reward_key = jax.random.split(key)
        plans = jax.random.uniform(plan_key, (self.samples, self.horizon, problem.control_dim), x.dtype, -1.0, 1.0)
        returns = problem.rewards(x, plans, reward_key).sum(axis=-1).mean(axis=-1)
        return plans[jnp.argmax(returns)], state


@pytest.mark.slow
def test_explorer_uses_a_planner_that_is_passed_as_an_object():
    world, planner = Pendulum(), RandomShooting(samples=5)
    explorer = Explorer(METHODS["opax"], TINY.model, planner, world.spec, capacity=20, seeds=(0, 1))
    controller, x = explorer.ask(), np.full((2, 3), 0.5)
    assert controller.policy.planner is planner
    actions = controller(x)
    with jax.enable_x64(True):
        for seed, plan_key in enumerate(for_purpose(explorer.keys(), "plan")):
            problem, key = one_seed(controller.policy.problem, seed), jax.random.split(jax.random.fold_in(plan_key, 0))[0]
            plan, _ = eqx.filter_jit(planner.plan)(problem, None, jnp.asarray(x[seed]), key)
            np.testing.assert_allclose(actions[seed], planned_actions(problem, plan)[0], atol=1e-12)
    assert not np.array_equal(actions[0], actions[1])
    for _ in range(2):
        explorer.tell(rollout(world, explorer.ask(), 5))
    assert explorer.round == 2 and explorer.transitions == 10
