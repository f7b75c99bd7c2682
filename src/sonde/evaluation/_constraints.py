"""Constraints by name: those of a world, boxes on one state, and FILE.py:FUNCTION; and how far measurements kept them."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sonde._internal.blocks import in_blocks
from sonde._internal.errors import SondeError, did_you_mean, first_line
from sonde._internal.precision import double_precision
from sonde._internal.user_code import is_in_file, load_from_file, task_label
from sonde.data import Trajectory
from sonde.solvers import Constraint, Safety, SafetySettings
from sonde.worlds import World

MUCH_FALLBACK = 0.5
"""Share of steps on the fallback from which a reader is told."""


def constraint_named(world: World, name: str) -> Constraint:
    """Look up a constraint.

    Args:
        world: The system.
        name: A name in `world.constraints`, STATE=LOW:HIGH, or FILE.py:FUNCTION.
    """
    if is_in_file(name):
        function = load_from_file(name)
        _check_function(world, function, name, ("constraint(x, u, x_next)", 3), ())
        return Constraint(task_label(name), function)
    if name in world.constraints:
        return Constraint(name, world.constraints[name])
    if "=" in name:
        return _box(world, name)
    known = (*world.constraints, *(f"{state}=LOW:HIGH" for state in world.state_names))
    meant = did_you_mean(name, world.constraints)
    raise SondeError(f"unknown constraint {name!r};{meant} expected one of: {', '.join(known)}, or FILE.py:FUNCTION")


def _box(world: World, text: str) -> Constraint:
    state, _, limits = text.rpartition("=")
    low, colon, high = limits.partition(":")
    if state not in world.state_names:
        meant = did_you_mean(state, world.state_names)
        raise SondeError(f"constraint {text!r}: there is no state {state!r};{meant} it has {', '.join(world.state_names)}")
    try:
        bounds = float(low or "-inf"), float(high or "inf")
    except ValueError:
        bounds = math.nan, math.nan
    if not colon or not bounds[0] < bounds[1] or bounds == (-math.inf, math.inf):
        raise SondeError(
            f"constraint {text!r}: expected {state}=LOW:HIGH with numbers and LOW below HIGH, such as {state}=-5:5; either may "
            "be left out"
        )
    return Constraint(state, box_constraint(world.state_names.index(state), *bounds))


@functools.cache  # the same box must give the same function: JAX caches compiled programs by its identity
def box_constraint(index: int, low: float, high: float) -> Callable[[Array, Array, Array], Array]:
    """A constraint that keeps one state within limits.

    Args:
        index: Which state.
        low: Smallest value; minus infinity for none.
        high: Largest value; infinity for none.
    """

    def within(x, u, x_next):
        del x, u
        value = x_next[index]
        if math.isinf(low):
            return high - value
        return value - low if math.isinf(high) else jnp.minimum(value - low, high - value)

    return within


def safety_named(world: World, names: Sequence[str], settings: SafetySettings) -> Safety | None:
    """Constraints by their names, with the functions that the settings name.

    Args:
        world: The system.
        names: Names of the constraints.
        settings: How they are kept.

    Returns:
        Everything that a planner needs; None without constraints.
    """
    if not names:
        return None
    given: dict[str, Any] = {field.name: getattr(settings, field.name) for field in fields(SafetySettings)}
    return Safety(
        **given,
        constraints=tuple(constraint_named(world, name) for name in names),
        fallback_feedback=_feedback(world, settings.fallback),
        start_feedback=None if settings.start is None else _feedback(world, settings.start),
        project=world.project,
    )


def _feedback(world: World, name: str) -> Callable[[Array], Array] | None:
    """The feedback that a setting names; None if it names none."""
    if name == "brake":
        if world.brake is None:
            raise SondeError(f"{type(world).__name__} has no brake of its own: name a feedback u = f(x) as FILE.py:FUNCTION")
        return world.brake
    if not is_in_file(name):
        return None
    function = load_from_file(name)
    _check_function(world, function, name, ("feedback(x)", 1), (world.action_dim,))
    return function


@double_precision
def _check_function(world: World, function: Any, name: str, called: tuple[str, int], shape: tuple[int, ...]) -> None:
    """Reject a function of a user that does not give numbers of the right shape."""
    x, u = jnp.zeros(world.state_dim), jnp.zeros(world.action_dim)
    how, arguments = called
    try:
        result = jax.eval_shape(function, *(x, u, x)[:arguments])
    except Exception as error:
        raise SondeError(
            f"{name}: called as {how} with x [{world.state_dim}] and u [{world.action_dim}] it failed with "
            f"{type(error).__name__}: {first_line(error)}; write it with jax.numpy, and with jnp.where in place of if"
        ) from error
    if getattr(result, "shape", None) != shape or not jnp.issubdtype(result.dtype, jnp.floating):
        raise SondeError(f"{name}: {how} must give real numbers of shape {list(shape)}, got {result}")


@eqx.filter_jit
def _margins(safety: Safety, states: Array, actions: Array, next_states: Array) -> dict[str, Array]:
    """The margin of each constraint at all steps [S, T]."""
    of_all = lambda function: jax.vmap(jax.vmap(function))(states, actions, next_states)
    return {constraint.name: of_all(constraint.function) for constraint in safety.constraints}


@double_precision
def margins_met(safety: Safety, trajectory: Trajectory) -> dict[str, np.ndarray]:
    """The margins of measurements.

    Args:
        safety: The constraints.
        trajectory: Measurements [S, T, ...].

    Returns:
        The margin at each step [S, T], by the name of the constraint; negative where it was violated.
    """
    work = functools.partial(_margins, safety)
    return in_blocks(work, trajectory.states, trajectory.actions, trajectory.next_states)


def constraint_metrics(safety: Safety | None, trajectory: Trajectory) -> dict[str, np.ndarray]:
    """How a round kept the constraints.

    Args:
        safety: The constraints; None for none.
        trajectory: Measurements of the round [S, T, ...].

    Returns:
        Values [S] by key of the schema; empty without constraints.
    """
    if safety is None:
        return {}
    found, unknown = dict[str, np.ndarray](), np.full(len(trajectory.states), np.nan)
    planned, fallback = trajectory.planned_margin, trajectory.fallback
    if planned is None or fallback is None:
        found |= {"planned_margin": unknown, "fallback": unknown}
    else:
        admissible = np.where(fallback, np.inf, planned).min(axis=1)  # infinite where no plan was
        found |= {"planned_margin": admissible, "fallback": fallback.mean(axis=1)}
    margins = margins_met(safety, trajectory)
    found["violations"] = np.any([margin < 0 for margin in margins.values()], axis=0).mean(axis=1)
    for name, margin in margins.items():
        found[f"margin/{name}"] = margin.min(axis=1)
        found[f"violations/{name}"] = (margin < 0).mean(axis=1)
        found[f"violation_depth/{name}"] = np.maximum(-margin, 0.0).max(axis=1)
    return found


def constraint_warnings(rows: Sequence[Mapping[str, Any]], fallback: str, steps: int) -> list[str]:
    """What a reader should know about the constraints in a round.

    Args:
        rows: Metrics of the round, one row per seed.
        fallback: Name of the fallback.
        steps: Steps of the round.

    Returns:
        Sentences without a full stop: on many steps without an admissible plan, and on violations.
    """
    found = []
    shares = [row["fallback"] for row in rows if row.get("fallback") is not None]
    if shares and float(np.mean(shares)) >= MUCH_FALLBACK:
        count = round(float(np.mean(shares)) * steps)
        found.append(
            f"in {count} of {steps} steps no plan was admissible: the fallback {fallback} acted; if this stays so, the "
            "constraints cannot be kept, or too little is known (more initial data, a longer cautious start, a smaller "
            "safety.beta or safety.horizon)"
        )
    violated = [row["violations"] for row in rows if row.get("violations")]
    if violated:
        seeds = f" in {len(violated)} of {len(rows)} seeds" if len(rows) > 1 else ""
        found.append(f"constraints were violated{seeds}, in at most {100 * max(violated):.3g} % of the steps")
    return found


def violated_share(safety: Safety, trajectory: Trajectory) -> np.ndarray:
    """The share of a rollout's steps that violate any constraint, up to the end of its first episode.

    Args:
        safety: The constraints.
        trajectory: The rollout [S, T, ...].

    Returns:
        The share of each seed [S].
    """
    violated = np.any([margin < 0 for margin in margins_met(safety, trajectory).values()], axis=0)
    if trajectory.ended is None:
        return violated.mean(axis=1)
    counted = np.cumsum(trajectory.ended, axis=1) - trajectory.ended == 0
    return (violated & counted).sum(axis=1) / counted.sum(axis=1)
