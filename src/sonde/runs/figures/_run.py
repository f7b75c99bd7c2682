"""The figures of one run: which of them exist, where they go, and the checks before they are drawn."""

from collections.abc import Callable
from pathlib import Path

import matplotlib
import numpy as np

from sonde._internal.errors import SondeError
from sonde.explorer import Explorer
from sonde.models import GaussianProcess
from sonde.runs._store import RunStore
from sonde.runs.figures._calibration import calibration_figure
from sonde.runs.figures._curves import draw_curves
from sonde.runs.figures._states import states_figure
from sonde.runs.figures._style import STYLE, file_format, save_figure
from sonde.runs.figures._theory import theory_figure
from sonde.worlds import World


def draw_states(explorer: Explorer, world: World, out: Path) -> None:
    """Draw the visited states of the first seed, over the uncertainty of its model where two numbers make a state.

    Args:
        explorer: What was measured and learned.
        world: A world with a `plane`.
        out: Path of the figure.
    """
    file_format(out)
    plane = world.plane()
    if plane is None:
        raise SondeError(f"the states of {type(world).__name__} cannot be drawn in two dimensions (its plane() is None)")
    if explorer.round == 0:
        raise SondeError("the explorer has no finished round yet: there are no states to draw")
    with matplotlib.rc_context(STYLE):
        save_figure(states_figure(explorer, plane), out)


def draw_calibration(explorer: Explorer, world: World, out: Path) -> None:
    """Draw the coverage of the model's intervals on the held-out measurements of all seeds.

    Args:
        explorer: What was learned, with held-out measurements.
        world: The world, for the names of its states.
        out: Path of the figure.
    """
    file_format(out)
    if not _has_held_out(explorer):
        raise SondeError("no measurement was held out, so there is no calibration to draw; set holdout above 0, such as 0.2")
    assert explorer.calibration is not None
    before, after = (np.asarray(share) for share in (explorer.calibration.before, explorer.calibration.after))
    with matplotlib.rc_context(STYLE):
        figure = calibration_figure(before, after, world.state_names)
        seeds = f"; {explorer.num_seeds} seeds (thin) and their mean" if explorer.num_seeds > 1 else ""
        figure.suptitle(f"Calibration on held-out measurements\nafter round {explorer.round}{seeds}")
        save_figure(figure, out)


def _has_held_out(explorer: Explorer) -> bool:
    """Whether any measurement was held out: a small share of few measurements may be none."""
    return explorer.calibration is not None and bool(np.isfinite(explorer.calibration.after).any())


def draw_theory(store: RunStore, out: Path) -> bool:
    """Draw the uncertainty against the bound of the theorem.

    Args:
        store: The run.
        out: Path of the figure.

    Returns:
        Whether there was something to draw: the bound exists for Gaussian processes with fixed hyper-parameters.
    """
    file_format(out)
    rows, model = store.load_metrics(), store.config.model
    if not isinstance(model, GaussianProcess) or not any("theory/bound" in row for row in rows):
        return False
    with matplotlib.rc_context(STYLE):
        figure = theory_figure(rows, model.kernel, store.config.world.state_dim + store.config.spec.input_dim)
        save_figure(figure, out, colours=64)
    return True


def draw_model(explorer: Explorer, world: World, path_of: Callable[[str], Path]) -> list[Path]:
    """Draw what a run has learned: states, if the world has a plane, and calibration, if measurements were held out.

    Args:
        explorer: What was measured and learned.
        world: The world.
        path_of: Path of a figure by its name, 'states' or 'calibration'.

    Returns:
        Paths of the figures that were drawn.
    """
    paths = []
    if world.plane() is not None:
        paths.append(path_of("states"))
        draw_states(explorer, world, paths[-1])
    if _has_held_out(explorer):
        paths.append(path_of("calibration"))
        draw_calibration(explorer, world, paths[-1])
    return paths


def draw_run(store: RunStore, explorer: Explorer) -> list[Path]:
    """Draw all figures of one run into its folder.

    Args:
        store: The run.
        explorer: The explorer after its last finished round.

    Returns:
        Paths of the figures.
    """
    path_of = lambda name: store.folder / "figures" / f"{name}.png"
    draw_curves([store], path_of("curves"))
    theory = [path_of("theory")] if draw_theory(store, path_of("theory")) else []
    return [path_of("curves"), *draw_model(explorer, store.config.world, path_of), *theory]
