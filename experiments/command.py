"""Figures of the paper from start to end: run what is missing, then print and draw what there is.

DIR/uncertainty/curves.csv         every metric of every seed and round
DIR/uncertainty/claims.json, .md   the paper's claims, answered, with their numbers
DIR/uncertainty/provenance.json    configs, versions, machines, seconds
DIR/uncertainty/uncertainty.png    the figure; -iqm: with interquartile means
DIR/runs/                          the runs themselves (`experiments.grid`)
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from experiments.claims import Claim, judge_claims, markdown, print_claims
from experiments.grid import Grid
from experiments.paper import FIGURES, SCALES, PaperFigure
from experiments.provenance import FILE, provenance
from sonde._internal.errors import SondeError, one_of, whole
from sonde._internal.files import write_atomically
from sonde.runs.sweep import Backend, Batch, SweepProgress, run_sweep
from sonde.runs.sweep._backend import Watch

EVERYTHING = "all"


@dataclass(frozen=True)
class Reproduction:
    """Figures of the paper, at a scale, in a folder."""

    figures: tuple[str, ...]
    scale: str
    seeds: int | None
    """Seeds of each method; None: those of the scale."""
    lite: bool
    out: Path
    settings: tuple[str, ...] = ()
    """Only these; all that the figures need, if empty."""
    methods: tuple[str, ...] = ()
    """Only these; all that the figures need, if empty."""

    def __post_init__(self):
        """Reject what no figure has."""
        for figure in self.figures:
            one_of("figure", figure, FIGURES)
        one_of("scale", self.scale, SCALES)
        if self.seeds is not None:
            whole("experiments", seeds=self.seeds)
        for option, given, known in (
            ("--only", self.settings, {s for f in self._figures for s in f.settings}),
            ("--methods", self.methods, {m for f in self._figures for m in f.methods}),
        ):
            for entry in given:
                one_of(f"{option} of {', '.join(self.figures)}", entry, known)
        if self.out.exists() and not self.out.is_dir():
            raise SondeError(f"experiments: --out must be a folder, got the file {self.out}")

    @property
    def _figures(self) -> list[PaperFigure]:
        return [FIGURES[figure] for figure in self.figures]

    def grid(self, figure: str) -> Grid:
        """What is run for one figure."""
        whole_figure = self.shown(figure)
        settings = tuple(s for s in whole_figure.settings if not self.settings or s in self.settings)
        methods = tuple(m for m in whole_figure.methods if not self.methods or m in self.methods)
        return replace(whole_figure, settings=settings, methods=methods)

    def shown(self, figure: str) -> Grid:
        """What one figure shows: also what is not run this time."""
        scale, settings, methods = SCALES[self.scale], FIGURES[figure].settings, FIGURES[figure].methods
        tasks = any(figure.shows_tasks for figure in self._figures)
        seeds = self.seeds or min(scale.seeds, FIGURES[figure].seeds or scale.seeds)
        return Grid(settings, methods, scale.rounds, seeds, self.lite, self.out.absolute(), tasks)

    def batches(self) -> list[Batch]:
        """What all figures need, each batch once."""
        return list(dict.fromkeys(batch for figure in self.figures for batch in self.grid(figure).batches()))

    def folder(self, figure: str) -> Path:
        """Where a figure's results go."""
        return self.out / (f"{figure}-lite" if self.lite else figure)


class TimeUp(Exception):
    """The time that runs were given is over."""


def run_missing(
    reproduction: Reproduction, backend: Backend, console: Console, minutes: float | None = None
) -> dict[Path, str]:
    """Bring every batch to its end; what went wrong, by folder. `TimeUp` is raised if that takes longer than `minutes`."""
    batches = reproduction.batches()
    finished = sum(batch.finished for batch in batches)
    console.print(
        f"{len(batches)} batch{'' if len(batches) == 1 else 'es'}, {finished} finished; runs are in "
        f"{reproduction.out / 'runs'}, and can be stopped and started again at any time",
        soft_wrap=True,
    )
    with SweepProgress(batches, console) as progress:
        return run_sweep(reproduction, backend, watch=progress if minutes is None else _limited(progress, 60 * minutes))


def _limited(watch: Watch, seconds: float) -> Watch:
    """Watch for some seconds; a backend ends its processes when `TimeUp` is raised."""
    end = time.monotonic() + seconds

    def look(running: Sequence[Batch]) -> None:
        watch(running)
        if running and time.monotonic() > end:
            raise TimeUp

    return look


def report(reproduction: Reproduction, console: Console) -> list[Claim]:
    """Save, draw and print what there is; the claims of all figures."""
    answered = [claim for figure in reproduction.figures for claim in _report_figure(reproduction, figure, console)]
    if answered:
        print_claims(answered, console)
    return answered


def _report_figure(reproduction: Reproduction, figure: str, console: Console) -> list[Claim]:
    from experiments.draw import draw_figure, draw_iqm

    grid, folder = reproduction.shown(figure), reproduction.folder(figure)
    made_with = provenance(reproduction.scale, grid, folder / FILE)
    everything = grid.results(folder / "curves.csv")
    results = grid.asked_for(everything)
    if not results.rows:
        console.print(f"{figure}: nothing was run yet")
        return []
    folder.mkdir(parents=True, exist_ok=True)
    claims = judge_claims(results, FIGURES[figure].claims)
    everything.save(folder / "curves.csv")
    write_atomically(folder / "claims.json", _json([claim.to_json() for claim in claims]))
    write_atomically(folder / "claims.md", markdown(claims).encode())
    write_atomically(folder / FILE, _json(made_with))
    note = _note(reproduction, made_with)
    draw_figure(figure, results, folder / f"{figure}.png", note)
    draw_iqm(figure, results, folder / f"{figure}-iqm.png", note)
    for path in sorted(folder.glob("*.png")):
        console.print(f"Figure: {path}", soft_wrap=True)
    return claims


def _note(reproduction: Reproduction, made_with: dict[str, Any]) -> str:
    """What every figure says of its making; its panels have the seeds and rounds."""
    devices = dict.fromkeys(
        machine["processor"] if machine["device"] == "cpu" else machine["device"] for machine in made_with["machines"]
    )
    settings = "lite settings (less planning, smaller networks)" if reproduction.lite else "the paper's settings"
    return "; ".join([f"scale {reproduction.scale}", settings, *devices])


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=1) + "\n").encode()


def print_failures(failures: dict[Path, str], batches: Sequence[Batch], console: Console) -> None:
    """Say what did not come to its end."""
    for batch in batches:
        if batch.folder in failures:
            console.print(f"{batch.name} failed: {failures[batch.folder]}", markup=False, soft_wrap=True)
