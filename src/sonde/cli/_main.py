"""The command line: thin, over the same functions that a Python program calls."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from sonde._internal.errors import SondeError, one_of
from sonde.runs._config import RunConfig

USAGE = """usage: sonde COMMAND ...

Learn an unknown dynamical system by choosing the experiments that teach it most, then solve tasks on it zero-shot.

  demo                     explore the pendulum and swing it up, with explanations
  explore SYSTEM           explore a preset, a world or gym:ENV, any Gymnasium environment ('sonde explore --help')
  resume DIR               continue a run that was interrupted
  evaluate DIR --task T    solve a task with what a run has learned, and film it (--video FILE.mp4); plans for the worst case
                           (--robust)
  analyse DIR              where the learned system rests, whether it is stable there, what actions can do
  plot DIR [DIR ...]       draw runs side by side
  export DIR --out FILE    write a run's measurements to FILE.npz, FILE.csv or minari:DATASET-v0
  reproduce FIGURE         make the paper's figures anew and answer its claims: uncertainty, downstream, manipulation,
                           rewards or all
  bench [PATH ...]         measure the hot paths on this machine, against its limits and (--peers) against other packages
  list                     presets, worlds and tasks, models, methods

'sonde COMMAND --help' explains a command, 'sonde --version' prints the version.
"""


@dataclass
class ExploreArguments:
    """Explore a system, with its settings changed by any of these options."""

    config: Annotated[RunConfig, tyro.conf.arg(name="")]
    out: Path | None = None
    """Folder for the run; by default runs/SYSTEM-METHOD."""
    overwrite: bool = False
    """Replace the folder if it exists."""


def explore(args: list[str]) -> None:
    """`sonde explore SYSTEM ...`."""
    from sonde.cli._choices import CHOOSE_KINDS, WHAT_TO_EXPLORE, folder_name, starting_point, try_world, with_kinds

    if not args or args[0].startswith("-"):
        if args and args[0] not in ("-h", "--help"):
            raise SondeError(f"explore: name a preset first (or another system), then options:\n{WHAT_TO_EXPLORE.rstrip()}")
        print(f"usage: sonde explore SYSTEM [options]\n\nSYSTEM is\n{WHAT_TO_EXPLORE}")
        print("'sonde explore SYSTEM --help' lists all options with the values that SYSTEM gives them.")
        return
    name, rest = args[0], args[1:]
    config, rest = with_kinds(starting_point(name), rest)
    default, text = ExploreArguments(config), f"{ExploreArguments.__doc__}\n{CHOOSE_KINDS}"
    chosen = tyro.cli(ExploreArguments, default=default, args=rest, prog=f"sonde explore {name}", description=text)
    from sonde.runs._store import RunStore

    config = chosen.config
    try_world(config.world)
    store = RunStore.create(chosen.out or Path("runs") / f"{folder_name(name)}-{config.method}", config, chosen.overwrite)
    _run(store, Console())


def _run(store, console: Console, from_round: int | None = None):
    """Run to the end with live progress, then draw."""
    from sonde.runs._progress import LiveProgress
    from sonde.runs._report import how_it_ended
    from sonde.runs._run import run
    from sonde.runs.figures._curves import draw_run

    checkpoints = store.checkpoints()
    start = from_round if from_round is not None else (checkpoints[-1] if checkpoints else 0)
    done = [row for row in store.load_metrics() if row["round"] <= start]
    try:
        with LiveProgress(store.config, console, done) as progress:
            explorer = run(store, progress, from_round)
    except KeyboardInterrupt:
        safe = f"Stopped. Everything up to the last finished episode is safe: 'sonde resume {store.folder}' goes on."
        console.print(safe, soft_wrap=True)
        raise SystemExit(130) from None
    if ending := how_it_ended(store):
        console.print(ending, soft_wrap=True)
    figures = draw_run(store, explorer)
    console.print(f"Run: {store.folder}", soft_wrap=True)
    for figure in figures:
        console.print(f"Figure: {figure}", soft_wrap=True)
    return explorer


@dataclass
class ResumeArguments:
    """Continue a run after its newest checkpoint; a finished one is only drawn again."""

    folder: tyro.conf.Positional[Path]
    """The run's folder."""
    from_round: int | None = None
    """Go back to the checkpoint after this episode (0: begin anew); what came later is forgotten."""


