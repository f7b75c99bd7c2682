"""Rollouts of a run side by side bring what they bring one after the other, and share what the run has learned."""

import json
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from control_problems import problem_of
from sonde import Prediction, MountainCar, Posterior, ProbabilisticEnsemble, SondeError, evaluate
from sonde._internal.randomness import round_keys, rollout_keys
from sonde.control._controller import Controller, _act, _start
from sonde.control._rollout import initial_states, run_rollouts, rollout
from sonde.objectives import InformationGain
from sonde.runs._config import from_json, to_json
from sonde.runs._run import build_explorer, experiment
from sonde.solvers._base import Planner, PlanningPolicy
from sonde.solvers._policy import RandomPolicy
from sonde.worlds import HostWorld, Simulators, Stepped
from tiny import TINY

ARRAYS = ("states", "actions", "next_states", "terminated", "over")


# ---- a system outside of JAX whose draws, ends and restarts are each copy's own ---------------------------------------------


class Wanderers(Simulators):
    """Each copy draws its start and its steps from its seed, and ends its episode when it is far out."""

    def __init__(self, num_seeds):
        self.num_seeds = num_seeds

    def reset(self, seeds):
        assert len(seeds) == self.num_seeds
        self.rngs = [np.random.default_rng(seed) for seed in seeds]
        self.places = np.array([rng.uniform(-1, 1, 2) for rng in self.rngs])
        return self.places.copy()

    def step(self, actions):
        self.places = self.places + 0.3 * actions + [rng.normal(0, 0.5, 2) for rng in self.rngs]
        over = np.abs(self.places).max(axis=1) > 2
        return Stepped(self.places.copy(), over, over)

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

    def open(self, num_seeds):
        self.opened.append(num_seeds)
        return Wanderers(num_seeds)


class Learned(Posterior):
    """What a run knows: a number of its own."""

    pull: jax.Array

    def predict(self, x, u):
        return Prediction(self.pull * x, jnp.ones(2), jnp.ones(2))


@dataclass(frozen=True)
class Homesick(Planner):
    """Its action depends on the state, on what was learned, on draws, and on how much of the episode it has seen."""

    def start(self, problem):
        return jnp.zeros(())

    def plan(self, problem, state, x, key):
        action = -problem.posterior.pull * x[0] + 0.1 * jax.random.uniform(key) + 0.01 * state
        return jnp.full((1, problem.control_dim), jnp.clip(action, -1, 1)), state + 1


def learned(num_seeds):
    with jax.enable_x64(True):
        return Learned(0.2 * (1.0 + jnp.arange(num_seeds)))


def asked(num_seeds):
    with jax.enable_x64(True):
        policy = PlanningPolicy(problem_of(learned(num_seeds), InformationGain()), Homesick())
        return Controller(replace(policy, reports_information=False), round_keys(range(num_seeds), 0), 2)


@pytest.mark.parametrize("runs", [1, 2])
def test_outside_of_jax_they_are_what_they_are_one_after_the_other(num_seeds):
    together = run_rollouts(Wandering(), asked(num_seeds), 30, 5)
    alone = run_rollouts(Wandering(), asked(num_seeds), 30, 5, most=1)
    assert len(together) == len(alone) == 5
    first = rollout(Wandering(), asked(num_seeds), 30)
    assert any(part.over[:, :-1].any() for part in together), "some episodes end and are followed by others"
    for one, other in zip([*together, together[0]], [*alone, first], strict=True):
        assert one.states.shape == (num_seeds, 30, 2)
        for name in ARRAYS:
            np.testing.assert_allclose(getattr(one, name), getattr(other, name), atol=1e-12, err_msg=name)
    starts = {tuple(part.states[run, 0]) for part in together for run in range(num_seeds)}
    assert len(starts) == 5 * num_seeds, "each has a start of its own"


def test_no_more_copies_than_allowed_and_evenly_many():
    Wandering.opened.clear()
    seen = []
    parts = run_rollouts(Wandering(), asked(3), 4, 5, most=11, on_step=lambda taken, copies: seen.append(copies.num_seeds))
    assert len(parts) == 5
    # three of each run would fit; two rounds are needed anyway, of three and two
    assert set(seen) == {9} and len(seen) == 4, "only the copies with the first rollout are shown"
    run_rollouts(Wandering(), asked(3), 4, 4, most=1)
    assert set(Wandering.opened) <= {9, 6, 3}, "never fewer than one per run"


