"""Whole rounds of the cheetah: plan, simulate, fit and save, as a run does them."""

import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from benchmarks.measuring import Plan, by_the_clock, note
from benchmarks.processes import in_fresh_process
from benchmarks.rows import Row
from sonde.models import ProbabilisticEnsemble
from sonde.runs import Callback, RunConfig, explore_together, preset
from sonde.solvers import ICEM

METHODS = ("opax", "mean-ae", "pets-ae", "h-ucrl", "random")
ROUNDS, COMPILED = 5, 3
"""Rounds of each run; the last ones are timed, when everything is compiled."""
ONE_RUN = """
from benchmarks.measuring import Plan
from benchmarks.whole_rounds import seconds_per_round
result = seconds_per_round(Plan(%r), %r)
"""


class _Ends(Callback):
    """Notes when rounds end."""

    def __init__(self):
        self.times: list[float] = []

    def on_round_end(self, round_number: int, rows: Sequence[Any]) -> None:
        """Look at the clock."""
        del round_number, rows
        self.times.append(time.perf_counter())


def _config(plan: Plan, method: str) -> RunConfig:
    """A run whose fits take all gradient steps from the first round on, and that evaluates no tasks."""
    config = preset("cheetah").with_method(method, "forward" if method == "h-ucrl" else None)
    model = replace(cast(ProbabilisticEnsemble, config.model), epochs=10_000)
    config = replace(config, model=model, rounds=ROUNDS, seeds=5, evaluate_every=0)
    if plan.effort != "tiny":
        return config
    small = replace(model, members=2, layers=1, width=8, max_steps=2)
    return replace(config, model=small, horizon=2, seeds=2, solver=ICEM(samples=8, elites=4, iterations=1, horizon=2))


def seconds_per_round(plan: Plan, methods: Sequence[str]) -> dict[str, float]:
    """Run methods together in this process.

    Args:
        plan: How much to measure.
        methods: Their names.

    Returns:
        Median seconds of a round that is compiled, and CPU-seconds of the whole process.
    """
    clocks = [_Ends() for _ in methods]
    with tempfile.TemporaryDirectory() as folder:
        folders = [Path(folder) / method for method in methods]
        explore_together([_config(plan, method) for method in methods], folders, [[clock] for clock in clocks])
    ends = np.max([clock.times for clock in clocks], axis=0)
    return {"seconds": float(np.median(np.diff(ends)[COMPILED - 1 :])), "cpu_seconds": time.process_time()}


def rounds(plan: Plan) -> Iterator[Row]:
    """A round of five cheetahs: one method, five methods in one process, and in five processes (needs the extra 'mujoco')."""
    methods = METHODS[:2] if plan.effort == "tiny" else METHODS
    together = f"{len(methods)} methods"
    cases = {
        methods[0]: [methods[:1]],
        f"{together}, one process": [methods],
        f"{together}, {len(methods)} processes": [(method,) for method in methods],
    }
    for name, groups in cases.items():
        note(f"rounds of the cheetah, {name} ...")
        with ThreadPoolExecutor(len(groups)) as threads:
            results = list(threads.map(lambda group: in_fresh_process(ONE_RUN % (plan.effort, group))[0], groups))
        wall, cpu = max(each["seconds"] for each in results), sum(each["cpu_seconds"] for each in results)
        extra = {"methods": [method for group in groups for method in group], "process_cpu_seconds": cpu}
        yield Row("cheetah-round", name, _config(plan, methods[0]).seeds, by_the_clock(None, wall), wall, extra=extra)
