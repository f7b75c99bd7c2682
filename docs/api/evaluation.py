"""Examples of sonde.evaluation."""

# %% setup
import numpy as np

from sonde import ICEM, METHODS, Explorer, GaussianProcess, rollout
from sonde.evaluation import Learned, TaskSetup
from sonde.worlds import Pendulum

world = Pendulum()
planner = ICEM(horizon=5, samples=12, elites=4, iterations=2)
explorer = Explorer(METHODS["random"], GaussianProcess(hyperparameters="fixed"), planner, world.spec, capacity=50)
trajectory = rollout(world, explorer.ask(), 20)
explorer.tell(trajectory)

setup = TaskSetup.named(world, "swing-up", planner, horizon=5)  # in earnest, the task takes 200 steps
learned = Learned(explorer.posterior, explorer.data)

# %% TaskSetup, Learned, evaluate, Evaluation
from sonde import Learned, TaskSetup, evaluate
from sonde.evaluation import Evaluation

setup = TaskSetup.named(world, "swing-up", planner, horizon=5)
found: Evaluation = evaluate(setup, Learned(explorer.posterior, explorer.data), explorer.keys())
print(found.returns, found.trajectory.states.shape)  # a return for each seed, and the rollout

# %% TrueDynamics, normalised_score
from sonde import TrueDynamics, evaluate
from sonde.evaluation import normalised_score

returns = evaluate(setup, learned, explorer.keys()).returns
random = evaluate(setup, None, explorer.keys()).returns  # uniformly random actions
oracle = evaluate(setup, Learned(TrueDynamics(world)), explorer.keys()).returns  # plans on the true equations
print(normalised_score(returns, random, oracle))  # 0: random actions, 1: the oracle

# %% plan_task, run_task
from sonde.evaluation import plan_task, run_task

policy = plan_task(setup, learned, explorer.keys())
print(run_task(setup, policy, explorer.keys()).returns)

# %% distil, Distillation, Distilled
from sonde.evaluation import Distillation, Distilled, distil

settings = Distillation(iterations=1, rollouts=2, layers=(8,), gradient_steps=20)  # much too small, so that it is quick
network: Distilled = distil(setup, learned, explorer.keys(), settings)
print(network.planner, network.network, network.lost)  # returns on the learned model, from the same starts
content = network.policy.to_bytes()  # of a file that `load_policy` reads

# %% score_on_model, plan_robust_task, ScoredPolicy
from sonde.evaluation import ScoredPolicy, plan_robust_task, plan_task, score_on_model
from sonde.imagination import Pessimistic

adversary, keys = Pessimistic(beta=1.0), explorer.keys()
plain: ScoredPolicy = score_on_model(setup, explorer.posterior, keys, plan_task(setup, learned, keys), adversary)
cautious = plan_robust_task(setup, learned, keys, adversary, plain)
print(plain.returns.guaranteed, cautious.returns.guaranteed)  # what remains in the plausible worst case

# %% Metric, MetricSpec, RoundResult
from dataclasses import dataclass

from sonde import Metric, MetricSpec
from sonde.evaluation import RoundResult


@dataclass(frozen=True)
class Travelled(Metric):
    """Distance along one state dimension; list it in `RunConfig.metrics`."""

    dimension: int = 2

    @property
    def spec(self):
        return MetricSpec("travelled", "Distance travelled", "rad/s", "Distance along a state dimension in the round.")

    def compute(self, result):
        steps = result.trajectory.next_states - result.trajectory.states
        return np.abs(steps[..., self.dimension]).sum(axis=1)  # one number per seed


result = RoundResult(explorer, trajectory, explorer.posterior, world)
print(Travelled().compute(result))

# %% Schema, SCHEMA
from sonde.evaluation import SCHEMA, Schema

print(len(SCHEMA), SCHEMA[3].key, SCHEMA[3].meaning)  # the built-in metrics
schema = Schema(world)  # with those of the world, and your own
print(schema.spec("return/swing-up").title_of("return/swing-up"))  # Return on swing-up

# %% fit_power_law, PowerLaw
from sonde.evaluation import PowerLaw, fit_power_law

rounds = np.arange(1, 11)
law: PowerLaw = fit_power_law(rounds, 0.8 * rounds**-0.5)
print(law.exponent, law.constant)  # -0.5 0.8