def resume(args: list[str]) -> None:
    """`sonde resume DIR`."""
    chosen = tyro.cli(ResumeArguments, args=args, prog="sonde resume")
    from sonde.runs._store import RunStore

    store = RunStore.open(chosen.folder)
    available = [0, *store.checkpoints()]
    if chosen.from_round is not None and chosen.from_round not in available:
        raise SondeError(f"no checkpoint after episode {chosen.from_round}; there are: {', '.join(map(str, available))}")
    if chosen.from_round is None and available[-1] >= store.config.rounds:
        print(f"All {store.config.rounds} episodes were done before: drawing them again.")
    elif chosen.from_round is None and store.why_stopped():
        print("The run was finished before: drawing it again.")
    _run(store, Console(), chosen.from_round)


@dataclass
class PlotArguments:
    """Draw uncertainty, information gain and returns of runs side by side, mean and confidence band over seeds."""

    folders: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of runs."""
    out: Path = Path("sonde.png")
    """The figure; .png, .pdf or .svg. For a single run the visited states and, if measurements were held out, how reliable the
    model's intervals are, are drawn beside it, as NAME-states and NAME-calibration; with a fixed Gaussian process also what
    theory says, as NAME-theory."""


def plot(args: list[str]) -> None:
    """`sonde plot DIR [DIR ...] --out FILE`."""
    chosen = tyro.cli(PlotArguments, args=args, prog="sonde plot")
    if not chosen.folders:
        raise SondeError("plot: name at least one folder of a run")
    from sonde.runs._run import restore_explorer
    from sonde.runs._store import RunStore
    from sonde.runs.figures._curves import draw_curves, draw_model, draw_theory

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


@dataclass
class ExportArguments:
    """Write what a run has measured to a file or a local Minari dataset, which `sonde explore --data` can start from."""

    folder: tyro.conf.Positional[Path]
    """The run's folder."""
    out: str
    """FILE.npz, FILE.csv or minari:DATASET-v0."""
    seed: int | None = None
    """The run to export, of those in lockstep; by default the first."""
    existing: bool = False
    """Also export, before all others, the measurements that the run started from."""
    overwrite: bool = False
    """Replace the file or dataset if it exists."""


def export(args: list[str]) -> None:
    """`sonde export DIR --out FILE`."""
    chosen = tyro.cli(ExportArguments, args=args, prog="sonde export")
    from sonde.runs._export import export_run
    from sonde.runs._store import RunStore

    store = RunStore.open(chosen.folder)
    done = export_run(store, chosen.out, seed=chosen.seed, existing=chosen.existing, overwrite=chosen.overwrite)
    print(f"Measurements: {done.path} ({done.transitions} transitions in {done.rounds} episodes)")


def evaluate(args: list[str]) -> None:
    """`sonde evaluate DIR --task T`."""
    from sonde.cli._evaluate import evaluate

    evaluate(args)


def analyse(args: list[str]) -> None:
    """`sonde analyse DIR`."""
    from sonde.cli._analyse import analyse

    analyse(args)


def reproduce(args: list[str]) -> None:
    """`sonde reproduce FIGURE`."""
    from experiments.__main__ import reproduce

    reproduce(args)


@dataclass
class BenchArguments:
    """Measure the hot paths at the paper's settings: work, time, rate, and the machine's own limit in the same process."""

    paths: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[PATH ...]")] = ()
    """What to measure; by default all but peers, fetch-step, real-time and time-to-task."""
    quick: bool = False
    """Fewer and shorter measurements, within about two minutes."""
    num_seeds: tuple[int, ...] = ()
    """Runs in lockstep, such as 1 10 50; by default these on a GPU and mostly 1 on a CPU, whose cores are busy with one."""
    out: Path | None = None
    """Folder for bench.json, written after each measurement, and bench.png."""
    peers: bool = False
    """Also give the same work to other packages, as far as they are installed (extra 'bench')."""


