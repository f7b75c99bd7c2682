"""Examples of sonde.objectives."""

# %% setup
import jax.numpy as jnp

from sonde.models import MemberPredictions, Prediction
from sonde.objectives import Imagined

# a plan of 3 steps, imagined by 2 particles that follow the 2 members of an ensemble; one state, one action
means = jnp.broadcast_to(jnp.array([[0.0], [0.2]]), (2, 3, 2, 1))  # [particles, steps, members, dx]
members = MemberPredictions(means, stds=jnp.full((2, 3, 2, 1), 0.1))
predictions = Prediction(means.mean(axis=2), means.std(axis=2), jnp.full((2, 3, 1), 0.1), members)
next_states = jnp.array([[[0.0]] * 3, [[0.2]] * 3])
imagined = Imagined(jnp.zeros((2, 3, 1)), jnp.zeros((3, 1)), next_states, predictions)

# %% InformationGain, information_gain
from sonde.objectives import InformationGain, information_gain

print(InformationGain().rewards(imagined).shape)  # (2, 3): per particle and step
print(information_gain(predictions)[0, 0])  # 0.347 nats: 1/2 log(1 + (0.1 / 0.1)^2)

# %% UncertaintySum, LogUncertainty
from sonde.objectives import LogUncertainty, UncertaintySum

print(UncertaintySum().rewards(imagined)[0, 0])  # 0.01: the epistemic variance
print(LogUncertainty(epsilon=0.001).rewards(imagined)[0, 0])  # log(0.001^2 + 0.01)

# %% TrajectoryDisagreement
from sonde.objectives import TrajectoryDisagreement

objective = TrajectoryDisagreement()  # how far the particles of a plan diverge
print(objective.rewards(imagined).shape)  # (1, 3): one row for all particles

# %% JensenRenyi, jensen_renyi
from sonde.objectives import JensenRenyi, jensen_renyi

print(JensenRenyi().rewards(imagined).shape)  # (2, 3)
equal = MemberPredictions(jnp.zeros((2, 1)), jnp.ones((2, 1)))
print(jensen_renyi(equal))  # 0: the members agree

# %% TaskReward
from sonde.objectives import TaskReward


def near_zero(x, u, x_next):
    return -(x_next[0] ** 2) - 0.1 * u[0] ** 2


print(TaskReward(near_zero).rewards(imagined)[:, 0])  # [0, -0.04]

# %% TaskPlusUncertainty, TaskPlusInformation
from sonde.objectives import TaskPlusInformation, TaskPlusUncertainty

objective = TaskPlusUncertainty(near_zero, weight=0.5)
print(objective.rewards(imagined)[:, 0])  # [0, -0.04] + 0.5 * 0.1 / 0.1
print(TaskPlusInformation(near_zero).rewards(imagined)[:, 0])  # [0, -0.04] + 0.347

# %% TaskObjective, TaskPlusBonus
from dataclasses import dataclass

from sonde.objectives import TaskObjective, TaskPlusBonus


@dataclass(frozen=True)
class TaskPlusLargest(TaskPlusBonus):
    """The reward of a task plus lambda times the epistemic std of the most uncertain dimension."""

    def bonus(self, imagined):
        return jnp.max(imagined.predictions.epistemic_std, axis=-1)


assert issubclass(TaskPlusBonus, TaskObjective)
print(TaskPlusLargest(near_zero, weight=2.0).rewards(imagined)[:, 0])  # [0, -0.04] + 2 * 0.1
print(TaskPlusLargest(half_life=5).share(5))  # 0.5: half of the weight after five rounds

# %% Objective, Imagined
from dataclasses import dataclass

from sonde.objectives import Imagined, Objective


@dataclass(frozen=True)
class LargestUncertainty(Objective):
    """The epistemic std of the most uncertain dimension."""

    def rewards(self, imagined: Imagined):
        return jnp.max(imagined.predictions.epistemic_std, axis=-1)


print(LargestUncertainty().rewards(imagined))

# %% OBJECTIVES
from sonde.objectives import OBJECTIVES

print(list(OBJECTIVES))  # names for --method.objective
