"""`sonde analyse DIR`: study the learned system."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro
from rich.console import Console, RenderableType
from rich.table import Table

from sonde._internal.errors import SondeError
from sonde._internal.files import check_folder, write_atomically
from sonde.cli._console import plain_console
from sonde.cli._linear_report import point_report, regulator_report, wrapped
from sonde.runs._store import RunStore

if TYPE_CHECKING:
    from sonde.runs._analysis import Analysis

RESPONSE_STEPS = 100
"""Steps of a step response."""
BARS = (
    "± is one epistemic std; undecided: fewer than 95 % of the plausible systems agree, or the largest modulus is exactly 1; "
    "a smallest singular value many stds above 0 means that actions reach every direction"
)
LEGEND = (
    "± is one epistemic std; undecided: fewer than 95 % of the plausible systems agree, or the largest modulus is exactly 1; "
    "a control value many stds above 0 means that actions reach every direction"
)


@dataclass
class AnalyseArguments:
    """Study what a run has learned: equilibria, their stability, what actions can do there, and how deviations grow.

    With --at, any point: where it goes in a step, A and B with error bars. With --lqr, regulators and what they promise.
    """

    folder: tyro.conf.Positional[Path]
    """Folder of the run."""
    at: str | None = None
    """Study this point instead of equilibria, such as "th=0.1,thdot=0;torque=0.2" or numbers alone; action: zero by default."""
    action: tuple[float, ...] = ()
    """Constant action under which equilibria are searched, or that of the point; zero by default."""
    dt: float | None = None
    """Seconds per step, for A and B in continuous time; by default those of the world or of the log, if given."""
    lqr: bool = False
    """Also design a linear-quadratic regulator there."""
    weights: str = ""
    """Its weights: "10,1;0.1" for coordinates; actions, with names or without. By default half the visited range costs 1."""
    robust: float | None = None
    """Design one that stabilises at least this share of all plausible systems, or say that none can be vouched for."""
    save_gain: Path | None = None
    """Write the regulator to FILE.safetensors; `sonde.load_policy` reads it, `sonde deploy` exports it."""
    frequency_response: Path | None = None
    """Draw the frequency response of the point (with a regulator, of the closed loop) into FILE.png, .pdf or .svg."""
    step_response: Path | None = None
    """Draw the response to a step of the action, in the same way."""
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
    found, analysis = _analysis(chosen, store)
    console = plain_console()
    for part in _report(found, console):
        console.print(part, soft_wrap=isinstance(part, str))
    if chosen.out is not None:
        write_atomically(chosen.out, (json.dumps(found, indent=2) + "\n").encode())
        print(f"Analysis: {chosen.out}")
    if chosen.save_gain is not None:
        (regulator,) = analysis.regulators
        regulator.feedback.save(chosen.save_gain)
        print(f"Gain: {chosen.save_gain}")
    for path in _figures(chosen, found, analysis):
        print(f"Figure: {path}")


def _check(chosen: AnalyseArguments, store: RunStore) -> None:
    """Reject what cannot be studied or written, before any work."""
    if not store.checkpoints():
        raise SondeError(f"{store.folder} has no finished round yet: run 'sonde resume {store.folder}' first")
    seeds = store.config.seed_list
    if chosen.seed is not None and chosen.seed not in seeds:
        raise SondeError(f"{store.folder} has no seed {chosen.seed}; it has {', '.join(map(str, seeds))}")
    if chosen.out is not None and chosen.out.suffix != ".json":
        raise SondeError(f"an analysis cannot be written to {chosen.out.name!r}: end its name in .json")
    if chosen.save_gain is not None:
        if not (chosen.lqr or chosen.robust is not None) or chosen.at is None:
            raise SondeError("--save-gain writes the regulator of one point: add --lqr or --robust, and --at")
        if chosen.save_gain.suffix != ".safetensors":
            raise SondeError(f"a gain cannot be written to {chosen.save_gain.name!r}: end its name in .safetensors")
    for path in (chosen.out, chosen.save_gain, chosen.frequency_response, chosen.step_response):
        if path is not None:
            check_folder(path)
    for figure in (chosen.frequency_response, chosen.step_response):
        if figure is not None:
            from sonde.runs.figures import file_format

            file_format(figure)
            if chosen.at is None:
                raise SondeError("responses are those of one point: add --at")


def _analysis(chosen: AnalyseArguments, store: RunStore) -> tuple[dict[str, Any], "Analysis"]:
    """All numbers that were asked for."""
    from sonde.runs._analysis import AnalysisRequest, analysis_of, theory_of
    from sonde.runs._linear_tools import LinearRequest, check_request
    from sonde.runs._run import restore_explorer

    dt = store.config.world.seconds_per_step or store.config.log.dt if chosen.dt is None else chosen.dt
    linear = LinearRequest(dt, chosen.lqr, chosen.weights, chosen.robust)
    check_request(linear)
    config, explorer = store.config, restore_explorer(store)
    index = 0 if chosen.seed is None else config.seed_list.index(chosen.seed)
    theory = {"theory": theory_of(explorer, config, index)} if chosen.theory else {}
    request = AnalysisRequest(chosen.action, chosen.samples, chosen.refit, chosen.truth, chosen.at, linear)
    analysis = analysis_of(explorer, config, index, request, store.load_last())
    return analysis.numbers | theory, analysis


def _figures(chosen: AnalyseArguments, found: dict[str, Any], analysis: "Analysis") -> Iterator[Path]:
    """Draw the responses that were asked for."""
    if chosen.frequency_response is None and chosen.step_response is None:
        return
    from sonde.analysis import frequency_response, step_response
    from sonde.runs.figures import draw_frequency_response, draw_step_response

    linear = analysis.regulators[0].closed_loop if analysis.regulators else analysis.places[0].linearisation
    dt = found["at"].get("continuous", {}).get("dt", 1.0)
    names = (tuple(found["coordinates"]), tuple(found["actions"]))
    if chosen.frequency_response is not None:
        draw_frequency_response(frequency_response(linear, dt), *names, chosen.frequency_response)
        yield chosen.frequency_response
    if chosen.step_response is not None:
        draw_step_response(step_response(linear, RESPONSE_STEPS, dt), *names, chosen.step_response)
        yield chosen.step_response


def _report(found: dict[str, Any], console: Console) -> Iterator[RenderableType]:
    """The analysis as tables and sentences."""
    refitted = ", hyper-parameters refitted" if found["refit"] else ""
    where = f"seed {found['seed']}, after {found['transitions']} transitions{refitted}"
    if "at" in found:
        yield from _places("The learned mean", where, found, [found["at"]], console)
        if "truth" in found:
            yield from _places("The true system", "", found, [found["truth"]], console)
    else:
        yield from _equilibria(where, found, console)
    if "sensitivity" in found:
        growth = found["sensitivity"]
        factors = ", ".join(f"{factor:.3g}" for factor in growth["growth"])
        along = (
            f"Along the last episode ({growth['steps']} steps) deviations at its start grow by factors {factors}: "
            f"at most {growth['rate']:+.3f} per step, as a logarithm"
        )
        yield from wrapped(along, console.width)
    if "physics" in found:
        parameters = ", ".join(f"{name} {value:.5g} ± {std:.1g}" for name, (value, std) in found["physics"].items())
        yield f"Parameters of the known physics: {parameters}"
    if "theory" in found:
        if found["refit"]:
            yield "Theory, for the hyper-parameters of the run itself:"
        yield from _theory_report(found["theory"])


def _equilibria(where: str, found: dict[str, Any], console: Console) -> Iterator[RenderableType]:
    """Equilibria as a table; where it is wider than the console, or there are regulators, one after the other."""
    action = ", ".join(f"{u:g}" for u in found["action"])
    if found["equilibria"]:
        title = f"Equilibria of the learned mean at action {action}"
        if any("lqr" in rest for rest in found["equilibria"]):
            yield from _places(title, where, found, found["equilibria"], console)
        else:
            yield from _fitting(f"{title} ({where})", found, found["equilibria"], console)
    else:
        nothing = f"No equilibrium of the learned mean at action {action} near the measurements ({where})"
        yield from wrapped(nothing, console.width)
    if "truth" in found:
        yield from _fitting(f"Equilibria of the true system at action {action}", found, found["truth"], console, exact=True)


def _fitting(
    title: str, found: dict[str, Any], places: list[dict[str, Any]], console: Console, exact: bool = False
) -> Iterator[RenderableType]:
    table = _table(title, found, places, exact)
    if console.measure(table).maximum <= console.width:
        yield table
        yield from () if exact else wrapped(LEGEND, console.width)
    else:
        yield from _places(title, "", found, places, console)


def _places(title: str, where: str, found: dict[str, Any], places: list[dict[str, Any]], console: Console) -> Iterator[str]:
    """Places one after the other, in lines that fit, with A and B."""
    yield from wrapped(f"{title} ({where})" if where else title, console.width)
    for place in places:
        yield ""
        yield from point_report(found, place, console.width)
        if "lqr" in place:
            yield from regulator_report(found, place["lqr"], console.width)
    yield ""
    yield from wrapped(BARS, console.width)


def _table(title: str, found: dict[str, Any], equilibria: list[dict[str, Any]], exact: bool) -> Table:
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
