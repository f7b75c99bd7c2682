"""Rollouts of a seed in parallel equal those in sequence, and share what the seed has learned."""

import json
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from control_problems import problem_of
from sonde import Controller, Learned, ProbabilisticEnsemble, RunConfig, SondeError, TaskSetup, evaluate, rollout
from sonde._internal.randomness import rollout_keys, round_keys
from sonde.control import RolloutSettings, run_rollouts, start_states
from sonde.control._controller import _act, _initial_state
from sonde.models import Posterior, Prediction
from sonde.objectives import InformationGain
from sonde.runs._codec import from_json, to_json
from sonde.runs._run import build_explorer, collect
from sonde.solvers import Planner, PlanningPolicy, RandomPolicy
from sonde.worlds import HostWorld, MountainCar, Simulators, Stepped
from tiny import TINY

ARRAYS = ("states", "actions", "next_states", "terminated", "truncated")


# ---- a host world where each copy has noise, ends and restarts of its own ----------------------------------------------------


class Wanderers(Simulators):
    """Each copy draws its start and its steps from its seed, and ends its episode far from the origin."""

    def __init__(self, num_copies):
        self.num_copies = num_copies

    def reset(self, seeds):
        assert len(seeds) == self.num_copies
        self.rngs = [np.random.default_rng(seed) for seed in seeds]
        self.places = np.array([rng.uniform(-1, 1, 2) for rng in self.rngs])
        return self.places.copy()

    def step(self, actions):
        self.places = self.places + 0.3 * actions + [rng.normal(0, 0.5, 2) for rng in self.rngs]
        terminated = np.abs(self.places).max(axis=1) > 2
        return Stepped(self.places.copy(), terminated, np.zeros_like(terminated))

    def restart(self, which):
        for i in np.flatnonzero(which):
            self.places[i] = self.rngs[i].uniform(-1, 1, 2)
        return self.places.copy()


@dataclass(frozen=True)
class Wandering(HostWorld):
    opened = []

    @property
    def state_names(self):
        return ("a", "b")

    @property
    def action_names(self):
        return ("u",)

    @property
    def tasks(self):
        return {"out": lambda x, u, x_next: jnp.abs(x_next[0]) + u[0]}

    def reachable(self):
        return None

    def open(self, num_copies):
        self.opened.append(num_copies)
        return Wanderers(num_copies)


class Pull(Posterior):
    """What a seed has learned: a number of its own."""

    pull: jax.Array

    def predict(self, x, u):
        return Prediction(self.pull * x, jnp.ones(2), jnp.ones(2))


@dataclass(frozen=True)
class Homesick(Planner):
    """Its action depends on the state, on what was learned, on noise, and on the step of the episode."""

    def initial_state(self, problem):
        return jnp.zeros(())

    def plan(self, problem, state, x, key):
        action = -problem.posterior.pull * x[0] + 0.1 * jax.random.uniform(key) + 0.01 * state
        return jnp.full((1, problem.control_dim), jnp.clip(action, -1, 1)), state + 1


def posterior_of(num_seeds):
    with jax.enable_x64(True):
        return Pull(0.2 * (1.0 + jnp.arange(num_seeds)))


def controller_of(num_seeds):
    with jax.enable_x64(True):
        policy = PlanningPolicy(problem_of(posterior_of(num_seeds), InformationGain()), Homesick())
        return Controller(replace(policy, reports_information=False), round_keys(range(num_seeds), 0), 2)


@pytest.mark.slow
@pytest.mark.parametrize("num_seeds", [1, 2])
def test_parallel_rollouts_of_a_host_world_equal_sequential_ones(num_seeds):
    together = run_rollouts(Wandering(), controller_of(num_seeds), RolloutSettings(30, 5))
    alone = run_rollouts(Wandering(), controller_of(num_seeds), RolloutSettings(30, 5, max_copies=1))
    assert len(together) == len(alone) == 5
    first = rollout(Wandering(), controller_of(num_seeds), 30)
    assert any(part.ended[:, :-1].any() for part in together), "some episodes end and are followed by others"
    for one, other in zip([*together, together[0]], [*alone, first], strict=True):
        assert one.states.shape == (num_seeds, 30, 2)
        for name in ARRAYS:
            np.testing.assert_allclose(getattr(one, name), getattr(other, name), atol=1e-12, err_msg=name)
    starts = {tuple(part.states[seed, 0]) for part in together for seed in range(num_seeds)}
    assert len(starts) == 5 * num_seeds, "each starts in another state"


