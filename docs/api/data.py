"""Examples of sonde.data."""

# %% setup
import numpy as np

from sonde.data import Data, SystemSpec, Trajectory

# %% SystemSpec
spec = SystemSpec(state_names=("angle", "velocity"), action_names=("torque",))
print(spec.state_dim, spec.action_dim)  # 2 1

unnamed = SystemSpec.of_size(2, 1)
print(unnamed.state_names)  # ('x0', 'x1')

# %% Trajectory
states = np.zeros((50, 2))  # 50 steps of one seed
actions = np.full((50, 1), 0.5)  # in [-1, 1]
trajectory = Trajectory(states, actions, next_states=states + 0.1)

checked = trajectory.checked(num_seeds=1, spec=SystemSpec.of_size(2, 1))
print(checked.states.shape)  # (1, 50, 2): with an axis of seeds

both = checked.joined(checked)  # two rollouts of one round
print(both.states.shape, np.flatnonzero(both.ended))  # (1, 100, 2) [49 99]

# %% StateLayout, Body
import jax.numpy as jnp

from sonde.data import Body, StateLayout

puck = Body(3, position=(0, 1), angles=(2,))  # x, y and a heading
layout = StateLayout(agent=Body(2, position=(0, 1)), object=puck, count=2)
x, x_next = jnp.zeros(8), jnp.array([0.1, 0.0, 0.0, 0.0, 0.5, 0.0, 0.0, 6.2])
print(layout.features(x).objects.shape)  # (2, 4): position, cosine and sine
print(layout.changes(x, x_next))  # the second heading changed by -0.08, the short way round

# %% Past
from sonde.data import Past

spec = SystemSpec(("angle",), ("torque",), past=Past(delay=2))  # actions act up to two steps late
print(spec.input_names)  # ('torque [-1]', 'torque [-2]', 'torque'): what a model is given beside the state

measured = Trajectory(np.zeros((1, 50, 1)), np.zeros((1, 50, 1)), np.zeros((1, 50, 1)))
print(measured.with_past(spec.past).actions.shape)  # (1, 50, 3)

# %% Data
data = Data.empty(capacity=100, state_dim=2, action_dim=1)
states = np.random.default_rng(0).normal(size=(40, 2))
data = data.append(states, np.zeros((40, 1)), 0.9 * states)

print(data.count, data.mask().sum())  # 40 40
print(data.inputs().shape, data.targets().shape)  # (100, 3) (100, 2): unused rows are masked
print(data.held_out(0.5).sum())  # 20: blocks of rows that `without(0.5)` hides
