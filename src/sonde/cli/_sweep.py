"""`sonde sweep SYSTEM --method a b --set PATH=V1,V2 ...`."""

import inspect
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tyro
from rich.console import Console

from sonde._internal.consent import CLASS, allow_code
from sonde._internal.errors import SondeError, did_you_mean, whole
from sonde._internal.user_code import with_absolute_path
from sonde.cli._choices import PARTS, folder_name, named_system, parts_help, starting_point, try_world, with_parts
from sonde.cli._console import plain_console
from sonde.cli._interrupts import saying
from sonde.runs import RunConfig
from sonde.runs._codec import from_json, to_json
from sonde.runs.sweep import Backend, LocalBackend, RayBackend, Sweep, SweepProgress, print_summary, run_sweep
from sonde.runs.trackers import Tracker
from sonde.runs.trackers._names import trackers_named

STOPPED = "Stopped. Every finished round is safe: the same command continues. This is what there is:"
FIELDS = ("format", CLASS)  # keys of a config's JSON that are no fields


@dataclass
class SweepArguments:
    """Run every combination of methods and settings, and compare them in tables and a figure.

    A sweep can be stopped at any time: the same command continues it, and runs nothing twice.
    """

    method: tuple[str, ...] = ()
    """Methods to compare, by name or as FILE.py:NAME; by default the one that SYSTEM has."""
    set: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """PATH=V1,V2,...: values of a field of the config, such as model.width=64,256 or method.imagination.beta=1,2. May be given
    several times: every combination is run. Parts go by name: solver=icem,sac."""
    seeds: int | None = None
    """Seeds of each combination."""
    rounds: int | None = None
    """Rounds of each run."""
    exploration_task: str | None = None
    """The task for methods that explore for one, by name or as FILE.py:NAME."""
    out: Path | None = None
    """Folder for the runs, the table and the figure; by default sweeps/SYSTEM."""
    backend: Literal["local", "ray"] = "local"
    """Where: on this machine, or on a Ray cluster (needs the extra 'ray')."""
    lockstep: bool = False
    """Run all methods and seeds that have the same model and sizes of data in one process, and fit their models by one program,
    which takes less time on a GPU and gains nothing on a CPU. Only on this machine."""
    workers: int | None = None
    """Processes at the same time, each with one batch, or with several in lockstep; by default 3 per GPU, and on a CPU 2, or
    more if it has more than four cores."""
    address: str | None = None
    """The Ray cluster; by default one is started on this machine."""
    gpus: float = 0.0
    """GPUs that Ray gives to each batch, such as 0.25; 0: batches run on CPUs."""
    seeds_per_batch: int | None = None
    """Most seeds that run together in one process; by default all."""
    track: tuple[str, ...] = ()
    """Trackers that follow each batch: tensorboard, wandb, trackio."""


@dataclass(frozen=True)
class Setting:
    """Values of one field, as they were written."""

    path: str
    values: tuple[str, ...]

    @property
    def part(self) -> str | None:
        """The option that chooses it by name, if it is a part."""
        option = self.path.replace("_", "-").removeprefix("confidence.")
        return option if option in PARTS else None


def main(args: list[str]) -> None:
    """Run the command.

    Args:
        args: Words after the command.
    """
    name = named_system("sweep", args)
    if name is None:
        return
    start = starting_point(name)
    chosen, parts = tyro.cli(
        SweepArguments,
        args=args[1:],
        prog=f"sonde sweep {name}",
        description=f"{inspect.getdoc(SweepArguments)}\n\n{parts_help()}",
        return_unknown_args=True,
    )
    trackers = trackers_named(chosen.track)
    backend = backend_named(chosen.backend, chosen.workers, chosen.address, chosen.gpus, chosen.lockstep)
    configs = combinations(start, chosen, parts)
    try_world(next(iter(configs.values())).world)
    sweep = Sweep(chosen.out or Path("sweeps") / folder_name(name), configs, chosen.seeds_per_batch)
    _run(sweep, backend, plain_console(), trackers)


def backend_named(name: str, workers: int | None, address: str | None, gpus: float, lockstep: bool = False) -> Backend:
    """The backend that options ask for.

    Args:
        name: local or ray.
        workers: Processes at the same time; None for the default.
        address: The Ray cluster.
        gpus: GPUs that Ray gives to each batch.
        lockstep: Whether batches that fit each other share a process.
    """
    if name == "ray" and lockstep:
        raise SondeError("sweep: --lockstep runs batches in one process on this machine: leave out --backend ray or --lockstep")
    if name == "ray":
        return RayBackend(address, gpus)
    if address is not None or gpus:
        raise SondeError("sweep: --address and --gpus are for Ray: add --backend ray, or leave them out")
    return LocalBackend(workers, lockstep)


def combinations(start: RunConfig, chosen: SweepArguments, parts: Sequence[str]) -> dict[str, RunConfig]:
    """A config for every method and every combination of settings, by name.

    Args:
        start: The config that options change.
        chosen: The options.
        parts: Words of the command line that choose parts for all of them.
    """
    settings = [_parsed(text) for text in chosen.set]
    paths = [setting.path for setting in settings]
    if len(set(paths)) < len(paths):
        raise SondeError(f"--set: each path is given once, with all its values, got {', '.join(paths)}")
    configs: dict[str, RunConfig] = {}
    for values in itertools.product(*(setting.values for setting in settings)):
        pairs = list(zip(settings, values, strict=True))
        label = ",".join(f"{setting.path}={value}" for setting, value in pairs if len(setting.values) > 1)
        for method in chosen.method or (None,):
            config = _combined(start, chosen, [*parts, *([] if method is None else ["--method", method])], pairs)
            name = "/".join(_safe(part) for part in (label, config.method.name) if part)
            if name in configs:
                raise SondeError(f"sweep: two combinations are called {name!r}; give each method a label of its own")
            configs[name] = config
    return configs


