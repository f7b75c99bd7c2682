"""Probabilistic ensembles: networks that agree where there are data and disagree elsewhere.

Each member is a network with two heads, the mean and the logarithm of the noise std of the change x' - x, trained by Gaussian
likelihood from its own initial weights and in its own order of the data. Where data pin the function down, the members agree;
their disagreement is the epistemic std.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Float32, Int, Key

from sonde._internal.errors import SondeError, one_of, positive, whole
from sonde.data import Data
from sonde.models._base import JacobianPrediction, MemberPredictions, Model, Posterior, Prediction
from sonde.models._fused import FusedNetworks, fits, kernel_runs_on
from sonde.models._network import Network, over_members
from sonde.models._normaliser import SMALLEST_SPREAD, Normaliser

SMALLEST_NOISE = 1e-6  # information is divided by the noise, in single precision


class EnsembleParams(eqx.Module):
    """The members' weights [E, ...], and the units in which they think."""

    networks: Network
    inputs: Normaliser
    targets: Normaliser
    moments: Any = None
    """The state of the members' optimisers [E, ...], where fits go on from it."""


@dataclass(frozen=True)
class ProbabilisticEnsemble(Model):
    """Networks with mean and noise heads, whose disagreement is the epistemic std."""

    members: int = 5
    """Networks."""
    layers: int = 2
    """Hidden layers of each."""
    width: int = 256
    """Neurons of each hidden layer."""
    noise: Literal["learned", "fixed"] = "learned"
    """learned: a head of each network says how noisy the system is in each state. fixed: noise_std everywhere, for systems
    without noise; the networks then learn the mean only."""
    noise_std: float = 0.05
    """Std of the noise when it is fixed, in units of the targets' spread."""
    noise_floor: float = 0.01
    """Smallest noise std that can be learned, in the same units."""
    noise_ceiling: float = 1.0
    """Largest noise std that can be learned, in the same units."""
    learning_rate: float = 5e-4
    """Adam's learning rate."""
    weight_decay: float = 1e-4
    """How strongly weights are drawn to zero; see optimiser."""
    batch_size: int = 64
    """Transitions per gradient step."""
    epochs: int = 50
    """Passes over the data after each episode."""
    max_steps: int = 5000
    """Most gradient steps after each episode, however many passes that makes."""
    warm_start: bool = True
    """Start each fit from the weights of the last one, instead of new ones."""
    matmul_precision: Literal["half", "single"] = "half"
    """How GPUs with matrix units multiply in predictions. half: in half precision with single-precision sums, several times faster
    (`sonde.models._fused`). single: as the device multiplies single-precision numbers. On CPUs there is no difference."""
    bootstrap: bool = False
    """Give each member a resample (with repetition) of the data instead of all of them."""
    optimiser: Literal["adamw", "adam"] = "adamw"
    """adamw: the weight decay shrinks the weights themselves. adam: it is an L2 penalty, and Adam scales its gradient too."""
    optimiser_epsilon: float = 1e-8
    """What Adam adds to the root of its second moment: gradients below this move the weights less."""
    keep_optimiser_state: bool = False
    """Continue with the optimiser state of the last fit, instead of a new one."""
    initial_scale: float = 1.0
    """Spread of the initial weights, in units of 1 / sqrt(inputs of the layer)."""
    smallest_spread: float = SMALLEST_SPREAD
    """Inputs and targets whose std over the data is no larger than this are not normalised: they count as constant."""

    def __post_init__(self):
        """Refuse settings that cannot work."""
        one_of("setting of the model's noise", self.noise, ("learned", "fixed"))
        one_of("matmul_precision", self.matmul_precision, ("half", "single"))
        one_of("setting of the model's optimiser", self.optimiser, ("adamw", "adam"))
        whole(
            "model",
            members=self.members,
            layers=self.layers,
            width=self.width,
            batch_size=self.batch_size,
            epochs=self.epochs,
            max_steps=self.max_steps,
        )
        positive(
            "model",
            learning_rate=self.learning_rate,
            optimiser_epsilon=self.optimiser_epsilon,
            initial_scale=self.initial_scale,
            smallest_spread=self.smallest_spread,
        )
        if self.keep_optimiser_state and not self.warm_start:
            raise SondeError("model: moments of the last fit mean nothing to new weights; keep both, or reset the moments")
        for name in ("noise_std", "noise_floor"):
            if not SMALLEST_NOISE <= getattr(self, name) < float("inf"):
                raise SondeError(f"model: {name} must be {SMALLEST_NOISE} or above, got {getattr(self, name)}")
        if self.members < 2:
            raise SondeError(f"model: members must be 2 or more, got {self.members}; one network cannot disagree with itself")
        if not self.noise_floor < self.noise_ceiling < float("inf"):
            raise SondeError(f"model: noise_ceiling must be above noise_floor ({self.noise_floor}), got {self.noise_ceiling}")
        if not 0 <= self.weight_decay < float("inf"):
            raise SondeError(f"model: weight_decay must be 0 or above, got {self.weight_decay}")

    @property
    def ensemble_size(self) -> int:
        """The members."""
        return self.members

    def init(self, state_dim: int, action_dim: int, key: Key[Array, ""]) -> EnsembleParams:
        """Random weights; inputs and targets as they come."""
        inputs, targets = Normaliser.identity(state_dim + action_dim), Normaliser.identity(state_dim)
        networks = self._new_networks(state_dim, action_dim, key)
        moments = jax.vmap(self._new_moments)(networks) if self.keep_optimiser_state else None
        return EnsembleParams(networks, inputs, targets, moments)

    def fit(self, params: EnsembleParams, data: Data, filled: Int[Array, ""], key: Key[Array, ""]) -> EnsembleParams:
        """All members at once, each in its own order of the data."""
        mask = data.mask()
        inputs = Normaliser.of_inputs(data, self.smallest_spread)
        targets = Normaliser.of(data.targets(), mask, self.smallest_spread)
        z, y = inputs(data.inputs()).astype(jnp.float32), targets(data.targets()).astype(jnp.float32)
        init_key, order_key = jax.random.split(key)
        networks = params.networks
        if not self.warm_start:
            networks = self._new_networks(data.states.shape[1], data.actions.shape[1], init_key)

        # the visible rows come first in `rows`, in order; each member reads them in an order of its own, an epoch at a time
        rows, count = jnp.argsort(~mask, stable=True), jnp.maximum(jnp.sum(mask), 1)
        # `filled` is shared by all runs in lockstep, so these are plain numbers and not one per run
        shared = jnp.maximum(jnp.sum(replace(data, count=filled).mask()), 1)
        batches = -(-shared // self.batch_size)
        total = jnp.minimum(self.epochs * batches, self.max_steps)
        optimiser = self._optimiser()

        def train(network: Network, moments: Any, key: Key[Array, ""]) -> tuple[Network, Any]:
            bootstrap_key, order_key = jax.random.split(key)
            own = rows
            if self.bootstrap:
                own = rows[jax.random.randint(bootstrap_key, rows.shape, 0, count)]

            def epoch(number, carry):
                draws = jax.random.uniform(jax.random.fold_in(order_key, number), own.shape, jnp.float32)
                order = own[jnp.argsort(jnp.where(jnp.arange(data.capacity) < count, draws, 2.0))]

                def step(i, carry):
                    network, state = carry
                    chosen = order[(i * self.batch_size + jnp.arange(self.batch_size)) % count]
                    gradient = jax.grad(self._loss)(network, z[chosen], y[chosen])
                    updates, state = optimiser.update(gradient, state, network)
                    return cast(Network, optax.apply_updates(network, updates)), state

                return jax.lax.fori_loop(0, jnp.minimum(batches, total - number * batches), step, carry)

            start = self._new_moments(network) if moments is None else moments
            return jax.lax.fori_loop(0, -(-total // batches), epoch, (network, start))

        networks, moments = over_members(train, networks, params.moments, jax.random.split(order_key, self.members))
        return EnsembleParams(networks, inputs, targets, moments if self.keep_optimiser_state else None)

    def _optimiser(self) -> optax.GradientTransformation:
        if self.optimiser == "adamw":
            return optax.adamw(self.learning_rate, eps=self.optimiser_epsilon, weight_decay=self.weight_decay)
        penalty = optax.add_decayed_weights(self.weight_decay)
        return optax.chain(penalty, optax.adam(self.learning_rate, eps=self.optimiser_epsilon))

    def _new_moments(self, network: Network) -> Any:
        # optax types its trees as nested containers of arrays, which an equinox module is without saying so
        weights: Any = network
        return self._optimiser().init(weights)

    def condition(self, params: EnsembleParams, data: Data) -> "EnsemblePosterior":
        """The networks as they are: all they know of the data is in their weights."""
        del data
        # the state that a fit continues from is not needed for predictions
        return EnsemblePosterior(EnsembleParams(params.networks, params.inputs, params.targets), None, self)

    def heads(self, output: Float32[Array, "*batch out"]) -> tuple[Float32[Array, "*batch dx"], Float32[Array, "*batch dx"]]:
        """Mean and log std of the noise, in normalised units, from a network's output."""
        if self.noise == "fixed":
            return output, jnp.full_like(output, math.log(self.noise_std))
        mean, raw = jnp.split(output, 2, axis=-1)
        low, high = math.log(self.noise_floor), math.log(self.noise_ceiling)
        # softplus(capped - low) with capped = high - softplus(high - raw), with one exponential and one logarithm for two each
        above = jnp.log(1.0 + math.exp(high - low) * jax.nn.sigmoid(raw - high))
        # softplus(t) is a little more than t: the factor brings the top back to the ceiling
        return mean, low + above * ((high - low) / math.log1p(math.exp(high - low)))

    def _new_networks(self, state_dim: int, action_dim: int, key: Key[Array, ""]) -> Network:
        outputs = state_dim if self.noise == "fixed" else 2 * state_dim
        sizes = (state_dim + action_dim, *[self.width] * self.layers, outputs)
        return jax.vmap(lambda k: Network.init(sizes, k, self.initial_scale))(jax.random.split(key, self.members))

    def _loss(self, network: Network, z: Float32[Array, "batch dz"], y: Float32[Array, "batch dx"]) -> Float32[Array, ""]:
        """Negative log-likelihood of one member, up to a constant."""
        mean, log_std = self.heads(network(z))
        if self.noise == "fixed":  # the mean squared error: the same up to a factor, on which a penalty of the weights depends
            return jnp.mean((y - mean) ** 2)
        return jnp.mean(0.5 * (y - mean) ** 2 * jnp.exp(-2 * log_std) + log_std)


class EnsemblePosterior(Posterior):
    """The members' predictions and what they make together."""

    params: EnsembleParams
    fused: FusedNetworks | None
    """The same networks, where the device has something faster than them."""
    model: ProbabilisticEnsemble = eqx.field(static=True)

    def predict(self, x: Float[Array, " dx"], u: Float[Array, " du"]) -> Prediction:
        """Mean and std of the members' means; root mean square of their noise stds."""
        params = self.params
        z = params.inputs(jnp.concatenate([x, u]))
        one_by_one = lambda z: over_members(lambda network: network(z[None])[0], params.networks)
        mean, log_std = self.model.heads((self.fused or one_by_one)(z))
        scale = params.targets.scale
        std = scale * jnp.exp(log_std)
        return Prediction(
            mean=x + params.targets.shift + scale * jnp.mean(mean, axis=0),
            epistemic_std=scale * jnp.std(mean, axis=0),
            aleatoric_std=jnp.sqrt(jnp.mean(std**2, axis=0)),
            members=MemberPredictions(x + params.targets.shift + scale * mean, std),
        )

    @property
    def ensemble_size(self) -> int:
        """Number of members."""
        return self.model.members

    def specialise(self) -> "EnsemblePosterior":
        """On a GPU that runs the fused kernel, with half-precision copies of the networks for it."""
        networks = self.params.networks
        fast = self.model.matmul_precision == "half" and fits(networks) and kernel_runs_on(networks.weights[0])
        return EnsemblePosterior(self.params, FusedNetworks.of(networks) if fast else None, self.model)

    def differentiable(self) -> "EnsemblePosterior":
        """The networks themselves: the fused kernel has no gradients."""
        return EnsemblePosterior(self.params, None, self.model)

    def member(self, index: Int[Array, ""]) -> "EnsemblePosterior":
        """An ensemble of that one member."""
        one = lambda tree: jax.tree.map(lambda leaf: leaf[index % self.model.members][None], tree)
        params = EnsembleParams(one(self.params.networks), self.params.inputs, self.params.targets)
        return EnsemblePosterior(params, one(self.fused), self.model)

    def predict_jacobian(
        self, x: Float[Array, " dx"], u: Float[Array, " du"], key: Key[Array, ""], count: int
    ) -> JacobianPrediction:
        """Mean and std of the members' Jacobians, which are the samples."""
        del key, count
        plain = self.differentiable()

        def means(x: Array, u: Array) -> Array:
            members = plain.predict(x, u).members
            assert members is not None
            return members.means

        samples = jnp.concatenate(jax.jacrev(means, argnums=(0, 1))(x, u), axis=-1)
        return JacobianPrediction(jnp.mean(samples, axis=0), jnp.std(samples, axis=0), samples)
