"""`sonde data check FILE ...`: what logs hold, and what a run would use of them."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Literal

import tyro
from rich.console import Console
from rich.table import Table

from sonde.cli._choices import starting_point
from sonde.cli._console import plain_console
from sonde.runs.logs import LogCheck, LogFormat, SourceCheck, check_logs
from sonde.runs.logs._check import as_json

NOTHING = "Nothing can be used yet"


@dataclass
class DataArguments:
    """Say what logs hold, what a run would use of them, and what to do about the rest. Nothing is written."""

    what: tyro.conf.Positional[Literal["check"]]
    """check: look at logs."""
    data: tyro.conf.Positional[tuple[str, ...]]
    """Files, patterns such as 'logs/*.csv', folders, or minari:DATASET."""
    system: str | None = None
    """The system that was measured, as in 'sonde explore'; without it, --columns or the first file says what the states are."""
    log: Annotated[LogFormat, tyro.conf.arg(name="")] = field(default_factory=LogFormat)
    """How the files are read."""
    json: bool = False
    """Print everything as JSON."""


def main(args: list[str]) -> None:
    """Run the command.

    Args:
        args: Words after the command.
    """
    chosen = tyro.cli(DataArguments, args=args, prog="sonde data")
    world = None if chosen.system is None else starting_point(chosen.system).world
    found = check_logs(chosen.data, chosen.log, world)
    if chosen.json:
        print(json.dumps(as_json(found), indent=2))
    else:
        _print(found, plain_console())
    if not found.usable:
        raise SystemExit(2)


def _print(found: LogCheck, console: Console) -> None:
    for one in found.sources:
        every = "" if one.step is None else f", {one.step:.6g} s apart"
        console.print(
            f"{one.source}: {one.samples:,} samples{every}" if one.samples else one.source, markup=False, soft_wrap=True
        )
        if one.channels:
            console.print(_table(one))
        for line in _sentences(one):
            console.print(line, markup=False, highlight=False)
        console.print()
    names = f"states {', '.join(found.states)}; actions {', '.join(found.actions)}; " if found.states else ""
    step = "" if found.dt is None else f"; one step is {found.dt:.6g} s"
    episodes = sum(one.episodes for one in found.sources)
    text = f"To be used: {names}{found.transitions:,} transitions in {episodes:,} episodes{step}"
    if not found.usable:
        unread = sum(any(finding.level == "error" for finding in one.findings) for one in found.sources)
        text = f"Nothing can be used yet: {unread} of {len(found.sources)} sources cannot" if found.transitions else NOTHING
    console.print(text, markup=False)


def _table(one: SourceCheck) -> Table:
    table = Table("column", "unit", "used as", "becomes", "from", "to", "empty", box=None, pad_edge=False, header_style="bold")
    number = lambda value: "" if value is None else f"{value:.5g}"
    for channel in one.channels:
        texts = (channel.column, channel.unit, channel.used_as, channel.becomes)
        table.add_row(
            *(_shown(text or "") for text in texts), number(channel.low), number(channel.high), str(channel.empty or "")
        )
    return table


def _shown(text: str) -> str:
    """A text of somebody's file, without what a terminal would obey."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def _sentences(one: SourceCheck) -> Iterator[str]:
    for finding in one.findings:
        yield _shown(f"{finding.level}: {finding.text}" + (f"; {finding.advice}" if finding.advice else ""))
    if one.transitions:
        yield f"would be used: {one.transitions:,} transitions in {one.episodes:,} episode{'s' * (one.episodes != 1)}"
