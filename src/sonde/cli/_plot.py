"""`sonde plot DIR [DIR ...] --out FILE`: draw and compare runs."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from sonde._internal.errors import SondeError


@dataclass
class PlotArguments:
    """Draw uncertainty, information gain and returns of runs in one figure: mean over seeds, and two standard errors."""

    folders: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of runs on one world; runs that differ only in their seeds are drawn as one line."""
    out: Path = Path("sonde.png")
    """File of the figure, .png, .pdf or .svg; states, calibration and theory of a single run are drawn beside it."""
    allow_code: bool = False
    """Run code of others that a run names, such as FILE.py:NAME; code that you ran before needs no permission."""


def main(args: list[str]) -> None:
    """Run the command.

    Args:
        args: Words after the command.
    """
    chosen = tyro.cli(PlotArguments, args=args, prog="sonde plot")
    if not chosen.folders:
        raise SondeError("plot: name at least one folder of a run")
    from sonde.runs._run import restore_explorer  # not above: help does not wait for JAX
    from sonde.runs._store import RunStore
    from sonde.runs.figures import draw_curves, draw_model, draw_theory

    stores = [RunStore.open(folder, chosen.allow_code) for folder in chosen.folders]
    draw_curves(stores, chosen.out)
    figures = [chosen.out]
    if len(stores) == 1 and stores[0].checkpoints():
        explorer = restore_explorer(stores[0])
        beside = lambda name: chosen.out.with_stem(f"{chosen.out.stem}-{name}")
        figures += draw_model(explorer, stores[0].config.world, beside)
        figures += [beside("theory")] if draw_theory(stores[0], beside("theory")) else []
    for figure in figures:
        print(f"Figure: {figure}")
