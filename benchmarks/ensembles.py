"""Planning and training with ensembles, the work of the paper's tables: Pendulum-PE, and the size of Cheetah."""

import itertools
from dataclasses import dataclass, replace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.measuring import gemm_rate, in_lockstep, measure, note, on_cpu
from sonde.data import Data
from sonde.explorer import _condition, _fit, _init
from sonde.imagination import Optimistic
from sonde.models.ensemble import ProbabilisticEnsemble
from sonde.objectives import InformationGain
from sonde.policies import _act, _start
from sonde.presets import preset
from sonde.rollout import rollout
from sonde.runs.run import build_explorer
from sonde.solvers import ICEM, ControlProblem
from sonde.solvers.base import PlanningPolicy

DATA = 5000
"""Transitions in the buffer that training reads."""


@dataclass(frozen=True)
class Setting:
    """The work of one column of the tables."""

    name: str
    state_dim: int
    action_dim: int
    model: ProbabilisticEnsemble
    solver: ICEM
    particles: int
    training_steps: int


PENDULUM = preset("pendulum-pe")
SETTINGS = (
    Setting(
        "pendulum", 3, 1, cast(ProbabilisticEnsemble, PENDULUM.model), cast(ICEM, PENDULUM.solver), PENDULUM.particles, 5000
    ),
    Setting(
        "cheetah",
        18,
        6,
        ProbabilisticEnsemble(members=5, layers=4, width=256, batch=64, learning_rate=5e-5),
        ICEM(samples=200, horizon=10, elites=20, exponent=0.25, iterations=5, keep_fraction=0.3),
        10,
        1000,
    ),
)


def products(setting: Setting) -> list[int]:
    """Multiplications of each layer of one member, per point."""
    model, outputs = setting.model, setting.state_dim * (2 if setting.model.noise == "learned" else 1)
    sizes = [setting.state_dim + setting.action_dim, *[model.width] * model.layers, outputs]
    return [n * m for n, m in itertools.pairwise(sizes)]


def planning(setting: Setting, runs: int, noise: bool, repeats: int) -> dict[str, Any]:
    """One planning step. With imagined noise all particles are simulated; without it they cannot differ, and one is."""
    keys, dims = jax.random.split(jax.random.key(0), runs), (setting.state_dim, setting.action_dim)
    empty = in_lockstep(Data.empty(1, *dims), runs)
    posterior, _ = _condition(setting.model, _init(setting.model, *dims, keys), empty, False, 0.0)
    imagination = Optimistic(2.0, noise)
    problem = ControlProblem(
        posterior, imagination, InformationGain(), *dims, setting.particles, ensemble_size=setting.model.members
    )
    policy, solver = PlanningPolicy(problem, setting.solver), setting.solver
    state, x, step = _start(policy, runs), jnp.zeros((runs, setting.state_dim)), jnp.asarray(0)
    result = measure(lambda: _act(policy, state, x, keys, step)[0], repeats)
    plans = sum(solver.sample_counts()) + solver.kept_elites * solver.iterations
    transitions = plans * solver.horizon * problem.simulated_particles
    flops = 2 * runs * transitions * setting.model.members * sum(products(setting))
    return {
        "setting": setting.name,
        "runs": runs,
        "simulated_particles": problem.simulated_particles,
        "imagined_transitions_per_run": transitions,
        **result,
        "gflop_per_second": flops / result["seconds"] / 1e9,
    }


def training(setting: Setting, runs: int, steps: int, repeats: int) -> dict[str, Any]:
    """Gradient steps of all members, on data that fill the buffer."""
    model = replace(setting.model, max_steps=steps, epochs=steps)
    keys, rng = jax.random.split(jax.random.key(0), runs), np.random.default_rng(0)
    x, u, change = (jnp.asarray(rng.normal(size=(DATA, n))) for n in (setting.state_dim, setting.action_dim, setting.state_dim))
    data = in_lockstep(Data(x, u, x + change, jnp.asarray(DATA)), runs)
    params = _init(model, setting.state_dim, setting.action_dim, keys)
    result = measure(lambda: _fit(model, params, data, jnp.asarray(DATA), keys, 0.0), repeats)
    # forward, gradient by the weights, and gradient by the inputs of all layers but the first
    layers = products(setting)
    flops = 2 * runs * steps * model.batch * model.members * (3 * sum(layers) - layers[0])
    return {
        "setting": setting.name,
        "runs": runs,
        "steps": steps,
        **result,
        "gflop_per_second": flops / result["seconds"] / 1e9,
    }


def episode(runs: int, horizon: int) -> dict[str, Any]:
    """A whole episode of `pendulum-pe` (plan, act, step) as one compiled call, with the untrained model."""
    config = replace(PENDULUM, seeds=runs, horizon=horizon, episodes=1)
    explorer = build_explorer(config)
    result = measure(lambda: rollout(config.world, explorer.ask(), horizon).states, 1)
    return {"runs": runs, "steps": horizon, **result}


def benchmark(quick: bool) -> dict[str, Any]:
    """All of the above, with rates beside the machine's rate of single-precision products just before and after each."""
    rate = lambda: gemm_rate(jnp.float32, "default")
    all_runs = (1,) if on_cpu() else (1, 10, 50)
    results: dict[str, Any] = {"planning": [], "training": []}
    limits = [rate()]

    def add(kind: str, row: dict[str, Any]) -> None:
        limits.append(rate())
        limit = (limits[-2] + limits[-1]) / 2
        results[kind].append({**row, "gemm_gflop_per_second": limit, "fraction_of_gemm_rate": row["gflop_per_second"] / limit})

    for setting in SETTINGS:
        for runs in all_runs:
            note(f"ensemble, {setting.name}, {runs} run(s): planning ...")
            add("planning", planning(setting, runs, True, 1 if quick else 3))
            note(f"ensemble, {setting.name}, {runs} run(s): training ...")
            add("training", training(setting, runs, setting.training_steps // (20 if quick else 1), 1))
        note(f"ensemble, {setting.name}: planning without noise ...")
        add("planning", planning(setting, 1, False, 1 if quick else 3))
    if not on_cpu():
        note("ensemble: a whole episode of 10 runs ...")
        results["episode"] = episode(10, PENDULUM.horizon)
    return results
