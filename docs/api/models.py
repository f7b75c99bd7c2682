"""Examples of sonde.models."""

# %% setup
import numpy as np

from sonde import METHODS, Explorer, SystemSpec, Trajectory
from sonde.solvers import ICEM

rng = np.random.default_rng(0)
states, actions = rng.uniform(-1, 1, (60, 2)), rng.uniform(-1, 1, (60, 1))
next_states = states + 0.1 * np.stack([states[:, 1], actions[:, 0] - np.sin(states[:, 0])], axis=1)
measured = Trajectory(states, actions, next_states)
x, u = np.array([0.5, 0.0]), np.array([1.0])


def learn(model, confidence=None):
    """An explorer that was told 60 measurements of a small pendulum."""
    spec = SystemSpec(("angle", "speed"), ("torque",))
    explorer = Explorer(METHODS["random"], model, ICEM(), spec, capacity=100, confidence=confidence)
    explorer.tell(measured)
    return explorer


# %% GaussianProcess
from sonde import GaussianProcess
from sonde.models import Matern52

explorer = learn(GaussianProcess(kernel=Matern52(), noise_std=0.01))
prediction = explorer.predict(x, u)
print(prediction.mean, prediction.epistemic_std, prediction.aleatoric_std)

# %% ProbabilisticEnsemble
from sonde import ProbabilisticEnsemble

explorer = learn(ProbabilisticEnsemble(members=3, layers=1, width=16))
prediction = explorer.predict(x, u)
print(prediction.members.means.shape)  # (3, 2): one mean for each member

# %% RelationalEnsemble
from sonde.data import Body, StateLayout
from sonde.models import RelationalEnsemble

layout = StateLayout(agent=Body(0), object=Body(1), count=2)  # two objects that nothing but the action moves
spec = SystemSpec(("first", "second"), ("push",), layout=layout)
explorer = Explorer(METHODS["random"], RelationalEnsemble(members=2, layers=1, width=8), ICEM(), spec, capacity=100)
explorer.tell(measured)
print(explorer.predict(x, u).mean)
third = SystemSpec(("first", "second", "third"), ("push",), layout=layout.with_count(3))
print(explorer.transferred(third).predict(np.array([0.5, 0.0, 0.5]), u).mean.shape)  # (3,)

# %% Auto, MODELS
from sonde import GaussianProcess
from sonde.models import MODELS, Auto

model = Auto(candidates=(GaussianProcess(), MODELS["pe"](members=2, layers=1, width=8)))
explorer = learn(model)
chosen = int(explorer.params.choice[0])  # of the first seed
print(model.labels[chosen], explorer.params.errors[0])

# %% KnownPhysics
from sonde import GaussianProcess
from sonde.models import KnownPhysics


def decay(x, u, rate=0.1):
    return (1 - rate) * x


model = KnownPhysics(GaussianProcess(), decay, ranges={"rate": (0.0, 1.0)})
explorer = learn(model)
value, std = model.estimates(explorer.params)["rate"]
print(value[0], std[0])  # of the first seed

# %% RBF, Matern32, Matern52, Linear, KERNELS
import jax.numpy as jnp

from sonde.models import KERNELS, RBF, Linear, Matern32, Matern52

points = jnp.linspace(0, 2, 5)[:, None]  # in length-scales
for kernel in (RBF(), Matern52(), Matern32(), Linear()):
    print(type(kernel).__name__, kernel.cross(points, points)[0])
assert KERNELS["matern52"] == Matern52()

# %% Kernel
from dataclasses import dataclass

import jax.numpy as jnp

from sonde.models import GaussianProcess, Kernel


@dataclass(frozen=True)
class RationalQuadratic(Kernel):
    """(1 + |a - b|^2 / (2 alpha))^-alpha."""

    alpha: float = 1.0

    def cross(self, a, b):
        squared = jnp.sum((a[:, None] - b[None]) ** 2, axis=-1)
        return (1 + squared / (2 * self.alpha)) ** -self.alpha

    def diagonal(self, a):
        return jnp.ones(len(a), a.dtype)


explorer = learn(GaussianProcess(kernel=RationalQuadratic(alpha=2.0)))

# %% Model, Posterior, Prediction
import jax
import jax.numpy as jnp

from sonde.models import Model, Posterior, Prediction


class LinearPosterior(Posterior):
    weights: jax.Array  # [dz, dx]
    covariance: jax.Array  # [dz, dz]

    def predict(self, x, u):
        z = jnp.concatenate([x, u])
        noise = jnp.full_like(x, 0.01)
        return Prediction(x + z @ self.weights, noise * jnp.sqrt(z @ self.covariance @ z), noise)


