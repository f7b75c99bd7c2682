"""What a run has learned, studied: the numbers that `sonde analyse` prints and writes, as plain values."""

from typing import Any

import jax
import numpy as np

from sonde.config import RunConfig
from sonde.data import Trajectory
from sonde.errors import SondeError
from sonde.evaluate import TrueDynamics
from sonde.explorer import Explorer
from sonde.metrics import reachable_set
from sonde.precision import double_precision
from sonde.theory import (
    Confidence,
    Equilibrium,
    LearnedSystem,
    Prior,
    exact_information_gain,
    greedy_information,
    one_run,
    theorem_bound,
)
from sonde.theory.confidence import LARGEST
from sonde.theory.information import plain_gp
from sonde.worlds import World


def learned_system(explorer: Explorer, world: World, run: int = 0) -> LearnedSystem:
    """What one of an explorer's runs has learned, to be studied where it measured."""
    if explorer.transitions == 0:
        raise SondeError("the explorer has no measurements yet: there is nothing to study")
    return LearnedSystem(one_run(explorer.posterior, run), world, np.asarray(explorer.data.states[run, : explorer.transitions]))


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
    if trajectory.over is not None and trajectory.over[run].any():
        steps = int(np.argmax(trajectory.over[run])) + 1
    found = system.sensitivity(trajectory.states[run, :steps], trajectory.actions[run, :steps])
    return {"steps": steps, "growth": found.growth[-1].tolist(), "rate": found.rate}


@double_precision
def theory_of(explorer: Explorer, config: RunConfig, run: int) -> dict[str, Any]:
    """Theory's quantities for one run, under the hyper-parameters that it has now; no guarantees unless those are fixed."""
    posterior = plain_gp(explorer.posterior)
    if explorer.transitions > LARGEST:
        raise SondeError(f"theory's quantities take up to {LARGEST} measurements, got {explorer.transitions}")
    posterior, data = one_run((posterior, explorer.data), run)
    prior, points = Prior.of(posterior), np.asarray(data.inputs())[: explorer.transitions]
    information = exact_information_gain(prior, points)
    rule = Confidence("rkhs", delta=config.delta, norm_bound=config.norm_bound)
    beta = np.asarray(jax.jit(rule.by_theory)(posterior, jax.numpy.asarray(information)))
    found = {"information_gain": information.tolist(), "beta": beta.tolist(), "delta": config.delta}
    reachable = reachable_set(config.world)
    if reachable is not None:
        candidates = np.concatenate([reachable.states, reachable.actions], axis=-1)
        gamma = greedy_information(prior, candidates, explorer.transitions)[-1]
        bound = theorem_bound(float(beta.max()), config.steps, float(gamma.max()), max(explorer.episode, 1))
        found |= {"gamma": gamma.tolist(), "bound": bound}
    return found


def analysis_of(
    explorer: Explorer, config: RunConfig, run: int, action: tuple[float, ...], samples: int, last: Trajectory | None
) -> dict[str, Any]:
    """Everything about one run; `last` is the episode along which deviations are followed."""
    system = learned_system(explorer, config.world, run)
    found = {
        "seed": explorer.seeds[run],
        "episode": explorer.episode,
        "transitions": explorer.transitions,
        "coordinates": list(system.coordinates.names),
        "action": list(action) or [0.0] * config.world.action_dim,
        "equilibria": [described(rest) for rest in system.equilibria(action or None, samples=samples)],
    }
    return found | ({} if last is None else {"sensitivity": growth_along(system, last, run)})
