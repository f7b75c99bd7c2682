"""The compiled programs that are measured, as the package itself runs them: the only module that uses its private functions."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from sonde.control._controller import _act, _initial_state
from sonde.control._rollout import compiled_rollout
from sonde.data import Data
from sonde.explorer import Explorer
from sonde.models import Confidence, Model, Posterior
from sonde.models._programs import condition_all, fit_program, init_all
from sonde.solvers import ControlProblem, Planner, PlanningPolicy, Solver
from sonde.solvers._solve import _solve
from sonde.worlds import JaxWorld

Work = Callable[[], Any]


def compiled(function: Any, *args: Any) -> Work:
    """Compile a call.

    Args:
        function: A jitted function.
        *args: Its arguments.

    Returns:
        The call, which only runs.
    """
    program = function.lower(*args).compile()
    return lambda: program(*args)


def keys_of(num_seeds: int) -> Key[Array, " seeds"]:
    """One random key per seed."""
    return jax.random.split(jax.random.key(0), num_seeds)


def initial_params(model: Model, state_dim: int, action_dim: int, num_seeds: int) -> Any:
    """Params before the first fit.

    Args:
        model: The model.
        state_dim: Number of state dimensions.
        action_dim: Number of action dimensions.
        num_seeds: Number of seeds S.

    Returns:
        Params with a leading axis S.
    """
    return init_all(model, state_dim, action_dim, keys_of(num_seeds))


def fitting(model: Model, params: Any, data: Data) -> Work:
    """A fit to data that fill their buffer.

    Args:
        model: The model.
        params: Params with a leading axis S.
        data: Measurements [S, capacity, ...].
    """
    num_seeds, capacity = data.states.shape[:2]
    return compiled(fit_program(model), model, params, data, jnp.asarray(capacity), keys_of(num_seeds), 0.0)


def conditioning(model: Model, params: Any, data: Data) -> Callable[[], Posterior]:
    """The factorised posterior, in the form that a planner queries.

    Args:
        model: The model.
        params: Params with a leading axis S.
        data: Measurements [S, capacity, ...].
    """
    work = compiled(condition_all, model, params, data, Confidence())
    return lambda: work()[0].specialise()


def planning(problem: ControlProblem, solver: Planner, num_seeds: int) -> Work:
    """One action of every seed, planned from the zero state.

    Args:
        problem: The problem, with a leading axis S on its arrays.
        solver: The planner.
        num_seeds: Number of seeds S.
    """
    policy = PlanningPolicy(problem, solver)
    state, x = _initial_state(policy, num_seeds, 1), jnp.zeros((num_seeds, problem.state_dim))
    return compiled(_act, policy, state, x, keys_of(num_seeds)[:, None], jnp.asarray(0))


def optimising(solver: Solver, problem: ControlProblem, data: Data) -> Work:
    """A policy, trained from scratch.

    Args:
        solver: The solver.
        problem: The problem, with a leading axis S on its arrays.
        data: Measurements [S, capacity, ...].
    """
    return compiled(_solve, solver, "policy", problem, data, keys_of(data.states.shape[0]))


def exploring(world: JaxWorld, explorer: Explorer, horizon: int) -> Work:
    """A whole rollout (plan, act, step) as one compiled call.

    Args:
        world: The system.
        explorer: Asked for the policy.
        horizon: Number of steps.
    """
    controller = explorer.ask()
    return compiled(compiled_rollout, world, controller.policy, horizon, controller.keys[:, None])
