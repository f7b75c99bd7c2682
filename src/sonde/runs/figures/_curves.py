"""Pictures of runs: learning curves, visited states over what the model does not know yet, and reliability.

Figures are built as objects and never shown, so neither a display nor pyplot's global state is touched. Of the whole package
only this module and its neighbours (`*_figure`, `film`) need matplotlib: import them where a picture is drawn.
"""

import dataclasses
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator
from PIL import Image

from sonde._internal.errors import SondeError
from sonde._internal.files import write_atomically
from sonde.explorer import Explorer
from sonde.models._gaussian_process import GaussianProcess
from sonde.runs._config import RunConfig, world_label
from sonde.runs._store import RunStore
from sonde.runs.figures._calibration import calibration_figure
from sonde.runs.figures._states import states_figure
from sonde.runs.figures._theory import theory_figure
from sonde.worlds import World

FORMATS = (".pdf", ".png", ".svg")
STYLE: dict[Any, Any] = {"font.size": 11, "axes.titlesize": 12, "axes.axisbelow": True, "legend.frameon": False}
# Okabe and Ito's palette, then colours that colour-blind eyes can tell from it and from each other no less than Okabe and Ito's
# (by simulation, for each of the three kinds); markers differ too, for print without colour
LOOKS = {
    "opax": ("#0072B2", "o"),
    "opax-sum": ("#56B4E9", "s"),
    "mean-ae": ("#009E73", "^"),
    "pets-ae": ("#E69F00", "D"),
    "h-ucrl": ("#CC79A7", "v"),
    "random": ("#595959", "X"),
    "opax-heuristic": ("#332288", "p"),
    "cee-us": ("#661100", "<"),
    "max": ("#C04800", ">"),
    "plan2explore": ("#A030E0", "*"),
}
OTHER_LOOK = ("#000000", "P")  # of a method without a line above
LINE_STYLES = ("-", "--", ":", "-.")  # tell groups of the same method apart


@dataclasses.dataclass
class Group:
    """Stores whose seeds are drawn as one line: their metrics, and the `config` that they share."""

    config: RunConfig
    folders: list[Path]
    rows: list[dict[str, Any]]

    @property
    def seeds(self) -> set[int]:
        """The seeds of all stores."""
        return {row["seed"] for row in self.rows}