def _parsed(text: str) -> Setting:
    path, equals, values = text.partition("=")
    if not equals or not path or not values:
        raise SondeError(f"--set: expected PATH=VALUE or PATH=V1,V2,..., such as model.width=64,256, got {text!r}")
    return Setting(path.replace("-", "_"), tuple(_split(values)))


def _split(text: str) -> Iterator[str]:
    """Parts between commas that are not inside brackets."""
    depth, part = 0, ""
    for letter in f"{text},":
        if letter == "," and depth == 0:
            yield part.strip()
            part = ""
        else:
            depth += (letter in "([") - (letter in ")]")
            part += letter


def _combined(
    start: RunConfig, chosen: SweepArguments, parts: Sequence[str], pairs: Sequence[tuple[Setting, str]]
) -> RunConfig:
    """One combination, checked as a whole."""
    named = [word for setting, value in pairs if setting.part is not None for word in (f"--{setting.part}", value)]
    config, rest = with_parts(start, [*parts, *named])
    if rest:
        raise SondeError(f"sweep: unknown option {rest[0]}; give settings as --set PATH=VALUE, such as --set horizon=50")
    entries = json.loads(to_json(config))
    fields = [(setting.path, value) for setting, value in pairs if setting.part is None]
    for path, value in fields:
        _put(entries, path, value)
    for option in ("seeds", "rounds"):
        if (number := getattr(chosen, option)) is not None:
            whole("sweep", **{option: number})
            entries[option] = number
    task = chosen.exploration_task
    if not config.method.needs_task:
        entries["exploration_task"] = None
    elif task is not None:
        entries["exploration_task"] = with_absolute_path(task)
    source = " ".join(f"--set {path}={value}" for path, value in fields) or "sweep"
    with allow_code():  # it was named on this command line
        return from_json(RunConfig, json.dumps(entries), source)


def _put(entries: dict[str, Any], path: str, text: str) -> None:
    """Give the field at a path another value."""
    *owners, field = path.split(".")
    node: Any = entries
    for depth, owner in enumerate([*owners, field]):
        if isinstance(node, dict) and node.get(CLASS) == "sonde.models:KnownPhysics" and owner not in node:
            node = node["model"]  # as on the command line of 'explore'
        names = [key for key in node if key not in FIELDS] if isinstance(node, dict) else []
        if owner not in names:
            place = ".".join(owners[:depth])
            what = node.get(CLASS, "the config").rsplit(":")[-1] if isinstance(node, dict) else f"{place} ({node!r})"
            meant = did_you_mean(owner, names)
            raise SondeError(f"--set {path}: {what} has no {owner!r};{meant} it has {', '.join(names) or 'no fields'}")
        if depth < len(owners):
            node = node[owner]
    node[field] = text if isinstance(node[field], str) else _value(text)


def _value(text: str) -> Any:
    """What a text stands for: a number, true, false, none, a list in brackets, or itself."""
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    if text[:1] in ("(", "["):
        return [_value(part) for part in _split(text[1:-1]) if part]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _safe(name: str) -> str:
    """A name as part of a folder's."""
    return re.sub(r"[^\w.=,+-]+", "-", name).strip("-")


def _run(sweep: Sweep, backend: Backend, console: Console, trackers: Sequence[Tracker]) -> None:
    """Run what is missing, then say and draw what there is."""
    batches, failures = sweep.batches(), {}
    finished = sum(batch.finished for batch in batches)
    console.print(
        f"{len(batches)} batch{'' if len(batches) == 1 else 'es'}, {finished} finished; runs are in {sweep.folder}, and can be "
        "stopped and started again at any time",
        soft_wrap=True,
    )
    try:
        with saying(lambda: STOPPED), SweepProgress(batches, console) as progress:
            failures = run_sweep(sweep, backend, trackers, progress)
    except KeyboardInterrupt:
        _report(sweep, console)
        raise
    _report(sweep, console)
    for batch in batches:
        if batch.folder in failures:
            console.print(f"{batch.name} failed: {failures[batch.folder]}", markup=False, soft_wrap=True)
    if failures:
        raise SystemExit(1)


def _report(sweep: Sweep, console: Console) -> None:
    """Tables of the final values, all values as CSV, and the figure that `sonde plot` draws."""
    from sonde.runs.figures import draw_curves

    results, batches, folder = sweep.results(), sweep.batches(), Path(sweep.folder)
    if not results.rows:
        console.print("No round is finished yet.")
        return
    entries = list(dict.fromkeys((batch.setting, batch.method) for batch in batches))
    print_summary(results, entries, next(iter(sweep.configs.values())).schema, console)
    results.save(folder / "curves.csv")
    draw_curves([batch.store() for batch in batches if batch.rows()], folder / "curves.png")
    console.print(f"Table: {folder / 'curves.csv'}", soft_wrap=True)
    console.print(f"Figure: {folder / 'curves.png'}", soft_wrap=True)
