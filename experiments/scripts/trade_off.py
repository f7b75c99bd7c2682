"""How much planning is enough? Explore with less and less of it, and see when the result changes.

    python -m experiments.scripts.trade_off run pendulum-gp --variant paper --variant samples=100 --out results.jsonl
    python -m experiments.scripts.trade_off replan cheetah --variant paper --variant samples=50 --out results.jsonl
    python -m experiments.scripts.trade_off draw results.jsonl [...] --out trade-off.png

Each variant changes one thing of a preset. `run` explores with each variant from the start; `replan` explores once, with the
preset as it is, and then plans with each variant on what was learned. A line of the results is one variant: its work per
planned step, and for each seed the returns and what was learned. Lines of the same variant with other seeds add up.
"""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from benchmarks.work import ensemble_queries, imagined_transitions
from sonde.evaluation import Learned, evaluate
from sonde.evaluation._metrics import model_metrics, realised_information_gain
from sonde.explorer import Explorer
from sonde.models import ProbabilisticEnsemble
from sonde.runs import PRESETS, RunConfig, preset
from sonde.runs._run import build_explorer, collect
from sonde.solvers import ICEM

VARIANTS: dict[str, dict[str, Any]] = {
    "paper": {},
    "samples=250": {"solver.samples": 250, "solver.elites": 25},
    "samples=100": {"solver.samples": 100, "solver.elites": 10},
    "samples=50": {"solver.samples": 50, "solver.elites": 5},
    "samples=20": {"solver.samples": 20, "solver.elites": 4},
    "iterations=5": {"solver.iterations": 5},
    "iterations=3": {"solver.iterations": 3},
    "iterations=2": {"solver.iterations": 2},
    "iterations=1": {"solver.iterations": 1},
    "horizon=30": {"solver.horizon": 30},
    "horizon=15": {"solver.horizon": 15},
    "horizon=10": {"solver.horizon": 10},
    "horizon=5": {"solver.horizon": 5},
    "width=128": {"model.width": 128},
    "width=64": {"model.width": 64},
    "layers=3": {"model.layers": 3},
    "members=3": {"model.members": 3},
    "one particle": {"imagination.noise": False},
    "100 samples, 4 iterations": {"solver.samples": 100, "solver.elites": 10, "solver.iterations": 4},
    "half of that=50 samples": {"solver.samples": 50, "solver.elites": 5, "solver.iterations": 4},
    "half of that=2 iterations": {"solver.samples": 100, "solver.elites": 10, "solver.iterations": 2},
    "half of that=horizon 10": {"solver.samples": 100, "solver.elites": 10, "solver.iterations": 4, "solver.horizon": 10},
    "single precision": {"model.matmul_precision": "single"},
}
"""What each variant changes, as PART.FIELD; the parts are the solver, the model and the imagination of the method."""


def varied(config: RunConfig, changes: dict[str, Any]) -> RunConfig:
    """A config with some fields of its parts changed.

    Args:
        config: The config of a preset.
        changes: Values by PART.FIELD, as in `VARIANTS`.
    """
    parts: dict[str, Any] = {"solver": config.solver, "model": config.model, "imagination": config.method.imagination}
    for name, value in changes.items():
        part, _, field = name.partition(".")
        parts[part] = replace(parts[part], **{field: value})
    method = replace(config.method, imagination=parts["imagination"])
    return replace(config, solver=parts["solver"], model=parts["model"], method=method)


def work_per_step(config: RunConfig) -> int:
    """Work of one planned step.

    Args:
        config: The config.

    Returns:
        Operations of an ensemble; imagined transitions of a Gaussian process, whose cost does not depend on the variant.
    """
    solver, model, world, imagination = config.solver, config.model, config.world, config.method.imagination
    assert isinstance(solver, ICEM) and imagination is not None
    transitions = imagined_transitions(solver, imagination.particles if imagination.noise else 1)
    if not isinstance(model, ProbabilisticEnsemble):
        return transitions
    return ensemble_queries(model, world.state_dim, world.action_dim, transitions)


