"""`python -m experiments FIGURE`: its options."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console

from experiments.command import EVERYTHING, Reproduction, TimeUp, print_failures, report, run_missing
from experiments.paper import FIGURES
from sonde._internal.compilation_cache import cache_compilations
from sonde._internal.errors import SondeError, one_of, positive
from sonde.cli._sweep import backend_named
from sonde.runs.sweep._local import on_accelerator


@dataclass
class Arguments:
    """Make figures of the paper: run what is missing, draw, and answer the paper's claims. Can be stopped at any time."""

    figure: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FIGURE")]
    """uncertainty (Figure 1), downstream (Figure 2), manipulation (Figure 3), rewards (Figure 4) or all."""
    scale: Literal["small", "medium", "paper"] = "small"
    """How many rounds and seeds: small is for two cores, medium for a GPU and a few hours, paper is all."""
    seeds: int | None = None
    """Seeds of each method, instead of the scale's."""
    settings: Literal["auto", "paper", "lite"] = "auto"
    """The paper's planners and models, or lighter ones; auto: the paper's on a GPU, lite ones on a CPU."""
    out: Path = Path("reproduced")
    """Folder for runs, tables and figures."""
    only: tuple[str, ...] = ()
    """Only these: pendulum-gp, pendulum-pe, mountain-car, reacher, swimmer, cheetah, fetch-construction."""
    methods: tuple[str, ...] = ()
    """Only these methods."""
    run: bool = True
    """Run what is missing; --no-run draws what there is."""
    minutes: float | None = None
    """Stop running after this many minutes, then draw what there is; the same command continues. Rounds that are not finished
    by then are run again."""
    workers: int | None = None
    """Batches to work on at the same time, each in a process of its own; by default 3 per GPU, and on a CPU 2, or more if it
    has more than four cores."""
    lockstep: bool = False
    """Run methods and seeds whose models can be fitted by one program in one process; meant for GPUs."""
    backend: Literal["local", "ray"] = "local"
    """Where: on this machine, or on a Ray cluster (needs the extra 'ray')."""
    address: str | None = None
    """The Ray cluster; by default one is started on this machine."""
    gpus: float = 0.0
    """GPUs that Ray gives to each batch, such as 0.25; 0: batches run on CPUs."""


def make_figures(args: list[str]) -> None:
    """Run what the arguments ask for, then report."""
    chosen = tyro.cli(Arguments, args=args, prog="python -m experiments")
    one_of("figure", chosen.figure, (*FIGURES, EVERYTHING))
    if chosen.minutes is not None:
        positive("experiments", minutes=chosen.minutes)
    figures = tuple(FIGURES) if chosen.figure == EVERYTHING else (chosen.figure,)
    backend = backend_named(chosen.backend, chosen.workers, chosen.address, chosen.gpus, chosen.lockstep)
    accelerator = chosen.gpus > 0 if chosen.backend == "ray" else on_accelerator()
    lite = chosen.settings == "lite" or (chosen.settings == "auto" and not accelerator)
    reproduction = Reproduction(figures, chosen.scale, chosen.seeds, lite, chosen.out, chosen.only, chosen.methods)
    console, failures = Console(), {}
    try:
        if chosen.run:
            failures = run_missing(reproduction, backend, console, chosen.minutes)
    except TimeUp:
        console.print("Time is up. Every finished round is safe: the same command continues. This is what there is:")
    except KeyboardInterrupt:
        console.print("Stopped. Every finished round is safe: the same command continues. This is what there is:")
        report(reproduction, console)
        raise SystemExit(130) from None
    report(reproduction, console)
    if failures:
        print_failures(failures, reproduction.batches(), console)
        raise SystemExit(1)


def main() -> None:
    """Entry point."""
    try:
        cache_compilations()
        make_figures(sys.argv[1:])
    except (SondeError, OSError) as error:
        print(f"experiments: error: {error}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
