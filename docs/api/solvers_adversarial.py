"""Examples of sonde.solvers.adversarial."""

# %% setup
import jax
import jax.numpy as jnp
import numpy as np

from sonde import ICEM, METHODS, Explorer, GaussianProcess, SystemSpec, Trajectory
from sonde.imagination import Pessimistic
from sonde.objectives import TaskReward
from sonde.solvers import ControlProblem, PlanningPolicy

rng = np.random.default_rng(0)
states, actions = rng.uniform(-1, 1, (30, 1)), rng.uniform(-1, 1, (30, 1))
measured = Trajectory(states, actions, 0.9 * states + 0.2 * actions + 0.02 * rng.normal(size=(30, 1)))
planner, spec = ICEM(horizon=3, samples=12, elites=4, iterations=2), SystemSpec.of_size(1, 1)
explorer = Explorer(METHODS["random"], GaussianProcess(hyperparameters="fixed"), planner, spec, capacity=30)
explorer.tell(measured)

# hold the state at 0.5; everything has a leading axis of seeds, and starts and keys one of rollouts too
task = TaskReward(lambda x, u, x_next: -((x_next[0] - 0.5) ** 2))
problem = ControlProblem(explorer.posterior.differentiable(), Pessimistic(beta=2.0), task, state_dim=1, action_dim=1)
starts, keys = jnp.zeros((1, 2, 1)), jax.random.split(jax.random.key(0), (1, 2))

# %% most_robust, ModelReturns
from sonde.solvers.adversarial import ModelReturns, most_robust

policy, returns = most_robust([PlanningPolicy(problem, planner)], problem, starts, 4, keys)
print(returns.nominal, returns.guaranteed)  # [S]: if the mean is the truth; against the worst adversary
assert isinstance(returns, ModelReturns)

# %% mean_returns
from sonde.solvers.adversarial import mean_returns

print(mean_returns(PlanningPolicy(problem, planner), problem, 4, starts, keys, None).shape)  # (1, 2): seeds, rollouts

# %% with_region_share, REGION_SHARES
from sonde.solvers.adversarial import REGION_SHARES, with_region_share

beta = jnp.full((1, 1), 2.0)  # of each seed and output
for share in REGION_SHARES:  # half and all of the region, against which cautious plans are made
    print(share, with_region_share(explorer.posterior, beta, share).beta)
