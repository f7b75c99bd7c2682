"""Examples of sonde.imagination."""

# %% setup
import jax
import jax.numpy as jnp

from sonde.models import MemberPredictions, Prediction

# two members of an ensemble predict two state dimensions
means = jnp.array([[1.0, 0.0], [1.2, 0.0]])
members = MemberPredictions(means, stds=jnp.full((2, 2), 0.01))
prediction = Prediction(means.mean(axis=0), means.std(axis=0), jnp.full(2, 0.01), members)

# %% NoiseDraws, draw_noise
from sonde.imagination import NoiseDraws, draw_noise

draws = draw_noise(jax.random.key(0), horizon=5, state_dim=2)  # of one particle, for a whole plan
assert isinstance(draws, NoiseDraws)
print(draws.aleatoric.shape, draws.epistemic.shape, draws.member.shape)  # (5, 2) (5, 2) (5,)

# %% Optimistic, Pessimistic
from sonde.imagination import Optimistic, Pessimistic, draw_noise

draws = draw_noise(jax.random.key(0), horizon=1, state_dim=2)
eta = jnp.array([1.0, 0.0])  # a corner of the confidence region in the first dimension

optimistic = Optimistic(beta=2.0)
print(optimistic.extra_controls(state_dim=2))  # 2: the planner chooses eta
print(optimistic.next_state(prediction, eta, draws))  # [1.3, 0.0]: mean + 2 * 0.1 * eta

pessimistic = Pessimistic(beta=2.0, adversary_steps=3)
print(pessimistic.adversary_controls(state_dim=2))  # 2: an adversary chooses eta

# %% Mean, Perturbed
from sonde.imagination import Mean, Perturbed, draw_noise

draws = draw_noise(jax.random.key(0), horizon=1, state_dim=2)
print(Mean().next_state(prediction, jnp.zeros(0), draws))  # [1.1, 0.0]
print(Perturbed().next_state(prediction, jnp.array([0.05, -0.05]), draws))  # [1.15, -0.05]

# %% TrajectorySampling, MemberTrajectories, MemberChoice
from sonde.imagination import MemberChoice, MemberTrajectories, TrajectorySampling, draw_noise

draws = jax.tree.map(lambda leaf: leaf[0], draw_noise(jax.random.key(0), horizon=1, state_dim=2))
sampled = TrajectorySampling(particles=10)  # each particle draws a member at each step
print(sampled.next_state(prediction, jnp.zeros(0), draws))  # one of the two means

consistent = MemberTrajectories()  # each particle follows one member through the whole plan
print(consistent.simulated_particles(ensemble_size=2))  # 2

chosen = MemberChoice()  # the planner chooses the member at each step
print(chosen.next_state(prediction, jnp.array([0.9]), draws))  # [1.2, 0.0]: the second member

# %% Imagination
from dataclasses import dataclass

from sonde import Method
from sonde.imagination import Imagination
from sonde.objectives import InformationGain


@dataclass(frozen=True)
class Sampled(Imagination):
    """x' ~ N(mean, (scale * epistemic_std)^2), drawn at each step for each particle."""

    scale: float = 1.0

    def simulated_particles(self, ensemble_size):
        return self.particles

    def resolve(self, prediction, extra, draws):
        return prediction.mean + self.scale * prediction.epistemic_std * draws.epistemic, prediction.aleatoric_std


method = Method(Sampled(scale=0.5, particles=5), InformationGain(), label="sampled")

# %% IMAGINATIONS
from sonde.imagination import IMAGINATIONS

print(list(IMAGINATIONS))  # names for --method.imagination
