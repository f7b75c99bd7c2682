"""One policy optimisation with soft actor-critic at the size of the paper's MountainCar, to explore and for the task."""

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import jax.numpy as jnp

from benchmarks import engine, work
from benchmarks.measuring import Plan, in_lockstep, measure, network_products, note
from benchmarks.rows import Row
from sonde.data import Data
from sonde.evaluation._tasks import reward_named
from sonde.imagination import Mean
from sonde.methods import Method
from sonde.models import ProbabilisticEnsemble
from sonde.objectives import TaskReward
from sonde.runs import preset
from sonde.solvers import SAC, ControlProblem


def optimisation(plan: Plan) -> Iterator[Row]:
    """One policy optimisation with soft actor-critic: all rounds of imagining and learning."""
    config = preset("mountain-car")
    solver, model, world = cast(SAC, config.solver), cast(ProbabilisticEnsemble, config.model), config.world
    if plan.quick:
        solver = replace(solver, training_steps=5)
    if plan.effort == "tiny":
        solver = replace(solver, gradient_steps=2, starts=4, actor=(8,), critic=(8,))
    dims, reachable = (world.state_dim, world.action_dim), world.reachable()
    assert reachable is not None
    x, u, x_next = map(jnp.asarray, reachable)
    for name in plan.chosen(("explore",) if plan.quick else ("explore", "task")):
        for num_seeds in plan.seed_counts():
            note(f"soft actor-critic, {name}, {num_seeds} seed(s): training a policy ...")
            data = in_lockstep(Data(x, u, x_next, jnp.asarray(len(x))), num_seeds)
            posterior = engine.conditioning(model, engine.initial_params(model, *dims, num_seeds), data)()
            task = Method(Mean(), TaskReward(reward_named(world, next(iter(world.tasks)))))
            method = config.method if name == "explore" else task
            assert method.imagination is not None and method.objective is not None
            problem = ControlProblem(posterior, method.imagination, method.objective, *dims)
            timing = measure(engine.optimising(solver, problem, data), plan.repeats)
            yield Row(
                "sac",
                f"mountain-car, {name}",
                num_seeds,
                timing.seconds,
                timing.wall_seconds,
                flop=num_seeds * work.sac_training(solver, model, *dims, problem.control_dim),
                products=network_products(),
                extra={"gradient_steps": solver.training_steps * solver.gradient_steps, "batch_size": solver.batch_size},
            )
