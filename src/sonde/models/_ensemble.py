"""What all ensembles share: networks that agree where there are data and disagree elsewhere.

Each member is a network with two heads, the mean and the logarithm of the noise std of the change x' - x. It is trained by
Gaussian likelihood from its own initial weights and in its own order of the data. The disagreement of the members is the
epistemic std. `Ensemble` holds the settings of the training and the training itself. What a network is, what it sees of a state
and what becomes of its outputs is left to subclasses.
"""

import abc
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Float32, Int, Key

from sonde._internal.errors import SondeError, one_of, positive, whole
from sonde.data import Data
from sonde.models._affine import affine_members
from sonde.models._base import Model, Prediction
from sonde.models._batches import Span, in_passes, with_new
from sonde.models._fused import FusedNetworks
from sonde.models._network import MemberNetwork, over_members
from sonde.models._normaliser import SMALLEST_SPREAD, Normaliser
from sonde.models._steps import in_chunks, one_by_one
from sonde.models._training import some_rows, until_converged, validation_rows

SMALLEST_REST = 0.1
"""Least std, in stds of the targets, that an affine part leaves for the networks: their disagreement is in its units, and data
of a small region, where the system seems affine, must not make them agree about all others."""
SMALLEST_NOISE = 1e-6  # the information gain divides by the noise in single precision
Average = Callable[[Array], Array]


class EnsembleParams(eqx.Module):
    """Weights of the members, and the normalisation of their inputs and targets."""

    networks: MemberNetwork
    """Networks of all members [E, ...]."""
    inputs: Normaliser
    """Of what the networks see; objects that are alike share their numbers."""
    targets: Normaliser
    """Of what they learn."""
    affine: Float[Array, "*seeds E dx dz"] | None = None
    """Coefficients of each member's affine part: change of the state per normalised input; None if there is no such part."""
    moments: Any = None
    """Optimiser states of the members [E, ...], if `keep_optimiser_state`."""
    told: Int[Array, "*seeds"] | None = None
    """Number of measurements at the last fit, held-out ones included; None if `new_share` is 0."""


class _Member(eqx.Module):
    """What the training of one member starts from."""

    network: MemberNetwork
    moments: Any
    affine: Float[Array, "*E dx dz"] | None
    key: Key[Array, "*E"]
    number: Int[Array, "*E"]


class _Rows(NamedTuple):
    """What all members are trained on."""

    z: Float32[Array, "capacity dz"]
    """Normalised inputs."""
    y: Float32[Array, "capacity dx"]
    """Normalised targets."""
    mask: Bool[Array, " capacity"]
    """True for the rows that are used."""
    batches: Int[Array, ""]
    """Batches per epoch."""
    told: Int[Array, ""] | None
    """Rows from this one on are new; None if that makes no difference."""


class MemberOutputs(NamedTuple):
    """What the networks say of one point, in normalised units."""

    means: Float[Array, "E dx"]
    stds: Float[Array, "E dx"]