def explore(config: RunConfig, with_metrics: bool) -> tuple[Explorer, list[dict]]:
    """Run all rounds.

    Args:
        config: The config.
        with_metrics: Whether to compute what is left to learn after each round.

    Returns:
        The explorer after the last round, and the metrics of each round.
    """
    explorer, history = build_explorer(config), []
    while explorer.round < config.rounds:
        explorer.tell(collect(config, explorer)[1])
        metrics = model_metrics(explorer.posterior, explorer.data, config.world) if with_metrics else {}
        names = [name for name in ("max_epistemic", "max_epistemic_common", "model_rmse") if name in metrics]
        history.append({"round": explorer.round, **{name: metrics[name].tolist() for name in names}})
    return explorer, history


def line(name: str, variant: str, config: RunConfig, history: list[dict], began: float) -> dict:
    """A line of the results.

    Args:
        name: Name of the preset.
        variant: Name of the variant.
        config: The config of the variant.
        history: Metrics of each round.
        began: `time.perf_counter()` at the start.
    """
    return {
        "preset": name,
        "variant": variant,
        "seeds": list(config.seed_list),
        "work": work_per_step(config),
        "seconds": time.perf_counter() - began,
        "history": history,
    }


def returns(config: RunConfig, explorer: Explorer) -> dict[str, list[float]]:
    """Returns of all tasks, for each seed.

    Args:
        config: The config.
        explorer: What was learned.
    """
    learned = Learned(explorer.posterior, explorer.data)
    keys, starts = explorer.keys(), explorer.evaluation_keys()
    played = {task: evaluate(config.task_setup(task), learned, keys, starts=starts) for task in config.task_names}
    return {f"return/{task}": evaluation.returns.tolist() for task, evaluation in played.items()}


def run(name: str, base: RunConfig, variants: list[str]) -> Iterator[dict]:
    """Explore with each variant, then evaluate the tasks.

    Args:
        name: Name of the preset.
        base: The preset.
        variants: Names of variants.
    """
    for variant in variants:
        began, config = time.perf_counter(), varied(base, VARIANTS[variant])
        explorer, history = explore(config, with_metrics=True)
        history[-1].update(returns(config, explorer))
        yield line(name, variant, config, history, began)


def replan(name: str, base: RunConfig, variants: list[str]) -> Iterator[dict]:
    """Explore once; then, with each variant, evaluate the tasks and plan one more rollout, to see what it would teach.

    Args:
        name: Name of the preset.
        base: The preset.
        variants: Names of variants, which must not change the model.
    """
    for variant in variants:
        if varied(base, VARIANTS[variant]).model != base.model:
            raise SystemExit(f"replan: {variant} changes the model, which is learned only once; use run")
    explorer, _ = explore(base, with_metrics=False)
    for variant in variants:
        began, config = time.perf_counter(), replace(varied(base, VARIANTS[variant]), rollouts=1)
        # the same posterior, asked by another planner
        other = build_explorer(config)
        for part in ("posterior", "data", "params", "round"):
            setattr(other, part, getattr(explorer, part))
        _, trajectory = collect(config, other)
        information = realised_information_gain(explorer.posterior, trajectory.states, trajectory.actions)
        row = {"round": explorer.round, "information": information.tolist(), **returns(config, other)}
        yield line(name, variant, config, [row], began)


def merged(lines: list[dict]) -> dict[str, dict[str, dict]]:
    """Merge lines of the same variant with different seeds.

    Args:
        lines: Lines of the results.

    Returns:
        preset -> variant -> one line with all seeds.
    """
    found: dict[str, dict[str, dict]] = {}
    for line in lines:
        variants = found.setdefault(line["preset"], {})
        if line["variant"] not in variants:
            variants[line["variant"]] = line
            continue
        known = variants[line["variant"]]
        if set(known["seeds"]) & set(line["seeds"]):
            raise SystemExit(f"{line['preset']}, {line['variant']}: seeds {line['seeds']} are in the results twice")
        known["seeds"] = known["seeds"] + line["seeds"]
        for one, other in zip(known["history"], line["history"], strict=True):
            one.update({key: one[key] + other[key] for key in one if key != "round"})
    return found


