"""What a person sees of `sonde bench`: progress while it runs, tables at the end, files if asked for."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.measuring import Effort, Plan, note
from benchmarks.runner import PATHS, PEERS, Results, check_paths, run
from benchmarks.table import main_table, peers_table
from sonde._internal.errors import SondeError
from sonde._internal.files import write_atomically

INTERRUPTED = 130


def bench_help() -> str:
    """A line per path."""
    return "\n".join(f"  {name:<14}{(measure.__doc__ or '').partition(chr(10))[0]}" for name, measure in PATHS.items())


def measure_and_report(paths: Sequence[str], effort: Effort, num_seeds: Sequence[int], peers: bool, out: Path | None) -> int:
    """Measure, print, save; the exit code. An interrupt ends it with what there is."""
    check_paths(paths)
    plan, results, code = Plan(effort, tuple(num_seeds) or None), Results(), 0
    if out is not None:
        if out.exists() and not out.is_dir():
            raise SondeError(f"bench: --out must be a folder, got the file {out}")
        out.mkdir(parents=True, exist_ok=True)
    try:
        run(paths, plan, results, peers, out)
    except KeyboardInterrupt:
        note("Stopped; this is what there is:")
        code = INTERRUPTED
    show(results, Console())
    if out is not None and results.rows:
        for file in save(results, out):
            print(f"Results: {file}")
    return code or (1 if results.failures else 0)


def show(results: Results, console: Console) -> None:
    """Tables, and what could not be measured."""
    clock = results.machine.get("clock", "seconds")
    others, by_peers = _split(results)
    # a pipe or a log has no width of its own, and a table of numbers must not be broken to fit one
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
    """`bench.json`, and `bench.png` if anything has a limit to be drawn against."""
    from benchmarks.figure import draw

    results.save(folder)
    files = [folder / "bench.json"]
    if any(row.ratio is not None for row in _split(results)[0]):
        machine = results.machine
        name = machine["processor"] if machine["device"] == "cpu" else machine["device"]
        write_atomically(folder / "bench.png", draw(_split(results)[0], name, machine["clock"]))
        files.append(folder / "bench.png")
    return files


def _split(results: Results):
    return [r for r in results.rows if r.path != PEERS], [r for r in results.rows if r.path == PEERS]
