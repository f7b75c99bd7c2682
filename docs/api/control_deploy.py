"""Examples of sonde.control.deploy."""

# %% setup
import numpy as np

# %% load_policy
from sonde import SAC, GaussianProcess, RunConfig, explore, load_policy
from sonde.worlds import Pendulum

# settings are much too small, so that the example is quick
solver = SAC(training_steps=1, gradient_steps=5, starts=20, batch_size=8, actor=(8, 8), critic=(8, 8), buffer=100)
model = GaussianProcess(hyperparameters="fixed")
config = RunConfig(world=Pendulum(), model=model, solver=solver, rounds=1, horizon=10, evaluation_horizon=5)
explore(config, "runs/trained")

policy = load_policy("runs/trained/policies/swing-up.safetensors")  # needs no JAX
print(policy(np.array([-1.0, 0.0, 0.0])))  # the action [du] in [-1, 1]

# %% DeployedPolicy
from sonde.control.deploy import DeployedPolicy

# a network without hidden layers: mean and log-std of one action
weight, bias = np.array([[1.0, 0.0], [0.5, 0.0]]), np.zeros(2)
policy = DeployedPolicy(shift=np.zeros(2), scale=np.ones(2), layers=[(weight, bias)], action_dim=1)
print(policy(np.array([0.2, 0.4])))  # tanh(0.2 + 0.2)
