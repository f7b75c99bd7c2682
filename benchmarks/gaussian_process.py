"""Planning, conditioning and fitting with Gaussian processes, at the paper's settings (`pendulum-gp`)."""

import functools
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import engine, work
from benchmarks.measuring import Plan, in_lockstep, measure, note
from benchmarks.rows import Row
from sonde.data import Data
from sonde.models import GaussianProcess
from sonde.models._gp_posterior import GPPosterior
from sonde.runs import preset
from sonde.solvers import ICEM, ControlProblem
from sonde.worlds import Pendulum

CONFIG = preset("pendulum-gp")
STATES, INPUTS = 3, 4
FIT_OF_HYPERPARAMETERS = 500
"""Points that the hyper-parameters are fitted to before the posterior is measured."""

_POSTERIORS: dict[tuple[GaussianProcess, int], Any] = {}
"""Posteriors of a single seed, by model and number of points: factorising many takes a while."""


def _model(plan: Plan) -> GaussianProcess:
    model = cast(GaussianProcess, CONFIG.model)
    return replace(model, steps=2, rank=16) if plan.effort == "tiny" else model


def _solver(plan: Plan) -> ICEM:
    solver = cast(ICEM, CONFIG.solver)
    return replace(solver, samples=8, elites=4, iterations=1, horizon=2) if plan.effort == "tiny" else solver


def _counts(plan: Plan) -> Iterator[int]:
    """Numbers of measurements."""
    counts = {"tiny": (20,), "quick": (100, 1000), "full": (100, 1000, 5000, 20_000)}[plan.effort]
    return (count for count in counts if plan.only in (None, f"n = {count}"))


def _sizes(plan: Plan) -> Iterator[tuple[int, int]]:
    """Numbers of points and of seeds."""
    for count in _counts(plan):
        for num_seeds in plan.seed_counts(_on_a_cpu(count, plan)):
            yield count, num_seeds


def _on_a_cpu(count: int, plan: Plan) -> tuple[int, ...]:
    """Numbers of seeds; ten with few points only, since with many they take minutes and show nothing more."""
    return (1, 10) if count <= 100 and not plan.quick else (1,)


def pendulum_data(count: int) -> Data:
    """Transitions from all over the reachable set, as after a long exploration.

    Args:
        count: Number of transitions, and capacity of the buffer.
    """
    world, rng = Pendulum(), np.random.default_rng(1)
    states, _ = world.reachable_points()
    theta, speed = np.arctan2(states[:, 1], states[:, 0]), states[:, 2]
    rows = rng.integers(0, len(states), count)
    theta, speed = theta[rows] + 0.1 * rng.standard_normal(count), speed[rows] + 0.1 * rng.standard_normal(count)
    x = jnp.asarray(np.stack([np.cos(theta), np.sin(theta), np.clip(speed, -8, 8)], axis=-1))
    u = jnp.asarray(rng.uniform(-1, 1, (count, 1)))
    return Data(x, u, jax.vmap(world.dynamics)(x, u), jnp.asarray(count))


@functools.lru_cache(maxsize=2)
def _fitted(model: GaussianProcess, points: int) -> Any:
    """Hyper-parameters of one seed (leading axis 1)."""
    start = engine.initial_params(model, STATES, INPUTS - STATES, 1)
    return engine.fitting(model, start, in_lockstep(pendulum_data(points), 1))()


def _for_seeds(model: GaussianProcess, count: int, num_seeds: int, plan: Plan) -> tuple[Any, Data]:
    """Hyper-parameters and data, the same for all seeds."""
    points = min(count, FIT_OF_HYPERPARAMETERS) if plan.effort == "tiny" else FIT_OF_HYPERPARAMETERS
    params = jax.tree.map(lambda leaf: leaf[0], _fitted(model, points))
    return in_lockstep(params, num_seeds), in_lockstep(pendulum_data(count), num_seeds)


