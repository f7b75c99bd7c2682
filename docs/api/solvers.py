"""Examples of sonde.solvers."""

# %% setup
import jax
import jax.numpy as jnp
import numpy as np

from sonde.data import Data
from sonde.evaluation import TrueDynamics
from sonde.imagination import Mean
from sonde.objectives import TaskReward
from sonde.solvers import ICEM, ControlProblem
from sonde.worlds import Pendulum

world = Pendulum()
hanging, key = jnp.array([-1.0, 0.0, 0.0]), jax.random.key(0)
# swing up a pendulum whose equations are known; a posterior that was learned takes the place of TrueDynamics
objective = TaskReward(world.tasks["swing-up"])
problem = ControlProblem(TrueDynamics(world), Mean(), objective, state_dim=3, action_dim=1)

# %% ControlProblem
from sonde.solvers import ControlProblem

print(problem.control_dim)  # 1: the action; Optimistic() would add an eta for each state dimension
plans = jnp.stack([jnp.zeros((10, 1)), jnp.ones((10, 1))])  # two plans of ten steps
print(problem.rewards(hanging, plans, key).shape)  # (2, 1, 10): plans, particles, steps
print(problem.imagine(hanging, plans[1], key).next_states[0, -1])  # where the second one ends
assert isinstance(problem, ControlProblem)

# %% ICEM
from sonde import ICEM

planner = ICEM(horizon=15, samples=40, elites=8, iterations=3)
plan, state = planner.plan(problem, planner.initial_state(problem), hanging, key)
print(plan.shape)  # (15, 1): the next step continues from `state`

# %% SAC, solve
from sonde import SAC
from sonde.solvers import solve

# settings are much too small, so that the example is quick; states from which trajectories are imagined come from the data
solver = SAC(training_steps=1, gradient_steps=5, starts=20, batch_size=8, actor=(8, 8), critic=(8, 8), buffer=100)
data = Data.empty(20, 3, 1).append(np.zeros((20, 3)), np.zeros((20, 1)), np.zeros((20, 3)))
lead = lambda tree: jax.tree.map(lambda leaf: leaf[None], tree)  # an axis of seeds
policy = solve(solver, lead(problem), lead(data), jax.random.split(key, 1))
action, *_ = jax.tree.map(lambda leaf: leaf[0], policy).act(None, hanging, key)
print(action)

# %% Solver, Policy
from dataclasses import dataclass

from sonde.solvers import Policy, Solver


class ProportionalPolicy(Policy):
    """u = tanh(-gain * velocity)."""

    gain: jax.Array

    def initial_state(self):
        return None

    def act(self, state, x, key):
        return jnp.tanh(-self.gain * x[2:]), state, jnp.nan


@dataclass(frozen=True)
class BestGain(Solver):
    """Tries some gains on the model and keeps the best."""

    gains: tuple[float, ...] = (-1.0, 0.0, 1.0)

    def policy(self, problem, data, key):
        def total_reward(gain):
            def step(x, _):
                u = jnp.tanh(-gain * x[2:])
                x_next = problem.posterior.predict(x, u).mean
                return x_next, problem.objective.reward(x, u, x_next)

            return jax.lax.scan(step, hanging, length=20)[1].sum()

        gains = jnp.array(self.gains)
        return ProportionalPolicy(gains[jnp.argmax(jax.vmap(total_reward)(gains))])


print(BestGain().policy(problem, data=None, key=key).gain)

# %% Planner, PlanningPolicy
from dataclasses import dataclass

from sonde.solvers import Planner, PlanningPolicy


@dataclass(frozen=True)
class RandomShooting(Planner):
    """Draws plans uniformly and takes the best."""

    samples: int = 32
    horizon: int = 10

    def initial_state(self, problem):
        return ()

    def plan(self, problem, state, x, key):
        draw_key, imagine_key = jax.random.split(key)
        shape = (self.samples, self.horizon, problem.control_dim)
        plans = jax.random.uniform(draw_key, shape, minval=-1.0, maxval=1.0)
        rewards = problem.rewards(x, plans, imagine_key)  # [plans, particles, steps]
        return plans[jnp.argmax(rewards.sum(axis=-1).mean(axis=-1))], state


policy = PlanningPolicy(problem, RandomShooting(), reports_information=False)
action, state, _ = policy.act(policy.initial_state(), hanging, key)
print(action)

# %% AnytimePlanner, AnytimePolicy
from sonde.solvers import AnytimePlanner, AnytimePolicy, PlanningPolicy

planner = ICEM(horizon=5, samples=20, elites=4, iterations=3)
policy = PlanningPolicy(problem, planner)
assert isinstance(planner, AnytimePlanner) and isinstance(policy, AnytimePolicy)

search = policy.begin(policy.initial_state())
for iteration, size in enumerate(policy.iteration_sizes()):  # stop when the time is over
    search = policy.improve(search, hanging, key, jnp.asarray(iteration), jnp.asarray(iteration == 2), size)
actions, state = policy.finish(search)
print(actions.shape)  # (5, 1): for this step and the following ones

# %% RandomPolicy
from sonde.solvers import RandomPolicy

action, *_ = RandomPolicy(action_dim=1).act(None, hanging, key)
print(action)  # uniform in [-1, 1]

# %% SOLVERS
from sonde.solvers import SOLVERS

print(list(SOLVERS))  # names for --solver

# %% Constraint, Safety, SafetySettings, Checked
from dataclasses import replace

from sonde.solvers import Checked, Constraint, PlanningPolicy, Safety, SafetySettings


def slow(x, u, x_next):
    """The angular velocity stays within 0.2 rad/s."""
    return 0.2 - jnp.abs(x_next[2])


safety = Safety(constraints=(Constraint("slow", slow),), fallback="hold")
policy = PlanningPolicy(replace(problem, safety=safety), ICEM(horizon=4, samples=30, elites=5, iterations=3))
action, state, _ = policy.act(policy.initial_state(), hanging, key)
checked = policy.checked(state)
print(checked.fallback, checked.margin)  # False, and what is left of 0.2 in the worst case
assert isinstance(checked, Checked) and isinstance(safety, SafetySettings)  # a config on disk has SafetySettings

# %% CautiousPolicy
from sonde.solvers import CautiousPolicy

action, *_ = CautiousPolicy(state_dim=3, action_dim=1, amplitude=0.1).act(None, hanging, key)
print(action)  # uniform in [-0.1, 0.1]
