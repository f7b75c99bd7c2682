"""Analyse what a run has learned: the numbers that `sonde analyse` prints and writes."""

from dataclasses import dataclass, field, replace
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from sonde._internal.errors import SondeError
from sonde._internal.lockstep import one_seed
from sonde._internal.precision import double_precision
from sonde.analysis import Equilibrium, LearnedSystem, OperatingPoint, Regulator
from sonde.analysis._system import SAMPLES
from sonde.data import Data, Trajectory
from sonde.evaluation import TrueDynamics
from sonde.evaluation._metrics import reachable_set
from sonde.explorer import Explorer
from sonde.models import KnownPhysics
from sonde.models._beta import MAX_MEASUREMENTS
from sonde.models._gaussian_process import GaussianProcess
from sonde.models._gp_posterior import GPPosterior
from sonde.models._prior import Prior, exact_mean_norm, underlying_gp
from sonde.runs._config import RunConfig
from sonde.runs._linear_tools import (
    LinearRequest,
    described_point,
    described_regulator,
    linear_part,
    place_in,
    regulator_of,
    weights_in,
)
from sonde.runs._theory_metrics import rkhs_rule
from sonde.theory import exact_information_gain, greedy_information, theorem_bound
from sonde.worlds import World

REFIT_PRIOR, REFIT_STEPS, REFIT_LIMIT = 1.0, 200, 10.0
"""How a Gaussian process is refitted: smallest std of the prior, fewest steps, and the limit of gradients."""


def learned_system(explorer: Explorer, world: World, seed_index: int = 0, refit: bool = False) -> LearnedSystem:
    """What one seed of an explorer has learned, to be analysed where it measured.

    Args:
        explorer: The explorer.
        world: The system that was explored.
        seed_index: Position of the seed in `explorer.seeds`.
        refit: Fit the hyper-parameters of a Gaussian process once more, as `refitted` does.
    """
    if explorer.transitions == 0:
        raise SondeError("analysis: the explorer has no measurements yet; tell it at least one round")
    if explorer.spec.past:
        raise SondeError("analysis: a state with a past (delay, history) cannot be analysed; analyse a run without")
    posterior = refitted(explorer, seed_index) if refit else one_seed(explorer.posterior, seed_index)
    return LearnedSystem(posterior, world, _visited(explorer, seed_index))


@double_precision
def refitted(explorer: Explorer, seed_index: int = 0) -> GPPosterior:
    """Fit the hyper-parameters of a Gaussian process once more, to all measurements and from their initial values.

    During exploration the prior keeps the process from being certain too early. An analysis wants the hyper-parameters that fit
    the measurements best. Nothing is held out or recalibrated.

    Args:
        explorer: The explorer, which is not changed.
        seed_index: Position of the seed in `explorer.seeds`.

    Returns:
        The posterior of one seed.
    """
    model = explorer.model
    if not isinstance(model, GaussianProcess) or model.hyperparameters == "fixed":
        raise SondeError("analysis: only Gaussian processes with learned hyper-parameters can be refitted; leave out refit")
    (lengthscale, spread), (signal, signal_spread) = model.lengthscale_prior, model.signal_prior
    wide = (lengthscale, max(spread, REFIT_PRIOR)), (signal, max(signal_spread, REFIT_PRIOR))
    steps = max(model.steps, REFIT_STEPS)
    model = replace(model, lengthscale_prior=wide[0], signal_prior=wide[1], steps=steps, gradient_limit=REFIT_LIMIT)
    posterior = _fitted(model, one_seed(explorer.recent, seed_index), jax.random.key(0))
    if not np.isfinite(posterior.centres.weights).all():
        raise SondeError("analysis: the refitted posterior is not finite; leave out refit")
    return posterior


@eqx.filter_jit
def _fitted(model: GaussianProcess, data: Data, key: Array) -> GPPosterior:
    initial = model.init(data.states.shape[-1], data.actions.shape[-1], key)
    return model.condition(model.fit(initial, data, data.count, key), data)