def centres(posterior: Any, seed: int = 0) -> list[int]:
    """Number of centres that each output uses.

    Args:
        posterior: A `GPPosterior` with a leading axis S.
        seed: Index of the seed.
    """
    assert isinstance(posterior, GPPosterior)
    return [int(number) for number in posterior.centres.used[seed]]


def posterior_of(plan: Plan, count: int) -> GPPosterior:
    """The posterior of one seed, with a leading axis.

    Args:
        plan: How much to measure.
        count: Number of measurements.
    """
    model = _model(plan)
    posterior = engine.conditioning(model, *_for_seeds(model, count, 1, plan))()
    assert isinstance(posterior, GPPosterior)
    return posterior


def planning(plan: Plan) -> Iterator[Row]:
    """One planning step with a Gaussian process on n measurements."""
    model, solver, method = _model(plan), _solver(plan), CONFIG.method
    assert method.imagination is not None and method.objective is not None
    for count, num_seeds in _sizes(plan):
        note(f"Gaussian process, n = {count}, {num_seeds} seed(s): planning ...")
        known = _POSTERIORS.get((model, count)) if num_seeds == 1 else None
        posterior = known or engine.conditioning(model, *_for_seeds(model, count, num_seeds, plan))()
        problem = ControlProblem(posterior, method.imagination, method.objective, STATES, INPUTS - STATES)
        timing = measure(engine.planning(problem, solver, num_seeds), plan.repeats)
        used, transitions = centres(posterior), work.imagined_transitions(solver, problem.simulated_particles)
        yield Row(
            "gp-planning",
            f"n = {count}",
            num_seeds,
            timing.seconds,
            timing.wall_seconds,
            flop=num_seeds * transitions * work.gp_query(INPUTS, used),
            products="f64",
            extra={"points": count, "centres": used, "transitions_per_seed": transitions},
        )


def factor(plan: Plan) -> Iterator[Row]:
    """The posterior of a Gaussian process on n measurements, factorised once per round."""
    model = _model(plan)
    for count, num_seeds in _sizes(plan):
        note(f"Gaussian process, n = {count}, {num_seeds} seed(s): factorising ...")
        program, latest = engine.conditioning(model, *_for_seeds(model, count, num_seeds, plan)), deque(maxlen=1)

        def work_and_keep(program=program, latest=latest):
            latest.append(program())
            return latest[0]

        timing = measure(work_and_keep, plan.repeats)
        used = centres(latest[0])
        if num_seeds == 1:  # those of many seeds are large
            _POSTERIORS[model, count] = latest[0]
        yield Row(
            "gp-factor",
            f"n = {count}",
            num_seeds,
            timing.seconds,
            timing.wall_seconds,
            flop=num_seeds * work.gp_condition(count, used),
            bytes=work.gp_condition_bytes(count, used, num_seeds),
            products="f64",
            extra={"points": count, "centres": used},
        )


def fit(plan: Plan) -> Iterator[Row]:
    """A fit of a Gaussian process's hyper-parameters to n measurements: all outputs, all gradient steps."""
    for count in {"tiny": (20,), "quick": (200,), "full": (100, 300, 1000)}[plan.effort]:
        if plan.only not in (None, f"n = {count}"):
            continue
        for num_seeds in plan.seed_counts(_on_a_cpu(count, plan)):
            note(f"Gaussian process, n = {count}, {num_seeds} seed(s): fitting ...")
            model = replace(_model(plan), fit_points=count)
            data = in_lockstep(pendulum_data(count), num_seeds)
            params = engine.initial_params(model, STATES, INPUTS - STATES, num_seeds)
            timing = measure(engine.fitting(model, params, data), plan.repeats)
            yield Row(
                "gp-fit",
                f"n = {count}",
                num_seeds,
                timing.seconds,
                timing.wall_seconds,
                flop=num_seeds * work.gp_fit(count, INPUTS, STATES, model.steps),
                products="f64",
                extra={"points": count, "gradient_steps": model.steps, "outputs": STATES},
            )