def curve(rows: Sequence[dict[str, Any]], key: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Episodes at which any seed has the metric, its mean over seeds, and two standard errors of that mean.

    The latter is NaN where only one seed has the metric: one value says nothing about the spread.
    """
    values: dict[int, list[float]] = {}
    for row in rows:
        value = row.get(key)
        if value is not None and np.isfinite(value):
            values.setdefault(row["round"], []).append(value)
    rounds = sorted(values)
    means = [np.mean(values[e]) for e in rounds]
    bands = [2 * np.std(values[e], ddof=1) / np.sqrt(len(values[e])) if len(values[e]) > 1 else np.nan for e in rounds]
    return np.asarray(rounds, int), np.asarray(means, float), np.asarray(bands, float)


def grouped(stores: Sequence[RunStore]) -> list[Group]:
    """Stores that differ only in their seeds and in how far and how often they were followed, pooled.

    A seed that comes twice under the same config is a repetition, not more evidence: it opens a group of its own.
    """
    groups: list[Group] = []
    for store in stores:
        rows = store.load_metrics()
        if not rows:
            raise SondeError(f"{store.folder} has no finished episode yet: there is nothing to draw")
        followed = {"rounds": 1, "evaluate_every": 1, "max_copies": 1, "seeds": 1, "first_seed": 0, "capacity": None}
        shared = dataclasses.replace(store.config, **followed)
        own = Group(shared, [store.folder], rows)
        same = next((g for g in groups if g.config == shared and not g.seeds & own.seeds), None)
        if same is None:
            groups.append(own)
        else:
            same.folders += own.folders
            same.rows += own.rows
    return groups


def labels(groups: Sequence[Group]) -> list[str]:
    """What the legend calls each group: its method, its folder if another group shares the method, and its seeds."""
    folders, names = [group.folders[0].name for group in groups], []
    for group, folder in zip(groups, folders, strict=True):
        method, seeds, others = group.config.method.name, len(group.seeds), len(group.folders) - 1
        name = method if group.config.exploration_task is None else f"{method} for {group.config.exploration_task}"
        if sum(other.config.method.name == method for other in groups) > 1:
            name += f" in {folder if folders.count(folder) == 1 else Path(*group.folders[0].parts[-2:])}"
            name += f" and {others} more" if others else ""
        names.append(f"{name} ({seeds} seed{'s' if seeds > 1 else ''})")
    return names


def drawn_keys(groups: Sequence[Group]) -> list[str]:
    """Keys of the metrics for which there is anything to draw, in the order of the schema."""
    rows = [row for group in groups for row in group.rows]
    schema = groups[0].config.schema
    return [key for key in schema.drawn(key for row in rows for key in row) if curve(rows, key)[0].size]


def draw_curves(stores: list[RunStore], out: Path) -> None:
    """Runs side by side: one panel per metric, one line per group of stores, a band of two standard errors over its seeds."""
    file_format(out)  # refuse before any work
    worlds = sorted({world_label(store.config.world) for store in stores})
    if len(worlds) != 1:
        raise SondeError(f"a figure of curves shows one or more runs on one world, got {', '.join(worlds) or 'no run'}")
    groups = grouped(stores)
    keys, names = drawn_keys(groups), labels(groups)
    if not keys:
        raise SondeError(f"{stores[0].metrics_path} has none of the metrics that are drawn")
    rounds = [row["round"] for group in groups for row in group.rows]
    margin = max(0.04 * (max(rounds) - min(rounds)), 0.3)

    with matplotlib.rc_context(STYLE):
        columns = min(len(keys), 3 if len(keys) in (5, 6, 9) else 4)
        lines = -(-len(keys) // columns)
        figure = Figure(figsize=(max(3.9 * columns, 6.5), 3.1 * lines + 1.1), dpi=150, layout="constrained")
        axes = figure.subplots(lines, columns, squeeze=False).flatten()
        for ax, key in zip(axes, keys, strict=False):
            _draw_panel(ax, key, groups)
            ax.set(xlabel="round", xlim=(min(rounds) - margin, max(rounds) + margin))
            ax.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))
        spare, handles = axes[len(keys) :], axes[0].get_lines()
        for ax in spare:
            ax.axis("off")
        if len(spare) and len(names) <= len(LOOKS) and max(map(len, names)) <= 32:
            spare[0].legend(handles, names, loc="center", fontsize=12)
        else:
            figure.legend(handles, names, loc="outside lower center", ncols=min(len(names), max(columns - 1, 1)))
        spread = "; mean over seeds, band: ± 2 standard errors" if any(len(group.seeds) > 1 for group in groups) else ""
        figure.suptitle(f"Exploration of the {worlds[0]}{spread}")
        save_figure(figure, out)


def _draw_panel(ax: Axes, key: str, groups: Sequence[Group]) -> None:
    """One metric: a line and a band for each group."""
    spec = groups[0].config.schema.spec(key)
    curves = [curve(group.rows, key) for group in groups]
    methods = [group.config.method.name for group in groups]
    # a logarithm cannot show zeros: there they are left out, and a metric that is nothing else gets a plain axis
    log = spec.log and any((mean > 0).any() for _, mean, _ in curves)
    means = [np.where(mean > 0, mean, np.nan) if log else mean for _, mean, _ in curves]
    lows, highs = ([m + sign * np.nan_to_num(band) for m, (_, _, band) in zip(means, curves, strict=True)] for sign in (-1, 1))
    if log:
        # a band may reach zero: the axis goes down to a third of the mean for it, and the rest runs out at its foot
        lows = [np.maximum(low, mean / 3) for low, mean in zip(lows, means, strict=True)]
    scale_y(ax, log, np.nanmin(np.concatenate(lows)), np.nanmax(np.concatenate(highs)))
    for i, (rounds, _, band) in enumerate(curves):
        colour, marker = LOOKS.get(methods[i], OTHER_LOOK)
        style = LINE_STYLES[methods[:i].count(methods[i]) % len(LINE_STYLES)]
        # markers of many episodes would hide the lines, and those of many groups each other: some, in turn
        every = 1 + max(len(rounds) - 1, 0) // 12
        ax.plot(rounds, means[i], color=colour, marker=marker, linestyle=style, markersize=5, linewidth=1.8)
        ax.lines[-1].set_markevery((i % every, every))
        low, alpha = np.maximum(means[i] - band, ax.get_ylim()[0]), 0.18 if len(curves) <= 6 else 0.1
        ax.fill_between(rounds, low, highs[i], where=np.isfinite(band), color=colour, alpha=alpha, linewidth=0)
    ax.set(title=spec.title_of(key), ylabel=f"{spec.unit}, log scale" if log else spec.unit)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(color="0.9")


def scale_y(ax: Axes, log: bool, low: float, high: float, least: float = 1e-3) -> None:
    """A y axis from `low` to `high`, with labels that can be read; one that is not logarithmic spans `least` or more."""
    if not log:
        # do not blow up what is hardly a difference to the height of the panel
        half = 0.56 * max(high - low, least, 0.01 * abs(high))
        ax.set_ylim((low + high) / 2 - half, (low + high) / 2 + half)
        return
    margin = 1.02 * (high / low) ** 0.06
    ax.set(yscale="log", ylim=(low / margin, high * margin))
    if high / low < 100:  # powers of ten alone would leave the axis with hardly a label
        ax.yaxis.set_major_locator(MaxNLocator(5) if high / low < 5 else LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())


def draw_states(explorer: Explorer, world: World, out: Path) -> None:
    """Where the first run went, over how uncertain its model still is there and elsewhere."""
    file_format(out)
    plane = world.plane()
    if plane is None:
        raise SondeError(f"the states of {type(world).__name__} have no picture in two dimensions (its plane() is None)")
    if explorer.round == 0:
        raise SondeError("the explorer has no finished episode yet: there are no states to draw")
    with matplotlib.rc_context(STYLE):
        save_figure(states_figure(explorer, plane), out)


def draw_calibration(explorer: Explorer, world: World, out: Path) -> None:
    """Whether the model's intervals hold what they promise: reliability on the held-out measurements of all runs."""
    file_format(out)
    if not _has_held_out(explorer):
        raise SondeError("no measurement was held out, so there is no reliability to draw; set holdout above 0, to 0.2 say")
    assert explorer.calibration is not None
    before, after = (np.asarray(share) for share in (explorer.calibration.before, explorer.calibration.after))
    with matplotlib.rc_context(STYLE):
        figure = calibration_figure(before, after, world.state_names)
        num_seeds = f"; {explorer.num_seeds} runs (thin) and their mean" if explorer.num_seeds > 1 else ""
        figure.suptitle(f"Reliability on held-out measurements\nafter episode {explorer.round}{num_seeds}")
        save_figure(figure, out)


def _has_held_out(explorer: Explorer) -> bool:
    """Whether there is anything to judge by: a small share of few measurements may be none."""
    return explorer.calibration is not None and bool(np.isfinite(explorer.calibration.after).any())


def draw_model(explorer: Explorer, world: World, path_of: Callable[[str], Path]) -> list[Path]:
    """The pictures of what a run has learned, as far as there is something to draw; `path_of` says where each goes."""
    paths = []
    if world.plane() is not None:
        paths.append(path_of("states"))
        draw_states(explorer, world, paths[-1])
    if _has_held_out(explorer):
        paths.append(path_of("calibration"))
        draw_calibration(explorer, world, paths[-1])
    return paths


def draw_theory(store: RunStore, out: Path) -> bool:
    """Uncertainty against the theorem's bound; False where a run has none (it has with a Gaussian process that is fixed)."""
    file_format(out)
    rows, model = store.load_metrics(), store.config.model
    if not isinstance(model, GaussianProcess) or not any("theory/bound" in row for row in rows):
        return False
    with matplotlib.rc_context(STYLE):
        figure = theory_figure(rows, model.kernel, store.config.world.state_dim + store.config.world.action_dim)
        save_figure(figure, out, colours=64)
    return True


def draw_run(store: RunStore, explorer: Explorer) -> list[Path]:
    """All pictures of one run, in its folder; `explorer` is the run as it stands."""
    path_of = lambda name: store.folder / "figures" / f"{name}.png"
    draw_curves([store], path_of("curves"))
    theory = [path_of("theory")] if draw_theory(store, path_of("theory")) else []
    return [path_of("curves"), *draw_model(explorer, store.config.world, path_of), *theory]


def file_format(out: Path) -> str:
    """The format that the suffix asks for."""
    if out.suffix.lower() not in FORMATS:
        raise SondeError(f"a picture cannot be written to {out.name!r}: end its name in one of {', '.join(FORMATS)}")
    return out.suffix.lower().removeprefix(".")


def save_figure(figure: Figure, out: Path, colours: int | None = None) -> None:
    """Write it whole or not at all, in the format of its suffix; a PNG of so many `colours` is a third as large."""
    content = io.BytesIO()
    figure.savefig(content, format=file_format(out))
    if colours is not None and file_format(out) == "png":
        image = Image.open(content).convert("RGB").quantize(colours, dither=Image.Dither.NONE)
        content = io.BytesIO()
        image.save(content, "png", optimize=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, content.getvalue())
