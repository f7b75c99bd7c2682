"""Whole episodes: as one compiled call, and against the clock."""

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

from benchmarks.gaussian_process import centres
from benchmarks.measuring import Plan, prediction_products, by_the_clock, measure, note, on_cpu
from benchmarks.rows import Row
from sonde.bench import engine, real_time, time_to_task, work
from sonde.control._controller import Controller
from sonde.control._rollout import rollout
from sonde.explorer import Explorer
from sonde.models._ensemble import ProbabilisticEnsemble
from sonde.models._gaussian_process import GaussianProcess
from sonde.runs._config import RunConfig
from sonde.runs._presets import preset
from sonde.runs._run import build_explorer
from sonde.solvers import ICEM
from sonde.solvers._policy import RandomPolicy
from sonde.worlds._base import JaxWorld


def _flop(config: RunConfig, asked: Explorer) -> int:
    """Of all planning steps; the world's own equations are nothing beside them."""
    solver, dims = cast(ICEM, config.solver), (config.world.state_dim, config.world.action_dim)
    particles = config.particles if config.imagine_noise else 1
    queries = config.horizon * work.imagined_transitions(solver, particles)
    if isinstance(config.model, ProbabilisticEnsemble):
        return asked.num_seeds * work.ensemble_queries(config.model, *dims, queries)
    return sum(queries * work.gp_query(sum(dims), centres(asked.posterior, run)) for run in range(asked.num_seeds))


def _after_one_episode(config: RunConfig, num_seeds: int) -> Explorer:
    """An explorer that has learned from an episode of random actions."""
    explorer = build_explorer(replace(config, seeds=num_seeds, rounds=2))
    random = Controller(RandomPolicy(config.world.action_dim), explorer.keys(), config.world.state_dim)
    explorer.tell(rollout(config.world, random, config.horizon))
    return explorer


def whole(plan: Plan) -> Iterator[Row]:
    """A whole episode (plan, act, step) as one compiled call: the second of a run."""
    # on a CPU an ensemble at the paper's settings takes an hour, so the smaller preset stands in
    full = ("pendulum-gp", "pendulum-gp-lite", "pendulum-pe-lite" if on_cpu() else "pendulum-pe")
    names = {"tiny": ("pendulum-gp-lite",), "quick": ("pendulum-gp-lite", "pendulum-pe-lite"), "full": full}
    for name in plan.chosen(names[plan.effort]):
        config = preset(name)
        if plan.effort == "tiny":
            solver = ICEM(samples=8, elites=4, iterations=1, horizon=2)
            config = replace(config, horizon=3, solver=solver, model=GaussianProcess(steps=2, rank=16))
        for num_seeds in plan.runs_for((1, 10) if name == "pendulum-gp-lite" and not plan.quick else (1,)):
            note(f"episode of {name}, {num_seeds} run(s) ...")
            explorer = _after_one_episode(config, num_seeds)
            timing = measure(engine.exploring(cast(JaxWorld, config.world), explorer, config.horizon), plan.repeats)
            yield Row(
                "round",
                name,
                num_seeds,
                timing.seconds,
                timing.wall_seconds,
                flop=_flop(config, explorer),
                products="f64" if isinstance(config.model, GaussianProcess) else prediction_products(),
                extra={"steps": config.horizon, "wall_seconds_per_step": timing.wall_seconds / config.horizon},
            )


def at_a_rate(plan: Plan) -> Iterator[Row]:
    """Actions at 50 Hz, without the delay of the action itself, against a planner without hurry."""
    for name, result in real_time.benchmark(plan.quick).items():
        median = result["p50_ms"] / 1e3
        # no CPU-seconds: while it waits for the next action it does nothing that would be worth counting
        yield Row("real-time", f"{name}, {result['rate']:g} Hz", 1, by_the_clock(None, median), median, extra=result)


def to_a_solved_task(plan: Plan) -> Iterator[Row]:
    """From the start of Python until the pendulum swings up zero-shot, with an empty and with a warm cache of programs."""
    for seed, result in time_to_task.benchmark(plan.quick).items():
        for state in ("empty cache", "warm cache"):
            tried = dict(result[state])
            wall, cpu = tried.pop("wall_seconds"), tried.pop("cpu_seconds")
            extra = {name: result[name] for name in ("random", "oracle", "wanted")} | tried
            setting = f"{time_to_task.PRESET}, {seed}, {state}"
            yield Row("time-to-task", setting, 1, by_the_clock(cpu, wall), wall, extra=extra)
