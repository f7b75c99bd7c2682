"""The paper's tables as data: a number of the paper stands here and nowhere else.

Hyper-parameters of the model and horizons: the table of the model-based agent. Planner: the table of iCEM. What the tables
leave open is marked so; those values are iCEM's published defaults, or ours.
"""

from dataclasses import replace

from sonde.config import RunConfig
from sonde.errors import one_of
from sonde.models.gp import GaussianProcess
from sonde.solvers.icem import ICEM
from sonde.worlds import Pendulum

PENDULUM_GP = RunConfig(
    world=Pendulum(),
    episodes=10,  # not in the tables; what the public runs collect
    horizon=100,  # exploration horizon
    evaluation_horizon=200,  # downstream task horizon
    beta=2.0,
    particles=10,
    imagine_noise=False,  # not in the tables; the simulator is deterministic
    model=GaussianProcess(learning_rate=0.1, steps=50),  # learning rate, number of epochs
    solver=ICEM(
        samples=500,
        horizon=20,
        elites=50,
        exponent=0.25,
        iterations=10,
        keep_fraction=0.3,
        initial_std=0.5,  # not in the tables
        momentum=0.1,  # not in the tables
    ),
)

PRESETS = {
    "pendulum-gp": PENDULUM_GP,
    # the same learner with a planner that two cores run ten times faster
    "pendulum-gp-lite": replace(
        PENDULUM_GP,
        episodes=4,
        solver=ICEM(samples=100, horizon=20, elites=10, exponent=0.25, iterations=4, keep_fraction=0.3),
    ),
}


def preset(name: str) -> RunConfig:
    """The preset of that name."""
    one_of("preset", name, PRESETS)
    return PRESETS[name]
