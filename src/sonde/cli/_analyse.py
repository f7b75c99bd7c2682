"""`sonde analyse DIR`: study the learned system."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from rich.console import RenderableType
from rich.table import Table

from sonde._internal.errors import SondeError
from sonde._internal.files import write_atomically
from sonde.cli._console import plain_console
from sonde.data import Trajectory
from sonde.runs import RunConfig
from sonde.runs._judgement import episode_begins
from sonde.runs._store import RunStore

LEGEND = (
    "± is one epistemic std; undecided: fewer than 95 % of the plausible systems agree, or the largest modulus is exactly 1; "
    "a control value many stds above 0 means that actions reach every direction"
)


@dataclass
class AnalyseArguments:
    """Study what a run has learned: equilibria, their stability, what actions can do there, and how deviations grow."""

    folder: tyro.conf.Positional[Path]
    """Folder of the run."""
    action: tuple[float, ...] = ()
    """Constant action under which equilibria are searched; zero by default."""
    seed: int | None = None
    """Seed to study; the first by default."""
    refit: bool = False
    """First refit the hyper-parameters of a Gaussian process, to all data and under a wider prior; the run is not changed."""
    samples: int = 1000
    """Plausible systems that are sampled from a Gaussian process for error bars; an ensemble has its members."""
    truth: bool = False
    """Also study the true system, if it is written in JAX."""
    theory: bool = False
    """Also print the quantities of the theory for a Gaussian process: information gain, its greedy maximum, beta, the bound."""
    out: Path | None = None
    """Also write all numbers to FILE.json."""
    allow_code: bool = False
    """Run code of others that the run names, such as FILE.py:NAME; code that you ran before needs no permission."""


def main(args: list[str]) -> None:
    """Run the command.

    Args:
        args: Words after the command.
    """
    chosen = tyro.cli(AnalyseArguments, args=args, prog="sonde analyse")
    store = RunStore.open(chosen.folder, chosen.allow_code)
    _check(chosen, store)
    found = _analysis(chosen, store)
    console = plain_console()
    for part in _report(found):
        console.print(part, soft_wrap=isinstance(part, str))
    if chosen.out is not None:
        write_atomically(chosen.out, (json.dumps(found, indent=2) + "\n").encode())
        print(f"Analysis: {chosen.out}")


def _check(chosen: AnalyseArguments, store: RunStore) -> None:
    """Reject what cannot be studied or written, before any work."""
    if not store.checkpoints():
        raise SondeError(f"{store.folder} has no finished round yet: run 'sonde resume {store.folder}' first")
    seeds = store.config.seed_list
    if chosen.seed is not None and chosen.seed not in seeds:
        raise SondeError(f"{store.folder} has no seed {chosen.seed}; it has {', '.join(map(str, seeds))}")
    if chosen.out is not None and chosen.out.suffix != ".json":
        raise SondeError(f"an analysis cannot be written to {chosen.out.name!r}: end its name in .json")


def _analysis(chosen: AnalyseArguments, store: RunStore) -> dict[str, Any]:
    """All numbers that were asked for."""
    from sonde.runs._analysis import analysis_of, theory_of, true_equilibria
    from sonde.runs._run import restore_explorer

    config, explorer = store.config, restore_explorer(store)
    index = 0 if chosen.seed is None else config.seed_list.index(chosen.seed)
    theory = {"theory": theory_of(explorer, config, index)} if chosen.theory else {}
    truth = {"truth": true_equilibria(explorer, config.world, index, chosen.action)} if chosen.truth else {}
    last = next(iter(reversed(store.load_finished())), None) or _first_episode(store, config)
    found = analysis_of(explorer, config, index, chosen.action, chosen.samples, last, chosen.refit)
    return found | truth | theory


def _first_episode(store: RunStore, config: RunConfig) -> Trajectory:
    """The first episode of the measurements that a run without rounds was made from, for all seeds."""
    measured = store.load_initial_data()
    assert measured is not None
    begins = np.flatnonzero(episode_begins(measured.states, measured.next_states))
    end = begins[1] if len(begins) > 1 else len(measured.states)
    arrays = (measured.states, measured.actions, measured.next_states)
    return Trajectory(*(np.repeat(array[None, :end], config.seeds, axis=0) for array in arrays))


def _report(found: dict[str, Any]) -> Iterator[RenderableType]:
    """The analysis as tables and sentences."""
    refitted = ", hyper-parameters refitted" if found["refit"] else ""
    where = f"seed {found['seed']}, after {found['transitions']} transitions{refitted}"
    action = ", ".join(f"{u:g}" for u in found["action"])
    if found["equilibria"]:
        yield _table(f"Equilibria of the learned mean at action {action} ({where})", found, found["equilibria"])
        yield LEGEND
    else:
        yield f"No equilibrium of the learned mean at action {action} near the measurements ({where})"
    if "truth" in found:
        yield _table(f"Equilibria of the true system at action {action}", found, found["truth"], exact=True)
    if "sensitivity" in found:
        growth = found["sensitivity"]
        factors = ", ".join(f"{factor:.3g}" for factor in growth["growth"])
        yield (
            f"Along the last episode ({growth['steps']} steps) deviations at its start grow by factors {factors}: "
            f"at most {growth['rate']:+.3f} per step, as a logarithm"
        )
    if "physics" in found:
        parameters = ", ".join(f"{name} {value:.5g} ± {std:.1g}" for name, (value, std) in found["physics"].items())
        yield f"Parameters of the known physics: {parameters}"
    if "theory" in found:
        if found["refit"]:
            yield "Theory, for the hyper-parameters of the run itself:"
        yield from _theory_report(found["theory"])


def _table(title: str, found: dict[str, Any], equilibria: list[dict[str, Any]], exact: bool = False) -> Table:
    """One row per equilibrium; without error bars if the system is known exactly."""
    radius_title = "largest modulus" if exact else "largest modulus (95 %)"
    table = Table(*found["coordinates"], "eigenvalues of A", radius_title, "verdict", "control", title=title)
    error_bar = lambda std: "" if exact else f" ± {std:.1g}"
    for rest in equilibria:
        # z: no minus sign before what rounds to zero
        place = [f"{q:z.4f}{error_bar(std)}" for q, std in zip(rest["point"], rest["point_std"], strict=True)]
        values = zip(rest["eigenvalues"], rest["eigenvalue_std"], strict=True)
        eigenvalues = "\n".join(f"{re:.4f}{f' {im:+.4f}i' if im else ''}{error_bar(std)}" for (re, im), std in values)
        low, high = rest["spectral_radius_95"]
        radius = f"{rest['spectral_radius']:.4f}" + ("" if exact else f" ({low:.4f}, {high:.4f})")
        control = rest["controllability"]
        reach = f"{control['smallest']:.3g}{error_bar(control['std'])}, rank {control['rank']}"
        table.add_row(*place, eigenvalues, radius, rest["stability"], reach)
    return table


def _theory_report(theory: dict[str, Any]) -> Iterator[str]:
    listed = lambda values: ", ".join(f"{value:.4g}" for value in values)
    yield f"Information gain of all data, per output: {listed(theory['information_gain'])} nats"
    if "gamma" in theory:
        yield f"Greedy maximum for the same number of measurements: {listed(theory['gamma'])} nats"
    yield f"beta (delta {theory['delta']:g}), per output: {listed(theory['beta'])} epistemic stds"
    if "bound" in theory:
        yield f"Right-hand side of Theorem 2, up to its constant: {theory['bound']:.4g}"
