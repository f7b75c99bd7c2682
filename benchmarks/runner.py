"""Measures paths one after the other, and keeps all results so far if one of them fails."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import (
    constraints,
    ensembles,
    free_play,
    gaussian_process,
    memory_check,
    peers,
    processes,
    rollouts,
    soft_actor_critic,
    whole_rounds,
)
from benchmarks.measuring import Limits, Plan, network_products, note, on_cpu, prediction_products
from benchmarks.rows import COPY, Row
from benchmarks.table import in_short
from sonde._internal.errors import SondeError, first_line
from sonde._internal.files import write_atomically
from sonde._internal.machine import this_machine
from sonde._internal.precision import double_precision

Measure = Callable[[Plan], Iterator[Row]]
PATHS: dict[str, Measure] = {
    "gp-fit": gaussian_process.fit,
    "gp-factor": gaussian_process.factor,
    "gp-planning": gaussian_process.planning,
    "pe-planning": ensembles.planning,
    "safe-planning": constraints.planning,
    "pe-training": ensembles.training,
    "sac": soft_actor_critic.optimisation,
    "rollout": rollouts.whole,
    "first-action": processes.first_action,
    "memory": processes.memory,
    "memory-check": memory_check.compare,
    "import": processes.importing,
    "real-time": rollouts.at_a_rate,
    "time-to-task": rollouts.to_a_solved_task,
    "fetch-step": free_play.steps,
    "cheetah-round": whole_rounds.rounds,
    "peers": peers.compare,
}
"""A path is a generator: each row is measured when it is asked for. The first line of its docstring is its help."""
PEERS = "peers"
ON_DEMAND = ("memory-check", "real-time", "time-to-task", "fetch-step", "cheetah-round", PEERS)
"""Measured only on request: they take long or need other packages."""
KINDS = ("f64", "f32", COPY), ("f64", "tf32", "bf16", COPY)
"""Limits that are always measured: on a CPU, and elsewhere."""


@dataclass
class Results:
    """The measurements so far."""

    machine: dict[str, Any] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    """Paths that could not be measured to the end, and why."""

    def save(self, folder: Path) -> None:
        """Write `bench.json`, whole or not at all.

        Args:
            folder: An existing folder.
        """
        content = {"machine": self.machine, "rows": [row.as_dict() for row in self.rows], "failures": self.failures}
        write_atomically(folder / "bench.json", (json.dumps(content, indent=1) + "\n").encode())


def check_paths(names: Sequence[str]) -> None:
    """Reject unknown paths.

    Args:
        names: Names of paths.
    """
    for name in names:
        if name not in PATHS:
            raise SondeError(f"benchmarks: unknown path {name!r}; expected some of: {', '.join(PATHS)}")


@double_precision
def run(names: Sequence[str], plan: Plan, results: Results, with_peers: bool = False, folder: Path | None = None) -> None:
    """Measure paths one after the other.

    Args:
        names: Names of paths; if there are none, all but those `ON_DEMAND`.
        plan: How much to measure.
        results: The rows are added to it.
        with_peers: Also measure other packages.
        folder: Folder where the results are saved after every row.
    """
    chosen = list(names or (name for name in PATHS if name not in ON_DEMAND))
    check_paths(chosen)
    if with_peers and PEERS not in chosen:
        chosen.append(PEERS)
    limits = Limits(plan.effort)
    note("the machine's limits ...")
    limits.measure(KINDS[0] if on_cpu() else KINDS[1])
    results.machine.update(_machine(limits))
    for name in chosen:
        try:
            limits.measure(_products_of(name))
            for row in PATHS[name](plan):
                results.rows.append(row.against(limits.around(row.needs)))
                note(f"    {in_short(results.rows[-1])}")
                if folder is not None:
                    results.save(folder)
        # whatever it is (no memory, a process that failed, an unknown version of a peer), the other paths can still be measured
        except Exception as error:
            results.failures[name] = first_line(error)
            note(f"{name}: {first_line(error)}")
    results.machine.update(_machine(limits))
    if folder is not None:
        results.save(folder)


def _products_of(path: str) -> tuple[str, ...]:
    """The products that most rows of a path are compared with; they are measured just before it."""
    if path.startswith("gp-"):
        return ("f64",)
    if path in ("pe-planning", "fetch-step"):
        return (prediction_products(),)
    if path == "rollout":
        return "f64", prediction_products()
    if path == PEERS:
        return (network_products(), "f64") if on_cpu() else ()
    return (network_products(),) if path in ("pe-training", "sac") else ()


def _machine(limits: Limits) -> dict[str, Any]:
    return {
        **this_machine(),
        "clock": "CPU-seconds" if on_cpu() else "seconds",
        "limits": {name: max(values) for name, values in limits.measured.items()},
    }