def test_an_evaluation_is_the_same_either_way():
    keys = round_keys([3, 4], 0)
    with jax.enable_x64(True):
        together, alone = (
            evaluate(Wandering(), learned(2), "out", Homesick(), 25, keys, rollouts=4, max_copies=most) for most in (8, 1)
        )
    np.testing.assert_allclose(together.returns, alone.returns, atol=1e-9)
    for run, end in enumerate(np.argmax(alone.trajectory.over, axis=1)):  # alone, it stops when both runs have ended
        shown = slice(0, end + 1)
        np.testing.assert_allclose(together.rewards[run, shown], alone.rewards[run, shown], atol=1e-9)


# ---- a world in JAX ----------------------------------------------------------------------------------------------------------

SMALL = ProbabilisticEnsemble(members=3, layers=2, width=13, epochs=2)


@pytest.mark.parametrize("model, seeds", [(TINY.model, 1), (SMALL, 2)], ids=["gp", "ensemble"])
def test_in_jax_they_are_what_they_are_one_after_the_other(model, seeds):
    config = replace(TINY, rollouts=3, horizon=6, seeds=seeds, model=model)
    explorer = build_explorer(config)
    told = [experiment(replace(config, max_copies=most), explorer)[1] for most in (100, 1)]
    assert told[0].states.shape == (seeds, 18, 3)
    for name in (*ARRAYS, "planned_information"):
        np.testing.assert_allclose(getattr(told[0], name), getattr(told[1], name), atol=1e-5, err_msg=name)


def shapes(jaxpr):
    """Of all arrays that a program makes."""
    for equation in jaxpr.eqns:
        yield from (variable.aval.shape for variable in equation.outvars)
        for parameter in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda p: hasattr(p, "eqns")):
            inner = getattr(parameter, "jaxpr", parameter)
            if hasattr(inner, "eqns"):
                yield from shapes(inner)


@pytest.mark.parametrize("method", ["opax", "cee-us"])
def test_what_a_run_has_learned_is_not_copied_for_its_rollouts(x64, method):
    explorer = build_explorer(replace(TINY, method=method, seeds=2, model=SMALL))
    policy, keys = explorer.ask().policy, rollout_keys(explorer.keys(), range(5))
    arguments = policy, _start(policy, 2, 5), jnp.zeros((10, 3)), keys, jnp.asarray(0)
    made = set(shapes(jax.make_jaxpr(_act)(*arguments).jaxpr))
    assert any(5 in shape for shape in made), "the rollouts are in there"
    hidden_layers = [shape for shape in made if shape[-2:] == (13, 13)]
    assert not [shape for shape in hidden_layers if np.prod(shape) > 2 * 3 * 13 * 13]


# ---- settings ----------------------------------------------------------------------------------------------------------------


def test_a_budget_is_for_one_rollout_at_a_time():
    with pytest.raises(SondeError, match="give it no budget"), jax.enable_x64(True):
        Controller(RandomPolicy(1), rollout_keys(round_keys([0], 0), range(2)), 2, budget=1.0)


def test_configs_from_before_are_read_and_stay_the_same_text():
    text = to_json(TINY)
    assert "max_copies" not in text
    assert from_json(text, "here") == TINY
    nested = json.loads(to_json(replace(TINY, model=SMALL)))
    assert "optimiser" not in nested["model"] and "use_mean" not in nested["solver"]
    changed = replace(TINY, max_copies=7)
    assert json.loads(to_json(changed))["max_copies"] == 7 and from_json(to_json(changed), "here") == changed
    with pytest.raises(SondeError, match="side_by_side must be a whole number above 0, got 0"):
        replace(TINY, max_copies=0)


@pytest.mark.parametrize("world", [Wandering(), MountainCar()], ids=["outside of JAX", "JAX"])
def test_where_rollouts_begin_is_known_before(world):
    keys = round_keys((3, 4), 1)
    with jax.enable_x64(True):
        starts = initial_states(world, rollout_keys(keys, range(2)))
    controller = Controller(RandomPolicy(world.action_dim), keys, world.state_dim)
    played = run_rollouts(world, controller, 3, 2)
    np.testing.assert_array_equal(starts, np.stack([part.states[:, 0] for part in played], axis=1))