@dataclass(frozen=True)
class Ensemble(Model):
    """Settings and training of an ensemble of networks with mean and noise heads."""

    members: int = 5
    """Number of networks."""
    layers: int = 2
    """Hidden layers of each network."""
    width: int = 256
    """Units of each hidden layer."""
    noise: Literal["learned", "fixed"] = "learned"
    """learned: a head of each network predicts the noise std in each state, for systems whose noise is real and unknown. fixed:
    noise_std everywhere, for deterministic systems; the networks then learn the mean only. On a deterministic system learned
    noise grows where the means err, and the information gain, which divides by it, avoids the places to explore."""
    noise_std: float = 0.05
    """Std of the noise when it is fixed, in stds of what the networks learn (the targets, or what an affine part leaves)."""
    noise_floor: float = 0.01
    """Smallest noise std that can be learned, in the same units."""
    noise_ceiling: float = 1.0
    """Largest noise std that can be learned, in the same units."""
    learning_rate: float = 5e-4
    """Learning rate of Adam."""
    weight_decay: float = 1e-4
    """Strength of the weight decay; see optimiser."""
    batch_size: int = 64
    """Transitions per gradient step."""
    new_share: float = 0.0
    """Share of each batch that is drawn from the measurements since the last fit, in passes of their own; the rest is drawn
    from all measurements. 0: all measurements count alike."""
    patience: int = 1000
    """Train until the error on a tenth of the data, which the member does not see, has not fallen for this many gradient steps,
    and keep the best weights. The error is computed every 100 steps; with fewer than 100 measurements, on those of the
    training. 0: train for all epochs."""
    epochs: int = 1000
    """Passes over the data after each round; with patience, at most."""
    max_steps: int = 20_000
    """Largest number of gradient steps after each round; it may end the passes early."""
    warm_start: bool = True
    """Start each fit from the weights of the last one instead of new random ones."""
    bootstrap: bool = False
    """Train each member on a bootstrap sample of the data (drawn with replacement) instead of all data."""
    optimiser: Literal["adamw", "adam"] = "adamw"
    """adamw: decoupled weight decay. adam: the weight decay is an L2 penalty, whose gradient Adam rescales too."""
    optimiser_epsilon: float = 1e-8
    """Epsilon of Adam, added to the square root of its second moment."""
    keep_optimiser_state: bool = False
    """Continue with the optimiser state of the last fit instead of a new one."""
    initial_scale: float = 1.0
    """Std of the initial weights, in units of 1 / sqrt(inputs of the layer)."""
    smallest_spread: float = SMALLEST_SPREAD
    """Inputs and targets whose std over the data is this or less are not scaled: they count as constant."""

    def __post_init__(self):
        """Reject settings that cannot work."""
        one_of("setting of the model's noise", self.noise, ("learned", "fixed"))
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
        if not 0 <= self.patience < float("inf"):
            raise SondeError(f"model: patience must be 0 (train for all epochs) or above, got {self.patience}")
        if not 0 <= self.new_share < 1 or (self.new_share and not 0 < self._new_rows < self.batch_size):
            raise SondeError(
                f"model: new_share must be 0 or a share below 1 that is at least one row, and not all, of a batch "
                f"({self.batch_size}), got {self.new_share}"
            )
        if self.keep_optimiser_state and not self.warm_start:
            raise SondeError(
                "model: keep_optimiser_state needs warm_start, because the optimiser's state belongs to the weights; "
                "turn warm_start on or keep_optimiser_state off"
            )
        for name in ("noise_std", "noise_floor"):
            if not SMALLEST_NOISE <= getattr(self, name) < float("inf"):
                raise SondeError(f"model: {name} must be {SMALLEST_NOISE} or above, got {getattr(self, name)}")
        if self.members < 2:
            raise SondeError(f"model: members must be 2 or more, got {self.members}; the epistemic std is their disagreement")
        if not self.noise_floor < self.noise_ceiling < float("inf"):
            raise SondeError(f"model: noise_ceiling must be above noise_floor ({self.noise_floor}), got {self.noise_ceiling}")
        if not 0 <= self.weight_decay < float("inf"):
            raise SondeError(f"model: weight_decay must be 0 or above, got {self.weight_decay}")

    @property
    def ensemble_size(self) -> int:
        """Number of members."""
        return self.members

    @property
    def _new_rows(self) -> int:
        """Rows of each batch that are drawn from new measurements."""
        return round(self.new_share * self.batch_size)

    # ---- what subclasses define

    @property
    def has_affine_part(self) -> bool:
        """Whether an affine function is fitted in closed form, and the networks to what it leaves."""
        return False

    @abc.abstractmethod
    def network_sizes(self, state_dim: int, input_dim: int) -> tuple[tuple[int, ...], ...]:
        """Numbers of inputs, units and outputs of each fully connected network that a member has.

        Args:
            state_dim: Number of state dimensions dx.
            input_dim: Number of inputs beside the state.
        """

    def inputs_size(self, state_dim: int, input_dim: int) -> int:
        """Number of inputs of a member.

        Args:
            state_dim: Number of state dimensions dx.
            input_dim: Number of inputs beside the state.
        """
        return state_dim + input_dim

    @property
    @abc.abstractmethod
    def live_units(self) -> int:
        """Activations of one member at one point that are held at the same time, roughly."""

    @abc.abstractmethod
    def new_networks(self, state_dim: int, input_dim: int, key: Key[Array, ""]) -> MemberNetwork:
        """Random networks of all members [E, ...].

        Args:
            state_dim: Number of state dimensions dx.
            input_dim: Number of inputs beside the state.
            key: Randomness of the weights.
        """

    @abc.abstractmethod
    def no_normalisation(self, state_dim: int, input_dim: int) -> tuple[Normaliser, Normaliser]:
        """Normalisers of inputs and targets before any data.

        Args:
            state_dim: Number of state dimensions dx.
            input_dim: Number of inputs beside the state.
        """

    @abc.abstractmethod
    def normalisers(self, data: Data) -> tuple[Normaliser, Normaliser]:
        """Normalisers of inputs and targets by data.

        Args:
            data: Measurements of one seed.
        """

    @abc.abstractmethod
    def inputs(self, normaliser: Normaliser, x: Float[Array, "*n dx"], u: Float[Array, "*n du"]) -> Float[Array, "*n dz"]:
        """Compute what the networks see.

        Args:
            normaliser: That of the inputs.
            x: States.
            u: Inputs beside the state.
        """

    @abc.abstractmethod
    def changes(self, x: Float[Array, "*n dx"], x_next: Float[Array, "*n dx"]) -> Float[Array, "*n dx"]:
        """Compute what the networks learn, before normalisation.

        Args:
            x: States.
            x_next: Next states.
        """

    def every_target(self, normaliser: Normaliser) -> Normaliser:
        """The normaliser of the targets with a number for each of them.

        Args:
            normaliser: As in the params.
        """
        return normaliser

    @abc.abstractmethod
    def prediction(
        self, params: EnsembleParams, x: Float[Array, " dx"], z: Float[Array, " dz"], outputs: MemberOutputs, average: Average
    ) -> Prediction:
        """Make a prediction of the networks' outputs.

        Args:
            params: The params.
            x: State.
            z: What the networks saw.
            outputs: What they say.
            average: Mean over the members.
        """

    def fused(self, networks: MemberNetwork) -> FusedNetworks | None:
        """The networks for the fused GPU kernel, if it can take them and should.

        Args:
            networks: Networks with leading axes [*seeds, E].
        """
        del networks
        return None

    # ---- training

    def init(self, state_dim: int, action_dim: int, key: Key[Array, ""]) -> EnsembleParams:
        """Random weights, and no normalisation."""
        inputs, targets = self.no_normalisation(state_dim, action_dim)
        networks = self.new_networks(state_dim, action_dim, key)
        affine = jnp.zeros((self.members, state_dim, state_dim + action_dim)) if self.has_affine_part else None
        moments = jax.vmap(self._new_moments)(networks) if self.keep_optimiser_state else None
        return EnsembleParams(networks, inputs, targets, affine, moments, jnp.zeros((), int) if self.new_share else None)

    def fit(self, params: EnsembleParams, data: Data, filled: Int[Array, ""], key: Key[Array, ""]) -> EnsembleParams:
        """Fit the affine part if there is one, and train all members on the rest, each in its own order of the data."""
        mask = data.mask()
        inputs, targets = self.normalisers(data)
        z, changes = self.inputs(inputs, data.states, data.actions), self.changes(data.states, data.next_states)
        init_key, order_key, affine_key = jax.random.split(key, 3)
        affine = None
        if self.has_affine_part:
            affine, left = affine_members(z, changes, mask, self.members, affine_key)
            targets = Normaliser(targets.shift, jnp.maximum(left, SMALLEST_REST * targets.scale))
        networks = params.networks
        if not self.warm_start:
            networks = self.new_networks(data.states.shape[1], data.actions.shape[1], init_key)
        # `filled` is the same for all seeds, so the largest numbers of steps are too
        shared = jnp.maximum(jnp.sum(replace(data, count=filled).mask()), 1)
        batches = -(-shared // self.batch_size)

        told = params.told if params.told is None or data.forgotten is None else params.told - data.forgotten

        units = self.every_target(targets)

        def train(loop: Callable[..., Any], member: _Member) -> tuple[MemberNetwork, Any]:
            y = units(changes if member.affine is None else changes - z @ member.affine.T)
            rows = _Rows(z.astype(jnp.float32), y.astype(jnp.float32), mask, batches, told)
            return self._train(loop, member, rows)

        keys = jax.random.split(order_key, self.members)
        members = _Member(networks, params.moments, affine, keys, jnp.arange(self.members))
        networks, moments = over_members(partial(train, one_by_one), members, elsewhere=partial(train, in_chunks))
        return EnsembleParams(networks, inputs, targets, affine, moments, data.total if self.new_share else None)

    def _train(self, loop: Callable[..., Any], member: "_Member", data: "_Rows") -> tuple[MemberNetwork, Any]:
        """Weights and optimiser state of one member after its training."""
        z, y, batches, optimiser = data.z, data.y, data.batches, self._optimiser()
        unseen = validation_rows(data.mask, member.number) if self.patience else jnp.zeros_like(data.mask)
        seen = data.mask & ~unseen
        # `rows` has the rows that are seen first; they are taken in another order in each epoch
        rows, count = jnp.nonzero(seen, size=seen.shape[0], fill_value=0)[0], jnp.maximum(jnp.sum(seen), 1)
        bootstrap_key, order_key = jax.random.split(member.key)
        if self.bootstrap:
            rows = rows[jax.random.randint(bootstrap_key, rows.shape, 0, count)]
        positions = in_passes(Span(0, count), self.batch_size, batches, order_key)
        if data.told is not None:
            used = jnp.arange(rows.shape[0]) < count
            rows = jnp.sort(jnp.where(used, rows, rows.shape[0]))  # a bootstrap sample is in no order
            old, new = jnp.sum(rows < data.told), self._new_rows
            positions = with_new(Span(0, count), old, (self.batch_size - new, new), order_key)
        batch = lambda i: rows[positions(i)]

        def step(carry, chosen):
            network, state = carry
            gradient = jax.grad(self._loss)(network, z[chosen], y[chosen])
            updates, state = optimiser.update(gradient, state, network)
            return cast(MemberNetwork, optax.apply_updates(network, updates)), state

        start = member.network, self._new_moments(member.network) if member.moments is None else member.moments
        most = jnp.minimum(self.epochs * batches, self.max_steps)
        if self.patience:
            judged = some_rows(jnp.where(jnp.any(unseen), unseen, seen))  # of few measurements, all are needed for training
            error = lambda carry: self._error(carry[0], z[judged.rows], y[judged.rows], judged.used)
            network, state = until_converged(loop, step, start, batch, error, (most, self.patience))
        else:
            network, state = loop(step, start, batch, most)
        return network, state if self.keep_optimiser_state else None  # of all members, it takes twice their memory

    def _optimiser(self) -> optax.GradientTransformation:
        if self.optimiser == "adamw":
            return optax.adamw(self.learning_rate, eps=self.optimiser_epsilon, weight_decay=self.weight_decay)
        penalty = optax.add_decayed_weights(self.weight_decay)
        return optax.chain(penalty, optax.adam(self.learning_rate, eps=self.optimiser_epsilon))

    def _new_moments(self, network: MemberNetwork) -> Any:
        # optax types its pytrees as nested containers of arrays, which does not include equinox modules
        weights: Any = network
        return self._optimiser().init(weights)

    def heads(self, output: Float32[Array, "*batch out"]) -> tuple[Float32[Array, "*batch dx"], Float32[Array, "*batch dx"]]:
        """Mean and log noise std, in normalised units.

        Args:
            output: A network's output.
        """
        if self.noise == "fixed":
            return output, jnp.full_like(output, math.log(self.noise_std))
        mean, raw = jnp.split(output, 2, axis=-1)
        low, high = math.log(self.noise_floor), math.log(self.noise_ceiling)
        # softplus(capped - low) with capped = high - softplus(high - raw), written with one exponential and one logarithm
        above = jnp.log(1.0 + math.exp(high - low) * jax.nn.sigmoid(raw - high))
        # softplus(t) is slightly more than t: the factor brings the largest value back to the ceiling
        return mean, low + above * ((high - low) / math.log1p(math.exp(high - low)))

    def _error(self, network: MemberNetwork, z: Array, y: Array, rows: Array) -> Float32[Array, ""]:
        """Logarithm of the error of one member's mean, averaged over outputs.

        The likelihood would end the training early: a noise head is sure of what it has seen long before the mean is learned.
        """
        mean, _ = self.heads(network(z))
        squared = jnp.sum((y - mean) ** 2, axis=0, where=rows[:, None]) / jnp.maximum(jnp.sum(rows), 1)
        return jnp.mean(0.5 * jnp.log(jnp.maximum(squared, 1e-12)))

    def _loss(self, network: MemberNetwork, z: Float32[Array, "batch dz"], y: Float32[Array, "batch dx"]) -> Float32[Array, ""]:
        """Negative log-likelihood of one member, up to constants."""
        mean, log_std = self.heads(network(z))
        if self.noise == "fixed":  # mean squared error without the factor 1/2: the strength of an L2 penalty is relative to it
            return jnp.mean((y - mean) ** 2)
        return jnp.mean(0.5 * (y - mean) ** 2 * jnp.exp(-2 * log_std) + log_std)