def _visited(explorer: Explorer, seed_index: int) -> np.ndarray:
    """States [n, dx] that one seed measured and has not forgotten."""
    return np.asarray(explorer.recent.states[seed_index, : int(explorer.recent.count[seed_index])])


def true_equilibria(explorer: Explorer, world: World, seed_index: int, action: tuple[float, ...]) -> list[dict[str, Any]]:
    """Equilibria of the true system, searched for where one seed measured.

    Args:
        explorer: The explorer.
        world: The true system, written in JAX.
        seed_index: Position of the seed in `explorer.seeds`.
        action: The constant action [du]; empty for zero.
    """
    visited = _visited(explorer, seed_index)
    return [described(rest) for rest in LearnedSystem(TrueDynamics(world), world, visited).equilibria(action or None)]


def true_point(
    explorer: Explorer, world: World, seed_index: int, place: OperatingPoint, request: LinearRequest
) -> dict[str, Any]:
    """The true system at a point.

    Args:
        explorer: The explorer.
        world: The true system, written in JAX.
        seed_index: Position of the seed in `explorer.seeds`.
        place: The point.
        request: What is asked.
    """
    system = LearnedSystem(TrueDynamics(world), world, _visited(explorer, seed_index))
    return described_point(system.at(place.state, place.action), request)


def described(rest: Equilibrium) -> dict[str, Any]:
    """An equilibrium as plain numbers, complex ones as pairs.

    Args:
        rest: The equilibrium.
    """
    return {
        "point": rest.point.tolist(),
        "point_std": rest.point_std.tolist(),
        "state": rest.state.tolist(),
        "action": rest.action.tolist(),
        **linear_part(rest.linearisation),
    }


def growth_along(system: LearnedSystem, trajectory: Trajectory, seed_index: int) -> dict[str, Any]:
    """How deviations grow along the first episode of a round.

    Args:
        system: What one seed has learned.
        trajectory: Measurements of the round [S, T, ...].
        seed_index: Position of the seed.
    """
    steps = trajectory.states.shape[1]
    ended = trajectory.ended
    if ended is not None and ended[seed_index].any():
        steps = int(np.argmax(ended[seed_index])) + 1
    found = system.sensitivity(trajectory.states[seed_index, :steps], trajectory.actions[seed_index, :steps])
    return {"steps": steps, "growth": found.growth[-1].tolist(), "rate": found.rate}


@double_precision
def theory_of(explorer: Explorer, config: RunConfig, seed_index: int) -> dict[str, Any]:
    """The quantities of the theory for one seed, under its current hyper-parameters; guarantees need fixed ones.

    Args:
        explorer: The explorer.
        config: The config of the run.
        seed_index: Position of the seed in `explorer.seeds`.
    """
    posterior = underlying_gp(explorer.posterior)
    if explorer.confidence.forgets:
        raise SondeError(
            "theory: its bounds are for models that forget nothing, and this run has a window or forgets at the alarm; leave "
            "out --theory"
        )
    if explorer.transitions > MAX_MEASUREMENTS:
        raise SondeError(
            f"theory: expected at most {MAX_MEASUREMENTS} measurements, got {explorer.transitions}; leave out --theory"
        )
    posterior, data = one_seed((posterior, explorer.data), seed_index)
    prior, points = Prior.of(posterior), np.asarray(data.inputs())[: explorer.transitions]
    information = exact_information_gain(prior, points)
    rule = rkhs_rule(config)
    beta = np.asarray(rule.from_information(jax.numpy.asarray(information), jax.jit(exact_mean_norm)(posterior, data)))
    found = {"information_gain": information.tolist(), "beta": beta.tolist(), "delta": rule.delta}
    reachable = reachable_set(config.world, config.past)
    if reachable is not None:
        candidates = np.concatenate([reachable.states, reachable.actions], axis=-1)
        gamma = greedy_information(prior, candidates, explorer.transitions)[-1]
        bound = theorem_bound(float(beta.max()), config.steps, float(gamma.max()), max(explorer.round, 1))
        found |= {"gamma": gamma.tolist(), "bound": bound}
    return found


