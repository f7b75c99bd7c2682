"""A control step of the Fetch arm as its runs take it: one planning call for all rollouts of a round, then their simulators."""

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

from benchmarks import work
from benchmarks.measuring import Plan, Timing, in_turns, note, prediction_products
from benchmarks.rows import Row
from sonde._internal.randomness import rollout_keys
from sonde.control import Controller, SimulatorPool
from sonde.evaluation import Learned, plan_task
from sonde.evaluation._tasks import goals_for
from sonde.models import ProbabilisticEnsemble
from sonde.runs import RunConfig, preset
from sonde.runs._run import build_explorer
from sonde.solvers import ICEM
from sonde.worlds import FetchConstruction, HostWorld

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
    controller = build_explorer(config.with_method(method)).ask().for_rollouts(range(config.rollouts))
    return cast(HostWorld, config.world), controller, cast(ICEM, config.solver)


def _solving(config: RunConfig, task: str) -> tuple[HostWorld, Controller, ICEM]:
    """The same for an evaluation of a task."""
    setup, explorer = config.task_setup(task), build_explorer(config)
    keys, numbers = setup.keys(explorer.keys()), range(setup.rollouts)
    policy = plan_task(setup, Learned(explorer.posterior, explorer.data), explorer.keys())
    goals = goals_for(setup.task, rollout_keys(keys, numbers))
    controller = Controller(policy, keys, setup.world.state_dim).for_rollouts(numbers, goals)
    return cast(HostWorld, setup.world), controller, cast(ICEM, setup.solver)


def _timings(world: HostWorld, controller: Controller, repeats: int) -> tuple[Timing, Timing]:
    """Times of planning and of simulating a step, which take turns as in a rollout."""
    with SimulatorPool() as pool:
        copies = pool.get(world, controller.copies)
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
        for num_seeds in plan.seeds or (1,):
            note(f"a control step of {name}, {num_seeds} seed(s) ...")
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
                    "transitions_per_seed": transitions,
                    "rollouts": controller.copies // num_seeds,
                    "simulator_seconds": simulating.seconds,
                    "simulator_wall_seconds": simulating.wall_seconds,
                    "simulator_share": share,
                },
            )
