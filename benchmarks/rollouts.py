"""Whole rollouts: as one compiled call, and against the clock."""

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

from benchmarks import engine, real_time, time_to_task, work
from benchmarks.gaussian_process import centres
from benchmarks.measuring import Plan, by_the_clock, measure, note, on_cpu, prediction_products
from benchmarks.rows import Row
from sonde.control import Controller, rollout
from sonde.explorer import Explorer
from sonde.models import GaussianProcess, ProbabilisticEnsemble
from sonde.runs import RunConfig, preset
from sonde.runs._run import build_explorer
from sonde.solvers import ICEM, RandomPolicy
from sonde.worlds import JaxWorld


def _flop(config: RunConfig, explorer: Explorer) -> int:
    """Operations of all planning steps; the world's own equations are negligible."""
    solver, dims = cast(ICEM, config.solver), (config.world.state_dim, config.world.action_dim)
    imagination, num_seeds = config.method.imagination, explorer.num_seeds
    assert imagination is not None
    particles = imagination.simulated_particles(config.model.ensemble_size)
    searches = -(-config.horizon // solver.replan_every)
    queries = searches * work.imagined_transitions(solver, particles)
    if isinstance(config.model, ProbabilisticEnsemble):
        return num_seeds * work.ensemble_queries(config.model, *dims, queries)
    return sum(queries * work.gp_query(sum(dims), centres(explorer.posterior, seed)) for seed in range(num_seeds))


def _after_one_round(config: RunConfig, num_seeds: int) -> Explorer:
    """An explorer that has learned from a rollout of random actions."""
    explorer = build_explorer(replace(config, seeds=num_seeds, rounds=2))
    random = Controller(RandomPolicy(config.world.action_dim), explorer.keys(), config.world.state_dim)
    explorer.tell(rollout(config.world, random, config.horizon))
    return explorer


def whole(plan: Plan) -> Iterator[Row]:
    """A whole rollout (plan, act, step) as one compiled call, in the second round of a run."""
    # on a CPU an ensemble at the paper's settings takes an hour, so the smaller preset stands in
    full = ("pendulum-gp", "pendulum-gp-lite", "pendulum-pe-lite" if on_cpu() else "pendulum-pe")
    names = {"tiny": ("pendulum-gp-lite",), "quick": ("pendulum-gp-lite", "pendulum-pe-lite"), "full": full}
    for name in plan.chosen(names[plan.effort]):
        config = preset(name)
        if plan.effort == "tiny":
            solver = ICEM(samples=8, elites=4, iterations=1, horizon=2)
            config = replace(config, horizon=3, solver=solver, model=GaussianProcess(steps=2, rank=16))
        for num_seeds in plan.seed_counts((1, 10) if name == "pendulum-gp-lite" and not plan.quick else (1,)):
            note(f"rollout of {name}, {num_seeds} seed(s) ...")
            explorer = _after_one_round(config, num_seeds)
            timing = measure(engine.exploring(cast(JaxWorld, config.world), explorer, config.horizon), plan.repeats)
            yield Row(
                "rollout",
                name,
                num_seeds,
                timing.seconds,
                timing.wall_seconds,
                flop=_flop(config, explorer),
                products="f64" if isinstance(config.model, GaussianProcess) else prediction_products(),
                extra={"steps": config.horizon, "wall_seconds_per_step": timing.wall_seconds / config.horizon},
            )


def at_a_rate(plan: Plan) -> Iterator[Row]:
    """Actions at 50 Hz, against a planner that may take as long as it needs."""
    for name, result in real_time.benchmark(plan.quick).items():
        median = result["p50_ms"] / 1e3
        # no CPU-seconds: they would count the waiting between actions
        yield Row("real-time", f"{name}, {result['rate']:g} Hz", 1, by_the_clock(None, median), median, extra=result)


def to_a_solved_task(plan: Plan) -> Iterator[Row]:
    """From the start of Python until the pendulum swings up zero-shot, with an empty and with a warm compilation cache."""
    for seed, result in time_to_task.benchmark(plan.quick).items():
        for state in ("empty cache", "warm cache"):
            tried = dict(result[state])
            wall, cpu = tried.pop("wall_seconds"), tried.pop("cpu_seconds")
            extra = {name: result[name] for name in ("random", "oracle", "wanted")} | tried
            setting = f"{time_to_task.PRESET}, {seed}, {state}"
            yield Row("time-to-task", setting, 1, by_the_clock(cpu, wall), wall, extra=extra)
