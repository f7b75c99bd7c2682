"""`python -m benchmarks [PATH ...]`: the command line."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from benchmarks.measuring import Effort, Plan
from benchmarks.report import measure_and_report, paths_help
from sonde._internal.compilation_cache import cache_compilations
from sonde._internal.errors import SondeError


@dataclass
class Arguments:
    """Measure the hot paths at the paper's settings: work, time, rate, and the machine's own limit in the same process."""

    paths: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[PATH ...]")] = ()
    """What to measure; by default all but real-time, time-to-task, fetch-step, cheetah-round and peers."""
    quick: bool = False
    """Fewer and shorter measurements, within about two minutes."""
    seeds: tuple[int, ...] = ()
    """Numbers of seeds in lockstep, such as 1 10 50; by default these on a GPU, and mostly 1 on a CPU, whose cores one seed
    keeps busy."""
    out: Path | None = None
    """Folder for bench.json, written after each measurement, bench.png, and peers.png if peers are measured."""
    peers: bool = False
    """Also give the same work to other packages, as far as they are installed (extra 'benchmarks')."""


def main(args: Sequence[str], effort: Effort | None = None) -> int:
    """Measure, print and save.

    Args:
        args: Words after `python -m benchmarks`.
        effort: How much to measure, in place of what `--quick` says.

    Returns:
        The exit code.
    """
    text = f"{Arguments.__doc__}\n{paths_help()}"
    chosen = tyro.cli(Arguments, args=args, prog="python -m benchmarks", description=text)
    try:
        plan = Plan(effort or ("quick" if chosen.quick else "full"), chosen.seeds or None)
        return measure_and_report(chosen.paths, plan, chosen.peers, chosen.out)
    except (SondeError, OSError) as error:
        print(f"benchmarks: error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    cache_compilations()
    raise SystemExit(main(sys.argv[1:]))
