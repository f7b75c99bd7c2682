"""Peak memory of whole runs against the formula that runs are checked with before they start."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from benchmarks.measuring import Plan, by_the_clock, note, on_cpu
from benchmarks.processes import in_fresh_process
from benchmarks.rows import Row
from sonde import Method
from sonde._internal.errors import one_of
from sonde.imagination import Optimistic
from sonde.models import Confidence, GaussianProcess, ProbabilisticEnsemble
from sonde.objectives import InformationGain
from sonde.runs import RunConfig
from sonde.runs._memory import memory_need
from sonde.solvers import ICEM


@dataclass(frozen=True)
class Case:
    """A run of one short round whose buffers are full."""

    name: str
    config: RunConfig
    rows: int = 0
    """Initial measurements, with which the buffers are filled."""


_SHORT = RunConfig(
    rounds=1,
    horizon=2,
    evaluation_horizon=2,
    evaluation_tasks=("swing-up",),
    solver=ICEM(samples=50, elites=10, iterations=1),
)
_FAST = GaussianProcess(steps=2, fit_points=200)
_ENSEMBLE = ProbabilisticEnsemble(members=7, max_steps=2)
_GP = replace(_SHORT, model=_FAST)
_PE = replace(_SHORT, model=_ENSEMBLE, confidence=Confidence(holdout=0.2, recalibrate=True))


def _many_copies(config: RunConfig) -> RunConfig:
    """Plans with ten particles for a hundred copies of the system at the same time."""
    method = Method(Optimistic(noise=True, particles=10), InformationGain())
    return replace(config, method=method, seeds=10, rollouts=10, solver=ICEM(samples=100, horizon=10, elites=10, iterations=1))


CASES = (
    Case("gp, 1000000 rows, rank 64", replace(_GP, model=replace(_FAST, rank=64)), 1_000_000),
    Case("gp, 300000 rows, rank 64", replace(_GP, model=replace(_FAST, rank=64)), 300_000),
    Case("gp, 40000 rows, rank 640", replace(_GP, model=replace(_FAST, rank=640)), 40_000),
    Case("gp, exact, 3000 rows", replace(_GP, model=replace(_FAST, rank=0)), 3000),
    Case("gp, 100 copies", _many_copies(_GP), 200),
    Case("pe, 300000 rows", _PE, 300_000),
    Case("pe, 60000 rows, 10 seeds", replace(_PE, seeds=10), 60_000),
    Case("pe, width 2048", replace(_PE, seeds=2, model=replace(_ENSEMBLE, width=2048)), 1000),
    Case("pe, 100 copies", _many_copies(_PE), 200),
)
QUICK = ("gp, 300000 rows, rank 64", "pe, width 2048")
PEAK = """
import gc, tempfile, time
from dataclasses import replace
from pathlib import Path
import numpy as np
from benchmarks.memory_check import case_named
from benchmarks.processes import memory_of_this_process
from sonde import explore
def run(config, rows):
    with tempfile.TemporaryDirectory() as folder:
        world, path = config.world, None
        if rows:
            points = world.reachable()
            chosen = np.random.default_rng(0).integers(0, len(points.states), rows)
            path = str(Path(folder) / "initial.npz")
            np.savez(path, states=points.states[chosen], actions=points.actions[chosen], next_states=points.next_states[chosen])
        explore(replace(config, data=path), Path(folder) / "run")
case = case_named(%r)
small = replace(case.config, seeds=1, rollouts=1, solver=replace(case.config.solver, samples=20))
if hasattr(small.model, "width"):
    small = replace(small, model=replace(small.model, width=32))
run(small, min(case.rows, 100))
gc.collect()
before = memory_of_this_process("VmRSS")
run(case.config, case.rows)
result = {"peak_bytes": memory_of_this_process("VmHWM") - before, "cpu_seconds": time.process_time()}
"""


def case_named(name: str) -> Case:
    """Look up a case.

    Args:
        name: Its name.
    """
    cases = {case.name: case for case in CASES}
    one_of("case", name, cases)
    return cases[name]


def measure(case: Case) -> Row:
    """Run a case in a fresh process, after a small run of the same kind, whose memory is not counted.

    Args:
        case: The case.

    Returns:
        A row with the bytes that were measured and those of the formula; the error is relative to what was measured.
    """
    result, wall = in_fresh_process(PEAK % case.name)
    expected = memory_need(case.config, case.rows)
    extra = {
        "peak_bytes": result["peak_bytes"],
        "formula_bytes": expected.bytes,
        "error": expected.bytes / result["peak_bytes"] - 1,
        "largest": expected.largest.name,
    }
    return Row("memory-check", case.name, case.config.seeds, by_the_clock(result["cpu_seconds"], wall), wall, extra=extra)


def compare(plan: Plan) -> Iterator[Row]:
    """Peak memory of whole runs against the formula of the memory check (on a CPU)."""
    if not on_cpu():
        note("memory-check: measured on CPUs only, left out")
        return
    for case in CASES:
        if plan.only in (None, case.name) and (not plan.quick or case.name in QUICK):
            note(f"memory of {case.name} against the formula ...")
            yield measure(case)
