"""Examples of sonde.analysis."""

# %% setup
import numpy as np

from sonde import GaussianProcess, learned_system
from sonde.explorer import Explorer
from sonde.methods import METHODS
from sonde.solvers import ICEM
from sonde.data import Trajectory
from sonde.worlds import OwnSystem

# a damped oscillator, measured at random states
rng = np.random.default_rng(0)
states, actions = rng.uniform(-1, 1, (60, 2)), rng.uniform(-1, 1, (60, 1))
accelerations = actions[:, 0] - states[:, 0] - 0.5 * states[:, 1]
next_states = states + 0.1 * np.stack([states[:, 1], accelerations], axis=1)
world = OwnSystem(("position", "speed"), ("force",))
explorer = Explorer(METHODS["random"], GaussianProcess(hyperparameters="fixed"), ICEM(), world.spec, capacity=60)
explorer.tell(Trajectory(states, actions, next_states))
system = learned_system(explorer, world)

# %% LearnedSystem, Equilibrium
from sonde import LearnedSystem
from sonde.analysis import Equilibrium

assert isinstance(system, LearnedSystem)
rest: Equilibrium = system.equilibria(samples=20)[0]
print(rest.point, rest.point_std, rest.linearisation.stability)  # near (0, 0): stable

# %% Linearisation, Controllability
from sonde.analysis import Controllability, Linearisation

linear: Linearisation = system.linearise(np.zeros(2), samples=20)
print(linear.A)  # the truth is [[1, 0.1], [-0.1, 0.95]]
print(linear.eigenvalues, linear.eigenvalue_std)
control: Controllability = linear.controllability
print(control.rank, control.smallest, control.std)

# %% Sensitivity
from sonde.analysis import Sensitivity

along: Sensitivity = system.sensitivity(np.zeros((10, 2)), np.zeros((10, 1)))
print(along.growth[-1], along.rate)  # factors after ten steps; per step, deviations shrink
