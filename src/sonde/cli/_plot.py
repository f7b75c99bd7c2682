"""`sonde plot DIR [DIR ...] --out FILE`."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from sonde._internal.errors import SondeError
from sonde.runs._run import restore_explorer
from sonde.runs._store import RunStore


@dataclass
class PlotArguments:
    """Draw uncertainty, information gain and returns of runs in one figure, mean and confidence band over seeds."""

    folders: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of runs."""
    out: Path = Path("sonde.png")
    """The figure; .png, .pdf or .svg. For a single run further figures are drawn beside it: NAME-states, the visited states;
    NAME-calibration, the coverage of the model's intervals, if measurements were held out; NAME-theory, the theorems' bounds,
    for a Gaussian process with fixed settings."""


def main(args: list[str]) -> None:
    """Run the command.

    Args:
        args: Words after the command.

    """
    chosen = tyro.cli(PlotArguments, args=args, prog="sonde plot")
    if not chosen.folders:
        raise SondeError("plot: name at least one folder of a run")
    from sonde.runs.figures import draw_curves, draw_model, draw_theory

    stores = [RunStore.open(folder) for folder in chosen.folders]
    draw_curves(stores, chosen.out)
    figures = [chosen.out]
    if len(stores) == 1 and stores[0].checkpoints():
        explorer = restore_explorer(stores[0], stores[0].checkpoints()[-1])
        beside = lambda name: chosen.out.with_stem(f"{chosen.out.stem}-{name}")
        figures += draw_model(explorer, stores[0].config.world, beside)
        figures += [beside("theory")] if draw_theory(stores[0], beside("theory")) else []
    for figure in figures:
        print(f"Figure: {figure}")
