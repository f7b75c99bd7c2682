"""One policy optimisation with soft actor-critic, at the size of the paper's MountainCar: to explore, and for the task."""

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import jax.numpy as jnp

from benchmarks.measuring import Plan, in_lockstep, measure, network_products, note
from benchmarks.rows import Row
from sonde.bench import engine, work
from sonde.data import Data
from sonde.evaluation._tasks import reward_named
from sonde.imagination import Mean, Optimistic
from sonde.models._ensemble import ProbabilisticEnsemble
from sonde.objectives import InformationGain, TaskReward
from sonde.runs._presets import preset
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
        for num_seeds in plan.runs_for():
            note(f"soft actor-critic, {name}, {num_seeds} run(s): training a policy ...")
            data = in_lockstep(Data(x, u, x_next, jnp.asarray(len(x))), num_seeds)
            posterior = engine.conditioning(model, engine.initial_params(model, *dims, num_seeds), data)()
            explore = name == "explore"
            imagination = Optimistic(config.beta) if explore else Mean()
            objective = InformationGain() if explore else TaskReward(reward_named(world, next(iter(world.tasks))))
            problem = ControlProblem(posterior, imagination, objective, *dims, 1, model.members)
            timing = measure(engine.optimising(solver, problem, data), plan.repeats)
            yield Row(
                "sac",
                f"mountain-car, {name}",
                num_seeds,
                timing.seconds,
                timing.wall_seconds,
                flop=num_seeds * work.sac_training(solver, model, *dims, problem.control_dim),
                products=network_products(),
                extra={"gradient_steps": solver.training_steps * solver.gradient_steps, "batch": solver.batch_size},
            )