class BayesianLinear(Model):
    """x' - x = W (x, u) + noise: nothing is fitted by gradients, `condition` has the closed form."""

    def init(self, state_dim, action_dim, key):
        return ()

    def fit(self, params, data, filled, key):
        return params

    def condition(self, params, data):
        z = jnp.where(data.mask()[:, None], data.inputs(), 0.0)  # rows that are not filled yet do not count
        covariance = jnp.linalg.inv(z.T @ z + jnp.eye(z.shape[1]))
        return LinearPosterior(covariance @ z.T @ data.targets(), covariance)


print(learn(BayesianLinear()).predict(x, u).epistemic_std)

# %% MemberPredictions
import jax.numpy as jnp

from sonde.models import MemberPredictions, Prediction

means = jnp.array([[0.0, 1.0], [0.2, 1.0]])  # two members, two state dimensions
members = MemberPredictions(means, stds=jnp.full((2, 2), 0.05))
prediction = Prediction(means.mean(axis=0), means.std(axis=0), members.stds[0], members)
wider = prediction.rescaled(epistemic=jnp.array([2.0, 2.0]), aleatoric=jnp.ones(2))
print(wider.members.means[:, 0])  # [-0.1, 0.3]: members move away from their mean

# %% JacobianPrediction
import jax
import jax.numpy as jnp

from sonde import GaussianProcess
from sonde.models import JacobianPrediction
from sonde.theory import one_seed

with jax.enable_x64(True):  # a posterior of Gaussian processes is in double precision
    posterior = one_seed(learn(GaussianProcess()).posterior).differentiable()
    found: JacobianPrediction = posterior.predict_jacobian(jnp.asarray(x), jnp.asarray(u), jax.random.key(0), count=10)
print(found.mean)  # d x' / d (x, u); the truth is [[1, 0.1, 0], [-0.088, 1, 0.1]]
print(found.std.shape, found.samples.shape)  # (2, 3) (10, 2, 3)
assert isinstance(found, JacobianPrediction)

# %% Prior
import jax

from sonde import GaussianProcess
from sonde.models import Prior
from sonde.theory import one_seed

explorer = learn(GaussianProcess())
with jax.enable_x64(True):  # a posterior of Gaussian processes is in double precision
    prior = Prior.of(one_seed(explorer.posterior))
print(prior.lengthscales.shape)  # (2, 3): one per output and input
print(prior.signal_std, prior.noise_std)  # in state units

# %% Confidence, Calibration
from sonde import Confidence, ProbabilisticEnsemble
from sonde.models import Calibration

confidence = Confidence(holdout=0.3, recalibrate=True)
explorer = learn(ProbabilisticEnsemble(members=2, layers=1, width=16), confidence)
calibration = explorer.calibration
assert isinstance(calibration, Calibration)
print(calibration.factors.epistemic, calibration.before.shape)  # (1, 9, 2): coverage of 9 levels of confidence

# %% RKHSBeta, HeldOutBeta, BETA_RULES
from sonde import Confidence, GaussianProcess
from sonde.models import BETA_RULES, HeldOutBeta, RKHSBeta

explorer = learn(GaussianProcess(), Confidence(beta_rule=RKHSBeta(delta=0.1)))
print(explorer.predict(x, u).beta)  # one beta per state dimension

explorer = learn(GaussianProcess(), Confidence(holdout=0.3, beta_rule=HeldOutBeta(delta=0.1)))
print(explorer.predict(x, u).beta)
print(list(BETA_RULES))  # names for --beta-rule

# %% BetaRule
from dataclasses import dataclass

import jax.numpy as jnp

from sonde import Confidence, GaussianProcess
from sonde.models import BetaRule


@dataclass(frozen=True)
class GrowingBeta(BetaRule):
    """Beta grows with the logarithm of the number of measurements."""

    scale: float = 0.5

    def beta(self, posterior, unseen, data, holdout):
        dx = data.states.shape[-1]
        return jnp.full(dx, self.scale * jnp.log1p(data.count))


explorer = learn(GaussianProcess(), Confidence(beta_rule=GrowingBeta()))
print(explorer.predict(x, u).beta)  # 0.5 log(61)

# %% rkhs_beta, mean_norm
import jax
import jax.numpy as jnp

from sonde import GaussianProcess
from sonde.models import mean_norm, rkhs_beta
from sonde.theory import one_seed

with jax.enable_x64(True):
    norm = mean_norm(one_seed(learn(GaussianProcess()).posterior))  # an estimate, one per output
    beta = rkhs_beta(norm, information=jnp.array([30.0, 30.0]), delta=0.05)
print(norm, beta)

# %% held_out_beta
import jax.numpy as jnp

from sonde.models import Prediction, held_out_beta

truth = jnp.asarray(rng.normal(size=(100, 2)))
prediction = Prediction(jnp.zeros((100, 2)), jnp.ones((100, 2)), jnp.ones((100, 2)))
rows = jnp.ones(100, bool)  # all of them were held out
print(held_out_beta(prediction, truth, rows, delta=0.1, initial=2.0))  # about 1.64: the 90 % quantile of |N(0, 1)|
