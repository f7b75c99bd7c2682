"""`sonde reproduce`: run what is missing, then say and draw what there is.

DIR/uncertainty/curves.csv         every metric of every seed and round
DIR/uncertainty/claims.json, .md   the paper's claims, answered, with their numbers
DIR/uncertainty/made-with.json     configs, versions, machines, seconds
DIR/uncertainty/uncertainty.png    the figure; -iqm: with interquartile means
DIR/runs/                          the runs themselves (`sonde.runs.sweep._grid`)
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import jax
from rich.console import Console

from experiments.claims import Claim, judge_claims, markdown, print_claims
from experiments.paper import FIGURES, SCALES, PaperFigure
from experiments.provenance import origin
from sonde._internal.errors import SondeError, one_of, whole
from sonde._internal.files import write_atomically
from sonde._internal.machine import cores
from sonde.runs.sweep._grid import Batch, Grid
from sonde.runs.sweep._local import run_locally
from sonde.runs.sweep._progress import GridProgress, name

EVERYTHING = "all"


@dataclass(frozen=True)
class Experiment:
    """Figures of the paper, at a scale, in a folder."""

    figures: tuple[str, ...]
    scale: str
    seeds: int | None
    lite: bool
    out: Path
    settings: tuple[str, ...] = ()
    """Only these; all that the figures need, if empty."""
    methods: tuple[str, ...] = ()
    """Only these; all that the figures need, if empty."""

    def __post_init__(self):
        """Refuse what no figure has."""
        for figure in self.figures:
            one_of("figure", figure, FIGURES)
        one_of("scale", self.scale, SCALES)
        if self.seeds is not None:
            whole("reproduce", seeds=self.seeds)
        for option, given, known in (
            ("--only", self.settings, {s for f in self._figures for s in f.settings}),
            ("--methods", self.methods, {m for f in self._figures for m in f.methods}),
        ):
            for entry in given:
                one_of(f"{option} of {', '.join(self.figures)}", entry, known)
        if self.out.exists() and not self.out.is_dir():
            raise SondeError(f"reproduce: --out must be a folder, got the file {self.out}")

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
        try_tasks = any(figure.shows_tasks for figure in self._figures)
        seeds = self.seeds or min(scale.seeds, FIGURES[figure].seeds or scale.seeds)
        return Grid(settings, methods, scale.rounds, seeds, self.lite, self.out.absolute(), try_tasks)

    def batches(self) -> list[Batch]:
        """What all figures need, each batch once."""
        return list(dict.fromkeys(batch for figure in self.figures for batch in self.grid(figure).batches()))

    def folder(self, figure: str) -> Path:
        """Where a figure's results go."""
        return self.out / (f"{figure}-lite" if self.lite else figure)


def run_missing(
    experiment: Experiment, backend: Literal["local", "ray"], workers: int, address: str | None, gpus: float, console: Console
) -> dict[Path, str]:
    """Bring every batch to its end; what went wrong, by folder."""
    batches = experiment.batches()
    missing = [batch for batch in batches if not batch.finished]
    console.print(
        f"{len(batches)} batch{'' if len(batches) == 1 else 'es'}, {len(batches) - len(missing)} finished; "
        f"runs are in {experiment.out / 'runs'}, and may be stopped and started again at any time",
        soft_wrap=True,
    )
    with GridProgress(batches, console) as progress:
        if backend == "ray":
            from sonde.runs.sweep._ray import run_on_ray

            return run_on_ray(missing, address, gpus, progress)
        return run_locally(missing, workers, progress)


def report(experiment: Experiment, console: Console) -> list[Claim]:
    """Save, draw and print what there is; the claims of all figures."""
    from experiments.draw import draw_figure, draw_iqm

    answered = []
    for figure in experiment.figures:
        grid, folder = experiment.shown(figure), experiment.folder(figure)
        made_with = origin(experiment.scale, grid, folder / "made-with.json")
        everything = grid.results(folder / "curves.csv")
        results = grid.asked_for(everything)
        if not results.rows:
            console.print(f"{figure}: nothing was run yet")
            continue
        folder.mkdir(parents=True, exist_ok=True)
        claims = judge_claims(results, FIGURES[figure].claims)
        everything.save(folder / "curves.csv")
        write_atomically(folder / "claims.json", _json([claim.to_json() for claim in claims]))
        write_atomically(folder / "claims.md", markdown(claims).encode())
        write_atomically(folder / "made-with.json", _json(made_with))
        note = _note(experiment, made_with)
        draw_figure(figure, results, folder / f"{figure}.png", note)
        draw_iqm(figure, results, folder / f"{figure}-iqm.png", note)
        for path in sorted(folder.glob("*.png")):
            console.print(f"Figure: {path}", soft_wrap=True)
        answered += claims
    if answered:
        print_claims(answered, console)
    return answered


def _note(experiment: Experiment, made_with: dict) -> str:
    """What every figure says of its making; its panels have the seeds and rounds."""
    devices = dict.fromkeys(
        machine["processor"] if machine["device"] == "cpu" else machine["device"] for machine in made_with["machines"]
    )
    settings = "lite settings (less planning, smaller networks)" if experiment.lite else "the paper's settings"
    return "; ".join([f"scale {experiment.scale}", settings, *devices])


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=1) + "\n").encode()


def default_workers(accelerator: bool) -> int:
    """Batches at a time that keep this machine busy: none uses two cores fully, and a few fill each other's gaps on a GPU."""
    return 3 if accelerator else max(min(2, cores()), cores() // 2)


def on_accelerator() -> bool:
    """Whether JAX computes on something faster than a CPU."""
    # this process, and those that it starts, share the accelerator: none may take all of its memory
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    return jax.default_backend() != "cpu"


def print_failures(failures: dict[Path, str], batches: Sequence[Batch], console: Console) -> None:
    """Say what did not come to its end."""
    for batch in batches:
        if batch.folder in failures:
            console.print(f"{name(batch)} failed: {failures[batch.folder]}", markup=False, soft_wrap=True)