def draw(files: list[Path], out: Path) -> None:
    """Draw returns and what is left to learn against the work of a planned step: one row of axes per preset.

    Args:
        files: Results.
        out: The figure.
    """
    presets = merged([json.loads(line) for file in files for line in file.read_text().splitlines()])
    measures = {name: _measures(next(iter(v.values()))) for name, v in presets.items()}
    columns = max(map(len, measures.values()))
    figure, axes = plt.subplots(len(presets), columns, figsize=(4.6 * columns, 3.6 * len(presets)), squeeze=False)
    for row, (name, variants) in zip(axes, presets.items(), strict=True):
        for axis in row[len(measures[name]) :]:
            axis.axis("off")
        for axis, measure in zip(row, measures[name], strict=False):
            _draw_one(axis, name, measure, variants)
    handles = {label: handle for axis in axes.flat for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="lower center", ncols=len(handles), frameon=False)
    figure.suptitle("Results of a run against its planning: means and two standard errors; see docs/speed.md")
    figure.tight_layout(rect=(0, 0.05, 1, 0.98))
    figure.savefig(out, dpi=110)
    print(out)


def _measures(line: dict) -> list[str]:
    last = line["history"][-1]
    others = ("information", "max_epistemic_common")
    return [*(key for key in last if key.startswith("return/")), *(key for key in others if key in last)]


def _draw_one(axis, name: str, measure: str, variants: dict[str, dict]) -> None:
    paper = variants["paper"]
    families: dict[str, list[str]] = {}
    for variant in variants:
        families.setdefault(variant.partition("=")[0], []).append(variant)
    colours = {family: f"C{i}" for i, family in enumerate(dict.fromkeys(v.partition("=")[0] for v in VARIANTS))}
    for family, members in families.items():
        points = []
        for variant in members if family == "paper" else ["paper", *members]:
            values = np.asarray(variants[variant]["history"][-1][measure])
            work, error = (
                variants[variant]["work"] / paper["work"],
                2 * values.std(ddof=min(1, len(values) - 1)) / len(values) ** 0.5,
            )
            points.append((work, values.mean(), error))
            label = variant.partition("=")[2]
            label = label if label.isdigit() else ""  # words would cover each other
            axis.annotate(label, (work, values.mean()), (4, 4), textcoords="offset points", fontsize=7, color=colours[family])
        work, mean, error = np.asarray(sorted(points)).T
        marker = {"marker": "*", "markersize": 14, "zorder": 5} if family == "paper" else {"marker": "o", "markersize": 4}
        axis.errorbar(work, mean, error, color=colours[family], linewidth=1, capsize=2, label=family, **marker)
    axis.set(
        xscale="log",
        xlabel="work per planned step, paper = 1",
        title=f"{name}: {measure.removeprefix('return/')}" if "/" in measure else name,
    )
    labels = {"information": "information of the next rollout, nats", "max_epistemic_common": "uncertainty left"}
    axis.set_ylabel(labels.get(measure, "return"))
    ticks = (0.01, 0.03, 0.1, 0.3, 1, 3)
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_xticks([], minor=True)
    axis.grid(alpha=0.3)


def main() -> None:
    """Entry point of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for command, text in (("run", "explore with each variant"), ("replan", "explore once, plan on it with each variant")):
        parts = commands.add_parser(command, help=text)
        parts.add_argument("preset", choices=PRESETS)
        parts.add_argument("--variant", action="append", choices=VARIANTS, required=True)
        parts.add_argument("--first-seed", type=int, default=0)
        parts.add_argument("--seeds", type=int, default=10)
        parts.add_argument("--rounds", type=int, default=3)
        parts.add_argument("--tasks", nargs="*", default=[], help="tasks to evaluate (default: all)")
        parts.add_argument("--out", type=Path, required=True, help="results are appended here, one line per variant")
    drawing = commands.add_parser("draw", help="draw results")
    drawing.add_argument("results", type=Path, nargs="+")
    drawing.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args()
    if chosen.command == "draw":
        draw(chosen.results, chosen.out)
        return
    changes = {name: getattr(chosen, name) for name in ("first_seed", "seeds", "rounds")}
    base = replace(preset(chosen.preset), evaluation_tasks=tuple(chosen.tasks), **changes)
    for result in (run if chosen.command == "run" else replan)(chosen.preset, base, chosen.variant):
        with chosen.out.open("a") as file:
            file.write(json.dumps(result) + "\n")
        print(f"{chosen.preset}, {result['variant']}: {result['seconds']:.0f} s", flush=True)


if __name__ == "__main__":
    main()
