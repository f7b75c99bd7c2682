"""Examples of sonde.analysis."""

# %% setup
import numpy as np

from sonde import ICEM, METHODS, Explorer, GaussianProcess, OwnSystem, Trajectory, learned_system

# a damped oscillator, measured at random states
rng = np.random.default_rng(0)
states, actions = rng.uniform(-1, 1, (60, 2)), rng.uniform(-1, 1, (60, 1))
accelerations = actions[:, 0] - states[:, 0] - 0.5 * states[:, 1]
next_states = states + 0.1 * np.stack([states[:, 1], accelerations], axis=1)
world = OwnSystem(("position", "speed"), ("force",))
explorer = Explorer(METHODS["random"], GaussianProcess(), ICEM(), world.spec, capacity=60)
explorer.tell(Trajectory(states, actions, next_states))
system = learned_system(explorer, world)
place = system.at(np.array([0.3, 0.0]), [0.3], samples=200)  # a force of 0.3 holds it at 0.3

# %% LearnedSystem, Equilibrium
from sonde import LearnedSystem
from sonde.analysis import Equilibrium

assert isinstance(system, LearnedSystem)
rest: Equilibrium
for rest in system.equilibria(samples=20):  # those that the model is certain enough of
    print(rest.point, rest.point_std, rest.linearisation.stability)

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

# %% OperatingPoint, hold
from sonde.analysis import OperatingPoint, hold

moving: OperatingPoint = system.at(np.array([0.3, 0.0]), [0.1], samples=200)  # no equilibrium: it drifts
print(moving.drift, moving.drift_std, moving.next_point)
print(hold(system, np.array([0.3, 0.0]), samples=200).action)  # the action that holds it there; the truth is 0.3

# %% lqr, Regulator, Weights, Promise
from sonde.analysis import Promise, Regulator, Weights, lqr

weights = Weights.of(states=[10.0, 1.0], actions=[0.1])  # diagonals of Q and R
regulator: Regulator = lqr(system, place, weights)
promise: Promise = regulator.promise
print(regulator.gain, regulator.closed_loop.eigenvalues)
print(promise)  # the share of all plausible systems that it stabilises
u = regulator.feedback(np.array([0.35, 0.0]))  # a LinearFeedback, which needs only numpy

# %% robust_lqr
from sonde.analysis import robust_lqr

robust = robust_lqr(system, place, share=0.9)
print(robust.gain, robust.promise.kept, robust.promise.bound)

# %% gain_schedule
from sonde.analysis import gain_schedule, hold, lqr

positions = [-0.3, 0.0, 0.3]
regulators = [lqr(system, hold(system, np.array([q, 0.0]), samples=20)) for q in positions]
schedule = gain_schedule([positions], regulators)
print(schedule(np.array([0.1, 0.0]), [0.15]))  # hold the position 0.15

# %% frequency_response, FrequencyResponse, step_response, StepResponse
from sonde.analysis import FrequencyResponse, StepResponse, frequency_response, step_response

answer: FrequencyResponse = frequency_response(place.linearisation, dt=0.1)
print(answer.frequencies.shape, answer.magnitude.shape, answer.magnitude_band.shape)  # (200,) (200, 2, 1) (2, 200, 2, 1)
after: StepResponse = step_response(place.linearisation, steps=50, dt=0.1)
print(after.times.shape, after.mean.shape, after.band.shape)  # (51,) (51, 2, 1) (2, 51, 2, 1)

# %% to_control
from sonde.analysis import to_control

plant = to_control(place.linearisation, 0.1, states=world.state_names, inputs=world.action_names)  # a control.StateSpace
print(plant.poles())
