"""What a constraint costs: one planning step with it and without, in turns."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from benchmarks import engine, ensembles, gaussian_process
from benchmarks.measuring import Plan, in_turns, note
from benchmarks.rows import Row
from sonde.evaluation._constraints import safety_named
from sonde.runs import preset
from sonde.solvers import ICEM, ControlProblem, SafetySettings
from sonde.worlds import Pendulum

MEASUREMENTS = 100
"""Measurements of the Gaussian process."""


def _settings(plan: Plan) -> Iterator[tuple[str, Any, ICEM]]:
    """Names, posteriors with a leading axis of one seed, and planners."""
    count = 20 if plan.effort == "tiny" else MEASUREMENTS
    process = gaussian_process.posterior_of(plan, count)
    sizes = ensembles.TINY if plan.effort == "tiny" else ensembles.PENDULUM
    networks = ensembles.problem_of(sizes, 1).posterior
    lite, tiny = preset("pendulum-gp-lite").solver, ensembles.TINY.solver
    assert isinstance(lite, ICEM)
    solver = tiny if plan.effort == "tiny" else lite
    yield f"Gaussian process, n = {count}", process, solver
    yield "Pendulum's ensemble", networks, solver


def planning(plan: Plan) -> Iterator[Row]:
    """One planning step with the constraint on the pendulum's speed, and how much longer it takes than one without."""
    method, world = preset("pendulum-gp-lite").method, Pendulum()
    assert method.imagination is not None and method.objective is not None
    safety = safety_named(world, ("speed",), SafetySettings())
    for name, posterior, solver in _settings(plan):
        if plan.only not in (None, name):
            continue
        note(f"{name}: planning with a constraint and without ...")
        problem = ControlProblem(posterior, method.imagination, method.objective, world.state_dim, world.action_dim)
        safe, free = (engine.planning(replace(problem, safety=each), solver, 1) for each in (safety, None))
        timing = in_turns({"safe": safe, "free": free}, plan.repeats)
        with_it, without = timing["safe"], timing["free"]
        yield Row(
            "safe-planning",
            name,
            1,
            with_it.seconds,
            with_it.wall_seconds,
            extra={
                "seconds_without": without.seconds,
                "wall_seconds_without": without.wall_seconds,
                "ratio": with_it.seconds / without.seconds,
                "wall_ratio": with_it.wall_seconds / without.wall_seconds,
            },
        )
