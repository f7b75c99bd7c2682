"""What a run has learned, studied: the numbers that `sonde analyse` prints and writes, as plain values."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from sonde._internal.errors import SondeError
from sonde._internal.lockstep import one_seed
from sonde._internal.precision import double_precision
from sonde.analysis import Equilibrium, LearnedSystem
from sonde.data import Data, Trajectory
from sonde.evaluation import TrueDynamics
from sonde.evaluation._metrics import reachable_set
from sonde.explorer import Explorer
from sonde.models._beta import LARGEST
from sonde.models._gaussian_process import GaussianProcess
from sonde.models._gp_posterior import GPPosterior
from sonde.models._prior import Prior, plain_gp
from sonde.runs._config import RunConfig
from sonde.runs._theory_metrics import rkhs_rule
from sonde.theory import exact_information_gain, greedy_information, theorem_bound
from sonde.worlds import World

REFIT_PRIOR, REFIT_STEPS, REFIT_LIMIT = 1.0, 200, 10.0
"""How a Gaussian process is fitted anew for a study: at least so wide a prior and so many steps, and gradients no longer."""


def learned_system(explorer: Explorer, world: World, run: int = 0, refit: bool = False) -> LearnedSystem:
    """What one of an explorer's runs has learned, to be studied where it measured; with `refit`, as `refitted`."""
    if explorer.transitions == 0:
        raise SondeError("the explorer has no measurements yet: there is nothing to study")
    posterior = refitted(explorer, run) if refit else one_seed(explorer.posterior, run)
    return LearnedSystem(posterior, world, np.asarray(explorer.data.states[run, : explorer.transitions]))


@double_precision
def refitted(explorer: Explorer, run: int = 0) -> GPPosterior:
    """A run's Gaussian process, with hyper-parameters fitted anew to all of its measurements, from their initial values.

    Who explores is better too unsure than too sure, and so the prior keeps length-scales short then. A study afterwards wants
    those that the measurements speak for. Nothing is held out, nor recalibrated.
    """
    model = explorer.model
    if not isinstance(model, GaussianProcess) or model.hyperparameters == "fixed":
        raise SondeError("only Gaussian processes with learned hyper-parameters can be fitted anew; study the run as it is")
    prior_std, steps = max(model.prior_std, REFIT_PRIOR), max(model.steps, REFIT_STEPS)
    model = replace(model, prior_std=prior_std, steps=steps, gradient_limit=REFIT_LIMIT)
    posterior = _fitted(model, one_seed(explorer.data, run), jax.random.key(0))
    if not np.isfinite(posterior.centres.weights).all():
        raise SondeError("the fit anew led to no numbers; study the run as it is, without refit")
    return posterior


@eqx.filter_jit
def _fitted(model: GaussianProcess, data: Data, key: Array) -> GPPosterior:
    initial = model.init(data.states.shape[-1], data.actions.shape[-1], key)
    return model.condition(model.fit(initial, data, data.count, key), data)


def true_equilibria(explorer: Explorer, world: World, run: int, action: tuple[float, ...]) -> list[dict[str, Any]]:
    """Those of the true system, looked for where the run measured."""
    visited = np.asarray(explorer.data.states[run, : explorer.transitions])
    return [described(rest) for rest in LearnedSystem(TrueDynamics(world), world, visited).equilibria(action or None)]


def described(rest: Equilibrium) -> dict[str, Any]:
    """An equilibrium as plain numbers; complex ones as pairs."""
    linear, control = rest.linearisation, rest.linearisation.controllability
    low, high = np.quantile(linear.spectral_radius_samples, [0.025, 0.975])
    return {
        "point": rest.point.tolist(),
        "point_std": rest.point_std.tolist(),
        "state": rest.state.tolist(),
        "eigenvalues": [[value.real, value.imag] for value in linear.eigenvalues.tolist()],
        "eigenvalue_std": linear.eigenvalue_std.tolist(),
        "spectral_radius": linear.spectral_radius,
        "spectral_radius_95": [float(low), float(high)],
        "stability": linear.stability,
        "controllability": {"rank": control.rank, "smallest": control.smallest, "std": control.std},
        **{name: getattr(linear, name).tolist() for name in ("A", "B", "A_std", "B_std")},
    }


def growth_along(system: LearnedSystem, trajectory: Trajectory, run: int) -> dict[str, Any]:
    """How deviations grow along an episode of one run, until it was restarted if it was."""
    steps = trajectory.states.shape[1]
    ended = trajectory.ended
    if ended is not None and ended[run].any():
        steps = int(np.argmax(ended[run])) + 1
    found = system.sensitivity(trajectory.states[run, :steps], trajectory.actions[run, :steps])
    return {"steps": steps, "growth": found.growth[-1].tolist(), "rate": found.rate}


@double_precision
def theory_of(explorer: Explorer, config: RunConfig, run: int) -> dict[str, Any]:
    """Theory's quantities for one run, under the hyper-parameters that it has now; no guarantees unless those are fixed."""
    posterior = plain_gp(explorer.posterior)
    if explorer.transitions > LARGEST:
        raise SondeError(f"theory's quantities take up to {LARGEST} measurements, got {explorer.transitions}")
    posterior, data = one_seed((posterior, explorer.data), run)
    prior, points = Prior.of(posterior), np.asarray(data.inputs())[: explorer.transitions]
    information = exact_information_gain(prior, points)
    rule = rkhs_rule(config)
    beta = np.asarray(jax.jit(rule.by_theory)(posterior, jax.numpy.asarray(information)))
    found = {"information_gain": information.tolist(), "beta": beta.tolist(), "delta": rule.delta}
    reachable = reachable_set(config.world)
    if reachable is not None:
        candidates = np.concatenate([reachable.states, reachable.actions], axis=-1)
        gamma = greedy_information(prior, candidates, explorer.transitions)[-1]
        bound = theorem_bound(float(beta.max()), config.steps, float(gamma.max()), max(explorer.round, 1))
        found |= {"gamma": gamma.tolist(), "bound": bound}
    return found


def analysis_of(
    explorer: Explorer,
    config: RunConfig,
    run: int,
    action: tuple[float, ...],
    samples: int,
    last: Trajectory | None,
    refit: bool = False,
) -> dict[str, Any]:
    """Everything about one run, as it is or `refitted`; `last` is the episode along which deviations are followed."""
    system = learned_system(explorer, config.world, run, refit)
    found = {
        "seed": explorer.seeds[run],
        "round": explorer.round,
        "transitions": explorer.transitions,
        "refit": refit,
        "coordinates": list(system.coordinates.names),
        "action": list(action) or [0.0] * config.world.action_dim,
        "equilibria": [described(rest) for rest in system.equilibria(action or None, samples=samples)],
    }
    return found | ({} if last is None else {"sensitivity": growth_along(system, last, run)})
