"""How much planning is enough? Explore with less and less of it, and see when the result changes.

    python scripts/trade_off.py run pendulum-gp --variant paper --variant samples=100 --out results.jsonl
    python scripts/trade_off.py replan cheetah --variant paper --variant samples=50 --out results.jsonl
    python scripts/trade_off.py draw results.jsonl [...] --out trade-off.png

Each variant changes one thing of a preset. `run` explores with each variant from the start; `replan` explores once, with the
preset as it is, and then plans with each variant on what was learned. A line of the results is one variant: its work per
planned step, and for each run the returns and what was learned. Lines of the same variant with other seeds add up.
"""

import argparse
import itertools
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from sonde.config import RunConfig
from sonde.explorer import Explorer
from sonde.metrics import judge, realised_information_gain
from sonde.models.ensemble import ProbabilisticEnsemble
from sonde.presets import PRESETS, preset
from sonde.runs.run import build_explorer, evaluate_task, experiment
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
    "lite": {"samples": 100, "elites": 10, "iterations": 4},
    "less than lite=50 samples": {"samples": 50, "elites": 5, "iterations": 4},
    "less than lite=2 iterations": {"samples": 100, "elites": 10, "iterations": 2},
    "less than lite=horizon 10": {"samples": 100, "elites": 10, "iterations": 4, "horizon": 10},
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


def imagined_transitions(config: RunConfig) -> int:
    """Transitions that a planned step imagines, with the particles that differ."""
    solver = config.solver
    assert isinstance(solver, ICEM)
    plans = sum(solver.sample_counts()) + solver.kept_elites * solver.iterations
    return plans * solver.horizon * (config.particles if config.imagine_noise else 1)


def network_size(config: RunConfig) -> int:
    """Multiplications per imagined transition; 1 for a Gaussian process, whose price is the same in all variants."""
    model, world = config.model, config.world
    if not isinstance(model, ProbabilisticEnsemble):
        return 1
    outputs = world.state_dim * (1 if model.noise == "fixed" else 2)
    sizes = [world.state_dim + world.action_dim, *[model.width] * model.layers, outputs]
    return model.members * sum(a * b for a, b in itertools.pairwise(sizes))


def explore(config: RunConfig, judged: bool) -> tuple[Explorer, list[dict], float]:
    """All episodes: what was learned, what was left to learn after each, and the seconds that the last took to plan."""
    explorer, history, planning = build_explorer(config), [], 0.0
    while explorer.episode < config.episodes:
        began = time.perf_counter()
        _, trajectory = experiment(config, explorer)
        planning = time.perf_counter() - began - trajectory.world_seconds
        explorer.tell(trajectory)
        metrics = judge(explorer.posterior, explorer.data, config.world) if judged else {}
        names = [name for name in ("max_epistemic", "max_epistemic_common", "model_rmse") if name in metrics]
        history.append({"episode": explorer.episode, **{name: metrics[name].tolist() for name in names}})
    return explorer, history, planning


def line(name: str, variant: str, config: RunConfig, history: list[dict], planning: float, began: float) -> dict:
    """A line of the results."""
    return {
        "preset": name,
        "variant": variant,
        "seeds": list(config.seed_list),
        "work": imagined_transitions(config) * network_size(config),
        "imagined_transitions": imagined_transitions(config),
        "planning_seconds_per_step": planning / config.steps,
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
        explorer, history, planning = explore(config, judged=True)
        history[-1].update(returns(config, explorer))
        yield line(name, variant, config, history, planning, began)


def replan(name: str, base: RunConfig, variants: list[str]) -> Iterator[dict]:
    """Explore once; then, with each variant, evaluate the tasks and plan one more experiment, to see what it would teach."""
    explorer, _, _ = explore(base, judged=False)
    for variant in variants:
        began, config = time.perf_counter(), replace(varied(base, VARIANTS[variant]), rollouts=1)
        # the same posterior, asked by another planner
        other = build_explorer(config)
        for part in ("posterior", "data", "params", "episode"):
            setattr(other, part, getattr(explorer, part))
        at = time.perf_counter()
        _, trajectory = experiment(config, other)
        planning = time.perf_counter() - at - trajectory.world_seconds
        information = realised_information_gain(explorer.posterior, trajectory.states, trajectory.actions)
        row = {"episode": explorer.episode, "information": information.tolist(), **returns(config, other)}
        yield line(name, variant, config, [row], planning, began)


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
            one.update({key: one[key] + other[key] for key in one if key != "episode"})
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
    figure.suptitle(
        "What a run reaches against the planning it does: means and two standard errors; each point changes one setting"
    )
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
            work, error = variants[variant]["work"] / paper["work"], 2 * values.std(ddof=1) / len(values) ** 0.5
            points.append((work, values.mean(), error))
            label = variant.partition("=")[2]
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
    ticks = (0.03, 0.1, 0.3, 1, 2)
    axis.set(xlim=(0.025, 2))
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
        parts.add_argument("--episodes", type=int, default=3)
        parts.add_argument("--tasks", nargs="*", default=[], help="those to evaluate (default: all)")
        parts.add_argument("--out", type=Path, required=True, help="results are appended here, one line per variant")
    drawing = commands.add_parser("draw", help="draw results")
    drawing.add_argument("results", type=Path, nargs="+")
    drawing.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args()
    if chosen.command == "draw":
        draw(chosen.results, chosen.out)
        return
    changes = {name: getattr(chosen, name) for name in ("first_seed", "seeds", "episodes")}
    base = replace(preset(chosen.preset), tasks=tuple(chosen.tasks), **changes)
    for result in (run if chosen.command == "run" else replan)(chosen.preset, base, chosen.variant):
        with chosen.out.open("a") as file:
            file.write(json.dumps(result) + "\n")
        print(f"{chosen.preset}, {result['variant']}: {result['seconds']:.0f} s", flush=True)


if __name__ == "__main__":
    main()