@pytest.mark.slow
def test_number_of_copies_is_limited_and_even():
    Wandering.opened.clear()
    seen = []
    on_step = lambda taken, copies: seen.append(copies.num_copies)
    parts = run_rollouts(Wandering(), controller_of(3), RolloutSettings(4, 5, max_copies=11), on_step=on_step)
    assert len(parts) == 5
    # three rollouts per seed fit, so two parts are needed: of three and of two
    assert set(seen) == {9} and len(seen) == 4, "only the copies with the first rollout are shown"
    run_rollouts(Wandering(), controller_of(3), RolloutSettings(4, 4, max_copies=1))
    assert set(Wandering.opened) <= {9, 6, 3}, "never fewer than one per seed"


@pytest.mark.slow
def test_evaluation_does_not_depend_on_the_number_of_copies():
    keys = round_keys([3, 4], 0)
    with jax.enable_x64(True):
        setup = replace(TaskSetup.named(Wandering(), "out", Homesick(), 25), rollouts=4)
        together, alone = (evaluate(replace(setup, max_copies=most), Learned(posterior_of(2)), keys) for most in (8, 1))
    np.testing.assert_allclose(together.returns, alone.returns, atol=1e-9)
    for seed, end in enumerate(np.argmax(alone.trajectory.ended, axis=1)):  # in sequence, it stops when both seeds have ended
        counted = slice(0, end + 1)
        np.testing.assert_allclose(together.rewards[seed, counted], alone.rewards[seed, counted], atol=1e-9)


# ---- a world written in JAX --------------------------------------------------------------------------------------------------

SMALL = ProbabilisticEnsemble(members=3, layers=2, width=13, epochs=2)


@pytest.mark.slow
@pytest.mark.parametrize("model", [TINY.model, SMALL], ids=["gp", "ensemble"])
def test_parallel_rollouts_of_a_jax_world_equal_sequential_ones(model):
    config = replace(TINY, rollouts=3, horizon=5, seeds=2, model=model)
    explorer = build_explorer(config)
    told = [collect(replace(config, max_copies=most), explorer)[1] for most in (100, 1)]
    assert told[0].states.shape == (2, 15, 3)
    for name in (*ARRAYS, "planned_information"):
        np.testing.assert_allclose(getattr(told[0], name), getattr(told[1], name), atol=1e-5, err_msg=name)


def shapes(jaxpr):
    """Shapes of all arrays in a program."""
    for equation in jaxpr.eqns:
        yield from (variable.aval.shape for variable in equation.outvars)
        for parameter in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda p: hasattr(p, "eqns")):
            inner = getattr(parameter, "jaxpr", parameter)
            if hasattr(inner, "eqns"):
                yield from shapes(inner)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["opax", "cee-us"])
def test_networks_are_not_copied_for_parallel_rollouts(x64, method):
    explorer = build_explorer(replace(TINY, seeds=2, model=SMALL).with_method(method))
    policy, keys = explorer.ask().policy, rollout_keys(explorer.keys(), range(5))
    arguments = policy, _initial_state(policy, 2, 5), jnp.zeros((10, 3)), keys, jnp.asarray(0)
    made = set(shapes(jax.make_jaxpr(_act)(*arguments).jaxpr))
    assert any(5 in shape for shape in made), "there are arrays with an axis of rollouts"
    hidden_layers = [shape for shape in made if shape[-2:] == (13, 13)]
    assert not [shape for shape in hidden_layers if np.prod(shape) > 2 * 3 * 13 * 13]


# ---- settings ----------------------------------------------------------------------------------------------------------------


def test_budget_is_rejected_for_parallel_rollouts():
    with pytest.raises(SondeError, match="leave the budget out"), jax.enable_x64(True):
        Controller(RandomPolicy(1), rollout_keys(round_keys([0], 0), range(2)), 2, budget=1.0)


def test_max_copies_is_saved_in_the_config_and_checked():
    changed = replace(TINY, max_copies=7)
    assert json.loads(to_json(changed))["max_copies"] == 7 and from_json(RunConfig, to_json(changed), "here") == changed
    assert from_json(RunConfig, to_json(TINY), "here") == TINY
    with pytest.raises(SondeError, match="max_copies must be a whole number above 0, got 0"):
        replace(TINY, max_copies=0)


@pytest.mark.slow
@pytest.mark.parametrize("world", [Wandering(), MountainCar()], ids=["host", "JAX"])
def test_initial_states_are_those_of_the_rollouts(world):
    keys = round_keys((3, 4), 1)
    with jax.enable_x64(True):
        starts = start_states(world, rollout_keys(keys, range(2)))
    controller = Controller(RandomPolicy(world.action_dim), keys, world.state_dim)
    played = run_rollouts(world, controller, RolloutSettings(3, 2))
    np.testing.assert_array_equal(starts, np.stack([part.states[:, 0] for part in played], axis=1))
