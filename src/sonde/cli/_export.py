"""`sonde export DIR --out FILE`: write the measurements of a run to a file."""

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import tyro

from sonde._internal.consent import allow_code


@dataclass
class ExportArguments:
    """Write the measurements of a run to a file or a local Minari dataset, from which 'sonde explore --data' can start."""

    folder: tyro.conf.Positional[Path]
    """Folder of the run."""
    out: str
    """FILE.npz, FILE.csv or minari:DATASET-v0."""
    seed: int | None = None
    """Seed to export; the first by default."""
    initial_data: bool = False
    """Also export, before all others, the initial data of the run."""
    overwrite: bool = False
    """Replace the file or dataset if it exists."""
    allow_code: bool = False
    """Run code of others that the run names, for its labels; measurements are written without it."""


def main(args: list[str]) -> None:
    """Run the command.

    Args:
        args: Words after the command.
    """
    chosen = tyro.cli(ExportArguments, args=args, prog="sonde export")
    from sonde.runs._export import export_run  # not above: help does not wait for JAX
    from sonde.runs._folder import RunFolder

    run = RunFolder.open(chosen.folder)
    with allow_code() if chosen.allow_code else nullcontext():
        done = export_run(run, chosen.out, seed=chosen.seed, initial_data=chosen.initial_data, overwrite=chosen.overwrite)
    print(f"Measurements: {done.path} ({done.transitions} transitions in {done.episodes} episodes)")
