"""Measure the engine's hot paths; JSON to standard output.

    python -m benchmarks [--quick]

On a CPU the clock is CPU-seconds of this process (time spent on all cores), on other devices it is wall time. Beside each rate
stands the rate of matrix products that the same process reaches just before and after: their ratio means the same on any
machine, however busy it is.
"""

import json
import platform
import resource
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from sonde.data import Data
from sonde.explorer import _condition, _fit
from sonde.imagination import Optimistic
from sonde.models.gp import GaussianProcess
from sonde.models.gp_posterior import GPPosterior
from sonde.objectives import InformationGain
from sonde.policies import PlanningPolicy, _act, _start
from sonde.precision import double_precision
from sonde.presets import preset
from sonde.rollout import rollout
from sonde.runs.run import build_explorer
from sonde.solvers import ICEM, ControlProblem
from sonde.worlds import Pendulum

CONFIG = preset("pendulum-gp")
MODEL, SOLVER = cast(GaussianProcess, CONFIG.model), cast(ICEM, CONFIG.solver)


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def measure(work, repeats: int) -> dict[str, float]:
    """Seconds by the clock above, and of wall time, per call: the medians over `repeats`, compilation not included."""
    jax.block_until_ready(work())
    cpu, wall = [], []
    for _ in range(repeats):
        began_cpu, began_wall = cpu_seconds(), time.perf_counter()
        jax.block_until_ready(work())
        cpu.append(cpu_seconds() - began_cpu)
        wall.append(time.perf_counter() - began_wall)
    on_cpu = jax.default_backend() == "cpu"
    return {"seconds": float(np.median(cpu if on_cpu else wall)), "wall_seconds": float(np.median(wall))}


def gemm_rate(size: int = 1024) -> float:
    """Double-precision GFLOP per second of a large matrix product, the machine's own limit for this kind of work."""
    matrix = jnp.asarray(np.random.default_rng(0).standard_normal((size, size)))
    product = jax.jit(lambda a: a @ a)
    return 2 * size**3 / measure(lambda: product(matrix), 7)["seconds"] / 1e9


def pendulum_data(count: int) -> Data:
    """Transitions from all over the reachable set, in a buffer that they fill: as after exploring for long."""
    world, rng = Pendulum(), np.random.default_rng(1)
    states, _ = world.reachable()
    theta, speed = np.arctan2(states[:, 1], states[:, 0]), states[:, 2]
    rows = rng.integers(0, len(states), count)
    theta, speed = theta[rows] + 0.1 * rng.standard_normal(count), speed[rows] + 0.1 * rng.standard_normal(count)
    x = jnp.asarray(np.stack([np.cos(theta), np.sin(theta), np.clip(speed, -8, 8)], axis=-1))
    u = jnp.asarray(rng.uniform(-1, 1, (count, 1)))
    return Data(x, u, jax.vmap(world.dynamics)(x, u), jnp.asarray(count))


def one_run(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[None], tree)


def fitted(count: int) -> tuple[Any, Data]:
    """Hyper-parameters and data of one run (leading axis 1)."""
    data = one_run(pendulum_data(count))
    keys = jax.random.split(jax.random.key(0), 1)
    params = one_run(MODEL.init(3, 1, keys[0]))
    small = one_run(pendulum_data(500))
    return _fit(MODEL, params, small, jnp.asarray(500), keys, 0.0), data


def planning(count: int, repeats: int) -> dict[str, Any]:
    """One planning step of the preset, with `count` transitions in the data."""
    params, data = fitted(count)
    posterior = _condition(MODEL, params, data, False, 0.0)
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
    data, keys = one_run(pendulum_data(count)), jax.random.split(jax.random.key(0), 1)
    params = one_run(MODEL.init(3, 1, keys[0]))
    model = replace(MODEL, fit_points=count)
    result = measure(lambda: _fit(model, params, data, jnp.asarray(count), keys, 0.0), repeats)
    return {"points": count, "steps": model.steps, "outputs": 3, **result}


def conditioning(count: int, repeats: int) -> dict[str, float]:
    """Factorising the posterior, once per episode."""
    params, data = fitted(count)
    return {"points": count, **measure(lambda: _condition(MODEL, params, data, False, 0.0), repeats)}


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


def importing() -> dict[str, Any]:
    """`import sonde` in a fresh process, and whether it touched a device."""
    code = (
        "import time; t = time.perf_counter(); import sonde; s = time.perf_counter() - t\n"
        "from jax._src import xla_bridge; print(s, int(xla_bridge.backends_are_initialized()))"
    )
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(3)]
    seconds = [float(run.stdout.split()[0]) for run in runs]
    return {"seconds": float(np.median(seconds)), "initialises_device": any(run.stdout.split()[1] == "1" for run in runs)}


@double_precision
def main() -> None:
    quick = "--quick" in sys.argv[1:]
    repeats = 2 if quick else 5
    note = lambda text: print(text, file=sys.stderr, flush=True)
    note("matrix products ...")
    before = gemm_rate()
    results: dict[str, Any] = {"planning": [], "conditioning": []}
    for count in (100, 1000) if quick else (100, 1000, 10_000):
        note(f"planning and conditioning, {count} points ...")
        results["planning"].append(planning(count, repeats))
        results["conditioning"].append(conditioning(count, repeats))
    note("fitting ...")
    results["fitting"] = [fitting(200 if quick else 1000, 1 if quick else 2)]
    rate = (before + gemm_rate()) / 2
    for row in results["planning"]:
        row["fraction_of_gemm_rate"] = row["gflop_per_second"] / rate
    note("lockstep ...")
    results["lockstep"] = lockstep(2, 1) if quick else lockstep(10, 3)
    note("import ...")
    results["import"] = importing()
    facts = {"python": platform.python_version(), "jax": jax.__version__, "device": jax.devices()[0].device_kind}
    facts["clock"] = "CPU-seconds" if jax.default_backend() == "cpu" else "wall seconds"
    print(json.dumps({"machine": facts, "gemm_gflop_per_second": rate, **results}, indent=2))


if __name__ == "__main__":
    main()
