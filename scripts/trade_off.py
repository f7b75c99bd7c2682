"""How much planning is enough? Explore with less and less of it, and see when the result changes.

    python scripts/trade_off.py run pendulum-gp --variant paper --variant samples=100 --out results.jsonl
    python scripts/trade_off.py replan cheetah --variant paper --variant samples=50 --out results.jsonl
    python scripts/trade_off.py draw results.jsonl [...] --out trade-off.png

Each variant changes one thing of a preset. `run` explores with each variant from the start; `replan` explores once, with the
preset as it is, and then plans with each variant on what was learned. A line of the results is one variant: its work per
planned step, and for each run the returns and what was learned. Lines of the same variant with other seeds add up.
"""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from benchmarks.work import ensemble_queries, imagined_transitions

from sonde.evaluation._metrics import judge, realised_information_gain
from sonde.explorer import Explorer
from sonde.models._ensemble import ProbabilisticEnsemble
from sonde.runs._config import RunConfig
from sonde.runs._presets import PRESETS, preset
from sonde.runs._run import build_explorer, evaluate_task, experiment
from sonde.solvers import ICEM

VARIANTS = {
    "paper": {},
    "samples=250": {"samples": 250, "elites": 25},
    "samples=100": {"samples": 100, "elites": 10},
    "samples=50": {"samples": 50, "elites": 5},
    "samples=20": {"samples": 20, "elites": 4},
    "iterations=5": {"iterations": 5},
    "iterations=3": {"iterations": 3},
    "iterations=2": {"iterations": 2},
    "iterations=1": {"iterations": 1},
    "horizon=30": {"horizon": 30},
    "horizon=15": {"horizon": 15},
    "horizon=10": {"horizon": 10},
    "horizon=5": {"horizon": 5},
    "width=128": {"width": 128},
    "width=64": {"width": 64},
    "layers=3": {"layers": 3},
    "members=3": {"members": 3},
    "one particle": {"imagine_noise": False},
    "100 samples, 4 iterations": {"samples": 100, "elites": 10, "iterations": 4},
    "half of that=50 samples": {"samples": 50, "elites": 5, "iterations": 4},
    "half of that=2 iterations": {"samples": 100, "elites": 10, "iterations": 2},
    "half of that=horizon 10": {"samples": 100, "elites": 10, "iterations": 4, "horizon": 10},
    "single precision": {"products": "single"},
}
"""What each variant changes, in the solver, the model or the run itself."""


def varied(config: RunConfig, changes: dict) -> RunConfig:
    """The config with changes, wherever their names belong."""
    parts: dict[str, dict] = {"run": {}, "solver": {}, "model": {}}
    for name, value in changes.items():
        part = next((p for p in ("solver", "model") if hasattr(getattr(config, p), name)), "run")
        parts[part][name] = value
    own = parts.pop("run")
    return replace(config, **own, **{part: replace(getattr(config, part), **some) for part, some in parts.items()})


def work_per_step(config: RunConfig) -> int:
    """Of a planned step: operations of an ensemble; imagined transitions of a Gaussian process, whose price is all the same."""
    solver, model, world = config.solver, config.model, config.world
    assert isinstance(solver, ICEM)
    transitions = imagined_transitions(solver, config.particles if config.imagine_noise else 1)
    if not isinstance(model, ProbabilisticEnsemble):
        return transitions
    return ensemble_queries(model, world.state_dim, world.action_dim, transitions)


def explore(config: RunConfig, judged: bool) -> tuple[Explorer, list[dict]]:
    """All episodes: what was learned, and what was left to learn after each."""
    explorer, history = build_explorer(config), []
    while explorer.round < config.rounds:
        explorer.tell(experiment(config, explorer)[1])
        metrics = judge(explorer.posterior, explorer.data, config.world) if judged else {}
        names = [name for name in ("max_epistemic", "max_epistemic_common", "model_rmse") if name in metrics]
        history.append({"round": explorer.round, **{name: metrics[name].tolist() for name in names}})
    return explorer, history


