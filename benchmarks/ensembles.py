"""Planning and training with ensembles: the work of the paper's Pendulum-PE, Cheetah and Fetch Pick & Place."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import cast

import jax.numpy as jnp
import numpy as np

from benchmarks import engine, work
from benchmarks.measuring import Plan, in_lockstep, measure, network_products, note, prediction_products
from benchmarks.rows import Row
from sonde.data import Data
from sonde.imagination import Optimistic
from sonde.models import ProbabilisticEnsemble
from sonde.models._ensemble import Ensemble
from sonde.objectives import InformationGain
from sonde.runs import preset
from sonde.solvers import ICEM, ControlProblem

DATA = 5000
"""Transitions in the buffer that training reads."""
BETA = 2.0


@dataclass(frozen=True)
class Setting:
    """The work of one column of the paper's tables."""

    name: str
    state_dim: int
    action_dim: int
    model: Ensemble
    solver: ICEM
    particles: int
    """Copies of each plan with different noise draws; 1: plans are imagined without noise."""
    training_steps: int
    """Gradient steps of a fit."""


def _of_preset(name: str, training_steps: int) -> Setting:
    config = preset(name)
    model, solver = cast(Ensemble, config.model.for_system(config.spec)), cast(ICEM, config.solver)
    dims = config.world.state_dim, config.world.action_dim
    imagination = config.method.imagination
    assert imagination is not None
    particles = imagination.particles if imagination.noise else 1
    return Setting(name.removesuffix("-pe"), *dims, model, solver, particles, training_steps)


def with_particles(setting: Setting, particles: int) -> Setting:
    """The setting with another number of particles, which its name says.

    Args:
        setting: The setting of a preset.
        particles: Copies of each plan.
    """
    return replace(setting, name=f"{setting.name}, {particles} particle{'' if particles == 1 else 's'}", particles=particles)


PENDULUM, CHEETAH = _of_preset("pendulum-pe", 5000), _of_preset("cheetah", 1000)
# as many particles as the paper's tables have; the presets imagine no noise
PENDULUM_WITH_NOISE, CHEETAH_WITH_NOISE = with_particles(PENDULUM, 10), with_particles(CHEETAH, 10)
FETCH = replace(_of_preset("fetch-construction", 1000), name="fetch")
RELATIONAL = replace(_of_preset("fetch-relational", 1000), name="fetch, relational")
SETTINGS = (PENDULUM, CHEETAH, FETCH, RELATIONAL)
TINY = Setting(
    "tiny",
    3,
    1,
    ProbabilisticEnsemble(members=2, layers=1, width=8),
    ICEM(samples=8, horizon=2, elites=4, iterations=1),
    2,
    2,
)


def problem_of(setting: Setting, num_seeds: int) -> ControlProblem:
    """The control problem of a setting, with an untrained ensemble: the work is the same.

    Args:
        setting: The sizes.
        num_seeds: Number of seeds S.

    Returns:
        The problem, with a leading axis S on its arrays.
    """
    dims = setting.state_dim, setting.action_dim
    params = engine.initial_params(setting.model, *dims, num_seeds)
    posterior = engine.conditioning(setting.model, params, in_lockstep(Data.empty(1, *dims), num_seeds))()
    imagination = Optimistic(noise=setting.particles > 1, particles=setting.particles, beta=BETA)
    return ControlProblem(posterior, imagination, InformationGain(), *dims)


def planning(plan: Plan) -> Iterator[Row]:
    """One planning step with an ensemble: iCEM at the sizes of Pendulum, Cheetah and Fetch, for which there are two."""
    quick = CHEETAH_WITH_NOISE, PENDULUM, FETCH, RELATIONAL
    settings = {"tiny": (TINY,), "quick": quick, "full": (PENDULUM_WITH_NOISE, CHEETAH, *quick)}
    for setting in plan.chosen(settings[plan.effort]):
        for num_seeds in plan.seed_counts():
            note(f"ensemble, {setting.name}, {num_seeds} seed(s): planning ...")
            problem = problem_of(setting, num_seeds)
            timing = measure(engine.planning(problem, setting.solver, num_seeds), plan.repeats)
            transitions = work.imagined_transitions(setting.solver, problem.simulated_particles)
            dims = setting.state_dim, setting.action_dim
            yield Row(
                "pe-planning",
                setting.name,
                num_seeds,
                timing.seconds,
                timing.wall_seconds,
                flop=num_seeds * work.ensemble_queries(setting.model, *dims, transitions),
                products=prediction_products() if isinstance(setting.model, ProbabilisticEnsemble) else network_products(),
                extra={"transitions_per_seed": transitions, "particles": problem.simulated_particles},
            )


def training(plan: Plan) -> Iterator[Row]:
    """Gradient steps of all members of an ensemble."""
    for setting in plan.chosen((TINY,) if plan.effort == "tiny" else SETTINGS):
        steps = max(setting.training_steps // (10 if plan.quick else 1), 2)
        model, size = replace(setting.model, max_steps=steps, epochs=steps), 100 if plan.effort == "tiny" else DATA
        dims = setting.state_dim, setting.action_dim
        for num_seeds in plan.seed_counts():
            note(f"ensemble, {setting.name}, {num_seeds} seed(s): training ...")
            rng = np.random.default_rng(0)
            x, u, change = (jnp.asarray(rng.normal(size=(size, n))) for n in (*dims, setting.state_dim))
            data = in_lockstep(Data(x, u, x + change, jnp.asarray(size)), num_seeds)
            program = engine.fitting(model, engine.initial_params(model, *dims, num_seeds), data)
            timing = measure(program, plan.repeats)
            yield Row(
                "pe-training",
                setting.name,
                num_seeds,
                timing.seconds,
                timing.wall_seconds,
                flop=num_seeds * work.ensemble_training(model, *dims, steps),
                bytes=work.ensemble_training_bytes(model, *dims, steps, num_seeds),
                products=network_products(),
                extra={"gradient_steps": steps, "batch_size": model.batch_size},
            )
