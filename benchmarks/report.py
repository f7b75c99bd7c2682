"""The output of the benchmarks: progress while they run, tables at the end, and files on request."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.measuring import Plan, note
from benchmarks.rows import Row
from benchmarks.runner import PATHS, PEERS, Results, check_paths, run
from benchmarks.table import main_table, peers_table
from sonde._internal.errors import SondeError
from sonde._internal.files import write_atomically

INTERRUPTED = 130


def paths_help() -> str:
    """One line per path."""
    return "\n".join(f"  {name:<14}{(measure.__doc__ or '').partition(chr(10))[0]}" for name, measure in PATHS.items())


def measure_and_report(paths: Sequence[str], plan: Plan, peers: bool, out: Path | None) -> int:
    """Measure, print and save; an interrupt ends it with the results so far.

    Args:
        paths: Names of paths; if there are none, all but those on demand.
        plan: How much to measure.
        peers: Also measure other packages.
        out: Folder for results.

    Returns:
        The exit code.
    """
    check_paths(paths)
    results, code = Results(), 0
    if out is not None:
        if out.exists() and not out.is_dir():
            raise SondeError(f"benchmarks: --out must be a folder, got the file {out}")
        out.mkdir(parents=True, exist_ok=True)
    try:
        run(paths, plan, results, peers, out)
    except KeyboardInterrupt:
        note("Stopped; results so far:")
        code = INTERRUPTED
    show(results, Console())
    if out is not None and results.rows:
        for file in save(results, out):
            print(f"Results: {file}")
    return code or (1 if results.failures else 0)


def show(results: Results, console: Console) -> None:
    """Print tables, and which paths could not be measured.

    Args:
        results: The measurements.
        console: Where to print.
    """
    clock = results.machine.get("clock", "seconds")
    others, by_peers = _split(results)
    # a pipe or a log has no width, and a table of numbers must not be wrapped
    console = console if console.is_terminal else Console(width=220)
    if others:
        console.print(main_table(others, clock))
    if by_peers:
        console.print(peers_table(by_peers, clock))
    if results.machine:
        console.print(f"{results.machine['device']} ({results.machine['processor']}), JAX {results.machine['jax']}")
    for path, reason in results.failures.items():
        console.print(f"{path} was not measured to the end: {reason}", markup=False)


def save(results: Results, folder: Path) -> list[Path]:
    """Write `bench.json`, `bench.png` if any row has a limit, and `peers.png` if peers were measured.

    Args:
        results: The measurements.
        folder: An existing folder.

    Returns:
        The files.
    """
    from benchmarks import figure, peer_figure

    results.save(folder)
    files, machine = [folder / "bench.json"], results.machine
    others, by_peers = _split(results)
    for name, drawing, rows in (("bench.png", figure, others), ("peers.png", peer_figure, by_peers)):
        if any(row.ratio is not None for row in rows):
            device = machine["processor"] if machine["device"] == "cpu" else machine["device"]
            write_atomically(folder / name, drawing.draw(rows, device, machine["clock"]))
            files.append(folder / name)
    return files


def _split(results: Results) -> tuple[list[Row], list[Row]]:
    """Rows of ours, and of the comparison with peers."""
    return [r for r in results.rows if r.path != PEERS], [r for r in results.rows if r.path == PEERS]