def line(name: str, variant: str, config: RunConfig, history: list[dict], began: float) -> dict:
    """A line of the results."""
    return {
        "preset": name,
        "variant": variant,
        "seeds": list(config.seed_list),
        "work": work_per_step(config),
        "seconds": time.perf_counter() - began,
        "history": history,
    }


def returns(config: RunConfig, explorer: Explorer) -> dict[str, list[float]]:
    """Of all tasks, for each run."""
    played = {task: evaluate_task(config, explorer, task, explorer.posterior) for task in config.task_names}
    return {f"return/{task}": evaluation.returns.tolist() for task, evaluation in played.items()}


def run(name: str, base: RunConfig, variants: list[str]) -> Iterator[dict]:
    """Explore with each variant, then evaluate the tasks."""
    for variant in variants:
        began, config = time.perf_counter(), varied(base, VARIANTS[variant])
        explorer, history = explore(config, judged=True)
        history[-1].update(returns(config, explorer))
        yield line(name, variant, config, history, began)


def replan(name: str, base: RunConfig, variants: list[str]) -> Iterator[dict]:
    """Explore once; then, with each variant, evaluate the tasks and plan one more experiment, to see what it would teach."""
    for variant in variants:
        if varied(base, VARIANTS[variant]).model != base.model:
            raise SystemExit(f"replan: {variant} changes the model, which is learned only once; take run")
    explorer, _ = explore(base, judged=False)
    for variant in variants:
        began, config = time.perf_counter(), replace(varied(base, VARIANTS[variant]), rollouts=1)
        # the same posterior, asked by another planner
        other = build_explorer(config)
        for part in ("posterior", "data", "params", "round"):
            setattr(other, part, getattr(explorer, part))
        _, trajectory = experiment(config, other)
        information = realised_information_gain(explorer.posterior, trajectory.states, trajectory.actions)
        row = {"round": explorer.round, "information": information.tolist(), **returns(config, other)}
        yield line(name, variant, config, [row], began)


def merged(lines: list[dict]) -> dict[str, dict[str, dict]]:
    """preset -> variant -> the line, with the seeds of all its lines together."""
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
    """One row of pictures per preset: what is reached against the work of a planned step, one colour per thing that shrinks."""
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
    figure.suptitle("What a run reaches against the planning it does: means and two standard errors; see docs/speed.md")
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
    labels = {"information": "information of the next experiment, nats", "max_epistemic_common": "uncertainty left"}
    axis.set_ylabel(labels.get(measure, "return"))
    ticks = (0.01, 0.03, 0.1, 0.3, 1, 3)
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_xticks([], minor=True)
    axis.grid(alpha=0.3)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for command, text in (("run", "explore with each variant"), ("replan", "explore once, plan on it with each variant")):
        parts = commands.add_parser(command, help=text)
        parts.add_argument("preset", choices=PRESETS)
        parts.add_argument("--variant", action="append", choices=VARIANTS, required=True)
        parts.add_argument("--first-seed", type=int, default=0)
        parts.add_argument("--seeds", type=int, default=10)
        parts.add_argument("--rounds", type=int, default=3)
        parts.add_argument("--tasks", nargs="*", default=[], help="those to evaluate (default: all)")
        parts.add_argument("--out", type=Path, required=True, help="results are appended here, one line per variant")
    drawing = commands.add_parser("draw", help="draw results")
    drawing.add_argument("results", type=Path, nargs="+")
    drawing.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args()
    if chosen.command == "draw":
        draw(chosen.results, chosen.out)
        return
    changes = {name: getattr(chosen, name) for name in ("first_seed", "seeds", "rounds")}
    base = replace(preset(chosen.preset), tasks=tuple(chosen.tasks), **changes)
    for result in (run if chosen.command == "run" else replan)(chosen.preset, base, chosen.variant):
        with chosen.out.open("a") as file:
            file.write(json.dumps(result) + "\n")
        print(f"{chosen.preset}, {result['variant']}: {result['seconds']:.0f} s", flush=True)


if __name__ == "__main__":
    main()
