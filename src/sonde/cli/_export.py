"""`sonde export DIR --out FILE`."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from sonde.runs._export import export_run
from sonde.runs._store import RunStore


@dataclass
class ExportArguments:
    """Write what a run has measured to a file or a local Minari dataset, which `sonde explore --data` can start from."""

    folder: tyro.conf.Positional[Path]
    """The run's folder."""
    out: str
    """FILE.npz, FILE.csv or minari:DATASET-v0."""
    seed: int | None = None
    """The seed to export; by default the first."""
    initial_data: bool = False
    """Also export, before all others, the measurements that the run started from."""
    overwrite: bool = False
    """Replace the file or dataset if it exists."""


def main(args: list[str]) -> None:
    """Run the command.

    Args:
        args: Words after the command.

    """
    chosen = tyro.cli(ExportArguments, args=args, prog="sonde export")
    store = RunStore.open(chosen.folder)
    done = export_run(store, chosen.out, seed=chosen.seed, initial_data=chosen.initial_data, overwrite=chosen.overwrite)
    print(f"Measurements: {done.path} ({done.transitions} transitions in {done.episodes} episodes)")
