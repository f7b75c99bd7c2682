"""Examples of sonde.theory."""

# %% setup
import jax
import numpy as np

from sonde import ICEM, METHODS, Explorer, GaussianProcess, SystemSpec, Trajectory
from sonde.models import Prior
from sonde.theory import one_seed

rng = np.random.default_rng(0)
states, actions = rng.uniform(-1, 1, (30, 2)), rng.uniform(-1, 1, (30, 1))
spec, model = SystemSpec.of_size(2, 1), GaussianProcess(hyperparameters="fixed")
explorer = Explorer(METHODS["random"], model, ICEM(), spec, capacity=30)
explorer.tell(Trajectory(states, actions, 0.9 * states))
points = np.concatenate([states, actions], axis=1)  # (x, u)
with jax.enable_x64(True):  # a posterior of Gaussian processes is in double precision
    prior = Prior.of(one_seed(explorer.posterior))

# %% one_seed
from sonde.theory import one_seed

data = one_seed(explorer.data, seed=0)  # of any pytree with a leading axis of seeds
print(explorer.data.states.shape, data.states.shape)  # (1, 30, 2) (30, 2)

# %% exact_information_gain, information_bound
from sonde.theory import exact_information_gain, information_bound

gain = exact_information_gain(prior, points[20:], given=points[:20])  # of ten more points, per output, in nats
bound = information_bound(prior, points[20:], given=points[:20])  # Lemma 1: the sum of what each alone would tell
print(gain, bound)

# %% greedy_information, GREEDY_FACTOR
from sonde.theory import GREEDY_FACTOR, greedy_information

gamma = greedy_information(prior, candidates=points, count=10)[-1]  # of ten points that are chosen greedily
print(gamma, gamma / GREEDY_FACTOR)  # the maximum over these candidates lies between the two

# %% model_complexity, greedy_model_complexity
from sonde.theory import greedy_model_complexity, model_complexity

print(model_complexity(prior, rounds=[points[:15], points[15:]]))  # of these two rounds
print(greedy_model_complexity(prior, candidates=points, rounds=3, horizon=15))  # after 1, 2 and 3 rounds

# %% theorem_bound, bound_exponent
from sonde.models import RBF, Matern52
from sonde.theory import bound_exponent, theorem_bound

print(theorem_bound(beta=2.0, horizon=15, complexity=20.0, rounds=10))  # up to a constant
print(bound_exponent(RBF(), dim=3))  # -0.5: the bound falls with the root of the number of rounds
print(bound_exponent(Matern52(), dim=3))  # -0.125

# %% information_growth, information_exponent
from sonde.models import RBF, Matern52
from sonde.theory import information_exponent, information_growth

print(information_growth(RBF(), np.array([10, 100]), dim=3))  # log(n)^4
print(information_exponent(Matern52(), dim=3))  # 0.375
