"""Time to a solved task: from the start of Python until a task that was never trained for is solved zero-shot.

A fresh process explores `pendulum-gp-lite` and plans the swing-up with what it has learned after each round, until the return
is good enough. Importing, compiling, exploring, learning and evaluating all count. The returns of random actions and of a
perfect model, which define what is good enough, are computed before the clock starts.
"""

import tempfile
from typing import Any

from benchmarks.measuring import note
from benchmarks.processes import in_fresh_process
from sonde._internal.precision import double_precision
from sonde._internal.randomness import round_keys
from sonde.evaluation import Learned, TrueDynamics, evaluate
from sonde.runs import preset

PRESET, TASK, GOOD_ENOUGH = "pendulum-gp-lite", "swing-up", 0.85
"""The score is 0 for random actions and 1 for the same planner with a perfect model (`sonde.evaluation.normalised_score`)."""
UNTIL_SOLVED = """
import time; began = time.perf_counter()
from dataclasses import replace
from sonde import Learned, evaluate, preset
from sonde.runs._run import build_explorer, collect
config = replace(preset(%r), first_seed=%d)
explorer, setup, returns, seconds = build_explorer(config), config.task_setup(%r), [], []
while explorer.round < config.rounds and not (returns and returns[-1] >= %r):
    explorer.tell(collect(config, explorer)[1])
    learned = Learned(explorer.posterior, explorer.data)
    returns.append(float(evaluate(setup, learned, explorer.keys()).returns[0]))
    seconds.append(time.perf_counter() - began)
result = {"returns": returns, "seconds_after_rounds": seconds, "cpu_seconds": time.process_time()}
"""


@double_precision
def _limits(seed: int) -> tuple[float, float]:
    """The returns of random actions and of the oracle."""
    config, keys = preset(PRESET), round_keys((seed,), 0)
    returns = lambda learned: float(evaluate(config.task_setup(TASK), learned, keys).returns[0])
    return returns(None), returns(Learned(TrueDynamics(config.world)))


def benchmark(quick: bool) -> dict[str, Any]:
    """Measure the seconds until the task is solved.

    Args:
        quick: Whether one seed is enough.

    Returns:
        Results per seed, with an empty compilation cache and with the one that this leaves. Where the rounds of the preset were
        not enough, `solved` is false and the seconds are those of all rounds.
    """
    results: dict[str, Any] = {}
    for seed in (0,) if quick else (0, 1, 2):
        random, oracle = _limits(seed)
        wanted = random + GOOD_ENOUGH * (oracle - random)
        code = UNTIL_SOLVED % (PRESET, seed, TASK, wanted)
        results[f"seed {seed}"] = {"random": random, "oracle": oracle, "wanted": wanted}
        with tempfile.TemporaryDirectory() as cache:
            settings = {"JAX_COMPILATION_CACHE_DIR": cache, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.3"}
            for state in ("empty", "warm"):
                note(f"time to {TASK} of {PRESET}, seed {seed}, {state} cache ...")
                result, wall = in_fresh_process(code, settings)
                solved = result["returns"][-1] >= wanted
                results[f"seed {seed}"][f"{state} cache"] = {"solved": solved, "wall_seconds": wall, **result}
    return results
