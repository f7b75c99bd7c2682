"""The compiled programs that are measured, as the engine itself runs them: the only place that reaches into its inside."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from sonde.control._controller import _act, _start
from sonde.control._rollout import round_number
from sonde.data import Data
from sonde.explorer import Explorer, _condition, _fit, _init
from sonde.models._base import Model, Posterior
from sonde.models._beta import Confidence
from sonde.solvers._base import ControlProblem, Planner, PlanningPolicy, Solver
from sonde.solvers._solve import _solve
from sonde.worlds._base import JaxWorld

Work = Callable[[], Any]


def compiled(function: Any, *args: Any) -> Work:
    """A call that runs and no longer compiles."""
    program = function.lower(*args).compile()
    return lambda: program(*args)


def keys_of(num_seeds: int) -> Key[Array, " seeds"]:
    """One key per run."""
    return jax.random.split(jax.random.key(0), num_seeds)


def initial_params(model: Model, state_dim: int, action_dim: int, num_seeds: int) -> Any:
    """What a model starts from."""
    return _init(model, state_dim, action_dim, keys_of(num_seeds))


def fitting(model: Model, params: Any, data: Data) -> Work:
    """A fit to data that fill their buffer."""
    num_seeds, capacity = data.states.shape[:2]
    return compiled(_fit, model, params, data, jnp.asarray(capacity), keys_of(num_seeds), 0.0)


def conditioning(model: Model, params: Any, data: Data) -> Callable[[], Posterior]:
    """The posterior, factorised, in the form that a planner queries."""
    work = compiled(_condition, model, params, data, False, 0.0, Confidence())
    return lambda: work()[0].specialise()


def planning(problem: ControlProblem, solver: Planner, num_seeds: int) -> Work:
    """One action of every run, planned from rest."""
    policy = PlanningPolicy(problem, solver)
    state, x = _start(policy, num_seeds, 1), jnp.zeros((num_seeds, problem.state_dim))
    return compiled(_act, policy, state, x, keys_of(num_seeds)[:, None], jnp.asarray(0))


def optimising(solver: Solver, problem: ControlProblem, data: Data) -> Work:
    """A policy, trained from scratch."""
    return compiled(_solve, solver, problem, data, keys_of(data.states.shape[0]))


def exploring(world: JaxWorld, asked: Explorer, horizon: int) -> Work:
    """A whole episode (plan, act, step) as one compiled call."""
    controller = asked.ask()
    return compiled(round_number, world, controller.policy, horizon, controller.keys[:, None])