def bench(args: list[str], tiny: bool = False) -> None:
    """`sonde bench [PATH ...]`; `tiny` are sizes that mean nothing, to try the machinery."""
    from benchmarks.report import bench_help, measure_and_report

    prog, text = "sonde bench", f"{BenchArguments.__doc__}\n{bench_help()}"
    chosen = tyro.cli(BenchArguments, args=args, prog=prog, description=text)
    effort = "tiny" if tiny else "quick" if chosen.quick else "full"
    if code := measure_and_report(chosen.paths, effort, chosen.num_seeds, chosen.peers, chosen.out):
        raise SystemExit(code)


def list_everything(args: list[str]) -> None:
    """`sonde list`."""

    @dataclass
    class ListArguments:
        """List presets, worlds and their tasks, models and methods."""

    tyro.cli(ListArguments, args=args, prog="sonde list")
    from sonde.methods import METHODS
    from sonde.models import MODELS
    from sonde.runs._config import name_in_table
    from sonde.runs._presets import PRESETS
    from sonde.solvers import SOLVERS
    from sonde.worlds import WORLDS

    print("presets")
    for name, config in PRESETS.items():
        parts = ", ".join(name_in_table(part) for part in (config.world, config.model, config.solver))
        steps = f"{config.rollouts} x {config.horizon}" if config.rollouts > 1 else config.horizon
        print(f"  {name:<19} {parts}: {config.rounds} episodes of {steps} steps")
    print("worlds and their tasks")
    for name, world in WORLDS.items():
        print(f"  {name:<19} {', '.join(world().tasks) or (world.__doc__ or '').splitlines()[0]}")
    print(f"  {'FILE.py:FUNCTION':<19} a task of your own for any world: reward(x, u, x_next), written with jax.numpy")
    print("models")
    for name, model in MODELS.items():
        print(f"  {name:<19} {(model.__doc__ or '').splitlines()[0]}")
    print("solvers")
    for name, solver in SOLVERS.items():
        print(f"  {name:<19} {(solver.__doc__ or '').splitlines()[0]}")
    print("methods")
    for name, method in METHODS.items():
        print(f"  {name:<19} {method.summary}")


def demo(args: list[str]) -> None:
    """`sonde demo`."""

    @dataclass
    class DemoArguments:
        """Explore the pendulum with OpAx and a Gaussian process, swing it up zero-shot, and say what was learned."""

        out: Path | None = None
        """Folder for the run; by default runs/demo, or runs/demo-2 and so on if that exists."""

    chosen = tyro.cli(DemoArguments, args=args, prog="sonde demo")
    from sonde.runs._presets import preset
    from sonde.runs._report import demo_opening, demo_summary
    from sonde.runs._store import RunStore

    names = ["demo", *(f"demo-{i}" for i in range(2, 10_000))]
    free = (Path("runs") / name for name in names if not (Path("runs") / name).exists())
    config, console = preset("pendulum-gp-lite"), Console()
    store = RunStore.create(chosen.out or next(free), config)
    demo_opening(config, console)
    explorer = _run(store, console)
    demo_summary(config, explorer, store, console)


COMMANDS = {
    "demo": demo,
    "explore": explore,
    "resume": resume,
    "evaluate": evaluate,
    "analyse": analyse,
    "plot": plot,
    "export": export,
    "reproduce": reproduce,
    "bench": bench,
    "list": list_everything,
}


def main() -> None:
    """Entry point of `sonde` and `python -m sonde`."""
    args = sys.argv[1:]
    if not args or args[0] in ("-h", "--help"):
        print(USAGE, end="")
        raise SystemExit(0 if args else 2)
    if args[0] == "--version":
        from sonde import __version__

        print(f"sonde {__version__}")
        return
    try:
        one_of("command", args[0], COMMANDS)
        remember_compilations()
        COMMANDS[args[0]](args[1:])
    except BrokenPipeError:  # the reader of our output has left
        sys.stderr.close()
    except (SondeError, OSError) as error:
        print(f"sonde: error: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def remember_compilations() -> None:
    """Keep compiled programs between runs, in the user's cache folder, unless JAX was told otherwise."""
    import jax

    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(base / "sonde" / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
