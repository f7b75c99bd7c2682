"""Measure the engine's hot paths; JSON to standard output.

    python -m benchmarks [gp] [pe] [sac] [import] [--quick]

On a CPU the clock is CPU-seconds of this process (time spent on all cores), on other devices it is wall time. Beside each rate
stands the rate of matrix products that the same process reaches just before and after: their ratio means the same on any
machine, however busy it is.
"""

import json
import platform
import subprocess
import sys
from typing import Any

import jax
import numpy as np

from benchmarks import ensembles, gaussian_process, soft_actor_critic
from benchmarks.measuring import note, on_cpu
from sonde.precision import double_precision


def importing(quick: bool) -> dict[str, Any]:
    """`import sonde` in a fresh process, and whether it touched a device."""
    note("import ...")
    code = (
        "import time; t = time.perf_counter(); import sonde; s = time.perf_counter() - t\n"
        "from jax._src import xla_bridge; print(s, int(xla_bridge.backends_are_initialized()))"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        for _ in range(1 if quick else 3)
    ]
    seconds = [float(run.stdout.split()[0]) for run in runs]
    return {"seconds": float(np.median(seconds)), "initialises_device": any(run.stdout.split()[1] == "1" for run in runs)}


PARTS = {"gp": gaussian_process.benchmark, "pe": ensembles.benchmark, "sac": soft_actor_critic.benchmark, "import": importing}


@double_precision
def main() -> None:
    quick, chosen = "--quick" in sys.argv[1:], [arg for arg in sys.argv[1:] if arg != "--quick"]
    if set(chosen) - PARTS.keys():
        raise SystemExit(f"usage: python -m benchmarks [{'] ['.join(PARTS)}] [--quick]")
    facts = {"python": platform.python_version(), "jax": jax.__version__, "device": jax.devices()[0].device_kind}
    facts["clock"] = "CPU-seconds" if on_cpu() else "wall seconds"
    results = {name: PARTS[name](quick) for name in chosen or PARTS}
    print(json.dumps({"machine": facts, **results}, indent=2))


if __name__ == "__main__":
    main()
