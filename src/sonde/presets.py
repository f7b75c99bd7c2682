"""The paper's tables as data, to be compared with the paper line by line.

Hyper-parameters of the model and horizons: the table of the model-based agent. Planner: the table of iCEM. What the tables
leave open is marked so; those values are iCEM's published defaults, or ours.
"""

from dataclasses import replace

from sonde.config import RunConfig
from sonde.errors import one_of
from sonde.models.ensemble import ProbabilisticEnsemble
from sonde.models.gp import GaussianProcess
from sonde.solvers.icem import ICEM
from sonde.worlds import Pendulum

PENDULUM_SOLVER = ICEM(  # the same for both models
    samples=500,
    horizon=20,
    elites=50,
    exponent=0.25,
    iterations=10,
    keep_fraction=0.3,
    initial_std=0.5,  # not in the tables
    momentum=0.1,  # not in the tables
)
LITE_SOLVER = replace(PENDULUM_SOLVER, samples=100, elites=10, iterations=4)  # a twelfth of the work

PENDULUM_GP = RunConfig(
    world=Pendulum(),
    episodes=10,  # not in the tables; what the public runs collect
    horizon=100,  # exploration horizon
    evaluation_horizon=200,  # downstream task horizon
    beta=2.0,
    particles=10,
    imagine_noise=False,  # not in the tables; the simulator is deterministic
    model=GaussianProcess(learning_rate=0.1, steps=50),  # learning rate, number of epochs; all else is not in the tables
    solver=PENDULUM_SOLVER,
)

PENDULUM_ENSEMBLE = ProbabilisticEnsemble(
    members=7,  # number of ensembles
    layers=2,  # hidden layers
    width=256,  # neurons per layer
    batch=64,
    learning_rate=5e-4,
    epochs=50,
    max_steps=5000,  # maximum number of gradient steps
    weight_decay=1e-4,  # not in the tables
)
PENDULUM_PE = RunConfig(
    world=Pendulum(),
    episodes=25,  # not in the tables; what the public runs collect
    horizon=200,  # exploration horizon
    evaluation_horizon=200,  # downstream task horizon
    beta=2.0,
    particles=10,
    imagine_noise=True,  # not in the tables; the members learn a noise, and without it the particles of opax would all agree
    holdout=0.2,  # not in the tables
    calibrated=True,
    model=PENDULUM_ENSEMBLE,
    solver=PENDULUM_SOLVER,
)

PRESETS = {
    "pendulum-gp": PENDULUM_GP,
    "pendulum-pe": PENDULUM_PE,
    # H-UCRL on the tasks that the paper trains it on
    "pendulum-gp-h-ucrl": replace(PENDULUM_GP, method="h-ucrl", task="swing-up"),
    "pendulum-pe-h-ucrl": replace(PENDULUM_PE, method="h-ucrl", task="keep-down"),
    # the same learner with less planning
    "pendulum-gp-lite": replace(PENDULUM_GP, episodes=4, solver=LITE_SOLVER),
    # smaller networks that learn more from each episode, since there are few of them; a wider search, since it is short
    "pendulum-pe-lite": replace(
        PENDULUM_PE,
        episodes=4,
        imagine_noise=False,
        model=replace(PENDULUM_ENSEMBLE, members=5, width=128, epochs=500, weights="reset"),
        solver=replace(LITE_SOLVER, initial_std=1.0),
    ),
}


def preset(name: str) -> RunConfig:
    """The preset of that name."""
    one_of("preset", name, PRESETS)
    return PRESETS[name]
