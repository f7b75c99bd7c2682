"""Time to a solved task: from the start of Python until a task that was never trained for is solved zero-shot.

A fresh process explores `pendulum-gp-lite` and plans the swing-up with what it has learned after each episode, until the return
is good enough. Importing, compiling, exploring, learning and evaluating all count; what random actions and a perfect model
reach, by which the return is judged, is found before the clock starts.
"""

import tempfile
from typing import Any

from benchmarks.measuring import note
from benchmarks.processes import in_fresh_process
from sonde._internal.precision import double_precision
from sonde._internal.randomness import round_keys
from sonde.evaluation._evaluate import TrueDynamics, evaluate
from sonde.runs._presets import preset

PRESET, TASK, GOOD_ENOUGH = "pendulum-gp-lite", "swing-up", 0.85
"""The score is 0 for random actions and 1 for the same planner with a perfect model (`sonde.evaluation._evaluate.normalised_score`)."""
UNTIL_SOLVED = """
import time; began = time.perf_counter()
from dataclasses import replace
from sonde.runs._presets import preset
from sonde.runs._run import build_explorer, evaluate_task, experiment
config = replace(preset(%r), first_seed=%d)
explorer, returns, seconds = build_explorer(config), [], []
while explorer.episode < config.episodes and not (returns and returns[-1] >= %r):
    explorer.tell(experiment(config, explorer)[1])
    returns.append(float(evaluate_task(config, explorer, %r, explorer.posterior).returns[0]))
    seconds.append(time.perf_counter() - began)
result = {"returns": returns, "seconds_after_episodes": seconds, "cpu_seconds": time.process_time()}
"""


@double_precision
def _limits(seed: int) -> tuple[float, float]:
    """The returns of random actions and of the oracle."""
    config, keys = preset(PRESET), round_keys((seed,), 0)
    reached = lambda posterior: evaluate(config.world, posterior, TASK, config.solver, config.evaluation_horizon, keys)
    return float(reached(None).returns[0]), float(reached(TrueDynamics(config.world)).returns[0])


def benchmark(quick: bool) -> dict[str, Any]:
    """Seconds until the task is solved, per seed: with an empty cache of compiled programs, and with what that leaves.

    Where the preset's episodes did not suffice, `solved` is false and the seconds are those of trying.
    """
    results: dict[str, Any] = {}
    for seed in (0,) if quick else (0, 1, 2):
        random, oracle = _limits(seed)
        wanted = random + GOOD_ENOUGH * (oracle - random)
        code = UNTIL_SOLVED % (PRESET, seed, wanted, TASK)
        results[f"seed {seed}"] = {"random": random, "oracle": oracle, "wanted": wanted}
        with tempfile.TemporaryDirectory() as cache:
            settings = {"JAX_COMPILATION_CACHE_DIR": cache, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.3"}
            for state in ("empty", "warm"):
                note(f"time to {TASK} of {PRESET}, seed {seed}, {state} cache ...")
                result, wall = in_fresh_process(code, settings)
                solved = result["returns"][-1] >= wanted
                results[f"seed {seed}"][f"{state} cache"] = {"solved": solved, "wall_seconds": wall, **result}
    return results
