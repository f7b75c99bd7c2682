"""Planning, conditioning and fitting with Gaussian processes, at the paper's settings (`pendulum-gp`)."""

import time
from dataclasses import replace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.measuring import gemm_rate, in_lockstep, measure, note
from sonde.data import Data
from sonde.explorer import _condition, _fit
from sonde.imagination import Optimistic
from sonde.models.gp import GaussianProcess
from sonde.models.gp_posterior import GPPosterior
from sonde.objectives import InformationGain
from sonde.policies import _act, _start
from sonde.presets import preset
from sonde.rollout import rollout
from sonde.runs.run import build_explorer
from sonde.solvers import ICEM, ControlProblem
from sonde.solvers.base import PlanningPolicy
from sonde.worlds import Pendulum

CONFIG = preset("pendulum-gp")
MODEL, SOLVER = cast(GaussianProcess, CONFIG.model), cast(ICEM, CONFIG.solver)


def pendulum_data(count: int) -> Data:
    """Transitions from all over the reachable set, in a buffer that they fill: as after exploring for long."""
    world, rng = Pendulum(), np.random.default_rng(1)
    states, _ = world.reachable_points()
    theta, speed = np.arctan2(states[:, 1], states[:, 0]), states[:, 2]
    rows = rng.integers(0, len(states), count)
    theta, speed = theta[rows] + 0.1 * rng.standard_normal(count), speed[rows] + 0.1 * rng.standard_normal(count)
    x = jnp.asarray(np.stack([np.cos(theta), np.sin(theta), np.clip(speed, -8, 8)], axis=-1))
    u = jnp.asarray(rng.uniform(-1, 1, (count, 1)))
    return Data(x, u, jax.vmap(world.dynamics)(x, u), jnp.asarray(count))


def fitted(count: int) -> tuple[Any, Data]:
    """Hyper-parameters and data of one run (leading axis 1)."""
    data = in_lockstep(pendulum_data(count), 1)
    keys = jax.random.split(jax.random.key(0), 1)
    params = in_lockstep(MODEL.init(3, 1, keys[0]), 1)
    small = in_lockstep(pendulum_data(500), 1)
    return _fit(MODEL, params, small, jnp.asarray(500), keys, 0.0), data


def planning(count: int, repeats: int) -> dict[str, Any]:
    """One planning step of the preset, with `count` transitions in the data."""
    params, data = fitted(count)
    posterior = _condition(MODEL, params, data, False, 0.0)[0]
    problem = ControlProblem(posterior, Optimistic(CONFIG.beta), InformationGain(), 3, 1, CONFIG.particles)
    policy = PlanningPolicy(problem, SOLVER)
    keys, x, step = jax.random.split(jax.random.key(1), 1), jnp.asarray([[-1.0, 0.0, 0.0]]), jnp.asarray(0)
    state = _start(policy, 1)
    result = measure(lambda: _act(policy, state, x, keys, step)[0], repeats)
    assert isinstance(posterior, GPPosterior)
    used = [int(number) for number in posterior.centres.used[0]]
    plans = sum(SOLVER.sample_counts()) + SOLVER.kept_elites * SOLVER.iterations
    transitions = plans * SOLVER.horizon * problem.simulated_particles
    # per output: squared distances (4 inputs and 2 columns), the factor, the weights
    flops = transitions * sum(2 * number * (6 + number + 1) for number in used)
    return {
        "points": count,
        "inducing_points": used,
        "imagined_transitions": transitions,
        **result,
        "transitions_per_second": transitions / result["seconds"],
        "gflop_per_second": flops / result["seconds"] / 1e9,
    }


def fitting(count: int, repeats: int) -> dict[str, float]:
    """A fit of the hyper-parameters to `count` points (all outputs, all steps of the preset)."""
    data, keys = in_lockstep(pendulum_data(count), 1), jax.random.split(jax.random.key(0), 1)
    params = in_lockstep(MODEL.init(3, 1, keys[0]), 1)
    model = replace(MODEL, fit_points=count)
    result = measure(lambda: _fit(model, params, data, jnp.asarray(count), keys, 0.0), repeats)
    return {"points": count, "steps": model.steps, "outputs": 3, **result}


def conditioning(count: int, repeats: int) -> dict[str, float]:
    """Factorising the posterior, once per episode."""
    params, data = fitted(count)
    return {"points": count, **measure(lambda: _condition(MODEL, params, data, False, 0.0)[0], repeats)}


def lockstep(seeds: int, episodes: int) -> dict[str, float]:
    """A short exploration with `pendulum-gp-lite`: `seeds` runs in lockstep against as many single runs one after the other."""
    config = replace(preset("pendulum-gp-lite"), episodes=episodes, horizon=50)

    def explore(runs: int) -> float:
        began = time.perf_counter()
        explorer = build_explorer(replace(config, seeds=runs))
        for _ in range(episodes):
            explorer.tell(rollout(config.world, explorer.ask(), config.horizon))
        return time.perf_counter() - began

    single_first, single = explore(1), min(explore(1) for _ in range(2))
    together_first, together = explore(seeds), min(explore(seeds) for _ in range(2))
    return {
        "seeds": seeds,
        "episodes": episodes,
        "single_seconds": single,
        "single_seconds_with_compilation": single_first,
        "lockstep_seconds": together,
        "lockstep_seconds_with_compilation": together_first,
        "ratio_without_compilation": together / (seeds * single),
        "ratio_with_compilation_in_one_process": together_first / (single_first + (seeds - 1) * single),
        "ratio_with_compilation_in_separate_processes": together_first / (seeds * single_first),
    }


def benchmark(quick: bool) -> dict[str, Any]:
    """All of the above, with rates beside the machine's rate of double-precision products just before and after."""
    repeats = 2 if quick else 5
    rate = lambda: gemm_rate(jnp.float64, "highest")
    before = rate()
    results: dict[str, Any] = {"planning": [], "conditioning": []}
    for count in (100, 1000) if quick else (100, 1000, 10_000):
        note(f"Gaussian process: planning and conditioning, {count} points ...")
        results["planning"].append(planning(count, repeats))
        results["conditioning"].append(conditioning(count, repeats))
    note("Gaussian process: fitting ...")
    results["fitting"] = [fitting(200 if quick else 1000, 1 if quick else 2)]
    limit = (before + rate()) / 2
    for row in results["planning"]:
        row["fraction_of_gemm_rate"] = row["gflop_per_second"] / limit
    note("Gaussian process: lockstep ...")
    results["lockstep"] = lockstep(2, 1) if quick else lockstep(10, 3)
    return {"gemm_gflop_per_second": limit, **results}