def physics_of(explorer: Explorer, seed_index: int) -> dict[str, Any]:
    """Estimates of unknown parameters of known physics, with their stds, for one seed.

    Args:
        explorer: The explorer.
        seed_index: Position of the seed in `explorer.seeds`.

    Returns:
        Estimate and std by name under the key `physics`; nothing if there are none.
    """
    model = explorer.model
    found = model.estimates(explorer.params) if isinstance(model, KnownPhysics) else {}
    each = {name: [float(value[seed_index]), float(std[seed_index])] for name, (value, std) in found.items()}
    return {"physics": each} if each else {}


@dataclass(frozen=True)
class AnalysisRequest:
    """What is asked."""

    action: tuple[float, ...] = ()
    """The constant action [du] of equilibria, or of the point; empty for zero."""
    samples: int = SAMPLES
    """Number of plausible systems that error bars are computed from."""
    refit: bool = False
    """Analyse a refitted Gaussian process (`refitted`)."""
    truth: bool = False
    """Also analyse the true system."""
    at: str | None = None
    """A point to be studied, as text; None for the equilibria."""
    linear: LinearRequest = field(default_factory=LinearRequest)
    """What is asked about each place."""


@dataclass(frozen=True)
class Analysis:
    """The answer."""

    numbers: dict[str, Any]
    """All numbers, as they are written to a file."""
    places: tuple[OperatingPoint | Equilibrium, ...]
    """The point, or the equilibria."""
    regulators: tuple[Regulator, ...]
    """Their regulators, if any were asked for."""


def analysis_of(
    explorer: Explorer, config: RunConfig, seed_index: int, request: AnalysisRequest, last: Trajectory | None
) -> Analysis:
    """Analyse what one seed has learned.

    Args:
        explorer: The explorer.
        config: The config of the run.
        seed_index: Position of the seed in `explorer.seeds`.
        request: What is asked.
        last: The round along which deviations are followed [S, T, ...], if any.
    """
    system, world = learned_system(explorer, config.world, seed_index, request.refit), config.world
    found = {
        "seed": explorer.seeds[seed_index],
        "round": explorer.round,
        "transitions": explorer.transitions,
        "refit": request.refit,
        "coordinates": list(system.coordinates.names),
        "actions": list(world.action_names),
        "action": list(request.action) or [0.0] * world.action_dim,
        **physics_of(explorer, seed_index),
    }
    places: tuple[OperatingPoint | Equilibrium, ...]
    if request.at is None:
        equilibria = system.equilibria(request.action or None, samples=request.samples)
        places, parts = tuple(equilibria), [described(rest) for rest in equilibria]
        found["equilibria"] = parts
        truth = true_equilibria(explorer, world, seed_index, request.action) if request.truth else None
        found |= {} if last is None else {"sensitivity": growth_along(system, last, seed_index)}
    else:
        place = place_in(request.at, system, request.action, request.samples)
        places, parts, found["at"] = (place,), [part := described_point(place, request.linear)], part
        part["visited"] = system.was_visited(place.point)
        truth = true_point(explorer, world, seed_index, place, request.linear) if request.truth else None
    regulators = _regulators(system, places, parts, request)
    return Analysis(found | ({} if truth is None else {"truth": truth}), places, regulators)


def _regulators(
    system: LearnedSystem,
    places: tuple[OperatingPoint | Equilibrium, ...],
    parts: list[dict[str, Any]],
    request: AnalysisRequest,
) -> tuple[Regulator, ...]:
    """The regulators that were asked for, which are added to the parts; of several equilibria, some may have none."""
    weights_in(request.linear.weights, system)  # a fault in them is no property of an equilibrium
    made = list[Regulator]()
    for place, part in zip(places, parts, strict=True):
        try:
            regulator = regulator_of(system, place, request.linear)
        except SondeError as error:
            if request.at is not None:
                raise
            part["lqr"] = {"none": str(error)}
            continue
        if regulator is not None:
            made.append(regulator)
            part["lqr"] = described_regulator(regulator)
    return tuple(made)
