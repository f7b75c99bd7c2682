"""`sonde analyse DIR`: the learned system, studied."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console
from rich.table import Table

from sonde._internal.errors import SondeError


@dataclass
class AnalyseArguments:
    """Study what a run has learned: where the system rests, whether it stays there, what actions can do, how errors grow."""

    folder: tyro.conf.Positional[Path]
    """The run's folder."""
    action: tuple[float, ...] = ()
    """The constant action under which the system rests; by default zero."""
    seed: int | None = None
    """The run to study, of those in lockstep; by default the first."""
    refit: bool = False
    """Study a Gaussian process with hyper-parameters fitted anew, to all measurements (1,000 at most) and under a wider prior:
    often closer to the truth, and surer. The run stays as it is."""
    samples: int = 1000
    """Plausible systems (of a Gaussian process) that error bars are taken from; an ensemble has its members."""
    truth: bool = False
    """Also study the true system, where it is written in JAX, and print it below."""
    theory: bool = False
    """Also print what theory says of a Gaussian process: information gain, its greedy maximum, beta, and the bound."""
    out: Path | None = None
    """Write all numbers to FILE.json."""


def main(args: list[str]) -> None:
    """`sonde analyse DIR`."""
    chosen = tyro.cli(AnalyseArguments, args=args, prog="sonde analyse")
    from sonde.runs._store import RunStore

    store = RunStore.open(chosen.folder)
    config, checkpoints = store.config, store.checkpoints()
    if not checkpoints:
        raise SondeError(f"{store.folder} has no finished episode yet: run 'sonde resume {store.folder}' first")
    if chosen.seed is not None and chosen.seed not in config.seed_list:
        raise SondeError(f"{store.folder} has no seed {chosen.seed}; it has {', '.join(map(str, config.seed_list))}")
    if chosen.out is not None and chosen.out.suffix != ".json":
        raise SondeError(f"an analysis cannot be written to {chosen.out.name!r}: end its name in .json")
    from sonde.runs._analysis import analysis_of, theory_of, true_equilibria
    from sonde.runs._run import restore_explorer

    run = 0 if chosen.seed is None else config.seed_list.index(chosen.seed)
    explorer = restore_explorer(store, checkpoints[-1])
    theory = {"theory": theory_of(explorer, config, run)} if chosen.theory else {}
    truth = {"truth": true_equilibria(explorer, config.world, run, chosen.action)} if chosen.truth else {}
    last = store.load_finished()[-1]
    found = analysis_of(explorer, config, run, chosen.action, chosen.samples, last, chosen.refit) | truth | theory
    _print(found, Console())
    if chosen.out is not None:
        from sonde._internal.files import write_atomically

        write_atomically(chosen.out, (json.dumps(found, indent=2) + "\n").encode())
        print(f"Analysis: {chosen.out}")


def _print(found: dict[str, Any], console: Console) -> None:
    anew = ", hyper-parameters fitted anew" if found["refit"] else ""
    where = f"seed {found['seed']}, after {found['transitions']} transitions{anew}"
    perturbed = ", ".join(f"{u:g}" for u in found["action"])
    if found["equilibria"]:
        console.print(_table(f"Equilibria of the learned mean at action {perturbed} ({where})", found, found["equilibria"]))
        console.print(
            "± is one epistemic std; undecided: fewer than 95 % of the plausible systems agree, or the largest modulus is "
            "exactly 1; a control value many stds above 0 means that actions reach every direction"
        )
    else:
        console.print(f"No equilibrium of the learned mean at action {perturbed} where the model knows it ({where})")
    if "truth" in found:
        console.print(_table(f"Equilibria of the true system at action {perturbed}", found, found["truth"], exact=True))
    if "sensitivity" in found:
        grown = found["sensitivity"]
        factors = ", ".join(f"{factor:.3g}" for factor in grown["growth"])
        console.print(
            f"Along the last episode ({grown['steps']} steps) deviations at its start grow by factors {factors}: "
            f"at worst {grown['rate']:+.3f} per step, as a logarithm",
            soft_wrap=True,
        )
    if "theory" in found:
        if found["refit"]:
            console.print("Theory, for the hyper-parameters that the run itself had:")
        _print_theory(found["theory"], console)


def _table(title: str, found: dict[str, Any], equilibria: list[dict[str, Any]], exact: bool = False) -> Table:
    """One row each; without error bars if what is told is `exact`."""
    radius_title = "largest modulus" if exact else "largest modulus (95 %)"
    table = Table(*found["coordinates"], "eigenvalues of A", radius_title, "verdict", "control", title=title)
    give_or_take = lambda std: "" if exact else f" ± {std:.1g}"
    for rest in equilibria:
        # z: no minus before what rounds to zero
        place = [f"{q:z.4f}{give_or_take(std)}" for q, std in zip(rest["point"], rest["point_std"], strict=True)]
        values = zip(rest["eigenvalues"], rest["eigenvalue_std"], strict=True)
        eigenvalues = "\n".join(f"{re:.4f}{f' {im:+.4f}i' if im else ''}{give_or_take(std)}" for (re, im), std in values)
        low, high = rest["spectral_radius_95"]
        radius = f"{rest['spectral_radius']:.4f}" + ("" if exact else f" ({low:.4f}, {high:.4f})")
        control = rest["controllability"]
        reach = f"{control['smallest']:.3g}{give_or_take(control['std'])}, rank {control['rank']}"
        table.add_row(*place, eigenvalues, radius, rest["stability"], reach)
    return table


def _print_theory(theory: dict[str, Any], console: Console) -> None:
    listed = lambda values: ", ".join(f"{value:.4g}" for value in values)
    console.print(f"Information gain of all data, per output: {listed(theory['information_gain'])} nats", soft_wrap=True)
    if "gamma" in theory:
        console.print(f"Greedy maximum of as many measurements: {listed(theory['gamma'])} nats", soft_wrap=True)
    console.print(f"beta (delta {theory['delta']:g}), per output: {listed(theory['beta'])} epistemic stds", soft_wrap=True)
    if "bound" in theory:
        console.print(f"Theorem 2's right-hand side, up to its constant: {theory['bound']:.4g}", soft_wrap=True)
