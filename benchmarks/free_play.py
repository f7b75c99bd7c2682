"""A control step of the Fetch arm as its runs take it: one planning call for all rollouts of a round, then their simulators."""

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

from benchmarks.measuring import Plan, Timing, prediction_products, in_turns, note
from benchmarks.rows import Row
from sonde._internal.randomness import rollout_keys
from sonde.bench import work
from sonde.control._controller import Controller
from sonde.control._rollout import simulators
from sonde.evaluation._evaluate import task_policy
from sonde.evaluation._tasks import goals_for, task_named
from sonde.models._ensemble import ProbabilisticEnsemble
from sonde.runs._config import RunConfig
from sonde.runs._presets import preset
from sonde.runs._run import build_explorer
from sonde.solvers import ICEM
from sonde.worlds import FetchConstruction
from sonde.worlds._base import HostWorld

METHODS, TASK = ("opax-heuristic", "cee-us"), "pick-place"
"""What is planned for. All of these ask every member once about each step of a plan: either one particle asks all of them, or
each has a particle of its own."""


def _config(plan: Plan) -> RunConfig:
    if plan.effort != "tiny":
        return replace(preset("fetch-construction"), rounds=1)
    solver = ICEM(samples=8, horizon=2, elites=4, iterations=1)
    model = ProbabilisticEnsemble(members=2, layers=1, width=8, noise="fixed")
    world = FetchConstruction(blocks=1)
    sizes = {"rollouts": 2, "evaluation_rollouts": 2, "horizon": 2}
    return replace(preset("fetch-construction"), rounds=1, world=world, model=model, solver=solver, task_settings=(), **sizes)


def _playing(config: RunConfig, method: str) -> tuple[HostWorld, Controller, ICEM]:
    """World, controller and planner of a round of free play, before anything is learned: the work is the same."""
    controller = build_explorer(replace(config, method=method)).ask().for_rollouts(range(config.rollouts))
    return cast(HostWorld, config.world), controller, cast(ICEM, config.solver)


def _solving(config: RunConfig, name: str) -> tuple[HostWorld, Controller, ICEM]:
    """The same for an evaluation of a task."""
    task, solver, explorer = task_named(config.world, name), config.settings_for(name).solver, build_explorer(config)
    world, keys, numbers = config.world.for_task(name), explorer.keys(), range(config.evaluation_rollouts)
    policy = task_policy(world, explorer.posterior, task, solver, explorer.data, keys, config.evaluation_members)
    goals = goals_for(task, rollout_keys(keys, numbers))
    controller = Controller(policy, keys, world.state_dim).for_rollouts(numbers, goals)
    return cast(HostWorld, world), controller, cast(ICEM, solver)


def _timings(world: HostWorld, controller: Controller, repeats: int) -> tuple[Timing, Timing]:
    """Of planning and of simulating a step, which take turns as in a rollout."""
    copies = simulators(world, controller.copies)
    x = copies.reset(range(controller.copies))
    u = controller.act(x)[0]  # compiles

    def plan() -> None:
        nonlocal u
        u = controller.act(x)[0]

    def simulate() -> None:
        nonlocal x
        x = copies.step(u).next_states

    timings = in_turns({"plan": plan, "simulate": simulate}, repeats)
    return timings["plan"], timings["simulate"]


def steps(plan: Plan) -> Iterator[Row]:
    """A control step of 20 Fetch arms: one planning call for all of them, and their simulators (needs the extra 'fetch')."""
    for name in plan.chosen((METHODS[0],) if plan.effort == "quick" else (*METHODS, TASK)):
        for num_seeds in plan.num_seeds or (1,):
            note(f"a control step of {name}, {num_seeds} run(s) ...")
            config = replace(_config(plan), seeds=num_seeds)
            world, controller, solver = (_solving if name == TASK else _playing)(config, name)
            planning, simulating = _timings(world, controller, plan.repeats)
            transitions = work.imagined_transitions(solver, 1) * controller.copies // num_seeds
            model, dims = cast(ProbabilisticEnsemble, config.model), (world.state_dim, world.action_dim)
            share = simulating.wall_seconds / (simulating.wall_seconds + planning.wall_seconds)
            yield Row(
                "fetch-step",
                name,
                num_seeds,
                planning.seconds,
                planning.wall_seconds,
                flop=num_seeds * work.ensemble_queries(model, *dims, transitions),
                products=prediction_products(),
                extra={
                    "transitions_per_run": transitions,
                    "rollouts": controller.copies // num_seeds,
                    "simulator_seconds": simulating.seconds,
                    "simulator_wall_seconds": simulating.wall_seconds,
                    "simulator_share": share,
                },
            )
