"""The paper's tables as data, to be compared with the paper line by line.

Hyper-parameters of the model and horizons: the table of the model-based agent. Planner: the table of iCEM. What the tables
leave open is marked so; those values are iCEM's published defaults, or ours.
"""

from dataclasses import replace

from sonde.config import RunConfig
from sonde.errors import one_of
from sonde.models.gp import GaussianProcess
from sonde.solvers.icem import ICEM
from sonde.worlds import Pendulum

PENDULUM_GP_SOLVER = ICEM(
    samples=500,
    horizon=20,
    elites=50,
    exponent=0.25,
    iterations=10,
    keep_fraction=0.3,
    initial_std=0.5,  # not in the tables
    momentum=0.1,  # not in the tables
)

PENDULUM_GP = RunConfig(
    world=Pendulum(),
    episodes=10,  # not in the tables; what the public runs collect
    horizon=100,  # exploration horizon
    evaluation_horizon=200,  # downstream task horizon
    beta=2.0,
    particles=10,
    imagine_noise=False,  # not in the tables; the simulator is deterministic
    model=GaussianProcess(learning_rate=0.1, steps=50),  # learning rate, number of epochs; all else is not in the tables
    solver=PENDULUM_GP_SOLVER,
)

PRESETS = {
    "pendulum-gp": PENDULUM_GP,
    # the same learner with a planner that does a twelfth of the work
    "pendulum-gp-lite": replace(
        PENDULUM_GP,
        episodes=4,
        solver=replace(PENDULUM_GP_SOLVER, samples=100, elites=10, iterations=4),
    ),
}


def preset(name: str) -> RunConfig:
    """The preset of that name."""
    one_of("preset", name, PRESETS)
    return PRESETS[name]
