"""`sonde reproduce`: its options."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console

from experiments.command import (
    EVERYTHING,
    Experiment,
    default_workers,
    on_accelerator,
    print_failures,
    report,
    run_missing,
)
from experiments.paper import FIGURES
from sonde._internal.errors import SondeError, one_of, whole


@dataclass
class ReproduceArguments:
    """Make figures of the paper anew: run what is missing, draw, and answer the paper's claims. May be stopped at any time."""

    figure: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FIGURE")]
    """uncertainty (Figure 1), downstream (Figure 2), manipulation (Figure 3), rewards (Figure 4) or all."""
    scale: Literal["small", "medium", "paper"] = "small"
    """How many rounds and seeds: small is for two cores, medium for a GPU and a few hours, paper is all."""
    seeds: int | None = None
    """Seeds of each method, in place of the scale's."""
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
    workers: int | None = None
    """Batches to work on at the same time, each in a process of its own; by default 3 on a GPU, and on a CPU 2, or more if it
    has more than four cores."""
    backend: Literal["local", "ray"] = "local"
    """Where: on this machine, or on a Ray cluster (needs the extra 'cluster')."""
    address: str | None = None
    """The Ray cluster; by default one is started on this machine."""
    gpus: float = 0.0
    """GPUs that Ray gives to each batch, such as 0.25; 0: batches run on CPUs."""


def reproduce(args: list[str]) -> None:
    """`sonde reproduce FIGURE`."""
    chosen = tyro.cli(ReproduceArguments, args=args, prog="sonde reproduce")
    one_of("figure", chosen.figure, (*FIGURES, EVERYTHING))
    if chosen.workers is not None:
        whole("reproduce", workers=chosen.workers)
    figures = tuple(FIGURES) if chosen.figure == EVERYTHING else (chosen.figure,)
    if chosen.backend != "ray" and (chosen.address is not None or chosen.gpus):
        raise SondeError("reproduce: --address and --gpus are for Ray: add --backend ray, or leave them out")
    accelerator = chosen.gpus > 0 if chosen.backend == "ray" else on_accelerator()
    workers = chosen.workers or default_workers(accelerator)
    lite = chosen.settings == "lite" or (chosen.settings == "auto" and not accelerator)
    experiment = Experiment(figures, chosen.scale, chosen.seeds, lite, chosen.out, chosen.only, chosen.methods)
    console, failures = Console(), {}
    try:
        if chosen.run:
            failures = run_missing(experiment, chosen.backend, workers, chosen.address, chosen.gpus, console)
    except KeyboardInterrupt:
        console.print("Stopped. Every finished round is safe: the same command goes on. This is what there is:")
        report(experiment, console)
        raise SystemExit(130) from None
    report(experiment, console)
    if failures:
        print_failures(failures, experiment.batches(), console)
        raise SystemExit(1)
