"""What only a fresh process can show: the time of an import, the time to the first action, and peak memory."""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measuring import Plan, by_the_clock, note, on_cpu
from benchmarks.rows import Row

ROOT = Path(__file__).parent.parent
"""The clone, from which a fresh process imports `benchmarks`."""
IMPORT = """
import time; began, began_cpu = time.perf_counter(), time.process_time()
import sonde
seconds, cpu = time.perf_counter() - began, time.process_time() - began_cpu
from jax._src import xla_bridge
result = {"import_seconds": seconds, "cpu_seconds": cpu, "initialises_device": xla_bridge.backends_are_initialized()}
"""
COMMANDS = ("sonde --help", "sonde list", "sonde explore --help", "sonde explore pendulum-gp-lite --help")
"""Commands that print what Sonde offers; people wait for them."""
FIRST_ACTION = """
import time; began, began_cpu = time.perf_counter(), time.process_time()
import sonde
from sonde.runs._run import build_explorer
import numpy as np
imported = time.perf_counter() - began
config = sonde.preset(%r).with_method(%r)
policy = build_explorer(config).ask()
policy(np.zeros(config.world.state_dim))
first = time.perf_counter() - began
cpu = time.process_time() - began_cpu
policy(np.zeros(config.world.state_dim))
action = time.perf_counter() - began - first
result = {"import_seconds": imported, "action_seconds": action, "compile_seconds": first - imported - action,
          "cpu_seconds": cpu, "seconds_to_first_action": first}
"""
MEMORY = """
import time, jax
from benchmarks.measuring import Plan
from benchmarks.processes import peak_of_this_process
from benchmarks.runner import PATHS
from sonde._internal.precision import double_precision
double_precision(lambda: list(PATHS[%r](Plan(%r, seeds=%r, only=%r))))()
stats = jax.devices()[0].memory_stats() or {}
result = {"process_bytes": peak_of_this_process(), "device_bytes": stats.get("peak_bytes_in_use"),
          "cpu_seconds": time.process_time()}
"""
MEMORY_CASES = (
    ("gp-planning", "n = 20000"),
    ("pe-planning", "pendulum"),
    ("pe-training", "cheetah"),
    ("sac", "explore"),
)


def in_fresh_process(code: str, settings: Mapping[str, str] | None = None) -> tuple[dict[str, Any], float]:
    """Run code in a fresh Python.

    Args:
        code: Python code that leaves a dictionary in `result`.
        settings: Environment variables to add.

    Returns:
        The dictionary, and the wall time of the whole process.
    """
    command = [sys.executable, "-c", f"{code}\nimport json; print(json.dumps(result))"]
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    # no preallocation, which takes most of a device's memory at once: this process may hold some of it
    environment = {**os.environ, "PYTHONPATH": path, "XLA_PYTHON_CLIENT_PREALLOCATE": "false", **(settings or {})}
    began = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment)
    wall = time.perf_counter() - began
    if done.returncode != 0:  # not subprocess's own error, which would quote all of the code
        raise RuntimeError(f"a fresh process ended with exit code {done.returncode}; its messages are above")
    return json.loads(done.stdout.splitlines()[-1]), wall


def memory_of_this_process(which: str) -> int:
    """Memory of this process on Linux, in bytes.

    Args:
        which: A line of /proc/self/status: VmHWM, the peak so far, or VmRSS, what it has now.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(which))


def peak_of_this_process() -> int:
    """Peak memory of this process, in bytes."""
    if Path("/proc/self/status").exists():  # getrusage would also count the process that started this one
        return memory_of_this_process("VmHWM")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def importing(plan: Plan) -> Iterator[Row]:
    """`import sonde`, and whether it initialises a device; then commands that compute nothing, as whole processes."""
    note("import ...")
    results = [in_fresh_process(IMPORT)[0] for _ in range(plan.repeats)]
    wall, cpu = (float(np.median([result[name] for result in results])) for name in ("import_seconds", "cpu_seconds"))
    extra = {"initialises_device": results[0]["initialises_device"]}
    yield Row("import", "import sonde", 1, by_the_clock(cpu, wall), wall, extra=extra)
    for command in COMMANDS:
        note(f"{command} ...")
        times = [_whole_process([sys.executable, "-m", *command.split()]) for _ in range(plan.repeats)]
        wall, cpu = np.median(times, axis=0).tolist()
        yield Row("import", command, 1, by_the_clock(cpu, wall), wall)


def _whole_process(command: list[str]) -> tuple[float, float]:
    """Wall time and CPU-seconds of a command, its start and end included."""

    def of_children() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    began, began_cpu = time.perf_counter(), of_children()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began, of_children() - began_cpu


def first_action(plan: Plan) -> Iterator[Row]:
    """From before `import sonde` to the first action, with an empty and with a warm compilation cache."""
    method = "random" if plan.effort == "tiny" else "opax"
    names = ("pendulum-gp-lite",) if plan.quick else ("pendulum-gp", "pendulum-pe-lite" if on_cpu() else "pendulum-pe")
    for name in plan.chosen(names):
        with tempfile.TemporaryDirectory() as cache:
            settings = {
                "JAX_COMPILATION_CACHE_DIR": cache,
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.3",  # as on the command line
            }
            for state in ("empty", "warm"):
                note(f"first action of {name}, {state} cache ...")
                result, _ = in_fresh_process(FIRST_ACTION % (name, method), settings)
                wall = result.pop("seconds_to_first_action")
                cpu = result.pop("cpu_seconds")
                yield Row("first-action", f"{name}, {state} cache", 1, by_the_clock(cpu, wall), wall, extra=result)


def memory(plan: Plan) -> Iterator[Row]:
    """Peak memory of a path, libraries and compiler included."""
    cases = {"tiny": (("pe-training", "tiny"),), "quick": (("pe-planning", "cheetah, 10 particles"),)}
    for path, setting in cases.get(plan.effort, MEMORY_CASES):
        if plan.only not in (None, setting):
            continue
        for num_seeds in plan.seed_counts():
            note(f"memory of {path}, {setting}, {num_seeds} seed(s) ...")
            code = MEMORY % (path, plan.effort, (num_seeds,), setting)
            result, wall = in_fresh_process(code)
            peak = result["process_bytes"] if on_cpu() else result["device_bytes"]
            seconds = by_the_clock(result.pop("cpu_seconds"), wall)
            yield Row("memory", f"{path}, {setting}", num_seeds, seconds, wall, extra={"peak_bytes": peak, **result})
